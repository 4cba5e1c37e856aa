"""Train ARR-COC's parts for a Qwen3-VL base: what decides where to look, and what mends encodings.

    python -m arr_coc.train --out runs/arr-coc
    torchrun --nproc_per_node 2 -m arr_coc.train --out runs/arr-coc --device cpu --minutes 25
    torchrun --nproc_per_node 8 -m arr_coc.train --base Qwen/Qwen3-VL-2B-Instruct --data hub \
        --dataset lmms-lab/textvqa --split train --bf16 --eval-n 500 --keep-best --out runs/arr-coc

The base is frozen. `transformers.Trainer` runs it: several GPUs, accumulation, checkpoints (`--resume`
goes on from the last), logging. OUT is laid out like a Hub model repo: `config.json`,
`model.safetensors`, and `training.json` with what went in. `OUT.work` holds the checkpoints, the log
and a sampled trail of decisions. The last line on stdout is JSON. What is trained, and by which
losses, is in docs/training.md.
"""

import json
import logging
import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from transformers import TrainingArguments

from arr_coc.commands import run_command
from arr_coc.components import Components, for_base
from arr_coc.qwen import loading, shapes
from arr_coc.qwen.model import ARRCOCQwen
from arr_coc.train.chunks import Passes
from arr_coc.train.data import collate
from arr_coc.train.learner import Learner
from arr_coc.train.people import People
from arr_coc.train.publishing import check_out, initial, publish, runs_of
from arr_coc.train.report import compare, learned_right
from arr_coc.train.settings import TAUGHT, Settings, parse
from arr_coc.train.sources import HeldOut, held_out, samples_for
from arr_coc.train.trainer import (
    BEST_BY,
    Clock,
    Guard,
    KeepBest,
    PartsTrainer,
    Spent,
    Watch,
    last_checkpoint,
    on_one_gpu,
)

log = logging.getLogger(__name__)

# How accelerate is told to divide a model among processes.
SHARDING = {"FSDP": "ACCELERATE_USE_FSDP", "DeepSpeed": "ACCELERATE_USE_DEEPSPEED"}
NO_FLOAT16 = (
    "is refused for training: gradients beyond its range would be lost unseen; take --bf16, or set "
    "ARR_COC_DTYPE=float32"
)


def main(argv: Sequence[str] | None = None) -> None:
    """Train, write OUT from the first process, and with `--eval-n` measure what was gained."""
    settings = parse(argv)
    torch.set_num_threads(settings.threads)
    check_launch()
    check_out(settings.out, init=settings.init, resume=settings.resume)
    options = on_one_gpu(training_arguments(settings))
    learner = learner_for(settings, options.device)
    earlier = runs_of(settings.init)
    last = last_checkpoint(options.output_dir) if settings.resume else None
    questions = held_out(settings) if settings.eval_n else None
    trainer = trainer_for(learner, options, settings, Spent.at(last), questions)
    trainer.train(resume_from_checkpoint=last)
    spent = trainer.clock.spent
    if not trainer.is_world_process_zero():
        return
    host, parts = learner.host, learner.parts
    record = run_record(settings, learner, trainer, spent)
    # Before it is measured: that takes a while, and what was trained should be safe by then.
    publish(parts, host, record, out=settings.out, earlier=earlier)
    if questions:
        found = compare(host, parts.eval(), questions)
        # The best of many checkpoints on some questions reads too high on the same ones.
        about = questions.about | {"chose_the_checkpoint": settings.keep_best}
        record["evaluation"] = {"questions": about, **found}
        publish(parts, host, record, out=settings.out, earlier=earlier)
    print(json.dumps({"out": str(settings.out), **record}))


def check_launch() -> None:
    """Say what a launcher did that nobody asked for; ValueError for what training does not take."""
    if os.environ.get("ACCELERATE_MIXED_PRECISION") == "fp16":
        raise ValueError(f"mixed precision fp16 {NO_FLOAT16}")
    for name, variable in SHARDING.items():
        # On a CPU accelerate would leave it out without a word; elsewhere it ends in the parts' scalars.
        if os.environ.get(variable, "").lower() == "true":
            raise ValueError(
                f"{name} divides what is trained, which here are small parts beside a frozen base that "
                "every process holds whole: expected a launch without it (docs/data.md)"
            )
    # accelerate sets an address where it was asked for several processes, and no rank where it
    # started one.
    asked_for_several = "MASTER_ADDR" in os.environ and "WORLD_SIZE" not in os.environ
    if asked_for_several and os.environ.get("ACCELERATE_USE_CPU", "").lower() == "true":
        log.warning(
            "accelerate launch --cpu starts one process, whatever --num_processes says; for several: "
            "torchrun --nproc_per_node N -m arr_coc.train ... --device cpu"
        )


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
        found = initial(host, settings.init, base_moved=settings.base_moved)
        parts = continued(found, new=parts, renew=settings.renew, only=settings.only)
        parts.context = settings.context or parts.context
    passes = Passes(settings.chunk, settings.recompute)
    budgets, labels = settings.budgets, settings.labels
    learner = Learner(
        host, parts.to(device), settings.seed, budgets, passes, labels, settings.answers
    )
    learner.people = settings.people and People.read(settings.people)
    return learner


