"""Drawing for the scenes: glyph sprites, boards that carry an emblem, soft backgrounds.

Knows pixels only: no questions, no answers. Everything random comes from the `numpy` generator
that the caller hands in, so a picture is a function of its seed: the order of the draws is part of it.
What is given a `hand` (a style of `hands`) is drawn by it. Sizes and boxes are in pixels, boxes are
`(x0, y0, x1, y1)`; colours are 8-bit RGB triples.
"""

import json
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Protocol

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

Box = tuple[float, float, float, float]
RGB = tuple[int, int, int]
Rng = np.random.Generator

GLYPH_DIR = Path(__file__).parent.parent / "bundled" / "glyphs"

COLOURS = {
    "red": (212, 38, 44),
    "orange": (247, 142, 30),
    "yellow": (250, 215, 50),
    "green": (52, 158, 70),
    "blue": (42, 98, 208),
    "purple": (128, 58, 172),
    "pink": (248, 150, 190),
    "brown": (122, 76, 44),
    "black": (44, 44, 50),
    "white": (247, 247, 244),
}
HOSTS = ("sign", "flag", "door", "shirt")  # things that carry an emblem, a number or a word
SETTINGS = ("field", "street", "room", "table", "pattern")
# Not a star, which is a thing that is asked for and counted.
EMBLEM_SHAPES = ("disc", "square", "triangle", "diamond", "cross")

_MOSTLY_INK = 0.8  # icons with more ink than this share of their silhouette are solid shapes
_PASTELS = ((214, 232, 245), (246, 232, 214), (225, 240, 222), (240, 226, 238), (238, 238, 230))
_PASTELS += ((250, 240, 206), (216, 236, 232), (232, 228, 246))


class Drawer(Protocol):
    """Another hand: what it draws in place of the functions of the same names here."""

    def draw_glyph(
        self, picture: Image.Image, name: str, rgb: RGB | None, box: Box, angle: float
    ) -> Image.Image: ...

    def glyph_aspect(self, name: str, angle: float) -> float: ...

    def draw_host(
        self, picture: Image.Image, name: str, rgb: RGB, box: Box
    ) -> tuple[Image.Image, Box]: ...

    def background(self, rng: Rng, size: tuple[int, int]) -> tuple[Image.Image, str]: ...

    def shadow(self, picture: Image.Image, box: Box) -> None: ...


@cache
def glyph_names() -> tuple[str, ...]:
    """Names of the glyphs that can stand alone in a scene (the shirt is a host)."""
    names = json.loads((GLYPH_DIR / "glyphs.json").read_text())["names"]
    return tuple(name for name in names if name not in HOSTS)


@cache
def _sprite(name: str) -> tuple[Image.Image, Image.Image, bool]:
    """`(ink, silhouette, solid)`: two `L` masks cropped to the silhouette, and `_MOSTLY_INK`."""
    table = json.loads((GLYPH_DIR / "glyphs.json").read_text())
    cell, columns = table["cell"], table["columns"]
    row, column = divmod(table["names"].index(name), columns)
    with Image.open(GLYPH_DIR / "glyphs.png") as sheet:
        box = (column * cell, row * cell, (column + 1) * cell, (row + 1) * cell)
        ink, silhouette = sheet.convert("LA").crop(box).split()
    bounds = silhouette.getbbox()
    ink, silhouette = ink.crop(bounds), silhouette.crop(bounds)
    solid = np.asarray(ink, float).sum() > _MOSTLY_INK * np.asarray(silhouette, float).sum()
    return ink, silhouette, bool(solid)


def _mix(a: Sequence[int], b: Sequence[int], share: float) -> RGB:
    """`a` with `share` of the way to `b`."""
    return tuple(round(x + (y - x) * share) for x, y in zip(a, b, strict=True))


def jitter(colour: str, rng: Rng, spread: float = 12.0) -> RGB:
    """The named colour, each channel moved by at most `spread`."""
    moved = np.asarray(COLOURS[colour]) + rng.uniform(-spread, spread, 3)
    return tuple(int(v) for v in moved.clip(0, 255))


def _edge(rgb: RGB) -> RGB:
    """An outline that stands out: dark for light tints, light for dark ones."""
    return _mix(rgb, (30, 30, 40), 0.72) if sum(rgb) > 330 else _mix(rgb, (255, 255, 255), 0.86)


