"""First word: how much sooner a base says it from a focused look, over many drawn pictures of all kinds.

    python -m arr_coc.evaluate.first_word --out results/first-word.json --world large --size 1024 1024 \\
        --hand any --seed 1000000000 --weights arr_coc/bundled/arr-coc

Each picture is asked one question, whether the base can answer it or not, kinds in turn. Both looks take
turns within a question, and all questions within a repetition; everything from the image on counts. A
repetition's ratio is stock's seconds over the focused look's, all questions together. The last stdout line
is JSON.
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
from arr_coc.commands import add_dtype, run_command
from arr_coc.config import SHARE
from arr_coc.evaluate.questions import Item, Ref, Scenes, other_scenes
from arr_coc.evaluate.rows import budget_tokens, check_fallback, question_for
from arr_coc.peers.clock import timed
from arr_coc.peers.methods import EVERY
from arr_coc.peers.names import OURS, STOCK
from arr_coc.qwen.loading import BUNDLED_BASE
from arr_coc.qwen.model import ARRCOCQwen
from arr_coc.scenes.hands import ANY, HELD_OUT_HANDS, HOME, TRAINING_HANDS
from arr_coc.scenes.scene import DEV_SEED, KINDS_OF, WORLDS

MODULE = "arr_coc.evaluate.first_word"
LOOKS = (STOCK, OURS)
QUARTILES = (25, 50, 75)
DIGITS = 5


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
    host: ARRCOCQwen, items: Sequence[Item], share: float, repetitions: int
) -> list[dict[str, Any]]:
    """A row for each question, look and repetition; one repetition before them warms up."""
    methods, rows = {name: EVERY[name]() for name in LOOKS}, []
    budget = partial(budget_tokens, share)
    for repetition in tqdm(range(-1, repetitions), desc="first word", unit="repetition"):
        for number, item in enumerate(items):
            for name in LOOKS[:: 1 if (number + repetition) % 2 else -1]:
                method = methods[name]
                asked = item.image, item.text, question_for(method, item)
                found = timed(host, method, *asked, budget)
                check_fallback(name, [found.reduced])
                row = {"repetition": repetition, "picture": item.ref.picture, "kind": item.kind}
                row |= {"look": name, "tokens": found.reduced.visual_tokens}
                row |= {"seconds": round(found.seconds, DIGITS), "load": os.getloadavg()[0]}
                rows.append(row)
    return [row for row in rows if row["repetition"] >= 0]


def summarise(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Quartiles over repetitions of the ratio of all seconds, and over questions of their median ratios."""
    seconds: dict[str, np.ndarray] = {}
    repetitions = 1 + max(row["repetition"] for row in rows)
    for look in LOOKS:
        own = [row["seconds"] for row in rows if row["look"] == look]
        seconds[look] = np.array(own).reshape(repetitions, -1)  # (repetitions, questions)
    stock, ours = seconds[STOCK], seconds[OURS]
    return {
        "repetitions": repetitions,
        "pictures": stock.shape[1],
        "ratio": _quartiles(stock.sum(1) / ours.sum(1)),
        "ratio_of_a_question": _quartiles(np.median(stock / ours, axis=0)),
        "stock_s": _quartiles(stock.mean(1)),
        "focused_s": _quartiles(ours.mean(1)),
        "load_average": max(row["load"] for row in rows),
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
    p.add_argument("--n", type=int, default=200, help="pictures (default %(default)s)")
    p.add_argument("--share", type=float, default=SHARE, help="of the tokens that are kept")
    p.add_argument("--repetitions", type=int, default=5)
    p.add_argument("--threads", type=int, default=2)
    add_dtype(p)
    return p


def main(argv: Sequence[str] | None = None) -> None:
    args = parser().parse_args(argv)
    torch.set_num_threads(args.threads)
    size, kinds = tuple(args.size), KINDS_OF[args.world]
    scenes = Scenes(args.seed, args.n, kinds, size=size, world=args.world, hand=args.hand)
    host = ARRCOCQwen.from_pretrained(args.base, args.weights, device="cpu", dtype=args.dtype)
    items = items_of(scenes, args.n)
    rows = measure(host, items, args.share, args.repetitions)
    report = {
        "what": f"first word of {len(items)} drawn pictures, stock beside the focused look",
        **provenance.header(MODULE, provenance.typed(argv), host.device),
        "base": naming.public(args.base),
        "base_sha256": digests.of_weights(Path(args.base)),
        "weights_sha256": digests.of_weights(Path(args.weights or "none")),
        "size": list(size),
        "dtype": str(host.model.dtype).removeprefix("torch."),
        "share": args.share,
        **other_scenes(args.world, args.hand),
        "summary": summarise(rows),
        "rows": rows,
    }
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(report) + "\n")
    print(json.dumps({"out": str(args.out), **report["summary"]}))


if __name__ == "__main__":
    run_command(MODULE, main)
