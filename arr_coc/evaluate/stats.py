"""The measures of an evaluation: which cells hold the answer, AUC, and paired bootstrap intervals.

Numpy only. Intervals are percentile bootstrap intervals over pictures: questions about one picture
stand and fall together, so a picture is drawn with all its questions. Every method meets the same
draws, so that differences between methods are paired.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

RESAMPLES = 2000
AUC_RESAMPLES = 400
AUC_AT_ONCE = 256  # questions, against all of the other side
LEVELS = (2.5, 97.5)  # percentiles of a 95 % interval
DIGITS = 4  # of what is reported

# ------------------------------------------------------------------------------------- boxes


def box_cells(
    boxes: Sequence[tuple[float, float, float, float]],
    size: tuple[int, int],
    grid: tuple[int, int],
) -> np.ndarray:
    """`(h, w)` float64: the share of each cell that the boxes cover (their sum, at most 1).

    `boxes` are (left, top, right, bottom) in pixels of a picture of `size` (width, height).
    """
    covered = np.zeros(grid)
    for left, top, right, bottom in boxes:
        rows = _overlap(top, bottom, size[1], grid[0])
        columns = _overlap(left, right, size[0], grid[1])
        covered += rows[:, None] * columns[None]
    return covered.clip(0, 1)


def _overlap(start: float, end: float, pixels: int, cells: int) -> np.ndarray:
    """`(cells,)` in [0, 1]: the share of each cell on an axis of `pixels` that lies from start to end."""
    edges = np.arange(cells + 1)
    low, high = start * cells / pixels, end * cells / pixels
    return (np.minimum(edges[1:], high) - np.maximum(edges[:-1], low)).clip(0, 1)


def auc(positive: np.ndarray, negative: np.ndarray) -> float | None:
    """Chance that a positive scores above a negative, ties half; None where one side is empty."""
    if not len(positive) or not len(negative):
        return None
    values = np.concatenate([positive, negative])
    _, index, count = np.unique(values, return_inverse=True, return_counts=True)
    rank = (np.cumsum(count) - (count - 1) / 2)[index]  # mean rank of ties, from 1
    # The rank sum of the positives, less the least it can be: how many negatives they are above.
    won = rank[: len(positive)].sum() - len(positive) * (len(positive) + 1) / 2
    return float(won / (len(positive) * len(negative)))


# --------------------------------------------------------------------------------- intervals


class Bootstrap:
    """R resamples of the pictures (`RESAMPLES`), drawn once and used for everything."""

    def __init__(self, pictures: np.ndarray, kinds: np.ndarray) -> None:
        """`pictures` and `kinds`: `(Q,)` whole numbers from 0, one per question."""
        self.pictures, self.kinds = pictures, kinds
        self.shape = (int(pictures.max()) + 1, int(kinds.max()) + 1)
        rng, count = np.random.default_rng(0), self.shape[0]
        # (1 + R, pictures): how often each picture is drawn; row 0 is the sample itself.
        self.weights = np.ones((1 + RESAMPLES, count), np.float32)
        for row in self.weights[1:]:
            row[:] = np.bincount(rng.integers(count, size=count), minlength=count)

    @classmethod
    def of(cls, pictures: Sequence[str], kinds: Sequence[str]) -> "Bootstrap":
        """Of questions by names of picture and kind, `(Q,)`; kinds in order, pictures as they come."""
        number = {name: at for at, name in enumerate(dict.fromkeys(pictures))}
        names = sorted(set(kinds))
        return cls(
            np.array([number[name] for name in pictures]),
            np.array([names.index(name) for name in kinds]),
        )

    def means(self, values: np.ndarray, *, pooled: bool = False) -> np.ndarray:
        """`(Q,)` values, NaN where there is none -> `(1 + R, kinds)` means, the sample's own first.

        `pooled` takes all kinds as one: `(1 + R, 1)`.
        """
        given = ~np.isnan(values)
        cell = self.pictures[given] * self.shape[1] + self.kinds[given]
        size = self.shape[0] * self.shape[1]
        total = np.bincount(cell, values[given], size).reshape(self.shape)  # (pictures, kinds)
        count = np.bincount(cell, minlength=size).reshape(self.shape)
        if pooled:
            total, count = total.sum(1, keepdims=True), count.sum(1, keepdims=True)
        with np.errstate(invalid="ignore", divide="ignore"):
            return (self.weights @ total.astype(np.float32)) / (
                self.weights @ count.astype(np.float32)
            )

    def auc(self, scores: np.ndarray, positive: np.ndarray, negative: np.ndarray) -> np.ndarray:
        """AUC of the questions `positive` against `negative` by score: `(1 + AUC_RESAMPLES,)`.

        The sample's own first; NaN where a resample has none of one side.
        """
        weights = self.weights[: 1 + AUC_RESAMPLES]
        left, right = weights[:, self.pictures[positive]], weights[:, self.pictures[negative]]
        won = np.zeros_like(right)
        for first in range(0, left.shape[1], AUC_AT_ONCE):  # pairs of all at once may not fit
            some = slice(first, first + AUC_AT_ONCE)
            a, b = scores[positive][some, None], scores[negative][None]
            won += left[:, some] @ ((a > b) + (a == b) / 2).astype(np.float32)
        with np.errstate(invalid="ignore", divide="ignore"):
            return (won * right).sum(1) / (left.sum(1) * right.sum(1))


def over_kinds(means: np.ndarray, kinds: Sequence[int]) -> np.ndarray:
    """`(1 + R, kinds)` -> `(1 + R,)` mean over those of the kinds that have questions.

    A resample that drew no picture of a kind has the sample's own mean of it: without that kind it would
    be the mean of easier or harder ones.
    """
    chosen = means[:, list(kinds)]
    chosen = chosen[:, ~np.isnan(chosen[0])]
    if not chosen.shape[1]:
        return np.full(len(means), np.nan)
    return np.where(np.isnan(chosen), chosen[0], chosen).mean(1)


def estimate(replicates: np.ndarray) -> dict[str, Any] | None:
    """`(1 + R,)` -> the value and its 95 % interval; None where there is no value."""
    if np.isnan(replicates[0]):
        return None
    low, high = np.nanpercentile(replicates[1:], LEVELS)
    return {
        "value": round(float(replicates[0]), DIGITS),
        "interval": [round(float(low), DIGITS), round(float(high), DIGITS)],
    }


def wilson(right: int, n: int, z: float = 1.96) -> list[float]:
    """Wilson's interval of the share `right / n`, in [0, 1]; `z` 1.96 is the 95 % interval."""
    p = right / n
    middle = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return [round(max(0.0, middle - half), 3), round(min(1.0, middle + half), 3)]
