"""What training gained, on development scenes: right answers and evidence kept, with and without it.

A quick check at the end of a run; `python -m arr_coc.evaluate` is the measurement.
"""

import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch

from arr_coc.components import Components
from arr_coc.config import MINIMUM_BUDGET, Config
from arr_coc.peers.base import Reduced
from arr_coc.peers.ours import ARRCOC
from arr_coc.qwen.batch import answer_batch, held_tokens
from arr_coc.qwen.model import ARRCOCQwen
from arr_coc.scenes.questions import KINDS
from arr_coc.scenes.scene import Scene, make_scene
from arr_coc.scoring import score_exact
from arr_coc.train.data import TrainingQuestion, evidence

SHARES = (0.05, 0.1, 0.2)
BATCH = 24  # questions answered at once
MAX_NEW_TOKENS = 6
TRIED = 60  # scenes per question wanted, after which a rare kind is left as it is


def scene_questions(
    n: int, first_seed: int, kinds: Sequence[str]
) -> list[tuple[Scene, TrainingQuestion]]:
    """`n` questions of each kind, about scenes from `first_seed` on."""
    count: Counter[str] = Counter()
    questions = []
    for seed in range(first_seed, first_seed + TRIED * n):
        if all(count[kind] >= n for kind in kinds):
            break
        scene = make_scene(seed)
        for q in scene.questions:
            if q.kind in kinds and count[q.kind] < n:
                count[q.kind] += 1
                questions.append((scene, TrainingQuestion(q.text, q.answer, q.kind, q.boxes)))
    return questions


def compare(
    host: ARRCOCQwen,
    parts: Components,
    *,
    n: int,
    first_seed: int,
    kinds: Sequence[str] | None = None,
    shares: Sequence[float] = SHARES,
    config: Config = Config(),
) -> dict[str, Any]:
    """Accuracy, coverage and seconds by method and share of tokens.

    Args:
        host: the base; whatever trained components it has are of no account here.
        parts: the trained components.
        n: questions per kind.
        first_seed: of the scenes.
        kinds: of `scenes.KINDS`; None for all.
        shares: of an image's tokens.
        config: everything else about spending.

    Returns:
        Per share, per method ("training-free", "learned"): `accuracy` and `coverage`, each the mean
        over kinds and by kind, and `p50`, `p95` seconds of deciding and encoding.
    """
    questions = scene_questions(n, first_seed, tuple(kinds or KINDS))
    methods = {
        "training-free": host.with_policies({}),
        "learned": host.with_policies({"learned": parts}),
    }
    config = replace(config, revision=None)  # the only components that each host has
    return {
        f"{share:g}": {
            name: each.once_more_if_narrow(
                partial(measure, each, questions, share=share, config=config)
            )
            for name, each in methods.items()
        }
        for share in shares
    }


def measure(
    host: ARRCOCQwen,
    questions: Sequence[tuple[Scene, TrainingQuestion]],
    *,
    share: float,
    config: Config,
) -> dict[str, Any]:
    """One method's numbers at one share of the tokens, as `compare` returns them."""
    method = ARRCOC(config)
    right: dict[str, list[bool]] = defaultdict(list)
    covered: dict[str, list[float]] = defaultdict(list)
    seconds: list[float] = []
    waiting: list[tuple[Reduced, TrainingQuestion]] = []
    for scene, question in questions:
        ask = host.prepare(scene.image, question.text)
        budget = max(MINIMUM_BUDGET, int(share * ask.picture.tokens))
        start = time.perf_counter()
        reduced = method(host, ask, question.question, budget)
        seconds.append(time.perf_counter() - start)
        if question.boxes:
            boxes = evidence(question.boxes, scene.image.size, ask.picture.grid)
            covered[question.kind].append(float((boxes * reduced.kept).sum() / boxes.sum()))
        waiting.append((reduced, question))
        if len(waiting) == BATCH:
            _answer(host, waiting, right)
            waiting = []
    _answer(host, waiting, right)
    return {
        "n": len(questions),
        "accuracy": _means(right),
        "coverage": _means(covered),
        "p50": round(float(np.percentile(seconds, 50)), 4),
        "p95": round(float(np.percentile(seconds, 95)), 4),
    }


def _answer(
    host: ARRCOCQwen,
    waiting: Sequence[tuple[Reduced, TrainingQuestion]],
    right: dict[str, list[bool]],
) -> None:
    """Answer the questions together, and add to `right`, by kind, whether each answer is true."""
    if not waiting:
        return
    prompts = [reduced.prompt for reduced, _ in waiting]
    tokens = [held_tokens(reduced) for reduced, _ in waiting]
    with torch.inference_mode():
        answers = answer_batch(host, prompts, tokens, MAX_NEW_TOKENS)
    for answer, (_, question) in zip(answers, waiting):
        right[question.kind].append(score_exact(answer.text, question.answer))


def _means(values: dict[str, list]) -> dict[str, Any]:
    """The mean of each kind and, over those, `mean`; None without any."""
    kinds = {kind: round(float(np.mean(v)), 3) for kind, v in sorted(values.items())}
    return {"mean": round(float(np.mean(list(kinds.values()))), 4) if kinds else None, **kinds}
