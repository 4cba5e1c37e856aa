"""Grounds of other hands: places, patterns, textures and photographs behind the things.

A painter takes a generator and a size (width, height) and returns an RGB picture; `GROUNDS` also says
what it shows: one of `drawing.SETTINGS`, or `PLAIN` where nobody could say. Nothing that scenes ask
about (a tree, a star) is drawn here. The photographs lie in `bundled/grounds`.
"""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

from arr_coc.scenes.drawing import Rng, background
from arr_coc.scenes.patterns import PATTERNS

GROUND_DIR = Path(__file__).parent.parent / "bundled" / "grounds"
PLAIN = "plain"  # a ground that shows no place
Size = tuple[int, int]


def _noise(rng: Rng, size: Size, cell: tuple[float, float], octaves: int = 4) -> np.ndarray:
    """Soft noise in [0, 1], `(h, w)`: `cell` is (width, height) in pixels of its coarsest waves."""
    total = np.zeros((size[1], size[0]), np.float32)
    for octave in range(octaves):
        shape = [max(2, round(s * 2**octave / c)) for s, c in zip(size, cell)]
        waves = Image.fromarray(rng.random((shape[1], shape[0]), np.float32))
        total += np.asarray(waves.resize(size, Image.BICUBIC)) / 2**octave
    low, high = total.min(), total.max()
    return (total - low) / max(1e-6, high - low)


def _tint(rng: Rng, low: float, high: float, spread: float = 30) -> np.ndarray:
    """A colour of about one brightness, `(3,)`, its channels apart by at most twice `spread`."""
    return (rng.uniform(low, high) + rng.uniform(-spread, spread, 3)).clip(0, 255)


def _blend(a: np.ndarray, b: np.ndarray, share: np.ndarray) -> Image.Image:
    """From colour `a` to `b` by a share `(h, w)`, held to [0, 1], in 256 steps."""
    steps = (255 * share.clip(0, 1)).astype(np.uint8)
    picture = Image.frombytes("P", steps.shape[::-1], steps.tobytes())
    ramp = np.linspace(a, b, 256).round().clip(0, 255).astype(np.uint8)
    picture.putpalette(ramp.tobytes())
    return picture.convert("RGB")


@cache
def _photographed(name: str) -> Image.Image:
    with Image.open(GROUND_DIR / f"{name}.jpg") as picture:
        return picture.convert("RGB")


def _photograph(rng: Rng, size: Size, name: str, scale: float = 1.0) -> Image.Image:
    """Part of a photograph that fills `size`, mirrored or not, in a tint of its own."""
    picture = _photographed(name)
    side = picture.width * rng.uniform(0.55, 1) / scale
    longest = max(size)
    width, height = min(side * size[0] / longest, 383), min(side * size[1] / longest, 383)
    x, y = rng.uniform(0, picture.width - width), rng.uniform(0, picture.height - height)
    part = picture.resize(size, Image.BICUBIC, box=(x, y, x + width, y + height))
    if rng.random() < 0.5:
        part = part.transpose(Image.FLIP_LEFT_RIGHT)
    return part


def _tinted(rng: Rng, picture: Image.Image, towards: np.ndarray, share: float) -> Image.Image:
    return Image.blend(picture, Image.new("RGB", picture.size, tuple(towards.astype(int))), share)


# ----------------------------------------------------------------------------------- places


def _meadow(rng: Rng, size: Size) -> Image.Image:
    """Sky over far hills, and photographed grass."""
    width, height = size
    horizon = round(rng.uniform(0.35, 0.6) * height)
    ramp = np.repeat(np.linspace(0, 1, height)[:, None], width, 1)
    cloud = _noise(rng, size, (width / 2, height / 5))
    blue = np.array([rng.uniform(90, 170), rng.uniform(160, 205), 235])
    sky = _blend(blue, np.array([240, 244, 248]), 0.5 * ramp + 0.8 * (cloud - 0.4).clip(0))
    paint = ImageDraw.Draw(sky)
    for step in range(2):
        ridge = _noise(rng, (width, 1), (width / 3, 1), 3)[0]
        line = horizon - (0.22 - 0.1 * step) * height * ridge
        far = tuple(int(v) for v in _tint(rng, 130 - 20 * step, 160, 14))
        paint.polygon([(0, height), *enumerate(line), (width, height)], far)
    grass = _photograph(rng, (width, height - horizon), "grass")
    sky.paste(_tinted(rng, grass, np.array([110, 165, 70]), rng.uniform(0.35, 0.6)), (0, horizon))
    return sky


