"""Settings of `python -m arr_coc.evaluate`: the command line, and what follows from it."""

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from arr_coc import provenance
from arr_coc.commands import add_dtype, check_device, count, natural
from arr_coc.evaluate.questions import PLAIN, QUESTIONS_PER_BLOCK, SCENES_QUESTIONS
from arr_coc.evaluate.timing import CURVE
from arr_coc.evaluate.views import GROUPS, PICTURES, VIEWS_KINDS, VIEWS_SIZE, VIEWS_WORLDS
from arr_coc.evaluate.vqa import SHORT
from arr_coc.peers.base import Method
from arr_coc.peers.methods import EVERY, METHODS, VARIANTS
from arr_coc.peers.names import OURS, STOCK
from arr_coc.peers.views import ViewsMethod
from arr_coc.peers.views_methods import VIEWS_METHODS
from arr_coc.qwen.loading import BUNDLED, BUNDLED_BASE, folder_of
from arr_coc.scenes import large
from arr_coc.scenes.asking import MANNERS
from arr_coc.scenes.hands import ANY, HELD_OUT_HANDS, HOME, TRAINING_HANDS
from arr_coc.scenes.questions import KINDS
from arr_coc.scenes.richer import RICHER_KINDS
from arr_coc.scenes.scene import DEV_SEED, KINDS_OF, WORLDS
from arr_coc.sets.readers import READERS

BUDGETS = (0.05, 0.1, 0.2, 0.4)
SWEEP_BUDGETS = (0.2,)
SWEEP_METHODS = (STOCK, "downsample", OURS)
FINE = ("fine detail", "reading")  # how scenes.questions.KINDS marks what `detail` scales
N_SCENES = 1000
SCENE_SIZE = (512, 512)
_ABOUT = KINDS | RICHER_KINDS
NEW_TOKENS = {"exact": 8, "vqa": 32}
DEFAULT_FLOOR = {"exact": 0.8, "vqa": 0.0}
SMALL_BATCH = 32  # for the bundled base; a larger model answers one at a time


@dataclass(frozen=True)
class Settings:
    """What one run of the command does.

    Attributes:
        out: folder to write.
        methods: keys of `methods_of` the world.
        budgets: shares of an image's visual tokens, in (0, 1].
        base, weights: Hub id or folder of a Qwen3-VL, and of ARR-COC weights ("" for none).
        n: questions per kind; of a folder in all, of a data set its rows before `held_out`; None for all.
        kinds, seed, size, details: of scenes: the kinds of question, the first seed, width and height in
            pixels, the scales of emblems and writing.
        world, hand: of scenes: one of `scene.WORLDS` or `views.VIEWS_WORLDS`, and who draws them.
        groups: moments of a drawn clip, or pictures asked about at once; 0 of one picture.
        easy_vqa, folder, skip_bad, dataset, split, subset: other questions than scenes.
        reader, pictures: of those: key of `sets.readers.READERS`, and the folder of the pictures; None
            for what the columns tell, and where the list lies.
        held_out: share of the pictures that training with the same number leaves out; those alone are
            asked. 0 asks all.
        control: whether stock is also asked with the boxes blackened, and with nothing but the boxes.
        manner: of scenes: how questions are put, one of `asking.MANNERS`.
        instruction: follows each question.
        floor: stock accuracy in [0, 1] that a kind needs to count.
        resume, new_weights: whether rows are added to those in `out`, and whether those of other weights
            may make way.
        batch, block: questions answered at once, and between two checkpoints.
        max_new_tokens: per answer.
        workers, threads: processes on this machine, and CPU threads of each.
        device, dtype: None for what the machine has and suits it.
        time, time_budgets, time_threads, curve: questions to time, at which shares, on how many CPU
            threads, and the benchmark's report of stage times.
        words: the arguments as typed.
    """

    out: Path
    methods: tuple[str, ...]
    budgets: tuple[float, ...]
    base: str
    weights: str
    n: int | None
    kinds: tuple[str, ...]
    seed: int
    size: tuple[int, int]
    details: tuple[float, ...]
    world: str
    hand: str
    groups: int
    easy_vqa: bool
    folder: Path | None
    skip_bad: bool
    dataset: str | None
    split: str
    subset: str | None
    reader: str | None
    pictures: Path | None
    held_out: float
    control: bool
    manner: str
    instruction: str
    floor: float
    resume: bool
    new_weights: bool
    batch: int
    block: int
    max_new_tokens: int
    workers: int
    threads: int
    device: str | None
    dtype: str | None
    time: int
    time_budgets: tuple[float, ...]
    time_threads: int
    curve: Path
    words: tuple[str, ...]


