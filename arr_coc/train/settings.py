"""The settings of a training run: the command line, and the frozen `Settings` that it becomes."""

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from arr_coc import provenance
from arr_coc.commands import add_dtype
from arr_coc.components import PARTS
from arr_coc.qwen.shapes import SHAPES
from arr_coc.qwen.weights import CONFIG
from arr_coc.train.decision import SHARES

MODULE = "arr_coc.train"
ABOUT = "Train ARR-COC's parts for a Qwen3-VL base: head weights, couplings, tensions, combiner, adapter."
FIRST_SEED = 500_000_000  # the base trains on others
DATA = ("scenes", "folder", "hub")
TRAINABLE_CONTEXTS = ("cells", "glance")
REPORTS = ("none", "tensorboard", "wandb", "trackio")


@dataclass(frozen=True)
class Settings:
    """One run. Each field is the flag of its name; `parser` says what they mean.

    `parts` is never empty here, and `command` is the whole command as typed.
    """

    # what is trained
    out: Path
    base: str | None
    shapes: str | None
    parts: list[str]
    adapter_attends: bool
    context: str | None
    init: Path | None
    renew: list[str]
    only: list[str]
    resume: bool
    # data
    data: str
    folder: Path | None
    skip_bad: bool
    dataset: str | None
    split: str
    subset: str | None
    n: int | None
    first_seed: int
    questions: int
    # run
    steps: int
    minutes: float | None
    batch: int
    budgets: Sequence[float]
    accumulate: int
    lr: float
    seed: int
    bf16: bool
    dtype: str | None
    device: str | None
    threads: int
    workers: int
    save_every: int
    log_every: int
    report_to: list[str]
    eval_n: int
    command: str

    @property
    def work(self) -> Path:
        """The folder of checkpoints and logs, OUT.work."""
        return self.out.with_name(self.out.name + ".work")


def parser() -> argparse.ArgumentParser:
    """The command line."""
    p = argparse.ArgumentParser(prog=f"python -m {MODULE}", description=ABOUT)
    p.add_argument("--out", type=Path, required=True, help="folder to write the weights to")
    p.add_argument("--base", default=None, help="Hub id or folder of a Qwen3-VL (default: bundled)")
    p.add_argument("--shapes", choices=list(SHAPES),
                   help="no base: random weights of these shapes, to see that they train")  # fmt: skip
    p.add_argument("--parts", nargs="+", choices=list(PARTS), metavar="PART",
                   help=f"of {', '.join(PARTS)} (default: all)")  # fmt: skip
    p.add_argument("--adapter-attends", action="store_true",
                   help="kept tokens see each other in the adapter")  # fmt: skip
    p.add_argument("--context", choices=TRAINABLE_CONTEXTS,
                   help="kept cells are encoded with (default: as --init, else cells)")  # fmt: skip
    p.add_argument("--init", type=Path, help="go on from these weights (a folder)")
    p.add_argument("--renew", nargs="+", choices=list(PARTS), metavar="PART", default=[],
                   help="of --init, start these anew")  # fmt: skip
    p.add_argument("--only", nargs="+", choices=list(PARTS), metavar="PART", default=[],
                   help="of --init, train these; the others stay as they are")  # fmt: skip
    p.add_argument("--resume", action="store_true", help="go on from the last checkpoint")
    data = p.add_argument_group("data")
    data.add_argument("--data", choices=DATA, default="scenes")
    data.add_argument("--folder", type=Path, help="a folder with questions.json or .jsonl")
    data.add_argument("--skip-bad", action="store_true",
                      help="of --folder: go on without pictures that cannot be read")  # fmt: skip
    data.add_argument("--dataset", help="a data set in VQA form on the Hub, streamed")
    data.add_argument("--split", default="train")
    data.add_argument("--subset")
    data.add_argument("--n", type=int, help="questions of a folder or data set (default: all)")
    data.add_argument("--first-seed", type=int, default=FIRST_SEED, help="of the scenes")
    data.add_argument("--questions", type=int, default=8, help="per scene")
    run = p.add_argument_group("run")
    run.add_argument("--steps", type=int, default=1500, help="optimizer steps")
    run.add_argument("--minutes", type=float, help="stop then, the learning rate falling in time")
    run.add_argument("--batch", type=int, default=4, help="pictures per process and step")
    run.add_argument("--budgets", type=float, nargs="+", metavar="SHARE", default=SHARES,
                     help="shares of an image's tokens that questions are given, drawn evenly "
                     f"(default: {' '.join(map(str, SHARES))})")  # fmt: skip
    run.add_argument("--accumulate", type=int, default=1)
    run.add_argument("--lr", type=float, default=2e-3)
    run.add_argument("--seed", type=int, default=0)
    run.add_argument("--bf16", action="store_true", help="base and arithmetic in bfloat16")
    add_dtype(run)
    run.add_argument("--device", help="default: CUDA where there is one")
    run.add_argument("--threads", type=int, default=1, help="CPU threads of each process")
    run.add_argument("--workers", type=int, default=0, help="processes that draw, per process")
    run.add_argument("--save-every", type=int, default=200, help="steps between checkpoints")
    run.add_argument("--log-every", type=int, default=20)
    run.add_argument("--report-to", nargs="+", choices=REPORTS, default=["none"])
    run.add_argument("--eval-n", type=int, default=0,
                     help="development questions per kind to answer at the end")  # fmt: skip
    return p


