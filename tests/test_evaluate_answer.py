"""What the evaluation asks of a host: batched answers, shared encodes, counted and timed work."""

import json
import types
from pathlib import Path

import pytest
import torch

from arr_coc.config import HALO, Config, glance_tokens
from arr_coc.evaluate import rows as evaluate_rows
from arr_coc.evaluate import timing
from arr_coc.evaluate.questions import Item, Ref
from arr_coc.peers.base import SharedEncodes
from arr_coc.peers.methods import METHODS
from arr_coc.peers.ours import ARRCOC
from arr_coc.qwen import batch
from arr_coc.qwen.cells import with_halo, with_surroundings
from arr_coc.qwen.layers import CACHE

ROOT = Path(__file__).parent.parent
QUESTIONS = ("what colour is the ball?", "is there a sign in the picture?", "number?")


# ------------------------------------------------------------------------------ batched answers


def method_named(name):
    """One of `METHODS`, or ARR-COC whose glance stays in the KV cache, whatever the default is."""
    periphery = ARRCOC(Config(glance="periphery"), "periphery")
    return periphery if name == "periphery" else METHODS[name]()


def reduce(host, picture, method, budget=24):
    chosen = method_named(method)
    return [chosen(host, host.prepare(picture, q), q, budget) for q in QUESTIONS]


@torch.inference_mode()
def single(host, reduced, max_new_tokens):
    """The ids of the stock model's own `generate`, from the periphery's cache where there is one."""
    places = reduced.held.places
    ids = reduced.prompt.ids(len(places))
    cache = reduced.periphery.cache if reduced.periphery else host.new_cache()
    out = host.model.generate(
        input_ids=ids,
        position_ids=reduced.prompt.position_ids(places),
        mm_encoder_outputs=reduced.tokens.encoder_outputs(),
        **{CACHE: cache},
        max_new_tokens=max_new_tokens,
        do_sample=False,
    )
    return tuple(out[0, ids.shape[1] :].tolist())


@pytest.mark.parametrize("method", ["stock", "arr-coc", "periphery", "downsample"])
def test_batched_answers_are_the_single_ones(host, picture, method):
    reduced = reduce(host, picture, method)
    held = [r.held for r in reduced]
    with torch.inference_mode():
        batched = batch.answer_batch(host, [r.prompt for r in reduced], held, 6)
    assert [a.ids for a in batched] == [single(host, r, 6) for r in reduced]


def test_batched_answers_are_those_of_the_host(bundled, picture):
    for use_arr_coc, method in ((False, "stock"), (True, "arr-coc")):
        reduced = reduce(bundled, picture, method, budget=bundled_budget(bundled, picture))
        held = [r.held for r in reduced]
        with torch.inference_mode():
            batched = batch.answer_batch(bundled, [r.prompt for r in reduced], held, 8)
        for question, answer in zip(QUESTIONS, batched):
            alone = bundled.generate(picture, question, use_arr_coc, max_new_tokens=8)
            assert (answer.text, len(answer.ids)) == (alone.text, alone.measures.new_tokens)


def bundled_budget(host, picture):
    return evaluate_rows.budget_tokens(0.2, host.picture(picture).tokens)


def test_the_first_token_is_the_batch_s(host, picture):
    for reduced in reduce(host, picture, "periphery"):
        assert reduced.periphery is not None
        held = reduced.held
        with torch.inference_mode():
            (answer,) = batch.answer_batch(host, [reduced.prompt], [held], 1)
            assert batch.first_token(host, reduced.prompt, reduced) == answer.ids[0]


def test_entropy_is_of_the_first_answer_token(tiny, picture):
    (reduced, *_) = reduce(tiny, picture, "stock")
    with torch.inference_mode():
        (answer,) = batch.answer_batch(tiny, [reduced.prompt], [reduced.tokens], 1)
        logits = tiny.model(
            input_ids=reduced.prompt.ids(len(reduced.tokens)),
            position_ids=reduced.prompt.position_ids(reduced.tokens.places),
            mm_encoder_outputs=reduced.tokens.encoder_outputs(),
        ).logits[0, -1]
    p = logits.softmax(-1)
    assert answer.entropy == pytest.approx(float(-(p * p.log()).nansum()), abs=1e-4)


