"""Cells: what of a picture the encoder is shown, and where it stands; no model runs here.

An `Allocation` names the cells that are kept; what the encoder sees besides is added to it here. "Merge
unit" is one visual token: `merge x merge` patches (2 x 2 of 16 pixels in Qwen3-VL), kept in the processor's
block order. Patch coordinates are `(row, column)` on the native patch grid; coarse cells sit between its
integers.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from arr_coc.attending import BUDGET_LOW, Allocation
from arr_coc.qwen.inputs import Picture


def with_halo(allocation: Allocation, share: float) -> Allocation:
    """The allocation, followed by `round(share * K)` native cells next to those it holds.

    First those with the most neighbours among the held, in the 3 x 3 cells around them and then in the
    5 x 5; ties in raster order. Coarse cells already cover what is around them: an allocation that has
    some is left as it is.
    """
    h, w = allocation.grid
    more = min(round(share * len(allocation)), h * w - len(allocation))
    if more < 1 or not allocation.is_native:
        return allocation
    held = torch.zeros(1, 1, h, w, dtype=torch.float64)
    held.view(-1)[allocation.native_index()] = 1
    # Held cells among the 9 and the 25 around each; one weight orders by the first and then by the
    # second, the other puts what is held already behind everything else.
    near, far = (F.conv2d(held, torch.ones(1, 1, n, n).double(), padding=n // 2) for n in (3, 5))
    score = (near * 100 + far - held * 10_000).flatten()  # (h * w,)
    index = score.sort(descending=True, stable=True).indices[:more].sort().values
    cells = torch.stack([torch.zeros_like(index), index // w, index % w], 1)
    return _followed_by(allocation, cells)


def with_surroundings(allocation: Allocation, at_most: int) -> Allocation:
    """The allocation, followed by coarse cells over all of the picture that it does not hold.

    The cells are of the finest level of which the whole picture takes at most `at_most`; those that
    the allocation holds as finely or finer are left out. 0 adds none.
    """
    if at_most < 1:
        return allocation
    (h, w), level = allocation.grid, 0
    while (rows := -(-h >> level)) * (columns := -(-w >> level)) > at_most:
        level += 1
    index = torch.arange(rows * columns)
    cells = torch.stack([torch.full_like(index, level), index // columns, index % columns], 1)
    bounds = Allocation(allocation.grid, cells, torch.full(index.shape, BUDGET_LOW)).bounds()
    own = allocation.cells[:, 0]
    fine = own <= level
    # Native tokens that the allocation holds within each of the coarse cells: where that is the whole
    # cell, it has nothing to add. Halving a row or column once for each level gives the coarse one.
    row, column = (allocation.cells[fine, 1:] >> (level - own[fine, None])).unbind(1)
    held = torch.zeros_like(index).index_add(
        0, row * columns + column, _areas(allocation.bounds()[fine])
    )
    return _followed_by(allocation, cells[held < _areas(bounds)])


def _followed_by(allocation: Allocation, cells: Tensor) -> Allocation:
    """The allocation, then `cells` `(M, 3)` at the least budget."""
    budgets = torch.full((len(cells),), BUDGET_LOW)
    return Allocation(
        allocation.grid,
        torch.cat([allocation.cells, cells]),
        torch.cat([allocation.budgets, budgets]),
    )


def _areas(bounds: Tensor) -> Tensor:
    """`(K, 4)` bounds of cells -> `(K,)` native tokens that each covers."""
    return (bounds[:, 2] - bounds[:, 0]) * (bounds[:, 3] - bounds[:, 1])


def cell_places(bounds: Tensor) -> Tensor:
    """Centres of cells `(K, 4)` (top, left, bottom, right) in native tokens: `(K, 2)` float32."""
    return (bounds[:, :2] + bounds[:, 2:] - 1).float() / 2


def cell_patch_positions(bounds: Tensor, merge: int) -> Tensor:
    """Patch coordinates of each cell's patches, `(K * merge**2, 2)` float32 in block order.

    A cell of one native token has the integers of the stock grid; a coarse one has the centres of
    the larger squares that its patches cover.
    """
    top_left, size = bounds[:, :2].float(), (bounds[:, 2:] - bounds[:, :2]).float()  # (K, 2)
    # Centres of the cell's m x m patches from its own edge, each as wide as `size` native patches. The
    # centre of a native patch has the patch's number as its coordinate, half a patch after its edge.
    step = torch.arange(merge, device=bounds.device, dtype=torch.float32) + 0.5
    offset = torch.stack(torch.meshgrid(step, step, indexing="ij"), -1).view(1, -1, 2)
    positions = top_left[:, None] * merge + offset * size[:, None] - 0.5  # (K, m*m, 2)
    return positions.reshape(-1, 2)


def interpolation_taps(
    positions: Tensor, patch_grid: tuple[int, int], side: int
) -> tuple[Tensor, Tensor]:
    """Bilinear taps into the square table of learned positions, at fractional patch coordinates.

    Equal to transformers' public helper at integers, where `align_corners` is true as in Qwen3-VL.

    Args:
        positions: `(P, 2)` float32 patch coordinates.
        patch_grid: rows and columns of the native patch grid.
        side: the table's side.

    Returns:
        `(P, 4)` int64 indices and `(P, 4)` float32 weights.
    """
    rows, columns = (_axis_taps(positions[:, axis], patch_grid[axis], side) for axis in (0, 1))
    # Two taps an axis make four places of the flattened table: (P, 2, 1) and (P, 1, 2) -> (P, 4).
    index = (rows[0][:, :, None] * side + columns[0][:, None, :]).flatten(1)
    weight = (rows[1][:, :, None] * columns[1][:, None, :]).flatten(1)
    return index, weight


def _axis_taps(position: Tensor, size: int, side: int) -> tuple[Tensor, Tensor]:
    """`(P,)` coordinates on an axis of `size` -> `(P, 2)` taps and weights on one of `side`."""
    # The first and the last patch of the picture meet the first and the last row of the table
    # (align_corners); coarse cells at the edge may reach half a patch beyond and are clamped.
    # By a tensor, as the stock model does: CUDA divides by a number by multiplying with its inverse, and
    # what differs in the last bit is no longer the stock encoder.
    last = torch.full_like(position, max(size - 1, 1))
    source = (position * (side - 1) / last).clamp(0, side - 1)
    floor = source.floor()
    taps = floor.long()[:, None] + torch.arange(2, device=position.device)
    distance = (source - floor)[:, None] - torch.arange(2, device=position.device)
    # On the last row the second tap has weight 0 and only has to be a valid index.
    return taps.clamp(max=side - 1), 1 - distance.abs()


def cell_patches(picture: Picture, allocation: Allocation) -> Tensor:
    """The allocation's patches `(K * merge**2, C)`: native ones gathered, coarse ones area-averaged."""
    if allocation.is_native:
        return picture.units(allocation.native_index())
    bounds, unit = allocation.bounds(), picture.geometry.merge**2
    patches = picture.patches.new_empty(len(allocation), unit, picture.patches.shape[1])
    sizes, kind = (bounds[:, 2:] - bounds[:, :2]).unique(dim=0, return_inverse=True)
    for i, (rows, columns) in enumerate(sizes.tolist()):  # few: the levels, and cuts at the edge
        members = (kind == i).nonzero()[:, 0]
        averaged = _average_cells(picture, bounds[members, :2], rows, columns)
        patches[members.to(patches.device)] = averaged
    return patches.flatten(0, 1)


def _average_cells(picture: Picture, corners: Tensor, rows: int, columns: int) -> Tensor:
    """Cells of `rows x columns` tokens at `corners` `(G, 2)`, each as one token: `(G, m*m, C)`."""
    g, (h, w) = picture.geometry, picture.grid
    m, p, side = g.merge, g.patch, g.unit_pixels
    units = picture.patches.view(h, w, m, m, 3 * g.temporal, p, p)  # each frame's colours apart
    corners = corners.to(units.device)
    y = corners[:, 0, None] + torch.arange(rows, device=units.device)  # (G, rows)
    x = corners[:, 1, None] + torch.arange(columns, device=units.device)
    cells = units[y[:, :, None], x[:, None]]  # (G, rows, columns, m, m, 3T, p, p)
    planes = units.shape[4]
    pixels = cells.permute(0, 5, 1, 3, 6, 2, 4, 7).reshape(-1, planes, rows * side, columns * side)
    small = F.avg_pool2d(pixels, (rows, columns))  # (G, 3T, side, side)
    blocks = small.view(-1, planes, m, p, m, p).permute(0, 2, 4, 1, 3, 5)  # (G, m, m, 3T, p, p)
    return blocks.reshape(len(corners), m * m, -1)
