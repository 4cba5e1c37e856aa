"""Context: the glance's keys and values, which the vision encoder attends to beside the kept cells.

The glance has encoded the whole picture already, small. In every vision block the kept cells attend to
their own keys and to the glance's of that block, turned to native positions: what surrounds them need not
be encoded a second time. It is carried as an argument of the encoder's call (`arr_coc`), which reaches the
attention function; nothing is kept in the model, and a call without it runs the function that was set
before.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.qwen3_vl.modeling_qwen3_vl import (
    apply_rotary_pos_emb_vision,
    eager_attention_forward,
)

from arr_coc.attending import Allocation
from arr_coc.lora import EncoderLoRA
from arr_coc.qwen.cells import cell_patch_positions
from arr_coc.qwen.inputs import Picture

PREFIX = "arr_coc_"
# Attention functions that take keys of another length than the queries.
WRAPPED = ("sdpa", "eager")
# Keys and values of each vision block, (1, heads, P, head_dim).
Layers = list[tuple[Tensor, Tensor]]
Angles = tuple[Tensor, Tensor]  # cosines and sines
Attended = tuple[Tensor, Tensor, Tensor]  # queries, keys and values


def install(model: nn.Module) -> None:
    """Let the vision tower's attention take a context, where its attention function allows it.

    Args:
        model: `Qwen3VLForConditionalGeneration`. Only its vision tower's function changes, by name.
    """
    current = model.config.vision_config._attn_implementation
    if current in WRAPPED:
        ALL_ATTENTION_FUNCTIONS.register(PREFIX + current, _wrapped(current))
        model.set_attn_implementation({"vision_config": PREFIX + current})


def is_installed(visual: nn.Module) -> bool:
    """Whether a vision tower's attention takes a context."""
    return str(visual.config._attn_implementation).startswith(PREFIX)


def _wrapped(name: str) -> Any:
    stock = ALL_ATTENTION_FUNCTIONS.get_interface(name, eager_attention_forward)

    def attend(
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *rest: Any,
        arr_coc: "PerPicture | None" = None,
        **options: Any,
    ) -> tuple[Tensor, Tensor | None]:
        if arr_coc is not None:
            query, key, value = arr_coc(module, query, key, value)
        return stock(module, query, key, value, *rest, **options)

    return attend


class PerPicture:
    """An argument of one encoder call that meets every block's attention once for each packed picture.

    The attention function is told the module, and neither the block's number nor the picture's. A block
    meets the pictures in the order of `cu_seqlens`, so its calls are counted, modulo the pictures: a call
    that is repeated (gradient checkpointing, a tower that moved to float32) meets the same ones.
    """

    def __init__(self, visual: nn.Module, pictures: int) -> None:
        self.block = {block.attn: number for number, block in enumerate(visual.blocks)}
        self.calls, self.pictures = dict.fromkeys(self.block, 0), pictures

    def __call__(self, module: nn.Module, query: Tensor, key: Tensor, value: Tensor) -> Attended:
        """Queries and keys, after their rotary embedding, and values as the attention function has them."""
        picture = self.calls[module] % self.pictures
        self.calls[module] += 1
        return self.meet(self.block[module], picture, query, key, value)

    def meet(self, block: int, picture: int, query: Tensor, key: Tensor, value: Tensor) -> Attended:
        """What attention is computed with in place of `query`, `key` and `value`."""
        raise NotImplementedError


class Recorder(PerPicture):
    """Notes every picture's keys and values in each block; changes nothing."""

    def __init__(self, visual: nn.Module, pictures: int) -> None:
        super().__init__(visual, pictures)
        self.noted: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}

    def meet(self, block: int, picture: int, query: Tensor, key: Tensor, value: Tensor) -> Attended:
        """As given."""
        self.noted[picture, block] = key, value
        return query, key, value

    def layers(self, picture: int) -> Layers:
        """A picture's keys and values, block by block."""
        return [self.noted[picture, block] for block in range(len(self.block))]


