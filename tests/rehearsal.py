"""Rehearsal: everything an owner does with a base of their own, on one with random weights.

    python -m tests.rehearsal OUT                                            # nothing is fetched
    python -m tests.rehearsal OUT --size full --vocabulary qwen.tiktoken     # the 2B's own shapes, 4.3 GB

Writes a folder in the published layout to OUT/base, and then runs what README and docs tell an owner to
run, each by its own command or through the page's own service: the doctor, a comparison, every allocator
with every glance, a recorded card, an evaluation on a folder, three steps of training, the handler of an
endpoint and publishing, which sends nothing. A line a step; the exit status is 1 where one failed. The last
stdout line is JSON.
"""

import argparse
import contextlib
import importlib.util
import io
import json
import logging
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import ImageOps

from arr_coc import record
from arr_coc.check import __main__ as doctor
from arr_coc.check.trials import QUESTION, drawn
from arr_coc.config import ALLOCATORS, DTYPES, GLANCES, Config
from arr_coc.evaluate import __main__ as evaluate
from arr_coc.hub import __main__ as hub
from arr_coc.hub import files as hub_files
from arr_coc.qwen.weights import WEIGHTS
from arr_coc.service import comparing, journal, latency
from arr_coc.service.loader import Loader
from arr_coc.train import __main__ as train
from tests import rehearsal_folder
from tests.laid_out import laid_out

SHARE = 0.2
NEW_TOKENS = 4
STEPS = 3
OWNER = "some"
# What an owner's shell may hold and a rehearsal must not meet.
SETTINGS = ("ARR_COC_BASE", "ARR_COC_WEIGHTS", "ARR_COC_REVISIONS", "ARR_COC_DTYPE", journal.LOG)


class Failed(Exception):
    """A step that ran and did not do what it should."""


@dataclass(frozen=True)
class Stage:
    """Where a rehearsal plays: folders under OUT, and the settings of its commands."""

    out: Path
    seconds: float
    dtype: str

    @property
    def base(self) -> Path:
        """The base with random weights."""
        return self.out / "base"

    @property
    def pictures(self) -> Path:
        """Three pictures with questions, as `--folder` takes them; the first is a card too."""
        return self.out / "pictures"

    @property
    def weights(self) -> Path:
        """What three steps of training leave."""
        return self.out / "weights"


# --- the steps: each returns what is worth a line, and raises where it failed ---


def examined(stage: Stage, *words: str) -> str:
    """The doctor is green."""
    said, status = called(
        doctor.main, stage.base, "--dtype", stage.dtype, "--seconds", stage.seconds, *words
    )
    verdict = said.splitlines()[-1]
    if status:
        raise Failed(said)
    return verdict


def compared(stage: Stage) -> str:
    """A comparison through the page's service: loaded as the page loads, checked at its door, noted."""
    with environment(ARR_COC_BASE=stage.base, ARR_COC_LOG=stage.out / "decisions.jsonl"):
        loader = Loader()
        loader.load()
        model = loader.get()
        request = comparing.check(drawn(), QUESTION, SHARE, shrunk=True, max_new_tokens=NEW_TOKENS)
        records = comparing.compare_stream(model, request)
        result = comparing.last(journal.noted(records, request))
        settings_tried(model)
    for name in journal.LOOKS:
        if result[name] is None or result[name]["error"]:
            raise Failed(f"the {name} look: {result[name] and result[name]['error']}")
    if not loader.health.startswith("Checked"):
        raise Failed(loader.health)
    said, _ = called(latency.main, stage.out / "decisions.jsonl")
    if json.loads(said.splitlines()[-1])["rows"] != len(journal.LOOKS):
        raise Failed(said)
    return f"{result['tokens_kept']} of {result['tokens_total']} tokens, {len(SETTINGS_TRIED)} settings"


SETTINGS_TRIED = [(allocator, glance) for allocator in ALLOCATORS for glance in GLANCES]


