"""The page's times by the picture's tokens: what is drawn and written is what the benchmark measured."""

import json
import re

import pytest
from test_measured import EVIL

from arr_coc.page import measured, plot, times

SIZES = {"stock": (1.0, {300: 8.0, 1024: 30.0, 4096: 333.0})}
SIZES |= {"ours": (0.2, {300: 3.0, 1024: 5.0, 4096: 25.0}), "fastv": (0.2, {300: 7.0, 1024: 21.0})}


def report(**changes):
    def entry(case, tokens, share, spent):
        seconds = {"time_to_first_token_s": {"median": spent}}
        speedup = SIZES["stock"][1][tokens] / spent
        about = {"case": case, "image_tokens": tokens, "budget": round(share * tokens), "n": 3}
        return about | seconds | {"speedup": {"median": speedup}}

    entries = [
        entry(case, tokens, share, spent)
        for case, (share, known) in SIZES.items()
        for tokens, spent in known.items()
    ]
    entries.append(entry("ours", 1024, 0.05, 1.0))  # a budget that is not the usual one
    about = {"shipped": "ours", "what": f"shapes {EVIL}", "date": "2030-01-02", "commit": "abc"}
    machine = {"cores": 2, "processor": "Some"}
    return about | {"machine": machine, "summary": entries} | changes


def test_a_row_for_each_way_and_a_column_for_each_size():
    shown = times.times(report())
    rows = re.findall(r"<tr>(.*?)</tr>", shown)
    cells = [re.findall(r"<t[hd][^>]*>(?:<svg.*?</svg>)?(.*?)</t[hd]>", row) for row in rows]
    assert cells == [
        ["Way", "300 tokens", "1,024 tokens", "4,096 tokens"],
        ["Full look: every token", "8.00 s", "30.00 s", "333.00 s"],
        ["Focused look (ARR-COC)", "3.00 s", "5.00 s", "25.00 s"],
        ["FastV", "7.00 s", "21.00 s", ""],
        ["Focused look against the full one", "2.7× faster", "6.0× faster", "13.3× faster"],
    ]
    assert "medians of 3 runs" in shown and "commit abc" in shown and "2 cores of an Some" in shown
    assert "<img" not in shown and "&lt;img" in shown


def test_every_point_stands_where_it_was_measured():
    shown = times.times(report())
    line = re.search(r'arr-chart-line arr-chart-0" d="M([^"]+)"', shown)[1]
    drawn = [tuple(map(float, point.split())) for point in line.split("L")]
    width, height = plot.WIDTH - plot.LEFT - plot.RIGHT, plot.HEIGHT - plot.TOP - plot.BOTTOM
    for (x, y), (tokens, spent) in zip(drawn, SIZES["stock"][1].items(), strict=True):
        assert x == pytest.approx(plot.LEFT + width * tokens / 4096, abs=0.1)
        assert y == pytest.approx(plot.TOP + height * (1 - spent / 400), abs=0.1)
    assert re.findall(r">(\d+ s)</text>", shown) == ["0 s", "100 s", "200 s", "300 s", "400 s"]


def test_one_size_makes_no_curve():
    few = [e for e in report()["summary"] if e["image_tokens"] == 1024]
    assert times.times(report(summary=few)) == ""
    assert times.times(report(shipped="another")) == ""


def test_a_step_is_read_easily():
    assert [times.nice(v) for v in (0.9, 1, 1.1, 3, 70)] == [1, 1, 2, 5, 100]


def test_the_results_have_them_where_they_were_measured(tmp_path):
    assert "arr-times" not in measured.tables(tmp_path)
    (tmp_path / measured.BENCHMARK).write_text(json.dumps(report()))
    assert "arr-times" in measured.tables(tmp_path)
    (tmp_path / measured.BENCHMARK).write_text("[]")
    assert "arr-times" not in measured.tables(tmp_path)