def parse(argv: Sequence[str] | None = None) -> Settings:
    """The settings of the arguments, which are checked against each other and against `--init`."""
    p = parser()
    args = p.parse_args(argv)
    if args.data == "folder" and not args.folder:
        p.error("--data folder needs --folder DIR")
    if args.data == "hub" and not args.dataset:
        p.error("--data hub needs --dataset ID")
    if args.shapes and args.base:
        p.error("--shapes takes the place of --base")
    for flag, given in (("renew", args.renew), ("only", args.only)):
        if given and not args.init:
            p.error(f"--{flag} {' '.join(given)} needs --init FOLDER")
    if args.init:
        wrong = against_init(
            args.init,
            parts=args.parts,
            renew=args.renew,
            only=args.only,
            adapter_attends=args.adapter_attends,
        )
        if wrong:
            p.error(wrong)
    if args.bf16 and args.dtype not in (None, "bfloat16"):
        p.error(f"--dtype {args.dtype} with --bf16, which is --dtype bfloat16 and more")
    if wrong := [share for share in args.budgets if not 0 < share < 1]:
        p.error(f"--budgets {wrong[0]:g}, expected shares above 0 and below 1")
    given = vars(args) | {"parts": args.parts or list(PARTS)}
    return Settings(**given, command=provenance.command(MODULE, provenance.typed(argv)))


def against_init(
    init: Path,
    *,
    parts: Sequence[str] | None,
    renew: Sequence[str],
    only: Sequence[str],
    adapter_attends: bool,
) -> str | None:
    """What the other flags ask of the weights in `init` that these do not have; None where all is there."""
    attends_as_before = adapter_attends and "adapter" not in renew
    if not (parts or renew or only or attends_as_before):
        return None
    try:
        there = json.loads((init / CONFIG).read_text())["parts"]
    except (OSError, ValueError, KeyError) as error:
        return f"--init {init} has no {CONFIG} that names parts: {error}"
    if parts and set(parts) != set(there):
        return f"--parts {' '.join(parts)}, but --init {init} has {' '.join(there)}"
    for flag, named in (("renew", renew), ("only", only)):
        if missing := [part for part in named if part not in there]:
            return f"--{flag} {' '.join(missing)}, but --init {init} has {' '.join(there)}"
    if attends_as_before and not there.get("adapter", {}).get("attends"):
        return f"--adapter-attends, but --init {init} has no adapter that attends"
    return None
