"""Counting: how many visual tokens a picture has and keeps, from its size and the wish alone; no vLLM.

What a client needs in order to say "51 of 256": vLLM's usage counts the prompt, in which only the kept
tokens stand, so native tokens are counted here, by the rule of the image processor. The kept ones follow
from them as the processor makes them, by `request.Wish.kept`.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image

from arr_coc.serving.request import parse

NARROWEST = 200  # times as long as wide: the image processor takes nothing beyond
UPRIGHT = 0x0112  # the tag of a photograph that says how it is to be turned
SIDEWAYS = range(5, 9)  # its values by which rows and columns change places


@dataclass(frozen=True)
class Cutting:
    """How a checkpoint's image processor cuts pictures into tokens; as Qwen3-VL is published.

    Attributes:
        unit: pixels on a side of a token.
        least, most: pixels that a picture is enlarged or shrunk to.
    """

    unit: int = 32
    least: int = 65_536
    most: int = 16_777_216

    @classmethod
    def of(cls, folder: Path) -> "Cutting":
        """That of a checkpoint in a folder, by its `preprocessor_config.json`."""
        told = json.loads((folder / "preprocessor_config.json").read_text(encoding="utf-8"))
        size = told["size"]
        unit = told["patch_size"] * told["merge_size"]
        return cls(unit, size["shortest_edge"], size["longest_edge"])

    def grid(self, width: int, height: int) -> tuple[int, int]:
        """Rows and columns of the native tokens of a picture of so many pixels.

        Raises:
            ValueError: for a picture that the image processor does not take.
        """
        if min(width, height) < 1 or max(width, height) > NARROWEST * min(width, height):
            raise ValueError(
                f"a picture of {width} x {height} pixels is too narrow, one side may be at most "
                f"{NARROWEST} times the other"
            )
        sides = (height, width)
        rows, columns = (round(side / self.unit) for side in sides)
        pixels = rows * columns * self.unit**2
        if pixels > self.most:
            shrunk = math.sqrt(height * width / self.most)
            rows, columns = (max(1, math.floor(side / shrunk / self.unit)) for side in sides)
        elif pixels < self.least:
            enlarged = math.sqrt(self.least / (height * width))
            rows, columns = (math.ceil(side * enlarged / self.unit) for side in sides)
        return rows, columns


PUBLISHED = Cutting()


@dataclass(frozen=True)
class Counted:
    """Visual tokens of a picture: rows and columns of the native ones, and how many are kept."""

    grid: tuple[int, int]
    kept: int

    @property
    def native(self) -> int:
        """How many it has."""
        return self.grid[0] * self.grid[1]


def counted(
    image: Image.Image, wish: Mapping[str, Any] | None, cutting: Cutting = PUBLISHED
) -> Counted:
    """What one picture of a request holds; nothing is run, and the picture is not decoded.

    Args:
        image: as it is sent: vLLM turns a photograph upright by its own tag.
        wish: as `request.parse` takes it; None for vLLM's own model, which keeps everything.
        cutting: of the served checkpoint.

    Raises:
        ValueError: as the server refuses such a wish.
    """
    width, height = image.size
    if image.getexif().get(UPRIGHT) in SIDEWAYS:
        width, height = height, width
    grid = cutting.grid(width, height)
    if wish is None:
        return Counted(grid, grid[0] * grid[1])
    (one,) = parse(wish, 1)
    return Counted(grid, one.kept(grid))
