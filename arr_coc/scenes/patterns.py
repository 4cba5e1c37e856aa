"""More plain grounds for training, all drawn: gradients, clouds, blobs, mosaics, stripes and dots.

Each painter takes a generator and a size (width, height) and returns an RGB picture in muted colours of
its own; `grounds` lists them with the others. Large soft pictures are drawn small and enlarged.
"""

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

Rng = np.random.Generator
Size = tuple[int, int]
SMALLER = 4  # times smaller are soft grounds drawn, in width and height


def _muted(rng: Rng, n: int) -> np.ndarray:
    """`(n, 3)` uint8 colours: about one brightness, each with a tint of its own."""
    levels = rng.uniform(50, 215) + rng.uniform(-35, 35, (n, 1))
    return (levels + rng.uniform(-40, 40, (n, 3))).clip(0, 255).astype(np.uint8)


def _grown(rng: Rng, size: Size, cells: Size) -> Image.Image:
    """A few cells of colour that run into one another."""
    colours = _muted(rng, cells[0] * cells[1]).reshape(cells[1], cells[0], 3)
    return Image.fromarray(colours).resize(size, Image.BICUBIC)


def gradient(rng: Rng, size: Size) -> Image.Image:
    """From corner to corner, through up to nine colours."""
    return _grown(rng, size, (int(rng.integers(2, 4)), int(rng.integers(2, 4))))


def clouds(rng: Rng, size: Size) -> Image.Image:
    """Coarse and fine spots of colour, one through the other."""
    coarse = _grown(rng, size, (int(rng.integers(3, 7)), int(rng.integers(3, 7))))
    fine = _grown(rng, size, (int(rng.integers(9, 30)), int(rng.integers(9, 30))))
    return Image.blend(coarse, fine, rng.uniform(0.2, 0.5))


def blobs(rng: Rng, size: Size) -> Image.Image:
    """Large blurred spots on one colour."""
    small = tuple(max(8, side // SMALLER) for side in size)
    colours = [tuple(int(v) for v in colour) for colour in _muted(rng, int(rng.integers(5, 14)))]
    picture = Image.new("RGB", small, colours[0])
    paint = ImageDraw.Draw(picture)
    for colour in colours[1:]:
        x, y = rng.uniform(0, small[0]), rng.uniform(0, small[1])
        a, b = rng.uniform(0.08, 0.3, 2) * min(small)
        paint.ellipse((x - a, y - b, x + a, y + b), colour)
    soft = picture.filter(ImageFilter.GaussianBlur(rng.uniform(0.5, 6)))
    return soft.resize(size, Image.BICUBIC)


def mosaic(rng: Rng, size: Size) -> Image.Image:
    """Every place in the colour of the nearest of some points."""
    small = tuple(max(8, side // SMALLER) for side in size)
    n = int(rng.integers(6, 24))
    points = rng.random((n, 2)).astype(np.float32) * small
    y, x = np.mgrid[: small[1], : small[0]].astype(np.float32)
    away = [(x - px) ** 2 + (y - py) ** 2 for px, py in points]
    return Image.fromarray(_muted(rng, n)[np.argmin(away, 0)]).resize(size, Image.BILINEAR)


def stripes(rng: Rng, size: Size) -> Image.Image:
    """Straight stripes of several widths and colours, at any slant."""
    turn = rng.uniform(0, np.pi)
    y, x = np.mgrid[: size[1], : size[0]].astype(np.float32)
    along = (np.cos(turn) * x + np.sin(turn) * y) / rng.uniform(12, 60)
    colours = _muted(rng, int(rng.integers(2, 6)))
    order = rng.integers(len(colours), size=64)
    return Image.fromarray(colours[order[np.floor(along).astype(int) % 64]])


def dots(rng: Rng, size: Size) -> Image.Image:
    """Rows of dots, straight or staggered."""
    ground, dot = (tuple(int(v) for v in colour) for colour in _muted(rng, 2))
    picture = Image.new("RGB", size, ground)
    paint = ImageDraw.Draw(picture)
    gap = rng.uniform(22, 60)
    radius, shift = gap * rng.uniform(0.12, 0.36), gap / 2 * rng.integers(2)
    for row, y in enumerate(np.arange(0, size[1] + gap, gap)):
        for x in np.arange(shift * (row % 2), size[0] + gap, gap):
            paint.ellipse((x - radius, y - radius, x + radius, y + radius), dot)
    return picture


PATTERNS = {
    "gradient": gradient,
    "clouds": clouds,
    "blobs": blobs,
    "mosaic": mosaic,
    "stripes": stripes,
    "dots": dots,
}
