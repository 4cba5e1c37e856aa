"""How stock Qwen3-VL encodes part of an image: pictures, cells, positions, prompts.

Pure functions over the stock model's public arguments; nothing is patched and nothing is kept. An
image is a `Picture`, an `Allocation` of it becomes a `TokenSet`, and a `Prompt` says where the
visual tokens stand among the words. `qwen` puts them together.

"Merge unit" below is one visual token: `merge x merge` patches (2 x 2 of 16 pixels in Qwen3-VL), kept
in the processor's block order. Patch coordinates are `(row, column)` on the native patch grid; coarse
cells sit between its integers.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers.models.qwen3_vl.modeling_qwen3_vl import (
    BaseModelOutputWithDeepstackFeatures,
    apply_rotary_pos_emb,
    repeat_kv,
)

from arr_coc.around import with_halo, with_surroundings
from arr_coc.attending import Allocation


@dataclass(frozen=True)
class Geometry:
    """Sizes of the vision tower's input, read from its config and processor."""

    patch: int
    merge: int
    temporal: int
    mean: tuple[float, ...]
    std: tuple[float, ...]

    @property
    def unit_pixels(self) -> int:
        """Pixels on one side of a visual token."""
        return self.patch * self.merge


@dataclass(frozen=True)
class Picture:
    """One image as the stock processor prepared it.

    Attributes:
        patches: `(P, 3 * temporal * patch * patch)` float32, normalised, in block order.
        grid_thw: `(1, 3)` int64, (1, patch rows, patch columns).
        geometry: the tower's sizes.
        source: the image it was made of, for another look at another size.
    """

    patches: Tensor
    grid_thw: Tensor
    geometry: Geometry
    source: Any = None

    @cached_property
    def grid(self) -> tuple[int, int]:
        """`(h, w)` in visual tokens."""
        _, rows, columns = self.grid_thw[0].tolist()
        return rows // self.geometry.merge, columns // self.geometry.merge

    @property
    def tokens(self) -> int:
        """N, the image's visual tokens."""
        return self.grid[0] * self.grid[1]

    def normalised(self) -> Tensor:
        """`(1, 3, H, W)` the normalised pixels, put back together from the patches."""
        g, (h, w) = self.geometry, self.grid
        blocks = self.patches.view(h, w, g.merge, g.merge, 3, g.temporal, g.patch, g.patch)
        frame = blocks[:, :, :, :, :, 0]  # (h, w, m, m, 3, p, p): the frames of a still are equal
        return frame.permute(4, 0, 2, 5, 1, 3, 6).reshape(
            1, 3, h * g.unit_pixels, w * g.unit_pixels
        )

    def pixels(self) -> Tensor:
        """`(1, 3, H, W)` sRGB in [0, 1], as the model sees it."""
        mean = self.patches.new_tensor(self.geometry.mean).view(1, 3, 1, 1)
        std = self.patches.new_tensor(self.geometry.std).view(1, 3, 1, 1)
        return (self.normalised() * std + mean).clamp(0, 1)

    def to(self, device: torch.device) -> "Picture":
        """The same picture on another device."""
        return Picture(
            self.patches.to(device), self.grid_thw.to(device), self.geometry, self.source
        )


@dataclass(frozen=True)
class TokenSet:
    """K visual tokens ready for the language model; the seam for who merges, adds or re-encodes.

    Attributes:
        features: `(K, D)`.
        deepstack: one `(K, D)` per DeepStack layer, cut with the same cells.
        places: `(K, 2)` float32 row and column in native visual tokens; fractional for coarse cells.
    """

    features: Tensor
    deepstack: tuple[Tensor, ...]
    places: Tensor

    def __len__(self) -> int:
        return len(self.features)

    def __add__(self, other: "TokenSet") -> "TokenSet":
        pairs = zip(self.deepstack, other.deepstack, strict=True)
        return TokenSet(
            torch.cat([self.features, other.features]),
            tuple(torch.cat(pair) for pair in pairs),
            torch.cat([self.places, other.places]),
        )

    def at(self, index: Tensor | slice) -> "TokenSet":
        """Those at `index`, `(k,)` int64 or a slice."""
        planes = tuple(plane[index] for plane in self.deepstack)
        return TokenSet(self.features[index], planes, self.places[index])

    def encoder_outputs(self) -> dict[str, BaseModelOutputWithDeepstackFeatures]:
        """The `mm_encoder_outputs` argument of the stock model."""
        return {
            "image": BaseModelOutputWithDeepstackFeatures(
                pooler_output=(self.features,),
                deepstack_features=[(plane,) for plane in self.deepstack],
            )
        }


