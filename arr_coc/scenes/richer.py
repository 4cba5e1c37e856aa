"""Richer questions, for the large world: about two things, a colour, a line of a board, one chart of many.

Knows things, facts and boxes, no pixels. The evidence of a question, its boxes, is all that must be
seen to answer it: whatever it names, whatever is compared or counted, and the answer. Where a question
names the things to choose from, each is the answer equally often.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from arr_coc.scenes import drawing, wordings
from arr_coc.scenes.drawing import Box, Rng
from arr_coc.scenes.facts import Facts
from arr_coc.scenes.phrasings import PLURALS
from arr_coc.scenes.questions import Question, Thing, neighbour, read_with
from arr_coc.scenes.wordings import worded
from arr_coc.scenes.writing import QUARTERS

RICHER_KINDS = {
    "relation": "what is between two things, or left of one and above another",
    "sign_beside": "what is written on the sign next to a thing, its shop or its pin (reading)",
    "larger": "which of some named things is larger, or smaller",
    "same_colour": "which thing has the same colour as another",
    "count_colour": "how many things, shirts, doors, pins or bars have a colour",
    "attribute": "whether a thing has a colour (yes or no)",
    "board_row": "the gate, time or destination of a line of a departure board (reading)",
    "paper": "the total, the date or another entry of a whole-page form or a receipt (reading)",
    "bar": "the highest, or lowest, bar of one of several charts",
    "cheaper": "which of some named things is cheaper, or costs more (reading)",
}
CHOICE_KINDS = ("larger", "cheaper")  # name the things to choose from
MOST_ASKED = 4  # questions of a kind about one picture
ENTRY_KINDS = ("entry", "cell", "value")  # details of things that are writing, not objects
LARGER_AREA, LARGER_SIDE = 1.6, 1.2  # so many times the next: then it is plain which is larger
CLEARLY_NEARER = 30  # pixels by which a sign is nearer than any other
TRIES = 12


@dataclass(frozen=True)
class Asked:
    """What an asker is given: the picture's things and facts, and the most things to count."""

    things: Sequence[Thing]
    facts: Facts
    most: int

    @cached_property
    def objects(self) -> list[Thing]:
        """The things that have a name and stand somewhere: no entries, cells or bars."""
        return [t for t in self.things if t.name and t.detail_kind not in ENTRY_KINDS]

    @cached_property
    def unique(self) -> list[Thing]:
        """The objects whose name no other object has."""
        names = [thing.name for thing in self.objects]
        return [thing for thing in self.objects if names.count(thing.name) == 1]

    @cached_property
    def has_own_colours(self) -> bool:
        """Whether things are in colours of their own: then nobody can say what else is red."""
        return any(thing.colour is None for thing in self.objects)


def ask_richer(rng: Rng, kind: str, asked: Asked) -> list[Question]:
    """At most `MOST_ASKED` questions of one of `RICHER_KINDS`."""
    found = list(_ASKERS[kind](rng, asked))
    return [found[i] for i in rng.permutation(len(found))[:MOST_ASKED]]


def seen_with(thing: Thing) -> tuple[Box, ...]:
    """The boxes of a thing and of what is written outside it."""
    if thing.detail_box is None or _holds(thing.box, thing.detail_box):
        return (thing.box,)
    return thing.box, thing.detail_box


def _holds(outer: Box, inner: Box) -> bool:
    return all(outer[i] <= inner[i] and inner[i + 2] <= outer[i + 2] for i in (0, 1))


def gap(a: Box, b: Box) -> float:
    """Pixels between two boxes, across or down, whichever are more; 0 where they touch."""
    return max(0.0, *(max(a[i] - b[i + 2], b[i] - a[i + 2]) for i in (0, 1)))


def _hull(*boxes: Box) -> Box:
    low, high = np.min(boxes, 0), np.max(boxes, 0)
    return float(low[0]), float(low[1]), float(high[2]), float(high[3])


