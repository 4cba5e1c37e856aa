"""Warping: the homunculus proper, a picture bent so that area follows visual tokens.

A density-equalising map (Gastner and Newman 2004, in the flow form of Gastner, Seguy and More 2018):
the tokens spent per place are a density; it flows until it is even everywhere, and carries the
picture along. NumPy only; small meshes, milliseconds.
"""

import numpy as np
from PIL import Image

MESH = 25  # nodes along each side of the mesh that a viewer bends a picture by
FIELD = 64  # samples along each side of the density
STEPS = 24
BLUR = 0.55  # of a cell: sharp edges would fold the picture
FLOOR = 0.02  # tokens per place that nothing was spent on: it shrinks, and stays visible


def token_density(grid: tuple[int, int], cells: np.ndarray, glance_tokens: int = 0) -> np.ndarray:
    """Visual tokens spent per native place.

    Args:
        grid: `(h, w)` of the native token grid.
        cells: `(K, 3)` int, rows of (level, row, col) as in `attending.Allocation`.
        glance_tokens: tokens of a first look at the whole picture, spread evenly.

    Returns:
        `(h, w)` float64 > 0; over all places it sums to K + glance_tokens, apart from the floor.
    """
    h, w = grid
    density = np.full((h, w), max(FLOOR, glance_tokens / (h * w)))
    for level, row, col in np.asarray(cells, int).reshape(-1, 3):
        side = 1 << level
        part = density[row * side : (row + 1) * side, col * side : (col + 1) * side]
        part += 1 / max(1, part.size)
    return density


def inverse_mesh(density: np.ndarray, mesh: int = MESH, steps: int = STEPS) -> np.ndarray:
    """Where each node of an even mesh over the warped picture comes from in the original.

    Args:
        density: `(h, w)` > 0.
        mesh: nodes along each side, edges included.
        steps: of the integration.

    Returns:
        `(mesh, mesh, 2)` float64, rows of (y, x) in [0, 1] of the original's height and width.
    """
    field = _smooth(density)  # (F, F), mean 1
    flow = _flow(field)
    nodes = np.linspace(0, 1, mesh)
    place = np.stack(np.meshgrid(nodes, nodes, indexing="ij"), -1)  # (mesh, mesh, 2)
    for step in range(steps):  # back in time, from the even density to the one given
        time = 1 - step / steps
        half = place - _velocity(place, field, flow, time) / (2 * steps)
        place = place - _velocity(half, field, flow, time - 0.5 / steps) / steps
        place = place.clip(0, 1)
        place[[0, -1], :, 0], place[:, [0, -1], 1] = nodes[[0, -1], None], nodes[[0, -1]]
    return place


def bent(picture: Image.Image, density: np.ndarray) -> Image.Image:
    """A picture in which each place's area follows the tokens spent on it; RGB, of the same size."""
    width, height = picture.size
    mesh = inverse_mesh(density)  # (n, n, 2)
    nodes = len(mesh) - 1
    place = _between(mesh, np.linspace(0, nodes, height), np.linspace(0, nodes, width))
    pixels = np.asarray(picture.convert("RGB"), np.float32)
    y, x = place[..., 0] * (height - 1), place[..., 1] * (width - 1)
    y0, x0 = np.minimum(y.astype(int), height - 2), np.minimum(x.astype(int), width - 2)
    fy, fx = (y - y0)[..., None], (x - x0)[..., None]
    top = pixels[y0, x0] * (1 - fx) + pixels[y0, x0 + 1] * fx
    bottom = pixels[y0 + 1, x0] * (1 - fx) + pixels[y0 + 1, x0 + 1] * fx
    return Image.fromarray((top * (1 - fy) + bottom * fy).round().astype(np.uint8))


def _between(mesh: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """`(n, n, 2)` at fractional rows `(H,)` and columns `(W,)` -> `(H, W, 2)`."""
    j = np.minimum(rows.astype(int), len(mesh) - 2)
    i = np.minimum(columns.astype(int), len(mesh) - 2)
    fv, fu = (rows - j)[:, None, None], (columns - i)[None, :, None]
    above = mesh[j][:, i] * (1 - fu) + mesh[j][:, i + 1] * fu
    below = mesh[j + 1][:, i] * (1 - fu) + mesh[j + 1][:, i + 1] * fu
    return above * (1 - fv) + below * fv


def _smooth(density: np.ndarray) -> np.ndarray:
    """`(h, w)` sampled on `(F, F)`, blurred within its borders, mean 1."""
    h, w = density.shape
    rows = np.minimum((np.arange(FIELD) + 0.5) * h / FIELD, h - 1e-9).astype(int)
    columns = np.minimum((np.arange(FIELD) + 0.5) * w / FIELD, w - 1e-9).astype(int)
    field = density[rows][:, columns]
    ky, kx = _frequencies()
    sigma = BLUR / h, BLUR / w  # in units of the picture
    kernel = np.exp(-((ky * sigma[0]) ** 2 + (kx * sigma[1]) ** 2) / 2)
    field = _half(np.fft.ifft2(np.fft.fft2(_mirrored(field)) * kernel).real)
    field = np.maximum(field, 1e-3 * field.mean())
    return field / field.mean()


def _flow(field: np.ndarray) -> np.ndarray:
    """`(F, F, 2)` the current whose divergence is the excess density; none crosses the border."""
    ky, kx = _frequencies()
    square = ky**2 + kx**2
    square[0, 0] = 1
    potential = -np.fft.fft2(_mirrored(field - field.mean())) / square
    potential[0, 0] = 0
    across = [_half(np.fft.ifft2(1j * k * potential).real) for k in (ky, kx)]
    return np.stack(across, -1)


def _velocity(place: np.ndarray, field: np.ndarray, flow: np.ndarray, time: float) -> np.ndarray:
    """Speed at places `(..., 2)` in [0, 1] when the density is part of the way to even."""
    density = (1 - time) * _sample(field[..., None], place) + time
    return _sample(flow, place) / density


def _sample(values: np.ndarray, place: np.ndarray) -> np.ndarray:
    """Bilinear samples of `(F, F, C)` at places `(..., 2)` in [0, 1]; samples sit at cell centres."""
    at = (place * FIELD - 0.5).clip(0, FIELD - 1)
    low = np.minimum(at.astype(int), FIELD - 2)
    fy, fx = np.moveaxis(at - low, -1, 0)[..., None]
    y, x = low[..., 0], low[..., 1]
    top = values[y, x] * (1 - fx) + values[y, x + 1] * fx
    bottom = values[y + 1, x] * (1 - fx) + values[y + 1, x + 1] * fx
    return top * (1 - fy) + bottom * fy


def _frequencies() -> tuple[np.ndarray, np.ndarray]:
    """Angular frequencies of a mirrored field of side 2: `(2F, 1)` and `(1, 2F)`."""
    k = 2 * np.pi * np.fft.fftfreq(2 * FIELD, d=1 / FIELD)
    return k[:, None].copy(), k[None].copy()


def _mirrored(field: np.ndarray) -> np.ndarray:
    field = np.concatenate([field, field[::-1]])
    return np.concatenate([field, field[:, ::-1]], 1)


def _half(field: np.ndarray) -> np.ndarray:
    return field[:FIELD, :FIELD]
