"""when="auto": a full look where a focused one would not be sooner on this machine."""

import pytest

from arr_coc.config import Config
from arr_coc.qwen import answer
from arr_coc.qwen.paying import AGAIN, FOCUSED, FULL, STAGES, StageTimes, way_of

QUESTION = "what number is on the small sign?"


def run(look, native, held, seconds):
    """Tokens of a run, and every stage of it as long."""
    tokens = {"native": native, "glance": 36, "encoded": held, "held": held}
    return look, tokens, dict.fromkeys(STAGES[look], seconds)


def test_nothing_is_predicted_before_both_looks_have_run():
    times = StageTimes()
    tokens = {"native": 256, "glance": 36, "encoded": 51, "held": 51}
    assert times.why_not(tokens) is None
    times.note(*run(FULL, 256, 256, 0.01))
    assert times.predicted(FULL, tokens) == pytest.approx(0.03)
    assert times.predicted(FOCUSED, tokens) is None and times.why_not(tokens) is None


def test_the_slower_look_is_told_with_both_times():
    times = StageTimes()
    times.note(*run(FULL, 256, 256, 0.01))
    times.note(*run(FOCUSED, 256, 51, 0.02))
    said = times.why_not({"native": 256, "glance": 36, "encoded": 51, "held": 51})
    assert said == (
        "Answered in full: looking closely at 51 of 256 tokens would take 0.1 s here, "
        "all of them 0.03 s."
    )


def test_between_sizes_seconds_are_linear_and_beyond_them_they_grow():
    times = StageTimes()
    times.note(*run(FULL, 100, 100, 0.1))
    times.note(*run(FULL, 300, 300, 0.5))
    at = {n: times.predicted(FULL, {"native": n}) for n in (200, 600)}
    assert at[200] == pytest.approx(3 * 0.3) and at[600] == pytest.approx(3 * 1.0)


def test_one_slow_run_does_not_decide():
    times = StageTimes()
    for seconds in (0.1, 0.11, 5.0):
        times.note(*run(FULL, 256, 256, seconds))
    times.note(*run(FULL, 256, 256, 0.1))  # the first once more: it counts once
    assert times.predicted(FULL, {"native": 256}) == pytest.approx(0.33)


def test_a_model_answers_in_full_where_focusing_does_not_pay(tiny, picture, monkeypatch):
    config = Config(when="auto")
    monkeypatch.setattr(tiny, "times", StageTimes())
    first = tiny.generate(picture, QUESTION, config=config, max_new_tokens=2)
    assert first.realization is not None and first.measures.in_full is None
    stock = tiny.generate(picture, QUESTION, use_arr_coc=False, max_new_tokens=2)
    monkeypatch.setattr(tiny.times, "predicted", lambda look, *_: 1.0 if look == FULL else 2.0)
    second = tiny.generate(picture, QUESTION, config=config, max_new_tokens=2)
    assert second.text == stock.text and second.realization is None
    assert "would take 2 s here" in second.measures.in_full
    always = tiny.generate(picture, QUESTION, max_new_tokens=2)
    assert always.realization is not None and always.measures.in_full is None


def test_a_full_look_is_taken_once_to_compare_with():
    times, tokens = StageTimes(), {"native": 256, "glance": 36, "encoded": 51, "held": 51}
    times.note(*run(FOCUSED, 256, 51, 0.01))
    assert "was not known yet" in times.why_not(tokens)
    times.note(*run(FULL, 256, 256, 0.1))
    assert times.why_not(tokens) is None


def test_what_is_passed_over_is_tried_again_now_and_then():
    times, tokens = StageTimes(), {"native": 256, "glance": 36, "encoded": 51, "held": 51}
    times.note(*run(FULL, 256, 256, 0.01))
    times.note(*run(FOCUSED, 256, 51, 0.02))
    said = [times.passes_over(tokens, "") for _ in range(2 * AGAIN + 2)]
    assert [number for number, words in enumerate(said) if words is None] == [AGAIN, 2 * AGAIN + 1]


