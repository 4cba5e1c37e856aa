"""Tensions: whether trained ones respond to questions in other words, and whether it matters which.

    python -m arr_coc.tensions --weights runs/arr-coc --out results/tensions.json

Two measurements, on development scenes. First, the tensions that the weights choose for questions that
no training has seen (`phrases`), with the lexical prior's beside them, against three bars of the brief
(part 29): compress lower for reading than for the whole scene, little exploit to describe, much focus to
find; with bootstrap intervals over paraphrases. Second, ARR-COC's accuracy with its own tensions, less
that with the mean tensions of another kind of question imposed; with bootstrap intervals over pictures.
Nothing is trained. Needs requirements-dev.txt. The last stdout line is JSON.
"""

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from tqdm import tqdm

from arr_coc import provenance
from arr_coc.balancing import lexical_tensions
from arr_coc.commands import add_dtype, run_command
from arr_coc.config import Config, Tensions
from arr_coc.evaluate.questions import Scenes, other_scenes
from arr_coc.evaluate.rows import measure_items
from arr_coc.evaluate.stats import Bootstrap, estimate, over_kinds
from arr_coc.evaluate.store import Row, table_of
from arr_coc.evaluate.summary import by_detail
from arr_coc.peers.ours import ARRCOC
from arr_coc.qwen.loading import BUNDLED_BASE
from arr_coc.qwen.model import ARRCOCQwen
from arr_coc.scenes.hands import ANY, HOME, TRAINING_HANDS
from arr_coc.scenes.scene import DEV_SEED, KINDS_OF, WORLDS, make_scene
from arr_coc.tensions import phrases
from arr_coc.tensions.phrases import GROUP_OF

GROUPS = tuple(phrases.KNOWN)
NAMES = tuple(field.name for field in fields(Tensions))
WHOLE = "whole"  # the group of questions about the whole scene
OWN = "own"  # the method without imposed tensions
BATCH, MAX_NEW_TOKENS = 32, 8
# The bars: compress lower by at least FINER for fine detail, exploit at most DESCRIBE for the whole scene,
# focus at least FIND for a place.
FINER, DESCRIBE, FIND = 0.3, 0.4, 0.7


@dataclass(frozen=True)
class Settings:
    """What one run of the command does.

    Attributes:
        weights, base: Hub id or folder of ARR-COC weights, and of a Qwen3-VL.
        out: JSON to write.
        scenes: scenes on which each sentence is asked.
        n: questions per kind with tensions imposed; 0 for none.
        kinds, seed: kinds of these questions, and the first seed of all scenes.
        world, hand, size: of all scenes, as of `scene.make_scene`.
        budgets: shares of an image's visual tokens.
        threads, device, dtype: CPU threads; None for CUDA where there is one, and for what suits it.
        words: the arguments as typed.
    """

    weights: str
    base: str
    out: Path
    scenes: int
    n: int
    kinds: tuple[str, ...]
    seed: int
    world: str
    hand: str
    size: tuple[int, int]
    budgets: tuple[float, ...]
    threads: int
    device: str | None
    dtype: str | None
    words: tuple[str, ...]


class Chosen(NamedTuple):
    """The tensions of one question about one scene."""

    group: str
    template: str
    tensions: Tensions


# ------------------------------------------------------------------------------ how they respond


