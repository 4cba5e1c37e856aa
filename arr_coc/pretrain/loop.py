"""Loop: trains one stage of the bundled base after another.

accelerate brings the processes, the mixed precision and the checkpoints. The learning rates follow
the steps or the clock, whichever is further.
"""

import time
from collections.abc import Iterator
from functools import partial
from itertools import islice

import torch
from accelerate import Accelerator
from accelerate.optimizer import AcceleratedOptimizer
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters
from torch.utils.data import DataLoader, Subset

from arr_coc.pretrain.checkpoints import last_checkpoint, save_checkpoint
from arr_coc.pretrain.data import Batch, Batches, check_seeds
from arr_coc.pretrain.lesson import lesson_of
from arr_coc.pretrain.run import Run, publish
from arr_coc.pretrain.settings import STAGES, Settings
from arr_coc.pretrain.stages import LOSSES
from arr_coc.pretrain.views import STAGE_VIEWS, at_most

# Far apart, so that no two stages draw the same scene, and below the seeds of evaluation.
FIRST_SEED = {"symbolic": 0, "dense": 2 * 10**8, "align": 3 * 10**8, "joint": 4 * 10**8}
WARMUP_STEPS = 40
# After this share of a stage the learning rate goes down, to this share of itself at the end.
FLAT_SHARE, LEAST_RATE = 0.5, 0.05
GRADIENT_NORM = 1.0  # the gradients of all parameters together are scaled down to it
DRAWN_AHEAD = 4  # batches of each process that draws: some take ten times as long as others
SMOOTHING = 0.95  # weight of the past in the log's running means


def train(run: Run, accelerator: Accelerator, settings: Settings) -> None:
    """Train the stages that are asked for, from where `run` stands."""
    for stage in STAGES[STAGES.index(run.stage) :]:
        if stage in settings.stages:
            if stage != run.stage:
                run.stage, run.step = stage, 0
            train_stage(run, accelerator, settings)


def train_stage(run: Run, accelerator: Accelerator, settings: Settings) -> None:
    """Train `run.stage` from `run.step` to its number of steps, or until its minutes are over."""
    stage, steps, every = run.stage, settings.steps[run.stage], settings.average_every
    batches = draw_batches(run, accelerator, settings)
    scale = settings.joint_lr_scale if stage == "joint" else 1.0
    plain = optimizers(run, lr=settings.lr * scale, muon_lr=settings.muon_lr * scale)
    opts = [accelerator.prepare_optimizer(opt) for opt in plain]
    rates = [opt.param_groups[0]["lr"] for opt in opts]
    if run.step:
        # Not before `batches` exists: making the iterator draws from the random state that is
        # restored here, and would leave the resumed run one draw ahead of the straight one.
        accelerator.load_state(last_checkpoint(settings.work))
    run.model.train()
    meter = Meter(run)
    for batch in batches:
        spent = run.seconds.get(stage, 0.0) / 60 / settings.minutes
        progress = max(run.step / steps, spent)
        if run.step % every == 0 or run.step >= steps:  # all processes are at the same step here
            progress = furthest(accelerator, progress)
            if progress >= 1:
                break
        for opt, base in zip(opts, rates, strict=True):
            opt.param_groups[0]["lr"] = base * rate(run.step, progress)
        with accelerator.autocast():
            loss, scores = LOSSES[stage](run, batch)
        update(accelerator, opts, loss, alone=every > 1)
        meter.add(len(batch.images) * accelerator.num_processes, scores | {"loss": loss.item()})
        if every > 1 and run.step % every == 0:
            average_weights(accelerator, opts)
        if run.step % settings.log_every == 0:
            accelerator.print(f"{stage} {run.step}/{steps} {meter.line()}", flush=True)
        if run.step % settings.save_every == 0:
            save_checkpoint(accelerator, settings.work)
            if stage == "joint" and settings.publish and accelerator.is_main_process:
                publish(run, folder=settings.out, trained_on=settings.trained_on)
    if every > 1:
        average_weights(accelerator, opts)
    save_checkpoint(accelerator, settings.work)
    accelerator.free_memory()  # the next stage has other optimizers


def teach_readouts(run: Run, accelerator: Accelerator, settings: Settings) -> None:
    """Train the read-outs alone on the first `settings.readouts_first` batches of the joint stage.

    What new ones say of a trained model is noise, and its gradients would be the largest by far.
    """
    run.model.requires_grad_(False)
    adam = torch.optim.AdamW(run.heads.parameters(), lr=settings.lr, betas=(0.9, 0.98))
    opts = [accelerator.prepare_optimizer(adam)]
    batches = draw_batches(run, accelerator, settings)
    for step, batch in enumerate(islice(batches, settings.readouts_first)):
        with accelerator.autocast():
            loss, _ = LOSSES[run.stage](run, batch)
        # Easy-VQA has nothing to name: a gradient of zero, as every process takes every step.
        update(accelerator, opts, loss + 0 * sum(p.sum() for p in run.heads.parameters()))
        if step % settings.log_every == 0:
            accelerator.print(f"readouts {step}/{settings.readouts_first} loss {loss.item():.3f}")
    accelerator.free_memory()


