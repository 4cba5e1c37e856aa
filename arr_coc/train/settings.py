"""The settings of a training run: the command line, and the frozen `Settings` that it becomes."""

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from arr_coc import provenance
from arr_coc.commands import above_zero, add_dtype, check_device, count, natural
from arr_coc.components import CLIP_PARTS, PARTS
from arr_coc.qwen.shapes import SHAPES
from arr_coc.qwen.weights import CONFIG
from arr_coc.scenes.hands import ANY, HOME, TRAINING_HANDS
from arr_coc.scenes.scene import WORLDS
from arr_coc.sets.readers import READERS
from arr_coc.train.chunks import ROWS
from arr_coc.train.data import LABELS
from arr_coc.train.decision import SHARES

MODULE = "arr_coc.train"
ABOUT = "Train ARR-COC's parts for a Qwen3-VL base: what decides where to look, and what mends encodings."
FIRST_SEED = 500_000_000  # of the scenes that are learned from
DATA = ("scenes", "folder", "local", "hub")
HELD_OUT = 0.1  # share of a set's pictures that a run does not train on, unless it says otherwise
TRAINABLE_CONTEXTS = ("cells", "glance")
TAUGHT = [name for name in PARTS if name not in CLIP_PARTS]  # what is trained here
CONTEXT_PART = "lora"  # corrects what the encoder does beside a glance, and nothing else
REPORTS = ("none", "tensorboard", "wandb", "trackio")
BASE_MOVED = (
    "the base was trained on since --init was made for it: sizes must fit, its numbers need not"
)


def work_of(out: Path) -> Path:
    """The folder beside OUT for checkpoints and notes."""
    return out.with_name(out.name + ".work")


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
    base_moved: bool
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
    reader: str | None
    pictures: Path | None
    held_out: float
    stages: bool
    labels: str
    people: Path | None
    n: int | None
    first_seed: int
    questions: int
    world: str
    hand: str
    eval_size: tuple[int, int]
    # run
    steps: int
    minutes: float | None
    batch: int
    budgets: Sequence[float]
    answers: bool
    accumulate: int
    chunk: int
    recompute: bool
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
    keep_best: bool
    patience: int | None
    command: str

    @property
    def work(self) -> Path:
        """The folder of checkpoints and logs, OUT.work."""
        return work_of(self.out)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    p = argparse.ArgumentParser(prog=f"python -m {MODULE}", description=ABOUT)
    p.add_argument("--out", type=Path, required=True, help="folder to write the weights to")
    p.add_argument("--base", default=None, help="Hub id or folder of a Qwen3-VL (default: bundled)")
    p.add_argument("--shapes", choices=list(SHAPES),
                   help="no base: random weights of these shapes, to see that they train")  # fmt: skip
    p.add_argument("--parts", nargs="+", choices=TAUGHT, metavar="PART",
                   help=f"of {', '.join(TAUGHT)} (default: as --init, else all, {CONTEXT_PART} only "
                   "with --context glance); what --init lacks starts new")  # fmt: skip
    p.add_argument("--adapter-attends", action="store_true",
                   help="kept tokens see each other in the adapter")  # fmt: skip
    p.add_argument("--context", choices=TRAINABLE_CONTEXTS,
                   help="kept cells are encoded with (default: as --init, else cells)")  # fmt: skip
    p.add_argument("--init", type=Path, help="go on from these weights (a folder)")
    p.add_argument("--base-moved", action="store_true", help=BASE_MOVED)
    p.add_argument("--renew", nargs="+", choices=TAUGHT, metavar="PART", default=[],
                   help="of --init, start these anew")  # fmt: skip
    p.add_argument("--only", nargs="+", choices=TAUGHT, metavar="PART", default=[],
                   help="of --init, train these; the others stay as they are")  # fmt: skip
    p.add_argument("--resume", action="store_true", help="go on from the last checkpoint")
    _add_data(p.add_argument_group("data"))
    _add_run(p.add_argument_group("run"))
    return p


