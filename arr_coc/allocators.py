"""Allocators beyond TopK: how many tokens (AdaptiveK), in which shape (WindowAware), how fine (QuadTree),
and with some of them spread evenly (Spread).

Each turns a relevance map `(h, w)` in [0, 1] and a budget into an Allocation within that budget, on
the CPU, in a documented order, ties decided by place. `allocator_for` picks one by name.
"""

import heapq

import torch
from torch import Tensor

from arr_coc.attending import (
    Allocation,
    Allocator,
    TopK,
    check_relevance,
    native_allocation,
    uniform,
)
from arr_coc.config import ALLOCATORS, check_budget, one_of

# Share of the relevance above the background that AdaptiveK keeps, at compress 0 and at compress 1.
SHARE_PARTICULAR, SHARE_COMPRESSED = 0.95, 0.60
RANKS = {"mean": "mean", "max": "amax"}
# Middle of the nominal budgets that name each level in the brief (part 29): >= 300 / 200 / 100 / 64.
LEVEL_BUDGETS = (350.0, 250.0, 150.0, 82.0)

Cell = tuple[int, int, int]  # level, row, col


def allocator_for(name: str, *, compress: float = 0.5, minimum: int = 1) -> Allocator:
    """The allocator of that name, one of `ALLOCATORS`; `compress` and `minimum` are AdaptiveK's.

    Raises:
        ValueError: for another name.
    """
    one_of(name, "allocator", ALLOCATORS)
    if name == "adaptive":
        return AdaptiveK(compress, minimum)
    return {"topk": TopK, "window": WindowAware, "quadtree": QuadTree}[name]()


class Spread:
    """Another allocator's tokens, with a share of them spread evenly over the whole grid instead.

    Tokens from everywhere tell the model what surrounds the best places, and where in the picture they
    lie. `round(share * budget)` places are spread as by `attending.uniform`; those that the other
    allocator chose anyway free their tokens for the next best places. Coarse cells already cover
    everything: an allocation that has some is left as it is.
    """

    def __init__(self, allocator: Allocator, share: float) -> None:
        """Raises ValueError for a share outside [0, 1]."""
        if not 0 <= share <= 1:
            raise ValueError(f"share is {share}, allowed is 0 to 1")
        self.allocator, self.share = allocator, share

    def __call__(self, relevance: Tensor, budget: int) -> Allocation:
        """Allocate at most `budget` tokens, in raster order; arguments and errors as TopK."""
        check_relevance(relevance)
        check_budget(budget, relevance.numel())
        even = round(self.share * budget)
        # At least one place is the best one's: an allocator cannot be asked for none.
        best = self.allocator(relevance, max(1, budget - even))
        if even == 0 or not best.is_native:
            return self.allocator(relevance, budget)
        score = relevance.double().flatten().cpu()
        # Relevance is at most 1: what the other allocator chose comes first, then what is spread, and
        # then, where both chose the same place, the next best ones.
        order = score.clone()
        order[uniform(best.grid, even).native_index()] = 2
        order[best.native_index()] = 3
        index = _descending(order)[: min(budget, len(best) + even)].sort().values
        return native_allocation(index, best.grid, score[index])


def places_with(relevance: Tensor, share: float) -> int | None:
    """How many of the best places hold a share of the relevance above the background.

    Args:
        relevance: `(h, w)` in [0, 1].
        share: in (0, 1].

    Returns:
        `min{k : e_1 + ... + e_k >= share * sum(e)}` of the excess above the median, sorted downwards; None
        for a map with nothing above it.
    """
    score = relevance.double().flatten().cpu()
    reached = (score - score.median()).clamp(min=0).sort(descending=True).values.cumsum(0)
    if reached[-1] <= 0:
        return None
    return int((reached < share * reached[-1]).sum()) + 1


