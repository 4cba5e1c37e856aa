"""Parts that scenes share: glyphs with a price, signs, flags, doors and shirts with what they carry."""

from collections.abc import Sequence

import numpy as np
from PIL import Image

from arr_coc.scenes import drawing, writing
from arr_coc.scenes.canvas import Canvas
from arr_coc.scenes.drawing import Box, Rng
from arr_coc.scenes.questions import Thing

HOST_DETAILS = {  # what a host carries -> the kind of question about it
    "emblem": "emblem_colour",
    "number": "number",
    "word": "word",
}
SMALLEST_PRICED = 76  # pixels across: a smaller thing would vanish behind its tag
UNPRICED_SHARE = 0.2  # of the things where things have prices
HOST_ASPECTS = {"sign": 1.0, "flag": 0.95, "door": 0.55, "shirt": 1.25}  # width over height


def two_colours(rng: Rng) -> tuple[str, str]:
    """The names of two different colours."""
    return tuple(str(c) for c in rng.choice(list(drawing.COLOURS), 2, replace=False))


def apart(a: Box, b: Box, margin: float = 6.0) -> bool:
    """Whether more than `margin` pixels lie between two boxes, across or down."""
    across = a[2] + margin < b[0] or b[2] + margin < a[0]
    return across or a[3] + margin < b[1] or b[3] + margin < a[1]


def draw_glyph(
    rng: Rng, canvas: Canvas, name: str, colour: str, box: Box, *, angle: float = 0.0
) -> tuple[Image.Image, str | None]:
    """Draw a glyph with its shadow; returns its mask, and its colour or None (`Canvas.glyph_colour`).

    The caller adds the thing.
    """
    rgb, shown = drawing.jitter(colour, rng), canvas.glyph_colour(colour)
    drawing.shadow(canvas.picture, box, canvas.hand)
    rgb = rgb if shown else None
    return drawing.draw_glyph(canvas.picture, name, rgb, box, angle, canvas.hand), shown


def add_glyph(
    rng: Rng,
    canvas: Canvas,
    name: str,
    colour: str,
    box: Box,
    *,
    angle: float = 0.0,
    priced: bool = False,
) -> None:
    """Draw a glyph; where `priced`, mostly with a price tag stuck on it."""
    mask, shown = draw_glyph(rng, canvas, name, colour, box, angle=angle)
    if not priced or box[2] - box[0] < SMALLEST_PRICED or rng.random() < UNPRICED_SHARE:
        return canvas.add(Thing(name, shown, box), mask)
    text = f"${rng.integers(2, 100)}"
    area = (box[0], box[1] + 0.4 * (box[3] - box[1]), box[2], box[3])
    where = writing.plate(
        rng, canvas.picture, text, area, canvas.detail, at="bottom", hand=canvas.hand
    )
    canvas.add(Thing(name, shown, box, "price", text, where), mask)


def add_host(
    rng: Rng,
    canvas: Canvas,
    name: str,
    box: Box,
    details: Sequence[str],
    colours: tuple[str, str] | None = None,
    *,
    grounded: bool = True,
) -> Thing:
    """Draw a sign, flag, door or shirt that carries one of the details, keys of `HOST_DETAILS`.

    `colours` are its own and its emblem's; drawn at random where not given. It casts a
    shadow where it is `grounded`.
    """
    colour, other = colours or two_colours(rng)
    rgb = drawing.jitter(colour, rng)
    if grounded:
        drawing.shadow(canvas.picture, box, canvas.hand)
    mask, area = drawing.draw_host(canvas.picture, name, rgb, box, canvas.hand)
    kind = details[rng.integers(len(details))]
    if kind == "emblem":
        detail, where = other, _emblem_box(rng, area, canvas.detail)
        shape = drawing.EMBLEM_SHAPES[rng.integers(len(drawing.EMBLEM_SHAPES))]
        drawing.draw_emblem(canvas.picture, shape, drawing.jitter(other, rng), rgb, where)
    else:
        detail = writing.number(rng) if kind == "number" else writing.word(rng)
        where = writing.plate(
            rng, canvas.picture, detail, area, canvas.detail, at="anywhere", hand=canvas.hand
        )
    thing = Thing(name, colour, box, kind, detail, where)
    canvas.add(thing, mask)
    return thing


def _emblem_box(rng: Rng, area: Box, detail: float) -> Box:
    """A square somewhere in the area."""
    side = float(np.clip(round(rng.uniform(20, 28) * detail), 4, min(area[2] - area[0], 96)))
    x = round(rng.uniform(area[0], max(area[0], area[2] - side)))
    y = round(rng.uniform(area[1], max(area[1], area[3] - side)))
    return float(x), float(y), float(x + int(side)), float(y + int(side))
