"""Homunculus: pictures of where looking paid, from maps and Allocations.

Every function takes plain values (a PIL image, a map, an Allocation) and gives a PIL image, mode
RGB; nothing is kept between calls and no global plotting state is touched. The colour maps are
perceptually even and safe for colour-blind eyes: dark is little, bright is much.
"""

from functools import lru_cache
from typing import Any

import numpy as np
from matplotlib import colormaps
from numpy.typing import ArrayLike
from PIL import Image, ImageChops, ImageDraw, ImageFilter
from torch import Tensor

from arr_coc.attending import Allocation
from arr_coc.config import TENSION_ENDS
from arr_coc.ranking import ranks

Map = ArrayLike | Tensor  # (h, w) or (1, h, w) in [0, 1]
CELL = 32  # pixels of a native token's side on Qwen3-VL, where no host says otherwise
SIDE = 640  # pixels of the longer side of a picture: sharp at 512 px, light on a phone
HEAT = "magma"
MAP = "cividis"
CELL_LINE = (110, 110, 125, 120)  # seen on light and on dark places
FRAME = (240, 160, 60)
NEVER_SEEN = (38, 38, 46)


def realization_pictures(
    image: Image.Image, realization: Any, cell: int = CELL
) -> dict[str, Image.Image]:
    """Every picture of one `realizing.Realization`, by name; `cell` as in `what_it_saw`.

    Keys: overlay, kept, saw, tensions, and of the maps those that were reached: propositional,
    perspectival, participatory.
    """
    allocation, kept = realization.allocation, realization.kept_glance
    glance = glance_picture(image, tuple(kept.attention.shape[-2:]), cell) if kept else None
    placed = ranks(as_map(realization.relevance), allocation.cells.tolist())
    pictures = {
        "overlay": overlay(image, placed.brightness),
        "kept": kept_cells(image, allocation),
        "saw": what_it_saw(image, allocation, glance, cell),
        "tensions": tension_gauges(realization.tensions),
    }
    for name in ("propositional", "perspectival", "participatory"):
        if (values := getattr(realization, name)) is not None:
            pictures[name] = map_picture(values, image.size)
    return pictures


def glance_picture(image: Image.Image, grid: tuple[int, int], cell: int = CELL) -> Image.Image:
    """What a glance saw: `grid` `(h, w)` tokens of `cell` pixels a side."""
    return image.convert("RGB").resize((grid[1] * cell, grid[0] * cell), Image.Resampling.BICUBIC)


def overlay(image: Image.Image, brightness: Map, side: int = SIDE) -> Image.Image:
    """The picture in grey under its heat, so that both stay readable whatever the colours were.

    Args:
        image: any size, mode RGB.
        brightness: `(h, w)` or `(1, h, w)` in [0, 1], tensor, array or nested lists; of a decision,
            `ranking.Ranks.brightness`. Each place is a square, so that kept ones keep their edges.
        side: pixels of the longer side of the result.
    """
    picture = _sized(image, side)
    grey = np.asarray(picture.convert("L"), np.float32)[..., None] / 255  # (H, W, 1)
    level = _stretched(as_map(brightness))
    squares = Image.fromarray(level).resize(picture.size, Image.Resampling.NEAREST)
    level = np.asarray(squares, np.float32)  # (H, W)
    heat = _colour(level, HEAT)  # (H, W, 3)
    # What shows through keeps the picture readable where heat is low.
    under = 0.34 * grey * (1 - 0.7 * level[..., None])
    return _to_image(heat * (0.45 + 0.55 * grey) + under + 0.05)


def kept_cells(image: Image.Image, allocation: Allocation, side: int = SIDE) -> Image.Image:
    """Kept places as they are, cells drawn and framed; the rest dimmed and drained of colour."""
    picture = _sized(image, side)
    pixels = np.asarray(picture, np.float32) / 255
    grey = pixels.mean(-1, keepdims=True)
    rest = 0.22 * grey + np.array([0.05, 0.05, 0.075], np.float32)
    kept = np.zeros(picture.size[::-1], bool)  # (H, W)
    boxes = _boxes(allocation, picture.size)
    for left, top, right, bottom in boxes:
        kept[top:bottom, left:right] = True
    result = _to_image(np.where(kept[..., None], pixels, rest))
    lines = Image.new("RGBA", result.size)
    draw = ImageDraw.Draw(lines)
    for left, top, right, bottom in boxes:
        draw.rectangle((left, top, max(left, right - 1), max(top, bottom - 1)), outline=CELL_LINE)
    result = Image.alpha_composite(result.convert("RGBA"), lines).convert("RGB")
    region = Image.fromarray(kept.astype(np.uint8) * 255)
    frame = ImageChops.subtract(region.filter(ImageFilter.MaxFilter(5)), region)
    result.paste(FRAME, mask=frame)
    return result


