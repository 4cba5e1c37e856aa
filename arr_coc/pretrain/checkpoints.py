"""Checkpoints: the folder from which a run goes on, written by accelerate."""

import shutil
from pathlib import Path

import torch
from accelerate import Accelerator

STATE, OLDER_STATE = "state", "state.older"  # in --work
RUN_STATE = "custom_checkpoint_0.pkl"  # accelerate's name for the first registered object, the run


def save_checkpoint(accelerator: Accelerator, work: Path) -> None:
    """Everything needed to go on: the run, the optimizers, each process's random state.

    Every process calls it. Written aside, then renamed, so that a whole checkpoint is always there.
    """
    state, aside, older = (work / name for name in (STATE, f"{STATE}.writing", OLDER_STATE))
    if accelerator.is_main_process:
        shutil.rmtree(aside, ignore_errors=True)
    accelerator.wait_for_everyone()
    accelerator.save_state(aside)
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        shutil.rmtree(older, ignore_errors=True)
        if state.exists():
            state.rename(older)
        aside.rename(state)
        shutil.rmtree(older, ignore_errors=True)


def last_checkpoint(work: Path) -> Path | None:
    """The last whole checkpoint in `work`: the older one where a run ended between two renames."""
    return next((work / name for name in (STATE, OLDER_STATE) if (work / name).exists()), None)


def read_run(checkpoint: Path) -> dict:
    """`Run.state_dict` of a checkpoint, on the CPU."""
    return torch.load(checkpoint / RUN_STATE, map_location="cpu")
