"""The log of decisions: off by default, a whole line an answer, nothing of what was seen or asked."""

import json
import re
import stat
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from arr_coc.page import frame
from arr_coc.page.local_handlers import LocalHandlers
from arr_coc.page.model_handlers import ModelHandlers
from arr_coc.service import comparing, journal, latency

ROOT = Path(__file__).parent.parent
QUESTION = "What number is on the small sign?"
FIELDS = {
    "time", "base", "base_commit", "device", "pixels", "look", "tokens", "kept", "share", "stages_s",
    "first_word_s", "tokens_per_second", "new_tokens", "ended",
}  # fmt: skip
DECIDED = {
    "weights", "revision", "commit", "allocator", "glance", "prune", "tensions",
    "tension_source", "fallback",
}  # fmt: skip


@pytest.fixture
def asked(bundled, picture, tmp_path):
    """Asks through the page's own handlers; returns the result."""
    loader = SimpleNamespace(get=lambda: bundled, model=bundled)
    handlers = ModelHandlers(
        LocalHandlers(tmp_path), loader, lambda request: comparing.compare_stream(bundled, request)
    )

    def ask(**settings):
        request = comparing.check(picture, QUESTION, 0.2, max_new_tokens=3, **settings)
        return comparing.last(handlers.run(request))

    return ask


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.setenv(journal.LOG, str(tmp_path / "decisions.jsonl"))
    return tmp_path / "decisions.jsonl"


def rows(file) -> list[dict]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_nothing_is_noted_where_nobody_asked(asked, tmp_path, monkeypatch):
    monkeypatch.delenv(journal.LOG, raising=False)
    monkeypatch.chdir(tmp_path)
    assert asked()["focused"]["text"]
    assert not list(tmp_path.rglob("*.jsonl"))


def test_each_finished_answer_is_a_row(asked, file):
    result = asked(shrunk=True)
    full, focused, shrunk = rows(file)
    assert set(full) == set(shrunk) == FIELDS and set(focused) == FIELDS | DECIDED
    assert [row["look"] for row in (full, focused, shrunk)] == ["full", "focused", "shrunk"]
    assert (
        full["kept"] == full["tokens"] == 80
        and full["share"] == 1
        and full["base"] == ("bundled base")
    )
    assert focused["kept"] == result["tokens_kept"] and focused["share"] == 0.2
    where = result["where"]
    assert focused["tensions"] == [where["compress"], where["exploit"], where["focus"]]
    assert focused["weights"] == result["weights"]["name"] and focused["revision"] is None
    assert focused["stages_s"] == result["focused"]["stages_s"] and full["pixels"] == [320, 256]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_the_fields_are_those_of_the_documentation():
    section = (ROOT / "docs" / "owners.md").read_text().partition("| field | meaning |")[2]
    named = re.findall(r"^\| (`.*?`) \|", section, re.M)
    listed = [name for cell in named for name in re.findall(r"`(\w+)`", cell)]
    assert sorted(listed) == sorted(FIELDS | DECIDED | {"question"})


def test_neither_picture_nor_question_nor_answer_is_noted(asked, file, monkeypatch):
    result = asked()
    text = file.read_text()
    assert QUESTION not in text and "question" not in text and "data:" not in text
    assert not any(
        value == result["focused"]["text"] for row in rows(file) for value in row.values()
    )
    monkeypatch.setenv(journal.QUESTIONS, "1")
    asked()
    assert [row.get("question") for row in rows(file)] == [None, None, QUESTION, QUESTION]


def test_it_is_noted_before_the_result_is_handed_on(bundled, picture, file):
    request = comparing.check(picture, QUESTION, max_new_tokens=1)
    records = journal.noted(comparing.compare_stream(bundled, request), request)
    assert next(value for kind, value in records if kind == "result")
    records.close()  # as the page does: it asks for nothing after the result
    assert len(rows(file)) == 2


def test_visitors_are_told(file, monkeypatch):
    assert "how long it took is noted; nothing else" in frame.about(False)
    monkeypatch.setenv(journal.QUESTIONS, "1")
    assert "noted, and what you asked; nothing else" in frame.about(True)
    monkeypatch.delenv(journal.LOG)
    assert "within the hour; nothing else is kept." in frame.about(False)


