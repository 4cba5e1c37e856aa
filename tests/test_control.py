"""The control of an evaluation: the stock model with what the boxes hold black, and with all else black."""

import json

import numpy as np
import pytest
from PIL import Image

from arr_coc.evaluate import __main__ as evaluate
from arr_coc.evaluate import control
from arr_coc.evaluate.questions import Item, Ref
from arr_coc.evaluate.vqa import Local, Part
from arr_coc.scenes.scene import make_scene
from arr_coc.sets.rows import set_rows


def test_only_what_is_to_be_black_is_black():
    image = Image.new("RGB", (40, 30), (200, 100, 50))
    boxes = [(4.2, 5, 10, 12), (30, 0, 40, 30)]
    black = np.asarray(control.blackened(image, boxes, inside=True))
    alone = np.asarray(control.blackened(image, boxes, inside=False))
    assert not black[5:12, 4:10].any() and not black[:, 30:].any() and black[5:12, 10:30].all()
    assert np.array_equal(black + alone, np.asarray(image)) and not (black * alone).any()
    item = Item(Ref("a", 0), image, "?", "all", ("x",), tuple(boxes))
    assert [each.image.size for each in control.looks_of(item).values()] == [(40, 30)] * 3


def test_the_summary_pairs_each_look_with_the_whole_picture():
    rows = [
        {"picture": str(n // 2), "index": n, "whole": 1.0, "boxes_black": float(n % 4 == 0),
         "boxes_alone": 1.0, "kind": "ab"[n % 4 == 0]}
        for n in range(40)
    ]  # fmt: skip
    found = control.summarise_control(rows)
    assert (
        found["n"] == 40 and found["whole"]["value"] == 1 and found["boxes_black"]["value"] == 0.25
    )
    assert found["boxes_black_minus_whole"]["value"] == -0.75
    assert (
        found["boxes_black_minus_whole"]["interval"][1]
        < 0
        == found["boxes_alone_minus_whole"]["value"]
    )
    guessed = found["guessed"]
    assert [(guessed[k]["n"], guessed[k]["remain"]) for k in ("all", "a", "b")] == [
        (40, 10), (30, 0), (10, 10),
    ]  # fmt: skip
    none_right = control.summarise_control([{**rows[0], "whole": 0.0}])["guessed"]["all"]
    assert none_right == {"n": 0, "remain": 0, "interval": None}
    assert control.summarise_control([]) is None


@pytest.fixture
def folder(tmp_path):
    """Four questions about two development scenes with what their boxes hold, one without boxes."""
    rows = []
    for seed in (902_000_000, 902_000_001):
        scene = make_scene(seed, size=(256, 256))
        scene.image.save(tmp_path / f"{seed}.png")
        for question in [q for q in scene.questions if q.boxes][:2]:
            row = {"image": f"{seed}.png", "question": question.text, "answers": [question.answer]}
            rows.append(row | {"boxes": question.boxes, "kind": question.kind})
    rows.append({key: value for key, value in rows[0].items() if key != "boxes"})
    (tmp_path / "questions.json").write_text(json.dumps(rows))
    return tmp_path


def test_evaluate_writes_the_control_once_and_goes_on_where_it_stopped(
    folder, tmp_path, monkeypatch
):
    out = tmp_path / "out"
    words = ["--out", str(out), "--folder", str(folder), "--methods", "stock", "--device", "cpu"]
    words += ["--floor", "0", "--instruction", "", "--control"]
    evaluate.main(words)
    rows = control.read(out)
    boxed = sum("boxes" in row for row in json.loads((folder / "questions.json").read_text()))
    assert len(rows) == boxed == 4
    summary = json.loads((out / "summary.json").read_text())
    assert summary["control"]["n"] == boxed
    assert summary["control"]["boxes_black"]["value"] <= summary["control"]["whole"]["value"]
    kept = "\n".join(json.dumps(row) for row in rows[:-1]) + '\n{"pict'  # killed as it wrote
    (out / control.FILE).write_text(kept)
    asked = []
    real = control.measure_items
    monkeypatch.setattr(
        control, "measure_items", lambda *a, **k: asked.append(len(a[2])) or real(*a, **k)
    )
    evaluate.main([*words, "--resume"])
    assert control.read(out) == rows and asked == [1, 1, 1]
    # The row that came next is not glued to what was left of the one before.
    assert [json.loads(line) for line in (out / control.FILE).read_text().splitlines()] == rows


def test_a_folder_without_boxes_has_no_control(folder, tmp_path):
    rows = json.loads((folder / "questions.json").read_text())[-1:]
    (folder / "questions.json").write_text(json.dumps(rows))
    words = ["--out", str(tmp_path / "out"), "--folder", str(folder), "--methods", "stock"]
    with pytest.raises(ValueError, match="--control needs boxes, and no question"):
        evaluate.main([*words, "--device", "cpu", "--control"])


def test_a_local_data_set_is_evaluated_on_its_held_out_part(folder, tmp_path, monkeypatch):
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    rows = json.loads((folder / "questions.json").read_text())
    columns = {key: [row[key] for row in rows] for key in ("question", "answers")}
    columns["image"] = [str(folder / row["image"]) for row in rows]
    columns["boxes"] = [row.get("boxes") for row in rows]
    found = datasets.Dataset.from_dict(columns).cast_column("image", datasets.Image())
    (tmp_path / "set").mkdir()
    found.to_parquet(tmp_path / "set" / "validation-00000-of-00001.parquet")
    words = ["--dataset", str(tmp_path / "set"), "--methods", "stock", "arr-coc", "--device", "cpu"]
    words += ["--budgets", "0.2", "--held-out", "0.9", "--floor", "0", "--instruction", ""]
    evaluate.main(["--out", str(tmp_path / "out"), *words])
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    # Of the two pictures the one whose name falls on that side, wherever the set lies.
    asked = Local(set_rows(tmp_path / "set", "validation"), part=Part("held-out", 0.9)).listed
    assert summary["data"]["n"] == len(asked) and 0 < len(asked) < len(rows)
    assert summary["data"]["part"] == "held-out" and summary["identity"]["held_out"] == 0.9
    ours = next(entry for entry in summary["methods"] if entry["method"] == "arr-coc")
    assert ours["overall"]["n"] == len(asked)
