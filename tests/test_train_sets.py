"""Training on sets of real pictures: boxes, the held-out part, the best checkpoint, and resuming."""

import json
import logging
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file

from arr_coc import components
from arr_coc.evaluate.vqa import Folder, Part
from arr_coc.qwen import weights
from arr_coc.scenes.scene import make_scene
from arr_coc.train import __main__ as train
from arr_coc.train import decision, frozen, losses, report, sources, trainer
from arr_coc.train.data import LocalSamples, TrainingQuestion, evidence
from arr_coc.train.learner import Learner

pytestmark = pytest.mark.slow

datasets = pytest.importorskip("datasets")
ROOT = Path(__file__).parent.parent
SEEDS = range(903_000_000, 903_000_012)
HELD_OUT = "0.3"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr(datasets.config, "SLEEP_TIME_ON_THREADS_SHUTDOWN", 0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Development scenes as a plain folder of JPEG files: a question with boxes each."""
    path, rows = tmp_path_factory.mktemp("set"), []
    for seed in SEEDS:
        scene = make_scene(seed, size=(256, 256), kinds=("colour", "where"))
        scene.image.save(path / f"{seed}.jpg", quality=92)
        question = next(q for q in scene.questions if q.boxes)
        row = {"image": f"{seed}.jpg", "question": question.text, "answers": [question.answer]}
        rows.append(row | {"boxes": question.boxes, "kind": "number"})
    (path / "questions.json").write_text(json.dumps(rows))
    return path


def words(folder, *more):
    given = ["--data", "folder", "--folder", str(folder), "--held-out", HELD_OUT, "--batch", "2"]
    given += ["--steps", "6", "--save-every", "2", "--log-every", "1", "--device", "cpu"]
    return [*given, *more]


def ran(out, *given):
    """The command in this process; what `training.json` says of it."""
    train.main(["--out", str(out), *given])
    return json.loads((out / weights.TRAINING).read_text())["runs"][-1]


def logged(out, key="loss"):
    """The values of one key in the log of the last checkpoint."""
    work = out.parent / f"{out.name}.work"
    last = max(work.glob("checkpoint-*"), key=lambda p: int(p.name.split("-")[1]))
    history = json.loads((last / "trainer_state.json").read_text())["log_history"]
    return [entry[key] for entry in history if key in entry]


# --- boxes train the cover loss ---


@pytest.fixture(scope="module")
def learner(bundled):
    torch.manual_seed(0)
    base = bundled.model.config
    parts = components.for_base(base, bundled.attention_layers, ["heads", "policy"], glances=True)
    return Learner(bundled, parts)


def test_boxes_of_a_set_are_what_the_cover_loss_asks_for(folder, learner):
    sample = LocalSamples(Folder(folder))[0]
    (question,) = sample.questions
    with torch.no_grad():
        group = frozen.gather(learner.host, [sample])
    wanted = evidence(question.boxes, sample.image.size, group.grid)
    [places] = group.places
    assert torch.equal(places.amax(0).view(group.grid), wanted) and 0 < wanted.mean() < 0.5
    assert group.unboxed == [False], "answers are learned from people, not from the base"
    before = learner.losses(group)["cover"]
    in_boxes = (wanted > 0).float().flatten()[None]
    assert float(losses.cover(in_boxes, group.places)) == 0 < float(before.detach())
    before.sum().backward()
    with torch.no_grad():
        for parameter in learner.parts.heads.parameters():
            parameter -= 0.3 * parameter.grad
        assert float(learner.losses(group)["cover"]) < float(before), "tokens go into the boxes"


def test_without_boxes_the_base_teaches_whatever_the_set_calls_its_kinds(folder, learner):
    """A set's "number" is no kind of the scenes, of which a question without boxes has no place."""
    sample = LocalSamples(Folder(folder))[0]
    bare = TrainingQuestion("how many are there?", "2", "number")
    with torch.no_grad():
        group = frozen.gather(learner.host, [type(sample)(0, sample.image, (bare,))])
    assert group.unboxed == [True] and float(group.places[0].sum()) > 0


# --- the held-out part, the best checkpoint, an early stop ---


@pytest.fixture(scope="module")
def straight(folder, tmp_path_factory):
    """OUT and record of six steps, more than an epoch, with every checkpoint measured."""
    out = tmp_path_factory.mktemp("straight") / "out"
    return out, ran(out, *words(folder, "--eval-n", "4", "--keep-best"))


def test_the_report_asks_pictures_that_were_not_trained_on(folder, straight):
    _, record = straight
    settings = train.parse(["--out", "x", *words(folder, "--eval-n", "4")])
    held = {item.ref.picture for item in sources.held_out(settings).items}
    inputs = SimpleNamespace(grid_of=lambda size: (size[1] // 32, size[0] // 32))
    refs = sources.samples_for(settings, 1, inputs).samples.refs
    trained = {ref.picture for ref in refs}
    assert held and trained and not held & trained and len(held | trained) >= 10
    assert held == {one.key for one in Folder(folder, part=Part("held-out", 0.3)).listed[:4]}
    found = record["evaluation"]
    told = {"part": "held-out", "share": 0.3, "n": len(held), "chose_the_checkpoint": True}
    assert found["questions"] == told
    for share in ("0.05", "0.1", "0.2"):
        for method in ("training-free", "learned"):
            entry = found[share][method]
            low, high = entry["accuracy"]["interval"]
            assert low <= entry["accuracy"]["mean"] <= high and entry["n"] == len(held)
            assert 0 <= entry["coverage"]["mean"] <= 1
        gained = found[share]["learned"]["accuracy"]["mean"]
        gained -= found[share]["training-free"]["accuracy"]["mean"]
        assert found[share]["gained"]["mean"] == pytest.approx(gained, abs=1e-3)
    assert record["set"]["held_out"] == 0.3 and record["set"]["part"] == "train"


def test_what_is_published_is_the_best_checkpoint(folder, tmp_path, monkeypatch):
    """The second checkpoint is the best one by decree; the run goes on for one more, and stops."""
    right = iter([0.2, 0.8, 0.1, 0.0, 0.0, 0.0])
    monkeypatch.setattr(train, "learned_right", lambda *_: [next(right)])
    given = words(folder, "--eval-n", "2", "--keep-best", "--patience", "1", "--steps", "20")
    record = ran(tmp_path / "out", *given)
    assert record["best"] == {"step": 4, "accuracy": 0.8} and record["steps"] == 6
    assert logged(tmp_path / "out", "eval_accuracy") == [0.2, 0.8, 0.1]
    saved = load_file(tmp_path / "out.work" / "checkpoint-4" / "model.safetensors")
    published = load_file(tmp_path / "out" / weights.WEIGHTS)
    last = load_file(tmp_path / "out.work" / "checkpoint-6" / "model.safetensors")
    name = "policy.layers.0.weight"
    full = next(key for key in saved if key.endswith(name))
    own = next(key for key in published if key.endswith(name))
    assert torch.equal(published[own], saved[full]) and not torch.equal(saved[full], last[full])


@pytest.mark.parametrize("stopped_at", [2, pytest.param(4, marks=pytest.mark.thorough)])
def test_a_killed_run_resumes_to_the_same_result(folder, straight, tmp_path, stopped_at):
    """After the first checkpoint of an epoch, and after one of the second epoch's."""
    out, record = straight
    killed(folder, tmp_path, stopped_at)
    resumed = ran(tmp_path / "b", *words(folder, "--eval-n", "4", "--keep-best", "--resume"))
    assert logged(tmp_path / "b") == pytest.approx(logged(out), abs=1e-4)
    assert logged(tmp_path / "b", "eval_accuracy") == logged(out, "eval_accuracy")
    one, two = (load_file(each / weights.WEIGHTS) for each in (out, tmp_path / "b"))
    assert all(torch.allclose(one[key], two[key], atol=1e-5) for key in one)
    assert resumed["best"] == record["best"] and resumed["samples"] == record["samples"] == 12
    for share in ("0.05", "0.1", "0.2"):
        ours, theirs = (each["evaluation"][share]["learned"] for each in (resumed, record))
        assert ours["accuracy"] == theirs["accuracy"]


def killed(folder, tmp_path, stopped_at):
    """`b.work` as a run that was killed in the step after a checkpoint leaves it."""

    class Killed(Exception):
        pass

    def kill(self, args, state, control, **_):
        if state.global_step == stopped_at:
            raise Killed

    real = trainer.KeepBest.on_step_begin
    trainer.KeepBest.on_step_begin = kill
    try:
        with pytest.raises(Killed):
            ran(tmp_path / "b", *words(folder, "--eval-n", "4", "--keep-best"))
    finally:
        trainer.KeepBest.on_step_begin = real


def test_seconds_and_samples_go_on_counting_over_a_resume(folder, straight, tmp_path):
    out, record = straight
    assert record["samples"] == 12
    shutil.copytree(out.parent / "out.work", tmp_path / "b.work")
    shutil.rmtree(tmp_path / "b.work" / "checkpoint-6")
    left = sorted((tmp_path / "b.work").glob("checkpoint-*"))[-1]
    spent = json.loads((left / trainer.SPENT).read_text())
    assert spent["samples"] == 2 * int(left.name.split("-")[1]) and spent["evaluating"] > 0
    spent |= {"seconds": spent["seconds"] + 1000}
    (left / trainer.SPENT).write_text(json.dumps(spent))
    resumed = ran(tmp_path / "b", *words(folder, "--eval-n", "4", "--keep-best", "--resume"))
    assert resumed["seconds"] > 1000 and resumed["samples"] == 12
    assert resumed["samples_per_second"] == pytest.approx(12 / resumed["seconds"], abs=0.011)


def test_minutes_go_on_counting_over_a_resume(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(trainer.time, "monotonic", lambda: now[0])
    clock = trainer.Clock(1000, 1.0, trainer.Spent(seconds=45.0))

    class State:
        global_step = 0

    now[0] += 3
    clock.on_step_begin(None, State(), None)
    assert clock.progress == pytest.approx(48 / 60)


# --- a stream, as `datasets` gives it ---


def test_a_real_stream_is_trained_on_and_resumes_to_the_same_weights(folder, tmp_path, monkeypatch):
    rows = json.loads((folder / "questions.json").read_text())
    columns = {key: [row[key] for row in rows] for key in ("question", "answers")}
    columns["image"] = [str(folder / row["image"]) for row in rows]
    columns["image_id"] = [row["image"] for row in rows]
    found = datasets.Dataset.from_dict(columns).cast_column("image", datasets.Image())
    found.to_parquet(tmp_path / "train.parquet")
    stream = datasets.load_dataset
    monkeypatch.setattr(
        datasets,
        "load_dataset",
        lambda *a, **k: stream(
            "parquet", data_files=str(tmp_path / "train.parquet"), split="train", streaming=True
        ),
    )
    given = ["--data", "hub", "--dataset", "me/vqa", "--held-out", HELD_OUT, "--batch", "2"]
    given += ["--steps", "14", "--save-every", "7", "--log-every", "1", "--device", "cpu"]
    given += ["--parts", "heads", "policy"]
    record = ran(tmp_path / "one", *given)
    assert record["samples"] == 28 and record["set"]["reader"] == "plain"
    assert record["set"]["questions"] < 14, "it is gone on with in a second time through"
    shutil.copytree(tmp_path / "one.work", tmp_path / "two.work")
    shutil.rmtree(tmp_path / "two.work" / "checkpoint-14")
    ran(tmp_path / "two", *given, "--resume")
    assert logged(tmp_path / "two") == pytest.approx(logged(tmp_path / "one"), abs=1e-4)
    one, two = (load_file(tmp_path / name / weights.WEIGHTS) for name in ("one", "two"))
    assert all(torch.allclose(one[key], two[key], atol=1e-5) for key in one)


# --- dtypes and launchers ---


def test_float16_is_refused(monkeypatch):
    settings = train.parse(["--out", "x", "--device", "cpu"])
    monkeypatch.setenv("ARR_COC_DTYPE", "float16")
    with pytest.raises(ValueError, match="in float16, which is refused for training.*--bf16"):
        train.learner_for(settings, torch.device("cpu"))
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "fp16")
    with pytest.raises(ValueError, match="fp16 is refused for training"):
        train.check_launch()


def test_a_launcher_that_starts_one_process_on_a_cpu_is_told_of(monkeypatch, caplog):
    monkeypatch.setenv("ACCELERATE_USE_CPU", "True")
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    with caplog.at_level(logging.WARNING):
        train.check_launch()
        assert not caplog.records, "one process was asked for"
        monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
        train.check_launch()
    assert "starts one process" in caplog.text and "torchrun" in caplog.text


def test_tensions_are_the_same_numbers_under_autocast(folder, learner):
    with torch.no_grad():
        group = frozen.gather(learner.host, [LocalSamples(Folder(folder))[0]])
        statistics = torch.rand(1, 9)
        policy = learner.parts.policy
        plain = decision.float32_tensions(policy, group.words.mean, statistics)
        with torch.autocast("cpu", torch.bfloat16):
            rounded = policy(group.words.mean, statistics).float()
            found = decision.float32_tensions(policy, group.words.mean, statistics)
            group = frozen.gather(learner.host, [LocalSamples(Folder(folder))[0]])
            decided = learner_decision(learner, group).tensions
    assert torch.equal(found, plain) and not torch.equal(rounded, plain)
    assert decided.dtype == torch.float32
    assert not torch.equal(decided, decided.bfloat16().float())


def learner_decision(learner, group):
    random = [torch.Generator().manual_seed(0) for _ in group.questions]
    return decision.decide(learner.parts, group, random, learner.budgets)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--data", "local"], "needs --dataset PATH"),
        (["--data", "local", "--dataset", "nowhere.parquet"], "there is no nowhere.parquet"),
        (["--held-out", "1"], "--held-out 1 is outside"),
        (["--data", "folder", "--folder", "x", "--held-out", "0", "--eval-n", "5"],
         "needs --held-out above 0"),
        (["--keep-best"], "--keep-best needs --eval-n"),
        (["--patience", "2"], "with --keep-best"),
    ],
)  # fmt: skip
def test_words_about_data_that_do_not_go_together_are_refused(given, said, capsys):
    with pytest.raises(SystemExit):
        train.parse(["--out", "x", *given])
    assert said in capsys.readouterr().err


@pytest.mark.thorough
@pytest.mark.slow
def test_two_processes_share_the_held_out_questions_and_keep_the_best(folder, tmp_path, bundled):
    """What both together found of the best checkpoint is what one process finds of what was published."""
    given = words(folder, "--eval-n", "4", "--keep-best", "--steps", "4", "--batch", "1")
    env = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2"]
    command += ["--master_port", "29619", "-m", "arr_coc.train", "--out", "two", *given]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    record = json.loads((tmp_path / "two" / weights.TRAINING).read_text())["runs"][-1]
    assert record["processes"] == 2 and record["samples"] == 8
    questions = sources.held_out(train.parse(["--out", "x", *given]))
    parts = weights.load_components(tmp_path / "two", None, base=bundled.name, **bundled.identity())
    right = report.learned_right(bundled, parts.eval(), questions)
    assert len(right) == 4
    assert sum(right) / 4 == pytest.approx(record["best"]["accuracy"], abs=1e-3)
