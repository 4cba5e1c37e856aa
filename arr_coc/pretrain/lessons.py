"""Lessons: questions for practice alone, steps on the way to those that are asked.

What takes several steps to answer was hardly learned from answers alone: which of two is cheaper, what
has the same colour. A lesson asks one of the steps, or asks for all of them aloud, or asks what the scene
was not drawn for: a picture costs more than a question about it. Nobody is evaluated on them.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice

import numpy as np

from arr_coc.scenes import drawing, questions
from arr_coc.scenes.canvas import Scene
from arr_coc.scenes.facts import Facts
from arr_coc.scenes.questions import Question, Thing
from arr_coc.scenes.richer import Asked, ask_richer, seen_with
from arr_coc.scenes.wordings import worded

LESSON = "lesson"  # the kind of question, until `lessons` says of which
NUMBERS = (10, 100)  # those that are compared, the last one excluded
NEAR = 30  # a number to compare with is at most so far from the thing's own
MOST = 4  # things that are compared
# Where something is further, along which axis of a box, and by how many pixels at least.
WAYS = {"left": (0, -1), "right": (0, 1), "up": (1, -1), "down": (1, 1)}
PLAINLY = 40
PER_LESSON = 8  # questions of one lesson about a picture, at most, but for these:
MOST_OF = {"line": 20, "chart": 16}
ROUNDS = 2  # in which what the large world asks is asked, each time about other things
# Of the names or colours that so many things have, the share that is asked about: few have many.
COUNT_SHARES = {1: 0.15, 2: 0.3, 3: 0.7}
FEW = 16  # things that are compared or counted all together, at most
# The share of a lesson's questions that is used: what is learned is only kept up.
SHARES = {"more": 0.1, "attribute": 0.1, "larger": 0.3, "found": 0.2, "over": 0.3, "how_many": 0.8}
SHARES |= {"relation": 0.5, "further": 0.5, "beside": 0.5, "line": 0.8, "chart": 0.8}


Lesson = Callable[[np.random.Generator, Asked], Iterator[Question]]


def lessons(rng: np.random.Generator, scene: Scene, most: int) -> list[Question]:
    """At most `most` lessons about a scene, in any order; each has the kind `lesson_` and its name."""
    if not most:
        return []
    asked = Asked(scene.objects, scene.facts or Facts(scene.setting), MOST)
    found = [
        replace(question, kind=f"lesson_{name}")
        for name, lesson in LESSONS.items()
        for question in islice(lesson(rng, asked), MOST_OF.get(name, PER_LESSON))
        if rng.random() < SHARES.get(name, 1)
    ]
    return [found[i] for i in rng.permutation(len(found))[:most]]


def _more(rng: np.random.Generator, asked: Asked) -> Iterator[Question]:
    """Two numbers compared: no picture is needed."""
    first, second = (int(n) for n in rng.choice(np.arange(*NUMBERS), 2, replace=False))
    sign = "$" if rng.random() < 0.5 else ""
    if rng.random() < 0.5:
        text = f"which is more, {sign}{first} or {sign}{second}?"
        yield Question(text, f"{sign}{max(first, second)}", LESSON)
    else:
        text = f"which is less, {sign}{first} or {sign}{second}?"
        yield Question(text, f"{sign}{min(first, second)}", LESSON)


def _if(rng: np.random.Generator, asked: Asked) -> Iterator[Question]:
    """Prices or colours are told, and compared as those of a picture are: no picture is needed."""
    names = sorted({thing.name for thing in asked.objects})
    for _ in range(ROUNDS if len(names) > 1 else 0):
        first, second, *more = (str(names[i]) for i in rng.permutation(len(names))[:3])
        if more and rng.random() < 0.5:
            alike, unlike = rng.permutation(list(drawing.COLOURS))[:2]
            colours = {first: alike, second: alike, more[0]: unlike}
            told = [f"the {name} is {colours[name]}" for name in rng.permutation(list(colours))]
            text = f"if {', '.join(told)}, what has the same colour as the {first}?"
            yield Question(text, second, LESSON)
        else:
            low, high = sorted(rng.choice(np.arange(*NUMBERS), 2, replace=False))
            costs = {first: low, second: high}
            told = [f"the {name} costs ${costs[name]}" for name in rng.permutation(list(costs))]
            is_least = rng.random() < 0.5
            text = f"if {', '.join(told)}, which is {'cheaper' if is_least else 'dearer'}?"
            yield Question(text, first if is_least else second, LESSON)


def _over(rng: np.random.Generator, asked: Asked) -> Iterator[Question]:
    """A number in the picture compared with one in the question."""
    for thing in _numbered(rng, asked):
        number = _number(thing)
        other = int(np.clip(number + rng.integers(-NEAR, NEAR + 1), NUMBERS[0], NUMBERS[1] - 1))
        if other == number:
            continue
        if thing.detail_kind == "price":
            text = f"does the {thing.name} cost more than ${other}?"
        else:
            text = f"is {thing.name} more than {other}?"
        yield Question(text, "yes" if number > other else "no", LESSON, seen_with(thing))


def _found(rng: np.random.Generator, asked: Asked) -> Iterator[Question]:
    """What is the only thing of its colour."""
    if asked.has_own_colours:
        return
    colours = [thing.colour for thing in asked.objects]
    for i in rng.permutation(len(asked.unique)):
        thing = asked.unique[i]
        if thing.colour and colours.count(thing.colour) == 1:
            yield Question(f"which thing is {thing.colour}?", thing.name, LESSON, (thing.box,))


def _aloud(rng: np.random.Generator, asked: Asked) -> Iterator[Question]:
    """Two prices, and the cheaper one; a colour, and the other thing that has it."""
    priced = [thing for thing in _numbered(rng, asked) if thing.detail_kind == "price"]
    for a, b in zip(priced[::2], priced[1::2], strict=False):
        if a.detail != b.detail:
            cheaper = min(a, b, key=_number)
            text = f"what do the {a.name} and the {b.name} cost, and which is cheaper?"
            answer = f"{a.detail} {b.detail} {cheaper.name}"
            yield Question(text, answer, LESSON, (*seen_with(a), *seen_with(b)))
    for thing, other in _alike(rng, asked):
        text = f"what colour is the {thing.name}, and what else has it?"
        yield Question(text, f"{thing.colour} {other.name}", LESSON, (thing.box, other.box))


def _cheapest(rng: np.random.Generator, asked: Asked) -> Iterator[Question]:
    """The cheapest of all, or the dearest, where few things have a price."""
    if sum(thing.detail_kind == "price" for thing in asked.things) > FEW:
        return
    for _ in range(ROUNDS):
        yield from questions.ask(rng, "cheapest", asked.things, (0, 0), setting="", counted=None)


def _leftmost(rng: np.random.Generator, asked: Asked) -> Iterator[Question]:
    """The first thing from the left, or from the right, where one is clearly first."""
    if not asked.objects:
        return
    size = tuple(max(thing.box[axis] for thing in asked.objects) for axis in (2, 3))
    names = {thing.name for thing in asked.unique}
    for _ in range(ROUNDS):
        found = questions.ask(rng, "leftmost", asked.objects, size, setting="", counted=None)
        yield from (question for question in found if question.answer in names)


def _further(rng: np.random.Generator, asked: Asked) -> Iterator[Question]:
    """Which of two things is further to one side, where it is plain."""
    order = rng.permutation(len(asked.unique))
    for i, j in zip(order[::2], order[1::2], strict=False):
        way, (axis, sign) = list(WAYS.items())[rng.integers(len(WAYS))]
        a, b = asked.unique[i], asked.unique[j]
        off = sign * (a.box[axis] + a.box[axis + 2] - b.box[axis] - b.box[axis + 2]) / 2
        if abs(off) > PLAINLY:
            text = f"which is further {way}, the {a.name} or the {b.name}?"
            yield Question(text, (a if off > 0 else b).name, LESSON, (a.box, b.box))


def _beside(rng: np.random.Generator, asked: Asked) -> Iterator[Question]:
    """What is next to a thing, as in the small world, where only one thing has the answer's name."""
    names = {thing.name for thing in asked.unique}
    found = questions.ask(rng, "beside", asked.objects, (0, 0), setting="", counted=None)
    yield from (question for question in found if question.answer in names)


