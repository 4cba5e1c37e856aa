"""Learned: what a GPU worker, which ends, noted of the time that looks take; its last record."""

from collections.abc import Iterator
from typing import Any

from arr_coc.service.loader import Loader

TIMES = "times"  # a record that goes no further than the main process


def handed_back(model: Any) -> Iterator[tuple[str, Any]]:
    """The worker's last record, of a model that remembers times."""
    if times := getattr(model, "times", None):
        yield TIMES, times.told()


def learning(records: Iterator[tuple[str, Any]], loader: Loader) -> Iterator[tuple[str, Any]]:
    """All other records; the model of this process learns those."""
    for kind, value in records:
        if kind == TIMES:
            loader.get().times.learn(value)
        else:
            yield kind, value
