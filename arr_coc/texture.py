"""Texture: cheap maps of an image on its token grid. The only user of kornia.

An image becomes 13 channels in [0, 1], computed finer than the grid and pooled to it afterwards: gradients
at the resolution that is given, colour on SAMPLES x SAMPLES samples a cell. A host gives that many.
Nothing here knows the question.
Source: brief part 45, gap 1, with corrections (gradient magnitudes instead of signed
gradients, per-image normalisation, channels 11 and 12 with a meaning of their own).
"""

from dataclasses import dataclass
from functools import lru_cache

import torch
import torch.nn.functional as F
from kornia.color import rgb_to_lab
from kornia.filters import gaussian_blur2d, spatial_gradient
from torch import Tensor

# D65 luma weights on linear light (Rec. 709).
LUMA = (0.2126, 0.7152, 0.0722)
# Lab is spread over these ranges by its definition: L* in [0, 100], a* in about [-128, 127].
LAB_L_RANGE, LAB_A_OFFSET, LAB_A_RANGE = 100.0, 128.0, 255.0
# Samples on a side of a cell: 4 x 4 pixels each where a cell has 32 x 32. Small text keeps its energy at
# that, for a sixteenth of the work.
SAMPLES = 8
# The surround of centre-surround saliency: a blur of one and a half cells.
SURROUND_SIGMA = 1.5 * SAMPLES
SURROUND_SIZE = 2 * int(2 * SURROUND_SIGMA) + 1
# Samples on a side up to which the blur is two products of matrices, in a third of the time on a CPU.
BLUR_AS_MATRIX = 1024
# Weights of gamma-encoded luma (Rec. 601), good enough for edges and cheap at every pixel.
GAMMA_LUMA = (0.299, 0.587, 0.114)
EPS = 1e-6


@dataclass(frozen=True)
class Channel:
    """One row of the channel table: its index in the texture stack and what it measures."""

    index: int
    name: str
    meaning: str


CHANNELS = tuple(
    Channel(i, name, meaning)
    for i, (name, meaning) in enumerate(
        [
            ("red", "mean sRGB red"),
            ("green", "mean sRGB green"),
            ("blue", "mean sRGB blue"),
            ("lightness", "mean CIE L*, over 100"),
            ("green_red", "mean CIE a*, 0.5 is neutral"),
            ("edge_x", "mean |horizontal gradient|, over the image's largest edge"),
            ("edge_y", "mean |vertical gradient|, over the image's largest edge"),
            ("edge", "mean gradient magnitude, over the image's largest"),
            ("y", "row of the cell's centre, 0 top, 1 bottom"),
            ("x", "column of the cell's centre, 0 left, 1 right"),
            ("eccentricity", "distance from the image centre, 1 at the corners"),
            ("saliency", "colour contrast of the cell's detail against its surround"),
            ("luminance", "mean linear-light luminance (Rec. 709)"),
        ]
    )
)
# What only a clip has. Trained weights read `CHANNELS` alone, which a picture has too.
MOTION = Channel(
    len(CHANNELS), "motion", "mean |change of colour| since the frame before, over a visible one"
)
CLIP_CHANNELS = (*CHANNELS, MOTION)
INDEX = {channel.name: channel.index for channel in CLIP_CHANNELS}


def texture(image: Tensor, grid: tuple[int, int]) -> Tensor:
    """Compute the texture channels of each image on the token grid.

    Args:
        image: `(B, 3, H, W)` sRGB in [0, 1]; any H and W of at least 1.
        grid: `(h, w)` the token grid, each at least 1.

    Returns:
        `(B, 13, h, w)` float32 in [0, 1], channels as in `CHANNELS`. An image's channels do not
        depend on the others in its batch.

    Raises:
        ValueError: for another rank or channel count, or an empty image or grid.
    """
    check_image(image, grid)
    # As it comes from a picture, a pixel's colours lie side by side, which is slower.
    image = image.float().contiguous()
    fine, lab = fine_samples(image, grid)
    color = pool(image, grid)  # (B, 3, h, w)
    lightness = pool(lab[:, :1], grid) / LAB_L_RANGE
    green_red = (pool(lab[:, 1:2], grid) + LAB_A_OFFSET) / LAB_A_RANGE
    stack = torch.cat(
        [
            color,
            lightness,
            green_red,
            _edges(image, grid),
            _places(image, grid),
            _saliency(lab, grid),
            _luminance(fine, grid),
        ],
        dim=1,
    )  # (B, 13, h, w)
    return stack.clamp(0, 1)


def pool(maps: Tensor, grid: tuple[int, int]) -> Tensor:
    """Area-average `(B, C, H, W)` to `(B, C, h, w)`; works for any sizes, also H < h."""
    return maps if maps.shape[-2:] == tuple(grid) else F.adaptive_avg_pool2d(maps, grid)