class AdaptiveK:
    """The most relevant native tokens, as many as the map asks for and never more than the budget.

    With the background `b = median(relevance)`, the excess `e_i = max(relevance_i - b, 0)` sorted
    downwards, and the share `s = 0.95 - 0.35 * compress`,

        K = min(budget, max(minimum, min{k : e_1 + ... + e_k >= s * sum(e)}))

    A map with nothing above its background says nothing of what to leave out: K is the budget.
    """

    def __init__(self, compress: float = 0.5, minimum: int = 1) -> None:
        """Raises ValueError for a compress tension outside [0, 1] or a minimum below 1."""
        if not 0 <= compress <= 1:
            raise ValueError(f"compress is {compress}, allowed is 0 to 1")
        if minimum < 1:
            raise ValueError(f"minimum is {minimum} tokens, allowed is 1 or more")
        self.share = SHARE_PARTICULAR + (SHARE_COMPRESSED - SHARE_PARTICULAR) * compress
        self.minimum = minimum

    def __call__(self, relevance: Tensor, budget: int) -> Allocation:
        """Allocate at most `budget` tokens, in raster order; arguments and errors as TopK."""
        check_relevance(relevance)
        check_budget(budget, relevance.numel())
        wanted = places_with(relevance, self.share)
        k = budget if wanted is None else min(budget, max(self.minimum, wanted))
        return TopK()(relevance, k)


class WindowAware:
    """Native tokens in small contiguous windows, so that what is kept keeps its neighbours.

    Windows of `side x side` tokens, cut at the grid's lower and right edge, are ranked by their mean
    (or max) relevance and kept whole down to the first that no longer fits; single best tokens fill
    up to exactly the budget. Raster order; ties go to the earlier window, then the earlier place.
    """

    def __init__(self, side: int = 2, rank: str = "mean") -> None:
        """Raises ValueError for a side below 1, or a rank that is neither "mean" nor "max"."""
        if side < 1:
            raise ValueError(f"side is {side} tokens, allowed is 1 or more")
        if rank not in RANKS:
            raise ValueError(f"rank is {rank!r}, expected one of {', '.join(RANKS)}")
        self.side, self.rank = side, rank

    def __call__(self, relevance: Tensor, budget: int) -> Allocation:
        """Allocate `budget` tokens; arguments and errors as TopK."""
        check_relevance(relevance)
        check_budget(budget, relevance.numel())
        h, w = relevance.shape
        score = relevance.double().flatten().cpu()
        window = self.windows(h, w)
        size = torch.bincount(window)
        best = torch.zeros(len(size), dtype=score.dtype).scatter_reduce(
            0, window, score, RANKS[self.rank], include_self=False
        )
        ranked = _descending(best)
        # Sizes are positive, so what fits is always the start of the ranking.
        whole = ranked[size[ranked].cumsum(0) <= budget]
        kept = torch.isin(window, whole)
        singles = _descending(score)
        kept[singles[~kept[singles]][: budget - int(kept.sum())]] = True
        index = kept.nonzero()[:, 0]
        return native_allocation(index, (h, w), score[index])

    def windows(self, h: int, w: int) -> Tensor:
        """`(h*w,)` int64, the number of each place's window; windows count in raster order."""
        rows, columns = torch.arange(h) // self.side, torch.arange(w) // self.side
        return (rows[:, None] * (columns[-1] + 1) + columns).flatten()


