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
draws its own batches and gradients are averaged. The last line on stdout is JSON.
"""

import argparse
import json
import math
from collections.abc import Sequence
from pathlib import Path

import torch
from accelerate import Accelerator

from arr_coc import provenance
from arr_coc.pretrain.card import CLOCK, EASY_VQA
from arr_coc.pretrain.loop import begin, publish, train_stage
from arr_coc.pretrain.scores import clock, evaluate, evaluate_easy_vqa
from arr_coc.pretrain.stages import STAGES
from arr_coc.scenes import scene


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    where = parser.add_argument_group("where")
    where.add_argument("--out", type=Path, required=True, help="Hub-shaped folder to write")
    where.add_argument("--work", type=Path, help="checkpoints (default: OUT + .work)")
    where.add_argument("--init", type=Path, help="start the joint stage from this folder's weights")
    where.add_argument("--resume", action="store_true", help="go on from the checkpoint in --work")
    where.add_argument(
        "--vision-from", type=Path, help="checkpoint folder of a dense stage run apart"
    )
    where.add_argument(
        "--text-from", type=Path, help="checkpoint folder of a symbolic stage run apart"
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
    how = parser.add_argument_group("how")
    how.add_argument("--lr", type=float, default=1.5e-3, help="AdamW, for what Muon does not train")
    how.add_argument("--muon-lr", type=float, default=3e-3)
    how.add_argument("--joint-lr-scale", type=float, default=0.5)
    how.add_argument("--seed", type=int, default=0, help="of the initial weights")
    how.add_argument("--seed-offset", type=int, default=0, help="added to the scenes' seeds")
    how.add_argument("--float32", action="store_true", help="no bfloat16 autocast")
    show = parser.add_argument_group("telling")
    show.add_argument("--log-every", type=int, default=20)
    show.add_argument("--save-every", type=int, default=200)
    show.add_argument("--publish", action="store_true", help="write OUT at joint checkpoints too")
    show.add_argument("--eval-n", type=int, default=300, help="questions per kind, 0 for none")
    show.add_argument("--eval-seed", type=int, default=scene.DEV_SEED)
    args = parser.parse_args(argv)
    if unknown := set(args.stages) - set(STAGES):
        parser.error(f"unknown stages {sorted(unknown)}; known: {', '.join(STAGES)}")
    if bool(args.text_from) != bool(args.vision_from):
        parser.error("--text-from and --vision-from go together")
    args.work = args.work or args.out.with_name(args.out.name + ".work")
    return args


def main(argv: Sequence[str] | None = None) -> None:
    args = parse(argv)
    words = provenance.typed(argv)
    accelerator = Accelerator(
        cpu=args.device == "cpu", mixed_precision="no" if args.float32 else "bf16"
    )
    if accelerator.device.type != args.device:
        raise ValueError(f"--device is {args.device}, but torch finds only {accelerator.device}")
    torch.set_num_threads(args.threads)  # after accelerate, which may set its own number
    run = begin(args)
    accelerator.register_for_checkpointing(run)
    if args.stages:
        run.command = provenance.command("arr_coc.pretrain", words)
    for stage in STAGES[STAGES.index(run.stage) :]:
        if stage not in args.stages:
            continue
        if stage != run.stage:
            run.stage, run.step = stage, 0
        train_stage(run, stage, accelerator, args)
    accelerator.end_training()
    if not accelerator.is_main_process:
        return
    scores = None
    if args.eval_n:
        sizes = {"native": (512, 512), "fifth": (224, 224), "glance": (128, 128)}
        scores = {
            name: evaluate(run, accelerator, args.eval_seed, args.eval_n, size=size)
            for name, size in sizes.items()
        }
        scores[EASY_VQA] = evaluate_easy_vqa(run, accelerator)
        publish(run, args, scores=None)
        scores[CLOCK] = clock(args.out, args.threads)
    publish(run, args, scores)
    print(json.dumps({"out": str(args.out), "scores": scores, "seconds": run.seconds}))


if __name__ == "__main__":
    main()
