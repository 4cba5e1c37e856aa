"""What training gained, on development scenes: right answers and evidence kept, with and without it.

A quick look at the end of a run; `python -m arr_coc.evaluate` is the measurement.
"""

import time
from collections import Counter, defaultdict
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from arr_coc.components import Components
from arr_coc.config import NO_REVISION, Config
from arr_coc.peers.ours import ARRCOC
from arr_coc.qwen import batch
from arr_coc.qwen.model import ARRCOCQwen
from arr_coc.scenes import questions as scenes_questions
from arr_coc.scenes import scene as scenes_scene
from arr_coc.scoring import score_exact
from arr_coc.train import data

SHARES = (0.05, 0.1, 0.2)
BATCH = 24
MAX_NEW_TOKENS = 6
TRIED = 60  # scenes per question wanted, after which a rare kind is left as it is


def questions(n: int, first_seed: int, kinds=None) -> list[tuple[scenes_scene.Scene, data.Asked]]:
    """`n` questions per kind, of scenes from `first_seed` on."""
    kinds = tuple(kinds or scenes_questions.KINDS)
    count: Counter[str] = Counter()
    found = []
    for seed in range(first_seed, first_seed + TRIED * n):
        if all(count[kind] >= n for kind in kinds):
            break
        scene = scenes_scene.make_scene(seed)
        for q in scene.questions:
            if q.kind in kinds and count[q.kind] < n:
                count[q.kind] += 1
                asked = data.Asked(q.text, q.answer, q.kind, q.boxes)
                found.append((scene, asked))
    return found


def compare(
    host: ARRCOCQwen,
    parts: Components,
    n: int,
    first_seed: int,
    kinds=None,
    shares=SHARES,
    config: Config = Config(),
) -> dict[str, Any]:
    """Accuracy, coverage and seconds by method and share of tokens.

    Args:
        host: the base; its own policies are put back afterwards.
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
    asked, before = questions(n, first_seed, kinds), host.policies
    host.policies = {"learned": parts}
    try:
        return {
            f"{share:g}": {
                "training-free": _measure(host, asked, share, config, NO_REVISION),
                "learned": _measure(host, asked, share, config, "learned"),
            }
            for share in shares
        }
    finally:
        host.policies = before


def _measure(host, asked, share, config, revision) -> dict[str, Any]:
    method = ARRCOC(replace(config, revision=revision))
    right, covered, seconds, waiting = defaultdict(list), defaultdict(list), [], []
    for scene, one in asked:
        ask = host.prepare(scene.image, one.text)
        budget = max(4, int(share * ask.picture.tokens))
        start = time.perf_counter()
        reduced = method(host, ask, one.question, budget)
        seconds.append(time.perf_counter() - start)
        if one.boxes:
            boxes = data.evidence(one, scene.image.size, ask.picture.grid)
            covered[one.kind].append(float((boxes * reduced.kept).sum() / boxes.sum()))
        waiting.append((reduced, one))
        if len(waiting) == BATCH:
            _answer(host, waiting, right)
    _answer(host, waiting, right)
    return {
        "n": len(asked),
        "accuracy": _means(right),
        "coverage": _means(covered),
        "p50": round(float(np.percentile(seconds, 50)), 4),
        "p95": round(float(np.percentile(seconds, 95)), 4),
    }


def _answer(host, waiting: list, right: dict[str, list[bool]]) -> None:
    if not waiting:
        return
    with torch.inference_mode():
        answers = batch.answer_batch(
            host,
            [reduced.prompt for reduced, _ in waiting],
            [batch.held_tokens(reduced) for reduced, _ in waiting],
            MAX_NEW_TOKENS,
        )
    for answer, (_, one) in zip(answers, waiting):
        right[one.kind].append(score_exact(answer.text, one.answer))
    waiting.clear()


def _means(values: dict[str, list]) -> dict[str, Any]:
    kinds = {kind: round(float(np.mean(v)), 3) for kind, v in sorted(values.items())}
    return {"mean": round(float(np.mean(list(kinds.values()))), 4) if kinds else None, **kinds}
