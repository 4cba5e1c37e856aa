"""Drills: pictures drawn for lessons, of a few things that invite to be compared, counted or looked up.

Scenes leave to chance whether two things share a colour or both have a price, and there what takes two
steps came up too seldom to be learned. Nobody is evaluated on them.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from arr_coc.scenes import drawing
from arr_coc.scenes.canvas import Canvas, Scene
from arr_coc.scenes.drawing import Box, Rng
from arr_coc.scenes.facts import Facts
from arr_coc.scenes.hands import Style
from arr_coc.scenes.parts import add_glyph, add_host
from arr_coc.scenes.questions import Thing

SPACE = 96  # pixels on a side of the place that a thing may take
SIDES = (48, 88)  # pixels of a thing's longer side
SIGN = 84  # pixels of a sign's side
FEWEST, FILLED_SHARE = 4, 0.75  # things, and of the places at most this share is taken
COLOURS = 4  # that few things have; half as many as things where these are more
NAMES = 3  # that few things have where they are counted; a third of the things where these are more
MARGIN, LARGEST_ANGLE = 3, 12  # pixels to the edge of its place, and degrees either way
# What the drills invite to, and how often; things in colours of their own have no colour to share.
SHARES = {"colours": 0.35, "prices": 0.35, "signs": 0.15, "copies": 0.15}


class Dealt(NamedTuple):
    """A picture that is begun: the names and colours that its things may have, and its free places.

    Places are `(column, row)` of a grid of `SPACE` pixels, `grid` its columns and rows; at most `most`
    are taken.
    """

    canvas: Canvas
    names: list[str]
    colours: list[str]
    places: list[tuple[int, int]]
    grid: tuple[int, int]
    most: int


def drill(rng: Rng, size: tuple[int, int], hand: Style | None) -> Scene:
    """Things on a grid: in few colours, with prices, with signs beside them, or several of a name.

    `size` is (width, height) in pixels, `hand` None for the home hand. It has no questions of its own.
    """
    canvas = Canvas(size, 1.0, hand)
    canvas.picture, setting = drawing.background(rng, size, hand)
    grid = (size[0] // SPACE, size[1] // SPACE)
    most = max(FEWEST, round(FILLED_SHARE * grid[0] * grid[1]))
    places = [(column, row) for row in range(grid[1]) for column in range(grid[0])]
    places = [places[i] for i in rng.permutation(len(places))]
    colours = [str(colour) for colour in rng.permutation(list(drawing.COLOURS))]
    names = [str(name) for name in rng.permutation(canvas.names())]
    dealt = Dealt(canvas, names, colours, places, grid, int(rng.integers(FEWEST, most + 1)))
    shares = dict(SHARES)
    if hand is not None and hand.own_colours:
        del shares["colours"]
    kinds, weights = list(shares), np.asarray(list(shares.values()))
    signs = _KINDS[kinds[rng.choice(len(kinds), p=weights / weights.sum())]](rng, dealt) or ()
    facts = Facts(setting, signs=tuple(signs))
    image, things = canvas.finished(), tuple(canvas.things)
    return Scene(0, image, (), things, setting, canvas.things_map, facts)


def _in_few_colours(rng: Rng, dealt: Dealt) -> None:
    """Things of unlike names in colours that several of them have."""
    colours = dealt.colours[: max(COLOURS, dealt.most // 2)]
    for name, place in zip(dealt.names, dealt.places[: dealt.most], strict=False):
        _glyph(rng, dealt.canvas, name, str(rng.choice(colours)), place)


def _priced(rng: Rng, dealt: Dealt) -> None:
    """The same, most with a price."""
    colours = dealt.colours[: max(COLOURS, dealt.most // 2)]
    for name, place in zip(dealt.names, dealt.places[: dealt.most], strict=False):
        _glyph(rng, dealt.canvas, name, str(rng.choice(colours)), place, priced=True)


def _copied(rng: Rng, dealt: Dealt) -> None:
    """Things of few names."""
    names = dealt.names[: max(NAMES, dealt.most // 3)]
    for place in dealt.places[: dealt.most]:
        _glyph(rng, dealt.canvas, str(rng.choice(names)), str(rng.choice(dealt.colours)), place)


def _signed(rng: Rng, dealt: Dealt) -> list[tuple[str, Thing, Thing]]:
    """Things with signs: in all of the picture to their right, or above them."""
    above, names = bool(rng.integers(2)), list(dealt.names)
    signs: list[tuple[str, Thing, Thing]] = []
    taken: set[tuple[int, int]] = set()
    for place in dealt.places:
        other = (place[0], place[1] - 1) if above else (place[0] + 1, place[1])
        if other not in dealt.places or taken & (_around(place) | _around(other)):
            continue  # else it would not be plain whose a sign is
        taken |= {place, other}
        _glyph(rng, dealt.canvas, names.pop(), str(rng.choice(dealt.colours)), place)
        thing = dealt.canvas.things[-1]
        colours = tuple(str(c) for c in rng.choice(dealt.colours, 2, replace=False))
        x, y = (_free(rng, other[axis], SIGN) for axis in (0, 1))
        box = (x, y, x + SIGN, y + SIGN)
        sign = add_host(rng, dealt.canvas, "sign", box, ("word", "number"), colours)
        signs.append(("above" if above else "next", thing, sign))
    return signs


def _around(place: tuple[int, int]) -> set[tuple[int, int]]:
    """A place and those that touch it."""
    return {(place[0] + i, place[1] + j) for i in (-1, 0, 1) for j in (-1, 0, 1)}


_KINDS: dict[str, Callable[[Rng, Dealt], list[tuple[str, Thing, Thing]] | None]] = {
    "colours": _in_few_colours,
    "prices": _priced,
    "signs": _signed,
    "copies": _copied,
}


def _glyph(
    rng: Rng,
    canvas: Canvas,
    name: str,
    colour: str,
    place: tuple[int, int],
    *,
    priced: bool = False,
) -> None:
    """A thing somewhere in its place."""
    angle = float(rng.uniform(-LARGEST_ANGLE, LARGEST_ANGLE))
    side = SIDES[1] if priced else rng.uniform(*SIDES)
    aspect = drawing.glyph_aspect(name, angle, canvas.hand)
    width, height = int(side * min(1, aspect)), int(side * min(1, 1 / aspect))
    x, y = _free(rng, place[0], width), _free(rng, place[1], height)
    box: Box = (x, y, x + width, y + height)
    add_glyph(rng, canvas, name, colour, box, angle=angle, priced=priced)


def _free(rng: Rng, place: int, side: int) -> float:
    """Where something of `side` pixels begins in a place, in whole pixels."""
    return float(int(place * SPACE + rng.uniform(MARGIN, SPACE - side - MARGIN)))
