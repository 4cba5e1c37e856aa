"""Benchmark: what the stages cost at the exact shapes of Qwen3-VL-2B-Instruct, random weights.

    python -m arr_coc.benchmark                  # CPU, 1024 visual tokens, about 25 minutes on 2 cores
    python -m arr_coc.benchmark --device cuda    # 1024, 2048 and 4096 visual tokens, and the crossover

Time does not depend on what the weights say, so no checkpoint is needed (under 16 GB of memory).
Every case runs once per repetition in one process, in an order that rotates, so that a machine's
drift meets all of them; ratios are taken within a repetition. All overheads are counted. It says
nothing about answers: `arr_coc.evaluate` measures those.
"""

import argparse
import gc
import json
import statistics
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from PIL import Image
from tqdm import tqdm

from arr_coc import provenance
from arr_coc.config import MINIMUM_BUDGET, Config
from arr_coc.qwen.shapes import SHAPES, build_host

if TYPE_CHECKING:  # transformers is loaded when a host is built
    from arr_coc.qwen.model import ARRCOCQwen

QUESTION = "What number is on the small sign?"
SIZES = {"cpu": (1024,), "cuda": (1024, 2048, 4096)}
# Budgets on a grid of 1024 tokens; larger grids spend the same shares.
BUDGETS, BUDGETS_OF = (64, 200, 400), 1024
CASES = {
    "after": Config(glance="off", prune="after"),
    # The encoder sees the kept cells alone: the evaluation's cost curve reads this case.
    "before": Config(glance="off", prune="before", surroundings=0, halo=0),
    "before + separate glance": Config(glance="separate", prune="before"),
    "before + glance as periphery": Config(glance="periphery", prune="before"),
}
SHIPPED = "before + separate glance"


@dataclass(frozen=True)
class Case:
    """One way to answer, on one grid: the stock model (no config) or a config with its budget."""

    name: str
    tokens: int
    budget: int
    config: Config | None


