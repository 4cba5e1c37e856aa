"""The Trainer of transformers, with a learning rate of its own for the gates, a clock and a watch."""

import json
import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR
from transformers import (
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)

from arr_coc.qwen.finite import is_finite
from arr_coc.train.learner import Learner

log = logging.getLogger(__name__)

WARM_UP = 0.03  # share of the run in which the learning rate rises
LEAST_RATE = 0.05  # share of the learning rate that is left at the end
SPENT = "spent.json"  # of a checkpoint
BEST_BY = "eval_accuracy"
KNOWN_RATE = 0.25  # times it, for what was trained before where something new is beside it
GATES_RATE = 20  # times the learning rate: nothing behind a shut gate learns


@dataclass(frozen=True)
class Spent:
    """What a run had spent when its checkpoint was written: seconds, some of them on evaluating."""

    seconds: float = 0.0
    evaluating: float = 0.0
    samples: int = 0

    @classmethod
    def at(cls, checkpoint: str | Path | None) -> "Spent":
        """As a checkpoint of `Clock` has it; nothing for None, or where an older one does not say."""
        path = checkpoint and Path(checkpoint) / SPENT
        return cls(**json.loads(path.read_text())) if path and path.is_file() else cls()


class Clock(TrainerCallback):
    """How far the run is: by steps, or by the time of the first process where minutes are given.

    The first process tells the others, so that all have one learning rate and stop at one step. What
    was spent is kept in every checkpoint, so that a resumed run goes on counting.
    """

    def __init__(
        self, steps: int, minutes: float | None, before: Spent = Spent(), samples: int = 0
    ) -> None:
        """`samples` are those of a step, over all processes; `before` is what went into the checkpoint."""
        self.steps, self.minutes, self.before = steps, minutes, before
        self.start, self.progress = time.monotonic(), 0.0
        self.evaluating, self.step_samples, self.new_steps = 0.0, samples, 0

    @property
    def spent(self) -> Spent:
        """Until now, with what went into the checkpoint."""
        return Spent(
            self.before.seconds + time.monotonic() - self.start,
            self.before.evaluating + self.evaluating,
            self.before.samples + self.new_steps * self.step_samples,
        )

    def rate(self, _: int) -> float:
        """Factor of the learning rate: a short rise, then half a cosine."""
        rise = min(1.0, self.progress / WARM_UP + 1e-2)
        fall = LEAST_RATE + (1 - LEAST_RATE) * (1 + math.cos(math.pi * self.progress)) / 2
        return rise * fall

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Before each step, in every process: how far the run is, by whichever is further."""
        self.progress = min(1.0, state.global_step / self.steps)
        if self.minutes is None:
            return
        spent = torch.tensor(self.spent.seconds / (60 * self.minutes))
        if dist.is_initialized() and dist.get_world_size() > 1:
            spent = spent.to(args.device)
            dist.broadcast(spent, 0)
        self.progress = min(1.0, max(self.progress, float(spent)))

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Stop once the time is over."""
        self.new_steps += 1
        control.should_training_stop = control.should_training_stop or self.progress >= 1

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Write what was spent into the checkpoint that was just written."""
        folder = Path(args.output_dir) / f"checkpoint-{state.global_step}"
        if state.is_world_process_zero and folder.is_dir():
            (folder / SPENT).write_text(json.dumps(asdict(self.spent)) + "\n")


class KeepBest(TrainerCallback):
    """Stops after `patience` checkpoints without a better one, and evaluates the last step too."""

    def __init__(self, every: int, patience: int | None) -> None:
        self.every, self.patience = every, patience

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """The step at which a run ends is a candidate like the others."""
        if control.should_training_stop:
            control.should_evaluate = control.should_save = True

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """After an evaluation: told by the trainer's state alone, so that a resumed run stops there too."""
        worse = state.global_step - (state.best_global_step or 0)
        if self.patience is not None and worse >= self.patience * self.every:
            control.should_training_stop = True


class Watch(TrainerCallback):
    """Writes statistics and sampled decisions to OUT.work."""

    def __init__(self, learner: Learner, work: Path, every: int) -> None:
        self.learner, self.work, self.every = learner, work, every

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Before each step: whether the first process writes notes of it."""
        self.learner.watching = state.global_step % self.every == 0 and state.is_world_process_zero

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Append this step's notes to `stages.jsonl`, and its decision to `trail.jsonl`."""
        if not self.learner.watching:
            return
        notes = {"step": state.global_step, **self.learner.notes}
        decision = {"step": state.global_step, **notes.pop("decision")}
        for name, row in (("stages.jsonl", notes), ("trail.jsonl", decision)):
            with (self.work / name).open("a") as file:
                file.write(json.dumps(row) + "\n")


