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
from arr_coc.peers.names import OURS

BOX_MEASURES = ("coverage", "covered_area", "pointing", "own_auc")
# Of clips and several pictures; the second ones are also told by what the clip shows.
COHERENCE = ("cosine", "cosine_cut", "dips", "overlap", "overlap_cut")
VIEWS_MEASURES = ("seconds", "moment", "place", "on_evidence", *COHERENCE)
MEASURES = ("right", "anls", "entropy", "tokens", "native", *BOX_MEASURES, *VIEWS_MEASURES)
# What is told of methods on the questions that all of them answered.
SHARED = ("method", "against", "budget", "detail", "tokens", "share", "overall", "coverage")
SHARED += ("against_stock", "kinds")
KEPT_FLOOR = 0.05  # stock accuracy under which a share of it says nothing


@dataclass(frozen=True)
class Answers:
    """Rows of one scale of detail as arrays over its Q questions.

    Attributes:
        kind_names: of the kinds, in the order of their numbers.
        kinds, pictures: `(Q,)` whole numbers from 0: each question's kind and picture.
        values: per method and budget the columns `MEASURES`, `(Q,)` float64, NaN where there is none.
        shows: `(Q,)` what each question's clip shows; None of pictures.
    """

    kind_names: tuple[str, ...]
    kinds: np.ndarray
    pictures: np.ndarray
    values: dict[Pair, dict[str, np.ndarray]]
    shows: np.ndarray

    @property
    def budgets(self) -> list[float]:
        """Budgets of the reducing methods, rising."""
        return sorted({budget for method, budget in self.values if method != FULL[0]})


def summarise(table: pa.Table, floor: float) -> dict[str, Any]:
    """Everything the rows say.

    Args:
        table: as `store.SCHEMA`.
        floor: kinds on which stock is right less often are reported, but left out of the overall.

    Returns:
        `methods`, one entry per scale of detail, method and budget; `pairs`, ARR-COC against each
        peer; `kinds`, the n and stock accuracy of each and whether it counts; `shared`, the same of the
        questions that every method answered at a budget, where some answered more.
    """
    report: dict[str, Any] = {"kinds": [], "methods": [], "pairs": [], "shared": []}
    for detail, answers in by_detail(table).items():
        part = DetailSummary(answers, detail, floor)
        report["kinds"] += part.kinds()
        report["methods"] += [part.method(pair) for pair in answers.values]
        report["pairs"] += part.pairs()
        report["shared"] += [
            {"budget": budget, **_entries(DetailSummary(same, detail, floor))}
            for budget, same in shared(answers).items()
        ]
    return report


def _entries(part: "DetailSummary") -> dict[str, Any]:
    """What is compared between methods."""
    methods = [part.method(pair) for pair in part.answers.values]
    for entry in methods:
        if "against_stock" in entry:
            entry["against_stock"] = {"overall": entry["against_stock"]["overall"]}
    return {
        "kinds": part.kinds(),
        "methods": [{key: e[key] for key in SHARED if key in e} for e in methods],
        "pairs": [{key: e[key] for key in SHARED if key in e} for e in part.pairs()],
    }


def shared(answers: Answers) -> dict[float, Answers]:
    """By budget what all its methods and stock answered; only where one of them answered more."""
    found = {}
    for budget in answers.budgets:
        pairs = [pair for pair in answers.values if pair == FULL or pair[1] == budget]
        given = np.array([~np.isnan(answers.values[pair]["right"]) for pair in pairs])
        every = given.all(0)
        if every.any() and given.sum(1).max() > every.sum():
            values = {
                pair: {name: column[every] for name, column in answers.values[pair].items()}
                for pair in pairs
            }
            kinds, pictures = (
                np.unique(own[every], return_inverse=True)
                for own in (answers.kinds, answers.pictures)
            )
            names = tuple(answers.kind_names[i] for i in kinds[0])
            shows = answers.shows[every]
            found[budget] = Answers(names, kinds[1], pictures[1], values, shows)
    return found


def comparable(report: dict[str, Any]) -> list[dict[str, Any]]:
    """The entries of `methods`, of a budget's shared questions where some methods answered more.

    Stock's is that of the fewest questions.
    """
    shares = {(part["budget"], e["detail"], e["method"]): e
              for part in report.get("shared", []) for e in part["methods"]}  # fmt: skip
    found = []
    for entry in report["methods"]:
        if entry["method"] == FULL[0]:
            own = [e for (_, detail, method), e in shares.items()
                   if (detail, method) == (entry["detail"], entry["method"])]  # fmt: skip
            found.append(min([entry, *own], key=lambda e: (e["overall"] or {"n": 0})["n"]))
        else:
            key = entry["budget"], entry["detail"], entry["method"]
            found.append(shares.get(key, entry))
    return found


