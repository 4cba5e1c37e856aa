"""Report: rows summarised, as a file, a table and a sentence."""

import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from arr_coc.benchmark.cases import shipped
from arr_coc.benchmark.timing import Row
from arr_coc.peers.clock import SLOW
from arr_coc.peers.names import STOCK
from arr_coc.provenance import same_machine


def summarise(rows: Sequence[Row]) -> list[Row]:
    """Per case: medians with minimum and maximum, and ratios to stock within each repetition, of which the
    lower quartile counts."""
    stock = {(r["image_tokens"], r["repetition"]): r for r in rows if r["case"] == STOCK}
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["image_tokens"], row["budget"], row["case"]), []).append(row)
    summary = []
    for (tokens, budget, name), group in groups.items():
        own = [stock[tokens, r["repetition"]]["time_to_first_token_s"] for r in group]
        pairs = list(zip(own, group))
        entry = {"case": name, "image_tokens": tokens, "budget": budget, "n": len(group)}
        for key in (k for k in group[0] if k.endswith(("_s", "_bytes")) or k == "visual_tokens"):
            if values := [r[key] for r in group if r[key] is not None]:
                entry[key] = median_and_range(values)
        speedups = [s / r["time_to_first_token_s"] for s, r in pairs]
        entry["speedup"] = median_and_range(speedups) | {"lower_quartile": lower_quartile(speedups)}
        entry["overhead_share_of_stock"] = median_and_range([r["overhead_s"] / s for s, r in pairs])
        entry["glance_share_of_stock"] = median_and_range([r["glance_s"] / s for s, r in pairs])
        summary.append(entry)
    return sorted(summary, key=lambda e: (e["image_tokens"], e["case"] != "stock", e["budget"]))


def lower_quartile(values: Sequence[float]) -> float:
    """Three of four are above it; of few values the one next below."""
    return float(np.percentile(values, 25, method="lower"))


def fastest_stock(
    summary: Sequence[Row], before: Path, what: str, machine: dict[str, Any]
) -> dict[str, float]:
    """Stock's median seconds at each size of this run, or fewer where a report before it had fewer.

    Sizes that this run left out keep what they had.

    Args:
        summary: of this run.
        before: the report that this one replaces, which knows the fastest seconds; it may be absent, and
            counts only where it is of the same.
        what, machine: of which this run is.
    """
    report = json.loads(before.read_text()) if before.exists() else {}
    same = report.get("what") == what and same_machine(report["machine"], machine)
    known = report.get("fastest_stock_s", {}) if same else {}
    own = _stock_seconds(summary)
    return known | {size: min(s, known.get(size, s)) for size, s in own.items()}


def against_fastest(summary: Sequence[Row], fastest: dict[str, float]) -> dict[str, float]:
    """For each size, how many times as long as in its fastest report stock took."""
    return {size: s / fastest[size] for size, s in _stock_seconds(summary).items()}


def too_slow(ratios: dict[str, float]) -> list[str]:
    """The sizes at which stock took so much longer than ever that the run is to be made again."""
    return [size for size, ratio in ratios.items() if ratio > SLOW]


def _stock_seconds(summary: Sequence[Row]) -> dict[str, float]:
    return {
        str(e["image_tokens"]): e["time_to_first_token_s"]["median"]
        for e in summary
        if e["case"] == STOCK
    }


def median_and_range(values: Sequence[float]) -> dict[str, float]:
    """Median, minimum and maximum."""
    return {
        "median": statistics.median(values),
        "min": min(values),
        "max": max(values),
    }


def crossover(summary: Sequence[Row]) -> str:
    """In words: from how many image tokens on the shipped case is faster than stock at about 20 %."""
    ours = shipped()
    at = sorted(
        (e["image_tokens"], e["speedup"]["median"])
        for e in summary
        if e["case"] == ours and 0.15 < e["budget"] / e["image_tokens"] < 0.25
    )
    if not at:
        return "not measured: no budget near 20 %"
    pays = [tokens for tokens, speedup in at if speedup > 1]
    tried = f"tried {', '.join(str(tokens) for tokens, _ in at)} image tokens"
    if not pays:
        return f"the focused look never pays here ({tried})"
    if len(pays) == len(at):
        return f"the focused look pays at every size tried; below {pays[0]} unknown ({tried})"
    return f"the focused look pays from {min(pays)} image tokens on ({tried})"


def table(summary: Sequence[Row]) -> str:
    """The summary as a Markdown table; seconds are medians, the speed-up has its range."""
    head = [
        "case",
        "tokens",
        "preprocess",
        "glance",
        "relevance",
        "encode",
        "prefill",
        "first token",
    ]
    lines = [
        " | ".join([*head, "speed-up (lower quartile)"]),
        " | ".join(["---"] * (len(head) + 1)),
    ]
    for e in summary:
        stages = ("preprocess", "glance", "relevance", "encode", "prefill", "time_to_first_token")
        seconds = [f"{e[f'{name}_s']['median']:.3f} s" for name in stages]
        s = e["speedup"]
        speed = f"{s['median']:.2f}x ({s['lower_quartile']:.2f})"
        spent = f"{e['visual_tokens']['median']:.0f} of {e['image_tokens']}"
        lines.append(" | ".join([e["case"], spent, *seconds, speed]))
    return "\n".join(f"| {line} |" for line in lines)
