"""share="auto": as many tokens as the relevance asks for, more while the first word is unsure."""

import math
import time
from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch
from test_laws import gap

from arr_coc import config as settings
from arr_coc.components import for_base
from arr_coc.config import Config
from arr_coc.peers.clock import timed
from arr_coc.peers.methods import EVERY
from arr_coc.qwen import rounds
from arr_coc.qwen.glance import GlanceState
from arr_coc.qwen.layers import CACHE
from arr_coc.realizing import Realizer

QUESTION, TOLERANCE = "what number is on the small sign?", 1e-5


@pytest.fixture(autouse=True)
def three_rounds(monkeypatch):
    """One more than there are: what a round appends to is then appended to as well; all from the least."""
    monkeypatch.setattr(settings, "AUTO_SHARES", (0.05, 0.1, 0.2))
    monkeypatch.setattr(rounds, "AUTO_MASS", 1e-6)


@pytest.fixture
def never_sure(monkeypatch):
    monkeypatch.setattr(rounds, "UNSURE", -1.0)


@torch.inference_mode()
def spent(host, picture, **options):
    ask = host.prepare(picture, QUESTION)
    config = Config(share="auto", **options)
    realization = Realizer(host, host.policy(config)).realize(ask, QUESTION, config)
    return ask, realization, rounds.spend(host, ask, realization, lambda _: nullcontext())


@torch.inference_mode()
def one_prefill(host, ask, realization, result):
    """Logits of the first word, everything read at once in the same order."""
    kept = realization.kept_glance
    tokens = kept.state.tokens + result.tokens if kept else result.tokens
    output = host.model(
        input_ids=ask.prompt.ids(len(tokens)),
        position_ids=ask.prompt.position_ids(tokens.places),
        mm_encoder_outputs=tokens.encoder_outputs(),
        logits_to_keep=1,
    )
    return output.logits[:, -1]


@torch.inference_mode()
def last_again(host, ask, places, cache):
    """Logits of the first word from a finished cache: its last token read once more."""
    ids, at = ask.prompt.ids(len(places)), ask.prompt.position_ids(places)
    cache.crop(-1)
    output = host.model(input_ids=ids[:, -1:], position_ids=at[:, :, -1:], **{CACHE: cache})
    return output.logits[:, -1]


def all_places(realization, result):
    kept = realization.kept_glance
    own = [kept.state.tokens.places] if kept else []
    return torch.cat([*own, result.tokens.places])


@pytest.mark.parametrize("glance", ["separate", "periphery"])
def test_rounds_are_one_prefill_of_the_same_tokens_in_that_order(tiny, picture, never_sure, glance):
    ask, realization, result = spent(tiny, picture, glance=glance)
    assert len(result.realization.rounds) >= 2
    places = all_places(realization, result)
    ours = last_again(tiny, ask, places, result.cache)
    assert gap(ours, one_prefill(tiny, ask, realization, result)) < TOLERANCE
    assert result.realization.rounds[-1].tokens == len(places) == realization.budget


def test_a_question_that_is_left_in_the_cache_is_another_prompt(
    tiny, picture, never_sure, monkeypatch
):
    ask, realization, result = spent(tiny, picture, glance="separate")
    truth = one_prefill(tiny, ask, realization, result)
    suffix, whole = ask.prompt.suffix.shape[1], ask.prompt.ids(len(result.tokens))
    cache, first = tiny.new_cache(), result.realization.rounds[0].tokens
    with torch.inference_mode():
        # The first round with its question, then the other cells and the question behind them.
        rounds.prefill(tiny, ask, [result.tokens.at(slice(first))], cache)
        start = whole.shape[1] - suffix - (len(result.tokens) - first)
        at = ask.prompt.position_ids(result.tokens.places)
        output = tiny.model(
            input_ids=whole[:, start:],
            position_ids=at[:, :, start:],
            **{CACHE: cache},
            mm_encoder_outputs=result.tokens.at(slice(first, None)).encoder_outputs(),
        )
    assert gap(output.logits[:, -1], truth) > 1e-3