def _add_data(data: argparse._ArgumentGroup) -> None:
    data.add_argument("--data", choices=DATA, default="scenes")
    data.add_argument("--folder", type=Path, help="of --data folder: with questions.json or .jsonl, "
                      "official VQA JSON, or Visual-CoT's lines")  # fmt: skip
    data.add_argument("--dataset", help="of --data local: parquet or a save_to_disk folder; of --data "
                      "hub: an id, which is streamed and shuffled")  # fmt: skip
    data.add_argument("--split", default="train", help="of --dataset")
    data.add_argument("--subset", help="of --dataset on the Hub")
    data.add_argument("--reader", choices=list(READERS),
                      help="what a set's columns mean (default: as told by them)")  # fmt: skip
    data.add_argument("--pictures", type=Path, help="folder of the pictures that rows name")
    data.add_argument("--skip-bad", action="store_true",
                      help="count rows of a set that cannot be asked, and go on")  # fmt: skip
    data.add_argument("--held-out", type=float, default=HELD_OUT, metavar="SHARE",
                      help="of a set's pictures, never trained on (default: %(default)s)")  # fmt: skip
    data.add_argument("--stages", action="store_true",
                      help="of --data folder and local: plain questions, hard ones, then all")  # fmt: skip
    data.add_argument("--labels", choices=LABELS, default=LABELS[0],
                      help="where to look without boxes: where the base does, or from which crops "
                      "it answers (default: %(default)s)")  # fmt: skip
    data.add_argument("--people", type=Path, metavar="FILE",
                      help="lines that say of which maps people found that they make sense")  # fmt: skip
    data.add_argument("--n", type=count, help="questions of a set, rows of a stream (default: all)")
    data.add_argument("--first-seed", type=int, default=FIRST_SEED, help="of the scenes")
    data.add_argument("--questions", type=count, default=8, help="per scene")
    data.add_argument("--world", choices=WORLDS, default=WORLDS[0], help="of the scenes")
    data.add_argument("--hand", choices=(ANY, *TRAINING_HANDS), default=HOME,
                      help="who draws the scenes (default: %(default)s)")  # fmt: skip
    data.add_argument("--eval-size", type=int, nargs=2, default=(512, 512),
                      metavar=("WIDTH", "HEIGHT"), help="pixels of the scenes of --eval-n")  # fmt: skip


def _add_run(run: argparse._ArgumentGroup) -> None:
    run.add_argument("--steps", type=count, default=1500, help="optimizer steps")
    run.add_argument(
        "--minutes", type=above_zero, help="stop then, the learning rate falling in time"
    )
    run.add_argument("--batch", type=count, default=4, help="pictures per process and step")
    run.add_argument("--budgets", type=float, nargs="+", metavar="SHARE", default=SHARES,
                     help="shares of an image's tokens that questions are given, drawn evenly "
                     f"(default: {' '.join(map(str, SHARES))})")  # fmt: skip
    run.add_argument("--no-answers", dest="answers", action="store_false",
                     help="learn where to look from boxes and words alone: the base is asked nothing, "
                     "which is many times faster; adapter and lora stay as they are, or with --only "
                     "learn from the full encoder's tokens")  # fmt: skip
    run.add_argument("--accumulate", type=count, default=1)
    run.add_argument("--chunk", type=int, default=ROWS, metavar="QUESTIONS",
                     help="that go through the base and back together; fewer take less memory "
                     "(default: %(default)s)")  # fmt: skip
    run.add_argument("--recompute", action="store_true",
                     help="gradient checkpointing: less memory, a third more time")  # fmt: skip
    run.add_argument("--lr", type=float, default=2e-3)
    run.add_argument("--seed", type=int, default=0)
    run.add_argument("--bf16", action="store_true", help="base and arithmetic in bfloat16")
    add_dtype(run)
    run.add_argument("--device", choices=("cpu", "cuda"), help="default: CUDA where there is one")
    run.add_argument("--threads", type=count, default=1, help="CPU threads of each process")
    run.add_argument("--workers", type=natural, default=0, help="processes that draw, per process")
    run.add_argument("--save-every", type=count, default=200, help="steps between checkpoints")
    run.add_argument("--log-every", type=count, default=20)
    run.add_argument("--report-to", nargs="+", choices=REPORTS, default=["none"])
    run.add_argument("--eval-n", type=natural, default=0,
                     help="questions to answer at the end: of the held-out part of what was trained "
                     "on; of scenes, per kind, on development seeds")  # fmt: skip
    run.add_argument("--keep-best", action="store_true",
                     help="answer them at every checkpoint too, and publish the best one")  # fmt: skip
    run.add_argument("--patience", type=int, metavar="N",
                     help="with --keep-best: stop after N checkpoints without a better one")  # fmt: skip


