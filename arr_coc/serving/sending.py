"""Sending: the fields of pictures between processor and worker, with cells given or asked for; no vLLM."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from arr_coc.serving import asked, items

PIXELS = ("patches", "glance", "samples", "fine")
KEPT, NUMBERS = items.FIELD + "kept", asked.FIELD + "numbers"


def is_ours(name: str) -> bool:
    """Whether a field is one of ARR-COC's."""
    return name.startswith((items.FIELD, asked.FIELD))


def is_pixels(name: str) -> bool:
    """Whether a field holds pixels, which alone are worth sending to a device."""
    return name.endswith(PIXELS)


def sizes_of(fields: Mapping[str, Tensor], merge: int) -> dict[str, Tensor]:
    """For each of ARR-COC's fields whose pictures differ in length, the rows of each."""
    if KEPT in fields:
        return items.sizes_of(dict(fields), merge)
    return asked.sizes_of(dict(fields)) if NUMBERS in fields else {}


def kept_of(fields: Mapping[str, Any]) -> int | None:
    """How many tokens a picture keeps, by its fields as vLLM holds them; None where all, as in vLLM."""
    if KEPT in fields:
        return int(fields[KEPT].data)
    return asked.kept_of(fields[NUMBERS].data) if NUMBERS in fields else None
