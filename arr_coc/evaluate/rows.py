"""One row per question, method and budget: the answer, whether it is right, and where was looked.

Also keeps the rows on disk: `rows.parquet`, and beside it one part per finished block while a run
is going on. Timing is not taken here: work is shared between methods (see `timing`).
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from arr_coc import config
from arr_coc.config import MINIMUM_BUDGET
from arr_coc.evaluate.questions import Box, Item
from arr_coc.evaluate.stats import auc, box_cells
from arr_coc.evaluate.store import Pair
from arr_coc.qwen import batch as qwen_batch
from arr_coc.qwen import encoding
from arr_coc.qwen.inputs import Ask
from arr_coc.qwen.model import ARRCOCQwen
from arr_coc.scoring import anls, score_exact, vqa_accuracy

SMALL_BOXES = 0.10  # of the picture: larger evidence says nothing about where was looked
# Methods that see the picture alone: one reduction serves all questions about it.
BLIND = ("uniform", "centre", "pixelprune", "visionzip", "divprune", "dart")
LISTENERS = ("visionzip",)  # methods that hook the encoder, so that it must really run
RESIZERS = ("downsample",)  # methods that lay out a prompt of their own, around another picture


class RememberingHost(ARRCOCQwen):
    """A host that encodes a whole picture once for all methods that want all of it."""

    remembers = False
    remembered: dict[int, tuple[Any, Any]]

    def forget(self) -> None:
        """Start anew, with other pictures."""
        self.remembered = {}

    def encode(self, picture, realization):
        """As the base; whole encodes are remembered, and cut from memory."""
        if not self.remembers or (realization and realization.config.prune == "before"):
            return super().encode(picture, realization)
        if id(picture) not in self.remembered:
            # The picture is kept too: its id stays its own.
            self.remembered[id(picture)] = picture, super().encode(picture, None)
        tokens = self.remembered[id(picture)][1]
        return encoding.cut(tokens, realization.allocation) if realization else tokens


def budget_tokens(share: float, available: int) -> int:
    """A share of an image's tokens as a budget, at least the smallest that ARR-COC takes."""
    least = min(MINIMUM_BUDGET, available)
    return max(least, config.tokens_for_share(share, available))


def measure_items(
    host: RememberingHost,
    methods: dict[str, Any],
    items: Sequence[Item],
    pending: Sequence[frozenset[Pair]],
    *,
    dataset: str,
    scoring: str,
    batch: int,
    max_new_tokens: int,
) -> list[dict[str, Any]]:
    """Rows for every item and every pair of method and budget that is pending for it.

    Args:
        host: encodes each picture once for all methods, a batch of questions at a time.
        methods: `peers.Method` by name.
        items: questions, those about one picture side by side.
        pending: per item, the pairs to measure.
        dataset: name for the rows.
        scoring: "exact" or "vqa".
        batch: questions answered at once.
        max_new_tokens: per answer.

    Raises:
        RuntimeError: where ARR-COC fell back: its rows would not be its own.
    """
    rows = []
    whole = list(zip(items, pending, strict=True))
    for start in range(0, len(whole), batch):
        group = whole[start : start + batch]
        host.forget()
        asks = _asks(host, [item for item, _ in group])
        for pair in sorted(set().union(*(pairs for _, pairs in group))):
            chosen = [(item, ask) for (item, pairs), ask in zip(group, asks) if pair in pairs]
            rows += _measure(host, methods[pair[0]], pair, chosen, scoring, max_new_tokens)
    return [{"dataset": dataset, **row} for row in rows]


def _asks(host, items: Sequence[Item]) -> list[Ask]:
    """One prepared picture for all questions about it."""
    pictures: dict[int, Any] = {}
    asks = []
    for item in items:
        if id(item.image) not in pictures:
            pictures[id(item.image)] = host.picture(item.image)
        picture = pictures[id(item.image)]
        asks.append(Ask(picture, host.prompt(picture, item.text)))
    return asks


