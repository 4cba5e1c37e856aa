"""What a GPU is asked in a few minutes: whether all is right there, and what it takes.

    python -m arr_coc.benchmark.gpu --out results/gpu.json
    python -m arr_coc.benchmark.gpu --device cpu --shapes tiny --sizes 64 --out runs/gpu.json

In the order of what is wanted most, each part written as soon as it is there: the identity of both looks
where everything is kept, stages at several sizes in bfloat16 and float16, the size from which focusing
pays, and many questions at once. Parts that `--minutes` leaves no time for are named in the report. The
second command only tries the first.
"""

import argparse
import gc
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from arr_coc import provenance
from arr_coc.attending import native_allocation
from arr_coc.benchmark.cases import QUESTION, Case, image_of
from arr_coc.benchmark.hosts import host_of
from arr_coc.benchmark.report import summarise
from arr_coc.benchmark.timing import Row, run_case
from arr_coc.check.trials import first_logits
from arr_coc.commands import check_device, run_command
from arr_coc.config import MINIMUM_BUDGET, Config
from arr_coc.peers.names import STOCK
from arr_coc.qwen import encoding
from arr_coc.qwen.model import ARRCOCQwen
from arr_coc.qwen.shapes import SHAPES

MODULE = "arr_coc.benchmark.gpu"
NAMES = ("glance as context", "before + separate glance", "before", "downsample")
DTYPES = ("bfloat16", "float16")
CROSSOVER = (64, 128, 256, 512)
AT_ONCE = (1, 4, 16)
SHARE, REPETITIONS, NEW_TOKENS = 0.2, 5, 8


@dataclass(frozen=True)
class Session:
    """What every part is given: the model in one dtype, the sizes, and when to stop."""

    host: ARRCOCQwen
    sizes: Sequence[int]
    deadline: float

    @property
    def is_over(self) -> bool:
        """Whether there is no time left."""
        return time.monotonic() > self.deadline


@torch.inference_mode()
def identity(session: Session) -> dict[str, Any]:
    """Logits with everything kept, before and after the encoder, against the stock model's."""
    host, tokens = session.host, session.sizes[0]
    ask = host.prepare(image_of(tokens, host.geometry.unit_pixels), QUESTION)
    visual, grid = host.model.model.visual, ask.picture.grid
    everything = native_allocation(torch.arange(tokens), grid, torch.zeros(tokens))
    looks = {
        STOCK: host.encode(ask.picture, None),
        "before": encoding.encode_before(visual, ask.picture, everything),
        "after": encoding.cut(host.encode(ask.picture, None), everything),
    }
    logits = {name: first_logits(host, ask, own) for name, own in looks.items()}
    gaps = {name: float((logits[name] - logits[STOCK]).abs().max()) for name in ("before", "after")}
    return {
        "image_tokens": tokens,
        "largest_gap": gaps,
        "bit_for_bit": {name: gap == 0 for name, gap in gaps.items()},
        "finite": bool(logits[STOCK].isfinite().all()),
    }


def stages(session: Session) -> list[Row]:
    """Stage times of stock, ours and a shrunk picture, at every size that there is time for."""
    return timed(session, session.sizes, NAMES)


def crossover(session: Session) -> list[Row]:
    """Stock and ours on ever smaller pictures: from which size on does looking closely pay?"""
    return timed(session, [n for n in CROSSOVER if n < session.sizes[0]], NAMES[:1])


def timed(session: Session, sizes: Sequence[int], names: Sequence[str]) -> list[Row]:
    """Interleaved repetitions, summarised per case; sizes without a whole repetition are left out."""
    rows: list[Row] = []
    for tokens in sizes:
        budget = max(MINIMUM_BUDGET, round(SHARE * tokens))
        todo = [Case(STOCK, tokens, tokens), *(Case(name, tokens, budget) for name in names)]
        for case in todo:
            if session.is_over:
                return summarise(rows)
            run_case(session.host, case)  # lazily made kernels are not timed
        for repetition in range(REPETITIONS):
            if session.is_over:
                break
            rows += [{"repetition": repetition, **run_case(session.host, case)} for case in todo]
    return summarise(rows)


def many(session: Session) -> list[Row]:
    """Seconds of several questions answered together, stock and ours."""
    rows, host = [], session.host
    image = image_of(session.sizes[0], host.geometry.unit_pixels)
    for count in AT_ONCE:
        for config in (None, Config(share=SHARE, context="glance")):
            if session.is_over:
                return rows
            seconds = []
            for _ in range(3):
                host.synchronize()
                start = time.perf_counter()
                host.generate_batch(
                    [image] * count,
                    [QUESTION] * count,
                    use_arr_coc=config is not None,
                    config=config,
                    max_new_tokens=NEW_TOKENS,
                )
                host.synchronize()
                seconds.append(time.perf_counter() - start)
            look = "focused" if config else STOCK
            rows.append({"look": look, "questions": count, "seconds": min(seconds[1:])})
    return rows


PARTS: dict[str, Callable[[Session], Any]] = {
    "identity": identity,
    "stages": stages,
    "crossover": crossover,
    "many": many,
}


def main(arguments: list[str] | None = None) -> None:
    """Run the command; the last line on stdout is JSON."""
    p = argparse.ArgumentParser(prog=f"python -m {MODULE}", description=__doc__.splitlines()[0])
    p.add_argument("--out", type=Path, required=True)
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--shapes", choices=list(SHAPES), default="2b")
    p.add_argument("--sizes", type=int, nargs="+", default=[1024, 2048, 4096])
    p.add_argument("--minutes", type=float, default=9.0, help="after which nothing new is begun")
    args = p.parse_args(arguments)
    check_device(p, args.device)
    device, deadline = torch.device(args.device), time.monotonic() + 60 * args.minutes
    header = provenance.header(MODULE, provenance.typed(arguments), device)
    report: dict[str, Any] = {"what": f"Qwen3-VL {args.shapes} shapes, random weights", **header}
    report |= {"dtypes": {name: {} for name in DTYPES}, "left_out": []}
    args.out.parent.mkdir(parents=True, exist_ok=True)
    for dtype in DTYPES:
        host = host_of(args.shapes, device, dtype)
        session = Session(host, args.sizes, deadline)
        for name, part in PARTS.items():
            if session.is_over:
                report["left_out"].append(f"{name} in {dtype}")
                continue
            report["dtypes"][dtype][name] = part(session)
            args.out.write_text(json.dumps(report, indent=1) + "\n")
        del host, session
        gc.collect()
    args.out.write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps({"out": str(args.out), "left_out": report["left_out"]}))


if __name__ == "__main__":
    run_command("arr_coc.benchmark.gpu", main)