def settings_tried(model: Any) -> None:
    """Every allocator with every glance decides by the question and answers within its budget."""
    for allocator, glance in SETTINGS_TRIED:
        config = Config(share=SHARE, allocator=allocator, glance=glance)
        answer = model.generate(drawn(), QUESTION, config=config, max_new_tokens=1)
        allowed = config.tokens(answer.measures.visual_tokens_full)
        if answer.realization.fallback or answer.measures.visual_tokens > allowed:
            raise Failed(
                f"{allocator}, {glance}: {answer.measures.visual_tokens} of {allowed} tokens, "
                f"{answer.realization.fallback}"
            )


def recorded(stage: Stage) -> str:
    """One card, recorded as the page shows it."""
    words = ("--examples", stage.pictures, "--out", stage.out / "cards", "--repetitions", 1)
    report = last_line(record.main, "--base", stage.base, *words)
    if report["n"] != 1:
        raise Failed(str(report))
    return "1 card"


def evaluated(stage: Stage) -> str:
    """Stock and ours on a folder of one's own pictures."""
    report = last_line(
        evaluate.main, "--out", stage.out / "results" / "own", "--base", stage.base,
        "--folder", stage.pictures, "--methods", "stock", "arr-coc", "--budgets", SHARE,
        "--max-new-tokens", NEW_TOKENS, "--dtype", stage.dtype,
    )  # fmt: skip
    if len(report["overall"]) != 2:
        raise Failed(str(report))
    return "3 pictures, 2 methods"


def trained(stage: Stage) -> str:
    """Three steps on the same pictures; the weights load for the base."""
    report = last_line(
        train.main, "--out", stage.weights, "--base", stage.base, "--data", "folder",
        "--folder", stage.pictures, "--steps", STEPS, "--batch", 1, "--device", "cpu",
        *(["--bf16"] if stage.dtype == "bfloat16" else []),
    )  # fmt: skip
    if report["steps"] != STEPS or not (stage.weights / WEIGHTS).is_file():
        raise Failed(str(report))
    return f"{STEPS} steps; {examined(stage, '--weights', str(stage.weights))}"


def published(stage: Stage) -> str:
    """Weights and Space as they would be sent; nothing is."""
    files = []
    for words in (
        ("push-model", f"{OWNER}/weights", "--weights", stage.weights),
        ("push-space", f"{OWNER}/space", "--hardware", "t4", "--weights", f"{OWNER}/weights"),
        ("push-results", f"{OWNER}/results", "--results", stage.out / "results", "--own-data"),
    ):
        report = last_line(hub.main, *words)
        if report["pushed"]:
            raise Failed(str(report))
        files.append(f"{words[0]} {report['files']} files")
    return ", ".join(files)


def endpoint(stage: Stage) -> str:
    """The model repo's handler answers as the platform would ask it."""
    repository = stage.out / "repository"
    laid_out(hub_files.model_files(stage.weights, f"{OWNER}/weights", []), repository)
    spec = importlib.util.spec_from_file_location("handler", repository / hub_files.HANDLER)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with environment(ARR_COC_BASE=stage.base):
        handler = module.EndpointHandler(str(repository))
    inputs = {"image": drawn(), "question": QUESTION}
    answer = handler({"inputs": inputs, "parameters": {"max_new_tokens": NEW_TOKENS}})
    if "error" in answer:
        raise Failed(answer["error"])
    return f"{answer['visual_tokens']} of {answer['visual_tokens_full']} tokens"


STEPS_IN_ORDER: dict[str, Callable[[Stage], str]] = {
    "doctor": examined,
    "compare": compared,
    "record": recorded,
    "evaluate": evaluated,
    "train": trained,
    "endpoint": endpoint,
    "publish": published,
}

# --- how they are run ---