def test_rows_stop_at_an_end_token(tiny, picture, monkeypatch):
    reduced = reduce(tiny, picture, "stock")
    prompts, held = [r.prompt for r in reduced], [r.tokens for r in reduced]
    with torch.inference_mode():
        free = batch.answer_batch(tiny, prompts, held, 5)
        monkeypatch.setattr(tiny.model.generation_config, "eos_token_id", free[0].ids[1])
        ended = batch.answer_batch(tiny, prompts, held, 5)
    for a, b in zip(free, ended):
        stop = a.ids.index(free[0].ids[1]) + 1 if free[0].ids[1] in a.ids else 5
        assert b.ids == a.ids[:stop]


def test_unequal_rows_are_refused(tiny):
    with pytest.raises(ValueError, match="0 prompts for 0 token sets"):
        batch.answer_batch(tiny, [], [], 1)


# ------------------------------------------------------------------------------- what is shared


@pytest.mark.parametrize("method", ["stock", "visionzip", "arr-coc-after", "divprune"])
def test_sharing_an_encode_changes_nothing(bundled, picture, method, monkeypatch):
    """Each method twice with sharing, after the others: the same tokens, and no second encode."""
    ask, encodes = bundled.prepare(picture, QUESTIONS[0]), SharedEncodes()
    expected = METHODS[method]()(bundled, ask, QUESTIONS[0], 20).tokens
    encoded, encode_each = [], bundled.encode_each
    monkeypatch.setattr(
        bundled, "encode_each", lambda p, how: encoded.append(p) or encode_each(p, how)
    )
    for name in ("stock", method, method):
        shared = METHODS[name]()(bundled, ask, QUESTIONS[0], 20, encodes).tokens
    assert torch.equal(shared.features, expected.features)
    assert all(torch.equal(a, b) for a, b in zip(shared.deepstack, expected.deepstack, strict=True))
    listened = 2 if method == "visionzip" else 0  # it hooks the encoder, which must really run
    assert len(encoded) == 1 + listened  # a glance encodes another, smaller picture by itself


@pytest.mark.parametrize("method", [n for n, make in METHODS.items() if not make().reads_question])
def test_blind_methods_do_not_read_the_question(bundled, picture, method):
    first, second, *_ = reduce(bundled, picture, method)
    assert torch.equal(first.kept, second.kept)
    assert torch.equal(first.tokens.features, second.tokens.features)
    assert first.prompt.prefix.equal(second.prompt.prefix)


def test_a_shared_reduction_keeps_each_question_s_prompt(bundled, picture):
    source = [Item(Ref("0", i), picture, q, "all", ("x",)) for i, q in enumerate(QUESTIONS)]
    pairs = frozenset({("uniform", 0.3), ("stock", 1.0)})
    options = dict(dataset="d", scoring="exact", max_new_tokens=4)
    methods = {name: METHODS[name]() for name, _ in pairs}
    together = evaluate_rows.measure_items(
        bundled, methods, source, [pairs] * 3, batch=3, **options
    )
    apart = evaluate_rows.measure_items(bundled, methods, source, [pairs] * 3, batch=1, **options)
    order = ("index", "method")
    for a, b in zip(*(sorted(r, key=lambda x: [x[k] for k in order]) for r in (together, apart))):
        assert a.pop("entropy") == pytest.approx(b.pop("entropy"), abs=1e-4)
        assert a == b


def test_a_fallback_is_not_evaluated():
    broken = types.SimpleNamespace(realization=types.SimpleNamespace(fallback="KeyError: x"))
    with pytest.raises(RuntimeError, match="arr-coc fell back: KeyError: x"):
        evaluate_rows.check_fallback("arr-coc", [broken])


# ----------------------------------------------------------------------------------------- time