def what_it_saw(
    image: Image.Image,
    allocation: Allocation,
    glance: Image.Image | None = None,
    cell: int = CELL,
    side: int = SIDE,
) -> Image.Image:
    """The picture rebuilt at the resolution each place was given.

    Args:
        image: the picture asked about.
        allocation: a coarse cell is rebuilt from the `cell x cell` pixels that its one token had.
        glance: the small picture that the glance saw; None where there was none, and places that got
            no cell are then dark.
        cell: pixels of one native token's side (`patch_size * spatial_merge_size` of the host).
        side: pixels of the longer side of the result.
    """
    height, width = (extent * cell for extent in allocation.grid)
    native = image.convert("RGB").resize((width, height), Image.Resampling.BICUBIC)
    if glance is None:
        canvas = Image.new("RGB", native.size, NEVER_SEEN)
    else:
        canvas = glance.convert("RGB").resize(native.size, Image.Resampling.BICUBIC)
    order = sorted(zip(allocation.cells[:, 0].tolist(), _boxes(allocation, native.size)))
    for _, box in reversed(order):  # coarse first, so that finer cells lie on top
        seen = native.crop(box)
        # As the encoder has it: averaged over squares, or oblongs where the grid's edge cuts it.
        small = seen.resize((cell, cell), Image.Resampling.BOX)
        canvas.paste(small.resize(seen.size, Image.Resampling.BILINEAR), box[:2])
    fitted = _sized(image, side)
    return canvas.resize(fitted.size, Image.Resampling.LANCZOS)


def map_picture(values: Map, size: tuple[int, int] | None = None, side: int = SIDE) -> Image.Image:
    """One map as honest squares, one per token, stretched to the map's own range.

    Args:
        values: `(h, w)` or `(1, h, w)` in [0, 1].
        size: `(width, height)` of the picture it belongs to, for its aspect; default the grid's.
        side: pixels of the longer side of the result.
    """
    level = _stretched(as_map(values))
    coloured = _to_image(_colour(level, MAP))
    width, height = size or coloured.size
    scale = side / max(width, height)
    fitted = (max(1, round(width * scale)), max(1, round(height * scale)))
    return coloured.resize(fitted, Image.Resampling.NEAREST)


def tension_gauges(tensions: Any) -> Image.Image:
    """The three tensions as one picture of gauges: a mark between two named ends.

    Args:
        tensions: anything with `compress`, `exploit`, `focus` in [0, 1] (`config.Tensions`);
            1 is the left end: gist, best spot, one place.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 2.4), dpi=100, facecolor="white")
    axes = figure.add_axes((0.06, 0.04, 0.88, 0.92))
    axes.set(xlim=(0, 1), ylim=(2.6, -0.75))
    axes.axis("off")
    for row, (name, (left, right)) in enumerate(TENSION_ENDS.items()):
        at = 1 - float(getattr(tensions, name))
        axes.plot((0, 1), (row, row), color="#d5d7e0", linewidth=7, solid_capstyle="round")
        axes.plot((0.5, at), (row, row), color="#8d6cc9", linewidth=7, solid_capstyle="round")
        axes.plot(at, row, "o", color="#4b2a85", markersize=13, markeredgecolor="white")
        axes.text(0, row - 0.3, left, ha="left", va="center", fontsize=11, color="#2a2a36")
        axes.text(1, row - 0.3, right, ha="right", va="center", fontsize=11, color="#2a2a36")
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return Image.fromarray(np.asarray(canvas.buffer_rgba())[..., :3].copy())


def as_map(values: Map) -> np.ndarray:
    """`(h, w)` float32 from a `(h, w)` or `(1, h, w)` tensor, array or nested lists in [0, 1].

    Raises:
        ValueError: for another shape, or values that are not finite.
    """
    if hasattr(values, "detach"):
        values = values.detach().cpu().float().numpy()
    array = np.asarray(values, np.float32)
    if array.ndim == 3 and array.shape[0] == 1:
        array = array[0]
    if array.ndim != 2 or array.size == 0:
        raise ValueError(f"a map has shape {array.shape}, expected (h, w) or (1, h, w)")
    if not np.isfinite(array).all():
        raise ValueError("a map holds values that are not finite")
    return array.clip(0, 1)


def _stretched(values: np.ndarray) -> np.ndarray:
    """`(h, w)` spread over [0, 1]; a map that hardly varies stays as flat as it is."""
    low, high = float(values.min()), float(values.max())
    return (values - low) / max(high - low, 0.05)


@lru_cache
def _table(name: str) -> np.ndarray:
    return colormaps[name](np.linspace(0, 1, 256))[:, :3].astype(np.float32)  # (256, 3)


def _colour(level: np.ndarray, name: str) -> np.ndarray:
    """`(H, W)` in [0, 1] -> `(H, W, 3)` in [0, 1]."""
    return _table(name)[np.round(level * 255).astype(np.uint8)]


def _to_image(pixels: np.ndarray) -> Image.Image:
    return Image.fromarray(np.round(pixels.clip(0, 1) * 255).astype(np.uint8), "RGB")


def _sized(image: Image.Image, side: int) -> Image.Image:
    """RGB with the longer side of `side` pixels, aspect kept."""
    scale = side / max(image.size)
    size = tuple(max(1, round(extent * scale)) for extent in image.size)
    way = Image.Resampling.LANCZOS if scale < 1 else Image.Resampling.BICUBIC
    return image.convert("RGB").resize(size, way)


def _boxes(allocation: Allocation, size: tuple[int, int]) -> list[tuple[int, int, int, int]]:
    """Each cell's `(left, top, right, bottom)` in pixels of a picture of `size` (width, height)."""
    rows, columns = allocation.grid
    across, down = size[0] / columns, size[1] / rows
    return [
        (round(left * across), round(top * down), round(right * across), round(bottom * down))
        for top, left, bottom, right in allocation.bounds().tolist()
    ]
