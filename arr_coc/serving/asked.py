"""Asked: what one picture is sent to the worker as where the model is to decide what to keep; no vLLM.

The whole picture travels, as bytes, with a glance at it, samples of it for the maps, and the prompt around
it in token ids. Settings travel as numbers.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from arr_coc.components import Components, context_for
from arr_coc.config import CONTEXTS, Config, Tensions, glance_tokens
from arr_coc.qwen.inputs import glance_grid
from arr_coc.scanning import FINE
from arr_coc.serving.items import Prepared, small_patches
from arr_coc.serving.request import Wish
from arr_coc.texture import SAMPLES

FIELD = "arr_coc_asked_"
# Of a long conversation the glance reads the nearest tokens, so many on either side of the picture.
NEAREST = 512
UNIT = 2.0**-16  # settings travel as whole numbers of this


@dataclass(frozen=True)
class Asked:
    """One picture on its way to a worker that will decide.

    Attributes:
        grid: rows and columns of its native tokens.
        kept: how many of them the language model will hold.
        patches: `(N * merge**2, C)` all of them, in block order.
        small: rows and columns of the glance.
        glance: `(G * merge**2, C)` its patches.
        samples: `(H * W, 3)` uint8 sRGB, of which the maps are drawn: some samples of each token, or each
            pixel, as `size` says.
        size: H and W of the samples.
        fine: as `samples`, `scanning.FINE` on a side of each token; empty where nothing scans.
        before, after: token ids of the prompt around the picture.
        words: `(W,)` ids of the question's own words.
        name: `(B,)` uint8, the text under which the decision is noted; empty for not at all.
        tensions: imposed; None lets the policy choose.
        context: what the kept cells are encoded with, one of `config.CONTEXTS` but "auto".
    """

    grid: tuple[int, int]
    kept: int
    patches: Tensor
    small: tuple[int, int]
    glance: Tensor
    samples: Tensor
    size: tuple[int, int]
    fine: Tensor
    before: Tensor
    after: Tensor
    words: Tensor
    name: Tensor
    tensions: Tensions | None
    context: str

    @property
    def config(self) -> Config:
        """How to spend, for a Realizer."""
        return Config(
            budget=self.kept, glance="separate", context=self.context, tensions=self.tensions
        )

    def pixels(self) -> Tensor:
        """`(1, 3, H, W)` sRGB in [0, 1]."""
        return _pixels(self.samples, self.size)

    def fine_pixels(self) -> Tensor:
        """`(1, 3, FINE * h, FINE * w)` sRGB in [0, 1]."""
        return _pixels(self.fine, (self.grid[0] * FINE, self.grid[1] * FINE))


def _pixels(rows: Tensor, size: tuple[int, int]) -> Tensor:
    """`(H * W, 3)` uint8 -> `(1, 3, H, W)` in [0, 1]."""
    return rows.view(*size, 3).permute(2, 0, 1)[None].float() / 255


def _rows(image: Image.Image) -> Tensor:
    """`(H * W, 3)` uint8."""
    return torch.from_numpy(np.array(image)).view(-1, 3)


def _shrunk(image: Image.Image, grid: tuple[int, int], side: int) -> Image.Image:
    """Means over `side` x `side` equal parts of each token."""
    return image.resize((grid[1] * side, grid[0] * side), Image.Resampling.BOX)


def around(ids: Sequence[int], number: int, image: int) -> tuple[list[int], list[int]]:
    """The prompt before and after one of its pictures, without the other pictures.

    Args:
        ids: of the prompt, one placeholder for each picture, each between two marks.
        number: which picture.
        image: id of the placeholder.

    Raises:
        ValueError: for a prompt that has no such placeholder.
    """
    places = [place for place, token in enumerate(ids) if token == image]
    if number >= len(places):
        raise ValueError(
            f"the prompt has {len(places)} placeholders, expected one for each picture"
        )
    others = {p + step for n, p in enumerate(places) if n != number for step in (-1, 0, 1)}
    place = places[number]
    others -= {place - 1, place + 1}  # marks of the picture itself, where two stand side by side
    before = [token for p, token in enumerate(ids[:place]) if p not in others]
    after = [token for p, token in enumerate(ids[place:], place) if p > place and p not in others]
    return before[-NEAREST:], after[-NEAREST:]


def own_words(before: Sequence[int], after: Sequence[int], special: set[int]) -> list[int]:
    """The question's own token ids: the words that follow the picture, else those before it."""
    following = after[1:]  # behind the picture's mark
    ends = [place for place, token in enumerate(following) if token in special]
    if words := list(following[: ends[0] if ends else None]):
        return words
    words = [token for token in before if token not in special]
    return words or list(after)


