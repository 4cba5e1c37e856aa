"""Request: what a request to vLLM may say about the focused look, checked; no torch, no vLLM.

It is one entry of `mm_processor_kwargs`, under `KEY`. A request without it is vLLM's own, unchanged.

    {"arr_coc": {"share": 0.2}}                        # a fifth of each picture's tokens
    {"arr_coc": {"budget": [51, 20]}}                  # so many of the first, so many of the second
    {"arr_coc": {"cells": [[0, 1, 17]], "context": "cells"}}    # these places of the one picture

Shares "auto", the adaptive allocator and the quadtree are not here: how many tokens a picture takes has to
follow from its grid and the request alone, before any model has run.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from arr_coc.config import SHARE, Config, Tensions

KEY = "arr_coc"
AMOUNTS = ("cells", "share", "budget")
FIELDS = (*AMOUNTS, "tensions", "context", "name")
LONGEST_NAME = 64


@dataclass(frozen=True)
class Wish:
    """What is asked of one picture.

    Attributes:
        config: how to spend. Its glance is thrown away after use: one that stays in the cache stands at
            fractional positions, which vLLM's whole numbers cannot name.
        cells: raster indices of the native tokens to keep, rising; None lets the model decide.
        around: token ids of the prompt before and after the picture, by which the model decides; empty
            where cells are given. Two questions about a picture then never share a cache entry.
        pictures: how many its request has.
        name: under which the worker notes what it decided (`noted`); "" for not at all. A request under
            another name is decided anew, so that it is noted.
    """

    config: Config
    cells: tuple[int, ...] | None = None
    around: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())
    pictures: int = 1
    name: str = ""

    def kept(self, grid: tuple[int, int]) -> int:
        """How many tokens a picture of `grid` will have.

        Raises:
            ValueError: for a budget or cells that do not fit it.
        """
        tokens = grid[0] * grid[1]
        if self.cells is None:
            return self.config.tokens(tokens)
        if self.cells[-1] >= tokens:
            raise ValueError(
                f"cell {self.cells[-1]} is outside the picture's {grid[0]}x{grid[1]} tokens, "
                f"allowed is 0 to {tokens - 1}"
            )
        return len(self.cells)

    def mark(self) -> str:
        """Tells it from every other wish, for the keys of caches."""
        return repr(self)


def parse(given: Any, pictures: int) -> list[Wish]:
    """The wish for each of a request's pictures.

    Args:
        given: what stands under `KEY`.
        pictures: how many there are.

    Raises:
        ValueError: naming what was given and what is allowed.
    """
    if not isinstance(given, Mapping):
        raise ValueError(f"{KEY} is {given!r}, expected an object with {', '.join(FIELDS)}")
    if unknown := sorted(map(str, set(given) - set(FIELDS))):
        raise ValueError(f"{KEY} has {', '.join(unknown)}, allowed are {', '.join(FIELDS)}")
    amounts = [name for name in AMOUNTS if given.get(name) is not None]
    if len(amounts) > 1:
        raise ValueError(f"{KEY} has {' and '.join(amounts)}, expected one of {', '.join(AMOUNTS)}")
    shared = {"glance": "separate"}
    if given.get("tensions") is not None:
        shared["tensions"] = _tensions(given["tensions"])
    if given.get("context") is not None:
        shared["context"] = given["context"]
    names = _names(given, pictures)
    name = amounts[0] if amounts else "share"
    if name == "cells":
        lists = given["cells"]
        if not _is_list(lists) or len(lists) != pictures:
            raise ValueError(
                f"cells is {_shown(lists)}, expected a list of cells for each of {pictures} pictures"
            )
        config = Config(**shared)
        return [Wish(config, _cells(cells), pictures=pictures) for cells in lists]
    values = _each(given.get(name, SHARE), pictures, name)
    configs = [Config(**shared, **{name: _number(value, name)}) for value in values]
    return [Wish(one, pictures=pictures, name=own) for one, own in zip(configs, names)]


def noted_as(name: str, number: int) -> str:
    """The name of one picture of a named request."""
    return f"{name}/{number}"


def request_of(picture: str) -> tuple[str, int]:
    """The request's name and the picture's number, of what `noted_as` made."""
    name, _, number = picture.rpartition("/")
    return name, int(number)


def _names(given: Mapping[str, Any], pictures: int) -> list[str]:
    """For each picture, what its decision is noted as."""
    name = given.get("name")
    if name is None:
        return [""] * pictures
    if not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME or not name.isprintable():
        raise ValueError(
            f"name is {_shown(name)}, expected 1 to {LONGEST_NAME} characters that can be printed"
        )
    if given.get("cells") is not None:
        raise ValueError("name is for places that the model decides, this request gives its cells")
    return [noted_as(name, number) for number in range(pictures)]


def _cells(given: Any) -> tuple[int, ...]:
    if not _is_list(given) or not given:
        raise ValueError(f"a picture's cells are {_shown(given)}, expected a list of at least one")
    for cell in given:
        if isinstance(cell, bool) or not isinstance(cell, int) or cell < 0:
            raise ValueError(f"a cell is {cell!r}, expected a whole number, 0 or more")
    rising = sorted(given)
    for cell, after in zip(rising, rising[1:]):
        if cell == after:
            raise ValueError(f"cell {cell} is given twice, expected each place once")
    return tuple(rising)


def _tensions(given: Any) -> Tensions:
    names = [field.name for field in fields(Tensions)]
    if not isinstance(given, Mapping) or set(given) - set(names):
        raise ValueError(f"tensions is {_shown(given)}, expected an object of {', '.join(names)}")
    return Tensions(**{name: _number(value, name) for name, value in given.items()})


def _number(value: Any, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name} is {_shown(value)}, expected a number")
    return value


def _each(value: Any, pictures: int, name: str) -> Sequence[Any]:
    """One value for all pictures, or a list with one for each."""
    if not _is_list(value):
        return [value] * pictures
    if len(value) != pictures:
        raise ValueError(
            f"{name} has {len(value)} values for {pictures} pictures, expected one each"
        )
    return value


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _shown(value: Any) -> str:
    """A value as a sentence may show it: never longer than a line."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