def cell_places(bounds: Tensor) -> Tensor:
    """Centres of cells `(K, 4)` (top, left, bottom, right) in native tokens: `(K, 2)` float32."""
    return (bounds[:, :2] + bounds[:, 2:] - 1).float() / 2


def cell_patch_positions(bounds: Tensor, merge: int) -> Tensor:
    """Patch coordinates of each cell's patches, `(K * merge**2, 2)` float32 in block order.

    A cell of one native token has the integers of the stock grid; a coarse one has the centres of
    the larger squares that its patches cover.
    """
    top_left, size = bounds[:, :2].float(), (bounds[:, 2:] - bounds[:, :2]).float()  # (K, 2)
    step = torch.arange(merge, device=bounds.device, dtype=torch.float32) + 0.5
    offset = torch.stack(torch.meshgrid(step, step, indexing="ij"), -1).view(
        1, -1, 2
    )  # (1, m*m, 2)
    positions = top_left[:, None] * merge + offset * size[:, None] - 0.5  # (K, m*m, 2)
    return positions.reshape(-1, 2)


def interpolation_taps(positions: Tensor, patch_grid: tuple[int, int], side: int) -> tuple:
    """Bilinear taps into the square table of learned positions, at fractional patch coordinates.

    Equal to transformers' public helper at integers, where `align_corners` is true as in Qwen3-VL.

    Args:
        positions: `(P, 2)` float32 patch coordinates.
        patch_grid: rows and columns of the native patch grid.
        side: the table's side.

    Returns:
        `(P, 4)` int64 indices and `(P, 4)` float32 weights.
    """
    rows, columns = (_axis_taps(positions[:, axis], patch_grid[axis], side) for axis in (0, 1))
    index = (rows[0][:, :, None] * side + columns[0][:, None, :]).flatten(1)
    weight = (rows[1][:, :, None] * columns[1][:, None, :]).flatten(1)
    return index, weight


def _axis_taps(position: Tensor, size: int, side: int) -> tuple[Tensor, Tensor]:
    """`(P,)` coordinates on an axis of `size` -> `(P, 2)` taps and weights on one of `side`."""
    source = (position * (side - 1) / max(size - 1, 1)).clamp(0, side - 1)
    floor = source.floor()
    taps = floor.long()[:, None] + torch.arange(2, device=position.device)
    distance = (source - floor)[:, None] - torch.arange(2, device=position.device)
    return taps.clamp(max=side - 1), 1 - distance.abs()


def encode_patches(
    visual: torch.nn.Module,
    patches: Tensor,
    positions: Tensor,
    patch_grid: tuple[int, int],
    learned_at: Tensor | None = None,
) -> tuple[Tensor, list[Tensor]]:
    """Run the stock vision tower on any patches at any positions of a native patch grid.

    Args:
        visual: `Qwen3VLVisionModel`.
        patches: `(P, C)` whole merge units in block order.
        positions: `(P, 2)` float32 patch coordinates.
        patch_grid: rows and columns of the native patch grid.
        learned_at: `(P, 2)` where the learned positions are read; None takes `positions`.

    Returns:
        `(P / merge**2, D)` features and one such plane per DeepStack layer.
    """
    learned_at = positions if learned_at is None else learned_at
    index, weight = interpolation_taps(learned_at, patch_grid, visual.num_grid_per_side)
    count = len(patches)
    output = visual(
        patches.to(visual.dtype),
        # Only read where the values below are not given; they are.
        grid_thw=torch.tensor([[1, 1, count]], device=patches.device),
        interp_indices=index,
        interp_weights=weight,
        position_ids=positions,
        cu_seqlens=torch.tensor([0, count], dtype=torch.int32, device=patches.device),
        return_dict=True,
    )
    return output.pooler_output, list(output.deepstack_features)


