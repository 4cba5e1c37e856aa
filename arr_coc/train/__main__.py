"""Train ARR-COC's parts for a Qwen3-VL base: head weights, couplings, tensions, combiner, adapter.

    python -m arr_coc.train --out runs/arr-coc
    torchrun --nproc_per_node 2 -m arr_coc.train --out runs/arr-coc --device cpu --minutes 25
    torchrun --nproc_per_node 8 -m arr_coc.train --base Qwen/Qwen3-VL-2B-Instruct --data hub \
        --dataset lmms-lab/VQAv2 --split validation --bf16 --out runs/arr-coc

The base is frozen. `transformers.Trainer` runs it: several GPUs, accumulation, checkpoints (`--resume`
goes on from the last), logging. OUT is laid out like a Hub model repo: `config.json`,
`model.safetensors`, and `training.json` with what went in. `OUT.work` holds the checkpoints, the log
and a sampled trail of decisions. The last line on stdout is JSON. What is trained, and by which
losses, is in docs/training.md.
"""

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset, IterableDataset
from transformers import TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

from arr_coc.commands import run_command
from arr_coc.components import Components, for_base
from arr_coc.qwen import loading, shapes, weights
from arr_coc.qwen.model import ARRCOCQwen
from arr_coc.scenes.scene import DEV_SEED
from arr_coc.train.data import FolderSamples, HubSamples, SceneSamples, collate
from arr_coc.train.learner import Learner
from arr_coc.train.report import compare
from arr_coc.train.settings import Settings, parse
from arr_coc.train.trainer import Clock, Guard, PartsTrainer, Watch


def main(argv: Sequence[str] | None = None) -> None:
    """Train, write OUT from the first process, and with `--eval-n` measure what was gained."""
    settings = parse(argv)
    torch.set_num_threads(settings.threads)
    options = training_arguments(settings)
    learner = learner_for(settings, options.device)
    trainer = trainer_for(learner, options, settings)
    last = get_last_checkpoint(options.output_dir) if settings.resume else None
    start = time.monotonic()
    trainer.train(resume_from_checkpoint=last)
    seconds = time.monotonic() - start
    if not trainer.is_world_process_zero():
        return
    host, parts = learner.host, learner.parts
    record = run_record(
        settings,
        base=host.name,
        parts=parts.names,
        steps=trainer.state.global_step,
        processes=options.world_size,
        seconds=seconds,
    )
    # Before it is measured: that takes a while, and what was trained should be safe by then.
    publish(parts, host, record, out=settings.out, init=settings.init)
    if settings.eval_n:
        record["evaluation"] = compare(host, parts.eval(), n=settings.eval_n, first_seed=DEV_SEED)
        publish(parts, host, record, out=settings.out, init=settings.init)
    print(json.dumps({"out": str(settings.out), **record}))


# --- building: base, parts, data, Trainer ---


def learner_for(settings: Settings, device: torch.device) -> Learner:
    """The base, frozen, and the parts: new ones, or those of `--init`."""
    torch.manual_seed(settings.seed)
    dtype = "bfloat16" if settings.bf16 else settings.dtype
    host = host_for(settings.base, settings.shapes, device=device, dtype=dtype)
    parts = for_base(
        host.model.config,
        host.attention_layers,
        settings.parts,
        settings.context or "cells",
        attends=settings.adapter_attends,
        glances=True,
    )
    if settings.init:
        parts = continued(host, settings.init, new=parts, renew=settings.renew, only=settings.only)
        parts.context = settings.context or parts.context
    return Learner(host, parts.to(device), settings.seed, settings.budgets)


def host_for(
    base: str | None, random_shapes: str | None, *, device: torch.device, dtype: str | None
) -> ARRCOCQwen:
    """The base without trained parts, or a random model of the named shapes."""
    if random_shapes:
        return shapes.build_host(random_shapes, device, loading.default_dtype(device, dtype))
    return ARRCOCQwen.from_pretrained(base, components="", device=device, dtype=dtype)


