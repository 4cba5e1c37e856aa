"""Rows: one per question, method and budget: the answer, whether it is right, and where tokens went.

What each column means stands at `store.SCHEMA`. Nothing is timed here, because methods share the work:
see `timing`.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import torch

from arr_coc.config import Config
from arr_coc.evaluate.questions import Item
from arr_coc.evaluate.stats import auc, box_cells
from arr_coc.evaluate.store import Pair, Row
from arr_coc.evaluate.views import ViewsItem
from arr_coc.peers.base import Method, Reduced, SharedEncodes
from arr_coc.peers.views import ReducedViews, ViewsMethod
from arr_coc.qwen.batch import Greedy, answer_batch
from arr_coc.qwen.inputs import Ask
from arr_coc.qwen.model import ARRCOCQwen
from arr_coc.scenes.drawing import Box
from arr_coc.scoring import anls, score_exact, vqa_accuracy

# Share of the picture: larger evidence says nothing about where tokens went.
SMALL_BOXES = 0.10


def measure_items(
    host: ARRCOCQwen,
    methods: dict[str, Method],
    items: Sequence[Item],
    pending: Sequence[frozenset[Pair]],
    *,
    dataset: str,
    scoring: str,
    batch: int,
    max_new_tokens: int,
) -> list[Row]:
    """Rows for every item and every pair of method and budget that is pending for it.

    Args:
        host: the base with its weights.
        methods: by name. Within a batch of questions all of them share each picture's whole encode.
        items: questions, those about one picture side by side.
        pending: per item, the pairs to measure.
        dataset: name for the rows.
        scoring: "exact" or "vqa".
        batch: questions answered at once.
        max_new_tokens: per answer.

    Raises:
        RuntimeError: where ARR-COC fell back: its rows would not be its own.
        ValueError: where the model's numbers overflow, in the widest dtype too.
    """
    rows = []
    work = list(zip(items, pending, strict=True))
    for start in range(0, len(work), batch):
        group, encodes = work[start : start + batch], SharedEncodes()
        asks = host.prepare_each(*zip(*((item.image, item.text) for item, _ in group)))
        for pair in sorted(set().union(*(pairs for _, pairs in group))):
            name, share = pair
            questions = [(item, ask) for (item, pairs), ask in zip(group, asks) if pair in pairs]
            reduce = partial(_reduce_all, host, methods[name], share, questions, encodes)
            with torch.inference_mode():
                reduced, answers = host.once_more_if_narrow(
                    partial(_answered, host, reduce, max_new_tokens)
                )
            check_fallback(name, reduced)
            for (item, ask), one, answer in zip(questions, reduced, answers, strict=True):
                row = {"dataset": dataset, **columns_of(item), "method": name, "budget": share}
                row |= {"answer": answer.text, "entropy": answer.entropy}
                row |= {"tokens": one.visual_tokens, "native": ask.picture.tokens}
                row |= score_answer(answer.text, item.truths, scoring)
                rows.append(row | box_measures(one.kept.numpy(), one.score, item))
    return rows


def budget_tokens(share: float, native_tokens: int) -> int:
    """A share of an image's tokens as a budget, at least the smallest that ARR-COC takes."""
    return Config(share=share).tokens(native_tokens)


def question_for(method: Method | ViewsMethod, item: Item | ViewsItem) -> str:
    """What a method is given: the question alone, or the whole text where it lays out the prompt."""
    return item.text if method.resizes else item.question


def check_fallback(name: str, reduced: Iterable[Reduced | ReducedViews]) -> None:
    """Raise RuntimeError where a method's realization fell back to an even spread."""
    for one in reduced:
        if one.realization is not None and one.realization.fallback:
            raise RuntimeError(f"{name} fell back: {one.realization.fallback}")


def score_answer(answer: str, truths: Sequence[str], scoring: str) -> dict[str, float | None]:
    """The columns `right` and, for "vqa" scoring, `anls` of an answer."""
    if scoring == "exact":
        return {"right": float(score_exact(answer, truths[0])), "anls": None}
    return {"right": vqa_accuracy(answer, truths), "anls": anls(answer, truths)}