def make_asked(
    wish: Wish,
    picture: Prepared,
    image: Image.Image,
    image_processor: Callable[..., Any],
    components: Components | None,
    words: Sequence[int],
) -> Asked:
    """What a wish without cells sends; arguments as `items.make_item`, and the question's own ids."""
    grid, unit = picture.grid, picture.geometry.unit_pixels
    context = context_for(wish.config, components)
    small = glance_grid(grid, glance_tokens(grid, context))
    shrunk = small_patches(image, small, picture.geometry, image_processor)
    # As `qwen.inputs.Picture` draws them: every pixel, or means over equal parts of each token.
    drawn = image.convert("RGB").resize((grid[1] * unit, grid[0] * unit), Image.Resampling.BICUBIC)
    fine = _shrunk(drawn, grid, FINE) if components and components.scan else None
    if context == "glance":
        drawn = _shrunk(drawn, grid, SAMPLES)
    before, after = wish.around
    return Asked(
        grid=grid,
        kept=wish.kept(grid),
        patches=picture.patches,
        small=small,
        glance=shrunk.to(picture.patches.dtype),
        samples=_rows(drawn),
        fine=torch.empty(0, 3, dtype=torch.uint8) if fine is None else _rows(fine),
        size=(drawn.height, drawn.width),
        before=torch.tensor(before),
        after=torch.tensor(after),
        words=torch.tensor(list(words)),
        name=torch.tensor(list(wish.name.encode()), dtype=torch.uint8),
        tensions=wish.config.tensions,
        context=context,
    )


def fields_of(pictures: Sequence[Asked]) -> dict[str, Tensor]:
    """The fields of a request's pictures, each with all of them in a row."""
    rows = {name: torch.cat([getattr(p, name) for p in pictures]) for name in ROWS}
    return {FIELD + name: value for name, value in rows.items()} | {
        FIELD + "numbers": torch.tensor([_numbers(picture) for picture in pictures])
    }


# Fields whose pictures differ in length; where in the numbers that length stands.
ROWS = dict(patches=0, glance=1, samples=2, before=3, after=4, words=5, name=6, fine=7)


def _numbers(picture: Asked) -> list[int]:
    """Lengths of `ROWS`, then everything else of a picture."""
    tensions = picture.tensions
    scaled = (
        [-1] * 3
        if tensions is None
        else [round(t / UNIT) for t in (tensions.compress, tensions.exploit, tensions.focus)]
    )
    lengths = [len(getattr(picture, name)) for name in ROWS]
    settings = [CONTEXTS.index(picture.context), *scaled]
    return [*lengths, *picture.grid, picture.kept, *picture.small, *picture.size, *settings]


def sizes_of(fields: dict[str, Tensor]) -> dict[str, Tensor]:
    """For each field whose pictures differ in length, the rows of each."""
    return {FIELD + name: fields[FIELD + "numbers"][:, place] for name, place in ROWS.items()}


def kept_of(numbers: Tensor) -> int:
    """How many tokens the picture of these numbers keeps."""
    return int(numbers[len(ROWS) + 2])


def asked_of(fields: dict[str, Tensor]) -> list[Asked]:
    """The pictures of a batch, from the fields of all of them."""
    rows = {
        name.removeprefix(FIELD): fields[name].split(sizes.tolist())
        for name, sizes in sizes_of(fields).items()
    }
    pictures = []
    for number, values in enumerate(fields[FIELD + "numbers"].tolist()):
        h, w, kept, gh, gw, height, width, context, *scaled = values[len(ROWS) :]
        tensions = None if scaled[0] < 0 else Tensions(*(value * UNIT for value in scaled))
        pictures.append(
            Asked(
                grid=(h, w),
                kept=kept,
                small=(gh, gw),
                size=(height, width),
                tensions=tensions,
                context=CONTEXTS[context],
                **{name: own[number] for name, own in rows.items()},
            )
        )
    return pictures
