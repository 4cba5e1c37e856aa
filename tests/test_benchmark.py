"""The benchmark command on small shapes: it runs whole, counts everything, and writes what it says."""

import contextlib
import io
import json
import time

import pytest
import torch

from arr_coc.benchmark import __main__ as command
from arr_coc.benchmark import hosts, timing
from arr_coc.benchmark import report as reporting
from arr_coc.benchmark.cases import BY_CONTEXT, CASES, Case, cases, image_of, shipped

CELLS, GLANCE = BY_CONTEXT["cells"], BY_CONTEXT["glance"]


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    out = tmp_path_factory.mktemp("bench") / "b.json"
    words = "--shapes tiny --dtype float32 --image-tokens 64 --shares 0.1 0.2 --repetitions"
    threads = torch.get_num_threads()
    with contextlib.redirect_stdout(io.StringIO()) as said:
        command.main([*words.split(), "1", "--out", str(out)])
        first = json.loads(out.read_text())
        command.main([*words.split(), "2", "--out", str(out), "--resume"])
    torch.set_num_threads(threads)
    assert json.loads(said.getvalue().splitlines()[-1])["out"] == str(out)
    found = json.loads(out.read_text())
    # What a report has is gone on with, and not measured again.
    assert found["rows"][: len(first["rows"])] == first["rows"]
    assert found["stock_ways"] == first["stock_ways"]
    return found


@pytest.mark.parametrize("name", ["sdpa", "eager"])
def test_the_encoder_takes_a_context_in_every_way_that_is_timed(name):
    host, case = hosts.host_of("tiny", torch.device("cpu"), "float32"), Case(GLANCE, 64, 13)
    hosts.set_attention(host, name)
    assert timing.run_case(host, case)["glance_s"] > 0
    # The tower takes none then: another look would be timed.
    host.model.set_attn_implementation(name)
    with pytest.raises(RuntimeError, match=f"'{name}', takes no context"):
        timing.run_case(host, case)
    assert timing.run_case(host, Case(CELLS, 64, 13))["glance_s"] > 0


def test_every_case_is_measured_in_every_repetition(report):
    assert len(report["rows"]) == 2 * (1 + 2 * len(CASES))
    assert {e["n"] for e in report["summary"]} == {2}


def test_everything_runs_in_what_is_fastest_for_stock(report):
    ways = report["stock_ways"]
    assert {way["attention"] for way in ways} == {"sdpa", "eager"}
    assert ways == sorted(ways, key=lambda way: way["seconds"]) and ways[0]["dtype"] == "float32"
    assert {row["dtype"] for row in report["rows"]} == {"float32"}
    for name in ("attention", "threads"):
        assert {row[name] for row in report["rows"]} == {ways[0][name]}
    assert report["machine"]["threads"] == ways[0]["threads"]
    assert {row["commit"] for row in report["rows"]} == {report["commit"]}


def test_a_report_of_another_machine_is_not_gone_on_with(tmp_path):
    out, kept = tmp_path / "b.json", tmp_path / "rows.jsonl"
    out.write_text(json.dumps({"machine": {"processor": "another"}, "rows": []}))
    with pytest.raises(ValueError, match="was measured on .*another.*this is .*mine"):
        command.earlier(kept, out, {"processor": "mine"})


def test_budgets_scale_and_are_spent(report):
    for entry in report["summary"]:
        held = entry["visual_tokens"]["median"]
        # A shrunk picture has whole rows and columns.
        least = 0.6 if entry["case"] == "downsample" else 1
        assert least * entry["budget"] <= held <= entry["budget"]
    budgets = {e["budget"] for e in report["summary"]}
    assert budgets == {64, 6, 13}


