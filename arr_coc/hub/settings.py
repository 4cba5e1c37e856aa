"""Settings of `python -m arr_coc.hub`: a command line and a dataclass for each of its commands."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from arr_coc import naming
from arr_coc.hub.files import FLAVOR, RESULTS, ROOT, SPACE_NAME
from arr_coc.qwen.loading import BUNDLED_BASE

WAIT_S = 1800.0  # README's startup_duration_timeout is 30 minutes


@dataclass(frozen=True)
class Push:
    """What every push says.

    Attributes:
        repo: ORG/NAME, where it goes.
        yes: whether it is sent; otherwise it is only shown.
        tag: name of this version; None for none.
        message: of the commit; None for one made from the tag.
        private: if the repo is created.
    """

    repo: str
    yes: bool
    tag: str | None
    message: str | None
    private: bool


@dataclass(frozen=True)
class PushModel(Push):
    """Weights, with a card made from results.

    Attributes:
        weights: folder of weights.
        results: folders of evaluations, for the card.
        base_id: Hub id of the base they were made for, where their config names none.
        space: ORG/NAME of the Space whose repository an endpoint installs the package from; None for
            the one of the same owner that docs/publishing.md speaks of.
    """

    weights: Path
    results: tuple[Path, ...]
    base_id: str | None
    space: str | None


@dataclass(frozen=True)
class PushSpace(Push):
    """The app, with torch pinned for its hardware; then variables, hardware, and waiting.

    Attributes:
        hardware: a key of `files.FLAVOR`.
        wait: whether to wait until it runs.
        timeout: seconds to wait.
        base, weights, revisions: what the Space is to load: a Qwen3-VL, ARR-COC weights and their
            versions, separated by commas. None leaves the Space's variable as it is, "" removes it.
        base_revision: of the base; None and "" as above.
        own_data: whether results and cards of one's own pictures go too.
    """

    hardware: str
    wait: bool
    timeout: float
    base: str | None
    weights: str | None
    revisions: str | None
    base_revision: str | None
    own_data: bool


@dataclass(frozen=True)
class PushResults(Push):
    """Results as a data set that the viewer and DuckDB open; earlier ones there stay.

    Attributes:
        results: folder with a folder for each evaluation.
        own_data: whether evaluations of one's own pictures go too.
    """

    results: Path
    own_data: bool


@dataclass(frozen=True)
class PushBase(Push):
    """A base in a folder, such as the bundled one, with the card that lies in it.

    Attributes:
        base: its folder.
    """

    base: Path


@dataclass(frozen=True)
class PushQuestions(Push):
    """Pictures, questions and boxes of a folder as a data set, with the rows of an evaluation.

    Attributes:
        folder: as `evaluate --folder` reads it.
        results: an evaluation of it; None for the questions alone.
        licence: of the pictures, as the Hub spells it.
        skip_bad: whether questions that cannot be asked are left out.
    """

    folder: Path
    results: Path | None
    licence: str
    skip_bad: bool


@dataclass(frozen=True)
class Check:
    """Try what publishing needs, without changing anything; a line each.

    Attributes:
        base, weights, revisions: as in `PushSpace`.
        space: ORG/NAME of a Space to look at.
    """

    base: str | None
    weights: str | None
    revisions: str | None
    space: str | None


Command = PushModel | PushSpace | PushResults | PushBase | PushQuestions | Check
COMMANDS: dict[str, type[Command]] = {
    "push-model": PushModel,
    "push-space": PushSpace,
    "push-results": PushResults,
    "push-base": PushBase,
    "push-questions": PushQuestions,
    "check": Check,
}


def parse(argv: Sequence[str] | None, about: str = "") -> Command:
    """The settings that the arguments of `main`, or of the process, name; `about` is for --help."""
    args = vars(parser(about).parse_args(argv))
    kind = COMMANDS[args.pop("command")]
    return kind(**{key: tuple(v) if isinstance(v, list) else v for key, v in args.items()})


def parser(about: str) -> argparse.ArgumentParser:
    """The command line."""
    p = argparse.ArgumentParser(prog="python -m arr_coc.hub", description=about)
    commands = p.add_subparsers(required=True, metavar="COMMAND", dest="command")
    made = {}
    for name, kind in COMMANDS.items():
        made[name] = one = commands.add_parser(name, help=kind.__doc__.splitlines()[0])
        if not issubclass(kind, Push):
            continue
        one.add_argument("repo", metavar="ORG/NAME", type=repo_id, help="where it goes")
        one.add_argument("--yes", action="store_true", help="do it; without it, a dry run")
        one.add_argument("--tag", help="name of this version, such as v1.0")
        one.add_argument("--message", help="of the commit")
        one.add_argument("--private", action="store_true", help="if the repo is created")
    made["push-model"].add_argument("--weights", type=Path, required=True, help="folder of weights")
    made["push-model"].add_argument("--results", type=Path, nargs="+", default=(),
                                    help="folders of evaluations, for the card")  # fmt: skip
    made["push-model"].add_argument("--base-id", metavar="ORG/NAME", type=repo_id,
                                    help="the base they were made for, as others load it")  # fmt: skip
    made["push-model"].add_argument("--space", metavar="ORG/NAME", type=repo_id,
                                    help="Space that Inference Endpoints install the package from "
                                    f"(default: OWNER/{SPACE_NAME})")  # fmt: skip
    made["push-results"].add_argument("--results", type=Path, default=ROOT / RESULTS)
    made["push-base"].add_argument("--base", type=Path, default=BUNDLED_BASE,
                                   help="folder of a base (default: the bundled one)")  # fmt: skip
    _add_questions(made["push-questions"])
    space = made["push-space"]
    for one in (space, made["push-results"]):
        one.add_argument("--own-data", action="store_true",
                         help="also what was measured or recorded on pictures of your own")  # fmt: skip
    space.add_argument("--hardware", choices=list(FLAVOR), required=True)
    space.add_argument(
        "--no-wait", action="store_false", dest="wait", help="do not wait until it runs"
    )
    space.add_argument("--base-revision", help="of the base, a commit or tag; '' for the newest")
    space.add_argument("--timeout", type=float, default=WAIT_S, help="seconds to wait")
    for one in (space, made["check"]):
        one.add_argument("--base", help="Hub id or folder of a Qwen3-VL")
        one.add_argument(
            "--weights", help="Hub id of ARR-COC weights; '' removes them from a Space"
        )
        one.add_argument("--revisions", help="of the weights, separated by commas")
    made["check"].add_argument("--space", metavar="ORG/NAME", help="a Space to look at")
    return p


def _add_questions(one: argparse.ArgumentParser) -> None:
    """What `push-questions` takes."""
    one.add_argument("--folder", type=Path, required=True, help="of questions and pictures")
    one.add_argument("--results", type=Path, help="an evaluation of that folder")
    one.add_argument("--licence", required=True, help="of the pictures, as the Hub spells it")
    one.add_argument("--skip-bad", action="store_true", help="leave out what cannot be asked")


def repo_id(text: str) -> str:
    """ORG/NAME, or argparse's error."""
    if not naming.is_hub_id(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no ORG/NAME")
    return text


def separate(revisions: str | None) -> list[str | None]:
    """Versions that were given separated by commas; None, the latest, where none was."""
    names = [name.strip() for name in (revisions or "").split(",")]
    return [name for name in names if name] or [None]