def _measure(host, method, pair: Pair, chosen, scoring: str, max_new_tokens: int) -> list[dict]:
    name, share = pair
    host.remembers = name not in LISTENERS
    with torch.inference_mode():
        reduced = _reduced(host, method, pair, chosen)
        check_fallback(name, reduced)
        held = [qwen_batch.held_tokens(r) for r in reduced]
        prompts = [r.prompt for r in reduced]
        answers = qwen_batch.answer_batch(host, prompts, held, max_new_tokens)
    rows = []
    for (item, ask), one, tokens, answer in zip(chosen, reduced, held, answers, strict=True):
        rows.append(
            {
                "picture": item.ref.picture,
                "index": item.ref.index,
                "detail": item.ref.detail,
                "kind": item.kind,
                "question": item.question,
                "truth": "|".join(item.truths),
                "method": name,
                "budget": share,
                "answer": answer.text,
                "entropy": answer.entropy,
                "tokens": len(tokens),
                "native": ask.picture.tokens,
            }
            | scored(answer.text, item.truths, scoring)
            | looked(one.kept.numpy(), one.score, item)
        )
    return rows


def _reduced(host, method, pair: Pair, chosen) -> list[Any]:
    """A `peers.Reduced` per question; a blind method runs once per picture."""
    name, share = pair
    known: dict[int, Any] = {}
    reduced = []
    for item, ask in chosen:
        one = known.get(id(ask.picture)) if name in BLIND else None
        if one is None:
            one = method(host, ask, handed(name, item), budget_tokens(share, ask.picture.tokens))
            known[id(ask.picture)] = one
        reduced.append(replace(one, prompt=ask.prompt) if name in BLIND else one)
    return reduced


def handed(name: str, item: Item) -> str:
    """What a method is told of a question: the question alone, unless it asks the model itself."""
    return item.text if name in RESIZERS else item.question


def check_fallback(name: str, reduced: Iterable[Any]) -> None:
    """Raise RuntimeError where a method's realization fell back to an even spread."""
    for one in reduced:
        if one.realization is not None and one.realization.fallback:
            raise RuntimeError(f"{name} fell back: {one.realization.fallback}")


def scored(answer: str, truths: Sequence[str], scoring: str) -> dict[str, float | None]:
    """`right` and, for VQA data, `anls` of an answer."""
    if scoring == "exact":
        return {"right": float(score_exact(answer, truths[0])), "anls": None}
    return {"right": vqa_accuracy(answer, truths), "anls": anls(answer, truths)}


def looked(kept: np.ndarray, score: torch.Tensor | None, item: Item) -> dict[str, float | None]:
    """Where a method looked, against the boxes that hold the answer.

    `coverage` counts native cells that a box touches, `covered_area` weighs them by how much of
    the box they hold. All are None without boxes, or with boxes over `SMALL_BOXES` of the picture.
    """
    nothing = dict.fromkeys(("coverage", "covered_area", "pointing", "own_auc"))
    own = _small(item.boxes, item.image.size, kept.shape)
    if own is None:
        return nothing
    native = kept >= 1
    found = nothing | {
        "coverage": float(native[own > 0].mean()),
        "covered_area": float((own * native).sum() / own.sum()),
    }
    if score is None:
        return found
    values = score.numpy()
    found["pointing"] = float(own.flat[values.argmax()] > 0)
    found["own_auc"] = own_against_other(values, own, item)
    return found


def own_against_other(values: np.ndarray, own: np.ndarray, item: Item) -> float | None:
    """Mean AUC of the score on the own target's cells against each other question's target.

    Only targets that are small and share no cell with the own one count; None where there is none.
    """
    found = []
    for boxes in dict.fromkeys(item.others):
        other = _small(boxes, item.image.size, values.shape)
        if other is not None and not ((own > 0) & (other > 0)).any():
            found.append(auc(values[own > 0], values[other > 0]))
    return float(np.mean(found)) if found else None


def _small(boxes: Sequence[Box], size: tuple[int, int], grid: tuple) -> np.ndarray | None:
    area = sum((x1 - x0) * (y1 - y0) for x0, y0, x1, y1 in boxes)
    if not 0 < area <= SMALL_BOXES * size[0] * size[1]:
        return None
    cells = box_cells(boxes, size, grid)
    return cells if cells.any() else None
