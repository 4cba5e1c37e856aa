"""Tensions: do trained ones respond to questions in other words, and does it matter which they are.

    python -m arr_coc.tensions --weights runs/arr-coc --out results/tensions.json

Two measurements, on development scenes. The tensions that the weights choose for questions that no
training has seen (`tensions_phrases`), with the lexical prior's beside them, against three bars of the
brief (part 29): compress lower for reading than for the whole scene, little exploit to describe, much
focus to find. And ARR-COC's accuracy with its own tensions, less that with the mean tensions of another
kind of question imposed. Intervals are bootstrap intervals, over paraphrases there and over pictures
here. Nothing is trained. Needs requirements-dev.txt. The last stdout line is JSON.
"""

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import astuple, fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from tqdm import tqdm

from arr_coc import provenance
from arr_coc.balancing import lexical_tensions
from arr_coc.config import Config, Tensions
from arr_coc.evaluate import rows as evaluate_rows
from arr_coc.evaluate import store, summary
from arr_coc.evaluate.questions import Scenes
from arr_coc.evaluate.stats import Bootstrap, estimate, over_kinds
from arr_coc.peers.ours import ARRCOC
from arr_coc.qwen.loading import BUNDLED_BASE
from arr_coc.scenes import scene
from arr_coc.tensions import phrases
from arr_coc.tensions.phrases import GROUP_OF

GROUPS = tuple(phrases.KNOWN)
NAMES = tuple(field.name for field in fields(Tensions))
OWN = "own"
BATCH, MAX_NEW_TOKENS = 32, 8
# The bars: what is compared, and which side of the bar it must be on.
FINER, DESCRIBE, FIND = 0.3, 0.4, 0.7


class Chosen(NamedTuple):
    """The tensions of one question about one scene."""

    group: str
    template: str
    tensions: Tensions


# ------------------------------------------------------------------------------ how they respond


def choose(
    host: Any, bank: dict[str, Sequence[str]], seeds: Sequence[int]
) -> tuple[list[Chosen], list[Chosen]]:
    """What the weights choose for every sentence of the bank on every scene; and the lexical prior."""
    learned, lexical = [], []
    pairs = [(group, template) for group, templates in bank.items() for template in templates]
    for seed in tqdm(seeds, desc="tensions", unit="scene"):
        image = scene.make_scene(seed).image
        for number, (group, template) in enumerate(pairs):
            question = phrases.asked(template, seed, number)
            made = host.realize(image, question, Config())
            if made.tension_source != "learned":
                raise RuntimeError(f"tensions of {question!r} are of the {made.tension_source}")
            learned.append(Chosen(group, template, made.tensions))
            lexical.append(Chosen(group, template, lexical_tensions(question)))
    return learned, lexical


def respond(chosen: Sequence[Chosen]) -> dict[str, Any]:
    """Mean tensions by group and by sentence, and whether they meet the bars.

    Intervals draw sentences anew, each with all its scenes.

    Returns:
        `groups`: per group and tension `value` and `interval`, with `n` questions and `sentences`;
        `bars`: `value`, `interval`, `bar` and `met` of the three; `sentences`: their mean tensions.
    """
    templates = list(dict.fromkeys((c.group, c.template) for c in chosen))
    of_template = np.array([templates.index((c.group, c.template)) for c in chosen])
    of_group = np.array([GROUPS.index(c.group) for c in chosen])
    values = np.array([astuple(c.tensions) for c in chosen])  # (Q, 3)
    bootstrap = Bootstrap(of_template, of_group)
    means = {name: bootstrap.means(values[:, i]) for i, name in enumerate(NAMES)}
    groups = {
        group: {name: estimate(means[name][:, i]) for name in NAMES}
        | {"n": int((of_group == i).sum()), "sentences": sum(g == group for g, _ in templates)}
        for i, group in enumerate(GROUPS)
    }
    sentences = {
        template: [round(float(v), 3) for v in values[of_template == i].mean(0)]
        for i, (_, template) in enumerate(templates)
    }
    return {"groups": groups, "bars": bars(means), "sentences": sentences}


def bars(means: dict[str, np.ndarray]) -> dict[str, Any]:
    """The three bars, from `(1 + R, groups)` means of each tension."""
    fine, where, whole = (GROUPS.index(group) for group in ("fine", "where", "whole"))
    compress = means["compress"]
    finer = estimate(compress[:, whole] - compress[:, fine])
    describe = estimate(means["exploit"][:, whole])
    find = estimate(means["focus"][:, where])
    return {
        "compress, whole less fine": finer | {"bar": FINER, "met": finer["value"] >= FINER},
        "exploit, whole": describe | {"bar": DESCRIBE, "met": describe["value"] <= DESCRIBE},
        "focus, where": find | {"bar": FIND, "met": find["value"] >= FIND},
    }


# ------------------------------------------------------------------------ whether they matter


def imposed_methods(groups: dict[str, Any]) -> dict[str, ARRCOC]:
    """ARR-COC with its own tensions, and with the mean ones of each group."""
    methods = {OWN: ARRCOC(name=OWN)}
    for group in GROUPS:
        mean = Tensions(*(groups[group][name]["value"] for name in NAMES))
        methods[group] = ARRCOC(Config(tensions=mean), group)
    return methods


