"""Embedding: the kept tokens of pictures, from what the worker was sent; no vLLM.

What `QwenHost.encode` does in transformers: the glance is encoded whole, the kept cells with its keys
beside, and trained weights correct what came of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from arr_coc.attending import native_allocation
from arr_coc.components import Components
from arr_coc.qwen.context import surrounded
from arr_coc.serving.asked import Asked
from arr_coc.serving.items import Item
from arr_coc.serving.tower import (
    Seen,
    Shown,
    Tower,
    cells_shown,
    context_of,
    glance_places,
    glance_shown,
    show,
)


@dataclass(frozen=True)
class Embedder:
    """Embeds pictures of which some cells are kept.

    Attributes:
        tower: the vision tower.
        components: trained weights, on its device; None without.
    """

    tower: Tower
    components: Components | None

    @torch.inference_mode()
    def embed(
        self, items: Sequence[Item], glances: Sequence[Seen | None] | None = None
    ) -> list[Tensor]:
        """`(K, D * (1 + DeepStack planes))` of each picture, as vLLM's tower lays them side by side.

        `glances` are what `glanced` gave for the same pictures, where it was asked before.
        """
        glances = self.glanced(items) if glances is None else glances
        shown = [self._kept(item, seen) for item, seen in zip(items, glances)]
        return [
            torch.cat(self._adapted(item, seen, glance), 1)
            for item, seen, glance in zip(items, show(self.tower, shown), glances)
        ]

    def glanced(self, items: Sequence[Item | Asked]) -> list[Seen | None]:
        """What was seen of each picture at a glance, all in one call; None where none is asked for."""
        asked = [item for item in items if len(item.glance)]
        if not asked:
            return [None] * len(items)
        pictures = [glance_shown(self.tower, item.glance, item.small) for item in asked]
        seen = iter(show(self.tower, pictures))
        return [next(seen) if len(item.glance) else None for item in items]

    def _kept(self, item: Item, glance: Seen | None) -> Shown:
        shown = cells_shown(self.tower, item.patches, item.cells.cpu(), item.grid)
        if glance is None or not item.beside:
            return shown
        context = context_of(self.tower, glance, item.small, item.grid)
        index = item.index.cpu()
        kept = native_allocation(index, item.grid, torch.zeros(len(index)))
        lora = self.components and self.components.lora
        angles = partial(self.tower.angles, shown.positions)
        beside = surrounded(context, kept, angles, lora)
        return Shown(shown.patches, shown.positions, shown.patch_grid, beside)

    def _adapted(self, item: Item, seen: Seen, glance: Seen | None) -> list[Tensor]:
        """The kept tokens' features and planes, corrected where trained weights do that."""
        planes = [plane[: item.kept] for plane in seen.planes]
        if self.components is None or self.components.adapter is None:
            return planes
        places = item.cells[: item.kept, 1:].to(planes[0].device).float()
        glanced = None
        if glance is not None:
            at = glance_places(item.small, item.grid, planes[0].device)
            glanced = (glance.planes, at)
        share = item.kept / (item.grid[0] * item.grid[1])
        context = "glance" if item.beside else "cells"
        return self.components.adapt(planes, places, glanced, share, context)