def test_a_look_that_failed_is_no_answer(asked, file):
    assert "80" in asked(budget=900)["focused"]["error"]  # more than there are
    assert [row["look"] for row in rows(file)] == ["full"]


def test_what_a_dying_worker_leaves_is_a_row(bundled, picture, file, tmp_path):
    def dies(request):
        records = comparing.compare_stream(bundled, request)
        for kind, value in records:
            yield kind, value
            if kind == "full" and value["done"]:
                raise RuntimeError("worker")

    loader = SimpleNamespace(get=lambda: bundled, model=bundled)
    handlers = ModelHandlers(LocalHandlers(tmp_path), loader, dies)
    request = comparing.check(picture, QUESTION, max_new_tokens=1)
    assert comparing.last(handlers.run(request))["focused"]["error"]
    assert [row["look"] for row in rows(file)] == ["full"] and len(handlers.took) == 1


def test_a_log_that_cannot_be_written_stops_nothing(asked, tmp_path, monkeypatch, caplog):
    monkeypatch.setenv(journal.LOG, str(tmp_path))  # a folder
    assert asked()["focused"]["text"]
    assert "could not be written" in caplog.text


def test_a_log_is_put_aside_at_its_size(tmp_path):
    file = tmp_path / "a.jsonl"
    for number in range(10):
        journal.append(file, [{"number": number}], largest=50)
    kept = [row["number"] for path in (journal.older(file), file) for row in rows(path)]
    assert kept == sorted(kept) and kept[-1] == 9 and len(kept) > 3
    assert {path.name for path in tmp_path.iterdir()} == {"a.jsonl", "a.jsonl.1"}
    assert all(path.stat().st_size <= 50 for path in tmp_path.iterdir())


def test_lines_of_many_threads_stay_whole(tmp_path):
    file = tmp_path / "a.jsonl"

    def write(number):
        for _ in range(20):
            journal.append(file, [{"number": number, "filling": "x" * 500}])

    threads = [threading.Thread(target=write, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(rows(file)) == 160


def row(look: str, seconds: float, rate: float) -> dict:
    times = {"stages_s": {"encode": seconds}, "first_word_s": 2 * seconds}
    return {"look": look, **times, "tokens_per_second": rate}


def test_percentiles_by_look_and_stage(tmp_path, capsys):
    file = tmp_path / "a.jsonl"
    slow = [row("full", float(n), 1.0) for n in range(1, 102)]
    journal.append(journal.older(file), slow[:50])
    journal.append(file, slow[50:] + [row("focused", 0.5, 0.0)])
    with file.open("a") as written:
        written.write('{"look": "full"}\n{half\n3\n')
    latency.main([str(file)])
    out = capsys.readouterr().out.splitlines()
    report = json.loads(out[-1])
    assert report["rows"] == 102 and report["damaged"] == 3
    assert report["looks"]["full"]["encode"] == {"n": 101, "p50": 51.0, "p90": 91.0, "p99": 100.0}
    assert report["looks"]["full"]["first word"]["p50"] == 102.0
    assert "tokens a second" not in report["looks"]["focused"]  # one token has no rate
    assert any(
        line.split() == ["full", "encode", "101", "51.000", "91.000", "100.000"] for line in out
    )


def test_of_a_rate_the_slow_end_is_told():
    measured = [{"look": "full", "measured": {latency.RATE: float(n)}} for n in range(101)]
    assert latency.percentiles(measured)["full"][latency.RATE]["p99"] == 1.0


def test_what_the_page_wrote_is_read_back(asked, file, capsys):
    asked()
    latency.main([str(file)])
    looks = json.loads(capsys.readouterr().out.splitlines()[-1])["looks"]
    assert looks["focused"]["glance"]["n"] == 1 and looks["full"]["prefill"]["p50"] > 0


def test_a_log_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ValueError, match="nothing.jsonl does not exist"):
        latency.read(tmp_path / "nothing.jsonl")