def impose(
    host: Any, methods: dict[str, ARRCOC], source: Scenes, budgets: Sequence[float]
) -> list[dict]:
    """Rows of `evaluate.rows` for every question, method and budget."""
    pairs = frozenset((name, budget) for name in methods for budget in budgets)
    rows = []
    for refs in tqdm(list(source.blocks()), desc="imposed", unit="block"):
        items = source.load(refs)
        rows += evaluate_rows.measure_items(
            host, methods, items, [pairs] * len(items), dataset=source.name,
            scoring=source.scoring, batch=BATCH, max_new_tokens=MAX_NEW_TOKENS,
        )  # fmt: skip
    return rows


def matters(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Per budget: accuracy with its own tensions, and what imposing others costs.

    `cost` is the accuracy with its own less that with another group's tensions (the mean over the
    three), on the same questions; every kind of question counts alike. `costs` says whether its
    interval lies above 0. `groups` are the same for the questions of one group, with each imposed.
    """
    grid = summary.grids(store.table_of(rows))[1.0]
    bootstrap, found = Bootstrap(grid.pictures, grid.kinds), []
    group_of = np.array([GROUPS.index(GROUP_OF[kind]) for kind in grid.kind_names])  # of kinds
    for budget in grid.budgets:
        own = grid.values[OWN, budget]["right"]
        lost = np.stack([own - grid.values[group, budget]["right"] for group in GROUPS])
        lost_to = {group: bootstrap.means(lost[i]) for i, group in enumerate(GROUPS)}
        # Of each question: the mean over the groups that are not its own.
        theirs = group_of[grid.kinds][None] == np.arange(len(GROUPS))[:, None]
        another = bootstrap.means(np.where(theirs, 0, lost).sum(0) / (len(GROUPS) - 1))
        right = bootstrap.means(own)
        cost = estimate(over_kinds(another, range(len(group_of))))
        by_group = {}
        for i, group in enumerate(GROUPS):
            if not len(kinds := np.flatnonzero(group_of == i)):
                continue
            by_group[group] = {
                "n": int(np.isin(grid.kinds, kinds).sum()),
                "accuracy": estimate(over_kinds(right, kinds)),
                "cost": estimate(over_kinds(another, kinds)),
                "imposed": {g: estimate(over_kinds(lost_to[g], kinds)) for g in GROUPS},
            }
        found.append(
            {
                "budget": budget,
                "n": len(own),
                "accuracy": estimate(over_kinds(right, range(len(group_of)))),
                "cost": cost,
                "costs": cost["interval"][0] > 0,
                "groups": by_group,
            }
        )
    return found


# ------------------------------------------------------------------------------- the command


def parser() -> argparse.ArgumentParser:
    """The command line."""
    p = argparse.ArgumentParser(prog="python -m arr_coc.tensions",
                                description=__doc__.splitlines()[0])  # fmt: skip
    p.add_argument("--weights", required=True, help="Hub id or folder of ARR-COC weights")
    p.add_argument("--base", default=str(BUNDLED_BASE), help="Hub id or folder of a Qwen3-VL")
    p.add_argument("--out", type=Path, required=True, help="JSON to write")
    p.add_argument("--scenes", type=int, default=16, help="scenes that each sentence is asked on")
    p.add_argument("--n", type=int, default=40,
                   help="questions per kind with tensions imposed; 0 for none")  # fmt: skip
    p.add_argument("--kinds", nargs="+", choices=list(GROUP_OF), default=list(GROUP_OF),
                   metavar="KIND", help=f"of {', '.join(GROUP_OF)}")  # fmt: skip
    p.add_argument("--budgets", type=float, nargs="+", default=[0.1, 0.2], help="shares of tokens")
    p.add_argument("--seed", type=int, default=scene.DEV_SEED, help="first seed of the scenes")
    p.add_argument("--threads", type=int, default=1, help="CPU threads")
    p.add_argument("--device", help="default: CUDA where there is one")
    return p


def measured(host: Any, args: argparse.Namespace) -> Iterator[tuple[str, Any]]:
    """The parts of the report, one after the other."""
    seeds = range(args.seed, args.seed + args.scenes)
    own = None
    for key, bank in (("known words", phrases.KNOWN), ("new words", phrases.NEW)):
        learned, lexical = choose(host, bank, seeds)
        found = {"learned": respond(learned), "lexical prior": respond(lexical)}
        own = own or found["learned"]["groups"]
        yield key, found
    if args.n:
        source = Scenes(args.seed, args.n, args.kinds)
        methods = imposed_methods(own)
        yield "imposed", matters(impose(host, methods, source, args.budgets))


def main(argv: Sequence[str] | None = None) -> None:
    p = parser()
    args = p.parse_args(argv)
    words = provenance.typed(argv)
    torch.set_num_threads(args.threads)
    host = evaluate_rows.RememberingHost.from_pretrained(
        args.base, args.weights, device=args.device
    )
    if host.policy(Config()).policy is None:
        p.error(f"{args.weights} hold no policy: {', '.join(host.policy(Config()).names)}")
    started = time.time()
    report = {
        "what": f"tensions of {Path(args.weights).name} on {Path(args.base).name}",
        **provenance.header("arr_coc.tensions", words, host.device),
        "first_seed": args.seed,
        "scenes": args.scenes,
        "n_per_kind": args.n,
        **dict(measured(host, args)),
    }
    report["minutes"] = round((time.time() - started) / 60, 1)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(report, indent=1) + "\n")
    bars_met = {k: v["met"] for k, v in report["known words"]["learned"]["bars"].items()}
    costs = {f"{one['budget']:g}": one["costs"] for one in report.get("imposed", [])}
    print(json.dumps({"out": str(args.out), "bars": bars_met, "imposing costs": costs}))


if __name__ == "__main__":
    main()