def image_of(tokens: int, unit_pixels: int) -> Image.Image:
    """A busy picture of exactly `tokens` visual tokens, each `unit_pixels` a side."""
    rows = int(tokens**0.5)
    while tokens % rows:
        rows -= 1
    width, height = tokens // rows * unit_pixels, rows * unit_pixels
    return Image.effect_noise((width // 8, height // 8), 80).resize((width, height)).convert("RGB")


def cases(sizes: tuple[int, ...], budgets: tuple[int, ...]) -> list[Case]:
    """Stock and every configured case, for each grid and budget."""
    listed = []
    for tokens in sizes:
        listed.append(Case("stock", tokens, tokens, None))
        for budget in budgets:
            scaled = max(MINIMUM_BUDGET, budget * tokens // BUDGETS_OF)
            listed += [Case(name, tokens, scaled, config) for name, config in CASES.items()]
    return listed


def run_case(host: "ARRCOCQwen", case: Case, new_tokens: int) -> dict[str, Any]:
    """One answer, as a flat row."""
    config = replace(case.config, budget=case.budget) if case.config else None
    answer = host.generate(
        image_of(case.tokens, host.geometry.unit_pixels),
        QUESTION,
        case.config is not None,
        config=config,
        max_new_tokens=new_tokens,
        deadline_s=600.0,
    )
    if answer.realization is not None and answer.realization.fallback:
        raise RuntimeError(f"{case.name} fell back: {answer.realization.fallback}")
    m = answer.measures
    row = {"case": case.name, "image_tokens": case.tokens, "budget": case.budget}
    row |= {f"{name}_s": seconds for name, seconds in m.stages.items()}
    return row | {
        "time_to_first_token_s": m.time_to_first_token,
        "overhead_s": m.time_to_first_token - m.stages["encode"] - m.stages["prefill"],
        "decode_tokens_per_s": m.decode_tokens_per_second,
        "visual_tokens": m.visual_tokens,
        "kv_cache_bytes": m.kv_cache_bytes,
        "peak_memory_bytes": m.peak_memory_bytes,
    }


def measure(host: "ARRCOCQwen", todo: list[Case], repetitions: int, new_tokens: int) -> list[dict]:
    """All cases, `repetitions` times, interleaved; one warm-up of the cheapest and the stock."""
    for case in (todo[0], todo[-1]):
        run_case(host, case, 2)
    rows = []
    progress = tqdm(total=repetitions * len(todo), desc="benchmark", unit="run")
    for repetition in range(repetitions):
        start = repetition * 3 % len(todo)
        for case in todo[start:] + todo[:start]:
            progress.set_postfix_str(f"{case.name}, {case.budget} of {case.tokens}")
            rows.append({"repetition": repetition, **run_case(host, case, new_tokens)})
            progress.update()
    progress.close()
    return rows


def summarise(rows: list[dict]) -> list[dict]:
    """Per case: medians with minimum and maximum, and ratios to stock within each repetition."""
    stock = {(r["image_tokens"], r["repetition"]): r for r in rows if r["case"] == "stock"}
    groups: dict[tuple, list[dict]] = {}
    for row in rows:
        groups.setdefault((row["image_tokens"], row["budget"], row["case"]), []).append(row)
    summary = []
    for (tokens, budget, name), group in groups.items():
        own = [stock[tokens, r["repetition"]]["time_to_first_token_s"] for r in group]
        pairs = list(zip(own, group))
        entry = {"case": name, "image_tokens": tokens, "budget": budget, "n": len(group)}
        for key in (k for k in group[0] if k.endswith(("_s", "_bytes")) or k == "visual_tokens"):
            entry[key] = median_and_range([r[key] for r in group])
        entry["speedup"] = median_and_range([s / r["time_to_first_token_s"] for s, r in pairs])
        entry["overhead_share_of_stock"] = median_and_range([r["overhead_s"] / s for s, r in pairs])
        entry["glance_share_of_stock"] = median_and_range([r["glance_s"] / s for s, r in pairs])
        summary.append(entry)
    return sorted(summary, key=lambda e: (e["image_tokens"], e["case"] != "stock", e["budget"]))


def median_and_range(values: list[float]) -> dict[str, float]:
    """Median, minimum and maximum."""
    return {
        "median": statistics.median(values),
        "min": min(values),
        "max": max(values),
    }


def crossover(summary: list[dict]) -> str:
    """In words: from how many image tokens on the shipped case is faster than stock at about 20 %."""
    at = sorted(
        (e["image_tokens"], e["speedup"]["median"])
        for e in summary
        if e["case"] == SHIPPED and 0.15 < e["budget"] / e["image_tokens"] < 0.25
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


def table(summary: list[dict]) -> str:
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
    lines = [" | ".join([*head, "speed-up (range)"]), " | ".join(["---"] * (len(head) + 1))]
    for e in summary:
        stages = ("preprocess", "glance", "relevance", "encode", "prefill", "time_to_first_token")
        seconds = [f"{e[f'{name}_s']['median']:.3f} s" for name in stages]
        s = e["speedup"]
        speed = f"{s['median']:.2f}x ({s['min']:.2f}-{s['max']:.2f})"
        spent = f"{e['visual_tokens']['median']:.0f} of {e['image_tokens']}"
        lines.append(" | ".join([e["case"], spent, *seconds, speed]))
    return "\n".join(f"| {line} |" for line in lines)


def faster_dtype(shapes: str, device: torch.device, sizes: tuple[int, ...]) -> tuple[str, dict]:
    """Time one stock answer in float32 and in bfloat16; the faster name, and both seconds."""
    seconds = {}
    for name in ("float32", "bfloat16"):
        host = build_host(shapes, device, getattr(torch, name))
        stock = Case("stock", sizes[0], sizes[0], None)
        run_case(host, stock, 2)
        seconds[name] = run_case(host, stock, 2)["time_to_first_token_s"]
        del host
        gc.collect()
    return min(seconds, key=seconds.get), seconds


def parser() -> argparse.ArgumentParser:
    """The command line."""
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    what = p.add_argument_group("what is measured")
    what.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    what.add_argument("--dtype", choices=["auto", "float32", "bfloat16", "float16"], default="auto",
                      help="auto: bfloat16 on cuda; on cpu the faster of float32 and bfloat16")  # fmt: skip
    what.add_argument("--shapes", choices=list(SHAPES), default="2b", help="tiny tries the command")
    what.add_argument("--image-tokens", type=int, nargs="+", help="grids, in visual tokens")
    what.add_argument(
        "--budgets", type=int, nargs="+", default=list(BUDGETS), help="of 1024 tokens"
    )
    how = p.add_argument_group("how")
    how.add_argument("--repetitions", type=int, default=3)
    how.add_argument("--new-tokens", type=int, default=4)
    how.add_argument("--out", type=Path, help="default results/benchmark-<shapes>-<device>.json")
    return p


def main(arguments: list[str] | None = None) -> None:
    """Run the command; the last line on stdout is JSON."""
    args = parser().parse_args(arguments)
    if args.device == "cuda" and not torch.cuda.is_available():
        sys.exit("--device cuda: this machine has no CUDA device, expected one (or --device cpu)")
    device, started = torch.device(args.device), time.time()
    sizes = tuple(args.image_tokens or SIZES[args.device])
    dtype, compared = args.dtype, {}
    if dtype == "auto" and args.device == "cpu":
        dtype, compared = faster_dtype(args.shapes, device, sizes)
    elif dtype == "auto":
        dtype = "bfloat16"
    host = build_host(args.shapes, device, getattr(torch, dtype))
    rows = measure(host, cases(sizes, tuple(args.budgets)), args.repetitions, args.new_tokens)
    summary = summarise(rows)
    report = {
        "what": f"Qwen3-VL {args.shapes} shapes, random weights, {dtype}",
        **provenance.header("arr_coc.benchmark", provenance.typed(arguments), device),
        "minutes": round((time.time() - started) / 60, 1),
        "stock_seconds_by_dtype": compared,
        "crossover": crossover(summary),
        "summary": summary,
        "rows": rows,
    }
    out = args.out or Path("results") / f"benchmark-{args.shapes}-{args.device}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(report, indent=1) + "\n")
    print(table(summary))
    print(report["crossover"])
    shipped = {
        e["budget"]: round(e["speedup"]["median"], 2) for e in summary if e["case"] == SHIPPED
    }
    print(json.dumps({"out": str(out), "dtype": dtype, "speedup_by_budget": shipped}))


if __name__ == "__main__":
    main()