def _brick_street(rng: Rng, size: Size) -> Image.Image:
    """A brick wall with shop windows over a pavement and a road with lane marks."""
    width, height = size
    picture = _photograph(rng, size, "brick")
    picture = _tinted(rng, picture, _tint(rng, 90, 200), rng.uniform(0.35, 0.6))
    paint = ImageDraw.Draw(picture)
    ground = rng.uniform(0.6, 0.75) * height
    step = rng.uniform(0.2, 0.4) * width
    glass = tuple(int(v) for v in _tint(rng, 90, 190))
    for x in np.arange(rng.uniform(0.02, 0.1) * width, width, step):
        window = (x, 0.12 * height, x + 0.62 * step, ground - 0.08 * height)
        paint.rectangle(window, glass, (236, 234, 228), 5)
        paint.line((window[0], window[1], window[2], window[3]), (226, 232, 236), 2)
    kerb = ground + 0.1 * height
    grey = rng.uniform(60, 120)
    road = _noise(rng, (width, height - round(ground)), (6, 6), 2)
    asphalt = _blend(np.full(3, grey), np.full(3, grey + 30), road)
    picture.paste(asphalt, (0, round(ground)))
    paint.rectangle((0, ground, width, kerb), (178, 176, 170), (140, 138, 132), 3)
    lane = (kerb + height) / 2
    for x in np.arange(rng.uniform(-80, 0), width, 90):
        paint.rectangle((x, lane, x + 46, lane + 7), (240, 236, 214))
    return picture


def _papered_room(rng: Rng, size: Size) -> Image.Image:
    """A papered wall with panelling, a carpet, a curtained window."""
    width, height = size
    wall, stripe = _tint(rng, 110, 220), _tint(rng, 120, 235)
    floor = round(rng.uniform(0.66, 0.8) * height)
    across = np.arange(width) / rng.uniform(14, 40)
    paper = np.repeat((0.5 + 0.5 * np.sin(across))[None], height, 0)
    picture = _blend(wall, stripe, paper * rng.uniform(0.3, 0.9))
    paint = ImageDraw.Draw(picture)
    x, wide = rng.uniform(0.1, 0.6) * width, rng.uniform(0.22, 0.34) * width
    window = (x, 0.06 * height, x + wide, 0.5 * height)
    paint.rectangle(window, (206, 226, 240), (250, 250, 246), 7)
    cloth = tuple(int(v) for v in _tint(rng, 90, 200))
    fold = tuple(int(0.8 * v) for v in cloth)
    for left in (x - 0.3 * wide, x + wide):
        right = left + 0.3 * wide
        paint.rectangle((left, 0.03 * height, right, 0.58 * height), cloth)
        for line in np.arange(left, right, 9):
            paint.line((line, 0.03 * height, line, 0.58 * height), fold, 2)
    panel = tuple(int(v) for v in _tint(rng, 170, 235, 12))
    paint.rectangle((0, floor - 0.08 * height, width, floor), panel)
    for line in np.arange(0, width, 0.12 * width):
        inner = (
            line + 0.02 * width,
            floor - 0.07 * height,
            line + 0.1 * width,
            floor - 0.02 * height,
        )
        paint.rectangle(inner, None, tuple(v - 40 for v in panel), 2)
    pile = _noise(rng, (width, height - floor), (5, 5), 2)
    dye = _tint(rng, 70, 190)
    picture.paste(_blend(dye, (dye + 36).clip(0, 255), pile), (0, floor))
    return picture


