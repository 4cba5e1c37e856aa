"""Allocators: cover, overlap, budget, order, ties, odd and 1xN grids, and slow references."""

from functools import cache

import pytest
import torch

from arr_coc.allocators import (
    LEVEL_BUDGETS,
    AdaptiveK,
    QuadTree,
    Spread,
    WindowAware,
    allocator_for,
    mass_pyramid,
    places_with,
)
from arr_coc.attending import TopK, uniform
from arr_coc.config import ALLOCATORS

GRIDS = [(1, 1), (1, 9), (9, 1), (1, 2), (7, 5), (16, 16), (3, 11), (13, 8)]
EVEN = torch.full((6, 7), 0.5)


def random_map(grid, seed, kind="smooth"):
    """A map of seeded noise: even-handed, peaked, or of few values with many ties."""
    noise = torch.rand(grid, generator=torch.Generator().manual_seed(seed))
    return {"smooth": noise, "peaked": noise**8, "tied": (noise * 3).floor() / 3}[kind]


def cases(grid, kinds=("smooth", "peaked", "tied")):
    """Maps and budgets of a grid: the ends, and a few between."""
    n = grid[0] * grid[1]
    for seed, kind in enumerate(kinds):
        for budget in sorted({1, min(2, n), min(5, n), max(1, n // 5), max(1, n // 2), n}):
            yield random_map(grid, seed, kind), budget


def coverage(allocation):
    """`(h, w)`: by how many cells each place is covered."""
    covered = torch.zeros(allocation.grid, dtype=torch.int64)
    for top, left, bottom, right in allocation.bounds().tolist():
        covered[top:bottom, left:right] += 1
    return covered


def corners(allocation):
    """Raster index of each cell's top-left place."""
    top, left, _, _ = allocation.bounds().unbind(1)
    return top * allocation.grid[1] + left


@pytest.mark.parametrize("name", ALLOCATORS)
@pytest.mark.parametrize("grid", GRIDS)
def test_budget_overlap_order_and_determinism(name, grid):
    for relevance, budget in cases(grid):
        allocation = allocator_for(name, minimum=3)(relevance, budget)
        assert 1 <= len(allocation) <= budget and allocation.grid == grid
        if name in ("topk", "window"):
            assert len(allocation) == budget
        assert allocation.cells.dtype == torch.int64
        assert coverage(allocation).max() == 1
        assert (corners(allocation).diff() > 0).all()
        assert allocation.budgets.min() >= 64 and allocation.budgets.max() <= 400
        again = allocator_for(name, minimum=3)(relevance.clone(), budget)
        assert torch.equal(allocation.cells, again.cells)


@pytest.mark.parametrize("name", ["topk", "window", "quadtree"])
@pytest.mark.parametrize("grid", GRIDS)
def test_the_whole_budget_is_every_native_token_in_raster_order(name, grid):
    n = grid[0] * grid[1]
    allocation = allocator_for(name)(random_map(grid, 1), n)
    assert torch.equal(allocation.native_index(), torch.arange(n))


@pytest.mark.parametrize("name", ALLOCATORS)
def test_bad_maps_and_budgets_are_refused(name):
    allocate = allocator_for(name)
    with pytest.raises(ValueError, match="budget 43 exceeds the 42 visual tokens there are"):
        allocate(EVEN, 43)
    with pytest.raises(ValueError, match="budget 0 is below the minimum"):
        allocate(EVEN, 0)
    with pytest.raises(ValueError, match="not finite"):
        allocate(EVEN * float("nan"), 5)


def test_an_unknown_allocator_names_the_known_ones():
    with pytest.raises(
        ValueError, match="'best', expected one of topk, adaptive, window, quadtree"
    ):
        allocator_for("best")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: AdaptiveK(1.2), "compress is 1.2, allowed is 0 to 1"),
        (lambda: AdaptiveK(float("nan")), "compress is nan"),
        (lambda: AdaptiveK(0.5, 0), "minimum is 0 tokens"),
        (lambda: WindowAware(0), "side is 0 tokens"),
        (lambda: WindowAware(2, "median"), "'median', expected one of mean, max"),
        (lambda: QuadTree(0), "sharpness is 0, allowed is above 0"),
        (lambda: QuadTree(coarsest=-1), "coarsest is level -1"),
    ],
)
def test_bad_settings_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