class QuadTree:
    """Every native place covered exactly once, finest where relevance is: mixed resolution.

    Starts from one cell over the whole grid and, while tokens remain, splits the cell with the
    largest reward that still fits into its (up to four) quarters:

        reward = sum of relevance ** sharpness over the cell / tokens the split adds

    Every split takes the places of its cell one level down, so the sum of rewards is what mean
    level, weighted by relevance, falls by; on a grid of 2^n x 2^n greedy is optimal wherever it
    ends. Ties: the coarser cell first, then the earlier one (raster order).

    Any budget from 1 on works, and is spent but for 2 tokens at most, too few for any split left. A
    cell that the grid's edge cuts to a single quarter counts as that quarter. Cells come in raster
    order of their top-left place; nominal budgets follow from the level.
    """

    def __init__(self, sharpness: float = 2.0, coarsest: int | None = None) -> None:
        """Set the contrast of the reward and the coarsest level.

        Args:
            sharpness: exponent of relevance, above 0; higher leaves the background coarser.
            coarsest: start from a grid of cells of this level, or of the next coarser one whose
                cells the budget can pay; None starts from one cell over everything.

        Raises:
            ValueError: for values out of range.
        """
        if not sharpness > 0:
            raise ValueError(f"sharpness is {sharpness}, allowed is above 0")
        if coarsest is not None and coarsest < 0:
            raise ValueError(f"coarsest is level {coarsest}, allowed is 0 or more")
        self.sharpness, self.coarsest = sharpness, coarsest

    def __call__(self, relevance: Tensor, budget: int) -> Allocation:
        """Allocate at most `budget` tokens; arguments and errors as TopK."""
        check_relevance(relevance)
        check_budget(budget, relevance.numel())
        masses = mass_pyramid(relevance.double().cpu() ** self.sharpness)
        cells = _split_greedily(masses, self._start(masses, budget), budget)
        cells.sort(key=lambda cell: (cell[1] << cell[0], cell[2] << cell[0]))
        budgets = [LEVEL_BUDGETS[min(level, len(LEVEL_BUDGETS) - 1)] for level, _, _ in cells]
        return Allocation(tuple(relevance.shape), torch.tensor(cells), torch.tensor(budgets))

    def _start(self, masses: list[Tensor], budget: int) -> list[Cell]:
        level = top = len(masses) - 1
        if self.coarsest is not None:
            levels = range(min(self.coarsest, top), top + 1)
            level = next(level for level in levels if masses[level].numel() <= budget)
        rows, columns = masses[level].shape
        return [(level, row, column) for row in range(rows) for column in range(columns)]


def mass_pyramid(mass: Tensor) -> list[Tensor]:
    """Sums over the cells of every level: `(h, w)`, then halved (rounded up) down to `(1, 1)`.

    Four terms are added in one fixed order, so that equal cells have equal sums to the last bit.
    """
    levels = [mass]
    while levels[-1].numel() > 1:
        h, w = levels[-1].shape
        padded = torch.nn.functional.pad(levels[-1], (0, w % 2, 0, h % 2))
        upper, lower = padded[0::2], padded[1::2]
        levels.append(upper[:, 0::2] + upper[:, 1::2] + lower[:, 0::2] + lower[:, 1::2])
    return levels


def _split_greedily(masses: list[Tensor], start: list[Cell], budget: int) -> list[Cell]:
    """Split the most rewarding cell that fits until none does; see QuadTree."""
    mass = [level.tolist() for level in masses]

    def quarters(cell: Cell) -> list[Cell]:
        level, row, column = cell[0] - 1, 2 * cell[1], 2 * cell[2]
        rows, columns = masses[level].shape
        return [
            (level, y, x)
            for y in range(row, min(row + 2, rows))
            for x in range(column, min(column + 2, columns))
        ]

    waiting: list[tuple[float, int, int, int]] = []
    done: list[Cell] = []

    def add(cell: Cell) -> None:
        while cell[0] and len(parts := quarters(cell)) == 1:
            cell = parts[0]
        level, row, column = cell
        if level == 0:
            done.append(cell)
        else:
            reward = mass[level][row][column] / (len(parts) - 1)
            heapq.heappush(waiting, (-reward, -level, row, column))

    for cell in start:
        add(cell)
    while waiting:
        _, level, row, column = heapq.heappop(waiting)
        cell = (-level, row, column)
        parts = quarters(cell)
        if len(done) + len(waiting) + len(parts) > budget:
            done.append(cell)  # the remaining tokens only get fewer: it will never fit
            continue
        for part in parts:
            add(part)
    return done


def _descending(scores: Tensor) -> Tensor:
    """Indices from the highest score down; ties keep their order."""
    return torch.sort(scores, descending=True, stable=True).indices
