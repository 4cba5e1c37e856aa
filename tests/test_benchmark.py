"""The benchmark command on small shapes: it runs whole, counts everything, and writes what it says."""

import json
import subprocess
import sys

import pytest

from arr_coc import benchmark


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    out = tmp_path_factory.mktemp("bench") / "b.json"
    command = [sys.executable, "-m", "arr_coc.benchmark", "--shapes", "tiny", "--dtype", "float32"]
    command += ["--image-tokens", "256", "--repetitions", "2", "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout.splitlines()[-1])["out"] == str(out)
    return json.loads(out.read_text())


def test_every_case_is_measured_in_every_repetition(report):
    assert len(report["rows"]) == 2 * (1 + 3 * len(benchmark.CASES))
    assert {e["n"] for e in report["summary"]} == {2}


def test_budgets_scale_and_are_spent(report):
    for entry in report["summary"]:
        assert entry["visual_tokens"]["median"] == entry["budget"]
    budgets = {e["budget"] for e in report["summary"]}
    assert budgets == {256, 16, 50, 100}


def test_all_stages_add_up_and_overhead_is_the_rest(report):
    for row in report["rows"]:
        stages = ("preprocess", "glance", "relevance", "encode", "prefill")
        assert sum(row[f"{s}_s"] for s in stages) == pytest.approx(row["time_to_first_token_s"])
        overhead = row["time_to_first_token_s"] - row["encode_s"] - row["prefill_s"]
        assert row["overhead_s"] == pytest.approx(overhead)


def test_speedups_pair_repetitions():
    rows = [
        {"case": c, "image_tokens": 9, "budget": b, "repetition": r, "time_to_first_token_s": t}
        | {"overhead_s": 0.1, "glance_s": 0.0, "visual_tokens": b}
        for c, b, r, t in [
            ("stock", 9, 0, 2.0),
            ("x", 3, 0, 1.0),
            ("stock", 9, 1, 8.0),
            ("x", 3, 1, 2.0),
        ]
    ]
    x = next(e for e in benchmark.summarise(rows) if e["case"] == "x")
    assert x["speedup"] == {"median": 3.0, "min": 2.0, "max": 4.0}


@pytest.mark.parametrize(
    ("speedups", "words"),
    [
        ({1024: 0.8, 2048: 0.9}, "never pays"),
        ({1024: 0.8, 2048: 1.4}, "pays from 2048"),
        ({1024: 1.2, 2048: 1.4}, "pays at every size"),
        ({}, "not measured"),
    ],
)
def test_the_crossover_is_named_whichever_way_it_goes(speedups, words):
    summary = [
        {"case": benchmark.SHIPPED, "image_tokens": n, "budget": n // 5, "speedup": {"median": s}}
        for n, s in speedups.items()
    ]
    assert words in benchmark.crossover(summary)


def test_cuda_without_cuda_says_so():
    command = [sys.executable, "-m", "arr_coc.benchmark", "--device", "cuda"]
    environment = {"CUDA_VISIBLE_DEVICES": "", "PATH": ""}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode != 0 and "no CUDA device" in done.stderr
