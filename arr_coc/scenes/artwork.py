"""Artwork of other hands: the same things by other artists, recoloured and pasted into a picture.

A family lies in `bundled/hands/FAMILY` (built by `tests/atlas.py`): either icons of one colour, as ink
within a silhouette, or icons in several colours with a mask of the body that a named colour fills. The
colours beside the body stay the artist's, as do lights and shades. Boxes are `(x0, y0, x1, y1)` pixels.
"""

import json
from dataclasses import dataclass
from functools import cache
from math import ceil
from pathlib import Path

import numpy as np
from PIL import Image, ImageFilter

from arr_coc.scenes import shades
from arr_coc.scenes.drawing import GLYPH_DIR, RGB, Box

HANDS_DIR = Path(__file__).parent.parent / "bundled" / "hands"
HOME = "home"  # the family in `drawing.GLYPH_DIR`
RIMS = ("dark", "sticker", "glow", "thin")  # what sets a thing off from its ground
INKS = (
    "filled",
    "stamp",
)  # how an icon of one colour is inked: within its silhouette, or ink alone
_RIM_ROOM = {"dark": 2, "sticker": 4, "glow": 8, "thin": 1}  # pixels, inside a thing's box
_MIDDLE = 0.42  # lightness above which a colour is set off by something dark


@dataclass(frozen=True)
class Sprite:
    """One icon, cropped: `(h, w)` float arrays in [0, 1] but for `colours`, `(h, w, 3)` uint8.

    `body` is where a named colour goes, `shade` its lightness against the body's own (-1 to 1). An
    icon of one colour has no `colours`: there `body` is its ink.
    """

    alpha: np.ndarray
    body: np.ndarray
    shade: np.ndarray
    colours: np.ndarray | None


@dataclass(frozen=True)
class Warp:
    """How an icon is bent before it is turned: mirrored, its width stretched, its top sheared aside.

    `stretch` is a factor, `shear` how far the top moves to the right, in heights.
    """

    mirrored: bool = False
    stretch: float = 1.0
    shear: float = 0.0


STRAIGHT = Warp()


def drawn_names() -> tuple[str, ...]:
    """The names of all things that artists drew, the shirt among them."""
    return tuple(json.loads((GLYPH_DIR / "glyphs.json").read_text())["names"])


@cache
def _table(family: str) -> dict:
    if family == HOME:
        table = json.loads((GLYPH_DIR / "glyphs.json").read_text())
        return table | {"sources": dict.fromkeys(table["names"])}
    return json.loads((HANDS_DIR / family / "table.json").read_text())


def has(family: str) -> tuple[str, ...]:
    """The names of the things that a family draws."""
    return tuple(_table(family)["sources"])


def in_colours(family: str) -> bool:
    """Whether a family's icons have several colours."""
    return _sheets(family)[1] is not None


@cache
def _sheets(family: str) -> tuple[Image.Image, Image.Image | None]:
    """A family's art (RGB or LA), and its masks (LA: body, alpha) where it has colours."""
    if family == HOME:
        return Image.open(GLYPH_DIR / "glyphs.png").convert("LA"), None
    art = Image.open(HANDS_DIR / family / "art.png")
    if art.mode != "P":
        return art.convert("LA"), None
    return art.convert("RGB"), Image.open(HANDS_DIR / family / "body.png").convert("LA")


@cache
def sprite(family: str, name: str) -> Sprite:
    """The icon of `name` by a family; by the home family where that one lacks it."""
    family = family if name in has(family) else HOME
    table, (art, masks) = _table(family), _sheets(family)
    row, column = divmod(has(family).index(name), table["columns"])
    cell = table["cell"]
    box = (column * cell, row * cell, (column + 1) * cell, (row + 1) * cell)
    body, alpha = (masks or art).crop(box).split()
    inside = alpha.getbbox()
    body, alpha = (np.asarray(mask.crop(inside), float) / 255 for mask in (body, alpha))
    if masks is None:
        return Sprite(alpha, body, np.zeros_like(alpha), None)
    colours = np.asarray(art.crop(box).crop(inside))
    light = shades.lightness_and_hue(colours)[0]
    away = light - np.median(light[body * alpha > 0.5])
    spread = max(0.08, float(np.abs(away[body * alpha > 0.5]).max()))
    return Sprite(alpha, body, (away / spread).clip(-1, 1), colours)


def recoloured(drawn: Sprite, rgb: RGB | None, *, depth: float, ink: str) -> Image.Image:
    """The icon as RGBA with its body in `rgb`; None leaves it in its own colours.

    `depth` scales lights and shades (0 flat, 1 strong); `ink` is one of `INKS`, for icons of one colour.
    """
    if drawn.colours is None:
        return _inked(drawn, rgb, ink)
    pixels = drawn.colours.astype(float)
    if rgb is not None:
        steps = ((drawn.shade + 1) / 2 * (shades.STEPS - 1)).round().astype(int)
        share = drawn.body[..., None]
        pixels = pixels * (1 - share) + shades.ramp(rgb, depth)[steps] * share
    return _rgba(pixels, drawn.alpha)


