"""The loop of pretraining: equal to a plain one, resumed or not, in one process or in two."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from accelerate.state import AcceleratorState
from torch.utils.data import DataLoader
from transformers import Qwen3VLForConditionalGeneration

import arr_coc
from arr_coc.pretrain import __main__ as pretrain
from arr_coc.pretrain import loop, stages
from arr_coc.pretrain import model as pretrain_model
from arr_coc.pretrain.checkpoints import last_checkpoint, read_run
from arr_coc.pretrain.data import Batches
from arr_coc.pretrain.run import MODULES
from arr_coc.pretrain.views import STAGE_VIEWS

ROOT = Path(__file__).parent.parent
BASE = Path(arr_coc.__file__).parent / "bundled" / "base"
TOKENS = 16
SMALL = ["--tokens", str(TOKENS), "--workers", "0", "--eval-n", "0", "--float32", "--threads", "1"]
# Of the joint stage: with this offset the second batch is reading practice that nobody asks about,
# the third is from easy-VQA, where nobody labelled the visual tokens.
OFFSET = 3072


@pytest.fixture(autouse=True)
def fresh_process():
    """accelerate and torch keep precision and threads for the life of a process: not beyond a test.

    One thread: with more, sums depend on how they are shared out, and a busy machine is slow.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    AcceleratorState._reset_state(reset_partial_state=True)
    yield
    AcceleratorState._reset_state(reset_partial_state=True)
    torch.set_num_threads(threads)


def _command(folder: Path, stage: str, *more: str) -> list[str]:
    """Arguments that train one stage: the joint one from the bundled base."""
    start = ["--init", str(BASE), "--seed-offset", str(OFFSET)] if stage == "joint" else []
    return ["--out", str(folder), "--stages", stage, *start, *SMALL, *more]


def _state(folder: Path) -> dict:
    return read_run(last_checkpoint(folder.with_name(folder.name + ".work")))


def _weights(state: dict) -> dict[str, torch.Tensor]:
    return {f"{part}.{k}": v for part in MODULES for k, v in state[part].items()}


def _apart(some: dict, others: dict) -> float:
    assert some.keys() == others.keys()
    return max((some[key] - others[key]).abs().max().item() for key in some)


def _plain_loop(
    folder: Path, stage: str, steps: int, world: int = 1, alone: int | None = None
) -> tuple[list[float], dict]:
    """The same training by hand: losses of the first process, and the weights after `steps`.

    One process goes through every process's batch and averages, or through those of the one `alone`;
    where several would meet, what got no gradient counts as zero.
    """
    ranks = range(world) if alone is None else [alone]
    run = pretrain.begin(pretrain.parse(_command(folder, stage)))
    text, vision = run.model.model.language_model, run.model.model.visual
    run.model.requires_grad_(False)
    trained = [text, run.codes] if stage == "symbolic" else [text, vision, run.heads]
    params = [p for module in trained for p in module.parameters()]
    for p in params:
        p.requires_grad_(True)
    inner = {id(p) for blocks in (text.layers, vision.blocks) for p in blocks.parameters()}
    matrices = [p for p in params if id(p) in inner and p.ndim == 2]
    others = [p for p in params if id(p) not in inner or p.ndim != 2]
    scale = 0.5 if stage == "joint" else 1.0
    muon = torch.optim.Muon(matrices, weight_decay=0.01, adjust_lr_fn="match_rms_adamw")
    adamw = torch.optim.AdamW(others, betas=(0.9, 0.98), weight_decay=0.01)
    first = loop.FIRST_SEED[stage] + (OFFSET if stage == "joint" else 0)
    views = STAGE_VIEWS["small"][stage]
    drawn = [
        Batches(views, tokens=TOKENS, steps=steps, first_seed=first, rank=rank, world=world)
        for rank in ranks
    ]
    drawn = [iter(DataLoader(batches, batch_size=None)) for batches in drawn]
    losses = []
    run.model.train()
    for step in range(steps):
        rate = min(1, (step + 1) / 40) * (1 - 0.95 * max(0, step / steps - 0.5) / 0.5)
        muon.param_groups[0]["lr"] = 3e-3 * scale * rate
        adamw.param_groups[0]["lr"] = 1.5e-3 * scale * rate
        for rank, batches in enumerate(drawn):
            loss, _ = stages.LOSSES[stage](run, next(batches))
            (loss / len(ranks)).backward()
            losses += [loss.item()] if rank == 0 else []
        for p in params:
            p.grad = torch.zeros_like(p) if p.grad is None and world > 1 else p.grad
        torch.nn.utils.clip_grad_norm_([*matrices, *others], 1.0)
        for optimizer in (muon, adamw):
            optimizer.step()
            optimizer.zero_grad()
    return losses, _weights(run.state_dict())