def _wooden_table(rng: Rng, size: Size) -> Image.Image:
    """A table top of planks seen from above, with plates and a napkin."""
    width, height = size
    grain = _noise(rng, size, (width * 0.8, 9), 4)
    dark = np.array([rng.uniform(90, 170), rng.uniform(60, 120), rng.uniform(36, 80)])
    picture = _blend(dark, (dark + (70, 60, 44)).clip(0, 255), grain)
    paint = ImageDraw.Draw(picture)
    for y in np.arange(rng.uniform(30, 80), height, rng.uniform(60, 120)):
        paint.line((0, y, width, y), tuple(int(0.6 * v) for v in dark), 3)
    x, y, side = rng.uniform(0, width), rng.uniform(0, height), 0.3 * min(size)
    cloth = tuple(int(v) for v in _tint(rng, 150, 235))
    paint.polygon(
        [(x, y), (x + side, y + side / 4), (x + side * 0.8, y + side), (x - 9, y + side)], cloth
    )
    for _ in range(rng.integers(2, 5)):
        x, y, r = rng.uniform(0, width), rng.uniform(0, height), rng.uniform(0.1, 0.2) * width
        paint.ellipse((x - r, y - r, x + r, y + r), (238, 238, 234), (190, 190, 190), 3)
        paint.ellipse(
            (x - 0.7 * r, y - 0.7 * r, x + 0.7 * r, y + 0.7 * r), None, (206, 206, 204), 2
        )
    return picture


def _woven(rng: Rng, size: Size) -> Image.Image:
    """A plain pattern: plaid, zigzag, rings, lattice or waves."""
    y, x = np.mgrid[: size[1], : size[0]]
    gap = rng.uniform(26, 70)
    u, v = x / gap, y / gap
    kind = rng.integers(5)
    if kind == 0:
        share = 0.5 * (u % 1 < 0.4) + 0.5 * (v % 1 < 0.4)
    elif kind == 1:
        share = (v + np.abs(u % 1 - 0.5)) % 1 < 0.5
    elif kind == 2:
        share = np.hypot(u % 1 - 0.5, v % 1 - 0.5) * 6 % 2 < 1
    elif kind == 3:
        share = ((u + v) % 1 < 0.18) | ((u - v) % 1 < 0.18)
    else:
        share = (v + 0.3 * np.sin(2 * np.pi * u)) % 1 < 0.5
    level = rng.uniform(60, 225)
    return _blend(_tint(rng, level, level), _tint(rng, level - 40, level + 30), share.astype(float))


# --------------------------------------------------------------------------------- textures


def _paper(rng: Rng, size: Size) -> Image.Image:
    base = _tint(rng, 160, 245, 14)
    fibres = 0.6 * _noise(rng, size, (3, 3), 2) + 0.4 * _noise(rng, size, (160, 160))
    return _blend(base, (base - 40).clip(0), fibres)


