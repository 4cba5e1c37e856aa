"""Learned: what a GPU worker, which ends, noted of the time that looks take; a record of its own."""

from collections.abc import Iterator
from typing import Any

from arr_coc.service.loader import Loader

TIMES = "times"  # a record that goes no further than the main process


def handed_back(records: Iterator[tuple[str, Any]], model: Any) -> Iterator[tuple[str, Any]]:
    """A worker's records, with one of the times that the model noted, where it notes any.

    It comes before a "result": who asked may listen no longer after that.
    """
    times, is_told = getattr(model, "times", None), False
    for kind, value in records:
        if kind == "result" and times:
            is_told = True
            yield TIMES, times.told()
        yield kind, value
    if times and not is_told:
        yield TIMES, times.told()


def learning(records: Iterator[tuple[str, Any]], loader: Loader) -> Iterator[tuple[str, Any]]:
    """All other records; the model of this process learns those."""
    for kind, value in records:
        if kind == TIMES:
            loader.get().times.learn(value)
        else:
            yield kind, value
