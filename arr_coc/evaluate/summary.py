"""The summary of an evaluation: rows in, a plain dict for `summary.json` out.

Every accuracy is a mean over kinds of the accuracy on that kind (with equal numbers of questions
the plain mean), with its n and a 95 % bootstrap interval. Differences between two methods are taken
on the questions that both answered, at the same budget, with the same resamples.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from arr_coc.evaluate.stats import Bootstrap, estimate, over_kinds
from arr_coc.evaluate.store import FULL, Pair

OURS = "arr-coc"
LOOKING = ("coverage", "covered_area", "pointing", "own_auc")
KEPT_FLOOR = 0.05  # stock accuracy under which a share of it says nothing


@dataclass(frozen=True)
class Grid:
    """Rows of one scale of detail as arrays: questions in rows, pairs of method and budget by name."""

    kind_names: tuple[str, ...]
    kinds: np.ndarray  # (Q,)
    pictures: np.ndarray  # (Q,)
    values: dict[Pair, dict[str, np.ndarray]]  # (Q,) float64 per column, NaN where there is none

    @property
    def budgets(self) -> list[float]:
        """Budgets of the reducing methods, rising."""
        return sorted({budget for method, budget in self.values if method != FULL[0]})


def grids(table: pa.Table) -> dict[float, Grid]:
    """The rows of each scale of detail."""
    details = table.column("detail").to_numpy()
    return {float(d): _grid(table.filter(pa.array(details == d))) for d in np.unique(details)}


def _grid(table: pa.Table) -> Grid:
    text = {name: table.column(name).to_pylist() for name in ("picture", "kind", "method")}
    index, budgets = table.column("index").to_pylist(), table.column("budget").to_pylist()
    questions: dict[tuple, int] = {}
    row_question = np.array(
        [questions.setdefault(k, len(questions)) for k in zip(text["picture"], index)]
    )
    pictures: dict[str, int] = {}
    kinds = {kind: i for i, kind in enumerate(dict.fromkeys(text["kind"]))}
    of_picture, of_kind = (np.zeros(len(questions), int) for _ in range(2))
    for question, picture, kind in zip(row_question, text["picture"], text["kind"]):
        of_picture[question] = pictures.setdefault(picture, len(pictures))
        of_kind[question] = kinds[kind]
    columns = {
        name: table.column(name).to_numpy(zero_copy_only=False).astype(float)
        for name in ("right", "anls", "entropy", "tokens", "native", *LOOKING)
    }
    by_pair: dict[Pair, list[int]] = {}
    for row, pair in enumerate(zip(text["method"], budgets)):
        by_pair.setdefault(pair, []).append(row)
    values = {}
    for pair, rows in by_pair.items():
        values[pair] = {name: np.full(len(questions), np.nan) for name in columns}
        for name, column in columns.items():
            values[pair][name][row_question[rows]] = column[rows]
    return Grid(tuple(kinds), of_kind, of_picture, values)


def summarise(table: pa.Table, floor: float) -> dict[str, Any]:
    """Everything the rows say.

    Args:
        table: as `store.SCHEMA`.
        floor: kinds on which stock is right less often are reported, but left out of the overall.

    Returns:
        `methods`, one entry per scale of detail, method and budget; `pairs`, ARR-COC against each
        peer; `kinds`, the n and stock accuracy of each and whether it counts.
    """
    report: dict[str, Any] = {"kinds": [], "methods": [], "pairs": []}
    for detail, grid in grids(table).items():
        judged = Judged(grid, detail, floor)
        report["kinds"] += judged.kind_entries()
        report["methods"] += [judged.entry(pair) for pair in grid.values]
        report["pairs"] += judged.pairs()
    return report


class Judged:
    """One scale of detail, with its resamples."""

    def __init__(self, grid: Grid, detail: float, floor: float) -> None:
        self.grid, self.detail = grid, detail
        self.bootstrap = Bootstrap(grid.pictures, grid.kinds)
        self.right = {p: self.bootstrap.means(v["right"]) for p, v in grid.values.items()}
        stock = self.right.get(FULL)
        self.counted = [
            i for i in range(len(grid.kind_names)) if stock is None or not stock[0, i] < floor
        ]

    def kind_entries(self) -> list[dict[str, Any]]:
        """The kinds, and whether they count."""
        stock = self.right.get(FULL)
        return [
            {
                "kind": kind,
                "detail": self.detail,
                "n": int((self.grid.kinds == i).sum()),
                "stock": None if stock is None else estimate(stock[:, i]),
                "counts": i in self.counted,
            }
            for i, kind in enumerate(self.grid.kind_names)
        ]

    def entry(self, pair: Pair) -> dict[str, Any]:
        """One method at one budget."""
        values = self.grid.values[pair]
        there = ~np.isnan(values["right"])
        entry = {
            "method": pair[0],
            "budget": pair[1],
            "detail": self.detail,
            "tokens": round(float(np.mean(values["tokens"][there])), 2),
            "share": round(float(np.mean((values["tokens"] / values["native"])[there])), 4),
            "overall": self._with_n(over_kinds(self.right[pair], self.counted), there),
            "kinds": self._by_kind(self.right[pair], there),
            "entropy_auc": self.entropy_auc(values),
        }
        for name in LOOKING:
            entry[name] = self._pooled(values[name])
        if not np.isnan(values["anls"]).all():
            entry["anls"] = self._pooled(values["anls"])
        if FULL in self.grid.values and pair != FULL:
            entry["against_stock"] = self.difference(pair, FULL)
        return entry

    def pairs(self) -> list[dict[str, Any]]:
        """ARR-COC minus each other method at the same budget."""
        entries = []
        for ours in [p for p in self.grid.values if p[0] == OURS]:
            for other in [p for p in self.grid.values if p[1] == ours[1] and p != ours]:
                entry = {"budget": ours[1], "detail": self.detail, "against": other[0]}
                entries.append(entry | self.difference(ours, other))
        return entries

    def difference(self, one: Pair, other: Pair) -> dict[str, Any]:
        """Paired difference in accuracy, overall and by kind, and the share of `other` that is kept.

        Also the paired difference in coverage, over the questions with small boxes.
        """
        a, b = (self.grid.values[p]["right"] for p in (one, other))
        both = ~np.isnan(a) & ~np.isnan(b)
        means = self.bootstrap.means(a - b)
        left, right = (
            over_kinds(self.bootstrap.means(np.where(both, v, np.nan)), self.counted)
            for v in (a, b)
        )
        kept = None
        if right[0] > KEPT_FLOOR:
            with np.errstate(invalid="ignore", divide="ignore"):
                kept = estimate(left / right)
        overall = self._with_n(over_kinds(means, self.counted), both)
        covered = (self.grid.values[p]["coverage"] for p in (one, other))
        coverage = self._pooled(np.subtract(*covered))
        kinds = self._by_kind(means, both)
        return {"overall": overall, "kinds": kinds, "kept": kept, "coverage": coverage}

    def _with_n(self, replicates: np.ndarray, there: np.ndarray) -> dict[str, Any] | None:
        n = int((there & np.isin(self.grid.kinds, self.counted)).sum())
        found = estimate(replicates)
        return found and found | {"n": n}

    def _by_kind(self, means: np.ndarray, there: np.ndarray) -> dict[str, Any]:
        found = {}
        for i, kind in enumerate(self.grid.kind_names):
            if one := estimate(means[:, i]):
                found[kind] = one | {"n": int((there & (self.grid.kinds == i)).sum())}
        return found

    def entropy_auc(self, values: dict[str, np.ndarray]) -> dict[str, Any] | None:
        """How well the first token's entropy tells wrong answers from right ones of the same kind.

        The mean over the counted kinds that have both.
        """
        right = values["right"]
        by_kind, wrong = [], 0
        for kind in self.counted:
            of_kind = (self.grid.kinds == kind) & ~np.isnan(right)
            bad, good = ((of_kind & side).nonzero()[0] for side in (right < 0.5, right >= 0.5))
            if len(bad) and len(good):
                by_kind.append(self.bootstrap.auc(values["entropy"], bad, good))
                wrong += len(bad)
        if not by_kind:
            return None
        found = estimate(np.nanmean(by_kind, 0))
        return found | {"wrong": wrong, "kinds": len(by_kind)}

    def _pooled(self, values: np.ndarray) -> dict[str, Any] | None:
        """The plain mean over the questions that have a value."""
        if np.isnan(values).all():
            return None
        found = estimate(self.bootstrap.means(values, pooled=True)[:, 0])
        return found and found | {"n": int((~np.isnan(values)).sum())}
