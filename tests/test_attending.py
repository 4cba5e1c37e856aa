"""Attending: budgets, order, ties, levels, and what is refused."""

import pytest
import torch

from arr_coc.attending import Allocation, TopK, nominal_budget, uniform
from arr_coc.config import tokens_for_share

GRIDS = [(1, 1), (1, 9), (9, 1), (7, 5), (16, 16), (3, 11)]


@pytest.mark.parametrize("grid", GRIDS)
def test_topk_keeps_exactly_the_most_relevant_in_raster_order(grid):
    relevance = torch.rand(grid, generator=torch.Generator().manual_seed(0))
    n = relevance.numel()
    for budget in {1, max(1, n // 5), n}:
        allocation = TopK()(relevance, budget)
        index = allocation.native_index()
        assert len(allocation) == budget and allocation.grid == grid
        assert (index.diff() > 0).all()
        dropped = torch.ones(n, dtype=torch.bool)
        dropped[index] = False
        if dropped.any():
            assert relevance.flatten()[index].min() >= relevance.flatten()[dropped].max()


def test_ties_go_to_the_earlier_place():
    relevance = torch.full((4, 4), 0.5)
    relevance[3, 3] = 0.9
    assert TopK()(relevance, 3).native_index().tolist() == [0, 1, 15]


def test_nominal_budgets_run_from_64_to_400():
    assert nominal_budget(torch.tensor([0.0, 0.5, 1.0])).tolist() == [64, 232, 400]
    allocation = TopK()(torch.tensor([[0.0, 1.0]]), 2)
    assert allocation.budgets.tolist() == [64, 400]


@pytest.mark.parametrize("grid", GRIDS)
def test_uniform_spends_any_budget_exactly_and_spreads(grid):
    n = grid[0] * grid[1]
    for budget in range(1, n + 1):
        index = uniform(grid, budget).native_index()
        assert len(index) == budget == len(index.unique())
    assert torch.equal(uniform(grid, n).native_index(), torch.arange(n))


@pytest.mark.parametrize("grid, budget", [((64, 8), 4), ((48, 12), 2), ((8, 64), 4)])
def test_uniform_covers_long_grids_from_end_to_end(grid, budget):
    rows, columns = uniform(grid, budget).cells[:, 1:].T.double()
    for at, size in ((rows, grid[0]), (columns, grid[1])):
        if size == max(grid):
            assert at.min() < size / budget and at.max() >= size - size / budget - 1


def test_uniform_reaches_every_quarter_of_the_grid():
    cells = uniform((16, 16), 51).cells
    quarters = (cells[:, 1] // 8) * 2 + cells[:, 2] // 8
    counts = torch.bincount(quarters, minlength=4)
    assert counts.min() >= 8


@pytest.mark.parametrize(
    ("budget", "message"),
    [
        (0, "budget 0 is below the minimum of 1"),
        (-3, "budget -3 is below"),
        (26, "budget 26 exceeds the 25 visual tokens there are"),
        (2.5, "2.5, expected a whole number"),
        (True, "True, expected a whole number"),
    ],
)
def test_budgets_that_do_not_fit_are_refused(budget, message):
    with pytest.raises(ValueError, match=message):
        TopK()(torch.rand(5, 5), budget)


@pytest.mark.parametrize("bad", [1.5, -0.2, float("nan")])
def test_relevance_out_of_range_is_refused(bad):
    relevance = torch.rand(3, 3)
    relevance[1, 1] = bad
    with pytest.raises(ValueError, match=r"not finite or not in \[0, 1\]"):
        TopK()(relevance, 2)


@pytest.mark.parametrize("share", [0, -1, 1.01, float("nan")])
def test_shares_out_of_range_are_refused(share):
    with pytest.raises(ValueError, match="allowed is above 0 and at most 1"):
        tokens_for_share(share, 100)


def test_shares_round_down_but_never_to_nothing():
    assert tokens_for_share(0.2, 256) == 51
    assert tokens_for_share(0.001, 256) == 1
    assert tokens_for_share(1.0, 256) == 256
    assert tokens_for_share(0.29, 100) == 29  # 28.999999999999996 in floating point


def test_bounds_of_levels_are_cut_at_the_edge():
    cells = torch.tensor([[0, 2, 4], [1, 1, 2], [3, 0, 0]])
    allocation = Allocation((3, 5), cells, torch.full((3,), 64.0))
    assert allocation.bounds().tolist() == [[2, 4, 3, 5], [2, 4, 3, 5], [0, 0, 3, 5]]
    assert not allocation.is_native
    with pytest.raises(ValueError, match="coarse cells"):
        allocation.native_index()


@pytest.mark.parametrize("cell", [[0, 3, 0], [0, 0, -1], [2, 1, 0]])
def test_cells_outside_the_grid_are_refused(cell):
    with pytest.raises(ValueError, match="outside the 3x3 grid"):
        Allocation((3, 3), torch.tensor([cell]), torch.tensor([64.0]))


def test_budgets_and_cells_must_match():
    with pytest.raises(ValueError, match="1 budgets for 2 cells"):
        Allocation((3, 3), torch.zeros(2, 3).long(), torch.tensor([64.0]))