def _watched(monkeypatch, stage: str, stop_after: int | None = None) -> list[float]:
    """The losses of the stage as the loop goes on; a crash instead of one more than `stop_after`."""
    losses, loss_of = [], stages.LOSSES[stage]

    def watched(*args):
        if len(losses) == stop_after:
            raise KeyboardInterrupt
        loss, scores = loss_of(*args)
        losses.append(loss.item())
        return loss, scores

    monkeypatch.setitem(stages.LOSSES, stage, watched)
    return losses


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.parametrize(("stage", "count"), [("symbolic", 20), ("joint", 6)])
def test_training_is_the_plain_loop_and_resuming_changes_nothing(
    tmp_path, monkeypatch, stage, count
):
    """So many steps equal those by hand, and half of them, a crash and the other half."""
    steps = [f"--{stage}-steps", str(count)]
    expected, plain = _plain_loop(tmp_path / "plain", stage, count)
    with monkeypatch.context() as patch:
        losses = _watched(patch, stage)
        pretrain.main(_command(tmp_path / "straight", stage, *steps))
    assert losses == pytest.approx(expected, abs=1e-5)
    straight = _state(tmp_path / "straight")
    assert _apart(_weights(straight), plain) < 1e-5
    begun = _weights(pretrain.begin(pretrain.parse(_command(tmp_path, stage))).state_dict())
    assert _apart(begun, plain) > 1e-4  # it did learn

    saving = [*steps, "--save-every", str(count // 2)]
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        _watched(patch, stage, stop_after=count // 2 + 1)
        pretrain.main(_command(tmp_path / "halves", stage, *saving))
    assert _state(tmp_path / "halves")["step"] == count // 2
    pretrain.main(_command(tmp_path / "halves", stage, *saving, "--resume"))
    resumed = _state(tmp_path / "halves")
    assert _apart(_weights(resumed), _weights(straight)) < 1e-5
    assert resumed["pictures"] == straight["pictures"] and len(resumed["commands"]) == 2


def test_two_stages_run_apart_join(tmp_path):
    """The text side, its codes and counters come from one run, vision side and read-outs from the other."""
    apart = {}
    for stage in ("symbolic", "dense"):
        pretrain.main(_command(tmp_path / stage, stage, f"--{stage}-steps", "1"))
        apart[stage] = _state(tmp_path / stage)
    sides = [f"--{side}-from" for side in ("text", "vision")]
    folders = [str(tmp_path / f"{stage}.work" / "state") for stage in apart]
    both = [word for pair in zip(sides, folders, strict=True) for word in pair]
    joined = pretrain.begin(pretrain.parse(_command(tmp_path / "base", "align", *both)))
    assert (joined.stage, joined.step) == ("align", 0)
    assert joined.pictures == {"symbolic": 1, "dense": 1} and len(joined.commands) == 2
    for key, value in _weights(joined.state_dict()).items():
        part, _, name = key.partition(".")
        origin = "dense" if ".visual." in key or part == "heads" else "symbolic"
        assert torch.equal(value, apart[origin][part][name]), key


@pytest.mark.parametrize(
    "words", [["--stages", "symbolc"], ["--text-from", "runs/symbolic.work/state"], []]
)
def test_settings_that_make_no_sense_are_refused(words, capsys):
    out = ["--out", "base"] if words else []
    with pytest.raises(SystemExit):
        pretrain.parse([*out, *words])
    assert "error:" in capsys.readouterr().err


def test_settings_are_what_the_flags_say():
    settings = pretrain.parse(["--out", "runs/base", "--stages", "dense", "--dense-steps", "7"])
    assert settings.work == Path("runs/base.work") and settings.stages == ("dense",)
    assert settings.steps == {"symbolic": 3000, "dense": 7, "align": 1500, "joint": 5000}
    with pytest.raises(AttributeError):
        settings.work = Path("elsewhere")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _two_processes(*command: str) -> str:
    """Run `command` twice side by side under torchrun; returns what both print."""
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2"]
    launch += ["--master_addr", "127.0.0.1", "--master_port", str(_free_port())]
    done = subprocess.run(
        [*launch, *command],
        check=True, capture_output=True, text=True, timeout=300, cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    return done.stdout


@pytest.mark.thorough
@pytest.mark.slow
def test_two_processes_train_one_model(tmp_path):
    """Under torchrun both draw their own batches; the first writes, and the gradients are shared."""
    folder = tmp_path / "base"
    few = ["--tokens", "16", "--workers", "0", "--eval-n", "0", "--threads", "1"]
    command = ["-m", "arr_coc.pretrain", "--out", str(folder), "--stages", "dense"]
    _two_processes(*command, "--dense-steps", "2", *few)
    state = _state(folder)
    assert state["step"] == 2
    assert state["pictures"]["dense"] % 2 == 0


@pytest.mark.thorough
@pytest.mark.slow
def test_two_processes_average_their_gradients(tmp_path):
    """Also where a batch leaves the text side or the read-outs without a gradient."""
    command = _command(tmp_path / "base", "joint", "--joint-steps", "3")
    _two_processes("-m", "arr_coc.pretrain", *command)
    _, plain = _plain_loop(tmp_path / "plain", "joint", 3, world=2)
    assert _apart(_weights(_state(tmp_path / "base")), plain) < 1e-5


@pytest.mark.thorough
@pytest.mark.slow
def test_two_processes_go_on_alone_and_average_their_weights(tmp_path):
    often = ["--average-every", "3", "--save-every", "3"]
    _two_processes(
        "-m",
        "arr_coc.pretrain",
        *_command(tmp_path / "base", "joint", "--joint-steps", "3", *often),
    )
    first, second = (_plain_loop(tmp_path / f"{n}", "joint", 3, 2, alone=n)[1] for n in (0, 1))
    mean = {key: (first[key] + second[key]) / 2 for key in first}
    assert _apart(_weights(_state(tmp_path / "base")), mean) < 1e-5 < _apart(first, mean)


def test_processes_meet_at_every_checkpoint(capsys):
    with pytest.raises(SystemExit):
        pretrain.parse(["--out", "x", "--average-every", "8", "--save-every", "100"])
    assert "--average-every 8 is not a divisor of --save-every 100" in capsys.readouterr().err


@pytest.mark.thorough
@pytest.mark.slow
def test_all_processes_stop_where_the_furthest_is(tmp_path):
    script = tmp_path / "clocks.py"
    script.write_text(
        "from accelerate import Accelerator\n"
        "from arr_coc.pretrain.loop import furthest\n"
        "accelerator = Accelerator(cpu=True)\n"
        "own = 0.25 + 0.5 * accelerator.process_index\n"
        "print('furthest', furthest(accelerator, own))\n"
    )
    assert _two_processes(str(script)).count("furthest 0.75") == 2


def _train(folder: Path, *more: str) -> dict:
    steps = ["--symbolic-steps", "1", "--dense-steps", "1", "--align-steps", "1"]
    few = ["--tokens", "16", "--workers", "0", "--eval-n", "0", "--save-every", "1"]
    few += ["--threads", "1"]
    pretrain.main(["--out", str(folder), *steps, *few, *more])
    return _state(folder)


@pytest.mark.thorough
@pytest.mark.slow
def test_what_goes_on_from_a_folder_reads_out_as_the_run_did_that_wrote_it(tmp_path):
    state = _train(tmp_path / "base", "--joint-steps", "1")
    before = {p.name for p in tmp_path.iterdir()}
    assert before == {"base", "base.work", "base.readouts.safetensors"}
    words = ["--out", str(tmp_path / "more"), "--init", str(tmp_path / "base"), "--stages", "joint"]
    heads = pretrain.begin(pretrain.parse(words)).heads.state_dict()
    assert heads.keys() == state["heads"].keys()
    for key, value in heads.items():
        assert torch.equal(value, state["heads"][key].bfloat16().float()), key


@pytest.mark.thorough
@pytest.mark.slow
def test_new_read_outs_learn_before_the_model_does(tmp_path, capsys):
    """At a rate of 0 the joint stage changes nothing, so whatever moved has moved before it."""
    _train(tmp_path / "base", "--joint-steps", "1")
    (tmp_path / "base.readouts.safetensors").unlink()
    still = ["--init", str(tmp_path / "base"), "--stages", "joint", "--joint-steps", "1"]
    still += ["--joint-lr-scale", "0"]
    before = _train(tmp_path / "before", *still)
    after = _train(tmp_path / "after", *still, "--readouts-first", "2")
    assert before["step"] == after["step"] == 1
    assert _apart(before["model"], after["model"]) == 0 < _apart(before["heads"], after["heads"])
    for flags, sentence in (
        (["--readouts-first", "2"], "--readouts-first goes with --init and stages to train"),
        (["--init", "y", "--readouts-first", "2", "--stages"], "--readouts-first goes with"),
        (["--init", "y", "--stages", "dense", "align"], "starts the joint stage, not dense align"),
        (["--init", "y", "--readouts-first", "-1"], "--readouts-first -1 is below 0"),
    ):
        with pytest.raises(SystemExit):
            pretrain.parse(["--out", "x", *flags])
        assert sentence in capsys.readouterr().err


def test_a_run_writes_a_loadable_folder_and_resumes(tmp_path, capsys):
    folder = tmp_path / "base"
    state = _train(folder, "--joint-steps", "2")
    assert (state["stage"], state["step"]) == ("joint", 2)
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["out"] == str(folder)
    model, tokenizer = pretrain_model.load(folder)
    assert isinstance(model, Qwen3VLForConditionalGeneration)
    assert tokenizer.eos_token == "<|im_end|>"
    assert all(torch.isfinite(p).all() for p in model.parameters())
    assert (
        "Apache" in (folder / "README.md").read_text()
        or "apache" in (folder / "README.md").read_text()
    )
    resumed = _train(folder, "--joint-steps", "3", "--resume")
    assert (resumed["stage"], resumed["step"]) == ("joint", 3)
    assert resumed["pictures"]["joint"] > state["pictures"]["joint"]
    changed = [k for k in state["model"] if not torch.equal(state["model"][k], resumed["model"][k])]
    assert any(".visual." in k for k in changed) and any("language_model" in k for k in changed)
    initialised = _train(tmp_path / "more", "--joint-steps", "1", "--init", str(folder))
    assert (initialised["stage"], initialised["step"]) == ("joint", 1)
    facts = [
        json.loads((tmp_path / name / "training.json").read_text()) for name in ("base", "more")
    ]
    assert facts[1]["commands"][:-1] == facts[0]["commands"]  # a restart adds to what went before
    assert facts[1]["pictures"]["joint"] > facts[0]["pictures"]["joint"]
    assert facts[1]["pictures"]["dense"] == facts[0]["pictures"]["dense"]
