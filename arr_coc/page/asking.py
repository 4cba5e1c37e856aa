"""Asking: the questions that can be asked on a card's own picture, and their buttons, as escaped HTML."""

from collections.abc import Sequence
from typing import TypedDict

from PIL import Image

from arr_coc.page.frame import Example, escaped


class Asked(TypedDict):
    """A question that can be asked on the picture; boxes are shares of its width and height."""

    card: int
    question: str
    boxes: list[list[float]]


def asked_of(examples: Sequence[Example], chosen: int | None) -> list[Asked]:
    """What can be asked on the picture of a card: every question to it, the card's own among them.

    None where there is no other question.
    """
    if chosen is None:
        return []
    path = examples[chosen].path
    same = [(card, example) for card, example in enumerate(examples) if example.path == path]
    if len(same) < 2:
        return []
    with Image.open(path) as picture:
        width, height = picture.size
    sides = (width, height, width, height)
    return [
        Asked(
            card=card,
            question=example.question,
            boxes=[[round(at / side, 4) for at, side in zip(box, sides)] for box in example.boxes],
        )
        for card, example in same
    ]


def asking(asked: Sequence[Asked], chosen: int | None) -> str:
    """The questions to a card's picture, to click; the listener is `CHIPS_JS`."""
    items = "".join(
        f'<button type="button" class="arr-chip" data-card="{ask["card"]}" '
        f'aria-pressed="{str(ask["card"] == chosen).lower()}">{escaped(ask["question"])}</button>'
        for ask in asked
    )
    return f'<div class="arr-chips"><span>Ask the picture:</span>{items}</div>' if items else ""
