"""The quality adapter: nothing at the start, a correction once trained, told levels and neighbours."""

from types import SimpleNamespace

import pytest
import torch

from arr_coc.adapting import QualityAdapter
from arr_coc.components import Components
from arr_coc.qwen_encode import TokenSet
from arr_coc.realizing import Config

K, D = 7, 12


def tokens(dtype=torch.float32):
    random = torch.Generator().manual_seed(0)
    planes = [torch.randn(1, K, D, generator=random).to(dtype) for _ in range(3)]
    places = torch.randint(0, 9, (1, K, 2), generator=random).float()
    return planes, places, torch.zeros(1, K, dtype=torch.long)


def opened(attends=True):
    torch.manual_seed(0)
    adapter = QualityAdapter(D, 3, width=16, attends=attends)
    adapter.gates.data.fill_(0.5)
    return adapter


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_at_the_start_it_is_the_identity_bit_for_bit(dtype):
    planes, places, levels = tokens(dtype)
    adapted = QualityAdapter(D, 3)(planes, places, levels)
    assert all(torch.equal(a, b) and a.dtype == dtype for a, b in zip(adapted, planes))


def test_the_gates_learn_first_and_then_everything():
    planes, places, levels = tokens()
    adapter = QualityAdapter(D, 3, width=16)

    def backward():
        adapter.zero_grad()
        sum((p - 1).square().sum() for p in adapter(planes, places, levels)).backward()
        return {n for n, p in adapter.named_parameters() if p.grad.abs().sum() > 0}

    assert backward() == {"gates"}
    adapter.gates.data.sub_(0.1 * adapter.gates.grad)
    assert backward() == {name for name, _ in adapter.named_parameters()}


def test_levels_and_places_change_the_correction():
    planes, places, levels = tokens()
    adapter = opened()
    before = adapter(planes, places, levels)[0]
    assert not torch.allclose(before, adapter(planes, places, levels + 1)[0], atol=1e-4)
    assert not torch.allclose(before, adapter(planes, places + 3, levels)[0], atol=1e-4)


@pytest.mark.parametrize(("attends", "differs"), [(True, True), (False, False)])
def test_only_attention_lets_tokens_see_each_other(attends, differs):
    planes, places, levels = tokens()
    adapter = opened(attends)
    before = adapter(planes, places, levels)[0][0, 0]
    other = [plane.clone() for plane in planes]
    other[0][0, 3] = -3 * other[0][0, 3]
    after = adapter(other, places, levels)[0][0, 0]
    assert (not torch.allclose(before, after, atol=1e-4)) == differs


def test_padding_changes_nothing_for_the_tokens_that_are_there():
    planes, places, levels = tokens()
    adapter = opened()
    alone = adapter([p[:, :4] for p in planes], places[:, :4], levels[:, :4])
    padding = torch.arange(K)[None] >= 4
    together = adapter(planes, places, levels, padding)
    assert all(torch.allclose(a, b[:, :4], atol=1e-5) for a, b in zip(alone, together))


@pytest.mark.parametrize("attends", [True, False])
def test_coarse_tokens_stay_as_they_are_and_change_nothing(tiny, monkeypatch, attends):
    """Training shows the adapter native tokens alone: its other levels keep their random start."""
    planes, places, levels = tokens()
    levels[0, [1, 4, 6]] = torch.tensor([1, 2, 5])
    fine = levels[0] == 0
    adapter = opened(attends)
    monkeypatch.setattr(tiny, "policies", {"default": Components({"adapter": adapter})})
    given = TokenSet(planes[0][0], tuple(plane[0] for plane in planes[1:]), places[0])

    def realized(levels):
        cells = torch.cat([levels[0, :, None], places[0].long()], 1)
        return SimpleNamespace(allocation=SimpleNamespace(cells=cells), config=Config())

    with torch.no_grad():
        found = tiny.adapted(given, realized(levels))
        alone = adapter([plane[:, fine] for plane in planes], places[:, fine], levels[:, fine])
        assert tiny.adapted(given, realized(levels + 1)) is given
    for was, now, own in zip(planes, [found.features, *found.deepstack], alone):
        assert torch.equal(now[~fine], was[0, ~fine])
        assert torch.allclose(now[fine], own[0], atol=1e-6)
        assert not torch.allclose(now[fine], was[0, fine], atol=1e-3)
