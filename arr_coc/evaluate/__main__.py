"""Evaluate: does a method keep the answers at a fraction of the visual tokens, and where does it look.

    python -m arr_coc.evaluate --out results/dev --n 200                    # every method, on scenes
    python -m arr_coc.evaluate --out results/dev --n 1000 --resume          # go on, or add to it
    python -m arr_coc.evaluate --out results/dev --resume --new-weights --weights runs/arr-coc
    python -m arr_coc.evaluate --out results/sweep --sweep detail 0.5 0.75 1 1.5 2
    python -m arr_coc.evaluate --out results/easy-vqa --easy-vqa
    python -m arr_coc.evaluate --out results/clips --world clips --groups 8 --share 0.2 --n 300
    python -m arr_coc.evaluate --out results/pictures --world pictures --share 0.2 --n 300
    accelerate launch -m arr_coc.evaluate --out results/docs --folder DIR --base Qwen/Qwen3-VL-2B-Instruct
    python -m arr_coc.evaluate --out results/cot --dataset cot.parquet --pictures DIR --control

Writes into OUT: `rows.parquet` (one row per question, method and budget), `summary.json`, figures,
and with `--time` `time.json`. Nothing is trained or tuned here. Scenes are asked from the development
seeds unless `--seed` says otherwise. Needs requirements-dev.txt. The last stdout line is JSON.
"""

import json
import os
import sys
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch

from arr_coc.commands import run_command
from arr_coc.evaluate.identity import open_out
from arr_coc.evaluate.questions import EasyVQA, Scenes, Source
from arr_coc.evaluate.report import write_controls, write_report, write_times
from arr_coc.evaluate.settings import N_SCENES, Settings, parse
from arr_coc.evaluate.views import VIEWS_WORLDS, DrawnViews
from arr_coc.evaluate.vqa import Part, SetName, set_of
from arr_coc.evaluate.work import measure
from arr_coc.peers.names import OURS

LONGEST_RUN = timedelta(days=2)  # how long one process may wait for the others


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command; with RANK and WORLD_SIZE set (accelerate, torchrun) a share of it."""
    settings, started = parse(argv, __doc__.splitlines()[0]), time.time()
    rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    if world > 1:
        torch.distributed.init_process_group("gloo", timeout=LONGEST_RUN)
    source = source_of(settings)
    if rank == 0:
        open_out(settings)
        if OURS in settings.methods and not settings.weights:
            print(f"{OURS}: without --weights, by the fixed rules alone", file=sys.stderr)
    wait_for_all(world)
    measure(settings, source, rank, world)
    wait_for_all(world)
    if rank == 0:
        if settings.time:
            write_times(settings, source)
        if settings.control:
            write_controls(settings, source)
        report = write_report(settings, source, started)
        print(json.dumps(last_line(settings, report)))
    if world > 1:
        torch.distributed.destroy_process_group()


def source_of(settings: Settings) -> Source:
    """The questions that the settings name."""
    n = settings.n
    if settings.easy_vqa:
        return EasyVQA(n, settings.block)
    if settings.folder or settings.dataset:
        part = Part("held-out", settings.held_out) if settings.held_out else Part()
        return set_of(
            SetName(
                settings.folder, settings.dataset, settings.split, settings.subset,
                settings.reader, settings.pictures,
            ),
            n=n, instruction=settings.instruction, block=settings.block,
            skip_bad=settings.skip_bad, part=part,
        )  # fmt: skip
    if settings.world in VIEWS_WORLDS:
        asked = settings.kinds, settings.world, settings.groups, settings.size, settings.hand
        return DrawnViews(settings.seed, n or N_SCENES, *asked)
    scenes = {"size": settings.size, "world": settings.world, "hand": settings.hand}
    scenes |= {"manner": settings.manner, "instruction": settings.instruction}
    return Scenes(settings.seed, n or N_SCENES, settings.kinds, settings.details, **scenes)


def wait_for_all(world: int) -> None:
    """Go on when every process has come here."""
    if world > 1:
        torch.distributed.barrier()


def last_line(settings: Settings, report: dict[str, Any]) -> dict[str, Any]:
    """OUT and the overall accuracies."""
    overall = {
        f"{e['method']} {e['budget']:g} {e['detail']:g}": e["overall"] and e["overall"]["value"]
        for e in report["methods"]
    }
    return {"out": str(settings.out), "minutes": report["minutes"], "overall": overall}


if __name__ == "__main__":
    run_command("arr_coc.evaluate", main)