def test_all_stages_add_up_and_overhead_is_the_rest(report):
    for row in report["rows"]:
        named = sum(row[f"{stage}_s"] for stage in timing.STAGES)
        assert 0.5 * row["time_to_first_token_s"] < named <= row["time_to_first_token_s"]
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
    x = next(e for e in reporting.summarise(rows) if e["case"] == "x")
    assert x["speedup"] == {"median": 3.0, "min": 2.0, "max": 4.0, "lower_quartile": 2.0}


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
        {"case": shipped(), "image_tokens": n, "budget": n // 5, "speedup": {"median": s}}
        for n, s in speedups.items()
    ]
    assert words in reporting.crossover(summary)


def test_cuda_without_cuda_says_so(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit, match="no CUDA device"):
        command.main(["--device", "cuda"])


def test_a_run_goes_on_with_the_rows_that_are_missing(tiny, tmp_path, monkeypatch):
    kept, asked = tmp_path / "rows.jsonl", []
    monkeypatch.setattr(timing, "run_case", lambda _, case, *__: asked.append(case) or row_of(case))
    todo = cases((256,), (0.2,))[:3]
    timing.measure(tiny, todo, 1, kept, {"dtype": "float32"})
    assert asked[2:] == todo  # after the two that warm up
    asked.clear()
    with pytest.raises(ValueError, match="holds rows in float32, these would be in bfloat16"):
        timing.measure(tiny, todo, 2, kept, {"dtype": "bfloat16"})
    rows = timing.measure(tiny, todo, 2, kept, {"dtype": "float32"})
    assert len(asked) == 2 + 3 and sorted(asked[2:], key=todo.index) == todo
    assert [row["repetition"] for row in rows] == [0, 0, 0, 1, 1, 1]
    # Killed as it wrote the last one: what that would be compared with is measured once more.
    kept.write_text(kept.read_text()[:-5])
    asked.clear()
    again = timing.measure(tiny, todo, 2, kept, {"dtype": "float32"})
    assert len(asked) == 2 + 3 and again == timing.rows_of(kept) and again[:3] == rows[:3]


