"""The evaluation on clips and several pictures: what the columns mean, and the command from end to end."""

import json
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from arr_coc.config import Config
from arr_coc.evaluate import __main__ as evaluate
from arr_coc.evaluate import identity, questions, summary, views, views_rows
from arr_coc.evaluate.questions import Ref
from arr_coc.evaluate.store import SCHEMA
from arr_coc.evaluate.views import DrawnViews, ViewsItem
from arr_coc.peers.views_methods import VIEWS_METHODS
from arr_coc.qwen.model import ARRCOCQwen
from arr_coc.scenes.moving import make_clip
from arr_coc.scenes.scene import DEV_SEED
from arr_coc.scenes.several import make_several

GRID = (4, 4)


def kept(*cells: tuple[int, int, int], moments: int = 4) -> list[torch.Tensor]:
    """Masks of so many moments, with 1 at `(moment, row, column)`."""
    masks = torch.zeros(moments, *GRID)
    for cell in cells:
        masks[cell] = 1
    return list(masks)


def item(evidence=(), needed=1, cuts=(), shows="still") -> ViewsItem:
    """A question about a clip of 4 moments of 64 x 64 pixels: 16 a cell."""
    clip = views.clip_of([np.zeros((64, 64, 3), np.uint8)] * 8)
    named = {"evidence": evidence, "needed": needed, "cuts": cuts, "shows": shows}
    return ViewsItem(Ref("5", 0), clip, "what?", "told", ("yes",), **named)


def measured(masks, asked, score=None):
    reduced = SimpleNamespace(kept=masks, score=score, shown=None)
    found = views_rows.evidence_measures(reduced, asked)
    return found | views_rows.coherence_measures(reduced, asked, False)


# ------------------------------------------------------------------------------ what columns mean


def test_evidence_is_kept_where_half_of_it_is_at_as_many_moments_as_are_needed():
    box = (0.0, 0.0, 32.0, 16.0)  # two cells
    asked = item(((1, box), (2, box)), needed=1)
    one = measured(kept((1, 0, 0), (3, 3, 3)), asked)
    assert (one["moment"], one["place"], one["covered_area"]) == (1, 1, 0.5)
    assert one["on_evidence"] == 0.5
    beside = measured(kept((1, 3, 3), (0, 0, 0)), asked)
    assert (beside["moment"], beside["place"], beside["covered_area"]) == (1, 0, 0)
    elsewhen = measured(kept((0, 0, 0), (0, 0, 1)), asked)
    assert (elsewhen["moment"], elsewhen["place"], elsewhen["on_evidence"]) == (0, 0, 0)
    both = item(((1, box), (2, box)), needed=2)
    assert (
        measured(kept((1, 0, 0)), both)["moment"],
        measured(kept((1, 0, 0)), both)["place"],
    ) == (0, 0)
    two = measured(kept((1, 0, 0), (2, 0, 0), (2, 0, 1)), both)
    assert (two["moment"], two["place"], two["covered_area"]) == (1, 1, 0.75)
    thin = item(((1, (15.0, 0.0, 32.0, 16.0)),))  # a sliver of the first cell
    assert measured(kept((1, 0, 0)), thin)["place"] == 0


def test_a_moment_that_is_shown_shrunk_is_kept_and_its_places_are_not():
    asked = item(((1, (0.0, 0.0, 32.0, 16.0)),))
    nothing = kept()
    shrunk = SimpleNamespace(kept=nothing, score=None, shown=(False, True, True, False))
    found = views_rows.evidence_measures(shrunk, asked)
    assert (found["moment"], found["place"]) == (1, 0)


def test_everything_or_nothing_as_evidence_says_nothing():
    assert set(measured(kept((1, 0, 0)), item()).values()) == {None, 0.0}  # the overlaps alone
    box = (0.0, 0.0, 16.0, 16.0)
    everywhere = item(tuple((number, box) for number in range(4)))
    assert measured(kept((1, 0, 0)), everywhere)["on_evidence"] is None