def methods_of(world: str) -> dict[str, Callable[[], Method | ViewsMethod]]:
    """Every method for the questions of a world, by its name, in the order of a table."""
    return VIEWS_METHODS if world in VIEWS_WORLDS else EVERY


def parser(about: str) -> argparse.ArgumentParser:
    """The command line."""
    p = argparse.ArgumentParser(prog="python -m arr_coc.evaluate", description=about)
    what = p.add_argument_group("what is compared")
    what.add_argument("--out", type=Path, required=True, help="folder to write, results/NAME")
    what.add_argument("--methods", nargs="+", choices=list(EVERY | VIEWS_METHODS), metavar="METHOD",
                      help=f"of {', '.join(METHODS)} (default: these), and of ours "
                           f"{', '.join(VARIANTS)}; of clips and several pictures "
                           f"{', '.join(VIEWS_METHODS)}")  # fmt: skip
    what.add_argument(
        "--budgets", "--share", type=float, nargs="+", help="shares of an image's visual tokens"
    )
    what.add_argument("--base", default=BUNDLED, help="Hub id or folder (default: %(default)s)")
    what.add_argument("--weights", default="", help="Hub id or folder of ARR-COC weights (default: "
                      "none, the fixed rules alone)")  # fmt: skip
    data = p.add_argument_group("on which questions (default: drawn scenes)")
    data.add_argument("--n", type=count,
                      help="per kind; of a set in all, of a stream before --held-out")  # fmt: skip
    data.add_argument("--kinds", nargs="+", help=f"of scenes: {', '.join(KINDS)}; "
                           f"of the large world also {', '.join(RICHER_KINDS)}; of clips "
                           f"{', '.join(VIEWS_KINDS['clips'])}; of several pictures "
                           f"{', '.join(VIEWS_KINDS['pictures'])}")  # fmt: skip
    data.add_argument("--seed", type=int, default=DEV_SEED, help="first seed of the scenes")
    data.add_argument("--size", type=int, nargs=2, help="of the scenes, pixels (default: 512 512; "
                      "of clips and several pictures 256 256)")  # fmt: skip
    data.add_argument("--detail", type=float, default=1.0, help="scale of emblems and writing")
    data.add_argument("--world", choices=(*WORLDS, *VIEWS_WORLDS), default=WORLDS[0],
                      help="of the scenes; clips, or several pictures of which one holds the "
                           "answer")  # fmt: skip
    data.add_argument("--groups", type=count, help="moments of a clip, two frames each (default: 8); "
                      "pictures asked about at once (default: 3)")  # fmt: skip
    data.add_argument("--hand", choices=(ANY, *TRAINING_HANDS, *HELD_OUT_HANDS), default=HOME,
                      help=f"who draws the scenes; {', '.join(HELD_OUT_HANDS)} were never trained on "
                           f"and need seeds from {DEV_SEED} up")  # fmt: skip
    data.add_argument("--sweep", nargs="+", metavar="detail SCALE", help="several scales of detail")
    other = data.add_mutually_exclusive_group()
    other.add_argument("--easy-vqa", action="store_true", help="easy-VQA's test split instead")
    other.add_argument("--folder", type=Path, help="a folder with questions.json or .jsonl instead, "
                       "official VQA JSON, or Visual-CoT's lines")  # fmt: skip
    other.add_argument("--dataset", help="a data set instead: local parquet, a save_to_disk folder, "
                       "or an id on the Hub, streamed")  # fmt: skip
    data.add_argument("--reader", choices=list(READERS),
                      help="of --folder and --dataset: what the columns mean (default: as told "
                           "by them)")  # fmt: skip
    data.add_argument("--pictures", type=Path, help="of --folder and --dataset: where pictures lie "
                      "that rows name")  # fmt: skip
    data.add_argument("--held-out", type=float, default=0.0, metavar="SHARE",
                      help="ask the pictures that training with this share leaves out")  # fmt: skip
    data.add_argument("--control", action="store_true", help="where boxes are known: ask stock with "
                      "them blackened, and with all else black")  # fmt: skip
    data.add_argument("--skip-bad", action="store_true",
                      help="of --folder and --dataset: count rows that cannot be asked, and "
                           "go on")  # fmt: skip
    data.add_argument("--split", default="validation", help="of --dataset")
    data.add_argument("--subset", help="of --dataset")
    data.add_argument("--manner", choices=list(MANNERS), default=PLAIN,
                      help="how questions about scenes are put")  # fmt: skip
    data.add_argument("--instruction", help="after each question (default: of --folder and --dataset "
                      "the usual one, of scenes none)")  # fmt: skip
    data.add_argument("--floor", type=float, help="stock accuracy that a kind needs to count")
    how = p.add_argument_group("how")
    how.add_argument("--resume", action="store_true", help="add to the rows in OUT")
    how.add_argument("--new-weights", action="store_true",
                     help="with --resume: of rows by other ARR-COC weights keep those of methods that "
                          "use none of the parts that changed, and ask the others anew")  # fmt: skip
    how.add_argument("--batch", type=count, help="questions answered at once")
    how.add_argument("--block", type=count, default=QUESTIONS_PER_BLOCK,
                     help="questions between two checkpoints; of drawn scenes always about "
                          f"{SCENES_QUESTIONS}")  # fmt: skip
    how.add_argument("--max-new-tokens", type=count)
    how.add_argument("--workers", type=count, default=1, help="processes on this machine")
    how.add_argument("--threads", type=count, default=1, help="CPU threads of each")
    how.add_argument("--device", help="default: CUDA where there is one")
    add_dtype(how)
    clock = p.add_argument_group("time to first token")
    clock.add_argument("--time", type=natural, default=0, help="questions to time, one at a time")
    clock.add_argument("--time-budgets", type=float, nargs="+", help="default: --budgets")
    clock.add_argument("--time-threads", type=count, default=1, help="CPU threads while timing")
    clock.add_argument("--curve", type=Path, default=CURVE, help="stage times at the 2B shapes")
    return p


