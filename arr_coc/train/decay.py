"""Choose how long relevance lasts in a clip, or how much what is new is lifted.

    python -m arr_coc.train.decay --weights arr_coc/bundled/arr-coc --n 60 --out runs/decay
    python -m arr_coc.train.decay --weights arr_coc/bundled/arr-coc --boosts 1.5 3 5 --n 60 --out runs/boost

Questions about development clips are answered under several decays, or several boosts (`config.Pace`). Of
those that answer at most `--loss` less than the best the one by which neighbouring moments are decided most
alike, the longest decay or the least boost, is written into OUT's `config.json`, beside the same weights.
`decay.json` or `boost.json` there says what every one came to. Nothing else is trained. The last stdout
line is JSON.
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
from arr_coc.config import SHARE, Config, Pace
from arr_coc.evaluate.questions import other_scenes
from arr_coc.evaluate.stats import Bootstrap, estimate
from arr_coc.evaluate.store import Row
from arr_coc.evaluate.views import CLIPS, GROUPS, DrawnViews
from arr_coc.evaluate.views_rows import measure_views
from arr_coc.peers.views_methods import ARRCOCViews
from arr_coc.qwen.model import ARRCOCQwen
from arr_coc.scenes.hands import ANY, TRAINING_HANDS
from arr_coc.scenes.moments import CLIP_KINDS
from arr_coc.scenes.scene import DEV_SEED
from arr_coc.train.publishing import host_with_weights, publish_numbers

MODULE = "arr_coc.train.decay"
DECAYS = (0.0, 0.1, 0.3, 0.7)
LOSS = 0.005  # of the answers that are right under the best
NEW_TOKENS = 8


def answered(
    host: ARRCOCQwen, source: DrawnViews, name: str, values: Sequence[float]
) -> dict[float, list[Row]]:
    """Under each value of the number of that `name` a row for every question of a source."""
    methods = {f"{own:g}": ARRCOCViews(Config(**{name: own}), f"{own:g}") for own in values}
    pairs, rows = frozenset((name, SHARE) for name in methods), []
    for refs in tqdm(list(source.blocks()), desc="clips", unit="block"):
        items = source.load(refs)
        rows += measure_views(
            host, methods, items, [pairs] * len(items), dataset=source.name,
            scoring=source.scoring, max_new_tokens=NEW_TOKENS,
        )  # fmt: skip
    return {own: [row for row in rows if row["method"] == f"{own:g}"] for own in values}


def compared(before: Sequence[Row], rows: Sequence[Row]) -> dict[str, Any]:
    """What one value came to, beside the same questions under the weights' own.

    Returns:
        `right` and `minus_own` with intervals over clips, and the means `covered_area` and `cosine` of
        neighbouring moments, kinds alike all; the means of `right` by kind.
    """
    kinds = sorted({row["kind"] for row in rows})
    bootstrap = Bootstrap.of([row["picture"] for row in rows], [row["kind"] for row in rows])

    def column(name: str, of: Sequence[Row] = rows) -> np.ndarray:
        return np.array([np.nan if row[name] is None else row[name] for row in of], float)

    means = bootstrap.means(column("right"))
    found = {"n": len(rows), "right": estimate(means.mean(1))}
    minus = bootstrap.means(column("right") - column("right", before))
    found["minus_own"] = estimate(minus.mean(1))
    for name in ("covered_area", "cosine"):
        found[name] = round(float(np.nanmean(bootstrap.means(column(name))[0])), 4)
    return found | {"kinds": {kind: round(float(own), 4) for kind, own in zip(kinds, means[0])}}


def chosen(found: dict[float, dict[str, Any]], loss: float, name: str = "decay") -> float:
    """The longest decay, or the least boost, that answers at most so much less than the best."""
    least = max(own["right"]["value"] for own in found.values()) - loss
    good = [value for value, own in found.items() if own["right"]["value"] >= least]
    return max(good) if name == "decay" else min(good)


def parser() -> argparse.ArgumentParser:
    """The flags."""
    p = argparse.ArgumentParser(prog=f"python -m {MODULE}", description=__doc__.splitlines()[0])
    p.add_argument("--base", default=None, help="folder or Hub id (default: the bundled base)")
    p.add_argument("--weights", default=None, help="ARR-COC weights that get the number")
    p.add_argument("--out", type=Path, required=True, help="folder for the weights")
    p.add_argument("--n", type=int, default=60, help="questions per kind (default %(default)s)")
    one = p.add_mutually_exclusive_group()
    one.add_argument("--decays", type=float, nargs="+", default=list(DECAYS), metavar="SHARE")
    one.add_argument("--boosts", type=float, nargs="+", metavar="TIMES", help="instead of decays")
    p.add_argument("--loss", type=float, default=LOSS, help="allowed (default %(default)s)")
    p.add_argument("--kinds", nargs="+", metavar="KIND", help="default: all of clips")
    p.add_argument("--groups", type=int, default=GROUPS[CLIPS], help="moments of a clip")
    p.add_argument("--hand", choices=(ANY, *TRAINING_HANDS), default=ANY, help="who draws them")
    p.add_argument("--seed", type=int, default=DEV_SEED, help="of the first clip")
    p.add_argument("--threads", type=int, default=2)
    return p


def main(argv: Sequence[str] | None = None) -> None:
    """Compare the decays or boosts, write the weights with the one that is chosen."""
    args = parser().parse_args(argv)
    torch.set_num_threads(args.threads)
    name, values = ("boost", args.boosts) if args.boosts else ("decay", args.decays)
    host = host_with_weights(args.base, args.weights, f"the {name}")
    own = next(iter(host.policies.values())).pace or Pace()
    kinds = args.kinds or CLIP_KINDS
    source = DrawnViews(args.seed, args.n, kinds, CLIPS, args.groups, hand=args.hand)
    before = getattr(own, name)
    rows = answered(host, source, name, sorted({*values, before}))
    found = {value: compared(rows[before], of) for value, of in rows.items()}
    best = chosen(found, args.loss, name)
    report = {
        "what": f"answers about development clips under several {name}s, and how alike moments are decided",
        **provenance.header(MODULE, provenance.typed(argv), host.device),
        "groups": args.groups,
        **other_scenes(CLIPS, args.hand),
        "own": before,
        f"{name}s": {f"{value:g}": of for value, of in found.items()},
        name: best,
    }
    publish_numbers(
        host, args.out, name, report, of=args.weights, pace=own._replace(**{name: best})
    )
    print(json.dumps({"out": str(args.out), name: best, "right": found[best]["right"]}))


if __name__ == "__main__":
    run_command(MODULE, main)