def fine_samples(image: Tensor, grid: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """`(B, 3, H, W)` -> SAMPLES x SAMPLES samples a cell, `(B, 3, 8h, 8w)` each: sRGB, and CIE Lab."""
    fine = pool(image, (grid[0] * SAMPLES, grid[1] * SAMPLES))
    return fine, rgb_to_lab(fine)


def luma(image: Tensor) -> Tensor:
    """`(B, 3, H, W)` sRGB in [0, 1] -> `(B, 1, H, W)` gamma-encoded luma in [0, 1]."""
    return (image * image.new_tensor(GAMMA_LUMA).view(1, 3, 1, 1)).sum(1, keepdim=True)


def gradients(plane: Tensor) -> Tensor:
    """`(B, 1, H, W)` -> `(B, 2, H, W)`: signed Sobel gradients along x and y, at every pixel."""
    return spatial_gradient(plane, mode="sobel", normalized=True)[:, 0]


def over_largest(maps: Tensor) -> Tensor:
    """Divide each `(h, w)` plane of `(..., h, w)` by its own maximum; a plane of zeros stays zero."""
    peak = maps.amax(dim=(-2, -1), keepdim=True)
    return torch.where(peak > EPS, maps / peak.clamp(min=EPS), torch.zeros_like(maps))


def check_image(image: Tensor, grid: tuple[int, int]) -> None:
    """Raise ValueError unless `image` is `(B, 3, H, W)`, not empty, and `grid` is positive."""
    if image.ndim != 4 or image.shape[1] != 3 or 0 in image.shape:
        raise ValueError(f"image has shape {tuple(image.shape)}, expected (B, 3, H, W), not empty")
    if len(grid) != 2 or min(grid) < 1:
        raise ValueError(f"grid is {tuple(grid)}, expected (h, w), each at least 1")


def _edges(image: Tensor, grid: tuple[int, int]) -> Tensor:
    """`(B, 3, H, W)` -> `(B, 3, h, w)`: |gx|, |gy| and magnitude of luma, pooled as magnitudes because
    signed gradients of a stroke cancel."""
    gradient = gradients(luma(image))  # (B, 2, H, W)
    magnitude = gradient.square().sum(1, keepdim=True).sqrt()
    pooled = pool(torch.cat([gradient.abs(), magnitude], 1), grid)  # (B, 3, h, w)
    peak = pooled[:, 2:].amax(dim=(-2, -1), keepdim=True)
    return torch.where(peak > EPS, pooled / peak.clamp(min=EPS), torch.zeros_like(pooled))


def _places(image: Tensor, grid: tuple[int, int]) -> Tensor:
    """`(B, 3, h, w)`: y, x and eccentricity of the cells' centres."""
    h, w = grid
    ys = (torch.arange(h, device=image.device) + 0.5) / h
    xs = (torch.arange(w, device=image.device) + 0.5) / w
    y, x = torch.meshgrid(ys, xs, indexing="ij")  # (h, w)
    eccentricity = ((y - 0.5).square() + (x - 0.5).square()).sqrt() / 0.5**0.5
    return torch.stack([y, x, eccentricity])[None].expand(len(image), -1, -1, -1)


def _saliency(lab: Tensor, grid: tuple[int, int]) -> Tensor:
    """`(B, 3, 8h, 8w)` Lab samples -> `(B, 1, h, w)`: their Lab distance to the blurred surround.

    The mean distance inside a cell is kept, so a cell with a small strong detail still stands out.
    """
    distance = (lab - surround(lab)).square().sum(1, keepdim=True).sqrt()  # (B, 1, 8h, 8w)
    return over_largest(pool(distance, grid))


def surround(maps: Tensor) -> Tensor:
    """`(B, C, H, W)` blurred by `SURROUND_SIGMA`, edges carried on; by two matrices where it is small."""
    if max(maps.shape[-2:]) > BLUR_AS_MATRIX:
        return gaussian_blur2d(maps, (SURROUND_SIZE,) * 2, (SURROUND_SIGMA,) * 2, "replicate")
    down, along = (_blur(side, maps.device) for side in maps.shape[-2:])
    return down @ maps @ along.T


@lru_cache(maxsize=16)
@torch.inference_mode(False)  # what is kept serves training as well
def _blur(side: int, device: torch.device) -> Tensor:
    """`(side, side)`: what the blur takes of each place on an axis for each other."""
    each = torch.eye(side, device=device, dtype=torch.float32)[None, None]
    size = SURROUND_SIZE, 1
    return gaussian_blur2d(each, size, (SURROUND_SIGMA,) * 2, "replicate")[0, 0]


def _luminance(image: Tensor, grid: tuple[int, int]) -> Tensor:
    """`(B, 3, 8h, 8w)` sRGB samples -> `(B, 1, h, w)` linear-light luminance."""
    linear = torch.where(image <= 0.04045, image / 12.92, ((image + 0.055) / 1.055).pow(2.4))
    weights = image.new_tensor(LUMA).view(1, 3, 1, 1)
    return pool((linear * weights).sum(1, keepdim=True), grid)