@dataclass(frozen=True)
class Surrounded:
    """What the kept cells of one picture meet in every block.

    Attributes:
        layers: the context's keys at native positions, and values.
        angles: cosines and sines `(P, head_dim)` of the kept patches' own positions.
        lora: corrects their queries, keys and values; None leaves them.
        strength: by which these corrections are multiplied.
    """

    layers: Layers
    angles: Angles
    lora: EncoderLoRA | None
    strength: float

    def corrected(self, block: int, query: Tensor, key: Tensor, value: Tensor) -> Attended:
        """Queries, keys and values of the kept cells with their corrections."""
        if self.lora is None:
            return query, key, value
        by_patch = self.lora.of_kept(block, value)  # (P, 3, heads, head_dim)
        moved = rotated(by_patch[:, :2].flatten(1, 2), self.angles).unflatten(1, (2, -1))
        parts = zip((query, key, value), (*moved.unbind(1), by_patch[:, 2]))
        return tuple(torch.add(own, by.transpose(0, 1), alpha=self.strength) for own, by in parts)


class Beside(PerPicture):
    """Puts a context's keys and values before each picture's own, where it has one."""

    def __init__(self, visual: nn.Module, surrounded: Sequence[Surrounded | None]) -> None:
        super().__init__(visual, len(surrounded))
        self.surrounded = list(surrounded)

    def meet(self, block: int, picture: int, query: Tensor, key: Tensor, value: Tensor) -> Attended:
        """The context's, then the picture's own."""
        around = self.surrounded[picture]
        if around is None:
            return query, key, value
        query, key, value = around.corrected(block, query, key, value)
        keys, values = around.layers[block]
        return query, torch.cat([keys, key], 2), torch.cat([values, value], 2)


@dataclass(frozen=True)
class EncoderContext:
    """What a glance's encoder pass leaves for the kept cells to attend to.

    Attributes:
        recorded: of the glance's own pass, its keys at the glance's own positions.
        turn: cosines and sines `(G * merge**2, head_dim)` that lead from there to native positions.
        native: the same of the native positions themselves.
        glance_grid: rows and columns of the glance's G tokens.
        merge: patches on a side of a token.
    """

    recorded: Layers
    turn: Angles
    native: Angles
    glance_grid: tuple[int, int]
    merge: int

    @property
    def dtype(self) -> torch.dtype:
        """Of the tower that recorded it."""
        return self.recorded[0][0].dtype

    def beside(
        self, allocation: Allocation, lora: EncoderLoRA | None = None, strength: float = 1.0
    ) -> Layers | None:
        """Keys at native positions and values, without cells that the kept ones cover wholly.

        What is seen sharply needs no blurred second copy. None where nothing is left: where everything
        is kept the encoder is then called as stock, bit for bit. `lora` corrects what is left, its
        corrections multiplied by `strength`.
        """
        rest = ~covered(allocation, self.glance_grid)
        if not rest.any():
            return None
        # Of all blocks at once: there are many of them, and little of each.
        keys, values = (torch.cat(own).permute(2, 0, 1, 3) for own in zip(*self.recorded))
        turn, native = self.turn, self.native  # of (P, blocks, heads, head_dim)
        if not rest.all():
            left = rest.repeat_interleave(self.merge**2).nonzero()[:, 0].to(keys.device)
            keys, values = keys[left], values[left]
            turn, native = (tuple(angle[left] for angle in each) for each in (turn, native))
        keys = rotated(keys, turn)
        if lora is not None:
            by_keys, by_values = lora.of_seen(values.permute(1, 2, 0, 3)).unbind(2)
            by_keys = rotated(by_keys.transpose(0, 1), native)
            keys = torch.add(keys, by_keys, alpha=strength)
            values = torch.add(values, by_values.transpose(0, 1), alpha=strength)
        keys, values = (own.permute(1, 2, 0, 3)[:, None] for own in (keys, values))
        return list(zip(keys, values))


