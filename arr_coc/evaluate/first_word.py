"""First word: how much sooner a base says it from a focused look, over many drawn pictures of all kinds.

    python -m arr_coc.evaluate.first_word --out results/first-word.json --world large --size 1024 1024 \\
        --hand any --seed 1000000000 --weights arr_coc/bundled/arr-coc

Each picture is asked one question, whether the base can answer it or not, kinds in turn. All looks take
turns within a question, in every dtype, and all questions within a repetition; everything from the image
on counts. A repetition's ratio is stock's seconds over the focused look's, all questions together, each
in the dtype that is fastest for it. The last stdout line is JSON.
"""

import argparse
import json
import os
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from arr_coc import digests, naming, provenance
from arr_coc.commands import count, run_command
from arr_coc.config import DTYPES, SHARE
from arr_coc.evaluate.questions import Item, Ref, Scenes, other_scenes
from arr_coc.evaluate.rows import budget_tokens, check_fallback, question_for
from arr_coc.peers.clock import SLOW, timed
from arr_coc.peers.methods import EVERY
from arr_coc.peers.names import OURS, STOCK
from arr_coc.qwen.loading import BUNDLED_BASE, folder_of
from arr_coc.qwen.model import ARRCOCQwen
from arr_coc.scenes.hands import ANY, HELD_OUT_HANDS, HOME, TRAINING_HANDS
from arr_coc.scenes.scene import DEV_SEED, KINDS_OF, WORLDS

MODULE = "arr_coc.evaluate.first_word"
LOOKS = (STOCK, OURS)
QUARTILES = (25, 50, 75)
DIGITS, LOAD_DIGITS = 5, 1  # of seconds, and of the load average


def one_of_each_picture(blocks: Iterable[Sequence[tuple[Ref, str]]], n: int) -> list[Ref]:
    """`n` questions about as many pictures, of kinds as even as the pictures allow.

    Args:
        blocks: questions with their kinds, those about one picture side by side.
        n: how many.
    """
    chosen: list[Ref] = []
    count: dict[str, int] = {}
    for block in blocks:
        pictures: dict[str, list[tuple[Ref, str]]] = {}
        for ref, kind in block:
            pictures.setdefault(ref.picture, []).append((ref, kind))
        for questions in pictures.values():
            ref, kind = min(questions, key=lambda question: count.get(question[1], 0))
            count[kind] = count.get(kind, 0) + 1
            chosen.append(ref)
            if len(chosen) == n:
                return chosen
    return chosen


def items_of(scenes: Scenes, n: int) -> list[Item]:
    """The questions to be timed."""
    blocks = ([(item.ref, item.kind) for item in scenes.load(refs)] for refs in scenes.blocks())
    return scenes.load(one_of_each_picture(blocks, n))


def measure(
    hosts: dict[str, ARRCOCQwen],
    items: Sequence[Item],
    share: float,
    repetitions: int,
    looks: Sequence[str] = LOOKS,
) -> list[dict[str, Any]]:
    """A row for each question, look, dtype and repetition; one repetition before them warms up.

    Args:
        hosts: the base in each dtype.
        items: the questions.
        share: of the tokens that are kept.
        repetitions: of everything.
        looks: names of `peers.methods.EVERY`, stock the first.
    """
    rows, ways = [], [(look, dtype) for dtype in hosts for look in looks]
    budget = partial(budget_tokens, share)
    for repetition in tqdm(range(-1, repetitions), desc="first word", unit="repetition"):
        for number, item in enumerate(items):
            begin = (number + repetition) % len(ways)
            for look, dtype in [*ways[begin:], *ways[:begin]]:
                method = EVERY[look]()
                asked = item.image, item.text, question_for(method, item)
                found = timed(hosts[dtype], method, *asked, budget)
                check_fallback(look, [found.reduced])
                row = {"repetition": repetition, "picture": item.ref.picture, "kind": item.kind}
                row |= {"look": look, "dtype": dtype, "tokens": found.reduced.visual_tokens}
                load = round(os.getloadavg()[0], LOAD_DIGITS)
                row |= {"seconds": round(found.seconds, DIGITS), "load": load}
                rows.append(row)
    return [row for row in rows if row["repetition"] >= 0]


