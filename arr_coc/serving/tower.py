"""Tower: the vision encoder run block by block on chosen patches, with a glance's keys beside; no vLLM.

vLLM's vision tower has no seam for keys of another length than the queries, so its own blocks are run here,
one after the other: its norms, its projections, its MLPs and mergers, with no second copy of a weight. The
names are those of transformers' tower as well, on which the tests hold this loop to `qwen.encoding`. Under
tensor parallelism each rank has some of the heads, and the blocks' own output projections add them up.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from arr_coc.attending import Allocation
from arr_coc.qwen.cells import cell_patch_positions, interpolation_taps
from arr_coc.qwen.context import EncoderContext, Layers, Surrounded, equal_cells
from arr_coc.qwen.inputs import native_places, raster_places

# Of the rotary embedding, where a config names none.
THETA = 10_000.0


@dataclass(frozen=True)
class Tower:
    """A vision tower and what its modules do not say alike.

    Attributes:
        visual: vLLM's `Qwen3_VisionTransformer` or transformers' `Qwen3VLVisionModel`.
        heads: of all ranks together.
        width: of its hidden states.
        theta: base of its rotary embedding.
        merge: patches on a side of a visual token.
    """

    visual: Any
    heads: int
    width: int
    theta: float
    merge: int

    @classmethod
    def of(cls, visual: Any, config: Any) -> "Tower":
        """The tower of a checkpoint's vision config."""
        rope = getattr(config, "rope_parameters", None) or {}
        theta = rope.get("rope_theta", THETA)
        return cls(visual, config.num_heads, config.hidden_size, theta, config.spatial_merge_size)

    def angles(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines `(P, head_dim)` float32 at patch coordinates `(P, 2)`."""
        spatial = self.width // self.heads // 2
        steps = torch.arange(0, spatial, 2, dtype=torch.float32, device=positions.device)
        turns = positions[:, :, None].float() / self.theta ** (
            steps / spatial
        )  # (P, 2, spatial / 2)
        half = turns.flatten(1)
        both = torch.cat([half, half], 1)
        return both.cos(), both.sin()


@dataclass(frozen=True)
class Shown:
    """What the tower is shown of one picture.

    Attributes:
        patches: `(P, C)` whole merge units in block order.
        positions: `(P, 2)` float32 patch coordinates on the native grid.
        patch_grid: rows and columns of that grid.
        beside: what they meet of a context; None for none.
    """

    patches: Tensor
    positions: Tensor
    patch_grid: tuple[int, int]
    beside: Surrounded | None = None


@dataclass(frozen=True)
class Seen:
    """What came of it: features, then DeepStack planes `(P / merge**2, D)`; keys and values by block."""

    planes: list[Tensor]
    layers: Layers


def show(tower: Tower, pictures: Sequence[Shown]) -> list[Seen]:
    """Run the tower on the patches of several pictures, none seeing another."""
    visual, sizes = tower.visual, [len(picture.patches) for picture in pictures]
    cos, sin = tower.angles(torch.cat([p.positions for p in pictures]))
    patches = torch.cat([picture.patches for picture in pictures]).to(cos.device)
    # vLLM's tower normalises raw pixels itself, transformers' gets them normalised.
    norm = getattr(visual, "input_norm", None)
    states = visual.patch_embed(norm(patches, visual.dtype) if norm else patches.to(visual.dtype))
    states = states + torch.cat([_learned(visual, p) for p in pictures]).to(states.dtype)
    noted: list[Layers] = [[] for _ in pictures]
    deepstack = []
    for number, block in enumerate(visual.blocks):
        qkv = first(block.attn.qkv(block.norm1(states)))
        query, key, value = qkv.view(len(qkv), 3, -1, cos.shape[1]).unbind(
            1
        )  # (T, heads, head_dim)
        query, key = rotated(query, cos, sin), rotated(key, cos, sin)
        rows = [
            part.transpose(0, 1)[None].split(sizes, 2)  # (1, heads, P, head_dim) of each picture
            for part in (query, key, value)
        ]
        attended = []
        for picture, layers, q, k, v in zip(pictures, noted, *rows):
            layers.append((k, v))
            if picture.beside is not None:
                q, k, v = picture.beside.corrected(number, q, k, v)
                keys, values = picture.beside.layers[number]
                k, v = torch.cat([keys, k], 2), torch.cat([values, v], 2)
            attended.append(F.scaled_dot_product_attention(q, k, v)[0].transpose(0, 1).flatten(1))
        states = states + first(block.attn.proj(torch.cat(attended)))
        states = states + block.mlp(block.norm2(states))
        if number in visual.deepstack_visual_indexes:
            merger = visual.deepstack_merger_list[visual.deepstack_visual_indexes.index(number)]
            deepstack.append(merger(states))
    units = [size // tower.merge**2 for size in sizes]
    planes = zip(*(plane.split(units) for plane in [visual.merger(states), *deepstack]))
    return [Seen(list(own), layers) for own, layers in zip(planes, noted)]


def cells_shown(tower: Tower, patches: Tensor, cells: Tensor, grid: tuple[int, int]) -> Shown:
    """Patches of cells `(S, 3)`, rows of level, row and column on a picture's `grid`, at their places."""
    bounds = Allocation(grid, cells, torch.zeros(len(cells))).bounds().to(patches.device)
    patch_grid = (grid[0] * tower.merge, grid[1] * tower.merge)
    return Shown(patches, cell_patch_positions(bounds, tower.merge), patch_grid)


def glance_shown(tower: Tower, patches: Tensor, small: tuple[int, int]) -> Shown:
    """Patches of a whole small picture of `small` tokens, at its own places."""
    cells = raster_places(small).long()
    return cells_shown(tower, patches, F.pad(cells, (1, 0)), small)


def context_of(
    tower: Tower, seen: Seen, small: tuple[int, int], grid: tuple[int, int]
) -> EncoderContext:
    """A glance's keys and values as a context of its whole picture, as `qwen.context.native_context`."""
    native, own = (
        cell_patch_positions(equal_cells(small, frame), tower.merge) for frame in (grid, small)
    )
    device = seen.planes[0].device
    turn, at_native = (tower.angles(where.to(device)) for where in (native - own, native))
    return EncoderContext(seen.layers, turn, at_native, small, tower.merge)


def glance_places(small: tuple[int, int], grid: tuple[int, int], device: torch.device) -> Tensor:
    """Where a glance's tokens stand in its whole picture: `(G, 2)` in native tokens."""
    return native_places(raster_places(small, device), small, grid)


def rotated(states: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """`(T, heads, head_dim)` after the rotary embedding, computed in float32."""
    wide, (low, high) = states.float(), states.float().chunk(2, -1)
    turned = wide * cos[:, None] + torch.cat([-high, low], -1) * sin[:, None]
    return turned.to(states.dtype)


def first(output: Any) -> Tensor:
    """vLLM's linear layers give their bias besides; transformers' do not."""
    return output[0] if isinstance(output, tuple) else output


def _learned(visual: Any, picture: Shown) -> Tensor:
    """The learned position embeddings of a picture's patches, `(P, width)`."""
    index, weight = interpolation_taps(
        picture.positions, picture.patch_grid, visual.num_grid_per_side
    )
    return (visual.pos_embed(index) * weight[:, :, None]).sum(1)