def test_neighbours_are_compared_within_scenes_and_at_cuts_apart():
    score = [torch.tensor([[1.0, 0]]), torch.tensor([[2.0, 0]]), torch.tensor([[0, 3.0]]),
             torch.tensor([[1.0, 1.0]])]  # fmt: skip
    masks = kept((0, 0, 0), (1, 0, 0), (1, 0, 1), (2, 2, 2))
    row = measured(masks, item(cuts=(2,)), score)
    assert row["cosine"] == pytest.approx((1 + 0.5**0.5) / 2) and row["cosine_cut"] == 0
    assert row["overlap"] == pytest.approx((0.5 + 0) / 2) and row["overlap_cut"] == 0
    assert row["dips"] == 0  # apart at the cut alone
    whole = measured(masks, item(), score)
    assert whole["dips"] == pytest.approx(1 / 3)  # without it the same is a dip
    assert whole["cosine_cut"] is None and whole["cosine"] == pytest.approx((1 + 0.5**0.5) / 3)
    plain = measured(masks, item(cuts=(2,)))
    assert plain["cosine"] is None and plain["overlap"] == row["overlap"]
    pictures = measured(masks, item(shows=None), score)
    assert {pictures[name] for name in summary.COHERENCE} == {None}
    assert views.overlap(np.zeros(3), np.zeros(3)) is None
    assert views.cosine(np.zeros(3), np.ones(3)) is None


# ------------------------------------------------------------------------------------ questions


@pytest.fixture
def few(monkeypatch):
    """Blocks of two clips, one after the other."""
    monkeypatch.setattr(questions, "SCENES_PER_BLOCK", 2)
    monkeypatch.setattr(questions, "BLOCKS_AT_A_TIME", 1)


def test_clips_are_asked_what_was_drawn(few):
    source = DrawnViews(DEV_SEED, 1, ("exists", "colour"), views.CLIPS, 4)
    items = [one for block in source.blocks() for one in source.load(block)]
    assert sorted(one.kind for one in items) == ["colour", "exists"]
    for one in items:
        drawn = make_clip(int(one.ref.picture), groups=4)
        asked = drawn.questions[one.ref.index]
        assert (one.question, one.truths) == (asked.text, (asked.answer,))
        assert (one.evidence, one.needed) == (asked.evidence, asked.needed)
        assert one.cuts == drawn.cuts and one.given.times[1] == 1 / drawn.fps
        assert all(a.tobytes() == b.tobytes() for a, b in zip(one.given.frames, drawn.frames))
    assert source.about["groups"] == 4 and source.about["world"] == "clips"


def test_pictures_are_asked_what_one_of_them_holds(few):
    source = DrawnViews(DEV_SEED, 2, ("which_picture",), views.PICTURES, 3)
    items = [one for block in source.blocks() for one in source.load(block)]
    for one in items:
        drawn = make_several(int(one.ref.picture), count=3)
        assert [p.tobytes() for p in one.given] == [p.tobytes() for p in drawn.pictures]
        assert len(one.boxes()) == 1 and one.shows is None
    with pytest.raises(ValueError, match="unknown kinds .'often'. of the world of pictures"):
        DrawnViews(DEV_SEED, 1, ("often",), views.PICTURES, 3)


# ----------------------------------------------------------------------------------- the command


def run(capsys, out, *words: str) -> dict:
    evaluate.main(["--out", str(out), "--weights", "", *words])
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["out"] == str(out)
    return json.loads((out / "summary.json").read_text())