def draw_glyph(
    picture: Image.Image,
    name: str,
    rgb: RGB | None,
    box: Box,
    angle: float,
    hand: Drawer | None = None,
) -> Image.Image:
    """Draw glyph `name` in `rgb`, fitted into `box` and turned by `angle` degrees.

    Returns its silhouette as an `L` mask of the box's size. None, the artist's own colours, is for
    hands that have some.
    """
    if hand is not None:
        return hand.draw_glyph(picture, name, rgb, box, angle)
    ink, silhouette, solid = _sprite(name)
    width, height = int(box[2] - box[0]), int(box[3] - box[1])
    room = 2  # pixels kept free for the outline
    fit = (max(1, width - 2 * room), max(1, height - 2 * room))
    masks = []
    for mask in (ink, silhouette):
        turned = mask.rotate(angle, Image.BILINEAR, expand=True)
        turned = turned.crop(silhouette.rotate(angle, Image.BILINEAR, expand=True).getbbox())
        canvas = Image.new("L", (width, height))
        canvas.paste(turned.resize(fit, Image.BILINEAR, reducing_gap=2.0), (room, room))
        masks.append(canvas)
    ink, silhouette = masks
    at = (int(box[0]), int(box[1]))
    picture.paste(_edge(rgb), at, silhouette.filter(ImageFilter.MaxFilter(5)))
    dark = _mix(rgb, (0, 0, 0), 0.5) if sum(rgb) > 200 else _mix(rgb, (255, 255, 255), 0.16)
    dark = _mix(rgb, (120, 120, 130), 0.4) if min(rgb) > 220 else dark  # white stays white
    body, line = (_mix(rgb, (255, 255, 255), 0.5), rgb) if solid else (rgb, dark)
    picture.paste(body, at, silhouette)
    picture.paste(line, at, ink)
    return silhouette


def glyph_aspect(name: str, angle: float, hand: Drawer | None = None) -> float:
    """Width over height of the glyph turned by `angle` degrees."""
    if hand is not None:
        return hand.glyph_aspect(name, angle)
    box = _sprite(name)[1].rotate(angle, Image.BILINEAR, expand=True).getbbox()
    return (box[2] - box[0]) / (box[3] - box[1])


def draw_host(
    picture: Image.Image, name: str, rgb: RGB, box: Box, hand: Drawer | None = None
) -> tuple[Image.Image, Box]:
    """Draw a sign, flag, door or shirt; return `(L mask of the box, area free for an emblem)`."""
    width, height = int(box[2] - box[0]), int(box[3] - box[1])
    if name == "shirt":
        mask = draw_glyph(picture, name, rgb, box, 0.0, hand)
        return mask, _inside(box, 0.36, 0.44, 0.64, 0.86)
    if hand is not None:
        return hand.draw_host(picture, name, rgb, box)
    mask = Image.new("L", (width, height))
    paint, stencil = ImageDraw.Draw(picture), ImageDraw.Draw(mask)
    if name == "sign":
        post, board, area = (0.45, 0.5, 0.55, 1.0), (0.0, 0.0, 1.0, 0.66), (0.1, 0.1, 0.9, 0.56)
    elif name == "flag":
        post, board, area = (0.0, 0.0, 0.07, 1.0), (0.07, 0.04, 1.0, 0.6), (0.16, 0.12, 0.9, 0.52)
    else:
        post, board, area = (0.0, 0.0, 1.0, 1.0), (0.07, 0.05, 0.93, 1.0), (0.2, 0.14, 0.8, 0.5)
    wood = _mix((150, 128, 108), rgb, 0.12)
    paint.rectangle(_inside(box, *post), fill=wood, outline=_mix(wood, (0, 0, 0), 0.4))
    radius = 2 if name == "flag" else 7
    paint.rounded_rectangle(_inside(box, *board), radius, fill=rgb, outline=_edge(rgb), width=3)
    stencil.rectangle(_inside((0, 0, width, height), *board), fill=255)
    if name == "door":
        knob = _inside(box, 0.78, 0.56, 0.86, 0.6)
        paint.ellipse((knob[0], knob[1], knob[2], knob[1] + knob[2] - knob[0]), fill=_edge(rgb))
    return mask, _inside(box, *area)


def _inside(box: Box, x0: float, y0: float, x1: float, y1: float) -> Box:
    """The part of `box` given by shares of its width and height."""
    width, height = box[2] - box[0], box[3] - box[1]
    return box[0] + x0 * width, box[1] + y0 * height, box[0] + x1 * width, box[1] + y1 * height


