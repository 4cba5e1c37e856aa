"""What scenes are asked: the kinds of question, and what can be asked of which things.

Knows things and boxes, no pixels. An asker takes a generator, the things and the size (width, height)
of a picture, and yields questions whose answers it has read off the things.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from arr_coc.scenes.drawing import Box, Rng, glyph_names
from arr_coc.scenes.phrasings import phrased

KINDS = {
    "colour": "the colour of a named thing",
    "exists": "whether a named thing is in the picture (yes or no)",
    "where": "in which quarter of the picture a thing is",
    "leftmost": "which thing is leftmost, or rightmost",
    "beside": "which thing is next to another, on its left or above it",
    "count": "how many of a named thing there are (1 to 4)",
    "setting": "what the whole picture shows: a street, a room, a field, a table, a pattern",
    "emblem_colour": "the colour of a small emblem on a sign, flag, door or shirt (fine detail)",
    "number": "the two-digit number on a small plate (reading)",
    "word": "the short word on a small plate (reading)",
    "price": "the price on a thing's tag (reading)",
    "cheapest": "which of the priced things is cheapest, or costs most",
    "chart_value": "the value of one bar of a chart (reading)",
    "chart_highest": "which bar of a chart is highest, or lowest",
    "form": "what a form gives as its total, tax, table number or date (reading)",
}
# The same kinds by how hard they are: whole things, one line of writing, reasoning about several.
LADDER = {
    "L1": ("colour", "exists", "where", "leftmost", "beside", "count", "setting", "emblem_colour"),
    "L2": ("number", "word", "price"),
    "L3": ("cheapest", "chart_value", "chart_highest", "form"),
}
CHART_KINDS = ("chart_value", "chart_highest")
PANEL_KINDS = (*CHART_KINDS, "form")  # of pictures that one chart or one form fills


@dataclass(frozen=True)
class Question:
    """One question; `boxes` hold the evidence, in pixels, and are empty where everything does."""

    text: str
    answer: str
    kind: str
    boxes: tuple[Box, ...] = ()


@dataclass(frozen=True)
class Thing:
    """A drawn thing: its name, the name of its colour, its box, and the small detail it carries.

    `colour` is None for a thing in several colours of its own, whose colour nobody is asked.
    `detail_kind` is "emblem" (then `detail` names a colour), "number", "word", "price", "value",
    "entry" or "cell" (then `detail` is what is written), or None; `detail_box` is where, in pixels.
    `label_box` is where the name of an entry or a bar is written.
    """

    name: str
    colour: str | None
    box: Box
    detail_kind: str | None = None
    detail: str | None = None
    detail_box: Box | None = None
    label_box: Box | None = None


def ask(
    rng: Rng,
    kind: str,
    things: Sequence[Thing],
    size: tuple[int, int],
    *,
    setting: str,
    counted: str | None,
    scenery: Sequence[str] = (),
) -> Iterator[Question]:
    """The questions of one kind that a picture of `size` with these things can be asked.

    `setting` is what the whole picture shows, `counted` the name of the things to count, if any;
    nobody asks whether there are things of the `scenery`, or how many, which are not on the list.
    """
    if kind == "setting":
        yield Question(phrased(rng, "setting"), setting, "setting")
    elif kind == "count":
        yield from _ask_count(rng, things, None if counted in scenery else counted)
    elif kind == "exists":
        yield from _ask_exists(rng, things, scenery)
    elif kind in _DETAIL_OF:
        yield from _ask_detail(rng, things, kind)
    else:
        yield from _ASKERS[kind](rng, things, size)


def scenery_of(setting: str) -> tuple[str, ...]:
    """Things that the background of a setting shows as well."""
    return ("house",) if setting == "street" else ()


_DETAIL_OF = {  # kind of question -> kind of detail it reads
    "emblem_colour": "emblem",
    "number": "number",
    "word": "word",
    "price": "price",
    "chart_value": "value",
    "form": "entry",
}


def _unique(things: Sequence[Thing]) -> list[Thing]:
    """The things whose name no other thing has."""
    names = [thing.name for thing in things]
    return [thing for thing in things if names.count(thing.name) == 1]


def _pick(rng: Rng, items: list[Any], most: int) -> list[Any]:
    """At most so many of the items, in random order."""
    return [items[i] for i in rng.permutation(len(items))[:most]]


def _ask_colour(rng: Rng, things: Sequence[Thing], size: tuple[int, int]) -> Iterator[Question]:
    for thing in _pick(rng, [thing for thing in _unique(things) if thing.colour], 3):
        yield Question(phrased(rng, "colour", thing.name), thing.colour, "colour", (thing.box,))


def _ask_exists(rng: Rng, things: Sequence[Thing], scenery: Sequence[str]) -> Iterator[Question]:
    present = [name for name in glyph_names() if any(t.name == name for t in things)]
    absent = [name for name in glyph_names() if name not in (*present, *scenery)]
    for _ in range(2):
        exists = bool(present) and (rng.random() < 0.5 or not absent)
        name = str(rng.choice(present if exists else absent))
        boxes = tuple(thing.box for thing in things if thing.name == name)
        yield Question(phrased(rng, "exists", name), "yes" if exists else "no", "exists", boxes)


def _ask_detail(rng: Rng, things: Sequence[Thing], kind: str) -> Iterator[Question]:
    """What is written or drawn small on a thing whose name is unique."""
    for thing in _unique(things):
        if thing.detail_kind == _DETAIL_OF[kind]:
            text = phrased(rng, kind, thing.name)
            yield Question(text, thing.detail, kind, read_with(thing))


def read_with(thing: Thing) -> tuple[Box, ...]:
    """All that must be seen to read what a thing carries: that, and what tells whose it is.

    A number lies within its sign, which is found where it is; a price hangs below its thing, and an
    entry or a bar has its name written elsewhere.
    """
    if thing.label_box is not None:
        return thing.label_box, thing.detail_box
    return (thing.box, thing.detail_box) if thing.detail_kind == "price" else (thing.detail_box,)


def ask_by_colour(rng: Rng, things: Sequence[Thing], kind: str) -> Iterator[Question]:
    """What is written or drawn small on one of several things of a name, told apart by their colour."""
    looks = [(thing.name, thing.colour) for thing in things]
    names = [thing.name for thing in things]
    for thing, look in zip(things, looks, strict=True):
        several = names.count(thing.name) > 1 and looks.count(look) == 1
        if several and thing.detail_kind == _DETAIL_OF[kind]:
            text = phrased(rng, kind, f"{thing.colour} {thing.name}")
            yield Question(text, thing.detail, kind, read_with(thing))


def _ask_where(rng: Rng, things: Sequence[Thing], size: tuple[int, int]) -> Iterator[Question]:
    for thing in _pick(rng, _unique(things), 4):
        off = [_centre(thing, axis) / size[axis] - 0.5 for axis in (0, 1)]
        if min(map(abs, off)) > 0.06:
            answer = f"{'bottom' if off[1] > 0 else 'top'} {'right' if off[0] > 0 else 'left'}"
            yield Question(phrased(rng, "where", thing.name), answer, "where", (thing.box,))


def _centre(thing: Thing, axis: int) -> float:
    return (thing.box[axis] + thing.box[axis + 2]) / 2


def neighbour(thing: Thing, things: Sequence[Thing], axis: int) -> Thing | None:
    """The thing nearest on the left of `thing` (axis 0) or above it (axis 1), if it is clear which.

    It overlaps `thing` by half of the smaller one across the axis, and nothing else on that side
    comes nearly as close.
    """
    across = 1 - axis
    near = []
    for other in things:
        gap = thing.box[axis] - other.box[axis + 2]
        if other is thing or gap <= -4:
            continue
        shared = min(thing.box[across + 2], other.box[across + 2]) - max(
            thing.box[across], other.box[across]
        )
        if shared > 0:
            spans = [t.box[across + 2] - t.box[across] for t in (thing, other)]
            near.append((gap, shared / min(spans), other))
    near.sort(key=lambda item: item[0])
    if not near or near[0][1] < 0.5 or (len(near) > 1 and near[1][0] < near[0][0] + 40):
        return None
    return near[0][2]


def _ask_beside(rng: Rng, things: Sequence[Thing], size: tuple[int, int]) -> Iterator[Question]:
    pairs = [(thing, axis) for thing in _unique(things) for axis in (0, 1)]
    count = 0
    for thing, axis in _pick(rng, pairs, len(pairs)):
        other = neighbour(thing, things, axis)
        if other is not None and count < 4:
            count += 1
            text = phrased(rng, ("left", "above")[axis], thing.name)
            yield Question(text, other.name, "beside", (thing.box, other.box))


def _ask_leftmost(rng: Rng, things: Sequence[Thing], size: tuple[int, int]) -> Iterator[Question]:
    key = ("leftmost", "rightmost")[int(rng.integers(2))]
    sign = 1 if key == "leftmost" else -1
    edge = 0 if key == "leftmost" else 2
    ranked = sorted(things, key=lambda thing: sign * (thing.box[0] + thing.box[2]))
    margin = 0.05 * size[0]
    # Asked only where it is clear: by the middles of the things, and by their outer edges.
    if len(ranked) > 1 and all(
        sign * (other.box[0] + other.box[2] - ranked[0].box[0] - ranked[0].box[2]) > 2 * margin
        and sign * (other.box[edge] - ranked[0].box[edge]) > margin / 2
        for other in ranked[1:]
    ):
        yield Question(phrased(rng, key), ranked[0].name, "leftmost", (ranked[0].box,))


def _ask_cheapest(rng: Rng, things: Sequence[Thing], size: tuple[int, int]) -> Iterator[Question]:
    yield from _ask_extreme(rng, things, "price", ("cheapest", "dearest"), "cheapest")


def _ask_chart_highest(
    rng: Rng, things: Sequence[Thing], size: tuple[int, int]
) -> Iterator[Question]:
    yield from _ask_extreme(
        rng, things, "value", ("chart_lowest", "chart_highest"), "chart_highest"
    )


def _ask_extreme(
    rng: Rng, things: Sequence[Thing], detail_kind: str, keys: tuple[str, str], kind: str
) -> Iterator[Question]:
    """Which thing carries the lowest number (phrased by the first key) or the highest (second)."""
    numbered = [thing for thing in things if thing.detail_kind == detail_kind]
    if len(numbered) < 2:
        return
    which = int(rng.integers(2))
    ranked = sorted(numbered, key=lambda thing: int(thing.detail.lstrip("$")), reverse=bool(which))
    if ranked[0].detail != ranked[1].detail:
        read = [thing.detail_box for thing in numbered]
        named = [box for box in read_with(ranked[0]) if box not in read]
        yield Question(phrased(rng, keys[which]), ranked[0].name, kind, (*read, *named))


def _ask_count(rng: Rng, things: Sequence[Thing], name: str | None) -> Iterator[Question]:
    boxes = tuple(thing.box for thing in things if thing.name == name)
    if boxes:
        yield Question(phrased(rng, "count", name), str(len(boxes)), "count", boxes)


_ASKERS: dict[str, Callable[[Rng, Sequence[Thing], tuple[int, int]], Iterator[Question]]] = {
    "colour": _ask_colour,
    "where": _ask_where,
    "leftmost": _ask_leftmost,
    "beside": _ask_beside,
    "cheapest": _ask_cheapest,
    "chart_highest": _ask_chart_highest,
}