def _bokeh(rng: Rng, size: Size) -> Image.Image:
    """Blurred lights on a dusky ground."""
    small = (max(8, size[0] // 4), max(8, size[1] // 4))
    ramp = np.repeat(np.linspace(0, 1, small[1])[:, None], small[0], 1)
    picture = _blend(_tint(rng, 30, 110), _tint(rng, 50, 160), ramp)
    paint = ImageDraw.Draw(picture, "RGBA")
    for _ in range(rng.integers(8, 30)):
        x, y, r = rng.uniform(0, small[0]), rng.uniform(0, small[1]), rng.uniform(3, 14)
        light = tuple(int(v) for v in _tint(rng, 120, 220, 35))
        paint.ellipse((x - r, y - r, x + r, y + r), (*light, int(rng.uniform(40, 130))))
    return picture.filter(ImageFilter.GaussianBlur(1.5)).resize(size, Image.BICUBIC)


def _sweep(rng: Rng, size: Size) -> Image.Image:
    """From one strong colour to another, aslant."""
    y, x = np.mgrid[: size[1], : size[0]]
    turn = rng.uniform(0, 2 * np.pi)
    along = np.cos(turn) * x / size[0] + np.sin(turn) * y / size[1]
    share = (along - along.min()) / np.ptp(along)
    return _blend(_tint(rng, 60, 220, 60), _tint(rng, 60, 220, 60), share)


def _grid(rng: Rng, size: Size) -> Image.Image:
    """Squared paper, light or dark."""
    picture = Image.new("RGB", size, tuple(int(v) for v in _tint(rng, 40, 245)))
    paint = ImageDraw.Draw(picture, "RGBA")
    line = (255, 255, 255, 70) if sum(picture.getpixel((0, 0))) < 400 else (40, 50, 90, 60)
    gap = rng.uniform(14, 40)
    for x in np.arange(0, size[0], gap):
        paint.line((x, 0, x, size[1]), line)
    for y in np.arange(0, size[1], gap):
        paint.line((0, y, size[0], y), line)
    return picture


def _wall(rng: Rng, size: Size) -> Image.Image:
    return _tinted(rng, _photograph(rng, size, "brick"), _tint(rng, 60, 220), rng.uniform(0, 0.5))


def _lawn(rng: Rng, size: Size) -> Image.Image:
    return _tinted(rng, _photograph(rng, size, "grass"), _tint(rng, 60, 200), rng.uniform(0, 0.4))


# ------------------------------------------------------------- of the hands that stay untrained


def _watercolour(rng: Rng, size: Size) -> Image.Image:
    """Washes of colour that run into one another."""
    picture = _paper(rng, size)
    for _ in range(3):
        wash = Image.new("RGB", size, tuple(int(v) for v in _tint(rng, 120, 220, 60)))
        where = ((_noise(rng, size, (size[0] / 3, size[1] / 3)) - 0.45) * 900).clip(0, 150)
        picture.paste(wash, (0, 0), Image.fromarray(where.astype(np.uint8)))
    return picture


def _coffee(rng: Rng, size: Size) -> Image.Image:
    return _photograph(rng, size, "coffee")


def _gravel(rng: Rng, size: Size) -> Image.Image:
    return _tinted(rng, _photograph(rng, size, "gravel"), _tint(rng, 80, 230), rng.uniform(0, 0.5))


def _marble(rng: Rng, size: Size) -> Image.Image:
    """Veins through stone."""
    y, x = np.mgrid[: size[1], : size[0]]
    bend = 9 * _noise(rng, size, (size[0] / 2, size[1] / 2))
    veins = np.abs(np.sin((x + y) / rng.uniform(90, 200) + bend)) ** 0.35
    return _blend(_tint(rng, 60, 150), _tint(rng, 170, 240, 12), veins)


def _contours(rng: Rng, size: Size) -> Image.Image:
    """Lines of equal height, as on a map."""
    heights = _noise(rng, size, (size[0] / 2, size[1] / 2), 3) * rng.uniform(8, 16)
    share = np.abs(heights % 1 - 0.5) < 0.07
    return _blend(_tint(rng, 150, 240), _tint(rng, 90, 140), share.astype(float))


Painter = Callable[[Rng, Size], Image.Image]
GROUNDS: dict[str, tuple[Painter, str]] = {
    "meadow": (_meadow, "field"),
    "bricks": (_brick_street, "street"),
    "papered": (_papered_room, "room"),
    "planks": (_wooden_table, "table"),
    "woven": (_woven, "pattern"),
    "paper": (_paper, PLAIN),
    "bokeh": (_bokeh, PLAIN),
    "sweep": (_sweep, PLAIN),
    "grid": (_grid, PLAIN),
    "wall": (_wall, PLAIN),
    "lawn": (_lawn, PLAIN),
    "watercolour": (_watercolour, PLAIN),
    "coffee": (_coffee, PLAIN),
    "gravel": (_gravel, PLAIN),
    "marble": (_marble, PLAIN),
    "contours": (_contours, PLAIN),
} | {name: (painter, PLAIN) for name, painter in PATTERNS.items()}
HOME_GROUND = "home"  # `drawing.background`


def painted(rng: Rng, size: Size, name: str) -> tuple[Image.Image, str]:
    """The ground of a name (a key of `GROUNDS`, or `HOME_GROUND`), and what it shows."""
    if name == HOME_GROUND:
        return background(rng, size)
    painter, setting = GROUNDS[name]
    return painter(rng, size).convert("RGB"), setting
