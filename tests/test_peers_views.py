"""Peers for clips and several pictures: each by its definition, its budget, and where its tokens stand."""

from dataclasses import replace

import pytest
import torch
from test_views import (
    QUESTION,
    TIMES,
    TOLERANCE,
    gap,
    logits,
    masked_stock_logits,
    noise,
    stock_inputs,
)

from arr_coc import components
from arr_coc.attending import native_allocation
from arr_coc.clips import clip_of, fewer_frames
from arr_coc.config import Config
from arr_coc.peers import selection
from arr_coc.peers.clock import timed
from arr_coc.peers.names import VIEWS_WORDS
from arr_coc.peers.views_methods import VIEWS_METHODS
from arr_coc.qwen import batch
from arr_coc.qwen.inputs import Ask
from arr_coc.realizing import Realizer

NEEDS_WEIGHTS = {name for name, make in VIEWS_METHODS.items() if make().needs_weights}
NAMES = sorted(set(VIEWS_METHODS) - NEEDS_WEIGHTS)
# Whole moments, or whole rows and columns, cannot fill every budget.
SLACK = {"fewer-frames", "smaller-frames"}
AFTER = ("evs", "divprune")
PLAIN = ("stock", *sorted(SLACK), *AFTER)  # without a glance: all tokens kept is the stock model


@pytest.fixture(autouse=True)
def no_gradients():
    with torch.inference_mode():
        yield


@pytest.fixture(scope="module")
def clip():
    """Three moments of 4 x 5 tokens; the first two are alike but for a part, the last is another scene."""
    still, other = noise(0), noise(9)
    changed = still.copy()
    changed.paste(noise(7, (64, 64)), (32, 32))
    return clip_of([still, still, changed, changed, other], times=TIMES)


@pytest.fixture(scope="module")
def pictures():
    return [noise(0), noise(1, (96, 160)), noise(2, (224, 64))]


def reduce(name, host, given, budget):
    return VIEWS_METHODS[name]()(host, host.prepare(given, QUESTION), QUESTION, budget)


def test_every_method_is_said_in_words():
    assert list(VIEWS_WORDS) == list(VIEWS_METHODS)
    assert all(make().name == name for name, make in VIEWS_METHODS.items())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("budget", [21, 33, 60])
def test_the_budget_is_spent_and_never_more(tiny, clip, name, budget):
    reduced = reduce(name, tiny, clip, budget)
    spent = 60 if name == "stock" else budget
    held = [len(own) for own in reduced.held]
    assert sum(held) == reduced.visual_tokens == len(reduced.tokens) <= spent
    assert sum(held) == spent if name not in SLACK else sum(held) > 0.55 * spent
    assert len(held) == len(reduced.prompt.grids)
    assert [own.shape for own in reduced.kept] == [(4, 5)] * 3
    if name not in SLACK:
        assert [int(own.sum()) for own in reduced.kept] == held
    for own, kept in zip(reduced.held, reduced.kept):
        assert {len(plane) for plane in own.planes} == {len(own)}
        if name not in SLACK:  # the places in the prompt are those that are said to be kept
            assert torch.equal(own.places.long(), kept.nonzero())


@pytest.mark.parametrize("name", NAMES)
def test_every_block_stands_behind_its_own_time(tiny, clip, name):
    reduced = reduce(name, tiny, clip, 24)
    counts = [len(own) for own in reduced.held]
    text = tiny.tokenizer.decode(reduced.prompt.ids(counts)[0])
    stamps = ["<0.2 seconds>", "<1.4 seconds>", "<3.3 seconds>"]
    if name == "fewer-frames":  # two moments of three, each a little smaller
        assert counts == [12, 12]
        ends = [(clip.times[a] + clip.times[b]) / 2 for a, b in ((0, 1), (3, 4))]
        stamps = [f"<{seconds:.1f} seconds>" for seconds in ends]
    # The template's own mark stands before the whole clip.
    _, *parts = text.split("<|vision_start|>")
    assert len(parts) == len(stamps) + 1
    for before, after, stamp, count in zip(parts, parts[1:], stamps, counts):
        assert before.endswith(stamp) and after.count("<|video_pad|>") == count


