"""The quality adapter: nothing at the start, then a correction, told levels, neighbours, the glance."""

from types import SimpleNamespace

import pytest
import torch

from arr_coc.adapting import QualityAdapter, glanced, strength
from arr_coc.attending import native_allocation
from arr_coc.components import Components
from arr_coc.config import Config
from arr_coc.qwen.encoding import TokenSet

K, D = 7, 12


def tokens(dtype=torch.float32):
    random = torch.Generator().manual_seed(0)
    planes = [torch.randn(1, K, D, generator=random).to(dtype) for _ in range(3)]
    places = torch.randint(0, 9, (1, K, 2), generator=random).float()
    return planes, places, torch.zeros(1, K, dtype=torch.long)


def opened(attends=True, glances=False):
    torch.manual_seed(0)
    adapter = QualityAdapter(D, 3, width=16, attends=attends, glances=glances)
    adapter.gates.data.fill_(0.5)
    return adapter


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_at_the_start_it_is_the_identity_bit_for_bit(dtype):
    planes, places, levels = tokens(dtype)
    adapted = QualityAdapter(D, 3)(planes, places, levels)
    assert all(torch.equal(a, b) and a.dtype == dtype for a, b in zip(adapted, planes, strict=True))


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


def realization(levels, places, look):
    cells = torch.cat([levels[:, None], places.long()], 1)
    allocation = SimpleNamespace(cells=cells, grid=(9, 9))
    return SimpleNamespace(allocation=allocation, config=Config(), glance=look)


def test_a_glance_is_read_between_its_tokens_and_at_its_border_beyond():
    # 2 x 3 tokens over 4 x 9 native ones: centres at rows 0.5, 2.5 and columns 1, 4, 7.
    rows, columns = torch.meshgrid(
        torch.tensor([0.5, 2.5]), torch.tensor([1.0, 4, 7]), indexing="ij"
    )
    places = torch.stack([rows.flatten(), columns.flatten()], 1)
    one, two = places[:, :1] * 10, torch.cat([places[:, 1:], -places[:, 1:]], 1)
    assert all(
        torch.allclose(a, b) for a, b in zip(glanced([one, two], places, places), [one, two])
    )
    found, other = glanced([one, two], places, torch.tensor([[1.5, 2.5], [0, 0], [9, 8]]))
    assert torch.allclose(found, torch.tensor([[15.0], [5], [25]]), atol=1e-4)
    assert torch.allclose(other[:, 0], torch.tensor([2.5, 1, 7]), atol=1e-5)
    alone, _ = glanced([one[:1], two[:1]], places[:1], torch.tensor([[0.0, 0], [8, 8]]))
    assert torch.equal(alone, one[:1].expand(2, 1)), "one token is everywhere"


def test_only_one_that_glances_is_moved_by_what_was_seen():
    planes, places, levels = tokens()
    seen = [torch.randn(1, K, D) for _ in range(3)]
    for glances in (True, False):
        adapter = opened(glances=glances)
        without = adapter(planes, places, levels)[0]
        dark = adapter(planes, places, levels, glance=[torch.zeros_like(p) for p in planes])[0]
        moved = adapter(planes, places, levels, glance=seen)[0]
        assert torch.equal(without, dark), "no glance is one that saw nothing"
        assert torch.allclose(without, moved, atol=1e-4) != glances


def test_the_host_hands_over_what_its_look_saw_where_it_still_has_it(tiny, monkeypatch):
    planes, places, levels = tokens()
    adapter = opened(glances=True)
    monkeypatch.setattr(tiny, "policies", {"default": Components({"adapter": adapter})})
    given = TokenSet(planes[0][0], tuple(plane[0] for plane in planes[1:]), places[0])
    corners = torch.tensor([[0.0, 0], [0, 8], [8, 0], [8, 8]])
    seen = [torch.randn(4, D) for _ in range(3)]
    state = SimpleNamespace(tokens=TokenSet(seen[0], tuple(seen[1:]), corners))
    with torch.no_grad():
        for look, glance in (
            (SimpleNamespace(state=state), glanced(seen, corners, places[0])),
            (SimpleNamespace(state=None), None),
            (None, None),
        ):
            found = tiny.adapted(given, realization(levels[0], places[0], look))
            batched = glance and [plane[None] for plane in glance]
            own = adapter(planes, places, levels, glance=batched)
            assert torch.allclose(found.features, own[0][0], atol=1e-6)
            assert torch.allclose(found.deepstack[1], own[2][0], atol=1e-6)


def test_corrections_fade_with_the_share_that_is_kept():
    assert [strength(share) for share in (0, 0.05, 1 / 8, 1 / 4, 1)] == [1, 1, 1, 0, 0]
    assert strength(3 / 16) == pytest.approx(0.5)
    planes, places, levels = tokens()
    planes = [p.repeat(3, 1, 1) for p in planes]
    with torch.no_grad():
        given = planes, places.repeat(3, 1, 1), levels.repeat(3, 1)
        found = opened()(*given, strengths=torch.tensor([1.0, 0.5, 0.0]))
        full = opened()(*given)
    for was, now, most in zip(planes, found, full, strict=True):
        assert torch.equal(now[0], most[0]) and torch.equal(now[2], was[2])
        assert torch.allclose(now[1], (was[1] + most[1]) / 2, atol=1e-6)


def test_the_learned_weights_correct_where_little_is_kept_and_nothing_where_all_is(
    bundled, picture
):
    ask = bundled.prepare(picture, "where is the red thing?")
    h, w = ask.picture.grid
    whole = bundled.encode(ask.picture, None)
    for count, stays in ((h * w, True), (h * w // 2, True), (h * w // 5, False), (6, False)):
        allocation = native_allocation(torch.arange(count), (h, w), torch.ones(count))
        kept = SimpleNamespace(allocation=allocation, config=Config(), glance=None)
        found = bundled.adapted(whole.at(slice(count)), kept)
        assert torch.equal(found.features, whole.features[:count]) is stays


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
        return realization(levels[0], places[0], None)

    with torch.no_grad():
        found = tiny.adapted(given, realized(levels))
        alone = adapter([plane[:, fine] for plane in planes], places[:, fine], levels[:, fine])
        assert tiny.adapted(given, realized(levels + 1)) is given
    for was, now, own in zip(planes, [found.features, *found.deepstack], alone, strict=True):
        assert torch.equal(now[~fine], was[0, ~fine])
        assert torch.allclose(now[fine], own[0], atol=1e-6)
        assert not torch.allclose(now[fine], was[0, fine], atol=1e-3)
