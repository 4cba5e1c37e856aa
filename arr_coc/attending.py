"""Attending: a relevance map becomes an Allocation, the plan of where tokens go.

An Allocation is decided once and applied everywhere; tensors are cut by it, never edited here.
Level 0 is one native token; level l covers `2^l x 2^l` tokens with one, cut at the grid's edge.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import torch
from torch import Tensor

from arr_coc.config import check_budget

# The brief's nominal budget of a cell, a unit of relevance and not a count of tokens.
BUDGET_LOW, BUDGET_HIGH = 64.0, 400.0
# Each moment of a clip, or of several pictures, gets one in so many tokens of an even share at least.
LEAST_PART = 4


@dataclass(frozen=True)
class Allocation:
    """Where the tokens go.

    Attributes:
        grid: `(h, w)` of the native token grid.
        cells: `(K, 3)` int64, rows of `(level, row, col)`, row and col counted in the level's cells.
        budgets: `(K,)` float32, each cell's nominal budget in [64, 400].
    """

    grid: tuple[int, int]
    cells: Tensor
    budgets: Tensor

    def __post_init__(self) -> None:
        if self.cells.ndim != 2 or self.cells.shape[1] != 3:
            raise ValueError(f"cells has shape {tuple(self.cells.shape)}, expected (K, 3)")
        if self.budgets.shape != self.cells.shape[:1]:
            raise ValueError(
                f"{len(self.budgets)} budgets for {len(self.cells)} cells, expected one for each"
            )
        top, left, bottom, right = self.bounds().unbind(1)
        if len(self.cells) and ((top >= bottom) | (left >= right) | (top < 0) | (left < 0)).any():
            raise ValueError(f"a cell lies outside the {self.grid[0]}x{self.grid[1]} grid")

    def __len__(self) -> int:
        return len(self.cells)

    def bounds(self) -> Tensor:
        """`(K, 4)` int64: top, left, bottom, right of each cell in native tokens, cut at the edge."""
        level, row, col = self.cells.unbind(1)
        side = 2**level
        top, left = row * side, col * side
        bottom = (top + side).clamp(max=self.grid[0])
        right = (left + side).clamp(max=self.grid[1])
        return torch.stack([top, left, bottom, right], 1)

    @property
    def is_native(self) -> bool:
        """True where every cell is one native token."""
        return bool((self.cells[:, 0] == 0).all())

    def native(self) -> "Allocation":
        """Its native cells alone."""
        own = self.cells[:, 0] == 0
        return Allocation(self.grid, self.cells[own], self.budgets[own])

    def native_index(self) -> Tensor:
        """`(K,)` raster index of each cell; only for native allocations (ValueError otherwise)."""
        if not self.is_native:
            raise ValueError("the allocation has coarse cells, expected level 0 only")
        return self.cells[:, 1] * self.grid[1] + self.cells[:, 2]


class Allocator(Protocol):
    """Anything that turns a relevance map and a budget into an Allocation."""

    def __call__(self, relevance: Tensor, budget: int) -> Allocation: ...


class TopK:
    """The `budget` most relevant native tokens, in raster order; ties go to the earlier place."""

    def __call__(self, relevance: Tensor, budget: int) -> Allocation:
        """Allocate `budget` tokens on a relevance map `(h, w)` in [0, 1].

        Raises:
            ValueError: for another rank, values out of range, or a budget outside [1, h*w].
        """
        check_relevance(relevance)
        check_budget(budget, relevance.numel())
        score = relevance.float().flatten()
        index = torch.sort(score, descending=True, stable=True).indices[:budget].sort().values
        return native_allocation(index.cpu(), tuple(relevance.shape), score.cpu()[index.cpu()])


def uniform(grid: tuple[int, int], budget: int) -> Allocation:
    """`budget` native tokens spread evenly over the grid: the fallback, and a control.

    Places are taken row by row on a near-square sub-grid of the grid's aspect, filled up in raster
    order by the largest gaps of a golden-ratio sequence, so that any budget gives exact count.

    Raises:
        ValueError: for a budget outside [1, h*w].
    """
    check_budget(budget, grid[0] * grid[1])
    index = _evenly(tuple(grid), budget)
    return native_allocation(index, grid, torch.full((budget,), 0.5))


@lru_cache(maxsize=64)
@torch.inference_mode(False)  # what is kept serves anywhere
def _evenly(grid: tuple[int, int], budget: int) -> Tensor:
    """`(budget,)` raster index of the places of `uniform`."""
    h, w = grid
    rows = min(h, budget, max(1, round((budget * h / w) ** 0.5)))
    columns = min(w, max(1, budget // rows))
    ys = ((torch.arange(rows) + 0.5) * h / rows).long()
    xs = ((torch.arange(columns) + 0.5) * w / columns).long()
    taken = torch.zeros(h * w, dtype=torch.bool)  # (N,), in raster order
    taken[(ys[:, None] * w + xs).flatten()[:budget]] = True
    # The remaining tokens go to free places: multiples of the golden ratio, each modulo 1, never crowd.
    golden = (5**0.5 - 1) / 2
    order = torch.sort((torch.arange(h * w, dtype=torch.float64) * golden) % 1, stable=True).indices
    free = order[~taken[order]][: budget - int(taken.sum())]
    taken[free] = True
    return taken.nonzero()[:, 0]


def native_allocation(index: Tensor, grid: tuple[int, int], relevance: Tensor) -> Allocation:
    """Native cells at raster `index` `(K,)`, budgets from their `relevance` `(K,)` in [0, 1]."""
    cells = torch.stack([torch.zeros_like(index), index // grid[1], index % grid[1]], 1)  # (K, 3)
    return Allocation(grid, cells, nominal_budget(relevance))


def nothing(grid: tuple[int, int]) -> Allocation:
    """No token at all: of a moment, or of one picture among several."""
    return Allocation(grid, torch.zeros(0, 3, dtype=torch.long), torch.zeros(0))


def share_out(scores: Sequence[Tensor], budget: int, least: int = 0) -> list[int]:
    """How many of the `budget` best places of several moments or pictures lie in each.

    Args:
        scores: `(h, w)` relevance of each, of any sizes.
        budget: 1 up to all their places.
        least: of each so many of its own best places come first; at most an even share of the budget.

    Ties go to the earlier place, and only then to the earlier picture: equal ones get equally many.
    """
    check_budget(budget, sum(own.numel() for own in scores))
    value = torch.cat([own.float().flatten() for own in scores])
    place = torch.cat([torch.arange(own.numel()) for own in scores])
    number = torch.cat([torch.full((own.numel(),), at) for at, own in enumerate(scores)])
    by_place = torch.sort(place, stable=True).indices
    best = by_place[torch.sort(value[by_place], descending=True, stable=True).indices]
    first = torch.zeros(len(best), dtype=torch.bool)
    for at in range(len(scores)):
        first[(number[best] == at).nonzero()[: min(least, budget // len(scores))]] = True
    best = torch.cat([best[first], best[~first]])
    return torch.bincount(number[best[:budget]], minlength=len(scores)).tolist()


def least_each(budget: int, count: int) -> int:
    """Tokens that each of so many moments or pictures gets at least.

    Shown nothing of a picture, a model miscounts them; shown nothing of a moment, it takes what is there
    all along for what came or went.
    """
    return budget // (count * LEAST_PART)


def nominal_budget(relevance: Tensor) -> Tensor:
    """Relevance in [0, 1], of any shape, in the brief's units, [64, 400]."""
    return BUDGET_LOW + (BUDGET_HIGH - BUDGET_LOW) * relevance.float()


def check_relevance(relevance: Tensor) -> None:
    """Raise ValueError unless `relevance` is `(h, w)`, finite, in [0, 1] and not empty."""
    if relevance.ndim != 2 or relevance.numel() == 0:
        raise ValueError(
            f"relevance has shape {tuple(relevance.shape)}, expected (h, w), not empty"
        )
    if not (relevance.isfinite().all() and relevance.min() >= 0 and relevance.max() <= 1):
        raise ValueError("relevance holds values that are not finite or not in [0, 1]")
