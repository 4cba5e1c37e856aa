"""Evaluate: does a method keep the answers at a fraction of the visual tokens, and where does it look.

    python -m arr_coc.evaluate --out results/dev --n 200                    # every method, on scenes
    python -m arr_coc.evaluate --out results/dev --n 1000 --resume          # go on, or add to it
    python -m arr_coc.evaluate --out results/dev --resume --new-weights --weights runs/arr-coc
    python -m arr_coc.evaluate --out results/sweep --sweep detail 0.5 0.75 1 1.5 2
    python -m arr_coc.evaluate --out results/easy-vqa --easy-vqa
    accelerate launch -m arr_coc.evaluate --out results/docs --folder DIR --base Qwen/Qwen3-VL-2B-Instruct

Writes into OUT: `rows.parquet` (one row per question, method and budget), `summary.json`, figures,
and with `--time` `time.json`. Nothing is trained or tuned here. Scenes are asked from the development
seeds unless `--seed` says otherwise. Needs requirements-dev.txt. The last stdout line is JSON.
"""

import argparse
import json
import os
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch

from arr_coc import provenance
from arr_coc.evaluate.questions import (
    QUESTIONS_PER_BLOCK,
    SHORT,
    EasyVQA,
    Folder,
    Hub,
    Scenes,
    Source,
)
from arr_coc.evaluate.report import open_out, report, time_methods
from arr_coc.evaluate.timing import CURVE
from arr_coc.evaluate.work import measure
from arr_coc.peers.methods import EVERY, METHODS, VARIANTS
from arr_coc.peers.ours import TRAINED
from arr_coc.qwen.loading import BUNDLED_BASE
from arr_coc.scenes import questions, scene

N_SCENES = 1000
LONGEST_RUN = timedelta(days=2)  # how long one process may wait for the others


# --------------------------------------------------------------------------- what is asked of whom


def source(args: argparse.Namespace) -> Source:
    """The questions that the arguments name."""
    if args.easy_vqa:
        return EasyVQA(args.n, args.block)
    if args.folder:
        return Folder(args.folder, args.n, args.instruction, args.block)
    if args.dataset:
        return Hub(args.dataset, args.split, args.subset, args.n, args.instruction, args.block)
    return Scenes(args.seed, args.n or N_SCENES, args.kinds, args.details, tuple(args.size))


