"""What stands around a page: flawed cards, an owner's files and variables, large requests, a silent Hub."""

import asyncio
import base64
import http.client
import io
import json
import threading
from types import SimpleNamespace

import pytest
from app_server import server
from PIL import Image

from arr_coc import naming
from arr_coc.hub import check, files
from arr_coc.page import changes, frame, hero, moments, sense, wording
from arr_coc.page.drawn import clean_writing
from arr_coc.page.model_handlers import ModelHandlers
from arr_coc.page.preview import MOST_BYTES, Bounded
from arr_coc.page.stamps import Turn
from arr_coc.qwen import fetching, loading, weights
from arr_coc.service import intake, journal, labels, loader
from arr_coc.serving.client import UNSENDABLE, Client


def test_cards_that_cannot_be_read_are_left_out_and_said(tmp_path, caplog):
    Image.new("RGB", (64, 64)).save(tmp_path / "good.jpg")
    whole = (tmp_path / "good.jpg").read_bytes()
    (tmp_path / "short.jpg").write_bytes(whole[: len(whole) // 2])
    card = {"file": "good.jpg", "question": "what?", "answer": "a", "boxes": None}
    bad = [{**card, "file": "short.jpg"}, {"file": "good.jpg", "question": "what?"}, "good.jpg"]
    listed = tmp_path / "examples.json"
    listed.write_text(json.dumps([card, *bad]), encoding="utf-8-sig")
    (left,) = frame.load_examples(tmp_path)
    assert left.path.name == "good.jpg" and left.boxes == ()
    assert caplog.text.count("is left out") == len(bad)
    for flawed in ("{", json.dumps({"a": card})):
        listed.write_text(flawed)
        assert frame.load_examples(tmp_path) == []
    assert caplog.text.count("there are no cards") == 2


def test_what_visitors_asked_and_said_is_never_served(monkeypatch, tmp_path):
    assert journal.never_served() == []
    monkeypatch.setenv(journal.LOG, f" {tmp_path}/log.jsonl\n")
    monkeypatch.setenv(labels.LABELS, f"{tmp_path}/labels.jsonl")
    assert journal.never_served() == [f"{tmp_path}/log.jsonl", f"{tmp_path}/labels.jsonl"]


def test_a_request_that_declares_too_much_is_refused():
    host = server().url.removeprefix("http://").rstrip("/")
    asked = http.client.HTTPConnection(host, timeout=60)
    asked.putrequest("POST", "/gradio_api/call/compare")
    asked.putheader("Content-Type", "application/json")
    asked.putheader("Content-Length", str(MOST_BYTES + 1))
    asked.endheaders()
    told = asked.getresponse()
    assert told.status == 413 and b"MiB" in told.read()
    asked.close()


def test_a_request_that_turns_out_too_much_is_hung_up_on():
    got = []

    async def app(scope, receive, send):
        while (message := await receive())["type"] == "http.request":
            got.append(len(message["body"]))

    async def receive():
        return {"type": "http.request", "body": b"a" * (MOST_BYTES // 4), "more_body": True}

    scope = {"type": "http", "headers": []}
    asyncio.run(Bounded(app)(scope, receive, None))
    assert sum(got) == MOST_BYTES


def test_a_hub_that_is_silent_holds_the_page_for_seconds_only(monkeypatch):
    silent = threading.Event()
    monkeypatch.setattr("huggingface_hub.hf_hub_download", lambda *_, **__: silent.wait(60) and "")
    monkeypatch.setattr(loader, "HUB_WAITS_S", 0.05)
    loader.is_for_another.cache_clear()
    try:
        assert loader.is_for_another("me/weights", None) is False
    finally:
        silent.set()
        loader.is_for_another.cache_clear()


@pytest.mark.parametrize("key", ["sk-secret\nmore", "sk-sécret"])
def test_a_key_that_cannot_be_sent_is_refused_and_not_repeated(key):
    with pytest.raises(ValueError, match="cannot be sent") as refused:
        Client("http://127.0.0.1:9", key=key)
    assert str(refused.value) == UNSENDABLE
    with pytest.raises(ValueError, match="address is not understood"):
        Client("http://127.0.0.1:port")


@pytest.mark.parametrize("around", [" {}", "{}\n", "\t{} "])
def test_space_around_a_variable_means_nothing(monkeypatch, around):
    for name, value in {
        "ARR_COC_BASE": "someone/base",
        "ARR_COC_WEIGHTS": "someone/weights",
        "ARR_COC_DTYPE": "bfloat16",
        "ARR_COC_BASE_REVISION": "v1",
    }.items():
        monkeypatch.setenv(name, around.format(value))
    assert loading.default_base() == loader.base_to_come() == "someone/base"
    assert weights.default_weights(True) == "someone/weights"
    assert str(loading.default_dtype(SimpleNamespace(type="cpu"))) == "torch.bfloat16"
    assert fetching.revision_of("someone/base") == "v1"
    for name in ("ARR_COC_BASE", "ARR_COC_BASE_REVISION", "ARR_COC_SERVER"):
        monkeypatch.setenv(name, " ")
    assert loader.base_to_come() == "bundled" and not loader.is_served()
    assert fetching.revision_of(loading.QWEN) is None


@pytest.mark.parametrize(
    ("said", "is_one"), [("true", True), ("1", True), ("false", False), ("", False)]
)
def test_zerogpu_is_what_the_platform_says(monkeypatch, said, is_one):
    monkeypatch.setenv("SPACES_ZERO_GPU", said)
    assert naming.on_zerogpu() is is_one


def test_a_space_that_was_cloned_has_one_thumbnail():
    once = files.with_thumbnail("---\ntitle: A\n---\nText\n", "me/one")
    twice = files.with_thumbnail(once, "me/two")
    assert twice.count("thumbnail:") == 1 and "me/two" in twice


def test_a_base_without_weights_is_checked_too(tmp_path, capsys):
    told = check.check(check.Check(str(tmp_path), None, "", None))
    assert "base" in told["wrong"]
    assert "base" not in check.check(check.Check("bundled", None, "", None))["wrong"]
    assert "is a Qwen3-VL" in capsys.readouterr().out


def test_base64_may_come_in_lines():
    packed = io.BytesIO()
    Image.new("RGB", (64, 48), "red").save(packed, "PNG")
    lines = base64.encodebytes(packed.getvalue()).decode()
    assert intake.open_image(f"data:image/png;base64,{lines}").size == (64, 48)


def test_what_a_map_is_worth_can_be_said_without_a_session(monkeypatch, tmp_path):
    monkeypatch.setenv(labels.LABELS, str(tmp_path / "labels.jsonl"))
    sense.makes_sense("where is it?", [0.1, 0.2, 0.3], True, SimpleNamespace())
    assert (tmp_path / "labels.jsonl").read_text().count("\n") == 1


def test_a_comparison_begins_once_and_not_after_its_end():
    turn = Turn()
    assert turn.compares("5") and not turn.compares("5") and turn.holds("5")
    turn.take("9")  # Stop came before the comparison that it ends
    assert not turn.compares("7") and turn.compares("10") and turn.compares("")


def test_of_a_run_that_was_ended_before_it_came_nothing_changes():
    turn = Turn(newest=9)
    handlers = ModelHandlers(SimpleNamespace(visited=lambda _: None), None, None)
    assert list(handlers.on_compare(turn, "7")) == [changes.Compared()]


@pytest.mark.parametrize(
    ("question", "words"),
    [
        ("Number on the blue door", wording.OTHER_FORM),
        ("what's the number on the blue door?", wording.OTHER_FORM),
        ("What is the number on the blue door?", ""),
        ("please tell me the number on the blue door", ""),
        ("Is there a boat?", ""),
    ],
)
def test_a_form_that_was_not_learned_is_said(question, words):
    assert wording.unlike_learned(question) == words


def test_an_empty_sign_is_told_what_it_may_hold():
    for empty in ("", "  ", None):
        with pytest.raises(intake.IntakeError, match="1 to 8 letters"):
            clean_writing(empty)


def test_two_looks_that_say_nothing_say_the_same():
    look = {"text": "", "visual_tokens": 9, "error": None, "time_to_first_token_s": 1.0}
    result = {
        "question": "what?",
        "full": look,
        "focused": look,
        "shrunk": None,
        "tokens_kept": 9,
        "tokens_total": 99,
        "ratio": 1.0,
    }
    assert hero._focused(result, None, 1).startswith("Answers nothing from 9 of 99 tokens")


def test_answers_about_a_clip_are_marked_where_the_right_one_is_known():
    look = {
        "text": "up",
        "visual_tokens": 9,
        "visual_tokens_full": 9,
        "error": None,
        "time_to_first_token_s": 1.0,
    }
    result = {
        "question": "which way?",
        "full": look,
        "focused": {**look, "text": "right"},
        "fewer": None,
        "decided": None,
        "notice": "",
        "ratio": None,
        "bundled": True,
    }
    told = moments.shown([], result, 20, answer="up")
    assert told.count("✓ right") == 1 and told.count("✗ wrong") == 1
    assert moments.OWN_FILES in told
    assert moments.OWN_FILES not in moments.shown([], result, 20, recorded="2 threads")