def continued(
    host: ARRCOCQwen, folder: Path, *, new: Components, renew: Sequence[str], only: Sequence[str]
) -> Components:
    """The parts in a folder, those of `renew` taken from `new`; with `only` no others are trained."""
    parts = weights.load_components(folder, None, base=host.name, **host.identity())
    for name in renew:
        setattr(parts, name, getattr(new, name))
    for name in parts.names:
        getattr(parts, name).requires_grad_(not only or name in only)
    return parts


def samples_for(settings: Settings, world: int) -> Dataset | IterableDataset:
    """What is trained on by `world` processes."""
    if settings.data == "folder":
        return FolderSamples(settings.folder, settings.n, settings.skip_bad)
    if settings.data == "hub":
        return HubSamples(settings.dataset, settings.split, settings.subset, settings.n)
    count = settings.steps * settings.batch * settings.accumulate * world
    return SceneSamples(settings.first_seed, count, settings.questions)


def training_arguments(settings: Settings) -> TrainingArguments:
    """For `Trainer`; these also set up the processes."""
    draws_scenes = settings.data == "scenes"
    return TrainingArguments(
        output_dir=str(settings.work),
        max_steps=settings.steps,
        per_device_train_batch_size=settings.batch,
        gradient_accumulation_steps=settings.accumulate,
        learning_rate=settings.lr,
        weight_decay=0.01,
        max_grad_norm=1.0,
        logging_steps=settings.log_every,
        logging_first_step=True,
        save_steps=settings.save_every,
        save_total_limit=2,
        report_to=settings.report_to,
        seed=settings.seed,
        bf16=settings.bf16,
        use_cpu=settings.device == "cpu",
        remove_unused_columns=False,
        dataloader_num_workers=settings.workers,
        # Scenes are drawn in order: the order is the curriculum.
        train_sampling_strategy="sequential" if draws_scenes else "random",
        # With one question a picture, a batch may have no use for some part.
        ddp_find_unused_parameters=not draws_scenes or settings.questions < 2,
        # A stream is read in every process: batches of samples are no tensors to send around.
        accelerator_config={"dispatch_batches": False},
    )


def trainer_for(learner: Learner, options: TrainingArguments, settings: Settings) -> PartsTrainer:
    """The Trainer, whose clock starts now."""
    settings.work.mkdir(parents=True, exist_ok=True)
    clock = Clock(settings.steps, settings.minutes)
    return PartsTrainer(
        model=learner,
        args=options,
        train_dataset=samples_for(settings, options.world_size),
        data_collator=collate,
        callbacks=[clock, Watch(learner, settings.work, settings.log_every), Guard(learner)],
        clock=clock,
    )


# --- publishing ---


def run_record(
    settings: Settings,
    *,
    base: str,
    parts: list[str],
    steps: int,
    processes: int,
    seconds: float,
) -> dict[str, Any]:
    """What `training.json` says of a run."""
    samples = steps * settings.batch * settings.accumulate * processes
    return {
        "command": settings.command,
        "base": base,
        "parts": parts,
        "processes": processes,
        "steps": steps,
        "seconds": round(seconds, 1),
        "seed": settings.seed,
        "data": settings.data,
        "first_seed": settings.first_seed if settings.data == "scenes" else None,
        "samples_per_second": round(samples / max(seconds, 1e-9), 2),
    }


def publish(
    parts: Components, host: ARRCOCQwen, record: dict[str, Any], *, out: Path, init: Path | None
) -> None:
    """Write the weights to `out`, and the record after those of the runs that `init` came from."""
    weights.save_components(parts, out, base=host.name, **host.identity())
    earlier = []
    if init and (init / weights.TRAINING).is_file():
        earlier = json.loads((init / weights.TRAINING).read_text())["runs"]
    runs = json.dumps({"runs": [*earlier, record]}, indent=1)
    (out / weights.TRAINING).write_text(runs + "\n")


if __name__ == "__main__":
    run_command("arr_coc.train", main)
