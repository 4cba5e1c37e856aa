"""Items: what one picture is sent to the worker as, made beside the image processor; no vLLM.

Cells given: only the patches that the encoder will see travel, not the picture.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from arr_coc.adapting import strength
from arr_coc.attending import native_allocation
from arr_coc.components import Components, context_for
from arr_coc.config import glance_tokens
from arr_coc.qwen.cells import cell_patches, with_halo, with_surroundings
from arr_coc.qwen.inputs import glance_grid
from arr_coc.qwen.patching import Geometry
from arr_coc.serving.request import Wish

# Names of the fields, as the worker's model is called with them.
FIELD = "arr_coc_given_"


@dataclass(frozen=True)
class Item:
    """One picture on its way to the worker.

    Attributes:
        grid: rows and columns of its native tokens.
        kept: how many of them the language model will hold.
        cells: `(S, 3)` int64 level, row and column of what the encoder sees, the kept ones first.
        patches: `(S * merge**2, C)` of those cells.
        small: rows and columns of the glance; (0, 0) without one.
        glance: `(G * merge**2, C)` its patches.
        beside: whether the kept cells attend to the glance's keys.
    """

    grid: tuple[int, int]
    kept: int
    cells: Tensor
    patches: Tensor
    small: tuple[int, int]
    glance: Tensor
    beside: bool

    @property
    def index(self) -> Tensor:
        """`(kept,)` raster indices of what is kept."""
        own = self.cells[: self.kept]
        return own[:, 1] * self.grid[1] + own[:, 2]


@dataclass(frozen=True)
class Prepared:
    """A picture whose patches are made, as `qwen.cells` reads one.

    Attributes:
        patches: `(N * merge**2, C)` in block order.
        grid: rows and columns of its tokens.
        geometry: the tower's sizes.
    """

    patches: Tensor
    grid: tuple[int, int]
    geometry: Geometry

    def units(self, index: Tensor) -> Tensor:
        """Patches of the tokens at raster `index` `(K,)`."""
        own = self.patches.view(self.grid[0] * self.grid[1], self.geometry.merge**2, -1)
        return own[index].flatten(0, 1)


def make_item(
    wish: Wish,
    picture: Prepared,
    image: Image.Image,
    image_processor: Callable[..., Any],
    components: Components | None,
) -> Item:
    """What a wish with cells sends.

    Args:
        wish: of this picture.
        picture: as the image processor made it.
        image: what it was made of, for the glance.
        image_processor: the checkpoint's own.
        components: trained weights, which say what the kept cells are to be encoded with.

    Raises:
        ValueError: for cells outside the picture.
    """
    grid, config = picture.grid, wish.config
    kept = wish.kept(grid)
    context = context_for(config, components)
    # Bytes where the worker is to normalise them; averages over coarse cells need more than bytes.
    picture = replace(picture, patches=picture.patches.float())
    shown = native_allocation(torch.tensor(wish.cells), grid, torch.full((kept,), 0.5))
    if context == "cells":
        shown = with_surroundings(with_halo(shown, config.halo), config.surrounding_cells(grid))
    small, patches = (0, 0), picture.patches[:0]
    if context == "glance" or is_corrected_by_glance(
        kept / (grid[0] * grid[1]), components, context
    ):
        small = glance_grid(grid, glance_tokens(grid, context))
        patches = small_patches(image, small, picture.geometry, image_processor)
    patches = patches.to(picture.patches)
    own = cell_patches(picture, shown)
    return Item(grid, kept, shown.cells, own, small, patches, context == "glance")


def is_corrected_by_glance(share: float, components: Components | None, context: str) -> bool:
    """Whether trained weights correct tokens by what a glance saw, where `share` of a picture is kept."""
    adapter = components.adapter if components else None
    return adapter is not None and adapter.sizes["glances"] and strength(share, context) > 0


def small_patches(
    image: Image.Image,
    small: tuple[int, int],
    geometry: Geometry,
    image_processor: Callable[..., Any],
) -> Tensor:
    """`(G * merge**2, C)` patches of a picture shrunk to `small` tokens, as `Inputs.resized` shrinks it."""
    unit = geometry.unit_pixels
    size = (small[1] * unit, small[0] * unit)
    shrunk = image.convert("RGB").resize(size, Image.Resampling.BICUBIC)
    return image_processor(images=[shrunk], return_tensors="pt", do_resize=False)["pixel_values"]


def fields_of(items: list[Item]) -> dict[str, Tensor]:
    """The fields of a request's pictures, each with all of them in a row."""
    return {
        FIELD + "kept": torch.tensor([item.kept for item in items]),
        FIELD + "shown": torch.tensor([len(item.cells) for item in items]),
        FIELD + "cells": torch.cat([item.cells for item in items]),
        FIELD + "patches": torch.cat([item.patches for item in items]),
        FIELD + "small": torch.tensor([item.small for item in items]),
        FIELD + "glance": torch.cat([item.glance for item in items]),
        FIELD + "beside": torch.tensor([item.beside for item in items]),
    }


def sizes_of(fields: dict[str, Tensor], merge: int) -> dict[str, Tensor]:
    """For each field whose pictures differ in length, the rows of each."""
    shown, small = fields[FIELD + "shown"], fields[FIELD + "small"]
    return {
        FIELD + "cells": shown,
        FIELD + "patches": shown * merge**2,
        FIELD + "glance": small.prod(1) * merge**2,
    }


def items_of(fields: dict[str, Tensor], grids: list[tuple[int, int]], merge: int) -> list[Item]:
    """The pictures of a batch, from the fields of all of them."""
    rows = {
        name: fields[name].split(sizes.tolist()) for name, sizes in sizes_of(fields, merge).items()
    }
    kept, small = (fields[FIELD + name].tolist() for name in ("kept", "small"))
    rest = (rows[FIELD + name] for name in ("cells", "patches", "glance"))
    columns = zip(kept, *rest, small, fields[FIELD + "beside"].tolist())
    return [
        Item(grid, count, cells, patches, tuple(own), glance, beside)
        for grid, (count, cells, patches, glance, own, beside) in zip(grids, columns, strict=True)
    ]