def summarise(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Quartiles over repetitions of the ratio of all seconds, and over questions of their median ratios.

    Of each look the dtype counts in which all its seconds are fewest; `by_dtype` has the ratios within one.
    """
    repetitions = 1 + max(row["repetition"] for row in rows)
    ways: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in sorted(rows, key=lambda row: (row["repetition"], row["picture"])):
        ways.setdefault((row["look"], row["dtype"]), []).append(row)
    seconds = {  # (repetitions, questions)
        way: np.array([row["seconds"] for row in own]).reshape(repetitions, -1)
        for way, own in ways.items()
    }
    looks = dict.fromkeys(look for look, _ in ways)
    fastest = {
        look: min((d for own, d in ways if own == look), key=lambda d: seconds[look, d].sum())
        for look in looks
    }
    stock, ours = (seconds[look, fastest[look]] for look in LOOKS)
    dtypes = [d for look, d in ways if look == STOCK]
    return {
        "repetitions": repetitions,
        "pictures": stock.shape[1],
        "dtypes": fastest,
        "ratio": _quartiles(stock.sum(1) / ours.sum(1)),
        "ratio_of_a_question": _quartiles(np.median(stock / ours, axis=0)),
        "stock_s": _quartiles(stock.mean(1)),
        "focused_s": _quartiles(ours.mean(1)),
        "by_dtype": {
            d: _quartiles(seconds[STOCK, d].sum(1) / seconds[OURS, d].sum(1)) for d in dtypes
        },
        "looks": {look: _spent(ways[look, fastest[look]]) for look in looks},
        "load_average": max(row["load"] for row in rows),
    }


def _spent(rows: Sequence[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Mean and 95th percentile of a look's tokens and seconds: of "all" questions, and by kind."""
    by_kind: dict[str, list[dict[str, Any]]] = {"all": list(rows)}
    for row in rows:
        by_kind.setdefault(row["kind"], []).append(row)
    return {
        kind: {
            f"{name}_{how}": round(float(of([row[name] for row in own])), DIGITS)
            for name in ("tokens", "seconds")
            for how, of in (("mean", np.mean), ("p95", lambda values: np.percentile(values, 95)))
        }
        for kind, own in by_kind.items()
    }


def against_fastest(summary: dict[str, Any], before: Path, about: dict[str, Any]) -> dict[str, Any]:
    """Stock's fewest median seconds, of this report and what it replaces, and how far this is above.

    What it replaces counts only where it was `about` the same machine, base and size.
    """
    report = json.loads(before.read_text()) if before.is_file() else {}
    names = ["base_sha256", "size", *([] if about["base_sha256"] else ["base"])]
    same = all(report.get(name) == about[name] for name in names)
    same = same and provenance.same_machine(report["machine"], about["machine"])
    known = report.get("fastest_stock_s") if same else None
    own = summary["stock_s"]["median"]
    fewest = min(own, known or own)
    return {
        "fastest_stock_s": fewest,
        "stock_against_its_fastest": round(own / fewest, DIGITS),
        "to_be_made_again": own > SLOW * fewest,
    }


def _quartiles(values: np.ndarray) -> dict[str, float]:
    low, middle, high = (round(float(v), DIGITS) for v in np.percentile(values, QUARTILES))
    return {"lower": low, "median": middle, "upper": high}


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(prog=f"python -m {MODULE}", description=__doc__.splitlines()[0])
    p.add_argument("--out", type=Path, required=True, help="JSON file to write")
    p.add_argument("--base", default=str(BUNDLED_BASE), help="Hub id or folder")
    p.add_argument("--weights", default="", help="ARR-COC weights (default: none)")
    p.add_argument("--world", choices=WORLDS, default=WORLDS[0])
    p.add_argument("--hand", choices=(ANY, *TRAINING_HANDS, *HELD_OUT_HANDS), default=HOME)
    p.add_argument("--size", type=int, nargs=2, default=(512, 512), metavar=("WIDTH", "HEIGHT"))
    p.add_argument("--seed", type=int, default=DEV_SEED, help="of the first scene")
    p.add_argument("--n", type=count, default=200, help="pictures (default %(default)s)")
    p.add_argument("--share", type=float, default=SHARE, help="of the tokens that are kept")
    p.add_argument("--repetitions", type=count, default=5)
    p.add_argument("--threads", type=count, default=2)
    p.add_argument("--dtypes", nargs="+", choices=DTYPES[1:3], default=list(DTYPES[1:3]),
                   help="of the base; each look counts in its fastest (default %(default)s)")  # fmt: skip
    p.add_argument("--looks", nargs="+", choices=list(EVERY), default=[], metavar="LOOK",
                   help="timed besides, say arr-coc-auto")  # fmt: skip
    return p


def main(argv: Sequence[str] | None = None) -> None:
    args = parser().parse_args(argv)
    torch.set_num_threads(args.threads)
    size, kinds = tuple(args.size), KINDS_OF[args.world]
    scenes = Scenes(args.seed, args.n, kinds, size=size, world=args.world, hand=args.hand)
    hosts = {
        dtype: ARRCOCQwen.from_pretrained(args.base, args.weights, device="cpu", dtype=dtype)
        for dtype in args.dtypes
    }
    items, looks = items_of(scenes, args.n), dict.fromkeys([*LOOKS, *args.looks])
    rows = measure(hosts, items, args.share, args.repetitions, [*looks])
    summary = summarise(rows)
    about = {
        "what": f"first word of {len(items)} drawn pictures, stock beside the focused look",
        **provenance.header(MODULE, provenance.typed(argv), torch.device("cpu")),
        "base": naming.public(args.base),
        "base_sha256": digests.of_weights(Path(folder_of(args.base))),
        "weights_sha256": digests.of_weights(Path(args.weights or "none")),
        "size": list(size),
        "share": args.share,
        **other_scenes(args.world, args.hand),
    }
    fastest = against_fastest(summary, args.out, about)
    report = {**about, **fastest, "summary": summary, "rows": rows}
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(report) + "\n")
    brief = {name: value for name, value in summary.items() if name != "looks"}
    print(json.dumps({"out": str(args.out), **brief}))


if __name__ == "__main__":
    run_command(MODULE, main)
