"""Answering: one question of a harness: what it is decided by, how it is looked at, what it cost.

A harness gives one text, in which instructions stand around the question. The model is asked the whole of
it, in its glance as well; scan, tensions and tier read the question alone, as in `arr_coc.evaluate`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image

from arr_coc.config import (
    AUTO,
    MAX_NEW_TOKENS,
    MAX_PIXELS,
    SHARE,
    Config,
    one_of,
    small_grid,
)
from arr_coc.pictures import as_read
from arr_coc.qwen.answer import Answer
from arr_coc.qwen.loading import BUNDLED, BUNDLED_BASE
from arr_coc.qwen.model import ARRCOCQwen

# ARR-COC; the model as it is; the model as it is on a picture shrunk to as many tokens.
LOOKS = FOCUSED, STOCK, SHRUNK = ("focused", "stock", "shrunk")
DEADLINE_S = 3600.0  # a harness waits for an answer to its end


@dataclass(frozen=True)
class Look:
    """How every question is looked at.

    Attributes:
        look: one of `LOOKS`.
        share: of a picture's visual tokens, in (0, 1], or "auto"; the stock look takes all.
        prune, when: as in `Config`.
    """

    look: str = FOCUSED
    share: float | str = SHARE
    prune: str = "before"
    when: str = "always"

    def __post_init__(self) -> None:
        one_of(self.look, "look", LOOKS)
        if self.look == SHRUNK and self.share == AUTO:
            raise ValueError("share is 'auto' with look 'shrunk', expected a number in (0, 1]")
        _ = self.config  # refuses what does not go together

    @property
    def config(self) -> Config:
        """For the focused look."""
        return Config(share=self.share, prune=self.prune, when=self.when)


@dataclass(frozen=True)
class Asked:
    """What a harness asks: the whole text, and the question in it."""

    text: str
    question: str


def asked(text: str, before: Sequence[str] = (), after: Sequence[str] = ()) -> Asked:
    """The question in a text.

    Args:
        text: as the model is to read it.
        before, after: instructions that may stand there; the longest that does is not the question's own.

    Raises:
        ValueError: where there is no question.
    """
    start = max((one for one in before if text.startswith(one)), key=len, default="")
    question = text.removeprefix(start)
    end = max((one for one in after if question.endswith(one)), key=len, default="")
    question = question.removesuffix(end).strip()
    if not question:
        raise ValueError(f"the text {text[:60]!r} holds no question, expected at least one word")
    return Asked(text, question)


class Answerer:
    """A base with its weights in memory, which looks at every question in one way."""

    def __init__(
        self,
        look: Look,
        base: str | Path | None = None,
        weights: str | Path | None = None,
        *,
        max_pixels: int = MAX_PIXELS,
        device: str | None = None,
        dtype: str | None = None,
    ) -> None:
        """Load the base.

        Args:
            look: at every question.
            base: Hub id or folder, or "bundled"; None as in `ARRCOCQwen.from_pretrained`.
            weights: of ARR-COC, Hub id or folder; "" for none, None for the default.
            max_pixels, device, dtype: as in `ARRCOCQwen.from_pretrained`.

        Raises:
            ValueError: for a base or weights that cannot be loaded.
        """
        base = BUNDLED_BASE if base == BUNDLED else base
        options: dict[str, Any] = {"device": device, "dtype": dtype, "max_pixels": max_pixels}
        self.look, self.host = look, ARRCOCQwen.from_pretrained(base, weights, **options)

    def __call__(self, image: Image.Image, question: Asked, max_new_tokens: int) -> Answer:
        """The finished answer with its measures; more than `MAX_NEW_TOKENS` are never generated."""
        options: dict[str, Any] = {"text": question.text, "deadline_s": DEADLINE_S}
        options["max_new_tokens"] = min(max_new_tokens, MAX_NEW_TOKENS)
        image = as_read(image)
        if self.look.look == FOCUSED:
            return self.host.generate(image, question.question, config=self.look.config, **options)
        if self.look.look == SHRUNK:
            options["grid"] = self._shrunk_grid(image)
        return self.host.generate(image, question.question, use_arr_coc=False, **options)

    def native_tokens(self, image: Image.Image) -> int:
        """The visual tokens that the stock look takes for a picture."""
        rows, columns = self.host.inputs.grid_of(as_read(image).size)
        return rows * columns

    def _shrunk_grid(self, image: Image.Image) -> tuple[int, int]:
        """Rows and columns of visual tokens that the share allows."""
        grid = self.host.inputs.grid_of(image.size)
        return small_grid(grid, self.look.config.tokens(grid[0] * grid[1]))