def _relation(rng: Rng, asked: Asked) -> Iterator[Question]:
    """What stands between two things in line with it, or at the corner that two things make."""
    objects, unique = asked.objects, {id(thing) for thing in asked.unique}
    beside = {
        (id(thing), axis): neighbour(thing, objects, axis) for thing in objects for axis in (0, 1)
    }
    for last in objects:
        for axis in (0, 1):
            middle = beside[id(last), axis]
            first = middle and beside[id(middle), axis]
            if first is None or not {id(first), id(last)} <= unique or first.name == last.name:
                continue
            ends = _hull(first.box, last.box)
            inside = [t for t in objects if gap(t.box, ends) == 0 and t not in (first, last)]
            if inside == [middle] and id(middle) in unique:
                pair = [first.name, last.name] if rng.random() < 0.5 else [last.name, first.name]
                text = worded(rng, "between", x=pair[0], y=pair[1])
                boxes = (first.box, middle.box, last.box)
                yield Question(text, middle.name, "relation", boxes)
    for right in objects:
        corner = beside[id(right), 0]
        for below in objects:
            if corner and beside[id(below), 1] is corner and {id(right), id(below)} <= unique:
                text = worded(rng, "corner", x=right.name, y=below.name)
                boxes = (right.box, below.box, corner.box)
                yield Question(text, corner.name, "relation", boxes)


def _sign_beside(rng: Rng, asked: Asked) -> Iterator[Question]:
    unique = asked.unique
    for how, thing, sign in asked.facts.signs:
        others = [t for t in asked.things if t.name == sign.name and t is not sign]
        near = gap(thing.box, sign.box) + CLEARLY_NEARER
        clear = how == "shop" or all(gap(thing.box, other.box) > near for other in others)
        if thing in unique and clear:
            text = worded(rng, f"sign_{how}", x=thing.name)
            yield Question(text, sign.detail, "sign_beside", (thing.box, sign.detail_box))


def _larger(rng: Rng, asked: Asked) -> Iterator[Question]:
    yield from _compared(rng, asked, asked.unique, _plainly_larger, "larger")


def _plainly_larger(thing: Thing, other: Thing) -> bool:
    sides = [(t.box[2] - t.box[0], t.box[3] - t.box[1]) for t in (thing, other)]
    (w, h), (other_w, other_h) = sides
    return w * h > LARGER_AREA * other_w * other_h and max(w, h) > LARGER_SIDE * max(
        other_w, other_h
    )


def _cheaper(rng: Rng, asked: Asked) -> Iterator[Question]:
    priced = [thing for thing in asked.unique if thing.detail_kind == "price"]
    yield from _compared(rng, asked, priced, _dearer, "cheaper")


def _dearer(thing: Thing, other: Thing) -> bool:
    return int(thing.detail.lstrip("$")) > int(other.detail.lstrip("$"))


def _compared(
    rng: Rng,
    asked: Asked,
    things: Sequence[Thing],
    beats: Callable[[Thing, Thing], bool],
    kind: str,
) -> Iterator[Question]:
    """Which of two to `asked.most` named things beats all others, or is beaten by all."""
    if len(things) < 2:
        return
    for _ in range(TRIES):
        count = int(rng.integers(2, min(asked.most, len(things)) + 1))
        group = [things[i] for i in rng.permutation(len(things))[:count]]
        upper = bool(rng.integers(2))
        winners = [
            t for t in group
            if all(o is t or (beats(t, o) if upper else beats(o, t)) for o in group)
        ]  # fmt: skip
        if winners:
            key = f"{kind}_{'most' if upper else 'least'}_{'two' if count == 2 else 'more'}"
            *names, last = (f"the {thing.name}" for thing in group)
            text = worded(rng, key, x=", ".join(names), y=last)
            boxes = tuple(box for thing in group for box in _compared_boxes(kind, thing))
            yield Question(text, winners[0].name, kind, boxes)


def _compared_boxes(kind: str, thing: Thing) -> tuple[Box, ...]:
    """A price is read beside its thing; a size needs the thing alone."""
    return seen_with(thing) if kind == "cheaper" else (thing.box,)


def _same_colour(rng: Rng, asked: Asked) -> Iterator[Question]:
    if asked.has_own_colours:
        return
    for colour in drawing.COLOURS:
        pair = [thing for thing in asked.objects if thing.colour == colour]
        if len(pair) == 2 and all(thing in asked.unique for thing in pair):
            named, other = (pair[i] for i in rng.permutation(2))
            text = worded(rng, "same_colour", x=named.name)
            yield Question(text, other.name, "same_colour", (named.box, other.box))