def same_questions(report: dict[str, Any], budget: float) -> dict[str, Any]:
    """The report of what every method was asked at a budget, where some were asked more."""
    shared = [part for part in report.get("shared", []) if part["budget"] == budget]
    return report | (shared[0] if shared else {})


def by_detail(table: pa.Table) -> dict[float, Answers]:
    """The rows of each scale of detail; the table is as `store.SCHEMA`."""
    details = table.column("detail").to_numpy()
    return {float(d): _answers(table.filter(pa.array(details == d))) for d in np.unique(details)}


def _answers(table: pa.Table) -> Answers:
    picture_names, kinds, methods, index, budgets, shows = (
        table.column(name).to_pylist()
        for name in ("picture", "kind", "method", "index", "budget", "shows")
    )
    questions: dict[tuple[str, int], int] = {}
    question_of_row = np.array(
        [questions.setdefault(key, len(questions)) for key in zip(picture_names, index)]
    )
    pictures: dict[str, int] = {}
    kind_numbers = {kind: i for i, kind in enumerate(dict.fromkeys(kinds))}
    picture_of, kind_of = (np.zeros(len(questions), int) for _ in range(2))
    shown = np.full(len(questions), None, object)
    shown[question_of_row] = shows
    for question, picture, kind in zip(question_of_row, picture_names, kinds):
        picture_of[question] = pictures.setdefault(picture, len(pictures))
        kind_of[question] = kind_numbers[kind]
    columns = {
        name: table.column(name).to_numpy(zero_copy_only=False).astype(float) for name in MEASURES
    }
    rows_of: dict[Pair, list[int]] = {}
    for row, pair in enumerate(zip(methods, budgets)):
        rows_of.setdefault(pair, []).append(row)
    values = {}
    for pair, rows in rows_of.items():
        values[pair] = {name: np.full(len(questions), np.nan) for name in columns}
        for name, column in columns.items():
            values[pair][name][question_of_row[rows]] = column[rows]
    return Answers(tuple(kind_numbers), kind_of, picture_of, values, shown)


