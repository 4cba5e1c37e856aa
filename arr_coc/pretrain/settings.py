"""Settings: what a pretraining run is asked for, as `parse` in `__main__` reads it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from arr_coc import provenance

STAGES = ("symbolic", "dense", "align", "joint")


@dataclass(frozen=True)
class Settings:
    """One run; every field but `work`, `steps` and `stages` is the flag of its name.

    Attributes:
        out: Hub-shaped folder to write.
        work: where checkpoints go.
        init: folder of published weights that the joint stage starts from.
        grow: text layers, units of the text's MLPs and of the vision side's that the model of `init` is
            grown to; None leaves its own.
        resume: go on from the checkpoint in `work`.
        vision_from: checkpoint whose vision side and read-outs to take.
        text_from: checkpoint whose text side and codes to take; goes with `vision_from`.
        device: "cpu" or "cuda".
        threads: CPU threads.
        workers: processes that draw scenes.
        stages: those of `STAGES` to train, none to evaluate only.
        steps: by stage.
        minutes: of each stage, at most.
        tokens: visual tokens per batch and process.
        average_every: steps after which processes average their weights; 1: at each, their gradients.
        world: key of `views.STAGE_VIEWS`: "small" pictures, or those of the large world as well.
        most: things that a question of the large world counts or compares at most, at the first step and
            at the last.
        largest: pixels of a picture's longer side, at most; None for as large as the world has them.
        lr: of AdamW, for what Muon does not train.
        muon_lr: of Muon, for the matrices inside the blocks.
        joint_lr_scale: factor of both rates in the joint stage.
        readouts_first: steps that train nothing but the read-outs, before a joint stage begins.
        seed: of the initial weights.
        seed_offset: added to the seeds of the scenes.
        float32: no bfloat16 autocast.
        compile: the text layers, which takes a C++ compiler.
        log_every: steps between two lines of the log.
        save_every: steps between two checkpoints.
        publish: write `out` at the checkpoints of the joint stage too.
        eval_n: questions per kind and picture size, 0 for no evaluation.
        eval_seed: of the first scene to evaluate on.
    """

    out: Path
    work: Path
    init: Path | None
    grow: tuple[int, int, int] | None
    resume: bool
    vision_from: Path | None
    text_from: Path | None
    device: str
    threads: int
    workers: int
    stages: tuple[str, ...]
    steps: Mapping[str, int]
    minutes: float
    tokens: int
    average_every: int
    world: str
    most: tuple[int, int]
    largest: int | None
    lr: float
    muon_lr: float
    joint_lr_scale: float
    readouts_first: int
    seed: int
    seed_offset: int
    float32: bool
    compile: bool
    log_every: int
    save_every: int
    publish: bool
    eval_n: int
    eval_seed: int

    @property
    def trained_on(self) -> str:
        """The machine in the words of the card; empty where nothing is trained."""
        if not self.stages:
            return ""
        together = provenance.processes()
        if self.device == "cpu":
            return f" on {self.threads * together} CPU threads"
        return f" on {together} GPUs" if together > 1 else " on one GPU"