# --------------------------------------------------------------------------------- the command


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command; with RANK and WORLD_SIZE set (accelerate, torchrun) a share of it."""
    args, started = parse(argv, __doc__.splitlines()[0]), time.time()
    rank, world = (int(os.environ.get(k, d)) for k, d in (("RANK", 0), ("WORLD_SIZE", 1)))
    if world > 1:
        torch.distributed.init_process_group("gloo", timeout=LONGEST_RUN)
    origin = source(args)
    if rank == 0:
        open_out(args)
    wait_for_all(world)
    measure(args, origin, rank, world)
    wait_for_all(world)
    if rank == 0:
        if args.time:
            time_methods(args, origin)
        found = report(args, origin, started)
        print(json.dumps(last_line(args, found)))
    if world > 1:
        torch.distributed.destroy_process_group()


def wait_for_all(world: int) -> None:
    """Go on when every process has come here."""
    if world > 1:
        torch.distributed.barrier()


def last_line(args: argparse.Namespace, found: dict[str, Any]) -> dict[str, Any]:
    """OUT and the overall accuracies."""
    overall = {
        f"{e['method']} {e['budget']:g} {e['detail']:g}": e["overall"] and e["overall"]["value"]
        for e in found["methods"]
    }
    return {"out": str(args.out), "minutes": found["minutes"], "overall": overall}


BUDGETS = (0.05, 0.1, 0.2, 0.4)
SWEEP_METHODS = ("stock", "downsample", "arr-coc")
FINE = ("fine detail", "reading")  # how scenes.KINDS marks what `detail` scales
NEW_TOKENS = {"exact": 8, "vqa": 32}
DEFAULT_FLOOR = {"exact": 0.8, "vqa": 0.0}
SMALL_BATCH = 32  # of the bundled base; a larger model answers one at a time


def parser(about: str) -> argparse.ArgumentParser:
    """The command line."""
    p = argparse.ArgumentParser(prog="python -m arr_coc.evaluate", description=about)
    what = p.add_argument_group("what is compared")
    what.add_argument("--out", type=Path, required=True, help="folder to write, results/NAME")
    what.add_argument("--methods", nargs="+", choices=list(EVERY), metavar="METHOD",
                      help=f"of {', '.join(METHODS)} (default: these), "
                           f"and of ours {', '.join(VARIANTS)}")  # fmt: skip
    what.add_argument("--budgets", type=float, nargs="+", help="shares of an image's visual tokens")
    what.add_argument("--base", default=str(BUNDLED_BASE), help="Hub id or folder of a Qwen3-VL")
    what.add_argument("--weights", default="", help="Hub id or folder of ARR-COC weights")
    data = p.add_argument_group("on which questions (default: drawn scenes)")
    data.add_argument("--n", type=int, help="questions per kind; of a folder or data set, in all")
    data.add_argument("--kinds", nargs="+", help=f"of scenes: {', '.join(questions.KINDS)}")
    data.add_argument("--seed", type=int, default=scene.DEV_SEED, help="first seed of the scenes")
    data.add_argument("--size", type=int, nargs=2, default=(512, 512), help="of the scenes, pixels")
    data.add_argument("--detail", type=float, default=1.0, help="scale of emblems and writing")
    data.add_argument("--sweep", nargs="+", metavar="detail SCALE", help="several scales of detail")
    other = data.add_mutually_exclusive_group()
    other.add_argument("--easy-vqa", action="store_true", help="easy-VQA's test split instead")
    other.add_argument("--folder", type=Path, help="a folder with questions.json or .jsonl instead")
    other.add_argument("--dataset", help="a data set in VQA form on the Hub instead")
    data.add_argument("--split", default="validation", help="of --dataset")
    data.add_argument("--subset", help="of --dataset")
    data.add_argument("--instruction", default=SHORT, help="after each question in VQA form")
    data.add_argument("--floor", type=float, help="stock accuracy that a kind needs to count")
    how = p.add_argument_group("how")
    how.add_argument("--resume", action="store_true", help="add to the rows in OUT")
    how.add_argument("--new-weights", action="store_true",
                     help="with --resume: where OUT's rows are of other ARR-COC weights, keep those "
                          "of methods that use none of the parts that changed, and ask the others "
                          "anew")  # fmt: skip
    how.add_argument("--batch", type=int, help="questions answered at once")
    how.add_argument(
        "--block", type=int, default=QUESTIONS_PER_BLOCK, help="questions between two checkpoints"
    )
    how.add_argument("--max-new-tokens", type=int)
    how.add_argument("--workers", type=int, default=1, help="processes on this machine")
    how.add_argument("--threads", type=int, default=1, help="CPU threads of each")
    how.add_argument("--device", help="default: CUDA where there is one")
    how.add_argument("--dtype", choices=["float32", "bfloat16", "float16"])
    clock = p.add_argument_group("time to first token")
    clock.add_argument("--time", type=int, default=0, help="questions to time, one at a time")
    clock.add_argument("--time-budgets", type=float, nargs="+", help="default: --budgets")
    clock.add_argument("--time-threads", type=int, default=1, help="CPU threads while timing")
    clock.add_argument("--curve", type=Path, default=CURVE, help="stage times at the 2B shapes")
    return p


def parse(argv: Sequence[str] | None, about: str) -> argparse.Namespace:
    """The arguments, with what follows from them filled in."""
    p = parser(about)
    args = p.parse_args(argv)
    args.words = provenance.typed(argv)
    sweep = bool(args.sweep)
    args.methods = args.methods or list(SWEEP_METHODS if sweep else METHODS)
    args.budgets = args.budgets or ([0.2] if sweep else list(BUDGETS))
    if (parts := [m for m in args.methods if m in TRAINED]) and not args.weights:
        p.error(f"{', '.join(parts)}: without --weights there is no trained part to take out")
    if args.new_weights and not args.resume:
        p.error("--new-weights goes on from the rows in OUT: it needs --resume")
    args.time_budgets = args.time_budgets or args.budgets
    if bad := [b for b in (*args.budgets, *args.time_budgets) if not 0 < b <= 1]:
        p.error(f"budgets {bad} are outside (0, 1]")
    fine = [kind for kind, what in questions.KINDS.items() if any(mark in what for mark in FINE)]
    args.kinds = args.kinds or (fine if sweep else list(questions.KINDS))
    args.details = [args.detail]
    if sweep:
        if args.sweep[0] != "detail" or len(args.sweep) < 3:
            p.error("--sweep takes the word detail and at least two scales")
        args.details = [float(scale) for scale in args.sweep[1:]]
    scoring = "vqa" if args.folder or args.dataset else "exact"
    args.max_new_tokens = args.max_new_tokens or NEW_TOKENS[scoring]
    args.floor = DEFAULT_FLOOR[scoring] if args.floor is None else args.floor
    small = Path(args.base) == BUNDLED_BASE
    args.batch = args.batch or (SMALL_BATCH if small else 1)
    if args.dataset and args.workers > 1:
        p.error("--workers is 1 for a streamed data set; use accelerate launch for more processes")
    if args.dataset and args.time:
        p.error("--time needs questions that can be read again: use --folder")
    return args


if __name__ == "__main__":
    main()