def test_clips_from_end_to_end(few, tmp_path, capsys, monkeypatch, bundled):
    monkeypatch.setattr(ARRCOCQwen, "from_pretrained", lambda *_, **__: bundled)
    words = ["--world", "clips", "--groups", "4", "--share", "0.3", "--n", "1", "--kinds", "exists",
             "colour", "--methods", "stock", "evs", "smaller-frames", "arr-coc"]  # fmt: skip
    report = run(capsys, tmp_path, *words)
    table = pq.read_table(tmp_path / "rows.parquet")
    assert table.schema.equals(SCHEMA, check_metadata=False) and len(table) == 8
    rows = table.to_pylist()
    for row in rows:
        assert (
            row["seconds"] > 0
            and row["native"] == 256
            and row["shows"] in ("pan", "cut", "moves", "still")
        )
        spent = {"stock": 256, "smaller-frames": 64}.get(row["method"], 76)
        assert row["tokens"] == spent
        assert (row["cosine"] is not None) == (row["method"] == "arr-coc")
        # What is not there has no place.
        full = row["place"] if row["truth"] != "no" else 1
        assert full == 1 or row["method"] != "stock"
    by_name = {entry["method"]: entry for entry in report["methods"]}
    assert list(by_name) == ["stock", "smaller-frames", "evs", "arr-coc"]
    assert {"against_stock", "place", "moment", "cosine", "overlap"} <= set(by_name["arr-coc"])
    assert by_name["arr-coc"]["coherence"] and "cosine" not in by_name["evs"]
    assert {pair["against"] for pair in report["pairs"]} == {"evs", "smaller-frames"}
    assert report["identity"]["groups"] == 4 and report["data"]["world"] == "clips"
    # A row's answer is the one that the host itself gives.
    row = next(row for row in rows if row["method"] == "arr-coc")
    drawn = make_clip(int(row["picture"]), groups=4)
    clip = views.clip_of(drawn.frames, fps=drawn.fps)
    answer = bundled.generate(clip, row["question"], config=Config(budget=76), max_new_tokens=8)
    assert answer.text == row["answer"]
    again = run(capsys, tmp_path, *words, "--resume")
    assert len(pq.read_table(tmp_path / "rows.parquet")) == 8
    assert again["methods"] == report["methods"]


def test_three_pictures_from_end_to_end(few, tmp_path, capsys, monkeypatch, bundled):
    monkeypatch.setattr(ARRCOCQwen, "from_pretrained", lambda *_, **__: bundled)
    words = ["--world", "pictures", "--n", "1", "--kinds", "which_picture", "--size", "192", "192"]
    report = run(capsys, tmp_path, *words)
    expected = [name for name, make in VIEWS_METHODS.items() if not make().of_clips]
    assert [entry["method"] for entry in report["methods"]] == expected
    by_name = {entry["method"]: entry for entry in report["methods"]}
    assert by_name["stock"]["on_evidence"]["value"] == pytest.approx(1 / 3, abs=1e-3)
    assert 0 <= by_name["arr-coc"]["on_evidence"]["value"] <= 1
    assert "coherence" not in by_name["arr-coc"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--world", "clips", "--methods", "fastv"], "fastv: not of the world clips"),
        (["--methods", "evs"], "evs: not of the world small"),
        (["--world", "pictures", "--methods", "fewer-frames"], "of clips, not of pictures"),
        (["--world", "clips", "--time", "3"], "are not for --world clips"),
        (
            ["--world", "clips", "--methods", "evs", "--share", "0.1"],
            "evs: keeps a whole moment: budgets are at least 0.125 of 8 moments",
        ),
        (["--groups", "4"], "--groups is of --world clips and pictures"),
        (["--world", "clips", "--easy-vqa"], "drawn scenes"),
    ],
)
def test_what_does_not_go_together_is_refused(words, told, capsys):
    with pytest.raises(SystemExit):
        evaluate.parse(["--out", "unused", *words], "")
    assert told in capsys.readouterr().err


def test_what_keeps_a_whole_moment_is_left_out_of_smaller_budgets(capsys):
    few = evaluate.parse(["--out", "unused", "--world", "clips", "--share", "0.1"], "")
    assert "evs" not in few.methods and "evs: left out" in capsys.readouterr().err
    usual = evaluate.parse(["--out", "unused", "--world", "clips", "--share", "0.2"], "")
    assert "evs" in usual.methods and not capsys.readouterr().err


def test_settings_of_the_worlds():
    clips = evaluate.parse(["--out", "unused", "--world", "clips"], "")
    assert clips.groups == 8 and clips.size == (256, 256) and clips.budgets == (0.2,)
    assert (
        clips.methods
        == tuple(name for name, make in VIEWS_METHODS.items() if not make().needs_weights)
        and "often" in clips.kinds
    )
    pictures = evaluate.parse(["--out", "unused", "--world", "pictures", "--groups", "6"], "")
    assert pictures.groups == 6 and "evs" not in pictures.methods
    assert identity.identity(pictures)["groups"] == 6
