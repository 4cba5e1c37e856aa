"""One row per question, method and budget: the answer, whether it is right, and where was looked.

Also keeps the rows on disk: `rows.parquet`, and beside it one part per finished block while a run
is going on. Timing is not taken here: work is shared between methods (see `evaluate_time`).
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch

from arr_coc import attending, evaluate_answer, qwen_encode
from arr_coc.evaluate_data import Box, Item, Ref
from arr_coc.evaluate_stats import anls, auc, box_cells, vqa_accuracy
from arr_coc.qwen import ARRCOCQwen, Ask
from arr_coc.realizing import MINIMUM_BUDGET

FULL = ("stock", 1.0)  # the pair of the stock model: it knows no budget
SMALL_BOXES = 0.10  # of the picture: larger evidence says nothing about where was looked
# Methods that see the picture alone: one reduction serves all questions about it.
BLIND = ("uniform", "centre", "pixelprune", "visionzip", "divprune", "dart")
LISTENERS = ("visionzip",)  # methods that hook the encoder, so that it must really run
RESIZERS = ("downsample",)  # methods that lay out a prompt of their own, around another picture

SCHEMA = pa.schema(
    [
        ("dataset", pa.string()),
        ("picture", pa.string()),  # of a scene: its seed
        ("index", pa.int32()),
        ("detail", pa.float64()),
        ("kind", pa.string()),
        ("question", pa.string()),
        ("truth", pa.string()),
        ("method", pa.string()),
        ("budget", pa.float64()),  # share of the native tokens that was allowed
        ("answer", pa.string()),
        ("right", pa.float32()),  # exact match, or VQA accuracy
        ("anls", pa.float32()),
        ("entropy", pa.float32()),  # of the first answer token, nats
        ("tokens", pa.int32()),
        ("native", pa.int32()),
        ("coverage", pa.float32()),  # of the cells that the boxes touch
        ("covered_area", pa.float32()),  # of the boxes' area
        ("pointing", pa.float32()),
        ("own_auc", pa.float32()),
    ]
)
KEY = ("picture", "index", "detail", "method", "budget")
Pair = tuple[str, float]


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
        return qwen_encode.cut(tokens, realization.allocation) if realization else tokens


def budget_tokens(share: float, available: int) -> int:
    """A share of an image's tokens as a budget, at least the smallest that ARR-COC takes."""
    least = min(MINIMUM_BUDGET, available)
    return max(least, attending.tokens_for_share(share, available))


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
        held = [evaluate_answer.held_tokens(r) for r in reduced]
        prompts = [r.prompt for r in reduced]
        answers = evaluate_answer.answer_batch(host, prompts, held, max_new_tokens)
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
        return {"right": float(answer.strip().lower() == truths[0].lower()), "anls": None}
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


# ----------------------------------------------------------------------------------- on disk


def write_part(out: Path, number: int, rank: int, rows: list[dict[str, Any]]) -> None:
    """Keep a finished block: written aside and renamed, so that a part is whole or not there."""
    folder = out / "parts"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{rank:02d}-{number:06d}.parquet"
    _write(table_of(rows), path)


def table_of(rows: list[dict[str, Any]]) -> pa.Table:
    """Rows as one table, as `SCHEMA`."""
    return pa.Table.from_pylist(rows, SCHEMA)


def merge_parts(out: Path) -> pa.Table:
    """All rows so far as one table, in `rows.parquet`; the parts are gone afterwards.

    A block that was measured twice counts once.
    """
    parts = sorted((out / "parts").glob("*.parquet"))
    path = out / "rows.parquet"
    tables = [pq.read_table(p, schema=SCHEMA) for p in [path, *parts] if p.exists()]
    if not tables:
        return SCHEMA.empty_table()
    table = pa.concat_tables(tables)
    if parts:
        first = {key: row for row, key in reversed(list(enumerate(keys(table))))}
        table = table.take(pa.array(sorted(first.values())))
        order = [(name, "ascending") for name in ("detail", "picture", "index", "method", "budget")]
        table = table.sort_by(order)
        _write(table, path)
        for part in parts:
            part.unlink()
    return table


def forget(out: Path, methods: Sequence[str]) -> None:
    """Drop the rows of some methods."""
    table = merge_parts(out)
    gone = pc.is_in(table.column("method"), pa.array(methods, pa.string()))
    _write(table.filter(pc.invert(gone)), out / "rows.parquet")


def read_rows(out: Path) -> pa.Table:
    """The merged rows; none yet is an empty table."""
    path = out / "rows.parquet"
    return pq.read_table(path, schema=SCHEMA) if path.exists() else SCHEMA.empty_table()


def present_pairs(table: pa.Table) -> set[Pair]:
    """The pairs of method and budget that have rows."""
    return set(zip(table.column("method").to_pylist(), table.column("budget").to_pylist()))


def rows_of(table: pa.Table, pair: Pair) -> dict[Ref, dict[str, Any]]:
    """The rows of one method at one budget, by question."""
    chosen = pc.and_(
        pc.equal(table.column("method"), pair[0]), pc.equal(table.column("budget"), pair[1])
    )
    rows = table.filter(chosen).to_pylist()
    return {Ref(row["picture"], row["index"], row["detail"]): row for row in rows}


def _write(table: pa.Table, path: Path) -> None:
    aside = path.with_suffix(".writing")
    pq.write_table(table, aside, compression="zstd")
    aside.replace(path)


def keys(table: pa.Table) -> Iterable[tuple]:
    """The key of each row: question, method and budget."""
    return zip(*(table.column(name).to_pylist() for name in KEY))


def done_pairs(table: pa.Table) -> dict[Ref, set[Pair]]:
    """Per question, the pairs of method and budget that have a row."""
    done: dict[Ref, set[Pair]] = {}
    for picture, index, detail, method, budget in keys(table):
        done.setdefault(Ref(picture, index, detail), set()).add((method, budget))
    return done
