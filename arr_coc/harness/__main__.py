"""Write what harnesses read, drawn scenes and a folder as their task; put what they measured in a table.

    python -m arr_coc.harness scenes --out DIR --n 64                   # pictures and questions.json
    python -m arr_coc.harness task --folder DIR --out TASKS             # for lmms-eval --include_path TASKS
    python -m arr_coc.harness tsv --folder DIR --out local.tsv          # for VLMEvalKit
    python -m arr_coc.harness table runs/stock runs/focused-20 --out table.md  # what lmms-eval measured

docs/benchmarks.md says how to run the harnesses on them. The last stdout line is JSON.
"""

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from arr_coc.commands import run_command
from arr_coc.evaluate.vqa import SHORT, Folder
from arr_coc.harness.drawn import write_scenes
from arr_coc.harness.table import markdown
from arr_coc.harness.task import write_task
from arr_coc.harness.tsv import write_tsv
from arr_coc.scenes.questions import KINDS
from arr_coc.scenes.scene import DEV_SEED
from arr_coc.sets.readers import READERS

TASK = "arr_coc_local"


def parser() -> argparse.ArgumentParser:
    """The command line."""
    p = argparse.ArgumentParser(
        prog="python -m arr_coc.harness", description=__doc__.splitlines()[0]
    )
    commands = p.add_subparsers(required=True, metavar="COMMAND", dest="command")
    scenes = commands.add_parser("scenes", help="draw scenes, one question each, as a folder")
    scenes.add_argument("--n", type=int, default=64, help="scenes (default %(default)s)")
    scenes.add_argument("--seed", type=int, default=DEV_SEED, help="of the first scene")
    scenes.add_argument("--size", type=int, nargs=2, default=(512, 512), help="pixels")
    scenes.add_argument("--kinds", nargs="+", default=tuple(KINDS), help="of question")
    task = commands.add_parser("task", help="a folder as a task of lmms-eval")
    task.add_argument("--name", default=TASK, help="of the task (default %(default)s)")
    task.add_argument("--instruction", default=SHORT, help="after each question")
    tsv = commands.add_parser("tsv", help="a folder as VLMEvalKit's TSV")
    for one in (task, tsv):
        one.add_argument("--folder", type=Path, required=True, help="of questions and pictures")
        one.add_argument("--reader", choices=list(READERS), help="what the columns mean")
        one.add_argument("--pictures", type=Path, help="where pictures lie that rows name")
        one.add_argument("--n", type=int, help="the first questions alone")
        one.add_argument(
            "--skip-bad", action="store_true", help="leave out rows that cannot be asked"
        )
    table = commands.add_parser("table", help="what lmms-eval measured, side by side")
    table.add_argument("folders", type=Path, nargs="+", help="--output_path of each look")
    for one in (scenes, task, tsv, table):
        one.add_argument("--out", type=Path, required=True, help="to write")
    return p


def source_of(args: argparse.Namespace, **options: Any) -> Folder:
    """The questions of a folder."""
    return Folder(
        args.folder, args.n, skip_bad=args.skip_bad, reader=args.reader, pictures=args.pictures, **options
    )  # fmt: skip


def scenes(args: argparse.Namespace) -> dict[str, Any]:
    """Draw scenes."""
    kinds = write_scenes(args.out, args.n, args.seed, tuple(args.size), tuple(args.kinds))
    return {"questions": args.n, "kinds": kinds}


def task(args: argparse.Namespace) -> dict[str, Any]:
    """Write a task of lmms-eval."""
    source = source_of(args, instruction=args.instruction)
    return {"questions": write_task(source, args.out, args.name), "task": args.name}


def tsv(args: argparse.Namespace) -> dict[str, Any]:
    """Write VLMEvalKit's file."""
    return {"questions": write_tsv(source_of(args), args.out)}


def table(args: argparse.Namespace) -> dict[str, Any]:
    """Write and show a table."""
    text = markdown(args.folders)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(text, encoding="utf-8")
    print(text)
    return {"looks": [folder.name for folder in args.folders]}


RUN: dict[str, Callable[[argparse.Namespace], dict[str, Any]]] = {
    "scenes": scenes,
    "task": task,
    "tsv": tsv,
    "table": table,
}


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command; the last line is JSON."""
    args = parser().parse_args(argv)
    print(json.dumps({"out": str(args.out)} | RUN[args.command](args)))


if __name__ == "__main__":
    run_command("arr_coc.harness", main)