def test_cells_that_stand_elsewhere_give_other_logits(tiny, picture, never_sure, monkeypatch):
    def renumbered(self, places):
        (own,) = places if isinstance(places, list) else [places]
        count = torch.arange(len(own), dtype=torch.float32)
        return original(self, torch.stack([count * 0, count], 1))

    ask, realization, result = spent(tiny, picture, glance="separate")
    truth = one_prefill(tiny, ask, realization, result)
    original = type(ask.prompt).position_ids
    monkeypatch.setattr(type(ask.prompt), "position_ids", renumbered)
    ask, _, result = spent(tiny, picture, glance="separate")
    assert gap(last_again(tiny, ask, result.tokens.places, result.cache), truth) > 1e-3


def test_a_sure_model_reads_one_round_and_an_unsure_one_all(tiny, picture, monkeypatch):
    monkeypatch.setattr(rounds, "UNSURE", math.inf)
    _, realization, result = spent(tiny, picture)
    planned = rounds.budgets(realization)
    assert [r.tokens for r in result.realization.rounds] == planned[:1]
    monkeypatch.setattr(rounds, "UNSURE", -1.0)
    _, _, result = spent(tiny, picture)
    assert [r.tokens for r in result.realization.rounds] == planned
    assert result.realization.tokens == planned[-1]
    kept = result.realization.allocation.native_index()
    assert len(kept.unique()) == len(kept) and (kept.diff() > 0).all()


def test_an_answer_says_what_each_round_held_and_counts_every_stage(tiny, picture, never_sure):
    answer = tiny.generate(picture, QUESTION, config=Config(share="auto"), max_new_tokens=4)
    told = answer.realization.rounds
    assert answer.measures.visual_tokens == told[-1].tokens == answer.realization.tokens
    assert all(math.isfinite(r.entropy) and r.entropy >= 0 for r in told)
    assert answer.measures.first_token_entropy == pytest.approx(told[-1].entropy, abs=1e-3)
    assert answer.measures.stages["encode"] > 0 and answer.measures.stages["prefill"] > 0


@pytest.mark.parametrize(
    ("options", "slow", "stage"),
    [
        ({"share": 0.2}, (GlanceState.cache, "func"), "prefill"),
        ({"share": "auto"}, (GlanceState.cache, "func"), "prefill"),
        ({"share": "auto"}, (rounds, "budgets"), "relevance"),
        ({"share": "auto"}, (rounds, "next_cells"), "relevance"),
    ],
)
def test_what_is_done_before_the_first_word_is_counted(
    tiny, picture, monkeypatch, options, slow, stage
):
    (owner, name), wait_s = slow, 0.3
    whole = getattr(owner, name)

    def slowly(*arguments):
        time.sleep(wait_s)
        return whole(*arguments)

    monkeypatch.setattr(owner, name, slowly)
    config = Config(glance="periphery", **options)
    answer = tiny.generate(picture, QUESTION, config=config, max_new_tokens=2)
    assert answer.measures.stages[stage] > wait_s


def test_a_round_that_adds_no_cell_is_not_read(tiny, picture, never_sure):
    """The adaptive allocator may want less than it is allowed: the same is not asked about again."""
    options = {"allocator": "adaptive", "tensions": settings.Tensions(0.0, 0.5, 1.0)}
    ask, realization, result = spent(tiny, picture, glance="separate", **options)
    held = [r.tokens for r in result.realization.rounds]
    assert held == sorted(set(held)) and held[-1] == len(result.tokens)
    truth = one_prefill(tiny, ask, realization, result)
    again = last_again(tiny, ask, all_places(realization, result), result.cache)
    assert gap(again, truth) < TOLERANCE


