"""Requests a second and seconds to the first word of a vLLM server, at several concurrencies.

    python -m arr_coc.benchmark.serve --server="--enforce-eager" --out results/serving-load.json
    python -m arr_coc.benchmark.serve --model Qwen/Qwen3-VL-2B-Instruct --dtype bfloat16 --out runs/gpu.json

In vLLM's own environment (docs/serving.md). The same server is asked with everything kept, with some of
the tokens kept, and with pictures that were shrunk to as many; a second one runs without the plugin. No
picture is asked about twice, and nothing is cached between requests. Before it is timed, each look's
prompt is counted by the server's own usage: a server that did not keep the share that was asked for is
not measured. Rows are kept beside OUT as they come: the same command goes on with those that are missing.
"""

import argparse
import json
import shlex
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http import HTTPStatus
from itertools import count
from math import ceil
from pathlib import Path
from typing import Any

import torch
from PIL import Image

from arr_coc import provenance
from arr_coc.benchmark.cases import QUESTION, image_of
from arr_coc.benchmark.timing import rows_of
from arr_coc.commands import run_command
from arr_coc.config import small_grid
from arr_coc.qwen.loading import BUNDLED_BASE, name_of
from arr_coc.serving.running import ask, body, running, time_to_first

MODULE = "arr_coc.benchmark.serve"
UNIT = 32  # pixels on a side of a visual token
CONCURRENCIES = (1, 4, 16, 32)
TOKENS = 8  # of an answer: what is timed is the picture
PER_CLIENT = 3  # requests of each client, and at least so many in all:
AT_LEAST = 12
WAY = ("model", "dtype", "side", "server")  # rows of one report have these in common


@dataclass(frozen=True)
class Look:
    """One way to ask: with or without the plugin, and what becomes of the picture."""

    name: str
    with_plugin: bool = True
    share: float | None = None
    shrunk: float | None = None


LOOKS = (
    Look("vLLM", with_plugin=False),
    Look("stock"),
    Look("focused 100 %", share=1.0),
    Look("focused 20 %", share=0.2),
    Look("focused 10 %", share=0.1),
    Look("shrunk to 20 %", shrunk=0.2),
    Look("shrunk to 10 %", shrunk=0.1),
)


