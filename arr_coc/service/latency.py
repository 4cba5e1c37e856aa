"""Latency: how long answers take where the page runs, from the log of decisions.

    ARR_COC_LOG=decisions.jsonl python app.py
    python -m arr_coc.service.latency decisions.jsonl

Prints the 50th, 90th and 99th percentile of each stage for each look, the rows that were put aside
(FILE.1) included. The last stdout line is JSON.
"""

import argparse
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from arr_coc.commands import run_command
from arr_coc.service import journal

PERCENTILES = (50, 90, 99)
FIRST_WORD, RATE = "first word", "tokens a second"


def read(path: Path) -> tuple[list[dict[str, Any]], int]:
    """The rows of a log and of the one put aside before it, and how many lines are no rows.

    Raises:
        ValueError: where neither is there.
    """
    files = [file for file in (journal.older(path), path) if file.is_file()]
    if not files:
        raise ValueError(f"{path} does not exist, expected a log that {journal.LOG} named")
    rows, damaged = [], 0
    for file in files:
        for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                row = json.loads(line)
                rows.append({"look": row["look"], "measured": _measured(row)})
            except (ValueError, KeyError, TypeError, AttributeError):
                damaged += 1
    return rows, damaged


def _measured(row: dict[str, Any]) -> dict[str, float]:
    """Seconds by stage, and the rate, of one row."""
    own = {stage: float(spent) for stage, spent in row["stages_s"].items()}
    own[FIRST_WORD] = float(row["first_word_s"])
    if row["tokens_per_second"]:  # none where one token came
        own[RATE] = float(row["tokens_per_second"])
    return own


def percentiles(rows: Iterable[dict[str, Any]]) -> dict[str, dict[str, dict[str, float]]]:
    """By look and stage: `n`, and each of `PERCENTILES` as "p50"; seconds, tokens a second for the rate.

    Of the rate the percentiles are those of the slowest: 99 % of the answers came at least as fast.
    """
    by_look: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        for stage, value in row["measured"].items():
            by_look.setdefault(row["look"], {}).setdefault(stage, []).append(value)
    return {
        look: {stage: _percentiles(values, stage == RATE) for stage, values in stages.items()}
        for look, stages in by_look.items()
    }


def _percentiles(values: Sequence[float], is_rate: bool) -> dict[str, float]:
    found: dict[str, float] = {"n": len(values)}
    for p in PERCENTILES:
        found[f"p{p}"] = round(float(np.percentile(values, 100 - p if is_rate else p)), 6)
    return found


def table(found: dict[str, dict[str, dict[str, float]]]) -> str:
    """For a person: a line for each stage of each look."""
    head = f"{'look':<9}{'stage':<17}{'n':>7}" + "".join(f"{f'p{p}':>10}" for p in PERCENTILES)
    lines = [head]
    for look, stages in found.items():
        for stage, own in stages.items():
            numbers = "".join(f"{own[f'p{p}']:>10.3f}" for p in PERCENTILES)
            lines.append(f"{look:<9}{stage:<17}{own['n']:>7}{numbers}")
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(
        prog="python -m arr_coc.service.latency", description=__doc__.splitlines()[0]
    )
    parser.add_argument("file", metavar="FILE", type=Path, help=f"that {journal.LOG} named")
    rows, damaged = read(parser.parse_args(argv).file)
    found = percentiles(rows)
    print(table(found))
    if damaged:
        print(f"{damaged} lines are no rows and were left out")
    print(json.dumps({"rows": len(rows), "damaged": damaged, "looks": found}))


if __name__ == "__main__":
    run_command("arr_coc.service.latency", main)
