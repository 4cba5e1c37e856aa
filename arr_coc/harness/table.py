"""Table: what lmms-eval measured with several looks, side by side, and what each score took."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

REPORT = "*_results.json"
SKIPPED = ("alias", "samples")  # of a task's results, what is no score


def reports(folder: Path) -> list[dict[str, Any]]:
    """lmms-eval's reports below a folder, the oldest first.

    Raises:
        ValueError: where there are none.
    """
    paths = sorted(folder.rglob(REPORT), key=lambda path: path.name)
    if not paths:
        raise ValueError(f"{folder} holds no {REPORT}, expected an --output_path of lmms-eval")
    return [json.loads(path.read_text(encoding="utf-8")) for path in paths]


def scores(report: dict[str, Any]) -> dict[tuple[str, str], float]:
    """The scores of a report by task and metric."""
    found = {}
    for task, values in report["results"].items():
        for name, value in values.items():
            metric = name.partition(",")[0]
            is_score = isinstance(value, int | float) and "stderr" not in metric
            if is_score and metric not in SKIPPED:
                found[task, metric] = float(value)
    return found


def cell(value: float, report: dict[str, Any]) -> str:
    """A score, and of our model what it cost: a run of one task knows its own seconds."""
    took = report.get("throughput") or {}
    if len(report["results"]) > 1 or "avg_first_word_s" not in took:
        return f"{value:.4g}"
    return f"{value:.4g} ({took['avg_first_word_s']:.2f} s, {took['avg_visual_share']:.0%})"


def markdown(folders: Sequence[Path]) -> str:
    """A row for each task and metric, a column for each folder; the newest report of a task counts."""
    columns: list[dict[tuple[str, str], str]] = []
    for folder in folders:
        own: dict[tuple[str, str], str] = {}
        for report in reports(folder):
            own |= {key: cell(value, report) for key, value in scores(report).items()}
        columns.append(own)
    keys = list(dict.fromkeys(key for own in columns for key in own))
    lines = ["| task | score | " + " | ".join(folder.name for folder in folders) + " |"]
    lines.append("|---" * (2 + len(folders)) + "|")
    for task, metric in keys:
        values = " | ".join(own.get((task, metric), "") for own in columns)
        lines.append(f"| {task} | {metric} | {values} |")
    return "\n".join(lines) + "\n"