def pictures(side: int, first: int) -> Any:
    """Pictures of `side` x `side` tokens, each other than all before it."""
    image = image_of(side * side, UNIT)
    for number in count(first):
        marked = image.copy()
        colour = (number % 256, number // 256 % 256, number // 65_536)
        marked.putpixel((0, 0), colour)
        yield marked


def asked(look: Look, image: Image.Image, model: str) -> dict[str, Any]:
    """The request of a look."""
    if look.shrunk is not None:
        grid = (image.height // UNIT, image.width // UNIT)
        rows, columns = small_grid(grid, max(1, int(look.shrunk * grid[0] * grid[1])))
        image = image.resize((columns * UNIT, rows * UNIT), Image.Resampling.BICUBIC)
    wish = None if look.share is None else {"share": look.share}
    return body(model, image, QUESTION, wish, max_tokens=TOKENS, ignore_eos=True)


def measured(address: str, bodies: Sequence[dict], clients: int) -> dict[str, float]:
    """Requests a second of so many clients at once, and seconds to the first word."""
    start = time.perf_counter()
    with ThreadPoolExecutor(clients) as pool:
        first = sorted(pool.map(lambda made: time_to_first(address, made), bodies))
    seconds = time.perf_counter() - start
    return {
        "requests": len(bodies),
        "requests_per_second": round(len(bodies) / seconds, 4),
        "first_word_p50_s": round(at_share(first, 0.5), 4),
        "first_word_p95_s": round(at_share(first, 0.95), 4),
    }


def visual_tokens(address: str, look: Look, source: Any, args: argparse.Namespace) -> int:
    """The visual tokens of a look in the server's own count; the first request pays for a late set-up.

    What the prompt has besides is known from a picture with everything kept. Raises RuntimeError for a
    refusal, and where more tokens were kept than the look asks for, or none.
    """
    used = []
    for one in (Look("all", with_plugin=look.with_plugin), look):
        made = asked(one, next(source), args.model)
        status, answer = ask(address, made)
        if status != HTTPStatus.OK:
            raise RuntimeError(f"{look.name}: the server refused with status {status}: {answer}")
        used.append(answer["usage"]["prompt_tokens"])
    native = args.side**2
    tokens, most = native + used[1] - used[0], ceil((look.share or look.shrunk or 1) * native)
    if not 0 < tokens <= most:
        raise RuntimeError(f"{look.name}: {tokens} visual tokens were kept, expected 1 to {most}")
    return tokens


def at_share(ordered: Sequence[float], share: float) -> float:
    """The value below which `share` of rising values lie, the nearest that was measured."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def words_of(args: argparse.Namespace) -> list[str]:
    """Arguments of the server: long enough a prompt, pictures as large as asked for, no caches."""
    largest = (args.side * UNIT) ** 2
    size = {"size": {"shortest_edge": 1024, "longest_edge": largest}}
    tokens = 2 * args.side**2
    words = ["--dtype", args.dtype, "--max-model-len", str(tokens), "--trust-request-mm-kwargs"]
    words += ["--max-num-seqs", str(max(args.concurrencies)), "--no-enable-prefix-caching"]
    words += ["--mm-processor-kwargs", json.dumps(size), "--mm-processor-cache-gb", "0"]
    words += ["--limit-mm-per-prompt", json.dumps({"image": 1, "video": 0})]
    return [*words, *shlex.split(args.server)]


def measure(args: argparse.Namespace, kept: Path) -> list[dict[str, Any]]:
    """A row for each look and concurrency; those that are kept already are not measured again.

    Raises:
        ValueError: where those are of another model, picture or server.
    """
    rows, way = rows_of(kept), {name: getattr(args, name) for name in WAY}
    way["model"] = name_of(args.model)
    if other := [row for row in rows if any(row.get(name) != way[name] for name in WAY)]:
        held = {name: other[0].get(name) for name in WAY}
        raise ValueError(f"{kept.name} holds rows of {held}, these would be of {way}")
    done = {(row["look"], row["concurrency"]) for row in rows}
    for with_plugin in (False, True):
        left = [
            (look, clients)
            for clients in args.concurrencies
            for look in LOOKS
            if look.with_plugin == with_plugin and (look.name, clients) not in done
        ]
        if not left:
            continue
        with running(args.model, words_of(args), with_plugin=with_plugin) as address:
            source = pictures(args.side, 1 + 100_000 * len(rows))
            tokens = {
                look.name: visual_tokens(address, look, source, args)
                for look in LOOKS
                if look.with_plugin == with_plugin
            }
            for look, clients in left:
                requests = max(args.at_least, PER_CLIENT * clients)
                bodies = [asked(look, next(source), args.model) for _ in range(requests)]
                found = measured(address, bodies, clients)
                about = {"visual_tokens": tokens[look.name], "concurrency": clients}
                rows.append({"look": look.name, **about, **way, **found})
                with kept.open("a") as file:
                    file.write(json.dumps(rows[-1]) + "\n")
    return rows


def main(arguments: list[str] | None = None) -> None:
    """Run the command; the last line on stdout is JSON."""
    p = argparse.ArgumentParser(prog=f"python -m {MODULE}", description=__doc__.splitlines()[0])
    p.add_argument("--model", default=str(BUNDLED_BASE), help="default: the bundled base")
    p.add_argument("--side", type=int, default=32, help="a picture's tokens on a side")
    p.add_argument("--dtype", default="float32")
    p.add_argument("--concurrencies", type=int, nargs="+", default=list(CONCURRENCIES))
    p.add_argument("--at-least", type=int, default=AT_LEAST, help="requests of each row")
    p.add_argument(
        "--server", default="", help='further arguments of vLLM, as --server="--enforce-eager"'
    )
    p.add_argument("--out", type=Path, required=True, help="json to write")
    args = p.parse_args(arguments)
    if args.side < 2:
        raise ValueError(f"--side is {args.side}, allowed is 2 or more")
    args.out.parent.mkdir(parents=True, exist_ok=True)
    kept = args.out.with_suffix(".rows.jsonl")
    rows = measure(args, kept)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    head = provenance.header(MODULE, provenance.typed(arguments), device)
    what = f"Requests a second of a vLLM server, {name_of(args.model)}, {args.dtype}"
    args.out.write_text(json.dumps({"what": what, **head, "rows": rows}, indent=1) + "\n")
    kept.unlink()
    speeds = {f"{r['look']} x{r['concurrency']}": r["requests_per_second"] for r in rows}
    print(json.dumps({"out": str(args.out), "requests_per_second": speeds}))


if __name__ == "__main__":
    run_command(MODULE, main)