def test_without_the_part_for_motion_no_question_asks_for_what_moves(tiny, clip):
    assert {"arr-coc-no-motion"} == NEEDS_WEIGHTS
    with pytest.raises(ValueError, match="with the part motion: there are none"):
        reduce("arr-coc-no-motion", tiny, clip, 24)
    torch.manual_seed(0)
    config, layers = tiny.model.config, tiny.attention_layers
    parts = components.for_base(config, layers, ["heads", "motion"], glances=True).eval()
    host = tiny.with_policies({"default": parts})
    with_it, without = (reduce(n, host, clip, 24) for n in ("arr-coc", "arr-coc-no-motion"))
    assert all(map(torch.equal, with_it.score, without.score)), "a new part says nothing"
    torch.nn.init.constant_(parts.motion.layers[-1].bias, 3.0)
    asked = reduce("arr-coc", host, clip, 24)
    assert not all(map(torch.equal, asked.score, without.score))
    again = reduce("arr-coc-no-motion", host, clip, 24)
    assert all(map(torch.equal, again.score, without.score))
    with pytest.raises(ValueError, match="these hold heads"):
        reduce(
            "arr-coc-no-motion", tiny.with_policies({"default": parts.without("motion")}), clip, 24
        )


# --- each by its definition ---


def test_evs_keeps_the_first_moment_and_what_changed_most_by_one_threshold():
    def turned(*degrees):
        angle = torch.tensor(degrees, dtype=torch.float).deg2rad()
        return torch.stack([angle.cos(), angle.sin()], 1) * torch.arange(1.0, 4)[:, None]

    features = torch.stack([turned(0, 0, 0), turned(10, 0, 90), turned(10, 60, 90)])
    changed = selection.changes(features)
    expected = 1 - torch.tensor([[10.0, 0, 90], [0, 60, 0]]).deg2rad().cos()
    assert changed[0].isinf().all() and gap(changed[1:], expected) < 1e-6
    picks = [selection.best(changed.flatten(), k).tolist() for k in (3, 4, 5, 6)]
    assert picks == [[0, 1, 2], [0, 1, 2, 5], [0, 1, 2, 5, 7], [0, 1, 2, 3, 5, 7]]


def test_evs_on_a_clip_keeps_what_changed(tiny, clip):
    views = tiny.prepare(clip, QUESTION)
    features = [own.features for own in tiny.encode_each(views.pictures, None)]
    reduced = reduce("evs", tiny, clip, 27)
    assert bool(reduced.kept[0].all())
    changed = torch.stack(
        [1 - torch.cosine_similarity(b, a) for a, b in zip(features, features[1:])]
    )
    kept = torch.stack(reduced.kept[1:]).flatten().bool()
    assert kept.sum() == 7
    assert changed.flatten()[kept].min() >= changed.flatten()[~kept].max()


def test_divprune_takes_from_all_moments_at_once(tiny, clip):
    views = tiny.prepare(clip, QUESTION)
    features = torch.cat([own.features for own in tiny.encode_each(views.pictures, None)])
    index = selection.max_min_select(features, 13)
    kept = torch.stack(reduce("divprune", tiny, clip, 13).kept).flatten()
    assert kept.nonzero()[:, 0].tolist() == index.tolist()


@pytest.mark.parametrize(
    ("budget", "expected"),
    [
        (64, (1, (8, 8))),
        (102, (2, (7, 7))),
        (65, (1, (8, 8))),
        (512, (8, (8, 8))),
        (9, (1, (3, 3))),
    ],
)
def test_fewer_frames_spends_most_of_the_budget(budget, expected):
    numbers, grid = fewer_frames(16, 8, (8, 8), budget)
    assert (len(numbers) / 2, grid) == expected
    assert all(a < b for a, b in zip(numbers, numbers[1:]))
    assert (numbers[0], numbers[-1]) == (0, 15), "both ends are shown, as the stock processor does"
    assert fewer_frames(15, 8, (8, 8), 512) == ([*range(15)], (8, 8))


