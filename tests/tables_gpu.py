"""The table of docs/evaluation.md on a GPU: where the focused look pays, and many questions at once."""

import json
from pathlib import Path
from typing import Any

from arr_coc.peers.names import STOCK
from tests.tables_benchmark import LOOKS
from tests.tables_shared import times_sooner

REPORT = Path(__file__).parent.parent / "results" / "gpu.json"
OURS, DTYPE = "glance as context", "bfloat16"
PARTS = ("crossover", "stages")  # smaller pictures, then larger ones
SHOWN = (STOCK, OURS, "downsample")
STAGES = ("preprocess_s", "glance_s", "relevance_s", "encode_s", "prefill_s")


def gpu_block() -> str:
    """Milliseconds of each stage by a picture's size, and seconds of several questions together."""
    report = json.loads(REPORT.read_text())
    found, machine = report["dtypes"][DTYPE], report["machine"]
    lines = [
        "| picture | look | tokens | preprocess | glance | maps | encode | prefill | to first token "
        "| sooner than stock |",
        "|---" * 10 + "|",
    ]
    for entry in [e for part in PARTS for e in found[part] if e["case"] in SHOWN]:
        lines.append(_line(entry))
    lines += [
        "",
        "| questions at once, 1,024 tokens, 8 words | full look | focused |",
        "|---|---|---|",
    ]
    for count, seconds in _together(found["many"]).items():
        lines.append(f"| {count} | {seconds[STOCK]:.2f} s | {seconds['focused']:.2f} s |")
    repetitions = min(e["n"] for part in PARTS for e in found[part])
    exact = all(all(own["identity"]["bit_for_bit"].values()) for own in report["dtypes"].values())
    text = (
        f"{report['what'].removeprefix('Qwen3-VL ').replace('2b', 'Qwen3-VL-2B')}, {DTYPE}, one "
        f"{machine['gpu']}, pictures in their visual tokens; milliseconds, medians of {repetitions} "
        "interleaved repetitions; of questions at once the better of two runs, not interleaved. "
        "With every token kept both cuts gave stock's logits "
        f"{'bit for bit' if exact else 'not bit for bit'} in {' and '.join(report['dtypes'])}. Made with "
        f"`{report['command']}` ([float16 and the rest](../results/{REPORT.name}))."
    )
    return f"{text}\n\n" + "\n".join(lines) + "\n"


def gpu_ratio(tokens: int) -> float:
    """How many times sooner than stock's the focused look's first word came, of a picture of this size."""
    found = json.loads(REPORT.read_text())["dtypes"][DTYPE]
    return next(
        e["speedup"]["median"]
        for part in PARTS
        for e in found[part]
        if (e["case"], e["image_tokens"]) == (OURS, tokens)
    )


def _line(entry: dict[str, Any]) -> str:
    """One look at one size."""
    cells = [
        f"{entry['image_tokens']:,}",
        LOOKS[entry["case"]],
        f"{entry['visual_tokens']['median']:.0f}",
    ]
    cells += [f"{1000 * entry[stage]['median']:.0f}" for stage in STAGES]
    cells.append(f"{1000 * entry['time_to_first_token_s']['median']:.0f}")
    cells.append("" if entry["case"] == STOCK else times_sooner(entry["speedup"], digits=2))
    return f"| {' | '.join(cells)} |"


def _together(rows: list[dict[str, Any]]) -> dict[int, dict[str, float]]:
    """Seconds of each look by the number of questions."""
    seconds: dict[int, dict[str, float]] = {}
    for row in rows:
        seconds.setdefault(row["questions"], {})[row["look"]] = row["seconds"]
    return seconds
