"""Benchmark: seconds to the first word at the exact shapes of Qwen3-VL-2B-Instruct, random weights.

    python -m arr_coc.benchmark                          # CPU, 300 to 4096 visual tokens: hours
    python -m arr_coc.benchmark --image-tokens 300 1024  # the smaller ones: an hour
    python -m arr_coc.benchmark --device cuda            # 1024, 2048 and 4096 tokens, and the crossover
    python -m arr_coc.benchmark --shapes bundled --image-tokens 256
    python -m arr_coc.benchmark --moments 16 --image-tokens 256 --shares 0.2   # a clip

Time does not depend on what the weights say, so no checkpoint is needed (under 16 GB of memory). Every
case runs once per repetition in one process, in an order that rotates, so that a machine's drift meets
all of them; ratios are taken within a repetition. Stock is timed beforehand in each dtype, attention and
number of threads on one of the pictures, and everything runs in what is fastest for it. All overheads are
counted. Rows are kept beside OUT as they come: the same command with `--resume` goes on with what is
missing, and with more `--repetitions` than OUT has adds to it. It says nothing about answers:
`arr_coc.evaluate` measures those.
"""

import argparse
import gc
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

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
from arr_coc.benchmark.hosts import BUNDLED, host_of, set_attention
from arr_coc.benchmark.report import (
    against_fastest,
    crossover,
    fastest_stock,
    summarise,
    table,
    too_slow,
)
from arr_coc.benchmark.timing import WAY, Row, measure, rows_of, run_case
from arr_coc.clips import MAX_FRAMES
from arr_coc.commands import count, run_command
from arr_coc.config import DTYPES
from arr_coc.peers.clock import SLOW
from arr_coc.peers.names import STOCK
from arr_coc.qwen.shapes import SHAPES

MODULE = "arr_coc.benchmark"
Way = dict[str, Any]  # dtype, attention, threads, and seconds of a stock answer
ATTENTIONS = ("sdpa", "eager")
WAYS_TOKENS = 1024  # of a picture on which ways are tried: larger ones take minutes each
# Of a machine: what a report has in common with rows that are added to it.
SAME = ("processor", "cores", "torch", "transformers")


def stock_ways(shapes: str, device: torch.device, tokens: int, dtypes: Sequence[str]) -> list[Way]:
    """Stock's seconds in each dtype, with each attention and number of threads, the fastest first."""
    found, threads = [], torch.get_num_threads()
    for dtype in dtypes:
        host = host_of(shapes, device, dtype)
        for attention in ATTENTIONS:
            set_attention(host, attention)
            for many in sorted({1, threads}):
                torch.set_num_threads(many)
                stock = Case(STOCK, tokens, tokens)
                run_case(host, stock)
                seconds = run_case(host, stock)["time_to_first_token_s"]
                found.append(
                    {"dtype": dtype, "attention": attention, "threads": many, "seconds": seconds}
                )
            torch.set_num_threads(threads)
        del host
        gc.collect()
    return sorted(found, key=lambda way: way["seconds"])


def chosen_way(args: argparse.Namespace, tokens: int) -> list[Way]:
    """As `stock_ways` on a CPU, in the dtype that is named; on a GPU what is fastest there, not timed."""
    if args.device == "cuda":
        dtype = "bfloat16" if args.dtype == "auto" else args.dtype
        return [{"dtype": dtype, "attention": "sdpa", "threads": torch.get_num_threads()}]
    dtypes = ("float32", "bfloat16") if args.dtype == "auto" else (args.dtype,)
    return stock_ways(args.shapes, torch.device(args.device), tokens, dtypes)


def _tried(sizes: Sequence[int]) -> int:
    """The size on which ways are tried: the largest up to `WAYS_TOKENS`, or else the first."""
    return max((size for size in sizes if size <= WAYS_TOKENS), default=sizes[0])


def earlier(kept: Path, out: Path, machine: dict[str, Any]) -> tuple[list[Row], list[Way]]:
    """The rows that an interrupted run left in `kept`, or else a report's, which can be gone on with.

    And in which ways stock was timed for them, the fastest first.

    Raises:
        ValueError: where the report is of another machine: its seconds are not compared with this one's.
    """
    rows = rows_of(kept)
    report = json.loads(out.read_text()) if out.is_file() else {}
    if not rows and report:
        other = {key: report["machine"].get(key) for key in SAME}
        own = {key: machine.get(key) for key in SAME}
        if other != own:
            raise ValueError(
                f"{out} was measured on {other}, this is {own}: --resume needs the same"
            )
        rows = report["rows"]
        kept.write_text("".join(json.dumps(row) + "\n" for row in rows))
    if not rows:
        return [], []
    own = {name: rows[0][name] for name in WAY if name in rows[0]}
    timed = report.get("stock_ways") or [own]
    return rows, timed if own.items() <= timed[0].items() else [own]


def parser() -> argparse.ArgumentParser:
    """The command line."""
    p = argparse.ArgumentParser(prog=f"python -m {MODULE}", description=__doc__.splitlines()[0])
    what = p.add_argument_group("what is measured")
    what.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    what.add_argument("--dtype", choices=DTYPES, default=DTYPES[0],
                      help="auto: bfloat16 on cuda; on cpu what is fastest for stock")  # fmt: skip
    what.add_argument("--shapes", choices=[*SHAPES, BUNDLED], default="2b",
                      help="tiny tries the command; bundled is the shipped base")  # fmt: skip
    what.add_argument("--image-tokens", type=count, nargs="+", help="pictures, in visual tokens")
    what.add_argument("--moments", type=int, default=0, metavar="N",
                      help="time clips of N moments, two frames each, --image-tokens being of one "
                           "moment (default: pictures)")  # fmt: skip
    what.add_argument("--shares", type=float, nargs="+", default=list(SHARES),
                      help="of a picture's tokens, or a clip's")  # fmt: skip
    how = p.add_argument_group("how")
    how.add_argument("--repetitions", type=count, default=3)
    how.add_argument("--resume", action="store_true",
                     help="go on with the rows that are missing, of a run cut off or of OUT")  # fmt: skip
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
    header = provenance.header(MODULE, provenance.typed(arguments), device)
    before, ways = earlier(kept, out, header["machine"]) if args.resume else ([], [])
    ways = ways or chosen_way(args, _tried(sizes))
    way = ways[0]
    dtype = way["dtype"]
    if args.dtype not in ("auto", dtype):
        p.error(f"--dtype {args.dtype}, and {kept.name} holds rows in {dtype}")
    host = host_of(args.shapes, device, dtype)
    if "attention" in way:
        set_attention(host, way["attention"])
        torch.set_num_threads(way["threads"])
    header = provenance.header(MODULE, provenance.typed(arguments), device)  # with these threads
    todo = cases(sizes, args.shares, args.moments)
    about = {name: way[name] for name in WAY if name in way} | {"commit": header["commit"]}
    rows = measure(host, todo, args.repetitions, kept, about)
    summary = summarise(rows)
    weights = "its own weights" if args.shapes == BUNDLED else "random weights"
    what = f"Qwen3-VL {args.shapes} shapes, {weights}, {dtype}"
    fastest = fastest_stock(summary, out, what, header["machine"])
    ratios = against_fastest(summary, fastest)
    slow = too_slow(ratios)
    report = {
        "what": what,
        **header,
        "minutes": round((time.time() - started) / 60, 1),
        "stock_ways": ways,
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