def cell_patches(picture: Picture, allocation: Allocation) -> Tensor:
    """The allocation's patches `(K * merge**2, C)`: native ones gathered, coarse ones area-averaged."""
    unit = picture.geometry.merge**2
    if allocation.is_native:
        return _gather_units(picture.patches, allocation.native_index(), unit)
    bounds = allocation.bounds()
    patches = picture.patches.new_empty(len(allocation), unit, picture.patches.shape[1])
    sizes, kind = (bounds[:, 2:] - bounds[:, :2]).unique(dim=0, return_inverse=True)
    for i, (rows, columns) in enumerate(sizes.tolist()):  # few: the levels, and cuts at the edge
        members = (kind == i).nonzero()[:, 0]
        averaged = _average_cells(picture, bounds[members, :2], rows, columns)
        patches[members.to(patches.device)] = averaged
    return patches.flatten(0, 1)


def _gather_units(patches: Tensor, index: Tensor, unit: int) -> Tensor:
    units = patches.view(-1, unit, patches.shape[1])
    return units[index.to(patches.device)].flatten(0, 1)


def _average_cells(picture: Picture, corners: Tensor, rows: int, columns: int) -> Tensor:
    """Cells of `rows x columns` tokens at `corners` `(G, 2)`, each as one token: `(G, m*m, C)`."""
    g, (h, w) = picture.geometry, picture.grid
    m, p, side = g.merge, g.patch, g.unit_pixels
    units = picture.patches.view(h, w, m, m, 3, g.temporal, p, p)[:, :, :, :, :, 0]
    corners = corners.to(units.device)
    y = corners[:, 0, None] + torch.arange(rows, device=units.device)  # (G, rows)
    x = corners[:, 1, None] + torch.arange(columns, device=units.device)
    cells = units[y[:, :, None], x[:, None]]  # (G, rows, columns, m, m, 3, p, p)
    pixels = cells.permute(0, 5, 1, 3, 6, 2, 4, 7).reshape(-1, 3, rows * side, columns * side)
    small = F.avg_pool2d(pixels, (rows, columns))  # (G, 3, side, side)
    blocks = small.view(-1, 3, m, p, m, p).permute(0, 2, 4, 1, 3, 5)  # (G, m, m, 3, p, p)
    frames = blocks[:, :, :, :, None].expand(-1, -1, -1, -1, g.temporal, -1, -1)
    return frames.reshape(len(corners), m * m, -1)


def encode_before(
    visual: torch.nn.Module,
    picture: Picture,
    allocation: Allocation,
    surroundings: int = 0,
    halo: float = 0.0,
) -> TokenSet:
    """Prune before the encoder: it only ever sees the kept cells, `with_halo` and `with_surroundings`.

    It attends globally, and what it is shown on its own it places and reads less well. The features of
    halo and surroundings are dropped.
    """
    device, kept = picture.patches.device, len(allocation)
    allocation = with_surroundings(with_halo(allocation, halo), surroundings)
    bounds = allocation.bounds().to(device)
    positions = cell_patch_positions(bounds, picture.geometry.merge)
    patch_grid = tuple(picture.grid_thw[0, 1:].tolist())
    patches = cell_patches(picture, allocation)
    features, deepstack = encode_patches(visual, patches, positions, patch_grid)
    return TokenSet(features, tuple(deepstack), cell_places(bounds)).at(slice(kept))


