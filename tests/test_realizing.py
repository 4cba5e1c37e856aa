"""The Realizer on a host of a few lines: decisions, overrides, recombination, and the fallback."""

import time
from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest
import torch

from arr_coc.balancing import Combiner, TensionPolicy, lexical_tier
from arr_coc.components import Components
from arr_coc.config import (
    ALLOCATORS,
    MINIMUM_BUDGET,
    Config,
    Tensions,
    check_new_tokens,
    glance_tokens,
)
from arr_coc.knowing import TextureMatch
from arr_coc.realizing import Glance, Realizer, Round, decide, recombine
from arr_coc.words import Words

GRID = (8, 10)
POLICY = Components({"policy": TensionPolicy(6)})


class StubHost:
    """A picture with one bright place, and a question that points at another."""

    def __init__(self) -> None:
        self.looks = 0

    def grid(self, image):
        return GRID

    def pixels(self, image, side):
        pixels = torch.full((1, 3, 256, 320), 0.4)
        pixels[:, :, 32:64, 32:64] = torch.rand(
            1, 3, 32, 32, generator=torch.Generator().manual_seed(0)
        )
        return pixels

    def embed(self, question):
        return Words.of_one(torch.ones(2, 6))

    def glance(self, image, question, tokens):
        self.looks += 1
        attention = torch.zeros(1, 2, 2)
        attention[0, 1, 1] = 1.0
        return Glance(attention, tokens=4)


def test_relevance_follows_the_question_and_every_intermediate_is_kept():
    realization = Realizer(StubHost()).realize(None, "what colour is the sign?")
    assert realization.fallback is None
    assert realization.textures.shape == (1, 13, *GRID)
    for m in (realization.propositional, realization.perspectival, realization.participatory):
        assert m.shape == (1, *GRID) and m.min() >= 0 and m.max() <= 1
    cells = realization.allocation.cells
    lower_right = ((cells[:, 1] >= 4) & (cells[:, 2] >= 5)).float().mean()
    assert lower_right > 0.7
    assert realization.tokens == realization.budget == 16
    assert set(realization.seconds) == {"glance", "relevance"}
    with pytest.raises(FrozenInstanceError):
        realization.budget = 3


def test_a_separate_glance_does_not_count_and_off_takes_none():
    host = StubHost()
    separate = Realizer(host).realize(None, "q", Config(glance="separate"))
    assert len(separate.allocation) == separate.budget and separate.kept_glance is None
    off = Realizer(host).realize(None, "q", Config(glance="off"))
    assert off.glance is None and off.participatory is None and off.participatory_source == "none"
    assert host.looks == 1


def test_imposed_tensions_win_over_policy_and_prior():
    tensions = Tensions(0.9, 0.1, 0.4)
    realization = Realizer(StubHost(), POLICY).realize(None, "q", Config(tensions=tensions))
    assert realization.tensions == tensions and realization.tension_source == "imposed"


def test_a_policy_wins_over_the_lexical_prior():
    host = StubHost()
    learned = Realizer(host, POLICY).realize(None, "describe the scene")
    prior = Realizer(host).realize(None, "describe the scene")
    assert learned.tension_source == "learned" and prior.tension_source == "lexical prior"
    assert learned.tensions != prior.tensions


def test_texture_couples_without_a_glance_where_weights_bring_it():
    parts = Components({"texture": TextureMatch(6)})
    realization = Realizer(StubHost(), parts).realize(None, "q", Config(glance="off"))
    assert realization.participatory_source == "texture" and realization.glance is None
    assert realization.participatory.shape == (1, *GRID)


def test_a_trained_combiner_is_used_and_kept_for_recombining():
    parts = Components({"combiner": Combiner()})
    parts.combiner.log.data[4] = 1.0  # contrast
    fixed, learned = (Realizer(StubHost(), c).realize(None, "q") for c in (None, parts))
    assert learned.relevance.mean() < fixed.relevance.mean()
    again = recombine(learned, learned.tensions)
    assert torch.equal(again.relevance, learned.relevance)


