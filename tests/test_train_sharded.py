"""Dividing what is trained among processes: refused, and what was tried before it was.

Two processes on the bundled base, on the CPU over gloo; docs/data.md tells what came of it.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from transformers import Qwen3VLConfig

from arr_coc.components import for_base
from arr_coc.qwen import shapes
from arr_coc.qwen.glance import ATTENTION_SPAN, layers_in
from arr_coc.train import __main__ as train
from arr_coc.train.settings import default_parts

ROOT = Path(__file__).parent.parent
BYTES = 16  # of a trained parameter: itself, its gradient and two moments, in float32

SHARDED = """
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from arr_coc.train import __main__ as train
from arr_coc.train.sources import samples_for

dist.init_process_group("gloo")
words = ["--out", "out", "--device", "cpu", "--steps", "2", "--batch", "1", "--questions", "3"]
settings = train.parse(words)
learner = train.learner_for(settings, torch.device("cpu"))
sample = [samples_for(settings, 2, learner.host.inputs)[dist.get_rank()]]
plain = learner(sample)["loss"]
plain.backward()
means = {}
for name, parameter in learner.named_parameters():
    means[name] = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.clone()
    dist.all_reduce(means[name])
    means[name] /= 2
learner.zero_grad()
mesh = init_device_mesh("cpu", (2,))
try:
    fully_shard(train.learner_for(settings, torch.device("cpu")), mesh=mesh)
except ValueError as error:
    print("refused:", error, flush=True)
scalars = {parameter for parameter in learner.parameters() if parameter.ndim == 0}
sharded = fully_shard(learner, mesh=mesh, ignored_params=scalars)
loss = sharded(sample)["loss"]
loss.backward()
divided = [(n, p) for n, p in sharded.named_parameters() if p not in scalars and p.grad is not None]
apart = max(float((p.grad.full_tensor() - means[name]).abs().max()) for name, p in divided)
own = sum(p.to_local().numel() for _, p in divided)
print("loss", float(plain) == float(loss), "apart", apart < 1e-6, flush=True)
print("own", own < 0.55 * sum(p.numel() for _, p in divided), flush=True)
dist.destroy_process_group()
"""
PLAIN = """
from accelerate import Accelerator
state = Accelerator(cpu=True).state
print("type", state.distributed_type.value, state.num_processes, flush=True)
"""


def two_processes(script: str, folder: Path, port: int, **variables: str) -> str:
    """What two processes of a script print."""
    (folder / "script.py").write_text(script)
    env = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)} | variables
    words = ["--nproc_per_node", "2", "--master_port", str(port), "script.py"]
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", *words],
        cwd=folder, env=env, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.parametrize("name", train.SHARDING)
def test_dividing_what_is_trained_is_refused_in_a_sentence(monkeypatch, name):
    monkeypatch.setenv(train.SHARDING[name], "true")
    with pytest.raises(ValueError, match=f"{name} divides what is trained"):
        train.check_launch()
    monkeypatch.setenv(train.SHARDING[name], "false")
    train.check_launch()


def test_what_would_be_divided_is_as_small_as_the_page_says():
    config = Qwen3VLConfig(text_config=shapes.TEXT_2B, vision_config=shapes.VISION_2B)
    layers = layers_in(ATTENTION_SPAN, config.text_config.num_hidden_layers)
    parts = for_base(config, layers, default_parts(None, None), glances=True)
    count = sum(parameter.numel() for parameter in parts.parameters())
    said = f"{count / 1e6:.1f} M parameters, {BYTES * count / 1e6:.0f} MB with gradients"
    assert said in " ".join((ROOT / "docs" / "data.md").read_text().split())


@pytest.mark.thorough
@pytest.mark.slow
def test_on_a_cpu_accelerate_leaves_fsdp_out_without_a_word(tmp_path):
    out = two_processes(PLAIN, tmp_path, 29671, **{train.SHARDING["FSDP"]: "true"})
    # Both write at once: one may write within the other's line.
    assert out.count("MULTI_CPU") == out.count(" 2\n") == out.count("type") == 2


@pytest.mark.thorough
@pytest.mark.slow
def test_torchs_own_gives_the_same_losses_and_gradients_once_scalars_are_left_out(tmp_path):
    out = two_processes(SHARDED, tmp_path, 29672)
    assert out.count("refused: fully_shard doesn't support scalar parameters") == 2
    assert out.count("loss True apart True\n") == out.count("own True\n") == 2
