"""Prefer: fifty questions, two maps each, and which of the two a person finds more sensible.

    python -m arr_coc.train.prefer --weights runs/arr-coc --folder DIR --out runs/preferred
    python -m arr_coc.train.prefer --weights runs/arr-coc --out runs/preferred           # drawn scenes

One map is by the trained weights, the other without any. Which is left is drawn by the seed, and is not
said before the end. Every pair is a picture in OUT; the terminal asks `l`, `r` or `n` for neither. What
was said is kept after each answer, and the command goes on where it stopped. `preferred.json` in OUT then
counts. The last line on stdout is JSON.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageDraw

from arr_coc import provenance
from arr_coc.commands import run_command
from arr_coc.config import Config
from arr_coc.evaluate.questions import Item
from arr_coc.evaluate.rows import budget_tokens, check_fallback
from arr_coc.evaluate.stats import wilson
from arr_coc.evaluate.vqa import Part, SetName, set_of
from arr_coc.peers.ours import ARRCOC
from arr_coc.qwen.model import ARRCOCQwen
from arr_coc.scenes.questions import KINDS
from arr_coc.scenes.scene import DEV_SEED
from arr_coc.train.sources import scene_items

MODULE = "arr_coc.train.prefer"
PAIRS = 50
SHARE = 0.2  # of a picture's tokens
DIMMED = 0.25  # what is left of the light where nothing was kept
GAP, LINE = 12, 22  # pixels between the two maps, and above them for the question
SIDES = {"l": "left", "r": "right", "n": "neither"}
ANSWERS, KEY = "answers.jsonl", "key.json"
# The flags on which the pairs depend.
ASKED = ("weights", "base", "folder", "dataset", "split", "held_out", "n", "share", "seed")


def shown(image: Image.Image, kept: np.ndarray) -> Image.Image:
    """The picture, dim where no token was kept; `kept` is `(h, w)` in [0, 1]."""
    light = DIMMED + (1 - DIMMED) * kept.clip(0, 1)
    mask = Image.fromarray((255 * light).astype(np.uint8)).resize(
        image.size, Image.Resampling.NEAREST
    )
    return Image.composite(image, Image.new("RGB", image.size), mask)


def pair_of(question: str, left: Image.Image, right: Image.Image) -> Image.Image:
    """Two maps side by side under their question."""
    width, height = left.size
    sheet = Image.new("RGB", (2 * width + 3 * GAP, height + LINE + 2 * GAP), "white")
    ImageDraw.Draw(sheet).text((GAP, GAP), question, "black")
    sheet.paste(left, (GAP, LINE + GAP))
    sheet.paste(right, (width + 2 * GAP, LINE + GAP))
    return sheet


def draw_pairs(
    out: Path, items: Sequence[Item], hosts: dict[str, ARRCOCQwen], asked: dict[str, Any]
) -> None:
    """Write a picture for each question that has two different maps, and the key to their sides.

    `asked` are the values of `ASKED`; the key keeps them, for `check_same`.
    """
    rng, key = np.random.default_rng(asked["seed"]), []
    method = ARRCOC(Config())
    for item in items:
        maps = {}
        for name, host in hosts.items():
            ask = host.prepare(item.image, item.text)
            budget = budget_tokens(asked["share"], ask.picture.tokens)
            with torch.inference_mode():
                reduced = method(host, ask, item.question, budget)
            check_fallback(name, [reduced])
            maps[name] = reduced.kept.numpy()
        sides = [str(name) for name in rng.permutation(sorted(hosts))]
        if np.array_equal(*maps.values()):
            continue
        file = f"{len(key):03d}.png"
        drawn = [shown(item.image, maps[side]) for side in sides]
        pair_of(item.question, *drawn).save(out / file)
        key.append({"file": file, "question": item.question, "left": sides[0], "right": sides[1]})
    if not key:
        raise ValueError(f"{len(items)} questions, on none of which the two maps differ")
    (out / KEY).write_text(json.dumps({**asked, "pairs": key}) + "\n")


def check_same(out: Path, asked: dict[str, Any]) -> None:
    """ValueError where the pairs in OUT were drawn for another `asked`, naming what differs."""
    before = json.loads((out / KEY).read_text())
    for name, value in asked.items():
        if name in before and before[name] != value:
            flag = "--" + name.replace("_", "-")
            raise ValueError(
                f"{out} holds pairs of {flag} {before[name]}, not {value}; name another --out for these"
            )


def ask(out: Path, answer: Callable[[str], str]) -> None:
    """Ask of every pair that has no answer yet, and keep each answer; the end of the input ends it."""
    pairs = json.loads((out / KEY).read_text())["pairs"]
    known = {row["file"] for row in answers(out)}
    for number, pair in enumerate(pairs, 1):
        if pair["file"] in known:
            continue
        said = ""
        while said not in SIDES:
            try:
                said = answer(
                    f"{number} of {len(pairs)}: {out / pair['file']}  {pair['question']}\n"
                    "Which map makes more sense: l(eft), r(ight), n(either)? "
                )
            except EOFError:
                return
            said = said.strip().lower()[:1]
        with (out / ANSWERS).open("a") as file:
            file.write(json.dumps({"file": pair["file"], "said": SIDES[said]}) + "\n")


def answers(out: Path) -> list[dict[str, str]]:
    """What was said so far."""
    path = out / ANSWERS
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def counted(out: Path) -> dict[str, Any]:
    """How often a person preferred the learned map, of the pairs in which either was preferred."""
    sides = {pair["file"]: pair for pair in json.loads((out / KEY).read_text())["pairs"]}
    counts: Counter[str] = Counter()
    for row in answers(out):
        counts[sides[row["file"]].get(row["said"], "neither")] += 1
    decided = counts["learned"] + counts["free"]
    share = {"value": round(counts["learned"] / decided, 3)} if decided else None
    if share:
        share["interval"] = wilson(counts["learned"], decided)
    return {
        "pairs": len(sides),
        "answered": counts.total(),
        **{name: counts[name] for name in ("learned", "free", "neither")},
        "learned_of_decided": share,
    }


def parser() -> argparse.ArgumentParser:
    """The command line."""
    p = argparse.ArgumentParser(prog=f"python -m {MODULE}", description=__doc__.splitlines()[0])
    p.add_argument("--out", type=Path, required=True, help="folder of the pairs and the answers")
    p.add_argument("--weights", required=True, help="Hub id or folder of ARR-COC weights")
    p.add_argument("--base", default=None, help="Hub id or folder of a Qwen3-VL (default: bundled)")
    p.add_argument("--folder", type=Path, help="questions of a folder; default: of drawn scenes")
    p.add_argument("--dataset", help="or of local parquet or a save_to_disk folder")
    p.add_argument("--split", default="validation")
    p.add_argument("--held-out", type=float, default=0.0, metavar="SHARE",
                   help="the pictures that training with this share left out")  # fmt: skip
    p.add_argument("--n", type=int, default=PAIRS, help="questions (default: %(default)s)")
    p.add_argument("--share", type=float, default=SHARE, help="of an image's tokens")
    p.add_argument("--seed", type=int, default=0, help="of the sides")
    return p


def items_of(args: argparse.Namespace) -> list[Item]:
    """The questions of the settings."""
    if not (args.folder or args.dataset):
        return scene_items(-(-args.n // len(KINDS)), DEV_SEED, tuple(KINDS))[: args.n]
    part = Part("held-out", args.held_out) if args.held_out else Part()
    source = set_of(SetName(args.folder, args.dataset, args.split), n=args.n, part=part)
    return [item for block in source.blocks() for item in source.load(block)]


def main(argv: Sequence[str] | None = None, answer: Callable[[str], str] = input) -> None:
    """Draw the pairs once, ask what is not yet answered, and count."""
    args = parser().parse_args(argv)
    args.out.mkdir(parents=True, exist_ok=True)
    asked = {name: getattr(args, name) for name in ASKED}
    asked["folder"] = args.folder and str(args.folder)
    if (args.out / KEY).exists():
        check_same(args.out, asked)
    else:
        learned = ARRCOCQwen.from_pretrained(args.base, args.weights)
        hosts = {"learned": learned, "free": learned.with_policies({})}
        draw_pairs(args.out, items_of(args), hosts, asked)
    ask(args.out, answer)
    report = {
        "what": "which of two maps a person finds more sensible, blind",
        **provenance.header(MODULE, provenance.typed(argv), torch.device("cpu")),
        **counted(args.out),
    }
    (args.out / "preferred.json").write_text(json.dumps(report, indent=1) + "\n")
    print(file=sys.stderr)
    print(json.dumps({"out": str(args.out), **counted(args.out)}))


if __name__ == "__main__":
    run_command(MODULE, main)
