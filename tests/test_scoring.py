"""Scoring: one rule says when an answer is right, wherever it is judged."""

from pathlib import Path

import pyarrow.parquet
import pytest

from arr_coc import scoring

RESULTS = Path(__file__).parent.parent / "results"


def test_one_true_answer():
    for answer in ("red", "Red.", " RED ", "the red"):
        assert scoring.score_exact(answer, "red")
    assert scoring.score_exact("2", "two") and scoring.score_exact("7.50", "7.50")
    for answer in ("", "blue", "red blue", "75.0"):
        assert not scoring.score_exact(answer, "red") and not scoring.score_exact(answer, "7.50")
    assert not scoring.score_exact("", "") and not scoring.score_exact("the", "a")
    assert scoring.score_exact("A.", "a") and not scoring.score_exact(
        "", "a"
    )  # a bar may be called so
    assert scoring.vqa_accuracy("a", ["A"]) == 1 and scoring.vqa_accuracy("", ["A"]) == 0
    assert scoring.vqa_accuracy("", ["?"]) == 0


def test_vqa_accuracy_follows_its_definition():
    ten = ["2"] * 3 + ["three"] * 7
    assert scoring.vqa_accuracy("two", ten) == pytest.approx((3 * 2 / 3 + 7 * 1) / 10)
    assert scoring.vqa_accuracy("3", ten) == 1.0
    assert scoring.vqa_accuracy("4", ten) == 0.0
    assert scoring.vqa_accuracy("The dog.", ["dog"]) == 1.0


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("A Dog!", "dog"),
        ("don't", "dont"),
        ("1,000", "1000"),
        ("3.5", "3.5"),
        ("yes.", "yes"),
        ("two", "2"),
        ("black/white", "black white"),
        (".5", ".5"),
        ("t-shirt", "t shirt"),
        ("10-20", "10-20"),
        ("Wendy\u2019s", "wendys"),
    ],
)
def test_answers_are_compared_in_one_form(text, same):
    assert scoring.normalise_answer(text) == same


def test_anls_follows_its_definition():
    assert scoring.anls("Invoice", ["invoice", "bill"]) == 1.0
    assert scoring.anls("invoise", ["invoice"]) == pytest.approx(1 - 1 / 7)
    assert scoring.anls("abcd", ["abxy"]) == 0.0  # half of it is wrong


def test_every_committed_row_is_scored_by_the_one_rule():
    rows = 0
    for path in sorted(RESULTS.glob("*/rows.parquet")):
        table = pyarrow.parquet.read_table(path, columns=["answer", "truth", "right"])
        distinct = set(zip(*(table[name].to_pylist() for name in table.column_names)))
        wrong = [row for row in distinct if scoring.score_exact(*row[:2]) != bool(row[2])]
        assert not wrong, path
        rows += table.num_rows
    assert rows >= 20_000