@pytest.mark.parametrize(("budget", "numbers"), [(20, [0, 5]), (40, [0, 2, 3, 5])])
def test_fewer_frames_is_the_stock_model_on_the_clip_of_these_moments(tiny, budget, numbers):
    frames, times = [noise(seed) for seed in range(6)], (0, 0.5, 1.0, 1.7, 3.3, 3.5)
    reduced = reduce("fewer-frames", tiny, clip_of(frames, times=times), budget)
    fewer = clip_of([frames[i] for i in numbers], times=[times[i] for i in numbers])
    alone = tiny.prepare(fewer, QUESTION)
    counts = [len(own) for own in reduced.held]
    assert torch.equal(reduced.prompt.ids(counts), alone.prompt.ids(counts))
    stock = logits(tiny, alone, tiny.encode_each(alone.pictures, None))
    assert torch.equal(logits(tiny, reduced, reduced.held), stock)
    seen = {number // 2 for number in numbers}
    assert [int(own.sum()) for own in reduced.kept] == [20 * (i in seen) for i in range(3)]
    moved = replace(reduced, prompt=tiny.prepare(clip_of(frames[: len(numbers)]), QUESTION).prompt)
    assert gap(logits(tiny, moved, reduced.held)[:, -1], stock[:, -1]) > 0.01, "other times"


def test_smaller_frames_is_the_stock_model_on_smaller_frames(tiny, clip, pictures):
    reduced = reduce("smaller-frames", tiny, clip, 20)
    small = tiny.prepare(clip, QUESTION, grid=(2, 3))
    assert torch.equal(reduced.prompt.positions, small.prompt.positions)
    stock = logits(tiny, small, tiny.encode_each(small.pictures, None))
    # Resized of the source in one step, where preparing does the same.
    assert gap(logits(tiny, reduced, reduced.held), stock) < TOLERANCE
    assert not torch.stack(reduced.kept).any()
    several = reduce("smaller-frames", tiny, pictures, 24)
    native = [picture.tokens for picture in tiny.prepare(pictures, QUESTION).pictures]
    counts = [len(own) for own in several.held]
    assert [h * w for h, w in several.prompt.grids] == counts and sum(counts) <= 24
    for count, full in zip(counts, native):
        assert 0.5 < count / full / (24 / sum(native)) <= 1.2


# --- what is exactly true ---


@pytest.mark.parametrize("name", PLAIN)
def test_identity_all_tokens_are_the_stock_model_bit_for_bit(host, clip, name):
    reduced = reduce(name, host, clip, 60)
    asked = host.prepare(clip, QUESTION)
    stock = host.model(**stock_inputs(host, asked), use_cache=True).logits
    assert torch.equal(logits(host, reduced, reduced.held), stock)
    assert all(own.all() for own in reduced.kept)


@pytest.mark.parametrize("name", AFTER)
def test_after_the_encoder_it_is_the_stock_run_with_the_dropped_columns_masked(host, clip, name):
    asked, reduced = host.prepare(clip, QUESTION), reduce(name, host, clip, 27)
    kept = [own.flatten().nonzero()[:, 0] for own in reduced.kept]
    allocations = [native_allocation(own, (4, 5), torch.zeros(len(own))) for own in kept]
    truth = masked_stock_logits(host, asked, allocations)
    scale = max(1.0, float(truth.abs().max()))
    found = logits(host, reduced, reduced.held)[:, -1]
    assert gap(found, truth) < TOLERANCE * scale


@pytest.mark.parametrize("name", AFTER)
def test_mutants_fail(tiny, clip, name):
    reduced = reduce(name, tiny, clip, 27)
    right = logits(tiny, reduced, reduced.held)[:, -1]
    crossed = [*reduced.held[1:], reduced.held[0]]  # each moment's tokens behind another's time
    shifted = [replace(own, places=own.places + 1) for own in reduced.held]
    planes = [replace(own, deepstack=own.deepstack[::-1]) for own in reduced.held]
    for mutant in (crossed, shifted, planes):
        assert gap(logits(tiny, reduced, mutant)[:, -1], right) > 0.01


# --- ours ---


def test_ours_is_what_is_answered_by(tiny, clip, pictures):
    for given in (clip, pictures):
        asked = tiny.prepare(given, QUESTION)
        config = Config(budget=15)
        reduced = reduce("arr-coc", tiny, given, 15)
        decided = tiny.realize(given, QUESTION, config)
        for one, other in zip(reduced.realization.views, decided.views):
            assert torch.equal(one.allocation.cells, other.allocation.cells)
        answer = tiny.generate(given, QUESTION, config=config, max_new_tokens=5)
        (mine,) = batch.answer_batch(tiny, [asked.prompt], [reduced.held], 5)
        assert mine.text == answer.text
        assert batch.first_token(tiny, reduced.prompt, reduced) == mine.ids[0]
        assert reduced.visual_tokens == answer.measures.visual_tokens == 15
        assert [own.shape for own in reduced.score] == [picture.grid for picture in asked.pictures]


def test_without_blending_each_moment_has_its_own_relevance(tiny, clip):
    blended, plain = (reduce(name, tiny, clip, 15) for name in ("arr-coc", "arr-coc-unblended"))
    for view, own in zip(plain.realization.views, plain.realization.own):
        assert torch.equal(view.relevance, own)
    pairs = zip(blended.realization.own, plain.realization.own)
    assert all(torch.equal(*pair) for pair in pairs), "the same glance and maps"
    assert any(
        not torch.equal(a.relevance, b.relevance)
        for a, b in zip(blended.realization.views, plain.realization.views)
    )


def test_each_alone_is_decided_as_a_picture(tiny, clip):
    reduced = reduce("arr-coc-each-alone", tiny, clip, 25)
    assert [len(own) for own in reduced.held] == [9, 8, 8]
    asked = tiny.prepare(clip, QUESTION)
    for number, (moment, share) in enumerate(zip(asked.pictures, (9, 8, 8))):
        ask = Ask(moment, tiny.inputs.chat.about_pictures([moment.grid], QUESTION))
        config = Config(glance="separate", budget=share)
        alone = Realizer(tiny, tiny.policy(config)).realize(ask, QUESTION, config)
        assert torch.equal(reduced.score[number], alone.relevance[0])
        found = reduced.realization.views[number].allocation.cells
        assert torch.equal(found, alone.allocation.cells)


# --- what all of them share ---


@pytest.mark.parametrize("name", NAMES)
def test_everything_is_counted_and_the_clock_takes_a_clip(tiny, clip, name):
    found = timed(tiny, VIEWS_METHODS[name](), clip, QUESTION, QUESTION, lambda tokens: tokens // 2)
    assert found.reduced.visual_tokens <= (60 if name == "stock" else 30)
    expected = {"preprocess", "encode", "prefill"}
    if name.startswith("arr-coc"):
        expected |= {"glance", "relevance"}
    elif name != "stock":
        expected.add("select")
    assert set(found.stages) == expected
    assert 0.5 * found.seconds < sum(found.stages.values()) <= found.seconds


def test_a_batch_answers_as_one_by_one_and_is_of_one_modality(tiny, clip, pictures):
    rows = [reduce(name, tiny, clip, 27) for name in ("stock", "evs", "arr-coc", "fewer-frames")]
    prompts, held = [row.prompt for row in rows], [row.held for row in rows]
    together = batch.answer_batch(tiny, prompts, held, 5)
    for answer, prompt, own in zip(together, prompts, held):
        assert answer.ids == batch.answer_batch(tiny, [prompt], [own], 5)[0].ids
    other = reduce("stock", tiny, pictures, 20)
    with pytest.raises(ValueError, match="a batch is about image and video, expected one"):
        batch.answer_batch(tiny, [prompts[0], other.prompt], [held[0], other.held], 5)


def test_what_cannot_be_done_is_refused(tiny, clip, pictures):
    for name, given, budget, said in (
        ("evs", clip, 19, "budget 19 is below the minimum of 20 tokens"),
        ("smaller-frames", clip, 2, "budget 2 is below the minimum of 3 tokens"),
        ("arr-coc-each-alone", clip, 11, "below the minimum of 12"),
        ("divprune", clip, 61, "budget 61 exceeds"),
        ("evs", pictures, 40, "evs is given 3 pictures, allowed is a clip"),
        ("fewer-frames", pictures, 40, "fewer-frames is given 3 pictures, allowed is a clip"),
    ):
        with pytest.raises(ValueError, match=said):
            reduce(name, tiny, given, budget)