def draw_batches(run: Run, accelerator: Accelerator, settings: Settings) -> Iterator[Batch]:
    """The remaining batches of the stage for this process; raises as `data.check_seeds`."""
    steps = settings.steps[run.stage]
    first_seed = FIRST_SEED[run.stage] + settings.seed_offset
    check_seeds(first_seed, steps, accelerator.num_processes)
    data = Batches(
        at_most(STAGE_VIEWS[settings.world][run.stage], settings.largest),
        tokens=settings.tokens,
        steps=steps,
        first_seed=first_seed,
        rank=accelerator.process_index,
        world=accelerator.num_processes,
        most=settings.most,
    )
    return iter(
        DataLoader(
            Subset(data, range(run.step, steps)),
            batch_size=None,
            num_workers=settings.workers,
            prefetch_factor=DRAWN_AHEAD if settings.workers else None,
            collate_fn=partial(lesson_of, run.packer),
        )
    )


def optimizers(run: Run, *, lr: float, muon_lr: float) -> list[torch.optim.Optimizer]:
    """Muon for the matrices inside the blocks, AdamW for everything else that the stage trains.

    Everything that the stage does not train is frozen.
    """
    text, vision = run.model.model.language_model, run.model.model.visual
    modules = {
        "symbolic": [text, run.codes],
        "dense": [vision, run.heads],
        "align": [vision, run.heads],
        "joint": [text, vision, run.heads],
    }[run.stage]
    params = [p for module in modules for p in module.parameters()]
    run.model.requires_grad_(False)
    for p in params:
        p.requires_grad_(True)
    inner = [p for blocks in (text.layers, vision.blocks) for p in blocks.parameters()]
    matrix_ids = {id(p) for p in inner if p.ndim == 2}
    matrices = [p for p in params if id(p) in matrix_ids]
    others = [p for p in params if id(p) not in matrix_ids]
    return [
        torch.optim.Muon(matrices, lr=muon_lr, weight_decay=0.01, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(others, lr=lr, betas=(0.9, 0.98), weight_decay=0.01),
    ]


def rate(step: int, progress: float) -> float:
    """Share of the learning rate: a short warm-up, flat, then down in a straight line."""
    down = max(0.0, (min(1.0, progress) - FLAT_SHARE) / (1 - FLAT_SHARE))
    return min(1.0, (step + 1) / WARMUP_STEPS) * (1 - (1 - LEAST_RATE) * down)


def update(
    accelerator: Accelerator,
    opts: list[AcceleratedOptimizer],
    loss: torch.Tensor,
    *,
    alone: bool = False,
) -> None:
    """One step of all optimizers, by gradients averaged over the processes and clipped together.

    `alone` leaves each process with its own gradients.
    """
    accelerator.backward(loss)
    params = trained(opts)
    for p in params:
        # What no process used in a batch has no gradient, and its optimizer would skip it. Here it counts
        # as zero, so that momentum and weight decay go on, as they did when the base was trained.
        if accelerator.num_processes > 1:
            p.grad = torch.zeros_like(p) if p.grad is None else p.grad
    if not alone:
        average_gradients(accelerator, params)
    accelerator.clip_grad_norm_(params, GRADIENT_NORM)
    for opt in opts:
        opt.step()
        opt.zero_grad()


def trained(opts: list[AcceleratedOptimizer]) -> list[nn.Parameter]:
    """The parameters that the optimizers train."""
    return [p for opt in opts for p in opt.param_groups[0]["params"]]


def average_gradients(accelerator: Accelerator, params: list[nn.Parameter]) -> None:
    """Average the gradients over all processes.

    Not left to DistributedDataParallel, which knows nothing of gradients that are missing (`update`).
    Besides, the stock model stays unwrapped.
    """
    if accelerator.num_processes > 1:
        average(accelerator, [p.grad for p in params])


@torch.no_grad()
def average_weights(accelerator: Accelerator, opts: list[AcceleratedOptimizer]) -> None:
    """Average what is trained over all processes, which have gone on alone since the last time.

    Local SGD (Stich, 1805.09767): nobody waits at every step for whoever had the longer batch.
    """
    average(accelerator, trained(opts))


def average(accelerator: Accelerator, tensors: list[torch.Tensor]) -> None:
    """Average tensors over all processes, in place."""
    # One vector: a single exchange instead of one per tensor.
    vector_to_parameters(accelerator.reduce(parameters_to_vector(tensors), "mean"), tensors)


def furthest(accelerator: Accelerator, progress: float) -> float:
    """The progress of the process that is furthest, so that all stop at the same step."""
    own = torch.tensor(progress, dtype=torch.float64, device=accelerator.device)
    return accelerator.gather(own).max().item()


class Meter:
    """Counts steps, seconds and pictures into the run, and averages what the log shows."""

    def __init__(self, run: Run) -> None:
        self.run, self.begun, self.pictures = run, time.time(), 0
        self.means: dict[str, float] = {}
        self.seconds_before = run.seconds.get(run.stage, 0.0)
        self.pictures_before = run.pictures.get(run.stage, 0)

    def add(self, pictures: int, scores: dict[str, float]) -> None:
        """One step more, on `pictures` over all processes."""
        run = self.run
        run.step += 1
        self.pictures += pictures
        run.seconds[run.stage] = self.seconds_before + time.time() - self.begun
        run.pictures[run.stage] = self.pictures_before + self.pictures
        for key, value in scores.items():
            mean = self.means.get(key, value)
            self.means[key] = SMOOTHING * mean + (1 - SMOOTHING) * value

    def line(self) -> str:
        """Speed and running means, for the log."""
        speed = self.pictures / (time.time() - self.begun)
        means = " ".join(f"{key} {mean:.3f}" for key, mean in sorted(self.means.items()))
        return f"{speed:.1f} pictures/s {means}"