def _how_many(rng: np.random.Generator, asked: Asked) -> Iterator[Question]:
    """How many things have a colour."""
    if asked.has_own_colours:
        return
    colours = [thing.colour for thing in asked.objects if thing.colour]
    for colour in rng.permutation(sorted(set(colours))):
        boxes = tuple(thing.box for thing in asked.objects if thing.colour == colour)
        if _is_counted(rng, len(boxes)):
            text = worded(rng, "count_colour", xs="things", c=colour)
            yield Question(text, str(len(boxes)), LESSON, boxes)


def _how_often(rng: np.random.Generator, asked: Asked) -> Iterator[Question]:
    """How many things have a name, where several have one."""
    names = [thing.name for thing in asked.objects]
    if len(set(names)) == len(names):
        return
    for name in rng.permutation(sorted(set(names))):
        boxes = tuple(thing.box for thing in asked.objects if thing.name == name)
        if _is_counted(rng, len(boxes)):
            yield from questions.ask(
                rng, "count", asked.objects, (0, 0), setting="", counted=str(name)
            )


def _is_counted(rng: np.random.Generator, number: int) -> bool:
    """Whether it is asked how many they are, where they are so many."""
    return number <= FEW and rng.random() < COUNT_SHARES.get(number, 1)


def _line(rng: np.random.Generator, asked: Asked) -> Iterator[Question]:
    """Of a board what is asked in any case, of more of its lines, and whether two cells are of one line."""
    lines, facts = asked.facts.lines, asked.facts
    for i in rng.permutation(len(lines)):
        cells, others = lines[i].cells, lines[rng.integers(len(lines))].cells
        place, gate = cells["place"], others["gate"] if rng.random() < 0.5 else cells["gate"]
        is_its = gate is cells["gate"]
        text = f"does the {facts.vehicle} to {place.detail} leave from {facts.gate} {gate.detail}?"
        yield Question(text, "yes" if is_its else "no", LESSON, (place.box, cells["gate"].box))
        yield from ask_richer(rng, "board_row", asked)