def _inked(drawn: Sprite, rgb: RGB, ink: str) -> Image.Image:
    """An icon of one colour: the larger of its ink and what is within it gets the colour.

    Within ink of the colour it is pale (grey in a white thing); around a body of the colour lines are
    darker (lighter around a black one).
    """
    lab = shades.oklab(np.asarray(rgb))
    share = drawn.body[..., None]
    if drawn.body.sum() > 0.5 * drawn.alpha.sum():
        if ink == "stamp":
            return _rgba(np.broadcast_to(np.asarray(rgb), (*drawn.body.shape, 3)), drawn.body)
        gap = lab * (0.86, 1, 1) if lab[0] > 0.9 else lab * (0, 0.2, 0.2) + (0.96, 0, 0)
        return _rgba(np.asarray(rgb) * share + shades.srgb(gap) * (1 - share), drawn.alpha)
    line = shades.srgb(lab * (0.55, 0.8, 0.8) if lab[0] > 0.35 else lab + (0.2, 0, 0))
    return _rgba(np.asarray(rgb) * (1 - share) + line * share, drawn.alpha)


def _rgba(pixels: np.ndarray, alpha: np.ndarray) -> Image.Image:
    """`(h, w, 3)` in [0, 255] and `(h, w)` in [0, 1]."""
    joined = np.concatenate([pixels, 255 * alpha[..., None]], -1)
    return Image.fromarray(joined.round().clip(0, 255).astype(np.uint8))


def turned(picture: Image.Image, angle: float, warp: Warp = STRAIGHT) -> Image.Image:
    """An RGBA picture bent, turned by `angle` degrees and cropped to what is not transparent."""
    # Premultiplied, or the colours under transparent pixels would bleed into the edges.
    around = _bent(picture.convert("RGBa"), warp).rotate(angle, Image.BILINEAR, expand=True)
    return around.crop(around.getchannel("a").point(lambda v: 255 * (v > 40)).getbbox())


def _bent(picture: Image.Image, warp: Warp) -> Image.Image:
    if warp.mirrored:
        picture = picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    if (warp.stretch, warp.shear) == (1, 0):
        return picture
    width, height = picture.size
    wide = warp.stretch * width
    size = (max(1, ceil(wide + abs(warp.shear) * height)), height)
    # From a place in the bent picture to the one that it shows. The top is so far from the left edge; the
    # bottom is, where the top moves to the left.
    start = max(0.0, warp.shear) * height
    across = (1 / warp.stretch, warp.shear / warp.stretch, -start / warp.stretch)
    return picture.transform(size, Image.Transform.AFFINE, (*across, 0, 1, 0), Image.BILINEAR)


def aspect(family: str, name: str, angle: float, warp: Warp = STRAIGHT) -> float:
    """Width over height of the icon bent and turned by `angle` degrees."""
    alpha = sprite(family, name).alpha
    around = turned(_rgba(np.zeros((*alpha.shape, 3)), alpha), angle, warp)
    return around.width / around.height


def paste(
    picture: Image.Image,
    icon: Image.Image,
    box: Box,
    angle: float,
    *,
    rim: str,
    drop: float,
    warp: Warp = STRAIGHT,
) -> Image.Image:
    """Paste an RGBA icon into `box`, bent and turned, with a rim of `RIMS`; its `L` mask of the box.

    `drop` is the darkness, in [0, 1], of the shadow that it throws on the ground behind it.
    """
    width, height = int(box[2] - box[0]), int(box[3] - box[1])
    room = min(_RIM_ROOM[rim], min(width, height) // 8)
    fit = (max(1, width - 2 * room), max(1, height - 2 * room))
    canvas = Image.new("RGBa", (width, height))
    shown = turned(icon, angle, warp).resize(fit, Image.BICUBIC, reducing_gap=2.0)
    canvas.paste(shown, (room, room))
    canvas = canvas.convert("RGBA")
    mask = canvas.getchannel("A")
    at = (int(box[0]), int(box[1]))
    if drop:
        away = max(2, round(0.03 * width))
        fallen = mask.filter(ImageFilter.GaussianBlur(away)).point(lambda v: round(v * drop))
        picture.paste((20, 20, 34), (at[0] + away, at[1] + away), fallen)
    if rim == "sticker":
        wide = _widened(mask, room // 2)
        picture.paste((96, 96, 104), at, _widened(wide, 1))
        picture.paste((252, 252, 250), at, wide)
    else:
        reach = room // 2 if rim == "glow" else room  # a glow fades out within its room
        spread = _widened(mask, reach)
        spread = spread.filter(ImageFilter.GaussianBlur(reach / 2)) if rim == "glow" else spread
        picture.paste(_against(canvas), at, spread)
    picture.paste(canvas, at, canvas)
    return mask.point(lambda v: 255 * (v > 127))


def _widened(mask: Image.Image, by: int) -> Image.Image:
    """A mask that reaches `by` pixels further. By none as it is: a filter of one pixel ends the process."""
    return mask.filter(ImageFilter.MaxFilter(2 * by + 1)) if by else mask


def _against(icon: Image.Image) -> RGB:
    """Nearly black around a light icon, nearly white around a dark one."""
    pixels = np.asarray(icon).reshape(-1, 4)
    mean = np.average(pixels[:, :3], axis=0, weights=pixels[:, 3] + 1e-6)
    return (38, 36, 46) if shades.oklab(mean)[0] > _MIDDLE else (246, 246, 242)
