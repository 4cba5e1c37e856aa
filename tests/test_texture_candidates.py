"""Candidates for the channel table: what each fires on, and that it holds for any picture."""

import pytest
import torch
from test_texture import EXTREMES

from arr_coc.peers.texture_candidates import (
    CANDIDATES,
    blue_yellow,
    coarse_energy,
    contrast,
    fine_energy,
    inverted_edge,
    red_green,
)
from arr_coc.texture import texture

GRID = (4, 5)  # cells of 32 x 32 pixels
EVERY = pytest.mark.parametrize("measure", CANDIDATES.values(), ids=CANDIDATES)


def ground(value: float = 0.5) -> torch.Tensor:
    return torch.full((1, 3, 128, 160), value)


def cell(row: int, column: int) -> tuple[slice, slice]:
    return slice(32 * row, 32 * row + 32), slice(32 * column, 32 * column + 32)


def stripes(image, row, column, period, step):
    """Raise every other half period of a cell's columns by `step`."""
    rows, columns = cell(row, column)
    bright = torch.arange(32) % period < period // 2
    image[:, :, rows, columns] += step * bright
    return image


@EVERY
@pytest.mark.parametrize("name", EXTREMES)
@pytest.mark.parametrize("grid", [(2, 2), (1, 7), (5, 3)])
def test_shape_and_range_for_any_picture(measure, name, grid):
    values = measure(EXTREMES[name], grid)
    assert values.shape == (1, *grid) and values.dtype == torch.float32
    assert values.isfinite().all() and values.min() >= 0 and values.max() <= 1
    if name in {"black", "white", "grey"}:  # rounding is not taken for something
        assert values.eq(0).all()
    elif name == "noise":
        assert values.max() == 1


@EVERY
@pytest.mark.parametrize("color", [(0.3, 0.7, 0.1), (1.0, 0.0, 0.9), (0.02, 0.03, 0.97)])
def test_an_even_picture_of_any_colour_has_nothing(measure, color):
    image = torch.tensor(color).view(1, 3, 1, 1).expand(1, 3, 100, 70)
    assert measure(image, (3, 4)).eq(0).all()


@EVERY
def test_an_image_does_not_depend_on_its_batch_mates(measure):
    batch = torch.rand(3, 3, 96, 128, generator=torch.Generator().manual_seed(0))
    batch[1:] *= 0.2
    assert torch.allclose(measure(batch[:1], (3, 4)), measure(batch, (3, 4))[:1], atol=1e-6)


@EVERY
def test_bad_input_is_refused(measure):
    with pytest.raises(ValueError, match=r"\(3, 8, 8\), expected \(B, 3, H, W\)"):
        measure(torch.zeros(3, 8, 8), (2, 2))
    with pytest.raises(ValueError, match="each at least 1"):
        measure(torch.zeros(1, 3, 8, 8), (0, 2))


def test_inverted_edge_finds_faint_writing_on_white_that_the_edge_passes_over():
    image = ground(1.0)
    stripes(image, 1, 1, 8, -0.1)  # faint on white
    image[:, :, cell(2, 3)[0], cell(2, 3)[1]] = 0.3
    stripes(image, 2, 3, 8, -0.15)  # the stronger step, on dark
    edge = texture(image, GRID)[0, 7]
    assert edge[1, 1] < edge[2, 3]
    assert inverted_edge(image, GRID)[0].argmax() == 1 * 5 + 1


def test_contrast_is_the_standard_deviation_inside_the_cell():
    image = torch.rand(1, 3, 128, 160, generator=torch.Generator().manual_seed(0))
    image[:, :, :64] *= 0.5
    gray = (image * torch.tensor([0.299, 0.587, 0.114]).view(1, 3, 1, 1)).sum(1)[0]
    slow = torch.stack(
        [torch.stack([gray[cell(i, j)].std(correction=0) for j in range(5)]) for i in range(4)]
    )
    assert torch.allclose(contrast(image, GRID)[0], slow / slow.max(), atol=1e-5)


def test_contrast_of_cells_that_are_even_in_themselves_is_nothing():
    image = ground(0.2)
    image[:, :, :64] = 0.9  # a border between cells, none inside one
    assert contrast(image, GRID).max() < 1e-6


def test_each_band_fires_on_its_own_size():
    image = stripes(stripes(ground(), 1, 1, 4, 0.3), 2, 3, 16, 0.3)  # 2 and 8 pixels wide
    fine, letters = fine_energy(image, GRID)[0], coarse_energy(image, GRID)[0]
    assert fine[1, 1] == 1 and fine[2, 3] < 0.01
    assert letters[2, 3] == 1 and letters[1, 1] < 0.01


@pytest.mark.parametrize(
    ("measure", "own", "other"),
    [
        (red_green, (0.9, 0.2, 0.2), (0.2, 0.2, 0.9)),
        (blue_yellow, (0.2, 0.2, 0.9), (0.9, 0.2, 0.5)),
    ],
)
def test_an_opponent_fires_on_its_colours_and_not_on_light(measure, own, other):
    image = ground()
    for (row, column), color in {(1, 1): own, (2, 3): other, (3, 0): (1.0, 1.0, 1.0)}.items():
        rows, columns = cell(row, column)
        image[:, :, rows, columns] = torch.tensor(color).view(3, 1, 1)
    values = measure(image, GRID)[0]
    assert values[1, 1] == 1 and values[2, 3] < 1
    assert abs(values[3, 0] - values[0, 0]) < 0.01  # white is as neutral as the grey ground
