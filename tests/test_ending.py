"""Ending: why an answer stopped is said, what was cut is not judged, and no number is NaN."""

import json
import time
from dataclasses import replace

import pytest
import torch
from conftest import tiny_host
from test_comparing import Fake, request

from arr_coc.page import board, post, results
from arr_coc.service import comparing
from arr_coc.service.looks import is_cut


def last(host, picture, **options):
    *_, answer = host.stream(picture, "what colour is the ball?", **options)
    return answer.measures


def test_the_end_token_the_length_and_the_deadline_are_told_apart(bundled, picture):
    assert last(bundled, picture).ended == "end"
    assert last(bundled, picture, max_new_tokens=1).ended == "length"
    late = last(bundled, picture, max_new_tokens=64, deadline_s=0.0)
    assert (late.ended, late.new_tokens) == ("time", 1)


def test_only_writing_counts_against_the_deadline(tiny, picture, monkeypatch):
    slow, forward = [], tiny.model.forward

    def first_is_slow(*args, **options):
        if not slow:
            slow.append(time.sleep(0.5))
        return forward(*args, **options)

    monkeypatch.setattr(tiny.model, "forward", first_is_slow)
    answer = tiny.generate(picture, "what?", use_arr_coc=False, max_new_tokens=2, deadline_s=0.4)
    assert slow and (answer.measures.ended, answer.measures.new_tokens) == ("length", 2)


def test_it_reaches_the_api_s_records(tiny, picture):
    look = comparing.compare(tiny, picture, "what?", max_new_tokens=3)["focused"]
    assert (look["ended"], look["new_tokens"]) == ("length", 3) and is_cut(look)


@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
def test_logits_that_are_no_numbers_are_an_error_in_a_sentence(picture, poison):
    host = tiny_host()
    with torch.no_grad():
        host.model.lm_head.weight[7] = poison
    result = comparing.compare(host, picture, "what?", shrunk=True)
    for look in ("full", "focused"):
        assert "overflowed" in result[look]["error"] and result[look]["done"]
        assert result[look]["first_token_entropy"] is None
    json.dumps(result, allow_nan=False)


def test_no_entropy_that_is_no_number_leaves():
    class Broken(Fake):
        def stream(self, *args, **options):
            for answer in super().stream(*args, **options):
                if answer.measures:
                    answer.measures = replace(answer.measures, first_token_entropy=float("nan"))
                yield answer

    result = comparing.last(comparing.compare_stream(Broken(), request()))
    assert result["full"]["first_token_entropy"] is None


CUT = {
    "length": ({"ended": "length", "new_tokens": 32}, "cut off after 32 tokens"),
    "time": (
        {"ended": "time", "stages_s": {"prefill": 9.0, "decode": 7.0}},
        "stopped after 7 s",
    ),
}


@pytest.mark.parametrize("reason", CUT)
def test_what_was_cut_is_not_judged_on_page_card_and_note(reason, monkeypatch):
    changes, words = CUT[reason]
    result = comparing.last(comparing.compare_stream(Fake(), request()))
    result["focused"] |= {**changes, "text": "1"}
    card = board.frame.Example(None, "what colour?", "1", note="A true sentence.")
    note = results.remark(result, card, as_given=True)
    assert note == results.CUT and "judged" in note
    shown = board.live(request().image, result, "1", note)
    answers = board.board(shown).answers
    assert words in answers and answers.count("arr-mark") == 1 and "right" not in answers
    written = []
    monkeypatch.setattr(
        post, "write", lambda paint, at, lines, colour: written.append((lines, colour)) or at[1]
    )
    post.png(shown)
    lines = [colour for lines, colour in written if words in " ".join(lines.lines)]
    assert lines == [post.INK]


def test_old_recordings_without_a_reason_were_complete():
    look = comparing.last(comparing.compare_stream(Fake(), request()))["full"]
    del look["ended"]
    assert not is_cut(look) and "arr-right" in results.answers(look, look, "red")


def float16_host(poisoned):
    """A host in float16 whose text model leaves its range; in float32 it does not."""
    host = tiny_host(torch.float16)
    layer = host.model.model.language_model.layers[0 if poisoned == "glance" else 3]
    with torch.no_grad():
        layer.mlp.down_proj.weight.mul_(2e4)
    return host


@pytest.mark.parametrize("poisoned", ["glance", "last layer"])
def test_what_overflows_in_float16_is_answered_once_more_in_float32(picture, poisoned):
    host = float16_host(poisoned)
    result = comparing.compare(host, picture, "what?", max_new_tokens=3)
    for look in ("full", "focused"):
        assert not result[look]["error"] and result[look]["first_token_entropy"] is not None
    assert not host.is_narrow and host.widen() is False
    assert [said for said in host.notices if "overflowed" in said] == [
        "float16 overflowed on a picture; the model runs in float32 since."
    ]
    wide = float16_host(poisoned)
    wide.widen()
    alone = wide.generate(picture, "what?", use_arr_coc=False, max_new_tokens=3)
    assert result["full"]["text"] == alone.text


def test_float16_that_holds_stays(picture):
    host = tiny_host(torch.float16)
    assert host.generate(picture, "what?", max_new_tokens=2).done
    assert host.is_narrow and host.notices == []