def parse(argv: Sequence[str] | None, about: str) -> Settings:
    """The settings that the arguments of `main`, or of the process, name; `about` is for --help."""
    p = parser(about)
    args = p.parse_args(argv)
    _check(p, args)
    args.base = folder_of(args.base)
    sweep = bool(args.sweep)
    is_views = args.world in VIEWS_WORLDS
    budgets = tuple(args.budgets or (SWEEP_BUDGETS if sweep or is_views else BUDGETS))
    kinds = VIEWS_KINDS[args.world] if is_views else KINDS_OF[args.world]
    fine = tuple(kind for kind in kinds if any(mark in _ABOUT.get(kind, "") for mark in FINE))
    made = {name: make() for name, make in methods_of(args.world).items()}
    methods = [n for n, own in made.items() if _is_of(own, args.world) and not own.needs_weights]
    groups = args.groups or GROUPS.get(args.world, 0)
    asked = (args.methods or methods) if is_views else ()
    if lacking := [n for n in asked if _is_too_large(made[n], min(budgets), groups)]:
        said = f"keeps a whole moment: budgets are at least {1 / groups:g} of {groups} moments"
        if args.methods:
            p.error(f"--methods {' '.join(lacking)}: {said}")
        methods = [name for name in methods if name not in lacking]
        print(f"{', '.join(lacking)}: left out, it {said}", file=sys.stderr)
    scoring = "vqa" if args.folder or args.dataset else "exact"
    is_small = Path(args.base) == BUNDLED_BASE
    usual = SHORT if scoring == "vqa" else ""
    derived = {
        "words": tuple(provenance.typed(argv)),
        "methods": tuple(
            args.methods or (SWEEP_METHODS if sweep else methods if is_views else METHODS)
        ),
        "budgets": budgets,
        "time_budgets": tuple(args.time_budgets or budgets),
        "kinds": tuple(args.kinds or (fine if sweep else kinds)),
        "size": tuple(args.size),
        "groups": groups,
        "details": tuple(map(float, args.sweep[1:])) if sweep else (args.detail,),
        "instruction": usual if args.instruction is None else args.instruction,
        "max_new_tokens": args.max_new_tokens or NEW_TOKENS[scoring],
        "floor": DEFAULT_FLOOR[scoring] if args.floor is None else args.floor,
        "batch": args.batch or (SMALL_BATCH if is_small else 1),
    }
    plain = {key: value for key, value in vars(args).items() if key not in ("sweep", "detail")}
    return Settings(**plain | derived)