def draw_emblem(picture: Image.Image, shape: str, rgb: RGB, host_rgb: RGB, box: Box) -> None:
    """A small badge: a pale disc (dark where the host or the symbol is pale) with a symbol."""
    pale = min(sum(host_rgb), sum(rgb)) < 560 and sum(rgb) < 600
    ground = (244, 242, 236) if pale else (70, 72, 82)
    size, up = box[2] - box[0], 4  # drawn four times as large, then averaged down
    tile = Image.new("RGB", (round(size * up),) * 2, ground)
    edge, last = round(size * up), size * up
    ImageDraw.Draw(tile).polygon(_outline(shape, last), fill=tuple(rgb))
    mask = Image.new("L", tile.size)
    ImageDraw.Draw(mask).ellipse((0, 0, edge - 1, edge - 1), fill=255)
    fit = (max(1, round(size)),) * 2
    at = (round(box[0]), round(box[1]))
    picture.paste(tile.resize(fit, Image.BOX), at, mask.resize(fit, Image.BOX))


def _outline(shape: str, size: float) -> list[tuple[float, float]]:
    """Corner points of an emblem's symbol in a `size` x `size` square."""
    if shape == "cross":
        near, far = 0.12, 0.36
        arm = [(-near, -far), (near, -far), (near, -near), (far, -near), (far, near), (near, near)]
        corner = [*arm, *((-x, -y) for x, y in arm)]  # the other half is the same, turned
        return [(size * (0.5 + x), size * (0.5 + y)) for x, y in corner]
    corners = {"disc": 24, "square": 4, "triangle": 3, "diamond": 4}[shape]
    start = np.pi / 4 if shape == "square" else -np.pi / 2
    angles = start + 2 * np.pi * np.arange(corners) / corners
    radius = np.full(corners, 0.33 if shape == "disc" else 0.38) * size
    points = size / 2 + radius[:, None] * np.stack([np.cos(angles), np.sin(angles)], 1)
    return [tuple(point) for point in points]


# ------------------------------------------------------------------------------ backgrounds


def background(
    rng: Rng, size: tuple[int, int], hand: Drawer | None = None
) -> tuple[Image.Image, str]:
    """A soft picture of `size` (width, height), and what it shows (one of `SETTINGS`).

    Another hand's may show nothing that has a name: then it is none of them.
    """
    if hand is not None:
        return hand.background(rng, size)
    setting = SETTINGS[rng.integers(len(SETTINGS))]
    picture = _gradient(rng, size)
    _PAINTERS[setting](ImageDraw.Draw(picture, "RGBA"), rng, *size)
    return picture, setting


def _gradient(rng: Rng, size: tuple[int, int]) -> Image.Image:
    """From one pastel at the top to another at the bottom."""
    top, bottom = (_PASTELS[i] for i in rng.integers(len(_PASTELS), size=2))
    ramp = np.linspace(0, 1, size[1])[:, None]
    column = np.asarray(top) * (1 - ramp) + np.asarray(bottom) * ramp  # (H, 3)
    return Image.fromarray(column[:, None].astype(np.uint8)).resize(size)


def _muted(rng: Rng, low: int, high: int) -> RGB:
    """A greyish tint: one level for all channels, each moved a little."""
    return tuple(int(v) for v in (rng.uniform(low, high) + rng.uniform(-16, 16, 3)).clip(0, 255))


def _landscape(paint: ImageDraw.ImageDraw, rng: Rng, width: int, height: int) -> None:
    horizon = rng.uniform(0.45, 0.75) * height
    for _ in range(rng.integers(1, 4)):  # clouds
        x, y, r = rng.uniform(0, width), rng.uniform(0, horizon * 0.7), rng.uniform(18, 40)
        for step in (-1, 0, 1):
            rise = r * (1.3 if step == 0 else 1)
            paint.ellipse(
                (x + (step - 1) * r, y - rise, x + (step + 1) * r, y + r * 0.6), (255,) * 4
            )
    for _ in range(rng.integers(1, 4)):  # hills
        x, r = rng.uniform(0, width), rng.uniform(0.25, 0.6) * width
        paint.ellipse((x - r, horizon - r * 0.35, x + r, horizon + r), _muted(rng, 182, 212))
    ground = _mix(_muted(rng, 190, 212), (176, 206, 150), rng.uniform(0.2, 0.8))
    paint.rectangle((0, horizon, width, height), ground)
    for _ in range(rng.integers(10, 40)):  # tufts
        x, y = rng.uniform(0, width), rng.uniform(horizon, height)
        paint.line(
            (x, y, x + rng.uniform(-4, 4), y - rng.uniform(4, 10)), _mix(ground, (90,) * 3, 0.3)
        )


