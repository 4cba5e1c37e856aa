"""The first-word benchmark: which pictures are asked, what its ratios say, and the command itself."""

import json

import pytest

from arr_coc.evaluate import first_word
from arr_coc.evaluate.questions import Ref


def asked(*pictures):
    return [
        (Ref(name, index), kind) for name, kinds in pictures for index, kind in enumerate(kinds)
    ]


def test_every_picture_is_asked_once_and_kinds_take_turns():
    blocks = [asked(("1", "ab"), ("2", "ab")), asked(("3", "abc"), ("4", "a"))]
    chosen = first_word.one_of_each_picture(blocks, 9)
    assert [(ref.picture, ref.index) for ref in chosen] == [("1", 0), ("2", 1), ("3", 2), ("4", 0)]
    assert first_word.one_of_each_picture(blocks, 2) == chosen[:2]


def test_the_ratio_is_stock_over_ours_within_a_repetition():
    rows = [
        {"repetition": r, "look": look, "seconds": times * seconds, "load": 0.5, "tokens": 9}
        | {"dtype": dtype, "picture": str(number), "kind": "word"}
        for r, pairs in enumerate([((4, 1), (2, 1)), ((4, 2), (2, 1))])
        for number, pair in enumerate(pairs)
        for look, seconds in zip(first_word.LOOKS, pair)
        # Stock is faster in the one dtype, the focused look in the other.
        for dtype, times in (
            ("float32", 2 if look == "stock" else 1),
            ("bfloat16", 1 if look == "stock" else 3),
        )
    ]
    found = first_word.summarise(rows)
    assert found["dtypes"] == {"stock": "bfloat16", "arr-coc": "float32"}
    assert (
        found["by_dtype"]["float32"]["median"] == 5 and found["by_dtype"]["bfloat16"]["median"] < 1
    )
    assert found["looks"]["arr-coc"]["all"]["tokens_p95"] == 9
    assert found["ratio"] == {"lower": 2.25, "median": 2.5, "upper": 2.75}  # of 3 and 2
    assert found["ratio_of_a_question"]["median"] == 2.5  # of 3 and 2
    assert found["stock_s"]["median"] == 3 and found["focused_s"]["median"] == 1.25
    assert (found["repetitions"], found["pictures"]) == (2, 2)


@pytest.mark.thorough
@pytest.mark.slow
def test_the_command_times_both_looks(tmp_path):
    out = tmp_path / "first-word.json"
    words = ["--out", str(out), "--n", "3", "--repetitions", "2", "--threads", "1"]
    first_word.main([*words, "--looks", "arr-coc-auto"])
    report = json.loads(out.read_text())
    assert report["stock_against_its_fastest"] == 1 and not report["to_be_made_again"]
    assert {r["dtype"] for r in report["rows"]} == {"float32", "bfloat16"}
    assert set(report["summary"]["looks"]) == {"stock", "arr-coc", "arr-coc-auto"}
    quicker = {"stock_s": {"median": 1.0}}
    out.write_text(json.dumps({**report, "fastest_stock_s": 0.5}))
    assert first_word.against_fastest(quicker, out, report)["to_be_made_again"]
    elsewhere = {**report, "size": [9, 9]}
    assert not first_word.against_fastest(quicker, out, elsewhere)["to_be_made_again"]
    named = [{**report, "base_sha256": "", "base": f"org/{n}b"} for n in (2, 4)]
    out.write_text(json.dumps({**named[0], "fastest_stock_s": 0.5}))
    assert first_word.against_fastest(quicker, out, named[0])["to_be_made_again"]
    assert not first_word.against_fastest(quicker, out, named[1])["to_be_made_again"]
    assert report["summary"]["pictures"] == 3 and len({r["picture"] for r in report["rows"]}) == 3
    assert {r["tokens"] for r in report["rows"] if r["look"] == "stock"} == {256}
    assert {r["tokens"] for r in report["rows"] if r["look"] == "arr-coc"} == {51}
    assert report["summary"]["ratio"]["lower"] <= report["summary"]["ratio"]["median"]
