"""Stages of real data: which questions are hard, the order of a run, budgets and losses by stage."""

import json

import pytest
import torch

from arr_coc import components
from arr_coc.evaluate.vqa import Folder, Listed
from arr_coc.scenes.scene import make_scene
from arr_coc.sets.asked import Asked
from arr_coc.train import __main__ as train
from arr_coc.train import learner as train_learner
from arr_coc.train import stages
from arr_coc.train.data import LocalSamples
from arr_coc.train.learner import Learner

pytestmark = pytest.mark.slow


def listed(question="What is it?", answers=("x",), boxes=()):
    return Listed(0, 0, Asked(question, answers), "k", (100, 100), boxes)


def test_hard_is_small_scattered_disputed_or_written():
    assert not stages.is_hard(listed())
    assert not stages.is_hard(listed(boxes=((0, 0, 50, 50),)))
    assert stages.is_hard(listed(boxes=((0, 0, 10, 10),)))
    assert stages.is_hard(listed(boxes=((0, 0, 50, 50), (50, 0, 90, 50), (0, 60, 90, 90))))
    assert stages.is_hard(listed(answers=("red", "blue", "green", "red")))
    assert not stages.is_hard(listed(answers=("red", "Red", "red", "blue")))
    assert stages.is_hard(listed("What does the small print say?"))
    assert stages.is_hard(listed("How many cups are there?"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path, rows = tmp_path_factory.mktemp("set"), []
    for number in range(6):
        scene = make_scene(906_000_000 + number, size=(256, 256))
        scene.image.save(path / f"{number}.png")
        row = {"image": f"{number}.png", "answers": ["red"]}
        rows.append(row | {"question": "What is it?", "boxes": [[0, 0, 128, 128]]})
        rows.append(row | {"question": "How many cups are there?", "boxes": [[0, 0, 20, 20]]})
    (path / "questions.json").write_text(json.dumps(rows))
    return path


def test_a_run_is_plain_then_hard_then_everything(folder):
    samples = LocalSamples(Folder(folder))
    staged = stages.StagedSamples(samples, [(8, 8)] * 12, count=40, batch=2, seed=1)
    assert len(staged) == 40 and staged.counts == {"plain": 6, "hard": 6, "mixed": 12}
    names = [staged[i].stage for i in range(40)]
    assert names == ["plain"] * 12 + ["hard"] * 12 + ["mixed"] * 16
    hard = [stages.is_hard(samples.source.listed[i]) for i in staged.order]
    assert not any(hard[:12]) and all(hard[12:24]) and 0 < sum(hard[24:]) < 16
    assert sorted(staged.order[:6]) == [0, 2, 4, 6, 8, 10], "each once an epoch"
    sample = staged[13]
    assert sample.stage == "hard" and sample.number == 13
    again = stages.StagedSamples(samples, [(8, 8)] * 12, count=40, batch=2, seed=1)
    assert (again.order == staged.order).all()


def test_without_stages_a_run_goes_through_all_again_and_again_in_batches_of_one_grid(folder):
    samples, grids = LocalSamples(Folder(folder)), [(8, 8)] * 5 + [(4, 4)] * 7
    plain = stages.StagedSamples(samples, grids, count=60, batch=5, seed=1, stages=stages.WITHOUT)
    assert len(plain) == 60 and {plain[i].stage for i in (0, 31, 59)} == {"mixed"}
    of_a_batch = [{grids[i] for i in batch} for batch in plain.order.reshape(-1, 5)]
    assert all(len(own) == 1 for own in of_a_batch)
    first, second = plain.order[:10], plain.order[10:20]
    assert len(set(first)) == len(set(second)) == 10 and list(first) != list(second)
    # What did not fill a batch is left out, and comes another time.
    assert set(plain.order) == set(range(12))


def test_each_stage_has_its_budgets_and_weighs_its_losses(folder, bundled, monkeypatch):
    torch.manual_seed(0)
    parts = components.for_base(
        bundled.model.config, bundled.attention_layers, ["heads"], glances=True
    )
    module = Learner(bundled, parts, budgets=(0.33,))
    samples = LocalSamples(Folder(folder))
    staged = stages.StagedSamples(samples, [(8, 8)] * 12, count=12, batch=2, seed=1)
    seen = []
    real = train_learner.decide
    monkeypatch.setattr(train_learner, "decide", lambda *a: seen.append(a[3]) or real(*a))
    values = {"answer": torch.ones(1), "cover": torch.ones(1)}
    with torch.no_grad():
        module([staged[0], staged[4], staged[11]])
        assert seen == [stages.BY_NAME["plain"].budgets, stages.BY_NAME["hard"].budgets, (0.33,)]
        monkeypatch.setattr(module, "losses", lambda group: values)
        found = {name: float(module([staged[i]])["loss"]) for name, i in
                 (("plain", 0), ("hard", 4), ("mixed", 11))}  # fmt: skip
    assert found == {"plain": 3, "hard": 3, "mixed": 2}


def test_the_command_trains_in_stages(folder, tmp_path, capsys):
    words = f"--data folder --folder {folder} --stages --held-out 0 --steps 4 --batch 1"
    words += " --parts heads --device cpu --report-to tensorboard --log-every 1"
    train.main(["--out", str(tmp_path / "out"), *words.split()])
    assert list((tmp_path / "out.work").rglob("events.out.tfevents.*")), "tensorboard's log"
    record = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert record["samples"] == 4 and record["set"]["stages"]["hard"] == 6


def test_stages_need_both_kinds_and_a_set_that_lies_here(folder, tmp_path, capsys):
    rows = json.loads((folder / "questions.json").read_text())[::2]
    for row in rows:
        row["image"] = str(folder / row["image"])
    (tmp_path / "questions.json").write_text(json.dumps(rows))
    with pytest.raises(ValueError, match="needs plain and hard questions; of 6, 0 are hard"):
        stages.StagedSamples(LocalSamples(Folder(tmp_path)), [(8, 8)] * 6, count=9, batch=2, seed=0)
    with pytest.raises(SystemExit):
        train.parse(["--out", "x", "--stages"])
    assert "--stages needs --data folder or local" in capsys.readouterr().err
