"""Whether a map makes sense: asked where an owner asks, a line for training, one a visitor and map."""

import json
import multiprocessing
import os
import stat
from pathlib import Path
from types import SimpleNamespace

import gradio as gr
import pytest

from arr_coc.page import frame, sense
from arr_coc.page.refusals import spoken
from arr_coc.service import labels
from arr_coc.service.intake import IntakeError
from arr_coc.train.people import People

QUESTION = "How many cups are there?"
ANNA, BEN = SimpleNamespace(session_hash="anna"), SimpleNamespace(session_hash="ben")


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.setenv(labels.LABELS, str(tmp_path / "people.jsonl"))
    return tmp_path / "people.jsonl"


def shown(run="7", tensions=(0.3, 0.6, 0.8), question=QUESTION, **where):
    """As much of a comparison on the page as is read of it."""
    decided = dict(zip(("compress", "exploit", "focus"), tensions)) | {"fallback": None} | where
    stamp = {"run": run, "picture": "a", "question": question, "settings": []}
    return {"where": decided, "stamp": stamp, "result": {"question": question}}


def rows(file: Path) -> list[dict]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def said(answer, of, seen="7", who=ANNA):
    return sense.on_answer(answer, of, seen, "", who)[1]


def test_it_is_off_by_default(monkeypatch, tmp_path):
    monkeypatch.delenv(labels.LABELS, raising=False)
    monkeypatch.chdir(tmp_path)
    assert sense.ask() is None
    with pytest.raises(gr.Error, match="did not turn it on"):
        sense.makes_sense(QUESTION, [0.1, 0.2, 0.3], True, ANNA)
    assert said("Yes", shown()) == spoken(labels.OFF) and not list(tmp_path.iterdir())


def test_what_the_page_wrote_is_read_as_a_prior(file):
    assert said("Yes", shown()) == spoken("Kept: yes.")
    assert said("Yes", shown(tensions=(0.1, 0.2, 0.4)), who=BEN) == spoken("Kept: yes.")
    said("No", shown(question="Where is it?"))
    people = People.read(file)
    found = people.target("how many cups are there")
    assert (found.compress, found.exploit, found.focus) == pytest.approx((0.2, 0.4, 0.6))
    assert people.questions == [QUESTION]


def test_nothing_but_the_told_is_kept(file):
    said("Yes", shown())
    (row,) = rows(file)
    assert set(row) == {"question", "makes_sense", "tensions", "label"}
    assert len(row["label"]) == 16 and "anna" not in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    for word in ("question", "tensions", "random", "not the picture"):
        assert word in labels.TOLD


def test_a_second_press_changes_the_answer(file):
    other = {"question": "Where is it?", "makes_sense": True, "tensions": [0, 0, 0]}
    for answer in ("Yes", "No"):
        said(answer, shown())
    said("Yes", shown(), who=BEN)  # another visitor counts on their own
    said("No", shown(run="8"), seen="8")  # and so does another comparison
    assert len({row["label"] for row in rows(file)}) == 3
    with file.open("a") as written:
        written.write(json.dumps(other) + "\n")
    assert People.read(file).questions == ["Where is it?"]  # 1 yes, 2 no; doubled it were 2 and 2


@pytest.mark.parametrize(
    ("of", "seen", "sentence"),
    [
        (None, "7", sense.NOT_KEPT),  # another run has begun, or nothing is finished
        (shown(run="8"), "7", sense.OLDER),
        (shown(fallback="too small"), "7", sense.NO_MAP),
        ({**shown(), "where": None}, "7", sense.NO_MAP),
    ],
)
def test_only_the_map_that_is_seen_is_judged(file, of, seen, sentence):
    assert sense.on_answer("Yes", of, seen, "", ANNA)[:2] == (None, spoken(sentence))
    chosen = None if sentence == sense.OLDER else "No"  # what was kept of this map stays chosen
    assert sense.on_answer("Yes", of, seen, "No", ANNA)[:2] == (chosen, spoken(sentence))
    assert not file.exists()


@pytest.mark.parametrize("kept", [None, "yes", 7, ["Yes"], {"a": 1}, "<b>"])
def test_only_an_answer_stays_chosen(file, kept):
    assert sense.on_answer("Perhaps", shown(), "7", kept, ANNA)[0] is None
    assert sense.on_answer(["Yes"], shown(), "7", kept, ANNA)[0] is None


@pytest.mark.parametrize(
    ("question", "tensions", "yes", "sentence"),
    [
        ("", [0, 0, 0], True, "question"),
        ("?!", [0, 0, 0], True, "no word"),
        (QUESTION, [0, 2, 0], True, "three numbers from 0 to 1"),
        (QUESTION, [0, True, float("nan")], True, "three numbers"),
        (QUESTION, [0, 10**400, 1], True, "three numbers"),
        (QUESTION, "abc", True, "three numbers"),
        (QUESTION, [0, 0, 0], "yes", "true or false"),
    ],
)
def test_what_a_program_sends_is_checked(file, question, tensions, yes, sentence):
    with pytest.raises(gr.Error, match=sentence):
        sense.makes_sense(question, tensions, yes, ANNA)
    assert not file.exists()
    assert sense.makes_sense(QUESTION, [0, 0.5, 1], False, ANNA) == "Kept: no."


def test_what_cannot_be_written_is_a_sentence(file, tmp_path, monkeypatch):
    said("Yes", shown())
    monkeypatch.setattr(labels, "LARGEST", file.stat().st_size + 5)
    assert said("No", shown()) == spoken(labels.FULL) and len(rows(file)) == 1
    monkeypatch.setattr(labels, "LARGEST", 2**20)
    half = os.write
    monkeypatch.setattr(labels.os, "write", lambda to, line: half(to, line[:9]))  # a full disk
    assert said("No", shown()) == spoken(labels.UNWRITTEN) and len(rows(file)) == 1
    monkeypatch.undo()
    monkeypatch.setenv(labels.LABELS, str(tmp_path))  # a folder
    assert said("No", shown()) == spoken(labels.UNWRITTEN)


def _many(number):
    for place in range(20):
        labels.keep(f"{number}", f"{place}", "x" * 400, [0.1, 0.2, 0.3], True)


def test_lines_of_several_processes_stay_whole(file):
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_many, args=(number,)) for number in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    assert len({row["label"] for row in rows(file)}) == 60


def test_visitors_are_told(file, monkeypatch):
    assert "unless you say whether a map makes sense" in frame.privacy()
    monkeypatch.delenv(labels.LABELS)
    assert "makes sense" not in frame.privacy()


def test_a_question_that_no_words_are_in_is_our_sentence(file):
    with pytest.raises(IntakeError):
        labels.keep("a", "b", 3, [0, 0, 0], True)