def choose(
    host: ARRCOCQwen, bank: dict[str, Sequence[str]], seeds: Sequence[int], **drawing: Any
) -> tuple[list[Chosen], list[Chosen]]:
    """What the weights choose for every sentence of the bank on every scene; and the lexical prior.

    `drawing` goes to `make_scene`.

    Raises:
        RuntimeError: where the host's tensions are not learned.
    """
    learned, lexical = [], []
    sentences = [(group, template) for group, templates in bank.items() for template in templates]
    for seed in tqdm(seeds, desc="tensions", unit="scene"):
        image = make_scene(seed, **drawing).image
        for number, (group, template) in enumerate(sentences):
            question = phrases.about_some_thing(template, seed, number)
            realization = host.realize(image, question, Config())
            if realization.tension_source != "learned":
                raise RuntimeError(
                    f"tensions of {question!r} are of the {realization.tension_source}"
                )
            learned.append(Chosen(group, template, realization.tensions))
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
    template_of = np.array([templates.index((c.group, c.template)) for c in chosen])  # (Q,)
    group_of = np.array([GROUPS.index(c.group) for c in chosen])  # (Q,)
    values = np.array([astuple(c.tensions) for c in chosen])  # (Q, 3)
    bootstrap = Bootstrap(template_of, group_of)
    means = {name: bootstrap.means(values[:, i]) for i, name in enumerate(NAMES)}
    groups = {
        group: {name: estimate(means[name][:, i]) for name in NAMES}
        | {"n": int((group_of == i).sum()), "sentences": sum(g == group for g, _ in templates)}
        for i, group in enumerate(GROUPS)
    }
    sentences = {
        template: [round(float(v), 3) for v in values[template_of == i].mean(0)]
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
    host: ARRCOCQwen, methods: dict[str, ARRCOC], source: Scenes, budgets: Sequence[float]
) -> list[Row]:
    """Rows of an evaluation for every question, method and budget."""
    pairs = frozenset((name, budget) for name in methods for budget in budgets)
    rows = []
    for refs in tqdm(list(source.blocks()), desc="imposed", unit="block"):
        items = source.load(refs)
        rows += measure_items(
            host,
            methods,
            items,
            [pairs] * len(items),
            dataset=source.name,
            scoring=source.scoring,
            batch=BATCH,
            max_new_tokens=MAX_NEW_TOKENS,
        )
    return rows


def matters(rows: list[Row]) -> list[dict[str, Any]]:
    """Per budget: accuracy with its own tensions, and what imposing others costs.

    `cost` is the accuracy with its own less that with another group's tensions (the mean over the
    three), on the same questions; every kind of question counts alike. `costs` says whether its
    interval lies above 0. `groups` are the same for the questions of one group, with each imposed.
    `cost_of_whole` is what those of the whole scene cost the questions of the other groups, and
    `cost_among_others` what the others' tensions cost each other; None where no such question is asked.
    """
    answers = by_detail(table_of(rows))[1.0]
    bootstrap = Bootstrap(answers.pictures, answers.kinds)
    group_of = np.array([GROUPS.index(GROUP_OF[kind]) for kind in answers.kind_names])  # (kinds,)
    every_kind, entries = range(len(group_of)), []
    for budget in answers.budgets:
        own = answers.values[OWN, budget]["right"]  # (Q,)
        imposed = [answers.values[group, budget]["right"] for group in GROUPS]
        lost = np.stack([own - right for right in imposed])  # (groups, Q)
        lost_to = {group: bootstrap.means(lost[i]) for i, group in enumerate(GROUPS)}
        # Per question the mean over the groups that are not its own.
        is_own = group_of[answers.kinds][None] == np.arange(len(GROUPS))[:, None]  # (groups, Q)
        to_another = bootstrap.means(np.where(is_own, 0, lost).sum(0) / (len(GROUPS) - 1))
        right = bootstrap.means(own)
        by_group = {}
        for i, group in enumerate(GROUPS):
            kinds = np.flatnonzero(group_of == i)
            if not len(kinds):
                continue
            by_group[group] = {
                "n": int(np.isin(answers.kinds, kinds).sum()),
                "accuracy": estimate(over_kinds(right, kinds)),
                "cost": estimate(over_kinds(to_another, kinds)),
                "imposed": {g: estimate(over_kinds(lost_to[g], kinds)) for g in GROUPS},
            }
        cost = estimate(over_kinds(to_another, every_kind))
        whole = GROUPS.index(WHOLE)
        others = np.flatnonzero(group_of != whole)
        among = np.where(is_own, 0, lost)
        among[whole] = 0
        among = bootstrap.means(among.sum(0) / (len(GROUPS) - 2))
        entries.append(
            {
                "budget": budget,
                "n": len(own),
                "accuracy": estimate(over_kinds(right, every_kind)),
                "cost": cost,
                "costs": cost["interval"][0] > 0,
                "cost_of_whole": estimate(over_kinds(lost_to[WHOLE], others))
                if len(others)
                else None,
                "cost_among_others": estimate(over_kinds(among, others)) if len(others) else None,
                "groups": by_group,
            }
        )
    return entries


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
    p.add_argument("--kinds", nargs="+", choices=list(GROUP_OF), metavar="KIND",
                   help=f"of {', '.join(GROUP_OF)} (default: all of the world)")  # fmt: skip
    p.add_argument("--world", choices=WORLDS, default=WORLDS[0])
    p.add_argument("--hand", choices=(ANY, *TRAINING_HANDS), default=HOME)
    p.add_argument("--size", type=int, nargs=2, default=(512, 512), metavar=("WIDTH", "HEIGHT"))
    p.add_argument("--budgets", type=float, nargs="+", default=[0.1, 0.2], help="shares of tokens")
    p.add_argument("--seed", type=int, default=DEV_SEED, help="first seed of the scenes")
    p.add_argument("--threads", type=int, default=1, help="CPU threads")
    p.add_argument("--device", help="default: CUDA where there is one")
    add_dtype(p)
    return p


