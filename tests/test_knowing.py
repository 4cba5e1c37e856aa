"""The three ways of knowing: what each map says, and its range."""

import math

import pytest
import torch

from arr_coc.knowing import BINS, participatory, perspectival, propositional
from arr_coc.texture import INDEX, texture


def test_propositional_is_zero_for_constant_cells_and_largest_for_the_richest():
    image = torch.full((1, 3, 64, 64), 0.4)
    image[:, :, :32, 32:] = torch.rand(1, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    image[:, :, 32:, :16] = 1.0
    entropy = propositional(image, (2, 2))[0]
    assert entropy[0, 0] == 0 and entropy[1, 1] == 0
    assert entropy[0, 1] == 1
    assert 0 < entropy[1, 0] < 0.5


def test_propositional_equals_a_slow_reference():
    image = torch.rand(2, 3, 48, 60, generator=torch.Generator().manual_seed(0))
    ours = propositional(image, (3, 4))
    level = (image * 3).round().long()
    for b in range(2):
        slow = torch.zeros(3, 4)
        for i in range(3):
            for j in range(4):
                cell = level[b, :, i * 16 : (i + 1) * 16, j * 15 : (j + 1) * 15].flatten(1).t()
                _, counts = torch.unique(cell, dim=0, return_counts=True)
                share = counts / counts.sum()
                slow[i, j] = -(share * share.log()).sum() / math.log(BINS)
        assert torch.allclose(ours[b], slow / slow.max(), atol=1e-5)


def test_propositional_of_a_grey_image_is_zero_everywhere():
    assert propositional(torch.full((1, 3, 64, 64), 0.5), (4, 4)).eq(0).all()


def test_propositional_on_a_grid_finer_than_the_picture():
    assert propositional(torch.rand(1, 3, 1, 9), (3, 4)).shape == (1, 3, 4)


def test_perspectival_is_the_edge_channel():
    stack = texture(torch.rand(1, 3, 64, 64), (4, 4))
    assert torch.equal(perspectival(stack), stack[:, INDEX["edge"]])


def test_participatory_peaks_where_the_attention_did():
    attention = torch.full((1, 4, 4), 0.01)
    attention[0, 1, 2] = 0.3
    coupled = participatory(attention, (16, 16))[0]
    assert coupled.shape == (16, 16) and coupled.min() >= 0 and coupled.max() <= 1
    row, column = divmod(int(coupled.argmax()), 16)
    assert row in range(4, 8) and column in range(8, 12)
    assert coupled[12:, :4].max() == 0


def test_participatory_of_even_attention_points_nowhere():
    assert participatory(torch.full((1, 3, 3), 0.2), (6, 6)).eq(0).all()


def test_participatory_does_not_depend_on_the_scale_of_attention():
    attention = torch.rand(1, 4, 5, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(
        participatory(attention, (8, 10)), participatory(attention * 1e-4, (8, 10)), atol=1e-4
    )


def test_the_peak_quantile_says_how_much_of_the_glance_is_the_peak():
    attention = torch.arange(1.0, 101.0).view(1, 10, 10)  # 0 to 99 over its floor
    usual, largest = (participatory(attention, (10, 10), **p) for p in ({}, {"peak_quantile": 1}))
    assert (usual == 1).sum() == 2  # 98 and 99 of the quantile's 97.02
    assert torch.allclose(largest, (attention - 1) / 99)


@pytest.mark.parametrize("bad", [-0.1, float("nan"), float("inf")])
def test_participatory_refuses_what_is_not_attention(bad):
    with pytest.raises(ValueError, match="negative or non-finite"):
        participatory(torch.tensor([[[0.1, bad]]]), (2, 2))


def test_participatory_refuses_another_rank():
    with pytest.raises(ValueError, match=r"\(4, 4\), expected \(B, gh, gw\)"):
        participatory(torch.zeros(4, 4), (2, 2))
