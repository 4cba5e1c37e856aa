"""Choose how unsure of its first word a base may be before share "auto" reads more cells.

    python -m arr_coc.train.unsure --weights arr_coc/bundled/arr-coc --world large --hand any \\
        --size 1024 1024 --out runs/arr-coc-unsure

Questions about development scenes are answered from the usual share, and from rounds under several bounds;
the bound that reads the fewest tokens and loses no more than `--loss` (where all lose more, the one that
loses least) is written into OUT's `config.json`, beside the same weights. `unsure.json` there says what
every bound came to, by kind. Nothing else is trained. The last stdout line is JSON.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from arr_coc import provenance
from arr_coc.commands import run_command
from arr_coc.config import AUTO, SHARE, Config
from arr_coc.evaluate.questions import Scenes, other_scenes
from arr_coc.evaluate.rows import measure_items
from arr_coc.evaluate.stats import Bootstrap, estimate
from arr_coc.evaluate.store import Row
from arr_coc.peers.base import Method
from arr_coc.peers.ours import ARRCOC
from arr_coc.qwen.model import ARRCOCQwen
from arr_coc.scenes.hands import ANY, HOME, TRAINING_HANDS
from arr_coc.scenes.scene import DEV_SEED, KINDS_OF, WORLDS
from arr_coc.train.publishing import host_with_weights, publish_numbers

MODULE = "arr_coc.train.unsure"
BOUNDS = (0.05, 0.1, 0.2, 0.3, 0.5, 0.8, 1.2)  # nats
USUAL = "usual share"
LOSS = 0.005  # of the answers that are right from the usual share
P95 = 95
NEW_TOKENS = 8


def answered(host: ARRCOCQwen, source: Scenes, method: Method, *, batch: int = 16) -> list[Row]:
    """A row for every question of a source; `tokens` are those that were read."""
    pairs, rows = frozenset({(method.name, SHARE)}), []
    for refs in tqdm(list(source.blocks()), desc=method.name, unit="block"):
        items = source.load(refs)
        rows += measure_items(
            host, {method.name: method}, items, [pairs] * len(items), dataset=source.name,
            scoring=source.scoring, batch=batch, max_new_tokens=NEW_TOKENS,
        )  # fmt: skip
    return rows


def compared(usual: Sequence[Row], rows: Sequence[Row]) -> dict[str, Any]:
    """What rounds under a bound came to, beside the same questions from the usual share.

    Returns:
        `right` and `minus_usual` with intervals over pictures, kinds alike; mean and 95th percentile of
        `share`, tokens over native ones, in all and by kind.
    """
    kinds = sorted({row["kind"] for row in rows})
    bootstrap = Bootstrap.of([row["picture"] for row in rows], [row["kind"] for row in rows])
    right = np.array([row["right"] for row in rows], float)
    before = np.array([row["right"] for row in usual], float)
    shares = np.array([row["tokens"] / row["native"] for row in rows])

    def spent(of: np.ndarray) -> dict[str, float]:
        return {"mean": round(float(of.mean()), 4), "p95": round(float(np.percentile(of, P95)), 4)}

    by_kind = {kind: spent(shares[bootstrap.kinds == number]) for number, kind in enumerate(kinds)}
    return {
        "n": len(rows),
        "right": estimate(bootstrap.means(right).mean(1)),
        "minus_usual": estimate(bootstrap.means(right - before).mean(1)),
        "share": {"all": spent(shares), **by_kind},
    }


def chosen(found: dict[float, dict[str, Any]], loss: float) -> float:
    """The bound that reads least and loses at most so much, or no more than every other one."""
    least = min(-loss, max(own["minus_usual"]["value"] for own in found.values()))
    allowed = [bound for bound, own in found.items() if own["minus_usual"]["value"] >= least]
    return min(allowed, key=lambda bound: found[bound]["share"]["all"]["mean"])


def parser() -> argparse.ArgumentParser:
    """The flags."""
    p = argparse.ArgumentParser(prog=f"python -m {MODULE}", description=__doc__.splitlines()[0])
    p.add_argument("--base", default=None, help="folder or Hub id (default: the bundled base)")
    p.add_argument("--weights", default=None, help="ARR-COC weights that get the bound")
    p.add_argument("--out", type=Path, required=True, help="folder for the weights")
    p.add_argument("--n", type=int, default=20, help="questions per kind (default %(default)s)")
    p.add_argument("--bounds", type=float, nargs="+", default=list(BOUNDS), metavar="NATS")
    p.add_argument("--loss", type=float, default=LOSS, help="allowed (default %(default)s)")
    p.add_argument("--kinds", nargs="+", metavar="KIND", help="default: all of the world")
    p.add_argument("--world", choices=WORLDS, default=WORLDS[0])
    p.add_argument("--hand", choices=(ANY, *TRAINING_HANDS), default=HOME)
    p.add_argument("--size", type=int, nargs=2, default=(512, 512), metavar=("WIDTH", "HEIGHT"))
    p.add_argument("--threads", type=int, default=2)
    return p


def main(argv: Sequence[str] | None = None) -> None:
    """Compare the bounds, write the weights with the one that is chosen."""
    args = parser().parse_args(argv)
    torch.set_num_threads(args.threads)
    host = host_with_weights(args.base, args.weights, "the bound")
    parts = next(iter(host.policies.values()))
    size = tuple(args.size)
    drawing = {"size": size, "world": args.world, "hand": args.hand}
    source = Scenes(DEV_SEED, args.n, args.kinds or KINDS_OF[args.world], **drawing)
    usual = answered(host, source, ARRCOC(name=USUAL))
    found = {}
    for bound in sorted(set(args.bounds)):
        own = host.with_policies({"": parts.with_numbers(unsure=bound)})
        rows = answered(own, source, ARRCOC(Config(share=AUTO), f"up to {bound:g} nats"))
        found[bound] = compared(usual, rows)
    best = chosen(found, args.loss)
    report = {
        "what": "rounds of share auto under several bounds, beside the usual share",
        **provenance.header(MODULE, provenance.typed(argv), host.device),
        "size": list(size),
        **other_scenes(args.world, args.hand),
        USUAL: compared(usual, usual),
        "bounds": {f"{bound:g}": own for bound, own in found.items()},
        "unsure": best,
    }
    publish_numbers(host, args.out, "unsure", report, of=args.weights, unsure=best)
    share = found[best]["share"]["all"]["mean"]
    print(json.dumps({"out": str(args.out), "unsure": best, "share": share}))


if __name__ == "__main__":
    run_command(MODULE, main)
