"""Around: what the vision encoder sees besides the cells that are kept.

The encoder attends globally: a cell that it meets without its neighbours, or without the rest of the
picture, it reads and places less well. What is added here follows the kept cells in the allocation, so
that the encoder's first K outputs are theirs; the rest is dropped before the language model.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from arr_coc.attending import BUDGET_LOW, Allocation


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
    near, far = (F.conv2d(held, torch.ones(1, 1, n, n).double(), padding=n // 2) for n in (3, 5))
    score = (near * 100 + far - held * 10_000).flatten()
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
    row, column = (allocation.cells[fine, 1:] >> (level - own[fine, None])).unbind(1)
    held = torch.zeros_like(index).index_add(
        0, row * columns + column, areas(allocation.bounds()[fine])
    )
    return _followed_by(allocation, cells[held < areas(bounds)])


def _followed_by(allocation: Allocation, cells: Tensor) -> Allocation:
    """The allocation, then `cells` `(M, 3)` at the least budget."""
    budgets = torch.full((len(cells),), BUDGET_LOW)
    return Allocation(
        allocation.grid,
        torch.cat([allocation.cells, cells]),
        torch.cat([allocation.budgets, budgets]),
    )


def areas(bounds: Tensor) -> Tensor:
    """`(K, 4)` bounds of cells -> `(K,)` native tokens that each covers."""
    return (bounds[:, 2] - bounds[:, 0]) * (bounds[:, 3] - bounds[:, 1])
