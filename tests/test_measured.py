"""The page's results: tables and figures come from the summaries in `results/`, and from nowhere else."""

import json
import re
from pathlib import Path

import pytest
from test_evaluate import table_of

from arr_coc.evaluate.summary import summarise
from arr_coc.page import measured

EVIL = "<img src=x onerror=alert(1)>${7*6}"


def summary(**changes):
    answers = [(p, kind, 1.0, 0.1) for p in range(10) for kind in ("colour", "count")]
    poor = [(p, kind, float(kind == "colour"), 0.1) for p, kind, *_ in answers]
    rows = {("stock", 1.0): answers, ("arr-coc", 0.2): poor, ("random", 0.2): poor}
    rows |= {("arr-coc", 0.1): poor}
    report = summarise(table_of(rows), floor=0.8)
    times = [("stock", 1.0, 0.5), ("arr-coc", 0.2, 0.25), ("arr-coc", 0.1, 0.125)]
    report["time"] = [{"method": m, "budget": b, "p50_s": s} for m, b, s in times]
    about = {"what": "scenes on a base", "date": "2030-01-02", "commit": "abc"}
    return about | report | changes


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "scenes").mkdir()
    (tmp_path / "scenes" / "summary.json").write_text(json.dumps(summary()))
    return tmp_path


def cells(shown):
    rows = re.findall(r"<tr>(.*?)</tr>", shown)
    return [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in rows]


def test_accuracy_against_tokens_and_time(folder):
    shown = measured.tables(folder)
    head, stock, ours, other = cells(shown)
    assert head == [
        "Method", "10% of the tokens", "20% of the tokens", "All tokens", "First word, at 20%",
    ]  # fmt: skip
    assert stock == ["Stock (full look)", "", "", "100.0% [100.0, 100.0]", "500 ms"]
    half = "50.0% [50.0, 50.0]"
    assert ours == ["ARR-COC (focused look)", half, half, "", "250 ms"]
    assert other == ["random", "", half, "", ""]
    assert "20 questions of 2 kinds" in shown and "2030-01-02, commit abc" in shown
    assert "loses most on: count (-100 points)" in shown


def test_fewer_questions_are_told_beside_their_accuracy(folder):
    report = summary()
    (other,) = (entry for entry in report["methods"] if entry["method"] == "random")
    other["overall"]["n"] = 5
    (folder / "scenes" / "summary.json").write_text(json.dumps(report))
    shown = measured.tables(folder)
    assert "where n is given, so many of them" in shown
    assert cells(shown)[-1][2] == "50.0% [50.0, 50.0], n = 5"


def test_a_sweep_has_a_column_for_each_size(folder):
    report = summary()
    small = [{**entry, "detail": 0.5} for entry in report["methods"]]
    (folder / "scenes" / "summary.json").write_text(
        json.dumps(report | {"methods": report["methods"] + small})
    )
    head, stock, *ours = cells(measured.tables(folder))
    assert head == ["Method", "Detail × 0.5", "Detail × 1"]
    assert stock[1] == stock[2] == "100.0% [100.0, 100.0]"
    assert [row[0] for row in ours] == ["arr-coc, 10%", "arr-coc, 20%", "random, 20%"]


def test_the_comparison_comes_first_and_the_rest_can_be_opened(folder):
    for name in ("parts", "scenes-512", "another"):
        (folder / name).mkdir()
        (folder / name / "summary.json").write_text(json.dumps(summary()))
    assert list(measured.load(folder)) == ["scenes", "scenes-512", "parts", "another"]
    none, first, *others = measured.tables(folder).split("<details")
    assert not none and "Against other ways" in first and len(others) == 3
    assert "arr-chart" in measured.section(folder)
    assert "<summary>another</summary>" in others[-1] and "pictures of 256 tokens" in others[0]


def test_the_2b_sentence_is_the_benchmarks(tmp_path):
    assert measured.at_2b(tmp_path) == ""
    entry = {"case": "ours", "image_tokens": 1000, "n": 3}
    report = {
        "shipped": "ours",
        "machine": {"cores": 2, "processor": "Some"},
        "summary": [
            {**entry, "budget": 60, "speedup": {"median": 9.0}},
            {**entry, "budget": 210, "speedup": {"median": 0.5}},
        ],
    }
    (tmp_path / measured.BENCHMARK).write_text(json.dumps(report))
    said = measured.at_2b(tmp_path)
    assert "2.0× slower" in said and "210 focused" in said and "faster" not in said
    larger = {**entry, "image_tokens": 4000, "budget": 800, "n": 2, "speedup": {"median": 8.0}}
    report["summary"].append(larger)
    (tmp_path / measured.BENCHMARK).write_text(json.dumps(report))
    assert measured.at_2b(tmp_path) == said, "two runs make no verdict"
    report["summary"][1]["n"] = 2
    (tmp_path / measured.BENCHMARK).write_text(json.dumps(report))
    assert measured.at_2b(tmp_path) == ""


def test_nothing_measured_is_said_in_a_sentence(tmp_path):
    shown = measured.section(tmp_path)
    assert measured.NONE in shown and "<table" not in shown
    assert measured.tables(tmp_path) == ""
    (tmp_path / "broken").mkdir()
    for text in ("{", "[]", '{"methods": []}'):
        (tmp_path / "broken" / "summary.json").write_text(text)
        assert measured.section(tmp_path) == shown


def test_the_figures_stand_in_the_docs_and_a_space_links_to_them(folder, monkeypatch):
    monkeypatch.delenv("SPACE_ID", raising=False)
    shown = measured.tables(folder)
    assert measured.FIGURES in shown and "<img" not in shown and str(folder) not in shown
    monkeypatch.setenv("SPACE_ID", "someone/arr-coc")
    address = "https://huggingface.co/spaces/someone/arr-coc/blob/main/docs/evaluation.md"
    assert f'href="{address}"' in measured.tables(folder)


def test_every_published_figure_stands_in_the_docs():
    docs = Path(measured.__file__).parents[2] / "docs"
    words = (docs / "evaluation.md").read_text()
    for figure in docs.parent.glob("results/*/*.png"):
        assert f"(../results/{figure.parent.name}/{figure.name})" in words


def test_names_are_escaped(folder):
    (folder / "scenes" / "summary.json").write_text(json.dumps(summary(what=EVIL, date=EVIL)))
    assert "<img src=x" not in measured.section(folder) + measured.tables(folder)


def test_what_is_published_can_be_shown():
    import app

    summaries = measured.load(app.RESULTS)
    assert len(summaries) == len(list(app.RESULTS.glob("*/summary.json")))
    several = [s for s in summaries.values() if len({m["method"] for m in s["methods"]}) > 1]
    shown = measured.tables(app.RESULTS)
    assert shown.count("<table") == len(several) + 1  # times by size
    titles = re.findall(r'<details class="arr-how"><summary>(.*?)</summary>', shown)
    assert not {"scenes", *summaries} & set(titles), "folders are named in words"