def surrounded(
    context: EncoderContext,
    kept: Allocation,
    angles: Callable[[], Angles],
    lora: EncoderLoRA | None = None,
) -> Surrounded | None:
    """What kept cells meet of a context; None where nothing of it is left.

    Args:
        context: of their picture's glance.
        kept: the cells.
        angles: gives those of their patches' positions, where they are needed.
        lora: corrects queries, keys and values, the more the less is kept.
    """
    strength = 1 - len(kept) / math.prod(kept.grid)
    layers = context.beside(kept, lora, strength)
    return layers and Surrounded(layers, angles(), lora, strength)


def turned(visual: nn.Module, positions: Tensor) -> Angles:
    """The angles of a tower's rotary embedding at patch coordinates `(P, 2)`."""
    # Told for its dtype and device alone; `patch_embed` may be fused, and has no weight of one name.
    weight = visual.pos_embed.weight
    return visual.rotary_pos_emb(weight, positions.to(weight.device))


def rotated(states: Tensor, angles: Angles) -> Tensor:
    """`(P, ..., head_dim)` turned by the rotary embedding of P patches' positions."""
    heads = states.flatten(1, -2)
    made, _ = apply_rotary_pos_emb_vision(heads, heads[:, :0], *angles)
    return made.view(states.shape)


def native_context(
    visual: nn.Module, recorded: Layers, small: Picture, grid: tuple[int, int]
) -> EncoderContext:
    """A recorded glance as the context of its whole picture.

    A rotary embedding turns by an angle that grows linearly with the position: turning once more by the
    difference of two positions leads from one to the other.

    Args:
        visual: `Qwen3VLVisionModel`.
        recorded: the glance's keys and values.
        small: the glance's picture.
        grid: `(h, w)` of the whole picture in native tokens.
    """
    merge = small.geometry.merge
    native, own = (
        cell_patch_positions(equal_cells(small.grid, frame), merge) for frame in (grid, small.grid)
    )
    turn, at_native = (turned(visual, where) for where in (native - own, native))
    return EncoderContext(recorded, turn, at_native, small.grid, merge)


def equal_cells(small: tuple[int, int], grid: tuple[int, int]) -> Tensor:
    """Bounds `(G, 4)` float32, in tokens of `grid`, of equal cells over all of it, raster order."""
    size = torch.tensor([grid[0] / small[0], grid[1] / small[1]])
    index = torch.arange(small[0] * small[1])
    top_left = torch.stack([index // small[1], index % small[1]], 1) * size
    return torch.cat([top_left, top_left + size], 1)


def covered(allocation: Allocation, glance_grid: tuple[int, int]) -> Tensor:
    """Which of a glance's cells the kept cells cover wholly: `(G,)` bool, raster order.

    A glance's cell need not begin at a native token's border: areas of overlap are added up.
    """
    h, w = allocation.grid
    kept = torch.zeros(h, w, dtype=torch.float64)
    if allocation.is_native:
        kept.view(-1)[allocation.native_index()] = 1
    else:
        for top, left, bottom, right in allocation.bounds().tolist():
            kept[top:bottom, left:right] = 1
    rows, columns = _overlap(glance_grid[0], h), _overlap(glance_grid[1], w)
    area = (h / glance_grid[0]) * (w / glance_grid[1])
    return (rows @ kept @ columns.T).flatten() > area * (1 - 1e-9)


def _overlap(cells: int, tokens: int) -> Tensor:
    """`(cells, tokens)` length that each of `cells` equal parts of an axis shares with each token."""
    size = tokens / cells
    start = torch.arange(cells, dtype=torch.float64)[:, None] * size
    token = torch.arange(tokens, dtype=torch.float64)[None]
    return (torch.minimum(start + size, token + 1) - torch.maximum(start, token)).clamp(min=0)
