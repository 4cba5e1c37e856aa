"""Train the bundled base from nothing: a small Qwen3-VL that answers questions about scenes.

    python -m arr_coc.pretrain --out arr_coc/bundled/base

Four stages, each easy because of those before it. *Symbolic*: the text side answers questions
about codes, where each visual token is the sum of the word embeddings of what it shows. *Dense*:
the vision side learns to name what each token shows. *Align*: it learns to produce those codes as
well, DeepStack planes included. *Joint*: everything together on pictures and questions. Every
visual token is always there: nothing about dropping tokens is trained in.

A run checkpoints into `--work` and goes on from there with `--resume`; `--init FOLDER` starts the
joint stage from published weights. The first two stages do not depend on each other: they may run
side by side with `--stages symbolic` and `--stages dense`, and the later stages then take both
sides with `--text-from` and `--vision-from`. Under `torchrun --nproc_per_node N` every process
draws its own batches and gradients are averaged (`accelerate launch` starts only one on a CPU). The
last line on stdout is JSON.
"""

import argparse
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator

from arr_coc import provenance
from arr_coc.commands import run_command
from arr_coc.pretrain.card import CLIPS, CLOCK, EASY_VQA, LARGE
from arr_coc.pretrain.checkpoints import last_checkpoint
from arr_coc.pretrain.loop import teach_readouts, train
from arr_coc.pretrain.model import CELL
from arr_coc.pretrain.quicker import compile_text
from arr_coc.pretrain.run import Run, begin, publish
from arr_coc.pretrain.scores import (
    LARGE_SIZE,
    SIZES,
    clock,
    evaluate,
    evaluate_clips,
    evaluate_easy_vqa,
)
from arr_coc.pretrain.settings import STAGES, Settings
from arr_coc.pretrain.views import STAGE_VIEWS
from arr_coc.scenes import large, scene
from arr_coc.scenes.hands import ANY


