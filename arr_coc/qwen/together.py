"""Together: glances at many questions in one pass of the text model; each says what it would say alone.

Pictures that are asked about several times are shrunk and encoded once. Prompts are padded on the right, as
in `batch`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from transformers import DynamicCache

from arr_coc.qwen.batch import padded
from arr_coc.qwen.encoding import TokenSet
from arr_coc.qwen.glance import (
    GlanceState,
    Readings,
    Seen,
    depth_needed,
    encode_glances,
    glance_layers,
    read_glances,
)
from arr_coc.qwen.inputs import Ask, Prompt, glance_grid
from arr_coc.realizing import Glance


@dataclass(frozen=True)
class Rows:
    """B prompts, each around a glance, in the first text layers.

    Attributes:
        readings: what was read of each.
        cache: keys and values of the layers that have run.
        position_ids: `(4, B, L)`.
        reached: `(B, L, D)` what the last of those layers left.
        depth: how many have run.
    """

    readings: Readings
    cache: DynamicCache
    position_ids: Tensor
    reached: Tensor
    depth: int

    def glance(self, host: Any, row: int, prompt: Prompt, seen: Seen) -> Glance:
        """One of them, as `glance.take_glance` gives it; its cache ends with the glance."""
        own, end = slice(row, row + 1), prompt.prefix.shape[1] + len(seen.tokens)
        cache = host.new_cache()
        for number, layer in enumerate(self.cache.layers[: self.depth]):
            cache.update(layer.keys[own, :, :end], layer.values[own, :, :end], number)
        text, at = host.model.model.language_model, self.position_ids[:, own, :end]
        reached = self.reached[own, :end]
        state = GlanceState(seen.tokens, seen.context, text, cache, reached, at, self.depth)
        return self.readings.row(row).glance(state)


def read_rows(
    host: Any, prompts: Sequence[Prompt], tokens: Sequence[TokenSet], grid: tuple[int, int]
) -> Rows:
    """Read every prompt as far as a glance is read.

    Args:
        host: a `QwenHost`.
        prompts: B of them, which begin alike.
        tokens: the glance of each.
        grid: rows and columns of its visual tokens, the same in every row.
    """
    batch, cache, depth = padded(host, prompts, tokens), host.new_cache(), depth_needed(host)
    at, start = batch.positions, prompts[0].prefix.shape[1]
    left, reached = glance_layers(host, batch.ids, at, batch.tokens, depth, cache, batch.mask)
    readings = read_glances(host, left, cache, at, batch.lengths - 1, start, grid)
    return Rows(readings, cache, at, reached, depth)


def take_glance_of_each(host: Any, asks: Sequence[Ask], sizes: Sequence[int]) -> list[Glance]:
    """As `glance.take_glance` of every ask, with at most so many visual tokens each."""
    grids = [glance_grid(ask.picture.grid, size) for ask, size in zip(asks, sizes, strict=True)]
    keys = [(id(ask.picture), grid) for ask, grid in zip(asks, grids)]
    once = {key: (ask.picture, grid) for key, ask, grid in zip(keys, asks, grids)}
    encoded = encode_glances(host, *zip(*once.values()))
    seen = {key: Seen(*own) for key, own in zip(once, encoded)}
    taken: dict[int, Glance] = {}
    for grid in dict.fromkeys(grids):
        rows = [number for number, own in enumerate(grids) if own == grid]
        prompts = [asks[number].prompt for number in rows]
        read = read_rows(host, prompts, [seen[keys[number]].tokens for number in rows], grid)
        for row, number in enumerate(rows):
            taken[number] = read.glance(host, row, prompts[row], seen[keys[number]])
    return [taken[number] for number in range(len(asks))]