def host_for(
    base: str | None, random_shapes: str | None, *, device: torch.device, dtype: str | None
) -> ARRCOCQwen:
    """The base without trained parts, or a random model of the named shapes."""
    wanted = loading.default_dtype(device, dtype)
    if wanted == torch.float16:
        raise ValueError(f"the base would be in float16, which {NO_FLOAT16}")
    if random_shapes:
        return shapes.build_host(random_shapes, device, wanted)
    return ARRCOCQwen.from_pretrained(base, components="", device=device, dtype=dtype)


def continued(
    parts: Components, *, new: Components, renew: Sequence[str], only: Sequence[str]
) -> Components:
    """The same parts, but those of `renew`, and what they lack, taken from `new`.

    With `only` no others are trained.
    """
    for name in [*renew, *(name for name in new.names if name not in parts.names)]:
        setattr(parts, name, getattr(new, name))
    for name in parts.names:
        getattr(parts, name).requires_grad_(name in (only or TAUGHT))
    return parts


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
        eval_strategy="steps" if settings.keep_best else "no",
        eval_steps=settings.save_every,
        load_best_model_at_end=settings.keep_best,
        metric_for_best_model=BEST_BY if settings.keep_best else None,
        greater_is_better=True,
        report_to=settings.report_to,
        seed=settings.seed,
        bf16=settings.bf16,
        use_cpu=settings.device == "cpu",
        remove_unused_columns=False,
        dataloader_num_workers=settings.workers,
        train_sampling_strategy="sequential",  # samples come in the order of the run
        # With one question a picture, a batch may have no use for some part.
        ddp_find_unused_parameters=not draws_scenes or settings.questions < 2,
        # A stream is read in every process: batches of samples are no tensors to send around.
        accelerator_config={"dispatch_batches": False},
    )


def trainer_for(
    learner: Learner,
    options: TrainingArguments,
    settings: Settings,
    before: Spent | None = None,
    questions: HeldOut | None = None,
) -> PartsTrainer:
    """The Trainer, whose clock starts now and goes on from `before`; it may ask held-out `questions`."""
    settings.work.mkdir(parents=True, exist_ok=True)
    samples = samples_for(settings, options.world_size, learner.host.inputs)
    of_step = settings.batch * settings.accumulate * options.world_size

    def right(rank: int, world: int) -> list[float]:
        share = replace(questions, items=questions.items[rank::world])
        return learned_right(learner.host, learner.parts, share)

    clock = Clock(settings.steps, settings.minutes, before or Spent(), of_step)
    best = [KeepBest(settings.save_every, settings.patience)] if settings.keep_best else []
    return PartsTrainer(
        model=learner,
        args=options,
        train_dataset=samples,
        eval_dataset=questions.items if settings.keep_best else None,
        data_collator=collate,
        callbacks=[Watch(learner, settings.work, settings.log_every), Guard(learner), *best],
        clock=clock,
        held_out_right=right,
    )


# --- publishing ---


def run_record(
    settings: Settings, learner: Learner, trainer: PartsTrainer, spent: Spent
) -> dict[str, Any]:
    """What `training.json` says of a run; seconds are those of all its parts, evaluations aside."""
    seconds, state = spent.seconds - spent.evaluating, trainer.state
    record = {
        "command": settings.command,
        "base": learner.host.name,
        "parts": learner.parts.names,
        "processes": trainer.args.world_size,
        "steps": state.global_step,
        "samples": spent.samples,
        "seconds": round(seconds, 1),
        "seed": settings.seed,
        "data": settings.data,
        "first_seed": settings.first_seed if settings.data == "scenes" else None,
        "samples_per_second": round(spent.samples / max(seconds, 1e-9), 2),
    }
    if source := getattr(trainer.train_dataset, "source", None):
        record["set"] = source.about | {"held_out": settings.held_out}
        if settings.stages:
            record["set"]["stages"] = trainer.train_dataset.counts
    if settings.keep_best and state.best_metric is not None:
        record["best"] = {"step": state.best_global_step, "accuracy": round(state.best_metric, 4)}
    return record


if __name__ == "__main__":
    run_command("arr_coc.train", main)