def test_one_process_learns_from_another():
    own, other = StageTimes(), StageTimes()
    own.note(*run(FULL, 256, 256, 0.1))
    other.learn(own.told())
    other.note(*run(FULL, 256, 256, 0.3))
    own.learn(other.told())
    own.learn(other.told())  # what is known already counts once
    for _ in range(AGAIN):  # each time in a worker that then ends
        worker = StageTimes()
        worker.learn(own.told())
        worker.note(*run(FOCUSED, 256, 51, 9.0))
        assert worker.passes_over({"native": 256, "glance": 36, "encoded": 51, "held": 51}, "")
        own.learn(worker.told())
    assert worker.passes_over({"native": 256, "glance": 36, "encoded": 51, "held": 51}, "") is None
    other.learn(own.told())
    assert own.told() == other.told() and own.predicted(FULL, {"native": 256}) == pytest.approx(0.6)


def test_looks_of_another_way_are_not_taken_for_it(tiny, picture, monkeypatch):
    monkeypatch.setattr(tiny, "times", StageTimes())
    usual, tokens = (
        way_of(Config(), "cells"),
        {"native": 80, "glance": 16, "encoded": 16, "held": 16},
    )
    for config in (Config(glance="off"), Config(prune="after"), Config(share="auto")):
        tiny.generate(picture, QUESTION, config=config, max_new_tokens=2)
        assert tiny.times.predicted(FOCUSED, tokens, usual) is None
    assert tiny.times.predicted(FOCUSED, tokens, way_of(Config(prune="after"), "cells")) is not None
    monkeypatch.setattr("arr_coc.realizing.texture", lambda *_: 1 / 0)
    assert tiny.generate(picture, QUESTION, max_new_tokens=2).realization.fallback
    assert tiny.times.predicted(FOCUSED, tokens, usual) is None


def test_rounds_are_remembered_and_passed_over_too(tiny, picture, monkeypatch):
    monkeypatch.setattr(tiny, "times", StageTimes())
    config = Config(share="auto", when="auto")
    tiny.generate(picture, QUESTION, config=config, max_new_tokens=2)
    second = tiny.generate(picture, QUESTION, config=config, max_new_tokens=2)
    assert "was not known yet" in second.measures.in_full


def test_rules_weights_and_allocators_are_told_apart(bundled):
    configs = [
        Config(),
        Config(revision="none"),
        Config(context="cells"),
        Config(allocator="window"),
    ]
    ways = [answer._way(bundled, config, 1) for config in configs]
    assert len(set(ways)) == len(ways)
    assert answer._way(bundled, Config(context="glance"), 1) == ways[0], (
        "it is what the weights take"
    )
    assert answer._way(bundled, None, 1) == "" != answer._way(bundled, None, 3)


def test_what_a_clip_cannot_have_is_refused_however_soon_a_full_look_is(tiny, picture, monkeypatch):
    monkeypatch.setattr(tiny, "times", StageTimes())
    monkeypatch.setattr(tiny.times, "passes_over", lambda *_: "Answered in full.")
    with pytest.raises(ValueError, match="share is 'auto', allowed for a clip"):
        tiny.generate([picture, picture], QUESTION, config=Config(share="auto", when="auto"))


def test_another_word_is_refused():
    with pytest.raises(ValueError, match="when is 'never', expected one of always, auto"):
        Config(when="never")


def test_runs_are_known_by_what_they_were_allowed(bundled, picture, monkeypatch):
    """As predictions are: rounds often hold less than the most that they may."""
    monkeypatch.setattr(bundled, "times", StageTimes())
    config = Config(share="auto")
    grid = bundled.realize(picture, QUESTION, config).grid
    native = grid[0] * grid[1]
    for asked in (config, Config(prune="after")):
        bundled.generate(picture, QUESTION, config=asked, max_new_tokens=2)
    told, _ = bundled.times.told()
    sizes = {
        (stage, "rounds" in way): {n for n, _ in seen} for (_, stage, way), seen in told.items()
    }
    assert sizes["encode", True] == sizes["prefill", True] == {config.tokens(native)}
    assert sizes["encode", False] == {native}  # all of it goes through the encoder