def test_the_clock_reads_what_was_read_in_rounds_no_second_time(tiny, picture, monkeypatch):
    """Whoever times a method pays what an answer pays: `generate` needs a token to begin with."""
    passes = []
    real = tiny.model.model.language_model.forward
    monkeypatch.setattr(
        tiny.model.model.language_model,
        "forward",
        lambda *a, **k: passes.append(k["inputs_embeds"].shape[1]) or real(*a, **k),
    )
    for bound, rounds_read in ((math.inf, 1), (-1.0, 3)):
        monkeypatch.setattr(rounds, "UNSURE", bound)
        passes.clear()
        method = EVERY["arr-coc-auto"]()
        found = timed(tiny, method, picture, QUESTION, QUESTION, lambda tokens: tokens // 5)
        assert len(found.reduced.realization.rounds) == rounds_read == len(passes) - 1
        told = passes.copy()
        passes.clear()
        tiny.generate(picture, QUESTION, config=Config(share="auto"), max_new_tokens=1)
        assert told == passes and told[-1] == 1
        assert found.stages["prefill"] > 0
        spent_in = found.reduced.seconds["prefill"]
        assert spent_in <= found.stages["prefill"] < spent_in + 0.5 * found.seconds


def test_weights_bring_a_bound_of_their_own(tiny, picture):
    _, realization, _ = spent(tiny, picture)
    assert rounds.unsure_above(tiny, realization) == settings.UNSURE
    parts = for_base(tiny.model.config, tiny.attention_layers, ["policy"])
    parts.unsure = 1.25
    assert rounds.unsure_above(tiny.with_policies({"": parts}), realization) == 1.25


def test_after_a_fallback_the_answer_comes_in_one_go(tiny, picture, monkeypatch):
    monkeypatch.setattr("arr_coc.realizing.texture", lambda *_: 1 / 0)
    answer = tiny.generate(picture, QUESTION, config=Config(share="auto"), max_new_tokens=2)
    assert answer.done and "ZeroDivisionError" in answer.realization.fallback
    assert answer.realization.rounds == ()


def test_rounds_of_a_small_picture_or_budget():
    auto = Config(share="auto")
    assert auto.rounds(256, 51, 1) == [12, 25, 51]
    assert auto.rounds(256, 51, 20) == [20, 25, 51]
    assert auto.rounds(256, 51, 30) == [30, 51]
    assert auto.rounds(256, 51, 256) == [51]
    assert auto.rounds(256, 20, 1) == [12, 20]
    assert auto.rounds(6, 4, 1) == [4]
    assert replace(auto, budget=9).tokens(256) == 9
    assert replace(auto, tier="fast").tokens(256) == 25 and not replace(auto, tier="fast").is_auto


@pytest.mark.parametrize("glance", ["separate", "periphery"])
def test_the_first_round_holds_what_the_relevance_asks_for(tiny, picture, monkeypatch, glance):
    monkeypatch.setattr(rounds, "AUTO_MASS", 0.9)
    _, realization, _ = spent(tiny, picture, glance=glance)
    kept = realization.kept_glance.tokens if realization.kept_glance else 0
    room = realization.budget - kept

    def first(*relevance):
        """Of a map with these values and nothing elsewhere."""
        flat = torch.zeros_like(realization.relevance).flatten()
        flat[: len(relevance)] = torch.tensor(relevance)
        relevance = flat.view_as(realization.relevance)
        return rounds.budgets(replace(realization, relevance=relevance))[0]

    assert first(1.0) == max(kept + 1, 4)
    assert first(*[0.5] * (room - 2)) == kept + math.ceil(0.9 * (room - 2))
    assert first(1.0, *[0.01] * 10) == max(kept + 1, 4)  # what hardly counts is left to a later one
    # Nothing is told apart; all of it is asked for.
    assert first() == first(*[1.0] * 40) == realization.budget


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"share": "most"}, "share is 'most', expected a number or 'auto'"),
        ({"share": "auto", "prune": "after"}, "prune 'after'"),
        ({"share": "auto", "allocator": "quadtree"}, "'quadtree'"),
    ],
)
def test_what_auto_cannot_be_with_is_said(options, said):
    with pytest.raises(ValueError, match=said):
        Config(**options)


def test_every_round_is_read_where_none_is_called_sure(tiny, picture):
    ask, method = tiny.prepare(picture, QUESTION), EVERY["arr-coc-rounds"]()
    with pytest.raises(ValueError, match="arr-coc-rounds needs trained weights"):
        method(tiny, ask, QUESTION, 16)
    parts = for_base(tiny.model.config, tiny.attention_layers, ["policy"]).eval()
    parts.unsure = math.inf
    host = tiny.with_policies({"default": parts})
    reduced = {
        name: EVERY[name]()(host, ask, QUESTION, 16) for name in ("arr-coc-auto", method.name)
    }
    first, every = (own.realization.rounds for own in reduced.values())
    assert len(first) == 1 and len(every) == 3 and every[-1].tokens == 16