def _street(paint: ImageDraw.ImageDraw, rng: Rng, width: int, height: int) -> None:
    ground = rng.uniform(0.62, 0.8) * height
    x = -rng.uniform(0, 60)
    while x < width:
        span, top = rng.uniform(60, 130), ground - rng.uniform(0.25, 0.55) * height
        wall = _muted(rng, 196, 230)
        paint.rectangle((x, top, x + span, ground), wall)
        for wx in np.arange(x + 12, x + span - 18, 28):
            for wy in np.arange(top + 14, ground - 26, 36):
                paint.rectangle((wx, wy, wx + 12, wy + 18), _mix(wall, (120, 140, 165), 0.35))
        x += span + rng.uniform(0, 10)
    paint.rectangle((0, ground, width, height), _muted(rng, 172, 196))
    kerb = ground + 0.1 * height
    paint.rectangle((0, ground, width, kerb), _muted(rng, 206, 222))
    for dash in np.arange(rng.uniform(-60, 0), width, 80):
        paint.rectangle(
            (dash, (kerb + height) / 2, dash + 40, (kerb + height) / 2 + 6), (236, 234, 226)
        )


def _room(paint: ImageDraw.ImageDraw, rng: Rng, width: int, height: int) -> None:
    floor = rng.uniform(0.65, 0.82) * height
    for x in np.arange(0, width, rng.uniform(26, 60)):  # wallpaper
        paint.rectangle((x, 0, x + rng.uniform(4, 14), floor), (255, 255, 255, 90))
    wood = _mix(_muted(rng, 176, 204), (206, 172, 134), 0.5)
    paint.rectangle((0, floor, width, height), wood)
    for y in np.arange(floor, height, rng.uniform(16, 30)):
        paint.line((0, y, width, y), _mix(wood, (90, 70, 50), 0.25), 2)
    paint.rectangle((0, floor - 8, width, floor), (244, 242, 238))
    side, x, y = rng.uniform(0.16, 0.3) * width, rng.uniform(0, 0.75) * width, 0.08 * height
    paint.rectangle((x, y, x + side, y + side * 1.2), (222, 236, 246), (248, 248, 248), 6)
    paint.line((x + side / 2, y, x + side / 2, y + side * 1.2), (248, 248, 248), 5)


def _table(paint: ImageDraw.ImageDraw, rng: Rng, width: int, height: int) -> None:
    wood = _mix(_muted(rng, 190, 222), (220, 190, 150), rng.uniform(0, 0.7))
    paint.rectangle((0, 0, width, height), (*wood, 190))
    for y in np.arange(rng.uniform(0, 40), height, rng.uniform(40, 90)):
        paint.line((0, y, width, y + rng.uniform(-4, 4)), _mix(wood, (100, 76, 50), 0.22), 2)
    for _ in range(rng.integers(1, 4)):  # plates and mats
        x, y, r = rng.uniform(0, width), rng.uniform(0, height), rng.uniform(0.1, 0.22) * width
        paint.ellipse((x - r, y - r, x + r, y + r), _muted(rng, 228, 244), _muted(rng, 200, 220), 3)
        paint.ellipse((x - 0.7 * r, y - 0.7 * r, x + 0.7 * r, y + 0.7 * r), None, (214,) * 3, 2)


def _pattern(paint: ImageDraw.ImageDraw, rng: Rng, width: int, height: int) -> None:
    tint, gap = _muted(rng, 190, 240), rng.uniform(24, 64)
    kind = rng.integers(4)
    for i, x in enumerate(np.arange(0, width, gap)):
        if kind == 0:
            paint.rectangle((x, 0, x + gap / 2, height), (*tint, 130))
            continue
        if kind == 3:
            paint.line((x * 2 - width, 0, x * 2, height), (*tint, 160), int(gap / 3))
            continue
        for j, y in enumerate(np.arange(0, height, gap)):
            if kind == 1:
                paint.ellipse((x, y, x + gap / 2, y + gap / 2), (*tint, 150))
            elif (i + j) % 2:
                paint.rectangle((x, y, x + gap, y + gap), (*tint, 130))


def shadow(picture: Image.Image, box: Box, hand: Drawer | None = None) -> None:
    """A faint shadow on the ground under a thing that fills `box`."""
    if hand is not None:
        return hand.shadow(picture, box)
    width, depth = box[2] - box[0], 0.08 * (box[3] - box[1])
    spot = (box[0] + 0.12 * width, box[3] - depth, box[2] - 0.12 * width, box[3] + depth)
    ImageDraw.Draw(picture, "RGBA").ellipse(spot, (40, 40, 60, 46))


_PAINTERS: dict[str, Callable[[ImageDraw.ImageDraw, Rng, int, int], None]] = {
    "field": _landscape,
    "street": _street,
    "room": _room,
    "table": _table,
    "pattern": _pattern,
}