@pytest.mark.parametrize("broken", ["glance", "pixels"])
def test_a_failing_stage_gives_a_uniform_allocation_and_its_reason(broken):
    host = StubHost()

    def fail(*_):
        raise RuntimeError("no memory left\nsecond line")

    setattr(host, broken, fail)
    realization = Realizer(host).realize(None, "q")
    assert realization.fallback == "RuntimeError: no memory left"
    assert len(realization.allocation) == realization.budget == realization.tokens == 16
    assert realization.relevance.eq(0.5).all()
    with pytest.raises(ValueError, match="no maps to recombine: RuntimeError"):
        recombine(realization, Tensions())


def test_non_finite_attention_falls_back_too():
    host = StubHost()
    look = host.glance(None, "q", 4)
    host.glance = lambda *_: replace(look, attention=look.attention * float("nan"))
    assert "non-finite" in Realizer(host).realize(None, "q").fallback


def test_recombining_needs_no_host_and_equals_a_fresh_decision():
    host = StubHost()
    realizer, tensions = Realizer(host), Tensions(1.0, 0.2, 0.1)
    realization = realizer.realize(None, "what colour is the sign?")
    looks = host.looks
    again = recombine(realization, tensions)
    assert host.looks == looks
    fresh = realizer.realize(None, "what colour is the sign?", Config(tensions=tensions))
    assert torch.equal(again.relevance, fresh.relevance)
    assert torch.equal(again.allocation.cells, fresh.allocation.cells)
    assert not torch.equal(again.relevance, realization.relevance)
    smaller = recombine(realization, budget=10)
    assert smaller.tokens == 10
    rounds = (Round(5, 0.5),)
    assert recombine(replace(realization, rounds=rounds), budget=10).rounds == ()


def test_numbers_of_other_libraries_are_numbers():
    assert type(Config(budget=np.int64(51)).tokens(256)) is int
    for wrong in (51.0, True, "51"):
        with pytest.raises(ValueError, match="expected a whole number of tokens"):
            Config(budget=wrong).tokens(256)
    for wrong in (2.5, True, "5", None):
        with pytest.raises(ValueError, match="max_new_tokens is .*, expected a whole number"):
            check_new_tokens(wrong)
    check_new_tokens(np.int32(5))


def test_recombining_with_too_small_a_budget_names_both_numbers():
    realization = Realizer(StubHost()).realize(None, "q", Config(glance="periphery"))
    with pytest.raises(ValueError, match="budget 4 leaves nothing beside the glance's 4 tokens"):
        recombine(realization, budget=4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(glance="maybe"), "glance is 'maybe', expected one of auto, periphery, separate, off"),
        (dict(prune="during"), "prune is 'during', expected one of before, after"),
        (dict(share=0.0), "share is 0.0, allowed"),
        (dict(share=1.2), "share is 1.2, allowed"),
        (dict(share=None), "share is None, expected a number"),
        (dict(share=True), "share is True, expected a number"),
        (dict(tensions=(0.1, 0.2, 0.3)), "expected Tensions.compress, exploit, focus."),
        (dict(surroundings=-1), "surroundings is -1, allowed is 0 or more"),
        (dict(halo=-0.5), "halo is -0.5, allowed is 0 or more"),
        (dict(halo=float("nan")), "halo is nan, allowed is 0 or more"),
        (dict(tier="best"), "tier is 'best', expected one of fast, balanced, accurate, question"),
        (
            dict(allocator="best"),
            "allocator is 'best', expected one of topk, adaptive, window, quadtree",
        ),
    ],
)
def test_bad_settings_are_refused_at_the_door(options, message):
    with pytest.raises(ValueError, match=message):
        Config(**options)


def test_a_budget_that_does_not_fit_the_image_raises_instead_of_falling_back():
    with pytest.raises(ValueError, match="budget 900 exceeds the 80 visual tokens there are"):
        Realizer(StubHost()).realize(None, "q", Config(budget=900))
    with pytest.raises(ValueError, match="budget 2 is below the minimum of 4 tokens"):
        Realizer(StubHost()).realize(None, "q", Config(budget=2))