def box_measures(
    kept: np.ndarray, score: torch.Tensor | None, item: Item
) -> dict[str, float | None]:
    """Where a method's tokens went, against the boxes that hold the answer.

    Args:
        kept: `(h, w)`, the share of each native place that is shown at native resolution.
        score: `(h, w)`, the method's relevance; None where it has none.
        item: with its boxes in pixels.

    Returns:
        The columns `coverage`, `covered_area`, `pointing` and `own_auc`. All are None without boxes, or
        with boxes over `SMALL_BOXES` of the picture; the last two are None without a score.
    """
    measures = dict.fromkeys(("coverage", "covered_area", "pointing", "own_auc"))
    own = _small_box_cells(item.boxes, item.image.size, kept.shape)
    if own is None:
        return measures
    native = kept >= 1
    measures["coverage"] = float(native[own > 0].mean())
    measures["covered_area"] = float((own * native).sum() / own.sum())
    if score is not None:
        values = score.numpy()
        measures["pointing"] = float(own.flat[values.argmax()] > 0)
        measures["own_auc"] = own_against_other(values, own, item)
    return measures


def own_against_other(values: np.ndarray, own: np.ndarray, item: Item) -> float | None:
    """Mean AUC of the score on the question's own cells against each other question's cells.

    Only boxes that are small and share no cell with the question's own count; None where there are none.

    Args:
        values: `(h, w)` score.
        own: `(h, w)` share of each cell that the question's own boxes cover.
        item: with the boxes of the other questions about its picture.
    """
    aucs = []
    for boxes in dict.fromkeys(item.others):
        other = _small_box_cells(boxes, item.image.size, values.shape)
        if other is not None and not ((own > 0) & (other > 0)).any():
            aucs.append(auc(values[own > 0], values[other > 0]))
    return float(np.mean(aucs)) if aucs else None


def _answered(
    host: ARRCOCQwen, reduce: Callable[[], list[Reduced]], max_new_tokens: int
) -> tuple[list[Reduced], list[Greedy]]:
    """What `reduce` gives, and the answers from it."""
    reduced = reduce()
    held, prompts = [one.held for one in reduced], [one.prompt for one in reduced]
    return reduced, answer_batch(host, prompts, held, max_new_tokens)


def _reduce_all(
    host: ARRCOCQwen,
    method: Method,
    share: float,
    questions: Sequence[tuple[Item, Ask]],
    encodes: SharedEncodes,
) -> list[Reduced]:
    """One result per question; a method that does not read the question runs once per picture."""
    by_picture: dict[int, Reduced] = {}
    results = []
    for item, ask in questions:
        result = None if method.reads_question else by_picture.get(id(ask.picture))
        if result is None:
            budget = budget_tokens(share, ask.picture.tokens)
            result = method(host, ask, question_for(method, item), budget, encodes)
            by_picture[id(ask.picture)] = result
        results.append(result if method.reads_question else replace(result, prompt=ask.prompt))
    return results


def columns_of(item: Item | ViewsItem) -> Row:
    """The columns that name a question."""
    return {
        "picture": item.ref.picture,
        "index": item.ref.index,
        "detail": item.ref.detail,
        "kind": item.kind,
        "question": item.question,
        "truth": "|".join(item.truths),
    }


def _small_box_cells(
    boxes: Sequence[Box], size: tuple[int, int], grid: tuple[int, int]
) -> np.ndarray | None:
    """`(h, w)` as `stats.box_cells`; None for no boxes, large ones, or ones that cover no cell."""
    area = sum((x1 - x0) * (y1 - y0) for x0, y0, x1, y1 in boxes)
    if not 0 < area <= SMALL_BOXES * size[0] * size[1]:
        return None
    cells = box_cells(boxes, size, grid)
    return cells if cells.any() else None
