"""Rows about clips and several pictures: the answer, what it took, and when and where tokens went.

What each column means stands at `store.SCHEMA`. Questions are asked one at a time and methods share
nothing, so that `seconds` are those to the first word; they mean something on a machine that does nothing
else, and less than a benchmark's: methods do not take turns.
"""

from collections.abc import Sequence
from functools import partial

import torch

from arr_coc.evaluate.rows import (
    budget_tokens,
    check_fallback,
    columns_of,
    question_for,
    score_answer,
)
from arr_coc.evaluate.stats import box_cells
from arr_coc.evaluate.store import Pair, Row
from arr_coc.evaluate.views import ViewsItem, cosine, dips, neighbours, overlap
from arr_coc.peers.clock import Timed, timed
from arr_coc.peers.views import ReducedViews, ViewsMethod
from arr_coc.qwen.batch import Greedy, answer_batch
from arr_coc.qwen.model import ARRCOCQwen

# Of the evidence at one moment, by area: from so much of it on it is kept.
KEPT = 0.5


def measure_views(
    host: ARRCOCQwen,
    methods: dict[str, ViewsMethod],
    items: Sequence[ViewsItem],
    pending: Sequence[frozenset[Pair]],
    *,
    dataset: str,
    scoring: str,
    max_new_tokens: int,
) -> list[Row]:
    """Rows for every item and every pair of method and budget that is pending for it.

    Arguments and errors as `rows.measure_items`.
    """
    rows = []
    for item, pairs in zip(items, pending, strict=True):
        for name, share in sorted(pairs):
            ask = partial(_answered, host, methods[name], share, item, max_new_tokens)
            found, answer = host.once_more_if_narrow(ask)
            reduced = found.reduced
            check_fallback(name, [reduced])
            row = {"dataset": dataset, **columns_of(item), "method": name, "budget": share}
            row |= {"answer": answer.text, "entropy": answer.entropy, "seconds": found.seconds}
            row |= {"tokens": reduced.visual_tokens, "native": found.ask.tokens}
            row |= {"shows": item.shows} | score_answer(answer.text, item.truths, scoring)
            row |= evidence_measures(reduced, item)
            rows.append(row | coherence_measures(reduced, item, methods[name].resizes))
    return rows


def _answered(
    host: ARRCOCQwen, method: ViewsMethod, share: float, item: ViewsItem, max_new_tokens: int
) -> tuple[Timed, Greedy]:
    """What a method made of a question, timed up to the first word, and the answer by it."""
    budget = partial(budget_tokens, share)
    question = question_for(method, item)
    found = timed(host, method, item.given, item.text, question, budget)
    with torch.inference_mode():
        reduced = found.reduced
        (answer,) = answer_batch(host, [reduced.prompt], [reduced.held], max_new_tokens)
    return found, answer


def evidence_measures(reduced: ReducedViews, item: ViewsItem) -> dict[str, float | None]:
    """Whether the moments that hold the answer were kept, and its places at native resolution.

    Returns:
        The columns `moment`, `place`, `covered_area` and `on_evidence`; all None where everything is
        evidence, the last one also where every moment holds some of it, or nothing was kept natively.
    """
    measures = dict.fromkeys(("moment", "place", "covered_area", "on_evidence"))
    boxes, kept = item.boxes(), [own.numpy() for own in reduced.kept]
    if not boxes:
        return measures
    sizes = item.sizes * (1 if len(item.sizes) > 1 else len(kept))
    covered = []
    for number, own in boxes.items():
        cells = box_cells(own, sizes[number], kept[number].shape)
        covered.append(float((cells * (kept[number] >= 1)).sum() / cells.sum()))
    shown = reduced.shown or [own.any() for own in kept]
    seen = sum(bool(shown[number]) for number in boxes)
    measures["moment"] = float(seen >= item.needed)
    measures["place"] = float(sum(share >= KEPT for share in covered) >= item.needed)
    best = sorted(covered, reverse=True)[: item.needed]
    measures["covered_area"] = sum(best) / item.needed
    every = float(sum(own.sum() for own in kept))
    if every and len(boxes) < len(kept):
        measures["on_evidence"] = float(sum(kept[number].sum() for number in boxes)) / every
    return measures


def coherence_measures(
    reduced: ReducedViews, item: ViewsItem, resizes: bool
) -> dict[str, float | None]:
    """How alike neighbouring moments of a clip are decided, within scenes and at cuts.

    Returns:
        The columns `cosine`, `cosine_cut`, `dips`, `overlap`, `overlap_cut`; None of pictures, where the
        clip has no such neighbours; the first three without relevance; all of a method that resizes.
    """
    measures = dict.fromkeys(("cosine", "cosine_cut", "dips", "overlap", "overlap_cut"))
    if item.shows is None or resizes:
        return measures
    if reduced.score is not None:
        score = [own.numpy() for own in reduced.score]
        measures["cosine"], measures["cosine_cut"] = neighbours(score, item.cuts, cosine)
        measures["dips"] = dips(score, item.cuts, cosine)
    kept = [own.numpy() for own in reduced.kept]
    measures["overlap"], measures["overlap_cut"] = neighbours(kept, item.cuts, overlap)
    return measures