def _chart(rng: np.random.Generator, asked: Asked) -> Iterator[Question]:
    """Of one of several charts: the value of a bar, the bar of a value, the higher of two and of all."""
    charts = asked.facts.charts
    for i in rng.permutation(len(charts)):
        bars, title = charts[i].bars, charts[i].title
        bar, other = (bars[j] for j in rng.permutation(len(bars))[:2])
        boxes = (charts[i].title_box, bar.box)
        yield Question(f"what is {bar.name} in the {title} chart?", bar.detail, LESSON, boxes)
        boxes = (charts[i].title_box, other.box)
        yield Question(f"which {title} bar is {other.detail}?", other.name, LESSON, boxes)
        higher = max(bar, other, key=_number)
        text = f"which is higher in the {title} chart, {bar.name} or {other.name}?"
        yield Question(text, higher.name, LESSON, (charts[i].title_box, bar.box, other.box))
        alone = replace(asked, facts=replace(asked.facts, charts=(charts[i],)))
        yield from ask_richer(rng, "bar", alone)


def _as_in_the_large_world(kind: str) -> Lesson:
    """What is asked of the large world, in pictures of few things too."""

    def lesson(rng: np.random.Generator, asked: Asked) -> Iterator[Question]:
        found = {
            (question.text.lower().rstrip("?."), question.answer): question
            for _ in range(ROUNDS)
            for question in ask_richer(rng, kind, asked)
        }
        yield from found.values()

    return lesson


LESSONS: dict[str, Lesson] = {
    "more": _more,
    "if": _if,
    "over": _over,
    "found": _found,
    "aloud": _aloud,
    "cheapest": _cheapest,
    "leftmost": _leftmost,
    "further": _further,
    "beside": _beside,
    "how_many": _how_many,
    "how_often": _how_often,
    "line": _line,
    "chart": _chart,
    "sign": _as_in_the_large_world("sign_beside"),
    "same": _as_in_the_large_world("same_colour"),
    "attribute": _as_in_the_large_world("attribute"),
    "larger": _as_in_the_large_world("larger"),
    "cheaper": _as_in_the_large_world("cheaper"),
    "relation": _as_in_the_large_world("relation"),
}


def _alike(rng: np.random.Generator, asked: Asked) -> Iterator[tuple[Thing, Thing]]:
    """Two things alone in having their colour, and their names, each first in turn."""
    if asked.has_own_colours:
        return
    for i in rng.permutation(len(asked.unique)):
        thing = asked.unique[i]
        alike = [t for t in asked.objects if t.colour == thing.colour and t is not thing]
        if thing.colour and len(alike) == 1 and alike[0] in asked.unique:
            yield thing, alike[0]


def _numbered(rng: np.random.Generator, asked: Asked) -> Sequence[Thing]:
    """The things with a price or a value whose name no other thing has, in any order."""
    names = [thing.name for thing in asked.things]
    found = [
        thing
        for thing in asked.things
        if thing.detail_kind in ("price", "value") and names.count(thing.name) == 1
    ]
    return [found[i] for i in rng.permutation(len(found))]


def _number(thing: Thing) -> int:
    return int(thing.detail.lstrip("$"))