def parse(argv: Sequence[str] | None) -> Settings:
    """The settings that the command line gives."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    where = parser.add_argument_group("where")
    where.add_argument("--out", type=Path, required=True, help="Hub-shaped folder to write")
    where.add_argument("--work", type=Path, help="checkpoints (default: OUT + .work)")
    where.add_argument("--init", type=Path, help="start the joint stage from this folder's weights")
    where.add_argument(
        "--grow", type=int, nargs=3, metavar=("TEXT_LAYERS", "TEXT_MLP", "VISION_MLP"),
        help="with --init: a larger model that begins as the same function",
    )  # fmt: skip
    where.add_argument("--resume", action="store_true", help="go on from the checkpoint in --work")
    where.add_argument(
        "--vision-from", type=Path, help="checkpoint (WORK/state) of a dense stage run apart"
    )
    where.add_argument(
        "--text-from", type=Path, help="checkpoint (WORK/state) of a symbolic stage run apart"
    )
    where.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    where.add_argument("--threads", type=int, default=2, help="CPU threads")
    where.add_argument("--workers", type=int, default=1, help="processes that draw scenes")
    much = parser.add_argument_group("how much")
    much.add_argument("--stages", nargs="*", default=list(STAGES), help="none: evaluate only")
    much.add_argument("--symbolic-steps", type=int, default=3000)
    much.add_argument("--dense-steps", type=int, default=5000)
    much.add_argument("--align-steps", type=int, default=1500)
    much.add_argument("--joint-steps", type=int, default=5000)
    much.add_argument("--minutes", type=float, default=math.inf, help="per stage, at most")
    much.add_argument("--tokens", type=int, default=1024, help="visual tokens per batch")
    much.add_argument(
        "--average-every", type=int, default=1, metavar="STEPS",
        help="of several processes: each trains alone for so many steps, then their weights are averaged; "
             "1 averages the gradients of every step",
    )  # fmt: skip
    what = parser.add_argument_group("what")
    what.add_argument(
        "--world", choices=tuple(STAGE_VIEWS), default="small",
        help="large: also streets, shelves, boards and the like, up to 1280 x 800, by any hand",
    )  # fmt: skip
    what.add_argument(
        "--most", type=int, nargs=2, default=(large.MOST, large.MOST), metavar=("FIRST", "LAST"),
        help="things that a question of the large world counts or compares, at most: at the first "
             "step and at the last",
    )  # fmt: skip
    what.add_argument(
        "--largest", type=int, metavar="PIXELS",
        help="of a side: larger pictures are drawn so small, with fewer things, for cheap first lessons",
    )  # fmt: skip
    how = parser.add_argument_group("how")
    how.add_argument("--lr", type=float, default=1.5e-3, help="AdamW, for what Muon does not train")
    how.add_argument("--muon-lr", type=float, default=3e-3)
    how.add_argument("--joint-lr-scale", type=float, default=0.5)
    how.add_argument(
        "--readouts-first", type=int, default=0, metavar="STEPS",
        help="with --init, where the read-outs of its run were not kept: so many steps train new ones "
             "alone, before what they say moves the model",
    )  # fmt: skip
    how.add_argument("--seed", type=int, default=0, help="of the initial weights")
    how.add_argument("--seed-offset", type=int, default=0, help="added to the scenes' seeds")
    how.add_argument("--float32", action="store_true", help="no bfloat16 autocast")
    how.add_argument(
        "--compile", action="store_true", help="the text layers: shorter steps, a slower start"
    )
    report = parser.add_argument_group("reporting")
    report.add_argument("--log-every", type=int, default=20)
    report.add_argument("--save-every", type=int, default=200)
    report.add_argument("--publish", action="store_true", help="write OUT at joint checkpoints too")
    report.add_argument("--eval-n", type=int, default=300, help="questions per kind, 0 for none")
    report.add_argument("--eval-seed", type=int, default=scene.DEV_SEED)
    values = vars(parser.parse_args(argv))
    _check(parser, values)
    out = values["out"]
    values["most"] = tuple(values["most"])
    values["grow"] = values["grow"] and tuple(values["grow"])
    values["work"] = values["work"] or out.with_name(out.name + ".work")
    values["stages"] = tuple(values["stages"])
    values["steps"] = {stage: values.pop(f"{stage}_steps") for stage in STAGES}
    return Settings(**values)


def _check(parser: argparse.ArgumentParser, values: dict[str, Any]) -> None:
    """End with a sentence about options that do not go together, or are out of range."""
    if unknown := set(values["stages"]) - set(STAGES):
        parser.error(f"unknown stages {sorted(unknown)}; known: {', '.join(STAGES)}")
    if bool(values["text_from"]) != bool(values["vision_from"]):
        parser.error("--text-from and --vision-from go together")
    if values["grow"] and not values["init"]:
        parser.error("--grow goes with --init")
    if values["init"] and values["stages"] and "joint" not in values["stages"]:
        parser.error(f"--init starts the joint stage, not {' '.join(values['stages'])}")
    least, greatest = large.MOST_RANGE
    if not all(least <= number <= greatest for number in values["most"]):
        parser.error(f"--most {values['most']} is outside {large.MOST_RANGE}")
    if values["largest"] is not None and values["largest"] < large.SIDES[0]:
        parser.error(f"--largest {values['largest']} is below {large.SIDES[0]} pixels")
    if values["largest"] is not None and values["largest"] % CELL:
        parser.error(f"--largest {values['largest']} is no multiple of {CELL} pixels")
    if values["readouts_first"] < 0:
        parser.error(f"--readouts-first {values['readouts_first']} is below 0")
    if values["readouts_first"] and not (values["init"] and values["stages"]):
        parser.error("--readouts-first goes with --init and stages to train")
    every, save = values["average_every"], values["save_every"]
    if every < 1 or save % every:
        parser.error(f"--average-every {every} is not a divisor of --save-every {save}")


def start_accelerator(*, device: str, float32: bool) -> Accelerator:
    """accelerate on `device`, in as many processes as torchrun started; bfloat16 unless `float32`.

    Raises:
        ValueError: where torch does not find the device.
    """
    accelerator = Accelerator(cpu=device == "cpu", mixed_precision="no" if float32 else "bf16")
    if accelerator.device.type != device:
        raise ValueError(f"--device is {device}, but torch finds only {accelerator.device}")
    return accelerator


def score(run: Run, accelerator: Accelerator, settings: Settings) -> dict:
    """What the card and scores.json tell; publishes on the way, as the clock loads what is there."""
    scores = {
        name: evaluate(
            run, accelerator, first_seed=settings.eval_seed, n=settings.eval_n, size=size
        )
        for name, size in SIZES.items()
    }
    if settings.world == "large":
        scores[LARGE] = evaluate(
            run, accelerator, first_seed=settings.eval_seed, n=settings.eval_n,
            size=LARGE_SIZE, canvas=LARGE_SIZE, world="large", hand=ANY,
        )  # fmt: skip
        scores[CLIPS] = evaluate_clips(
            run, accelerator, first_seed=settings.eval_seed, n=settings.eval_n
        )
    scores[EASY_VQA] = evaluate_easy_vqa(run, accelerator)
    publish(run, folder=settings.out, trained_on=settings.trained_on)
    is_large = settings.world == "large"
    scores[CLOCK] = clock(settings.out, threads=settings.threads, large=is_large)
    return scores


def main(argv: Sequence[str] | None = None) -> None:
    settings = parse(argv)
    if settings.stages and not settings.resume and last_checkpoint(settings.work):
        raise ValueError(
            f"{settings.work} holds an earlier run; --resume goes on with it, else name another --work"
        )
    accelerator = start_accelerator(device=settings.device, float32=settings.float32)
    torch.set_num_threads(settings.threads)  # after accelerate, which may set its own number
    run = begin(settings)
    if settings.readouts_first and not run.step:
        teach_readouts(run, accelerator, settings)
    if settings.compile:
        compile_text(run.model)
    if settings.stages:
        run.command = provenance.command("arr_coc.pretrain", provenance.typed(argv))
    accelerator.register_for_checkpointing(run)
    train(run, accelerator, settings)
    accelerator.end_training()
    if not accelerator.is_main_process:
        return
    scores = score(run, accelerator, settings) if settings.eval_n else None
    publish(run, folder=settings.out, trained_on=settings.trained_on, scores=scores)
    print(json.dumps({"out": str(settings.out), "scores": scores, "seconds": run.seconds}))


if __name__ == "__main__":
    run_command("arr_coc.pretrain", main)
