"""What training gained, on questions that were held out: right answers and evidence kept, with intervals.

A quick check at the end of a run, and at its checkpoints; `python -m arr_coc.evaluate` is the measurement.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from arr_coc.components import Components
from arr_coc.config import Config
from arr_coc.evaluate.questions import Item
from arr_coc.evaluate.rows import budget_tokens, check_fallback, score_answer
from arr_coc.evaluate.stats import Bootstrap, estimate, over_kinds
from arr_coc.peers.base import Reduced
from arr_coc.peers.ours import ARRCOC
from arr_coc.qwen.batch import answer_batch
from arr_coc.qwen.model import ARRCOCQwen
from arr_coc.train.data import evidence
from arr_coc.train.sources import HeldOut

SHARES = (0.05, 0.1, 0.2)
BATCH = 24  # questions answered at once
FREE, LEARNED = "training-free", "learned"


@dataclass(frozen=True)
class Measured:
    """One method's numbers at one share of the tokens, in the order of the items: `(Q,)` each.

    `right` is in [0, 1], `covered` the share of the evidence that was kept, NaN where nobody knows.
    """

    right: np.ndarray
    covered: np.ndarray
    seconds: np.ndarray


def compare(
    host: ARRCOCQwen,
    parts: Components,
    held_out: HeldOut,
    *,
    shares: Sequence[float] = SHARES,
    config: Config = Config(),
) -> dict[str, Any]:
    """Accuracy, coverage and seconds by share of tokens and method, and what was gained.

    Args:
        host: the base; whatever trained components it has are of no account here.
        parts: the trained components.
        held_out: questions that were not trained on.
        shares: of an image's tokens.
        config: everything else about spending.

    Returns:
        Per share: per method ("training-free", "learned") `n`, `accuracy` and `coverage`, each the mean
        over kinds with its 95 % interval and by kind, and `p50`, `p95` seconds of deciding and encoding;
        and `gained`, the accuracy learned minus training-free, paired, with its interval.
    """
    methods = {FREE: host.with_policies({}), LEARNED: host.with_policies({"learned": parts})}
    return {
        f"{share:g}": _compared(
            {
                name: measure(own, held_out, share=share, config=config)
                for name, own in methods.items()
            },
            held_out.items,
        )
        for share in shares
    }


def learned_right(host: ARRCOCQwen, parts: Components, held_out: HeldOut) -> list[float]:
    """How right the learned answers are, the mean over `SHARES`, question by question."""
    own = host.with_policies({"learned": parts})
    found = [measure(own, held_out, share=share, config=Config()).right for share in SHARES]
    return np.mean(found, 0).tolist() if held_out.items else []


class KindMeans:
    """Means over the kinds of some questions, with intervals by resampling their pictures."""

    def __init__(self, items: Sequence[Item]) -> None:
        """`items` are the questions, at least one."""
        self.kinds = sorted({item.kind for item in items})
        self.bootstrap = Bootstrap.of([item.ref.picture for item in items], [i.kind for i in items])

    def __call__(self, values: np.ndarray) -> dict[str, Any]:
        """`(Q,)` values, NaN where there is none -> the mean over kinds, its interval, each kind's mean."""
        replicates = self.bootstrap.means(values)
        overall = estimate(over_kinds(replicates, range(len(self.kinds))))
        by_kind = {
            kind: round(float(value), 3)
            for kind, value in zip(self.kinds, replicates[0])
            if not np.isnan(value)
        }
        found = overall or {"value": None, "interval": None}
        return {"mean": found["value"], "interval": found["interval"], **by_kind}


def _compared(measured: dict[str, Measured], items: Sequence[Item]) -> dict[str, Any]:
    """The entry of one share, as `compare` returns it."""
    mean = KindMeans(items)
    entry: dict[str, Any] = {
        name: {
            "n": len(items),
            "accuracy": mean(own.right),
            "coverage": mean(own.covered),
            "p50": round(float(np.percentile(own.seconds, 50)), 4),
            "p95": round(float(np.percentile(own.seconds, 95)), 4),
        }
        for name, own in measured.items()
    }
    gained = mean(measured[LEARNED].right - measured[FREE].right)
    return entry | {"gained": {key: gained[key] for key in ("mean", "interval")}}


def measure(host: ARRCOCQwen, held_out: HeldOut, *, share: float, config: Config) -> Measured:
    """One method's numbers at one share of the tokens."""
    # The only components that each host has.
    method = ARRCOC(replace(config, revision=None))
    right: list[float] = []
    covered, seconds = [], []
    waiting: list[tuple[Reduced, Item]] = []
    for item in held_out.items:
        ask = host.prepare(item.image, item.text)
        budget = budget_tokens(share, ask.picture.tokens)
        start = time.perf_counter()
        reduced = method(host, ask, item.question, budget)
        seconds.append(time.perf_counter() - start)
        check_fallback(method.name, [reduced])
        boxes = evidence(item.boxes, item.image.size, ask.picture.grid)
        kept = float((boxes * reduced.kept).sum() / boxes.sum()) if item.boxes else np.nan
        covered.append(kept)
        waiting.append((reduced, item))
        if len(waiting) == BATCH:
            right += _answered(host, waiting, held_out)
            waiting = []
    right += _answered(host, waiting, held_out)
    return Measured(np.array(right), np.array(covered), np.array(seconds))


def _answered(
    host: ARRCOCQwen, waiting: Sequence[tuple[Reduced, Item]], held_out: HeldOut
) -> list[float]:
    """Answer the questions together: how right each answer is."""
    if not waiting:
        return []
    prompts = [reduced.prompt for reduced, _ in waiting]
    tokens = [reduced.held for reduced, _ in waiting]
    with torch.inference_mode():
        answers = answer_batch(host, prompts, tokens, held_out.new_tokens)
    return [
        score_answer(answer.text, item.truths, held_out.scoring)["right"]
        for answer, (_, item) in zip(answers, waiting)
    ]
