"""Ranking: the places of a picture in the order of their relevance, and how brightly each is drawn.

Relevance is a product of powers: a few places near 1 leave all others near 0, though the order goes on
among them and decides what is kept. So maps show ranks. Plain arrays, no torch: the page opens with it.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

FAINTEST_KEPT, BRIGHTEST_REST = 0.42, 0.2  # of a brightness in [0, 1]; nothing lies between them


class Ranks(NamedTuple):
    """Ranks count from 1, the most relevant; equal places share the better rank.

    Attributes:
        places: `(h, w)`, each place's rank among all.
        cells: each kept cell's rank among the kept, by its most relevant place.
        brightness: `(h, w)` in [0, 1] by rank, every kept place above every other.
    """

    places: np.ndarray
    cells: list[int]
    brightness: np.ndarray


def ranks(relevance: Sequence[Sequence[float]], cells: Sequence[Sequence[int]]) -> Ranks:
    """The ranks of a decision.

    Args:
        relevance: `h` rows of `w` numbers.
        cells: the kept cells, rows of level, row and column; a cell of level 1 has 2 x 2 places.
    """
    values = np.asarray(relevance, float)  # (h, w)
    slices = [
        (slice(row << level, (row + 1) << level), slice(column << level, (column + 1) << level))
        for level, row, column in cells
    ]
    places = _order(values.ravel()).reshape(values.shape)
    kept = _order(np.array([values[part].max() for part in slices]))
    brightness = BRIGHTEST_REST * _height(places)
    # Coarse cells first, so that a finer one that lies in them is seen.
    for index in sorted(range(len(cells)), key=lambda index: -cells[index][0]):
        height = _height(kept)[index]
        brightness[slices[index]] = FAINTEST_KEPT + (1 - FAINTEST_KEPT) * height
    return Ranks(places, kept.tolist(), brightness)


def _order(values: np.ndarray) -> np.ndarray:
    """`(n,)` -> `(n,)` ranks from 1, the largest value first."""
    falling = np.sort(values)[::-1]
    return np.searchsorted(-falling, -values, side="left") + 1


def _height(order: np.ndarray) -> np.ndarray:
    """Ranks spread over [0, 1]; the first has 1."""
    return 1 - (order - 1) / max(1, order.size - 1)
