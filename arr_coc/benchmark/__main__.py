"""Benchmark: seconds to the first word at the exact shapes of Qwen3-VL-2B-Instruct, random weights.

    python -m arr_coc.benchmark                          # CPU, 300 to 4096 visual tokens: hours
    python -m arr_coc.benchmark --image-tokens 300 1024  # the smaller ones: an hour
    python -m arr_coc.benchmark --device cuda            # 1024, 2048 and 4096 tokens, and the crossover
    python -m arr_coc.benchmark --shapes bundled --image-tokens 256
    python -m arr_coc.benchmark --moments 16 --image-tokens 256 --shares 0.2   # a clip

Time does not depend on what the weights say, so no checkpoint is needed (under 16 GB of memory). Every
case runs once per repetition in one process, in an order that rotates, so that a machine's drift meets
all of them; ratios are taken within a repetition. All overheads are counted. Rows are kept beside OUT as
they come: the same command with `--resume` goes on with what is missing. It says nothing about answers:
`arr_coc.evaluate` measures those.
"""

import argparse
import gc
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from arr_coc import provenance
from arr_coc.benchmark.cases import (
    CLIP_SIZES,
    FRAMES_EACH,
    SHARES,
    SIZES,
    Case,
    cases,
    shipped,
)
from arr_coc.benchmark.hosts import BUNDLED, host_of
from arr_coc.benchmark.report import (
    SLOW,
    against_fastest,
    crossover,
    fastest_stock,
    summarise,
    table,
    too_slow,
)
from arr_coc.benchmark.timing import measure, rows_of, run_case
from arr_coc.clips import MAX_FRAMES
from arr_coc.commands import run_command
from arr_coc.config import DTYPES
from arr_coc.peers.names import STOCK
from arr_coc.qwen.shapes import SHAPES

MODULE = "arr_coc.benchmark"


def faster_dtype(
    shapes: str, device: torch.device, sizes: Sequence[int]
) -> tuple[str, dict[str, float]]:
    """Time one stock answer in float32 and in bfloat16; the faster name, and both seconds."""
    seconds = {}
    for name in ("float32", "bfloat16"):
        host = host_of(shapes, device, name)
        stock = Case(STOCK, sizes[0], sizes[0])
        run_case(host, stock)
        seconds[name] = run_case(host, stock)["time_to_first_token_s"]
        del host
        gc.collect()
    return min(seconds, key=seconds.__getitem__), seconds


def chosen_dtype(args: argparse.Namespace, sizes: Sequence[int]) -> tuple[str, dict[str, float]]:
    """The dtype that is fastest for stock, unless one is named, and what was compared."""
    if args.shapes == BUNDLED:
        return "float32", {}
    if args.dtype != "auto":
        return args.dtype, {}
    if args.device == "cuda":
        return "bfloat16", {}
    return faster_dtype(args.shapes, torch.device(args.device), sizes)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    p = argparse.ArgumentParser(prog=f"python -m {MODULE}", description=__doc__.splitlines()[0])
    what = p.add_argument_group("what is measured")
    what.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    what.add_argument("--dtype", choices=DTYPES, default=DTYPES[0],
                      help="auto: bfloat16 on cuda; on cpu the faster of float32 and bfloat16")  # fmt: skip
    what.add_argument("--shapes", choices=[*SHAPES, BUNDLED], default="2b",
                      help="tiny tries the command; bundled is the shipped base")  # fmt: skip
    what.add_argument("--image-tokens", type=int, nargs="+", help="pictures, in visual tokens")
    what.add_argument("--moments", type=int, default=0, metavar="N",
                      help="time clips of N moments, two frames each, --image-tokens being of one "
                           "moment (default: pictures)")  # fmt: skip
    what.add_argument("--shares", type=float, nargs="+", default=list(SHARES),
                      help="of a picture's tokens, or a clip's")  # fmt: skip
    how = p.add_argument_group("how")
    how.add_argument("--repetitions", type=int, default=3)
    how.add_argument("--resume", action="store_true", help="go on with the rows that are missing")
    how.add_argument("--out", type=Path, help="default results/benchmark-SHAPES-DEVICE.json, "
                     "of clips results/benchmark-clips-SHAPES-DEVICE.json")  # fmt: skip
    return p


def main(arguments: list[str] | None = None) -> None:
    """Run the command; the last line on stdout is JSON."""
    p = parser()
    args = p.parse_args(arguments)
    if args.device == "cuda" and not torch.cuda.is_available():
        sys.exit("--device cuda: this machine has no CUDA device, expected one (or --device cpu)")
    if wrong := [share for share in args.shares if not 0 < share < 1]:
        p.error(f"--shares {wrong[0]:g}, allowed is above 0 and below 1")
    if not 0 <= args.moments <= MAX_FRAMES // FRAMES_EACH:
        p.error(f"--moments {args.moments}, allowed is 1 to {MAX_FRAMES // FRAMES_EACH}")
    device, started = torch.device(args.device), time.time()
    sizes = tuple(args.image_tokens or (CLIP_SIZES if args.moments else SIZES[args.device]))
    name = f"benchmark-{'clips-' if args.moments else ''}{args.shapes}-{args.device}.json"
    out = args.out or Path("results") / name
    out.parent.mkdir(parents=True, exist_ok=True)
    kept = out.with_suffix(".rows.jsonl")
    if not args.resume:
        kept.unlink(missing_ok=True)
    before = rows_of(kept)  # of an interrupted run, which chose already
    dtype, compared = (before[0]["dtype"], {}) if before else chosen_dtype(args, sizes)
    if args.dtype not in ("auto", dtype):
        p.error(f"--dtype {args.dtype}, and {kept.name} holds rows in {dtype}")
    host = host_of(args.shapes, device, dtype)
    rows = measure(host, cases(sizes, args.shares, args.moments), args.repetitions, kept, dtype)
    summary = summarise(rows)
    fastest = fastest_stock(summary, out)
    ratios = against_fastest(summary, fastest)
    slow = too_slow(ratios)
    weights = "its own weights" if args.shapes == BUNDLED else "random weights"
    report = {
        "what": f"Qwen3-VL {args.shapes} shapes, {weights}, {dtype}",
        **provenance.header(MODULE, provenance.typed(arguments), device),
        "minutes": round((time.time() - started) / 60, 1),
        "stock_seconds_by_dtype": compared,
        "stock_against_its_fastest": ratios,
        "to_be_made_again": slow,
        "fastest_stock_s": fastest,
        "shipped": shipped(),
        "crossover": crossover(summary),
        "summary": summary,
        "rows": rows,
    }
    out.write_text(json.dumps(report, indent=1) + "\n")
    kept.unlink()
    print(table(summary))
    print(report["crossover"])
    speedup = {
        f"{e['budget']} of {e['image_tokens']}": round(e["speedup"]["median"], 2)
        for e in summary
        if e["case"] == report["shipped"]
    }
    if slow:
        print(f"stock was over {SLOW - 1:.0%} slower than ever at {', '.join(slow)} tokens: again")
    print(json.dumps({"out": str(out), "dtype": dtype, "speedup": speedup}))


if __name__ == "__main__":
    run_command("arr_coc.benchmark", main)
