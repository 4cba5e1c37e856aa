"""Strokes that several layouts share: lines of text, skies, awnings, trees, people, glyphs.

Sizes and boxes are in pixels, boxes are `(x0, y0, x1, y1)`; colours are 8-bit RGB triples.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from arr_coc.scenes import drawing, writing
from arr_coc.scenes.canvas import Canvas
from arr_coc.scenes.drawing import RGB, Box, Rng
from arr_coc.scenes.hands import Style
from arr_coc.scenes.parts import add_host
from arr_coc.scenes.questions import Thing

TEXT_HEIGHT = (19, 25)  # of a line, in pixels, before `detail`
MARGIN = 3  # pixels between the ends of a line of text and its box
WALLS = ((236, 214, 190), (222, 226, 214), (226, 210, 206), (208, 222, 230), (238, 230, 204))
WALLS += ((214, 206, 222), (230, 222, 214), (204, 216, 206), (240, 220, 214), (216, 214, 200))
SKINS = ((250, 214, 186), (226, 178, 140), (186, 132, 98), (128, 86, 62))
HAIRS = ((52, 40, 36), (110, 72, 44), (196, 150, 90), (150, 150, 154))
LEAVES = ((146, 178, 122), (126, 164, 118), (168, 188, 124))


def mix(a: Sequence[int], b: Sequence[int], share: float) -> RGB:
    """`a` with `share` of the way to `b`."""
    return tuple(round(x + (y - x) * share) for x, y in zip(a, b, strict=True))


def pick(rng: Rng, choices: Sequence) -> object:
    """One of the choices."""
    return choices[rng.integers(len(choices))]


def rounded(*box: float) -> Box:
    """The box in whole pixels."""
    return tuple(float(round(v)) for v in box)


def ramp(size: tuple[int, int], top: RGB, bottom: RGB) -> Image.Image:
    """A picture of `size` (width, height) that goes from one colour to another."""
    share = np.linspace(0, 1, size[1])[:, None]
    column = np.asarray(top) * (1 - share) + np.asarray(bottom) * share  # (H, 3)
    return Image.fromarray(column[:, None].astype(np.uint8)).resize(size, Image.NEAREST)


def font_for(
    rng: Rng,
    texts: Sequence[str],
    width: float,
    height: float,
    detail: float,
    hand: Style | None,
) -> ImageFont.FreeTypeFont:
    """A font of the usual height, smaller where the longest of the texts would not fit the room."""
    font = writing._pick_font(rng, min(rng.uniform(*TEXT_HEIGHT) * detail, height / 1.25), hand)
    longest = max(font.getlength(text) for text in texts)
    return resized(font, font.size * min(1.0, width / longest))


def resized(font: ImageFont.FreeTypeFont, size: float) -> ImageFont.FreeTypeFont:
    """The same font at another size, at least 4 pixels."""
    return writing._font(Path(font.path).stem, max(4, int(size)))


def write(
    paint: ImageDraw.ImageDraw,
    at: tuple[float, float],
    text: str,
    font: ImageFont.FreeTypeFont,
    ink: RGB,
    anchor: str = "lm",
) -> Box:
    """A line of text; returns its box, `MARGIN` wider at both ends.

    `at` is the middle of its digits in height: fonts sit higher or lower in their lines.
    """
    _, top, _, bottom = font.getbbox("8", anchor=anchor)
    at = (at[0], at[1] - (top + bottom) / 2)
    paint.text(at, text, font=font, fill=ink, anchor=anchor)
    x0, y0, x1, y1 = paint.textbbox(at, text, font=font, anchor=anchor)
    return rounded(x0 - MARGIN, y0 - 2, x1 + MARGIN, y1 + 2)


def awning(paint: ImageDraw.ImageDraw, box: Box, tint: RGB) -> None:
    """A striped awning with a scalloped edge."""
    x0, y0, x1, y1 = box
    count = max(4, round((x1 - x0) / 22))
    step, pale = (x1 - x0) / count, (250, 246, 238)
    drop = (y1 - y0) * 0.72
    for i in range(count):
        left, fill = x0 + i * step, tint if i % 2 else pale
        paint.rectangle((left, y0, left + step, y0 + drop), fill)
        paint.pieslice(
            (left, y0 + drop - step / 2, left + step, y0 + drop + step / 2), 0, 180, fill
        )
    paint.line((x0, y0, x1, y0), mix(tint, (40, 40, 40), 0.4), 3)


def window(paint: ImageDraw.ImageDraw, box: Box, glass: RGB, frame: RGB, *, cross: bool) -> None:
    """A window in its frame, with a slanting reflection."""
    x0, y0, x1, y1 = box
    paint.rectangle((x0 - 3, y0 - 3, x1 + 3, y1 + 3), frame)
    paint.rectangle(box, glass)
    light = mix(glass, (255, 255, 255), 0.35)
    paint.polygon(
        (
            (x0 + (x1 - x0) * 0.15, y1),
            (x0 + (x1 - x0) * 0.4, y1),
            (x0 + (x1 - x0) * 0.85, y0),
            (x0 + (x1 - x0) * 0.6, y0),
        ),
        light,
    )
    if cross:
        paint.line(((x0 + x1) / 2, y0, (x0 + x1) / 2, y1), frame, 2)
        paint.line((x0, (y0 + y1) / 2, x1, (y0 + y1) / 2), frame, 2)


def tree(paint: ImageDraw.ImageDraw, rng: Rng, x: float, base: float, height: float) -> None:
    """A round tree, part of the scenery: nobody asks about it."""
    green, r = pick(rng, LEAVES), height * 0.3
    trunk = (150, 122, 98)
    paint.rectangle((x - height * 0.04, base - height * 0.5, x + height * 0.04, base), trunk)
    paint.ellipse((x - r, base - height, x + r, base - height * 0.36), green)
    pale = mix(green, (255, 255, 255), 0.2)
    paint.ellipse((x - r * 0.7, base - height * 0.95, x + r * 0.3, base - height * 0.6), pale)


def person(
    rng: Rng, canvas: Canvas, box: Box, colours: tuple[str, str], details: Sequence[str]
) -> Thing:
    """Somebody in a shirt with a number, word or emblem; returns the shirt, which is the thing."""
    paint = ImageDraw.Draw(canvas.picture)
    x0, y0, x1, y1 = box
    drawing.shadow(canvas.picture, (x0 + 16, y0, x1 - 16, y1), canvas.hand)
    middle, tall, wide = (x0 + x1) / 2, y1 - y0, x1 - x0
    skin, hair, trousers = (
        pick(rng, SKINS),
        pick(rng, HAIRS),
        mix((70, 78, 100), (120,) * 3, rng.random()),
    )
    hip, neck = y0 + tall * 0.66, y0 + tall * 0.24
    for side in (-1, 1):
        leg = middle + side * wide * 0.12
        paint.rectangle((leg - wide * 0.085, hip - 6, leg + wide * 0.085, y1 - 5), trousers)
        foot = (leg - wide * 0.1 + side * 3, y1 - 9, leg + wide * 0.1 + side * 5, y1)
        paint.ellipse(foot, (60, 56, 60))
        hand = middle + side * wide * 0.41
        paint.ellipse((hand - 7, neck + wide * 0.34, hand + 7, neck + wide * 0.34 + 14), skin)
    r = tall * 0.115
    paint.rectangle((middle - r * 0.4, neck - 8, middle + r * 0.4, neck + 8), skin)
    shirt = rounded(x0, neck, x1, hip)
    thing = add_host(rng, canvas, "shirt", shirt, details, colours, grounded=False)
    top = y0 + 2
    paint.ellipse((middle - r * 1.08, top - 2, middle + r * 1.08, top + 2 * r), hair)
    paint.ellipse((middle - r * 0.9, top + r * 0.35, middle + r * 0.9, top + 2.2 * r), skin)
    for side in (-1, 1):
        eye = middle + side * r * 0.36
        paint.ellipse((eye - 2, top + r * 1.1, eye + 1, top + r * 1.1 + 3), (50, 44, 44))
    smile = (middle - r * 0.35, top + r * 1.2, middle + r * 0.35, top + r * 1.8)
    paint.arc(smile, 20, 160, (140, 70, 60), 2)
    return thing
