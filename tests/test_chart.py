"""The results as one chart: what is drawn is what was measured."""

import json
import re

import pytest
from test_measured import EVIL, summary

from arr_coc.page import chart, measured, plot
from tests.tables import ROOT

SCENES = json.loads((ROOT / "results" / "scenes" / "summary.json").read_text())


def rows(shown):
    body = re.search(r"<tbody>(.*?)</tbody>", shown)[1]
    found = re.findall(r"<tr>(.*?)</tr>", body)
    return [re.findall(r"<t[hd][^>]*>(?:<svg.*?</svg>)?(.*?)</t[hd]>", row) for row in found]


def test_five_rows_in_plain_names_say_what_was_measured():
    shown = chart.chart(SCENES, "made of")
    entries = {(e["method"], e["budget"]): e["overall"]["value"] for e in SCENES["methods"]}
    names = [name for name, *_ in rows(shown)]
    assert names[:3] == ["Full look: every token", "Focused look (ARR-COC)", "Picture shrunk"]
    assert len(names) == 5 and not {"random", "uniform"} & set(names)
    others = [value for (name, budget), value in entries.items() if budget == 0.2
              and not name.startswith(("arr-coc", "random", "uniform", "centre", "down"))]  # fmt: skip
    best = sorted(others, reverse=True)[:2]
    said = [right for _, right, _ in rows(shown)]
    wanted = [entries["stock", 1.0], entries["arr-coc", 0.2], entries["downsample", 0.2], *best]
    assert said == [f"{value:.1%}" for value in wanted]
    ours = next(t for t in SCENES["time"] if (t["method"], t["budget"]) == ("arr-coc", 0.2))
    assert rows(shown)[1][2] == f"{1 / ours['modelled_2b_ratio']:.1f}× faster"
    assert "Qwen3-VL-2B with random weights" in shown and "made of" in shown


def test_every_point_stands_where_it_was_measured():
    shown = chart.chart(SCENES, "")
    budgets = sorted(e["budget"] for e in SCENES["methods"] if e["method"] == "arr-coc")
    line = re.search(r'arr-chart-line arr-chart-1" d="M([^"]+)"', shown)[1]
    drawn = [tuple(map(float, point.split())) for point in line.split("L")]
    assert len(drawn) == len(budgets) > 2
    times = {
        t["budget"]: t["modelled_2b_ratio"] for t in SCENES["time"] if t["method"] == "arr-coc"
    }
    right = {
        e["budget"]: e["overall"]["value"] for e in SCENES["methods"] if e["method"] == "arr-coc"
    }
    width = plot.WIDTH - plot.LEFT - plot.RIGHT
    for (x, _), budget in zip(drawn, budgets):
        assert x == pytest.approx(plot.LEFT + times[budget] * width, abs=0.1)
    order = sorted(range(len(drawn)), key=lambda n: drawn[n][1])
    assert order == sorted(range(len(drawn)), key=lambda n: -right[budgets[n]])


def test_without_modelled_times_it_is_drawn_against_tokens():
    shown = chart.chart(summary(), "")
    assert "Right answers against the visual tokens" in shown and "First word" not in shown
    assert [name for name, _ in rows(shown)] == ["Full look: every token", "Focused look (ARR-COC)"]


def test_without_a_full_look_there_is_no_chart():
    report = summary()
    report["methods"] = [e for e in report["methods"] if e["method"] != "stock"]
    assert chart.chart(report, "") == ""


def test_names_are_escaped():
    report = json.loads(json.dumps(SCENES).replace('"divprune"', json.dumps(EVIL)))
    shown = chart.chart(report, EVIL)
    assert "<img" not in shown and "&lt;img" in shown


def test_the_section_says_whose_results_they_are_and_has_one_table():
    shown = measured.section(ROOT / "results")
    weights = SCENES["identity"]["weights_sha256"][:12]
    assert weights in shown and SCENES["commit"] in shown and shown.count("<table") == 1