def test_what_is_compared_runs_side_by_side(tiny, tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(timing, "run_case", lambda _, case, *__: asked.append(case) or row_of(case))
    timing.measure(tiny, cases((64, 256), (0.2,)), 2, tmp_path / "rows", {"dtype": "float32"})
    sizes = [case.tokens for case in asked[2:]]
    each = 1 + len(CASES)
    assert sizes == [64] * each + [256] * each + [64] * each + [256] * each
    assert asked[2] != asked[2 + 2 * each]  # begun elsewhere


def row_of(case):
    return {"case": case.name, "image_tokens": case.tokens, "budget": case.budget}


def test_cases_are_of_every_size_and_share():
    assert {case.budget for case in cases((300,), (0.05, 0.2))} == {300, 15, 60}
    assert cases((16,), (0.05,))[-1] == Case("fastv", 16, 4)


def test_one_whole_encode_a_repetition_counts_for_all_that_cut_after_it(
    tiny, tmp_path, monkeypatch
):
    encoded, encode, slow = [], type(tiny).encode, 0.2

    def heard(host, picture, realization):
        whole = realization is None
        encoded.extend([picture.tokens] * whole)
        time.sleep(slow * whole)
        return encode(host, picture, realization)

    monkeypatch.setattr(type(tiny), "encode", heard)
    todo = [Case(name, 64, 13) for name in ("stock", "fastv", "glance as context", "after")]
    rows = timing.measure(tiny, todo, 2, tmp_path / "rows.jsonl", {"dtype": "float32"})
    assert len(encoded) == 2 + 2, "two that warm up, one each repetition"
    for repetition in (0, 1):
        own = {row["case"]: row for row in rows if row["repetition"] == repetition}
        whole = [own[name] for name in ("stock", "fastv", "after")]
        assert own["glance as context"]["encode_s"] < slow
        for row in whole:
            assert row["encode_s"] > slow, "its seconds count for each"
            named = sum(row[f"{stage}_s"] for stage in timing.STAGES)
            assert named <= row["time_to_first_token_s"]


def test_an_encode_is_shared_by_pictures_of_one_size_only(tiny):
    encodes = timing.OneEncode()
    timing.run_case(tiny, Case("stock", 64, 64), encodes)
    with pytest.raises(ValueError, match="of 120 visual tokens, and what is encoded has 64"):
        timing.run_case(tiny, Case("stock", 120, 120), encodes)


def test_a_slow_machine_shows_beside_the_fastest_report(tmp_path):
    before = tmp_path / "b.json"
    own = [{"case": "stock", "image_tokens": 9, "time_to_first_token_s": {"median": 3.0}}]
    about = {"what": "shapes, bfloat16", "machine": {"processor": "fast", "cores": 2}}
    assert reporting.fastest_stock(own, before, *about.values()) == {"9": 3.0}
    before.write_text(json.dumps({**about, "fastest_stock_s": {"9": 2.0}}))
    fastest = reporting.fastest_stock(own, before, *about.values())
    assert fastest == {"9": 2.0} and reporting.against_fastest(own, fastest) == {"9": 1.5}
    assert reporting.too_slow({"9": 1.5, "16": 1.1}) == ["9"]
    before.write_text(json.dumps({**about, "fastest_stock_s": {"9": 2.0, "4096": 99.0}}))
    assert reporting.fastest_stock(own, before, *about.values()) == {"9": 2.0, "4096": 99.0}
    slower = {**about["machine"], "processor": "slow"}
    assert reporting.fastest_stock(own, before, about["what"], slower) == {"9": 3.0}
    assert reporting.fastest_stock(own, before, "shapes, float32", about["machine"]) == {"9": 3.0}


def test_a_clip_is_timed_as_pictures_are(tmp_path, monkeypatch):
    out, asked = tmp_path / "b.json", []
    run_case = timing.run_case
    monkeypatch.setattr(timing, "run_case", lambda *a: asked.append(a[1]) or run_case(*a))
    words = ["--shapes", "tiny", "--dtype", "float32", "--moments", "4", "--image-tokens", "64"]
    command.main([*words, "--shares", "0.2", "--repetitions", "2", "--out", str(out)])
    report = json.loads(out.read_text())
    held = {(e["case"], e["visual_tokens"]["median"]) for e in report["summary"]}
    # One moment whole would be 64 of 51; so one of 7 x 7 is taken.
    assert held == {("stock", 256), ("fewer-frames", 49), (CELLS, 51), (GLANCE, 51)}
    assert {row["moments"] for row in report["rows"]} == {4} and len(report["rows"]) == 8
    order = [case.name for case in asked[2:]]
    assert sorted(order[:4]) == sorted(order[4:]) and order[:4] != order[4:], "in turns"
    for row in report["rows"]:
        named = sum(row[f"{stage}_s"] for stage in timing.STAGES)
        assert 0.5 * row["time_to_first_token_s"] < named <= row["time_to_first_token_s"]
        assert (row["glance_s"] > 0) == (row["case"] in (CELLS, GLANCE))


def test_a_clip_s_text_counts_in_the_cache_and_one_too_large_is_refused(tiny):
    row = timing.run_case(tiny, Case("stock", 120, 120, 6))
    asked = tiny.prepare(Case("stock", 120, 120, 6).given(32), timing.QUESTION)
    length = asked.prompt.ids(asked.prompt.sizes).shape[1]
    assert row["kv_cache_bytes"] == timing.kv_bytes_per_token(tiny.model) * length
    with pytest.raises(ValueError, match="budget 512 exceeds the 242 visual tokens there are"):
        timing.run_case(tiny, Case("stock", 512, 512, 1))


def test_a_base_that_shrinks_the_picture_is_not_timed_for_it(bundled):
    shown = bundled.picture(image_of(4096, 32)).tokens
    with pytest.raises(ValueError, match=f"of 4096 visual tokens is seen in {shown} by this base"):
        timing.run_case(bundled, Case("stock", 4096, 4096))


def test_bad_shares_are_refused(capsys):
    with pytest.raises(SystemExit, match="2"):
        command.main(["--shares", "1.5"])
    assert "--shares 1.5, allowed is above 0 and below 1" in capsys.readouterr().err