def _count_colour(rng: Rng, asked: Asked) -> Iterator[Question]:
    for name, colour in asked.facts.dealt:
        things = asked.objects
        if not name and asked.has_own_colours:
            continue
        if name == "bar":
            things = [thing for thing in asked.things if thing.detail_kind == "value"]
        elif name:
            things = [thing for thing in things if thing.name == name]
        boxes = tuple(thing.box for thing in things if thing.colour == colour)
        plural = PLURALS.get(name, f"{name}s") if name else "things"
        if 0 < len(boxes) <= asked.most:
            text = worded(rng, "count_colour", xs=plural, c=colour)
            yield Question(text, str(len(boxes)), "count_colour", boxes)


def _attribute(rng: Rng, asked: Asked) -> Iterator[Question]:
    """Whether a thing has its colour, or that of another thing."""
    unique = [thing for thing in asked.unique if thing.colour]
    for i in rng.permutation(len(unique))[:MOST_ASKED]:
        thing, true = unique[i], bool(rng.integers(2))
        others = [t.colour for t in unique if t.colour != thing.colour]
        if others:
            colour = thing.colour if true else others[rng.integers(len(others))]
            text = worded(rng, "attribute", x=thing.name, c=colour)
            yield Question(text, "yes" if true else "no", "attribute", (thing.box,))


def _board_row(rng: Rng, asked: Asked) -> Iterator[Question]:
    """A cell of a line that is named by its place on the board or by another of its cells."""
    facts, lines = asked.facts, asked.facts.lines
    words = {"v": facts.vehicle, "g": facts.gate}
    for key, read in (("gate_nth", "gate"), ("place_nth", "place")):
        if lines:
            place = int(rng.integers(min(asked.most, len(lines))))
            cell = lines[place].cells[read]
            # The lines above are counted: their first cells are seen, and the line's own.
            counted = tuple(line.cells["time"].box for line in lines[: place + 1])
            text = worded(rng, key, n=wordings.ORDINALS[place], **words)
            yield Question(text, cell.detail, "board_row", (*counted, cell.box))
    for key, named, read in (
        ("gate_to", "place", "gate"), ("time_to", "place", "time"), ("place_at", "gate", "place"),
    ):  # fmt: skip
        if lines:
            cells = lines[rng.integers(len(lines))].cells
            text = worded(rng, key, x=cells[named].detail, **words)
            boxes = (cells[named].box, cells[read].box)
            yield Question(text, cells[read].detail, "board_row", boxes)


def _paper(rng: Rng, asked: Asked) -> Iterator[Question]:
    paper = asked.facts.paper
    for entry in (thing for thing in asked.things if thing.detail_kind == "entry"):
        bought = paper == "receipt" and entry.name not in ("total", "tax", "date", "table")
        text = worded(rng, "bought" if bought else "entry", x=entry.name, p=paper)
        yield Question(text, entry.detail, "paper", read_with(entry))


def _bar(rng: Rng, asked: Asked) -> Iterator[Question]:
    for chart in asked.facts.charts:
        upper = bool(rng.integers(2))
        text = worded(rng, "bar_highest" if upper else "bar_lowest", x=chart.title)
        boxes = (chart.title_box, *(bar.box for bar in chart.bars))
        yield Question(text, _extreme(chart.bars, upper=upper).name, "bar", boxes)


def _extreme(bars: Sequence[Thing], *, upper: bool) -> Thing:
    """The highest bar or the lowest: no two are as high."""
    ranked = sorted(bars, key=lambda bar: int(bar.detail))
    assert all(int(a.detail) < int(b.detail) for a, b in pairwise(ranked))
    return ranked[-1 if upper else 0]


def ask_best_quarter(rng: Rng, asked: Asked) -> Iterator[Question]:
    """Today's `chart_highest` where several charts are: only one of them has quarters."""
    for chart in asked.facts.charts:
        if chart.bars[0].name in QUARTERS:
            upper = bool(rng.integers(2))
            text = worded(rng, "quarter_highest" if upper else "quarter_lowest")
            boxes = tuple(bar.box for bar in chart.bars)
            yield Question(text, _extreme(chart.bars, upper=upper).name, "chart_highest", boxes)


_ASKERS: dict[str, Callable[[Rng, Asked], Iterator[Question]]] = {
    "relation": _relation,
    "sign_beside": _sign_beside,
    "larger": _larger,
    "same_colour": _same_colour,
    "count_colour": _count_colour,
    "attribute": _attribute,
    "board_row": _board_row,
    "paper": _paper,
    "bar": _bar,
    "cheaper": _cheaper,
}
