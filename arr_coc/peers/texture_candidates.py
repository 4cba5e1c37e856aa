"""Candidates for the channel table of `texture`, each first measured as an ablation row of its own.

    python -m arr_coc.evaluate --out DIR --methods arr-coc arr-coc-by-contrast ...

Each takes images `(B, 3, H, W)` sRGB in [0, 1] and the token grid `(h, w)`, and gives `(B, h, w)`
float32 in [0, 1], over the image's largest; all zero where the image has none of what is measured.
Any sizes of at least 1; ValueError as `texture.check_image`. Nothing but those rows uses them.
"""

from collections.abc import Callable

from torch import Tensor

from arr_coc.texture import (
    LAB_A_RANGE,
    check_image,
    fine_samples,
    gradients,
    luma,
    over_largest,
    pool,
)

Candidate = Callable[[Tensor, tuple[int, int]], Tensor]
# Lightness of the negative that a step is compared with at least, so that white has a logarithm.
DIMMEST = 0.05
# Samples on a side of a cell of 32 pixels: all of them; then two bands of detail, 2 pixels against
# 4 (strokes), and 8 against 16 (letters, small things).
EVERY_PIXEL = 32
STROKES, LETTERS = (16, 8), (4, 2)


def inverted_edge(image: Tensor, grid: tuple[int, int]) -> Tensor:
    """Mean gradient magnitude of the logarithm of the negative's luma.

    A negative has the gradients of its picture. Its *relative* steps are others: faint writing on a
    bright ground becomes strong, which is what the brief wants inverted edges for (part 29).
    """
    check_image(image, grid)
    negative = (1 - luma(image.float())).clamp(min=0) + DIMMEST
    magnitude = gradients(negative.log()).square().sum(1, keepdim=True).sqrt()
    return over_largest(pool(magnitude, grid)[:, 0])


def contrast(image: Tensor, grid: tuple[int, int]) -> Tensor:
    """RMS contrast: the standard deviation of luma inside the cell."""
    return _band(image, grid, EVERY_PIXEL, 1)


def fine_energy(image: Tensor, grid: tuple[int, int]) -> Tensor:
    """RMS of luma's detail of the size of strokes."""
    return _band(image, grid, *STROKES)


def coarse_energy(image: Tensor, grid: tuple[int, int]) -> Tensor:
    """RMS of luma's detail of the size of letters."""
    return _band(image, grid, *LETTERS)


def red_green(image: Tensor, grid: tuple[int, int]) -> Tensor:
    """Mean distance of the cell's CIE a* to that of the whole picture."""
    return _opponent(image, grid, 1)


def blue_yellow(image: Tensor, grid: tuple[int, int]) -> Tensor:
    """Mean distance of the cell's CIE b* to that of the whole picture."""
    return _opponent(image, grid, 2)


CANDIDATES: dict[str, Candidate] = {
    "inverted-edge": inverted_edge,
    "contrast": contrast,
    "fine-energy": fine_energy,
    "coarse-energy": coarse_energy,
    "red-green": red_green,
    "blue-yellow": blue_yellow,
}


def _band(image: Tensor, grid: tuple[int, int], fine: int, coarse: int) -> Tensor:
    """RMS difference of luma at `fine` and at `coarse` samples on a cell's side."""
    check_image(image, grid)
    # In float64: rounding in the mean over a cell must stay far below any contrast.
    plane = luma(image.float()).double()
    samples = pool(plane, (grid[0] * fine, grid[1] * fine))  # (B, 1, fine * h, fine * w)
    blurred = pool(samples, (grid[0] * coarse, grid[1] * coarse))
    for axis in (2, 3):
        blurred = blurred.repeat_interleave(fine // coarse, axis)
    return over_largest(pool((samples - blurred).square(), grid).sqrt()[:, 0].float())


def _opponent(image: Tensor, grid: tuple[int, int], axis: int) -> Tensor:
    """Mean distance along an axis of Lab to the picture's mean."""
    check_image(image, grid)
    color = fine_samples(image.float(), grid)[1][:, axis, None].double() / LAB_A_RANGE
    distance = (color - color.mean((2, 3), keepdim=True)).abs()
    return over_largest(pool(distance, grid)[:, 0].float())
