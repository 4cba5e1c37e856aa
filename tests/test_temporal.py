"""The TemporalRealizer on hosts of a few lines: one budget, blending, motion, cuts, several pictures."""

from dataclasses import FrozenInstanceError, replace

import pytest
import torch

from arr_coc import balancing, motion, temporal
from arr_coc.allocators import Spread
from arr_coc.attending import TopK, share_out
from arr_coc.components import Components
from arr_coc.config import (
    ALLOCATORS,
    GLANCE_LEAST,
    Config,
    Tensions,
    glance_tokens,
    glance_tokens_each,
    spread,
)
from arr_coc.knowing import HeadWeights, StateMatch
from arr_coc.realizing import Glance, Realizer
from arr_coc.temporal import TemporalRealizer, allocate, blend, lift
from arr_coc.texture import CHANNELS, CLIP_CHANNELS
from arr_coc.words import Words

GRID = (8, 10)
QUESTION = "what colour is the sign?"
ONE_PLACE = Tensions(0.0, 0.5, 1.0)


def scene(seed: int) -> torch.Tensor:
    """`(3, 256, 320)` coloured squares of a seed's own, on its own ground."""
    generator = torch.Generator().manual_seed(seed)
    picture = torch.rand(3, 1, 1, generator=generator).expand(3, 256, 320).clone()
    for _ in range(6):
        y, x = (int(torch.randint(0, n - 64, (), generator=generator)) for n in (256, 320))
        picture[:, y : y + 64, x : x + 64] = torch.rand(3, 1, 1, generator=generator)
    return picture


def points_at(*places) -> torch.Tensor:
    """Attention of a glance of 4 x 5 that points to some of its places, each with its strength."""
    attention = torch.full((1, 4, 5), 0.001)
    for row, column, strength in places:
        attention[0, row, column] = strength
    return attention


