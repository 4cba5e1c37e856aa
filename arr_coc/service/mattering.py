"""Mattering: which kept places an answer hangs on, as plain numbers for page, API and recordings."""

from typing import Any, TypedDict

from PIL import Image

from arr_coc.config import Config

DIGITS = 3  # that count: what one place is worth may be a hundredth, or a millionth


class Mattered(TypedDict):
    """What leaving out each kept place does to the focused look's own answer.

    Attributes:
        answer: the text that is asked about.
        probability: of that answer with every kept place.
        places: row and column of the K kept places in native tokens.
        loss: probability that leaving out each of them costs; below 0 where it was in the way.
        smallest: indices of `places`, the fewest found that give the answer alone, confirmed from pixels;
            None where only all of them do.
    """

    answer: str
    probability: float
    places: list[list[int]]
    loss: list[float]
    smallest: list[int] | None


def describe_mattering(
    model: Any, image: Image.Image, question: str, config: Config = Config()
) -> Mattered:
    """Ask a model which of its kept places matter; arguments and errors as `qwen.mattering.examine`."""
    from arr_coc.qwen.mattering import examine

    found = examine(model, image, question, config)
    mattering = found.mattering
    return Mattered(
        answer=model.tokenizer.decode(mattering.ids, skip_special_tokens=True).strip(),
        probability=_short(mattering.probability),
        places=found.realization.allocation.cells[:, 1:].tolist(),
        loss=[_short(loss) for loss in mattering.loss.tolist()],
        smallest=None if found.smallest is None else found.smallest.tolist(),
    )


def _short(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")