def parse(argv: Sequence[str] | None) -> Settings:
    """The settings that the arguments of `main`, or of the process, name."""
    p = parser()
    args = vars(p.parse_args(argv))
    known = KINDS_OF[args["world"]]
    args["kinds"] = args["kinds"] or known
    if unknown := [kind for kind in args["kinds"] if kind not in known]:
        p.error(f"--world {args['world']} has no {', '.join(unknown)}; it has {', '.join(known)}")
    several = {key: tuple(args[key]) for key in ("kinds", "budgets", "size")}
    return Settings(**args | several, words=tuple(provenance.typed(argv)))


def measured(host: ARRCOCQwen, settings: Settings) -> Iterator[tuple[str, Any]]:
    """The parts of the report, one after the other."""
    seeds = range(settings.seed, settings.seed + settings.scenes)
    drawing = {"size": settings.size, "world": settings.world, "hand": settings.hand}
    own_groups = None
    for key, bank in (("known words", phrases.KNOWN), ("new words", phrases.NEW)):
        learned, lexical = choose(host, bank, seeds, **drawing)
        responses = {"learned": respond(learned), "lexical prior": respond(lexical)}
        own_groups = own_groups or responses["learned"]["groups"]
        yield key, responses
    if settings.n:
        source = Scenes(settings.seed, settings.n, settings.kinds, **drawing)
        methods = imposed_methods(own_groups)
        yield "imposed", matters(impose(host, methods, source, settings.budgets))


def main(argv: Sequence[str] | None = None) -> None:
    settings = parse(argv)
    torch.set_num_threads(settings.threads)
    options = {"device": settings.device, "dtype": settings.dtype}
    host = ARRCOCQwen.from_pretrained(settings.base, settings.weights, **options)
    parts = host.policy(Config())
    names = parts.names if parts else ["nothing"]
    if "policy" not in names:
        parser().error(f"{settings.weights} hold no policy: {', '.join(names)}")
    started = time.time()
    report = {
        "what": f"tensions of {Path(settings.weights).name} on {Path(settings.base).name}",
        **provenance.header("arr_coc.tensions", settings.words, host.device),
        "first_seed": settings.seed,
        "scenes": settings.scenes,
        "n_per_kind": settings.n,
        "size": list(settings.size),
        **other_scenes(settings.world, settings.hand),
        **dict(measured(host, settings)),
    }
    report["minutes"] = round((time.time() - started) / 60, 1)
    settings.out.parent.mkdir(parents=True, exist_ok=True)
    settings.out.write_text(json.dumps(report, indent=1) + "\n")
    bars_met = {k: v["met"] for k, v in report["known words"]["learned"]["bars"].items()}
    costs = {f"{one['budget']:g}": one["costs"] for one in report.get("imposed", [])}
    print(json.dumps({"out": str(settings.out), "bars": bars_met, "imposing costs": costs}))


if __name__ == "__main__":
    run_command("arr_coc.tensions", main)