class DetailSummary:
    """The entries of one scale of detail, all over the same resamples."""

    def __init__(self, answers: Answers, detail: float, floor: float) -> None:
        """`floor` as in `summarise`."""
        self.answers, self.detail = answers, detail
        self.bootstrap = Bootstrap(answers.pictures, answers.kinds)
        right = {pair: self.bootstrap.means(v["right"]) for pair, v in answers.values.items()}
        self.right = right  # (1 + R, kinds) each
        stock = right.get(FULL)
        self.counted = [
            i for i in range(len(answers.kind_names)) if stock is None or not stock[0, i] < floor
        ]

    def kinds(self) -> list[dict[str, Any]]:
        """The kinds, and whether they count."""
        stock = self.right.get(FULL)
        return [
            {
                "kind": kind,
                "detail": self.detail,
                "n": int((self.answers.kinds == i).sum()),
                "pictures": len(np.unique(self.answers.pictures[self.answers.kinds == i])),
                "stock": None if stock is None else estimate(stock[:, i]),
                "counts": i in self.counted,
            }
            for i, kind in enumerate(self.answers.kind_names)
        ]

    def method(self, pair: Pair) -> dict[str, Any]:
        """One method at one budget, on the questions that it answered."""
        values = self.answers.values[pair]
        answered = ~np.isnan(values["right"])
        shares = values["tokens"] / values["native"]
        entry = {
            "method": pair[0],
            "budget": pair[1],
            "detail": self.detail,
            "tokens": round(float(np.mean(values["tokens"][answered])), 2),
            "share": round(float(np.mean(shares[answered])), 4),
            "overall": self._overall(self.right[pair], answered),
            "kinds": self._each_kind(self.right[pair], answered),
            "entropy_auc": self.entropy_auc(values),
        }
        for name in BOX_MEASURES:
            entry[name] = self._pooled(values[name])
        for name in ("anls", *VIEWS_MEASURES):
            if not np.isnan(values[name]).all():
                entry[name] = self._pooled(values[name])
        if coherence := self.coherence(values):
            entry["coherence"] = coherence
        if FULL in self.answers.values and pair != FULL:
            entry["against_stock"] = self.difference(pair, FULL)
        return entry

    def pairs(self) -> list[dict[str, Any]]:
        """ARR-COC minus each other method at the same budget."""
        entries = []
        for ours in [pair for pair in self.answers.values if pair[0] == OURS]:
            for other in [p for p in self.answers.values if p[1] == ours[1] and p != ours]:
                entry = {"budget": ours[1], "detail": self.detail, "against": other[0]}
                entries.append(entry | self.difference(ours, other))
        return entries

    def difference(self, one: Pair, other: Pair) -> dict[str, Any]:
        """Paired differences between two methods, on the questions that both answered.

        Returns:
            `overall` and `kinds`, the difference in accuracy; `kept`, the share of the other's accuracy
            that is kept (None where that is under `KEPT_FLOOR`); `coverage`, the difference in coverage,
            over the questions with small boxes.
        """
        first, second = self.answers.values[one], self.answers.values[other]
        both = ~np.isnan(first["right"]) & ~np.isnan(second["right"])
        means = self.bootstrap.means(first["right"] - second["right"])
        accuracy, other_accuracy = (
            over_kinds(self.bootstrap.means(np.where(both, v["right"], np.nan)), self.counted)
            for v in (first, second)
        )
        kept = None
        if other_accuracy[0] > KEPT_FLOOR:
            with np.errstate(invalid="ignore", divide="ignore"):
                kept = estimate(accuracy / other_accuracy)
        return {
            "overall": self._overall(means, both),
            "kinds": self._each_kind(means, both),
            "kept": kept,
            "coverage": self._pooled(first["coverage"] - second["coverage"]),
        }

    def coherence(self, values: dict[str, np.ndarray]) -> dict[str, dict[str, Any]]:
        """The measures `COHERENCE` by what the clips show; those that have none are left out."""
        found: dict[str, dict[str, Any]] = {}
        for shown in sorted({own for own in self.answers.shows if own}):
            here = self.answers.shows == shown
            each = {name: self._pooled(np.where(here, values[name], np.nan)) for name in COHERENCE}
            if given := {name: own for name, own in each.items() if own}:
                found[shown] = given
        return found

    def entropy_auc(self, values: dict[str, np.ndarray]) -> dict[str, Any] | None:
        """How well the first token's entropy separates wrong answers from right ones of the same kind.

        The mean over the counted kinds that have both; None where none has.
        """
        right, by_kind, n_wrong = values["right"], [], 0
        for kind in self.counted:
            answered = (self.answers.kinds == kind) & ~np.isnan(right)
            wrong_ones = (answered & (right < 0.5)).nonzero()[0]
            right_ones = (answered & (right >= 0.5)).nonzero()[0]
            if len(wrong_ones) and len(right_ones):
                by_kind.append(self.bootstrap.auc(values["entropy"], wrong_ones, right_ones))
                n_wrong += len(wrong_ones)
        if not by_kind:
            return None
        auc = estimate(over_kinds(np.stack(by_kind, 1), range(len(by_kind))))
        return auc | {"wrong": n_wrong, "kinds": len(by_kind)}

    def _overall(self, means: np.ndarray, answered: np.ndarray) -> dict[str, Any] | None:
        """The mean over the counted kinds of `(1 + R, kinds)` means."""
        n = int((answered & np.isin(self.answers.kinds, self.counted)).sum())
        overall = estimate(over_kinds(means, self.counted))
        return overall and overall | {"n": n}

    def _each_kind(self, means: np.ndarray, answered: np.ndarray) -> dict[str, Any]:
        """Those of `(1 + R, kinds)` means that have a value, by the name of the kind."""
        kinds = {}
        for i, kind in enumerate(self.answers.kind_names):
            if one := estimate(means[:, i]):
                kinds[kind] = one | {"n": int((answered & (self.answers.kinds == i)).sum())}
        return kinds

    def _pooled(self, values: np.ndarray) -> dict[str, Any] | None:
        """The plain mean of `(Q,)` over the questions that have a value."""
        if np.isnan(values).all():
            return None
        mean = estimate(self.bootstrap.means(values, pooled=True)[:, 0])
        return mean and mean | {"n": int((~np.isnan(values)).sum())}