def encode_all(visual: torch.nn.Module, picture: Picture) -> TokenSet:
    """The stock encoder call on the whole picture; all N tokens in raster order."""
    output = visual(picture.patches.to(visual.dtype), grid_thw=picture.grid_thw, return_dict=True)
    h, w = picture.grid
    index = torch.arange(h * w, device=picture.patches.device)
    places = torch.stack([index // w, index % w], 1).float()
    return TokenSet(output.pooler_output, tuple(output.deepstack_features), places)


def cut(tokens: TokenSet, allocation: Allocation) -> TokenSet:
    """Prune after the encoder: keep native cells, mean-pool features and planes over coarse ones."""
    device = tokens.features.device
    if allocation.is_native:
        return tokens.at(allocation.native_index().to(device))
    bounds = allocation.bounds().to(device)

    def pooled(plane: Tensor) -> Tensor:
        field = plane.view(*allocation.grid, -1)
        cells = [field[y0:y1, x0:x1].flatten(0, 1).mean(0) for y0, x0, y1, x1 in bounds.tolist()]
        return torch.stack(cells)

    deepstack = tuple(pooled(plane) for plane in tokens.deepstack)
    return TokenSet(pooled(tokens.features), deepstack, cell_places(bounds))


@dataclass(frozen=True)
class Prompt:
    """A chat prompt with one image, in token ids, and native M-RoPE positions.

    Attributes:
        prefix: `(1, A)` ids before the visual tokens, `<|vision_start|>` included.
        suffix: `(1, Z)` ids after them, from `<|vision_end|>` on.
        positions: `(3, 1, A + N + Z)` int64 native positions of the stock model.
        image_token: id of the visual placeholder.
    """

    prefix: Tensor
    suffix: Tensor
    positions: Tensor
    image_token: int

    @property
    def origin(self) -> int:
        """Position of the image's first token, from which its rows and columns count."""
        return int(self.positions[0, 0, self.prefix.shape[1]])

    def ids(self, visual_tokens: int) -> Tensor:
        """`(1, A + K + Z)` ids with K placeholders."""
        pads = self.prefix.new_full((1, visual_tokens), self.image_token)
        return torch.cat([self.prefix, pads, self.suffix], 1)

    def position_ids(self, places: Tensor) -> Tensor:
        """`(4, 1, A + K + Z)` for K visual tokens at `places` `(K, 2)` in native tokens.

        A contiguous text row on top of the native positions of what is kept. int64 where every place
        is whole, so that the stock values are met; float32 otherwise (bfloat16 cannot hold 257.5).
        """
        spatial = places.t() + self.origin  # (2, K)
        visual = torch.cat([torch.full_like(spatial[:1], self.origin), spatial])[:, None]
        if bool((visual == visual.round()).all()):
            visual = visual.long()
        A, Z = self.prefix.shape[1], self.suffix.shape[1]
        before, after = self.positions[:, :, :A], self.positions[:, :, -Z:]
        kept = torch.cat([before.to(visual.dtype), visual, after.to(visual.dtype)], 2)
        text = torch.arange(kept.shape[2], device=kept.device, dtype=kept.dtype)
        return torch.cat([text[None, None], kept], 0)


def question_attention(
    language_model: torch.nn.Module,
    hidden_states: tuple[Tensor, ...],
    cache: Any,
    position_ids: Tensor,
    rows: Tensor,
    columns: slice,
    layers: list[int],
) -> Tensor:
    """Attention that `rows` of a finished forward pass pay to `columns`, under any implementation.

    Recomputed from the hidden states and the KV cache for the given rows only. Sound for text rows;
    image rows of the first layers would miss DeepStack, which is added after a layer's state is kept.

    Args:
        language_model: `Qwen3VLTextModel`.
        hidden_states: per layer `(1, L, D)`, as `output_hidden_states=True` gives them.
        cache: the KV cache after that pass, L tokens long.
        position_ids: `(4, 1, L)` of that pass.
        rows: `(R,)` int64 query rows.
        columns: the key columns to return.
        layers: text layers to read.

    Returns:
        `(len(layers), heads, R, columns)` float32, rows of a softmax over all the columns they see.
    """
    cos, sin = language_model.rotary_emb(hidden_states[0], position_ids[1:])
    attention = []
    for index in layers:
        layer, keys = language_model.layers[index], cache.layers[index].keys
        module = layer.self_attn
        states = layer.input_layernorm(hidden_states[index][:, rows])
        query = module.q_proj(states).view(1, len(rows), -1, module.head_dim)
        query = module.q_norm(query).transpose(1, 2)  # (1, heads, R, head_dim)
        query, _ = apply_rotary_pos_emb(query, query, cos[:, rows], sin[:, rows])
        scores = query @ repeat_kv(keys, module.num_key_value_groups).transpose(2, 3)
        hidden = torch.arange(keys.shape[2], device=rows.device)[None] > rows[:, None]
        scores = (scores * module.scaling).float().masked_fill(hidden, -torch.inf)
        attention.append(scores.softmax(-1)[0, :, :, columns])
    return torch.stack(attention)