def called(command: Callable[..., None], *words: Any) -> tuple[str, Any]:
    """What a command prints in this process, and the status it ends with."""
    said, status = io.StringIO(), 0
    with contextlib.redirect_stdout(said):
        try:
            command([str(word) for word in words])
        except SystemExit as ended:
            status = ended.code
    return said.getvalue().strip(), status


def last_line(command: Callable[..., None], *words: Any) -> dict[str, Any]:
    """The JSON that a command ends with."""
    said, status = called(command, *words)
    if status:
        raise Failed(str(status))
    return json.loads(said.splitlines()[-1])


@contextlib.contextmanager
def environment(**values: Any) -> Iterator[None]:
    """Variables of the environment, for a while; None takes one away."""
    before = {name: os.environ.get(name) for name in values}
    try:
        _set(values)
        yield
    finally:
        _set(before)


def _set(values: dict[str, Any]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = str(value)


def write_pictures(folder: Path) -> None:
    """Three pictures with questions and answers, the first of them a card."""
    folder.mkdir(parents=True, exist_ok=True)
    pictures = {"sign.png": drawn(), "mirrored.png": ImageOps.mirror(drawn())}
    pictures["tall.png"] = drawn().rotate(90, expand=True)
    for name, picture in pictures.items():
        picture.save(folder / name)
    questions = [{"image": name, "question": QUESTION, "answers": ["42"]} for name in pictures]
    (folder / "questions.json").write_text(json.dumps(questions))
    card = {"file": "sign.png", "question": QUESTION, "answer": "42"}
    (folder / "examples.json").write_text(json.dumps([card]))


def rehearse(stage: Stage, write_base: Callable[[Stage], str]) -> dict[str, float | None]:
    """Every step, with its line; seconds of each, None for one that failed."""
    write_pictures(stage.pictures)
    seconds = {}
    for name, step in {"base": write_base, **STEPS_IN_ORDER}.items():
        begun = time.monotonic()
        try:
            said, ok = step(stage), True
        except Exception as error:  # the steps that do not need this one still run
            said, ok = str(error) or type(error).__name__, False
            if not isinstance(error, Failed):
                traceback.print_exc()
        spent, said = time.monotonic() - begun, " ".join(said.split())  # a line a step
        seconds[name] = round(spent, 1) if ok else None
        print(f"{'ok' if ok else 'FAILED':<7} {spent:7.1f} s  {name:<9} {said}", flush=True)
    return seconds


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.rehearsal", description=__doc__.splitlines()[0]
    )
    parser.add_argument("out", metavar="OUT", type=Path, help="folder to write")
    parser.add_argument("--size", choices=rehearsal_folder.SIZES, default="middle")
    parser.add_argument("--vocabulary", type=Path, help="of --size full: the file of ranks")
    parser.add_argument("--dtype", choices=DTYPES, default="float32")
    parser.add_argument("--seconds", type=float, default=1.0, help="of the doctor's timing")
    args = parser.parse_args(argv)
    if args.size == "full" and not args.vocabulary:
        parser.error("--size full needs --vocabulary FILE")
    if args.out.exists() and any(args.out.iterdir()):
        parser.error(f"{args.out} is not empty: a rehearsal begins with nothing")
    stage = Stage(args.out, args.seconds, args.dtype)

    def write_base(stage: Stage) -> str:
        folder = rehearsal_folder.write(stage.base, args.size, args.vocabulary)
        size = sum(path.stat().st_size for path in folder.iterdir())
        return f"{args.size}, {size / 1e6:,.0f} MB"

    logging.disable(logging.WARNING)
    with environment(**dict.fromkeys(SETTINGS) | {"ARR_COC_DTYPE": args.dtype}):
        seconds = rehearse(stage, write_base)
    logging.disable(logging.NOTSET)
    print(json.dumps({"out": str(args.out), "size": args.size, "seconds": seconds}))
    sys.exit(1 if None in seconds.values() else 0)


if __name__ == "__main__":
    main()