class Guard(TrainerCallback):
    """Keeps gradients that are no numbers from the parts: they would never be numbers again."""

    def __init__(self, learner: Learner) -> None:
        self.learner = learner

    def on_pre_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Before the step: every process has the same gradients by now.

        Raises:
            ValueError: where one of them is infinite or NaN.
        """
        gradients = [p.grad for p in self.learner.parameters() if p.grad is not None]
        if not is_finite(gradients):
            raise ValueError(
                f"the gradients of step {state.global_step + 1} overflowed in "
                f"{self.learner.host.model.dtype}: a lower --lr may help"
            )


def last_checkpoint(folder: str | Path) -> str | None:
    """The newest of a folder's whole checkpoints; None where there is none, or no folder yet.

    `SPENT` is written last: a checkpoint without it was not written to its end.
    """
    whole = [note.parent for note in Path(folder).glob("checkpoint-*/" + SPENT)]
    return str(max(whole, key=lambda one: int(one.name.split("-")[1]))) if whole else None


def on_one_gpu(options: TrainingArguments) -> TrainingArguments:
    """The same arguments: a process takes the first GPU, where `Trainer` would give a batch to all."""
    if options.n_gpu > 1:
        log.warning(
            "one of %d GPUs is used; torchrun --nproc_per_node N takes more (docs/data.md)",
            options.n_gpu,
        )
        options._n_gpu = 1
    return options


class ClockedTrainer(Trainer):
    """`Trainer` with a learning rate that may follow the clock."""

    def __init__(self, *args: Any, clock: Clock, **kwargs: Any) -> None:
        super().__init__(*args, callbacks=[clock, *kwargs.pop("callbacks", [])], **kwargs)
        self.clock = clock

    def create_scheduler(
        self, num_training_steps: int, optimizer: Optimizer | None = None
    ) -> LambdaLR:
        """As `Trainer`; the factor on the learning rate is the clock's."""
        self.lr_scheduler = LambdaLR(optimizer or self.optimizer, self.clock.rate)
        return self.lr_scheduler


class TwoRates(ClockedTrainer):
    """`ClockedTrainer` that trains what was trained before at a lower rate than what is new beside it."""

    def __init__(self, *args: Any, new: Sequence[str], **kwargs: Any) -> None:
        """`new` are the beginnings of the names of parameters that are."""
        super().__init__(*args, **kwargs)
        self.new = tuple(new)

    def create_optimizer(self, model: nn.Module | None = None) -> Optimizer:
        """As `Trainer`, with two groups where something is new."""
        kind, options = self.get_optimizer_cls_and_kwargs(self.args)
        groups: dict[bool, list[nn.Parameter]] = {True: [], False: []}
        for name, parameter in (model or self.model).named_parameters():
            if parameter.requires_grad:
                groups[not self.new or name.startswith(self.new)].append(parameter)
        rates = {True: self.args.learning_rate, False: KNOWN_RATE * self.args.learning_rate}
        found = [
            {"params": own, "lr": rates[is_new], "weight_decay": self.args.weight_decay}
            for is_new, own in groups.items()
            if own
        ]
        self.optimizer = kind(found, **{**options, "lr": self.args.learning_rate})
        return self.optimizer


class PartsTrainer(ClockedTrainer):
    """Trains a `Learner`: with each loss in its log, and accuracy on held-out questions."""

    def __init__(
        self,
        *args: Any,
        held_out_right: Callable[[int, int], list[float]] | None = None,
        **kwargs: Any,
    ) -> None:
        """`held_out_right(rank, world)` answers this process's share of the held-out questions."""
        super().__init__(*args, **kwargs)
        self.held_out_right = held_out_right

    def evaluate(self, *_: Any, **__: Any) -> dict[str, float]:
        """The accuracy of the parts as they are on the held-out questions, shared by all processes."""
        start, learner = time.monotonic(), self.accelerator.unwrap_model(self.model)
        was_training = learner.training
        learner.eval()
        rank, world = self.args.process_index, self.args.world_size
        right = self.held_out_right(rank, world)
        if world > 1:
            shares: list[Any] = [None] * world
            dist.all_gather_object(shares, right)
            right = [value for share in shares for value in share]
        learner.train(was_training)
        metrics = {BEST_BY: sum(right) / len(right)}
        self.clock.evaluating += time.monotonic() - start
        super().log(dict(metrics))
        self.control = self.callback_handler.on_evaluate(
            self.args, self.state, self.control, metrics
        )
        return metrics

    def create_optimizer(self, model: nn.Module | None = None) -> Optimizer:
        """As `Trainer`; the adapter's gates, which start at 0, learn faster and do not decay."""
        optimizer = super().create_optimizer(model)
        trained = [(n, p) for n, p in self.model.named_parameters() if p.requires_grad]
        gates = [p for name, p in trained if name.endswith("adapter.gates")]
        gate_ids = {id(p) for p in gates}
        for group in optimizer.param_groups:
            group["params"] = [p for p in group["params"] if id(p) not in gate_ids]
        if gates:
            rate = GATES_RATE * self.args.learning_rate
            optimizer.add_param_group({"params": gates, "lr": rate, "weight_decay": 0.0})
        return optimizer

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """As `Trainer`, with the mean of each loss since the last log, of this process."""
        learner = self.accelerator.unwrap_model(self.model)
        if learner.passes:
            logs |= {k: round(v / learner.passes, 4) for k, v in learner.loss_sums.items()}
            learner.loss_sums.clear()
            learner.passes = 0
        super().log(logs, start_time)
