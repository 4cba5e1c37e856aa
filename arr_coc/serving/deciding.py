"""Deciding: what to keep of a picture, in the worker, by the model's own glance; no vLLM.

The glance is encoded by the tower, read by the text model's first layers, and then `realizing.Realizer`
decides as it does in transformers. If a stage fails, tokens are spread evenly, as there.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from arr_coc.attending import Allocation, uniform
from arr_coc.qwen.cells import cell_patches, with_halo, with_surroundings
from arr_coc.qwen.patching import Geometry
from arr_coc.qwen.prompts import Prompt
from arr_coc.realizing import Glance, Realizer
from arr_coc.scanning import FINE
from arr_coc.serving import places
from arr_coc.serving.asked import Asked
from arr_coc.serving.embedding import Embedder
from arr_coc.serving.items import Item, Prepared
from arr_coc.serving.noted import Noted
from arr_coc.serving.reading import Reader
from arr_coc.serving.tower import Seen, glance_places
from arr_coc.words import Words


@dataclass(frozen=True)
class Decider:
    """Decides and embeds pictures.

    Attributes:
        embedder: encodes what is kept.
        reader: reads glances.
        geometry: the tower's sizes.
        words: token ids to their text; without a trained policy the words set the tensions.
        image_token: id of the visual placeholder.
        noted: what was decided for requests that have a name.
    """

    embedder: Embedder
    reader: Reader
    geometry: Geometry
    words: Callable[[list[int]], str]
    image_token: int
    noted: Noted = field(default_factory=Noted)

    @torch.inference_mode()
    def embed(self, pictures: Sequence[Asked]) -> list[Tensor]:
        """As `Embedder.embed`, each followed by the channels that say where its tokens stand."""
        seen = self.embedder.glanced(pictures)
        kept = [self.decide(picture, own) for picture, own in zip(pictures, seen)]
        for picture, own in zip(pictures, kept):
            if name := bytes(picture.name.tolist()).decode():
                self.noted.note(name, own.native_index().tolist())
        items = [self._item(picture, own) for picture, own in zip(pictures, kept)]
        return [
            places.with_channels(features, item.index, item.grid[1])
            for features, item in zip(self.embedder.embed(items, seen), items)
        ]

    def decide(self, picture: Asked, seen: Seen) -> Allocation:
        """Which native tokens to keep of a picture whose glance was encoded: as many as it asks for."""
        if picture.kept == picture.grid[0] * picture.grid[1]:
            return uniform(picture.grid, picture.kept)  # there is nothing to decide
        host = _Host(self, seen, picture)
        question = self.words(picture.words.tolist())
        realizer = Realizer(host, self.embedder.components)
        allocation = realizer.realize(picture, question, picture.config).allocation
        # The prompt has so many placeholders, whatever happens.
        exact = len(allocation) == picture.kept and allocation.is_native
        return allocation if exact else uniform(picture.grid, picture.kept)

    def _item(self, picture: Asked, kept: Allocation) -> Item:
        shown, config = kept, picture.config
        if picture.context == "cells":
            shown = with_surroundings(
                with_halo(kept, config.halo), config.surrounding_cells(picture.grid)
            )
        prepared = Prepared(picture.patches.float(), picture.grid, self.geometry)
        patches = cell_patches(prepared, shown)
        beside = picture.context == "glance"
        return Item(
            picture.grid, len(kept), shown.cells, patches, picture.small, picture.glance, beside
        )


@dataclass(frozen=True)
class _Host:
    """What the Realizer asks of a model, for one picture whose glance was encoded."""

    decider: Decider
    seen: Seen
    picture: Asked

    def grid(self, image: Asked) -> tuple[int, int]:
        """Rows and columns of its native tokens."""
        return image.grid

    def pixels(self, image: Asked, side: int | None = None) -> Tensor:
        """As it was sent: fine samples for what scans, else what the maps are drawn of."""
        return image.fine_pixels() if side == FINE else image.pixels()

    def embed(self, question: str) -> Words:
        """The question's own tokens, which were sent as ids, embedded."""
        table = self.decider.reader.text.embed_tokens
        words = self.picture.words.to(self.seen.planes[0].device)
        return Words.of_one(table(words))

    def glance(self, image: Asked, question: str, tokens: int) -> Glance:
        """Read the glance that was sent, of the size that its picture's context asks for."""
        N, grid = image.grid[0] * image.grid[1], image.grid
        before, after = image.before[None], image.after[None]
        whole = places.whole(before.shape[1], grid)
        positions, _ = places.mrope_positions(before.shape[1] + N + after.shape[1], [whole])
        device = self.seen.planes[0].device
        around = before.cpu(), after.cpu()
        prompt = Prompt(around, (grid,), positions[:, None], self.decider.image_token)
        at = glance_places(image.small, grid, torch.device("cpu"))
        return self.decider.reader.read(
            prompt.ids(len(at))[0].to(device),
            prompt.position_ids(at)[1:, 0].to(device),
            before.shape[1],
            image.small,
            self.seen.planes,
        )