# --- AdaptiveK ---


def slow_k(relevance, compress):
    """The docstring's formula, one value at a time."""
    values = sorted(relevance.flatten().tolist())
    background = values[(len(values) - 1) // 2]
    excess = sorted((max(value - background, 0) for value in values), reverse=True)
    for k in range(1, len(excess) + 1):
        if sum(excess[:k]) >= (0.95 - 0.35 * compress) * sum(excess):
            return k


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("compress", [0.0, 0.3, 1.0])
def test_adaptive_k_is_the_stated_formula(seed, compress):
    relevance = random_map((9, 11), seed, "peaked")
    k = slow_k(relevance, compress)
    allocation = AdaptiveK(compress)(relevance, 99)
    assert len(allocation) == k
    assert torch.equal(allocation.cells, TopK()(relevance, k).cells)


def test_adaptive_k_stays_between_minimum_and_budget():
    relevance = torch.zeros(8, 8)
    relevance[2, 3] = 1.0
    assert len(AdaptiveK()(relevance, 20)) == 1
    assert len(AdaptiveK(minimum=4)(relevance, 20)) == 4
    assert len(AdaptiveK(minimum=4)(relevance, 2)) == 2
    assert len(AdaptiveK(0.0)(random_map((8, 8), 0), 5)) == 5


def test_adaptive_k_spends_the_budget_where_nothing_stands_out():
    assert places_with(EVEN, AdaptiveK().share) is None
    assert len(AdaptiveK()(EVEN, 17)) == 17


@pytest.mark.parametrize("seed", range(5))
def test_adaptive_k_falls_with_compression_and_with_concentration(seed):
    relevance = random_map((16, 16), seed)
    counts = [places_with(relevance, AdaptiveK(c / 10).share) for c in range(11)]
    assert counts == sorted(counts, reverse=True) and counts[0] > counts[-1]
    share = AdaptiveK().share
    assert places_with(relevance**4, share) < places_with(relevance, share)
    # Another scale or offset of the same map asks for as much.
    assert places_with(relevance.double() * 0.5 + 0.3, share) == places_with(relevance, share)


# --- WindowAware ---


def slow_windows(relevance, budget, side, rank):
    """Kept raster indices, window by window."""
    h, w = relevance.shape
    windows = [
        [
            (y, x)
            for y in range(top, min(top + side, h))
            for x in range(left, min(left + side, w))
        ]
        for top in range(0, h, side)
        for left in range(0, w, side)
    ]  # fmt: skip
    values = relevance.double().tolist()

    def worth(window):
        inside = [values[y][x] for y, x in window]
        return max(inside) if rank == "max" else sum(inside) / len(inside)

    kept: list[tuple[int, int]] = []
    for window in sorted(windows, key=worth, reverse=True):
        if len(kept) + len(window) > budget:
            break
        kept += window
    rest = [(y, x) for y in range(h) for x in range(w) if (y, x) not in kept]
    kept += sorted(rest, key=lambda place: -values[place[0]][place[1]])[: budget - len(kept)]
    return sorted(y * w + x for y, x in kept)


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize(("side", "rank"), [(2, "mean"), (2, "max"), (3, "mean"), (1, "mean")])
def test_windows_equal_the_slow_reference(grid, side, rank):
    for relevance, budget in cases(grid):
        relevance = (relevance * 8).floor() / 8  # means then tie exactly, whatever adds them
        index = WindowAware(side, rank)(relevance, budget).native_index()
        assert index.tolist() == slow_windows(relevance, budget, side, rank)


def test_a_window_of_one_is_topk():
    for relevance, budget in cases((7, 5)):
        assert torch.equal(WindowAware(1)(relevance, budget).cells, TopK()(relevance, budget).cells)


def test_ties_go_to_the_earlier_window_then_the_earlier_place():
    assert WindowAware()(EVEN, 6).native_index().tolist() == [0, 1, 2, 3, 7, 8]


@pytest.mark.parametrize("seed", range(4))
def test_whole_windows_are_nested_as_the_budget_grows(seed):
    relevance, smaller = random_map((8, 6), seed), set()
    for budget in range(4, 49, 4):  # every window has 4 tokens, so no single ones are left
        larger = set(WindowAware()(relevance, budget).native_index().tolist())
        assert smaller < larger
        smaller = larger


# --- QuadTree ---


@pytest.mark.parametrize("coarsest", [None, 0, 1, 2])
@pytest.mark.parametrize("grid", GRIDS)
def test_quadtree_covers_once_and_spends_all_but_two(grid, coarsest):
    for kind in ("smooth", "peaked", "tied"):
        relevance = random_map(grid, 3, kind)
        places = grid[0] * grid[1]
        for budget in {*range(1, places + 1, 3), places - 1, places} - {0}:
            allocation = QuadTree(coarsest=coarsest)(relevance, budget)
            assert coverage(allocation).eq(1).all()
            assert budget - 2 <= len(allocation) <= budget


def level_field(allocation):
    """`(h, w)`: the level of the cell over each place."""
    field = torch.full(allocation.grid, -1)
    levels = allocation.cells[:, 0].tolist()
    for level, (top, left, bottom, right) in zip(levels, allocation.bounds().tolist()):
        field[top:bottom, left:right] = level
    return field


@pytest.mark.parametrize("seed", range(3))
def test_more_tokens_make_no_place_of_a_quadtree_coarser(seed):
    relevance, coarser = random_map((8, 8), seed), torch.full((8, 8), 3)
    for budget in range(1, 65):
        finer = level_field(QuadTree()(relevance, budget))
        assert (finer <= coarser).all()
        coarser = finer


@pytest.mark.parametrize("seed", range(6))
def test_quadtree_is_the_best_cover_of_its_size(seed):
    """Against every quad-tree of an 8 x 8 grid: the least level, weighted by relevance squared."""
    relevance = random_map((8, 8), seed, "peaked")
    mass = [level.tolist() for level in mass_pyramid(relevance.double() ** 2)]

    @cache
    def best(level, row, column):
        """Least weighted level of every number of tokens that can cover the cell."""
        costs = {1: level * mass[level][row][column]}
        if level:
            split = {0: 0.0}
            for y in (2 * row, 2 * row + 1):
                for x in (2 * column, 2 * column + 1):
                    sums: dict[int, float] = {}
                    for a, cost in split.items():
                        for b, more in best(level - 1, y, x).items():
                            sums[a + b] = min(sums.get(a + b, torch.inf), cost + more)
                    split = sums
            costs |= split
        return costs

    for tokens, cost in best(3, 0, 0).items():
        allocation = QuadTree()(relevance, tokens)
        ours = sum(level * mass[level][y][x] for level, y, x in allocation.cells.tolist())
        assert len(allocation) == tokens and ours == pytest.approx(cost)


def test_quadtree_is_finest_where_relevance_is_and_sharpness_coarsens_the_rest():
    relevance = torch.full((16, 16), 0.3)
    relevance[4:8, 4:8] = 0.9
    native = QuadTree()(relevance, 64)
    fine = native.cells[native.cells[:, 0] == 0]
    assert len(fine) == 16 and fine[:, 1:].min() == 4 and fine[:, 1:].max() == 7
    blunt, sharp = (level_field(QuadTree(sharpness)(relevance, 40)) for sharpness in (0.5, 4.0))
    assert sharp[4:8, 4:8].sum() < blunt[4:8, 4:8].sum()
    assert sharp.sum() - sharp[4:8, 4:8].sum() > blunt.sum() - blunt[4:8, 4:8].sum()


def test_quadtree_ties_split_the_coarser_then_the_earlier_cell():
    cells = QuadTree()(torch.full((4, 4), 0.5), 7).cells.tolist()
    quarter = [[0, 0, 0], [0, 0, 1], [1, 0, 1], [0, 1, 0], [0, 1, 1], [1, 1, 0], [1, 1, 1]]
    assert cells == quarter
    black = QuadTree()(torch.zeros(4, 4), 4).cells
    assert black[:, 0].eq(1).all()


def test_quadtree_counts_what_a_split_costs():
    relevance = torch.full((2, 6), 0.125)  # the left 2 x 4: in all 1, for one more token
    relevance[:, 4:] = 0.5  # the right 2 x 2: in all 2, for three more
    cells = QuadTree(sharpness=1.0)(relevance, 5).cells.tolist()
    assert cells == [[1, 0, 0], [1, 0, 1], [1, 0, 2]]


def test_quadtree_cells_cut_to_one_quarter_count_as_that_quarter():
    for budget in range(1, 16):
        allocation = QuadTree()(torch.full((3, 5), 0.5), budget)
        top, left, bottom, right = allocation.bounds().unbind(1)
        longer = torch.maximum(bottom - top, right - left)
        assert (2 * longer > 2 ** allocation.cells[:, 0]).all()


def test_quadtree_budgets_follow_from_the_level():
    relevance = torch.full((16, 16), 0.1)
    relevance[0, 0] = 1.0
    allocation = QuadTree(4.0)(relevance, 16)
    levels = allocation.cells[:, 0]
    assert set(levels.tolist()) == {0, 1, 2, 3}
    assert allocation.budgets.tolist() == [LEVEL_BUDGETS[level] for level in levels]
    assert QuadTree()(relevance, 1).budgets.tolist() == [LEVEL_BUDGETS[3]]


def test_quadtree_starts_no_coarser_than_asked_where_the_budget_allows():
    relevance = torch.zeros(16, 16)
    relevance[0, 0] = 1.0
    assert QuadTree(coarsest=2)(relevance, 16).cells[:, 0].max() == 2
    assert QuadTree()(relevance, 16).cells[:, 0].max() == 3
    # 16 cells of level 2 do not fit into 15 tokens: one level coarser.
    assert QuadTree(coarsest=2)(relevance, 15).cells[:, 0].max() == 3


def test_the_pyramid_sums_every_cell():
    mass = random_map((7, 5), 0).double()
    levels = mass_pyramid(mass)
    assert [tuple(level.shape) for level in levels] == [(7, 5), (4, 3), (2, 2), (1, 1)]
    for level, sums in enumerate(levels):
        side = 2**level
        for y in range(sums.shape[0]):
            for x in range(sums.shape[1]):
                cell = mass[y * side : (y + 1) * side, x * side : (x + 1) * side]
                assert sums[y, x].item() == pytest.approx(cell.sum().item())


# --- Spread ---


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_spread_is_the_even_places_and_the_best_of_the_rest(grid, share):
    for relevance, budget in cases(grid):
        index = Spread(TopK(), share)(relevance, budget).native_index()
        even = round(share * budget)
        places = set(uniform(grid, even).native_index().tolist()) if even else set()
        ranked = sorted(range(relevance.numel()), key=lambda i: -relevance.flatten()[i].item())
        best = set(ranked[: max(1, budget - even)])
        rest = [i for i in ranked if i not in best | places]
        wanted = list(best) + sorted(places - best) + rest
        if even < budget:  # at a share of 1 the single best place takes the turn of an even one
            assert set(index.tolist()) == set(wanted[:budget])
        assert len(index) == budget and best <= set(index.tolist())
        assert index.tolist() == sorted(index.tolist())


def test_spread_leaves_coarse_cells_and_a_share_of_nothing_alone():
    relevance = random_map((8, 8), 1)
    assert torch.equal(
        Spread(QuadTree(), 0.5)(relevance, 20).cells, QuadTree()(relevance, 20).cells
    )
    assert torch.equal(Spread(TopK(), 0.0)(relevance, 20).cells, TopK()(relevance, 20).cells)


def test_spread_adds_its_places_to_what_an_adaptive_allocator_takes():
    relevance = torch.zeros(8, 8)
    relevance[2, 3] = 1.0
    allocation = Spread(AdaptiveK(), 0.25)(relevance, 20)
    assert len(allocation) == 1 + 5
    assert set(uniform((8, 8), 5).native_index().tolist()) <= set(
        allocation.native_index().tolist()
    )


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
def test_a_spread_share_out_of_range_is_refused(share):
    with pytest.raises(ValueError, match="allowed is 0 to 1"):
        Spread(TopK(), share)