def test_tiers_override_the_share():
    assert Config(tier="accurate").tokens(256) == 102
    assert Config(share=0.5).tokens(256) == 128
    assert Config(share=0.01).tokens(256) == 4


def test_the_question_tier_follows_the_words():
    config = Config(tier="question")
    assert config.tokens(256, lexical_tier("what number is on the sign?")) == 102
    assert config.tokens(256, lexical_tier("describe the scene")) == 25
    assert config.tokens(256) == 51
    realization = Realizer(StubHost()).realize(None, "read the sign", config)
    assert realization.tokens == realization.budget == 32
    assert recombine(realization, Tensions()).budget == 32


@pytest.mark.parametrize("glance", ["periphery", "off"])
@pytest.mark.parametrize("allocator", ALLOCATORS)
def test_every_allocator_decides_within_the_budget_and_recombines(allocator, glance):
    config = Config(share=0.3, allocator=allocator, glance=glance)
    realization = Realizer(StubHost()).realize(None, "q", config)
    assert realization.fallback is None and realization.budget == 24
    kept = 4 if glance == "periphery" else 0
    assert realization.tokens == len(realization.allocation) + kept <= 24
    assert (realization.tokens == 24) or allocator in ("adaptive", "quadtree")
    assert realization.allocation.is_native == (allocator != "quadtree")
    again = recombine(realization, realization.tensions)
    assert torch.equal(again.allocation.cells, realization.allocation.cells)


def test_the_compress_tension_reaches_the_adaptive_allocator_and_its_minimum():
    realization = Realizer(StubHost()).realize(
        None, "q", Config(share=1.0, allocator="adaptive", glance="off")
    )
    counts = [
        len(decide(maps(realization), Tensions(c, 0.5, 0.5**0.5), 80, "adaptive")[1])
        for c in (0.0, 1.0)
    ]
    assert MINIMUM_BUDGET <= counts[1] < counts[0] < 80
    one_place = torch.zeros(1, *GRID)
    one_place[0, 3, 3] = 1.0
    same = (one_place, one_place, one_place)
    assert len(decide(same, Tensions(0.5, 1.0, 1.0), 80, "adaptive")[1]) == MINIMUM_BUDGET


def maps(realization):
    return realization.propositional, realization.perspectival, realization.participatory


def test_the_glance_takes_a_small_share_but_enough_to_find_things():
    assert glance_tokens((32, 32)) == glance_tokens((16, 16)) == 64
    assert glance_tokens((64, 64)) == 256
    assert glance_tokens((32, 32), "glance") == 48
    assert glance_tokens((16, 16), "glance") == glance_tokens((15, 20), "glance") == 36
    assert glance_tokens((8, 8)) == glance_tokens((8, 8), "glance") == 16
    assert glance_tokens((1, 2)) == 1


@pytest.mark.parametrize(
    ("glance", "compress", "budget", "kept"),
    [
        ("auto", 0.8, 80, True),
        ("auto", 0.5, 80, False),
        ("auto", 0.8, 5, False),  # it would leave too little for the fovea
        ("periphery", 0.0, 8, True),
        ("separate", 0.9, 80, False),
        ("off", 0.9, 80, False),
    ],
)
def test_the_glance_stays_where_the_gist_is_asked_for(glance, compress, budget, kept):
    config = Config(budget=budget, glance=glance, tensions=Tensions(compress, 0.5, 0.5))
    realization = Realizer(StubHost()).realize(None, "what is there?", config)
    assert (realization.kept_glance is not None) == kept
    assert realization.tokens == budget
    assert (realization.glance is None) == (glance == "off")


def test_stage_seconds_are_wall_time():
    host = StubHost()
    look = host.glance(None, "q", 4)

    def slow(*_):
        time.sleep(0.05)
        return look

    host.glance = slow
    seconds = Realizer(host).realize(None, "q").seconds
    assert 0.05 <= seconds["glance"] < 1.0