class StubHost:
    """Moments, or pictures where there are no times, and what a glance at them would attend to."""

    def __init__(self, frames, attention, in_time=True) -> None:
        self.shown, self.attention, self.in_time = frames, attention, in_time
        self.asked: list[list[int]] = []

    def grids(self, views):
        return [(own.shape[-2] // 32, own.shape[-1] // 32) for own in self.shown]

    def seconds(self, views):
        return tuple(0.5 + n for n in range(len(self.shown))) if self.in_time else None

    def frames(self, views, side):
        return self.shown

    def embed(self, question):
        return Words.of_one(torch.ones(2, 6))

    def glances(self, views, question, tokens):
        self.asked.append(list(tokens))
        return [self._glance(own) for own in self.attention]

    def _glance(self, own):
        heads = own[:, None].expand(-1, 3, -1, -1)
        states = own[..., None].expand(-1, -1, -1, 6) + torch.arange(6)
        return Glance(own, 20, heads=heads, states=states, answering=torch.ones(1, 6))

    # One picture, as the Realizer asks for it.
    def grid(self, image):
        return self.grids(None)[0]

    def pixels(self, image, side):
        return self.shown[0][:1]

    def glance(self, image, question, tokens):
        return self._glance(self.attention[0])


def moment(*scenes) -> torch.Tensor:
    return torch.stack([scene(own) if isinstance(own, int) else own for own in scenes])


def learned() -> Components:
    torch.manual_seed(0)
    parts = {"heads": HeadWeights(6, 3), "states": StateMatch(6)}
    torch.nn.init.normal_(parts["states"].answer.weight)
    return Components(parts)


@pytest.mark.parametrize("components", [None, learned()], ids=["free", "learned"])
@pytest.mark.parametrize("allocator", ALLOCATORS)
@pytest.mark.parametrize("moments", [1, 5])
def test_a_clip_of_equal_moments_decides_as_the_picture_in_each(moments, allocator, components):
    """The same maps in every moment: relevance to the last bit, and with G times the budget the cells."""
    attention = points_at((1, 1, 0.2), (3, 4, 0.1))
    host = StubHost([moment(1, 1)] * moments, [attention] * moments)
    alone = Realizer(host, components).realize(
        None, QUESTION, Config(budget=17, allocator=allocator)
    )
    config = Config(budget=17 * moments, allocator=allocator)
    clip = TemporalRealizer(host, components).realize(None, QUESTION, config)
    assert alone.fallback is None and clip.fallback is None
    for view in clip.views:
        assert torch.equal(view.relevance, alone.relevance)
        assert torch.equal(view.allocation.cells, alone.allocation.cells)
        assert torch.equal(view.participatory, alone.participatory)
        assert view.tensions == alone.tensions
    assert clip.tokens == alone.tokens * moments <= clip.budget
    assert clip.cuts == (True,) + (False,) * (moments - 1)


def test_everything_of_a_decision_is_kept():
    host = StubHost([moment(1, 1), moment(1, 2)], [points_at((1, 1, 0.2))] * 2)
    clip = TemporalRealizer(host).realize(None, QUESTION)
    assert len(CLIP_CHANNELS) == 14 and CLIP_CHANNELS[13].name == "motion"
    assert clip.views[0].textures.shape == (1, 14, *GRID)
    assert clip.budget == 32 == clip.tokens == sum(clip.counts)
    assert [view.budget for view in clip.views] == clip.counts
    assert clip.times == (0.5, 1.5) and set(clip.seconds) == {"glance", "relevance"}
    assert host.asked == [glance_tokens_each([GRID] * 2)]
    with pytest.raises(FrozenInstanceError):
        clip.budget = 3


def test_the_budget_goes_to_the_moment_that_the_question_points_to():
    pointing = [points_at(), points_at((2, 2, 0.3)), points_at()]
    host = StubHost([moment(1, 1)] * 3, pointing)
    config = Config(budget=12, tensions=ONE_PLACE, decay=0.0)
    clip = TemporalRealizer(host).realize(None, QUESTION, config)
    assert clip.counts == [1, 10, 1], "a quarter of an even share is left to each"
    few = TemporalRealizer(host).realize(None, QUESTION, replace(config, budget=11))
    assert few.counts == [0, 11, 0], "too few for all of them: some moments get none"
    rows, columns = clip.views[1].allocation.cells[:, 1:].unbind(1)
    assert (rows >= 3).all() and (rows <= 6).all() and (columns >= 3).all() and (columns <= 6).all()
    # Blended on, the place goes on mattering after its moment, and never before it.
    later = TemporalRealizer(host).realize(None, QUESTION, replace(config, budget=40, decay=0.5))
    assert later.counts[0] == 3 < later.counts[2] < later.counts[1]


def test_a_moment_is_on_the_scale_of_all_and_a_mutant_of_its_own_is_not():
    weak = [points_at((0, 0, 0.3)), points_at((3, 4, 0.003))]
    host = StubHost([moment(1, 1)] * 2, weak)
    config = Config(budget=10, tensions=ONE_PLACE, decay=0.0)
    clip = TemporalRealizer(host).realize(None, QUESTION, config)
    assert clip.counts == [9, 1]
    alone = [
        Realizer(StubHost([moment(1, 1)], [own])).realize(None, QUESTION, config) for own in weak
    ]
    assert share_out([own.relevance[0] for own in alone], 10, 1) != [9, 1], (
        "else a scale for each would do"
    )


def test_a_cut_in_the_middle_gives_the_two_halves_own_decisions():
    """What is decided after a cut does not depend on what was before, given each moment's own relevance."""
    first, second = [moment(1, 1)] * 3, [moment(2, 2)] * 3
    pointing = [points_at((0, n, 0.2)) for n in range(3)] + [
        points_at((3, n, 0.2)) for n in range(3)
    ]
    host = StubHost([*first, *second], pointing)
    clip = TemporalRealizer(host).realize(None, QUESTION)
    assert clip.cuts == (True, False, False, True, False, False)
    decay = clip.config.decay
    halves = [
        *blend(clip.own[:3], (True, False, False), decay),
        *blend(clip.own[3:], (True, False, False), decay),
    ]
    assert all(torch.equal(view.relevance, own) for view, own in zip(clip.views, halves))
    assert torch.equal(clip.views[3].relevance, clip.own[3])
    assert not torch.equal(clip.views[4].relevance, clip.own[4])
    blind = blend(clip.own, (True, *[False] * 5), decay)
    assert (blind[3] - clip.views[3].relevance).abs().max() > 0.1, "a mutant that sees no cut"
    assert float(clip.views[3].textures[:, 13].max()) == 0, "nothing has moved at a cut"


def test_a_cut_within_a_moment_begins_anew_there():
    host = StubHost([moment(1, 1), moment(1, 2), moment(2, 2)], [points_at((0, 0, 0.1))] * 3)
    assert TemporalRealizer(host).realize(None, QUESTION).cuts == (True, True, False)


def moved(pixels: int) -> torch.Tensor:
    """A white square on grey, so many pixels to the right of its place."""
    picture = torch.full((3, 256, 320), 0.4)
    picture[:, 96:128, 64 + pixels : 96 + pixels] = 1.0
    return picture


def test_what_moves_is_lifted_and_what_is_still_is_not():
    shown = [moment(moved(0), moved(0)), moment(moved(0), moved(96)), moment(moved(96), moved(96))]
    host = StubHost(shown, [points_at((1, 1, 0.1), (1, 2, 0.1), (3, 4, 0.1))] * 3)
    clip = TemporalRealizer(host).realize(None, QUESTION, Config(decay=0.0, boost=1.8))
    assert clip.cuts == (True, False, False)
    motions = [view.textures[0, 13] for view in clip.views]
    assert motions[0].max() == 0 == motions[2].max()
    moving = torch.zeros(GRID, dtype=torch.bool)
    moving[3, 2] = moving[3, 5] = True  # where it was, and where it is
    assert torch.equal(motions[1] > 0.5, moving)
    flat = TemporalRealizer(host).realize(None, QUESTION, Config(decay=0.0, boost=1.0))
    new = [torch.ones(GRID), *motions[1:]]  # all of it where the scene begins
    largest = max(float((own * (1 + 0.8 * m)).max()) for own, m in zip(flat.own, new))
    for lifted, own, m in zip(clip.views, flat.own, new):
        expected = own[0] * (1 + 0.8 * m) / max(1, largest)
        assert torch.allclose(lifted.relevance[0], expected, atol=1e-6)
    assert all(torch.equal(view.relevance, own) for view, own in zip(flat.views, flat.own))


def test_what_comes_is_there_at_once_and_fades_by_the_second():
    """A mutant, the mean of both, would give what is shown for one moment alone the least."""
    there, gone = torch.zeros(1, *GRID), torch.zeros(1, *GRID)
    there[0, 1, 1] = 1.0
    new = (True, False, False, False)
    first, onset, *after = blend([gone, there, gone, gone], new, 0.5, (0.0, 1.0, 2.0, 4.0))
    assert torch.equal(first, gone) and torch.equal(onset, there)
    assert [float(own[0, 1, 1]) for own in after] == [0.5, 0.125]
    assert torch.equal(blend([there] * 4, new, 0.5)[3], there), "what stays, stays"
    assert not blend([gone, there, gone, gone], (True, False, True, False), 0.5)[2].any()


def test_all_that_a_scene_begins_with_is_new_where_anything_moves_in_it():
    """What appears is told from what was there: that is lifted as what moves is."""
    nothing, some = torch.zeros(1, *GRID), torch.zeros(1, *GRID)
    some[0, 1, 1] = 0.3
    still, scene_cut, moves = [nothing] * 2, (True, False, True, False), [nothing, some]
    new = motion.news([*still, *moves], scene_cut)
    assert all(torch.equal(*pair) for pair in zip(new[:2], still)), (
        "where nothing moves nothing is new"
    )
    assert torch.equal(new[2], torch.ones(1, *GRID)) and torch.equal(new[3], some)
    half = motion.news(moves, (True, False))
    assert all(torch.equal(*pair) for pair in zip(half, new[2:])), (
        "a scene is what it would be alone"
    )


def test_motion_does_not_pile_up():
    own = [torch.full((1, *GRID), 0.4)] * 9
    rising = [torch.ones(1, *GRID)] * 9
    lifted = lift(blend(own, (True, *[False] * 8), 0.9), rising, 1.5)
    assert torch.allclose(torch.stack(lifted), torch.tensor(0.6))
    still = lift(own, [torch.zeros(1, *GRID)] * 9, 1.5)
    assert torch.equal(torch.stack(still), torch.stack(own))


def is_cut(before: torch.Tensor, after: torch.Tensor) -> bool:
    return motion.is_cut(before, after, motion.moving(before, after, GRID))


@pytest.mark.parametrize("seed", range(4))
def test_pans_noise_and_more_light_are_no_cuts_and_other_scenes_are(seed):
    wide = torch.cat([scene(seed), scene(seed).flip(2)], 2)[None]
    start, pan = wide[..., :320], wide[..., 64:384]
    noise = 0.02 * torch.randn(start.shape, generator=torch.Generator().manual_seed(0))
    assert not is_cut(start, pan) and not is_cut(start, (pan + noise).clamp(0, 1))
    brighter = (start + 0.06).clamp(0, 1)
    assert float(motion.exchanged(start, brighter)) > motion.EXCHANGED, "else it says nothing"
    assert not is_cut(start, brighter)
    assert is_cut(start, scene(seed + 100)[None])


def test_noise_does_not_move_and_a_change_does():
    still = scene(4)[None]
    noisy = (
        still + 0.03 * torch.randn(still.shape, generator=torch.Generator().manual_seed(1))
    ).clamp(0, 1)
    assert float(motion.moving(still, noisy, GRID).max()) == 0
    assert float(motion.moving(still, still, GRID).max()) == 0
    assert float(motion.moving(still * 0, still * 0 + 1, GRID).min()) == 1
    assert float(motion.exchanged(still, still)) == 0
    assert float(motion.exchanged(still * 0, still * 0 + 1)) == pytest.approx(1)
    with pytest.raises(ValueError, match="image has shape"):
        motion.moving(still[0], still, GRID)


def test_pictures_compete_and_do_not_blend_and_nothing_in_them_moves():
    shown = [scene(1)[None], scene(1)[None, :, :128], scene(2)[None]]
    pointing = [points_at((0, 0, 0.01)), points_at((0, 0, 0.01)), points_at((2, 2, 0.3))]
    host = StubHost(shown, pointing, in_time=False)
    decided = TemporalRealizer(host).realize(None, QUESTION, Config(budget=20, tensions=ONE_PLACE))
    assert decided.fallback is None and decided.times is None and decided.cuts == (True,) * 3
    assert [view.grid for view in decided.views] == [(8, 10), (4, 10), (8, 10)]
    assert decided.counts == [1, 1, 18], "the budget goes to the right one, and none is left blank"
    competing = balancing.compete(decided.own)
    for view, own in zip(decided.views, competing):
        assert torch.equal(view.relevance, own)
        assert view.textures.shape[1] == len(CHANNELS)


def test_what_competes_gets_more_where_more_is_relevant_and_equals_stay_as_they_are():
    strong, weak = torch.tensor([[[1.0, 0.5, 0.3]]]), torch.tensor([[[0.4, 0.35, 0.1, 0.0]]])
    first, second = balancing.compete([strong, weak])
    assert torch.equal(first, strong)
    assert torch.allclose(second, weak * 0.4**balancing.RIVALRY)
    assert share_out([strong[0], weak[0]], 4) == [2, 2]
    assert share_out([first[0], second[0]], 4) == [3, 1]
    for alike in ([weak], [weak, weak], [torch.zeros(1, 2, 2), torch.zeros(1, 2, 2)]):
        assert all(torch.equal(*pair) for pair in zip(balancing.compete(alike), alike))


@pytest.mark.parametrize(
    ("budget", "least", "counts"), [(4, 0, [4, 0]), (4, 1, [3, 1]), (4, 9, [2, 2]), (1, 1, [1, 0])]
)
def test_of_each_so_many_come_first_but_no_more_than_an_even_share(budget, least, counts):
    scores = [torch.linspace(0.9, 0.5, 6)[None], torch.linspace(0.4, 0.1, 6)[None]]
    assert share_out(scores, budget, least) == counts


@pytest.mark.parametrize("in_time", [True, False])
def test_recombined_a_decision_is_what_it_would_have_been(in_time, monkeypatch):
    shown = [moment(moved(0), moved(64)), moment(moved(96), moved(96)), moment(2, 2)]
    pointing = [points_at((1, 1, 0.1), (3, 4, 0.2))] * 3
    host = StubHost(shown if in_time else [own[:1] for own in shown], pointing, in_time)
    realizer, others = TemporalRealizer(host), Tensions(0.3, 0.8, 0.9)
    given = realizer.realize(None, QUESTION, Config(budget=20))
    again = temporal.recombine(given, others, 33)
    fresh = realizer.realize(None, QUESTION, Config(budget=33, tensions=others))
    assert again.config == fresh.config and again.budget == 33 and again.counts == fresh.counts
    for one, other in zip(again.views, fresh.views):
        assert torch.equal(one.relevance, other.relevance) and one.budget == other.budget
        assert torch.equal(one.allocation.cells, other.allocation.cells)
    assert temporal.recombine(given).counts == given.counts
    monkeypatch.setattr(motion, "texture", lambda *_: 1 / 0)
    with pytest.raises(ValueError, match="no maps to recombine: ZeroDivisionError"):
        temporal.recombine(realizer.realize(None, QUESTION))


def test_share_out_counts_the_best_places_and_breaks_ties_by_place():
    low, high = torch.full((2, 3), 0.1), torch.full((2, 3), 0.9)
    assert share_out([low, high, low], 6) == [0, 6, 0]
    assert share_out([low, high, low], 10) == [2, 6, 2]
    assert share_out([low, low, low], 3) == [1, 1, 1]
    assert share_out([low, torch.full((1, 2), 0.1)], 5) == [3, 2]
    assert share_out([low, high], 12) == [6, 6]
    with pytest.raises(ValueError, match="budget 13 exceeds the 12 visual tokens there are"):
        share_out([low, high], 13)


@pytest.mark.parametrize("allocator", ALLOCATORS)
@pytest.mark.parametrize("budget", [1, 7, 40, 240])
def test_any_budget_is_kept_and_its_most_is_everything(budget, allocator):
    generator = torch.Generator().manual_seed(3)
    maps = [torch.rand(1, *GRID, generator=generator) ** 4 * scale for scale in (1.0, 0.3, 0.05)]
    allocations = allocate(maps, budget, Tensions(), allocator)
    assert sum(map(len, allocations)) <= budget
    assert allocator in ("adaptive", "quadtree") or sum(map(len, allocations)) == budget
    if budget == 240 and allocator != "adaptive":
        assert all(own.native_index().tolist() == list(range(80)) for own in allocations)
    if budget == 7:
        assert 0 in map(len, allocations), "a moment may get nothing"
    one = allocate(maps[:1], min(budget, 80), Tensions(), "topk")[0]
    alone = Spread(TopK(), spread(Tensions().focus))(maps[0][0], min(budget, 80))
    assert torch.equal(one.cells, alone.cells)


def test_a_glance_takes_fewer_tokens_of_each_the_more_there_are():
    for context in ("glance", "cells"):
        alone, grids = glance_tokens((32, 32), context), [(32, 32)] * 36
        assert glance_tokens_each(grids[:1], context) == [alone]
        assert glance_tokens_each(grids[:4], context) == [alone // 2] * 4
        assert glance_tokens_each(grids, context) == [GLANCE_LEAST] * 36
    assert glance_tokens_each([(16, 16), (1, 2), (3, 3)], "glance") == [20, 1, 2]


@pytest.mark.parametrize("moments", [1, 3, 12])
def test_a_failed_stage_spreads_the_tokens_evenly_and_says_why(moments, monkeypatch):
    host = StubHost([moment(1, 1)] * moments, [points_at()] * moments)
    monkeypatch.setattr(motion, "texture", lambda *_: 1 / 0)
    clip = TemporalRealizer(host).realize(None, QUESTION, Config(budget=8))
    assert clip.fallback == "ZeroDivisionError: division by zero"
    assert clip.tokens == 8 and max(clip.counts) - min(clip.counts) <= 1
    assert all(view.fallback == clip.fallback for view in clip.views)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"decay": 1.0}, "decay is 1.0, allowed is 0 up to, but not, 1"),
        ({"decay": -0.1}, "decay is -0.1"),
        ({"boost": 0.9}, "boost is 0.9, allowed is 1 or more"),
        ({"boost": float("nan")}, "boost is nan"),
    ],
)
def test_impossible_settings_are_refused(options, said):
    with pytest.raises(ValueError, match=said):
        Config(**options)