def _is_of(method: Method | ViewsMethod, world: str) -> bool:
    """Whether a method can be asked about a world's pictures."""
    return world != PICTURES or not method.of_clips


def _is_too_large(method: ViewsMethod, share: float, groups: int) -> bool:
    """Whether a method keeps a whole moment, and so many moments are too few for that share."""
    return method.keeps_a_moment and share * groups < 1


def _asked_about(args: argparse.Namespace) -> str:
    return "single pictures" if args.folder or args.dataset else f"the world {args.world}"


def _check(p: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    """End the command with an error where arguments do not go together."""
    check_device(p, args.device)
    known = methods_of(args.world)
    if wrong := [m for m in args.methods or () if m not in known]:
        p.error(f"--methods {' '.join(wrong)}: not of {_asked_about(args)}")
    if wrong := [m for m in args.methods or () if not _is_of(known[m](), args.world)]:
        p.error(f"--methods {' '.join(wrong)}: of clips, not of pictures")
    is_views = args.world in VIEWS_WORLDS
    if is_views and (args.sweep or args.time or args.control or args.detail != 1):
        p.error(f"--sweep, --time, --control and --detail are not for --world {args.world}")
    if args.groups is not None and not is_views:
        p.error("--groups is of --world clips and pictures")
    sized, args.size = args.size, args.size or (VIEWS_SIZE if is_views else SCENE_SIZE)
    partial = [name for name in args.methods or () if known[name]().needs_weights]
    if partial and not args.weights:
        p.error(f"{', '.join(partial)}: without --weights there is no trained part to take out")
    if args.new_weights and not args.resume:
        p.error("--new-weights goes on from the rows in OUT: it needs --resume")
    budgets = (*(args.budgets or ()), *(args.time_budgets or ()))
    if wrong := [budget for budget in budgets if not 0 < budget <= 1]:
        p.error(f"budgets {wrong} are outside (0, 1]")
    if args.sweep and (args.sweep[0] != "detail" or len(args.sweep) < 3):
        p.error("--sweep takes the word detail and at least two scales")
    others = args.easy_vqa or args.folder or args.dataset
    of_scenes = [flag for flag, own, usual in (
        ("--world", args.world, WORLDS[0]), ("--hand", args.hand, HOME),
        ("--manner", args.manner, PLAIN), ("--kinds", args.kinds, None), ("--size", sized, None),
        ("--detail", args.detail, 1.0), ("--sweep", args.sweep, None),
    ) if own != usual]  # fmt: skip
    if others and of_scenes:
        p.error(f"{', '.join(of_scenes)}: only of drawn scenes")
    said = args.manner != PLAIN or args.instruction is not None
    if said and (is_views or args.easy_vqa):
        p.error(
            "--manner and --instruction are of scenes, --instruction of --folder and --dataset too"
        )
    if args.hand in HELD_OUT_HANDS and args.seed < DEV_SEED:
        p.error(f"--hand {args.hand} is held out of training: --seed must be at least {DEV_SEED}")
    smallest, largest = large.SIDES
    if args.world == "large" and not smallest <= min(args.size) <= max(args.size) <= largest:
        p.error(f"--size {args.size} is outside {smallest} to {largest} pixels a side")
    if not 0 <= args.held_out < 1:
        p.error(f"--held-out {args.held_out:g} is outside [0, 1)")
    given = [flag for flag, value in (("--reader", args.reader), ("--pictures", args.pictures),
                                      ("--held-out", args.held_out)) if value]  # fmt: skip
    if given and not (args.folder or args.dataset):
        p.error(f"{', '.join(given)}: only of --folder and --dataset")
    is_stream = args.dataset and not Path(args.dataset).exists()
    if args.control and is_stream:
        p.error("--control needs questions that can be read again: use a local data set")
    if is_stream and args.workers > 1:
        p.error("--workers is 1 for a streamed data set; use accelerate launch for more processes")
    if is_stream and args.time:
        p.error("--time needs questions that can be read again: use --folder")