def test_the_cost_curve_gives_back_what_the_benchmark_saw():
    report = json.loads((ROOT / timing.CURVE).read_text())
    curve = timing.CostCurve.load(ROOT / timing.CURVE)
    stock = next(e for e in report["summary"] if (e["case"], e["image_tokens"]) == ("stock", 1024))
    work = timing.Work(timing.Counter({1024: 5}), timing.Counter({1044: 4}), 5, 4)
    seconds = curve.seconds(work, native_tokens=1024, prompt_tokens=20)
    parts = sum(stock[f"{s}_s"]["median"] for s in ("encode", "prefill"))
    assert seconds == pytest.approx(parts + curve.preprocess)
    # The first two of four layers: of FastV's choice two of the 28 there, of a glance half of them.
    partly = timing.Work(timing.Counter(), timing.Counter({1044: 2}), 5, 4)
    for counts_layers, share in ((True, 2 / 28), (False, 1 / 2)):
        spent = curve.seconds(partly, 1024, 20, counts_layers=counts_layers) - curve.preprocess
        assert spent == pytest.approx(stock["prefill_s"]["median"] * share)
    # A quarter of the tokens on a small image is a quarter on a large one.
    small = timing.Work(timing.Counter({64: 5}), timing.Counter(), 5, 4)
    large = timing.Work(timing.Counter({256: 5}), timing.Counter(), 5, 4)
    assert curve.seconds(small, 256, 20) == curve.seconds(large, 1024, 20)


def test_all_work_is_counted_and_no_hook_stays(tiny, picture):
    visual, text = tiny.model.model.visual, tiny.model.model.language_model
    with torch.inference_mode(), timing.counted(tiny) as work:
        ask = tiny.prepare(picture, QUESTIONS[0])
        reduced = method_named("periphery")(tiny, ask, QUESTIONS[0], 16)
        batch.first_token(tiny, reduced.prompt, reduced)
    glance, fovea = len(reduced.periphery.tokens), len(reduced.tokens)
    seen = with_halo(reduced.realization.allocation, HALO)
    seen = len(with_surroundings(seen, glance_tokens(ask.picture.grid)))
    assert seen > fovea
    assert work.vision == {glance: len(visual.blocks), seen: len(visual.blocks)}
    prefix, suffix = ask.prompt.prefix.shape[1], ask.prompt.suffix.shape[1]
    read = reduced.periphery.depth
    assert 0 < read < len(text.layers)
    # What stays in the cache runs the other layers too, by then without the question.
    rest = {prefix + glance + suffix: read, prefix + glance: len(text.layers) - read}
    assert work.text == {fovea + suffix: len(text.layers)} | rest
    assert not any(b._forward_pre_hooks for b in (*visual.blocks, *text.layers))


def test_ratios_are_taken_within_a_question():
    rows = [
        {"question": q, "method": m, "budget": b, "seconds": s, "modelled": s}
        for q, (stock, ours) in enumerate([(2.0, 1.0), (8.0, 2.0)])
        for m, b, s in (("stock", 1.0, stock), ("arr-coc", 0.2, ours))
    ]
    entries = {e["method"]: e for e in timing.summarise_time(rows)}
    assert entries["stock"]["ratio_to_stock"]["value"] == 1.0
    assert entries["arr-coc"]["ratio_to_stock"] == {"value": 0.375}  # two hold no interval
    more = [row | {"question": row["question"] + 2 * n} for n in range(3) for row in rows]
    entries = {e["method"]: e for e in timing.summarise_time(more)}
    assert entries["arr-coc"]["ratio_to_stock"]["interval"] == [0.25, 0.5]


def test_a_stage_that_some_pictures_do_without_counts_as_nothing_there():
    rows = [
        {"question": q, "method": "stock", "budget": 1.0, "seconds": 1.0, "encode_s": 1.0, **more}
        for q, more in enumerate([{"select_s": 0.5}, {}])
    ]
    (entry,) = timing.summarise_time(rows)
    assert entry["stages_s"] == {"encode": 1.0, "select": 0.25}