def parse(argv: Sequence[str] | None = None) -> Settings:
    """The settings of the arguments, which are checked against each other and against `--init`."""
    p = parser()
    args = p.parse_args(argv)
    check_device(p, args.device)
    if wrong := of_the_data(args):
        p.error(wrong)
    if args.shapes and args.base:
        p.error("--shapes takes the place of --base")
    for flag, given in (("renew", args.renew), ("only", args.only)):
        if given and not args.init:
            p.error(f"--{flag} {' '.join(given)} needs --init FOLDER")
    if args.base_moved and not args.init:
        p.error("--base-moved needs --init FOLDER")
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
    if args.chunk < 1:
        p.error(f"--chunk {args.chunk}, expected at least one question")
    if args.bf16 and args.dtype not in (None, "bfloat16"):
        p.error(f"--dtype {args.dtype} with --bf16, which is --dtype bfloat16 and more")
    if wrong := [share for share in args.budgets if not 0 < share < 1]:
        p.error(f"--budgets {wrong[0]:g}, expected shares above 0 and below 1")
    if CONTEXT_PART in (args.parts or ()) and _context(args) != "glance":
        p.error(
            f"--parts {CONTEXT_PART} corrects what is encoded beside a glance: --context glance"
        )
    given = vars(args) | {"parts": args.parts or default_parts(args.init, args.context)}
    return Settings(**given, command=provenance.command(MODULE, provenance.typed(argv)))


def _context(args: argparse.Namespace) -> str:
    """The context that is named, or else the one that the weights of `--init` were made for."""
    try:
        made_for = json.loads((args.init / CONFIG).read_text())["context"] if args.init else None
    except (OSError, ValueError, KeyError):  # loading says what is wrong with the folder
        made_for = None
    return args.context or made_for or TRAINABLE_CONTEXTS[0]


def default_parts(init: Path | None, context: str | None) -> list[str]:
    """Those of the weights in `init`; without any all that kept cells so encoded have a use for."""
    try:
        return list(json.loads((init / CONFIG).read_text())["parts"]) if init else _useful(context)
    except (OSError, ValueError, KeyError):  # loading says what is wrong with the folder
        return _useful(context)


def _useful(context: str | None) -> list[str]:
    return [name for name in TAUGHT if name != CONTEXT_PART or context == "glance"]


def of_the_data(args: argparse.Namespace) -> str | None:
    """What is wrong with the flags about data and its held-out part; None where nothing is."""
    if args.data == "folder" and not args.folder:
        return "--data folder needs --folder DIR"
    if args.folder and args.data != "folder":
        return f"--folder is read with --data folder, not with --data {args.data}"
    if args.dataset and args.data not in ("local", "hub"):
        return f"--dataset is read with --data local or hub, not with --data {args.data}"
    if args.data == "hub" and not args.dataset:
        return "--data hub needs --dataset ID"
    if args.data == "local":
        if not args.dataset:
            return "--data local needs --dataset PATH"
        if not Path(args.dataset).exists():
            return f"--data local: there is no {args.dataset}; --data hub streams from the Hub"
    if args.data != "scenes" and (args.world, args.hand) != (WORLDS[0], HOME):
        return f"--world and --hand are of drawn scenes, not of --data {args.data}"
    if args.stages and args.data not in ("folder", "local"):
        return "--stages needs --data folder or local: what is hard is told before the run"
    if not 0 <= args.held_out < 1:
        return f"--held-out {args.held_out:g} is outside [0, 1)"
    if args.eval_n and args.data != "scenes" and not args.held_out:
        return "--eval-n asks the held-out part: it needs --held-out above 0"
    if args.keep_best and not args.eval_n:
        return "--keep-best needs --eval-n questions to tell which is best"
    if args.patience is not None and not (args.keep_best and args.patience > 0):
        return "--patience takes a number above 0, with --keep-best"
    return None


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
    if parts and not set(parts) >= set(there):
        return f"--parts {' '.join(parts)}, but --init {init} has {' '.join(there)}"
    for flag, named in (("renew", renew), ("only", only)):
        if missing := [part for part in named if part not in (*there, *(parts or ()))]:
            return f"--{flag} {' '.join(missing)}, but --init {init} has {' '.join(there)}"
    if attends_as_before and not there.get("adapter", {}).get("attends"):
        return f"--adapter-attends, but --init {init} has no adapter that attends"
    return None
