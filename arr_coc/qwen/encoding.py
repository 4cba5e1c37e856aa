"""Encoding: the stock vision tower on whole pictures or on chosen cells of them.

Functions over the stock model's public arguments; nothing is patched. Pictures and the cells to keep of
them become `TokenSet`s, many pictures in one call; one picture is the special case.
"""

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from transformers.models.qwen3_vl.modeling_qwen3_vl import (
    BaseModelOutputWithDeepstackFeatures,
)

from arr_coc.attending import Allocation
from arr_coc.components import Components, context_for
from arr_coc.lora import EncoderLoRA
from arr_coc.qwen.cells import (
    cell_patch_positions,
    cell_patches,
    cell_places,
    interpolation_taps,
    with_halo,
    with_surroundings,
)
from arr_coc.qwen.context import (
    Beside,
    EncoderContext,
    PerPicture,
    Recorder,
    is_installed,
    surrounded,
    turned,
)
from arr_coc.qwen.finite import is_finite
from arr_coc.qwen.inputs import Picture, raster_places
from arr_coc.qwen.prompts import IMAGE
from arr_coc.qwen.tower import run_tower
from arr_coc.realizing import Realization

log = logging.getLogger(__name__)


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
        return joined([self, other])

    @property
    def planes(self) -> list[Tensor]:
        """The features, then the DeepStack planes, `(K, D)` each."""
        return [self.features, *self.deepstack]

    def at(self, index: Tensor | slice) -> "TokenSet":
        """Those at `index`, `(k,)` int64 or a slice."""
        planes = tuple(plane[index] for plane in self.deepstack)
        return TokenSet(self.features[index], planes, self.places[index])

    def encoder_outputs(
        self, modality: str = IMAGE
    ) -> dict[str, BaseModelOutputWithDeepstackFeatures]:
        """The `mm_encoder_outputs` argument of the stock model, for images or a clip (`prompts.TYPES`)."""
        return {
            modality: BaseModelOutputWithDeepstackFeatures(
                pooler_output=(self.features,),
                deepstack_features=[(plane,) for plane in self.deepstack],
            )
        }


def joined(tokens: Sequence[TokenSet]) -> TokenSet:
    """Several sets as one, in their order; of one that set itself."""
    if len(tokens) == 1:
        return tokens[0]
    planes = zip(*(one.deepstack for one in tokens), strict=True)
    return TokenSet(
        torch.cat([one.features for one in tokens]),
        tuple(torch.cat(plane) for plane in planes),
        torch.cat([one.places for one in tokens]),
    )


def encode_all(visual: torch.nn.Module, picture: Picture) -> TokenSet:
    """The stock encoder call on the whole picture; all N tokens in raster order."""
    return encode_pictures(visual, [picture])[0]


def encode_pictures(
    visual: torch.nn.Module, pictures: Sequence[Picture], recorder: Recorder | None = None
) -> list[TokenSet]:
    """As `encode_all` of each picture, in one call.

    `recorder` notes their keys and values: a pass of ARR-COC's own, equal to stock's but for the last bits.
    """
    places = [raster_places(p.grid, p.device) for p in pictures]
    if recorder is None:
        patches = _stacked([p.patches for p in pictures])
        grids = _stacked([p.grid_thw for p in pictures])
        return _token_sets(_tower(visual, patches, None, grid_thw=grids), places)
    patches, positions, taps = [], [], []
    for picture, at in zip(pictures, places):
        patches.append(picture.units(torch.arange(picture.tokens)))
        own = cell_patch_positions(torch.cat([at, at + 1], 1), picture.geometry.merge)
        positions.append(own)
        taps.append(interpolation_taps(own, picture.patch_grid, visual.num_grid_per_side))
    return _token_sets(_encode_segments(visual, patches, positions, taps, recorder), places)


def encode_before(
    visual: torch.nn.Module,
    picture: Picture,
    allocation: Allocation,
    surroundings: int = 0,
    halo: float = 0.0,
    context: EncoderContext | None = None,
    lora: EncoderLoRA | None = None,
) -> TokenSet:
    """Prune before the encoder: it only ever sees the kept cells, `with_halo` and `with_surroundings`.

    It attends globally, and what it is shown on its own it places and reads less well. The features of
    halo and surroundings are dropped; a context is attended to without being encoded.
    """
    return encode_kept(visual, [picture], [allocation], [surroundings], halo, [context], lora)[0]


def encode_kept(
    visual: torch.nn.Module,
    pictures: Sequence[Picture],
    allocations: Sequence[Allocation],
    surroundings: Sequence[int],
    halo: float,
    contexts: Sequence[EncoderContext | None] | None = None,
    lora: EncoderLoRA | None = None,
) -> list[TokenSet]:
    """As `encode_before` of each picture, in one call.

    Args:
        visual: `Qwen3VLVisionModel`.
        pictures: B of them, of any sizes.
        allocations: of each picture, the cells to keep; one that keeps none is not encoded at all.
        surroundings: for each picture, at most so many coarse cells over the rest of it.
        halo: native cells next to the kept ones, as a share of them.
        contexts: for each picture, its glance's keys and values to attend to besides; None for none.
        lora: corrects queries, keys and values where there is a context, the more the less is kept.
    """
    contexts = contexts or [None] * len(pictures)
    busy = [number for number, kept in enumerate(allocations) if len(kept)]
    if 0 < len(busy) < len(pictures):
        columns = (pictures, allocations, surroundings, contexts)
        own, cells, around, beside = ([column[number] for number in busy] for column in columns)
        some = encode_kept(visual, own, cells, around, halo, beside, lora)
        made = dict(zip(busy, some))
        return [made.get(number, some[0].at(slice(0))) for number in range(len(pictures))]
    patches, positions, taps, places = [], [], [], []
    for picture, kept, cells in zip(pictures, allocations, surroundings, strict=True):
        shown = with_surroundings(with_halo(kept, halo), cells)
        bounds = shown.bounds().to(picture.device)
        at = cell_patch_positions(bounds, picture.geometry.merge)
        patches.append(cell_patches(picture, shown))
        positions.append(at)
        taps.append(interpolation_taps(at, picture.patch_grid, visual.num_grid_per_side))
        places.append(cell_places(bounds))
    around = [
        context and surrounded(context, kept, partial(turned, visual, at), lora)
        for context, kept, at in zip(contexts, allocations, positions, strict=True)
    ]
    beside = Beside(visual, around) if any(around) else None
    planes = _encode_segments(visual, patches, positions, taps, beside)
    # Halo and surroundings come after the kept cells of each picture.
    whole = _token_sets(planes, places)
    return [tokens.at(slice(len(kept))) for tokens, kept in zip(whole, allocations)]


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
    taps = interpolation_taps(learned_at, patch_grid, visual.num_grid_per_side)
    features, *deepstack = _encode_segments(visual, [patches], [positions], [taps])
    return features, deepstack


def _encode_segments(
    visual: torch.nn.Module,
    patches: list[Tensor],
    positions: list[Tensor],
    taps: list[tuple[Tensor, Tensor]],
    attention: PerPicture | None = None,
) -> list[Tensor]:
    """The tower on each picture's patches at their positions, no picture seeing another."""
    counts = [len(own) for own in patches]
    device = patches[0].device
    # Attention stays within the segments between these borders, which are what the stock model derives
    # from grid_thw for whole pictures.
    borders = torch.tensor([0, *counts], device=device).cumsum(0)
    where = {
        "interp_indices": _stacked([index for index, _ in taps]),
        "interp_weights": _stacked([weight for _, weight in taps]),
        "position_ids": _stacked(positions),
        "cu_seqlens": borders.int(),
    }
    if attention is None:
        # Only read where the values above are not given; they are.
        where["grid_thw"] = torch.tensor([[1, 1, count] for count in counts], device=device)
    return _tower(visual, _stacked(patches), attention, **where)


def _tower(
    visual: torch.nn.Module, patches: Tensor, attention: PerPicture | None, **arguments: Any
) -> list[Tensor]:
    """Features, then the DeepStack planes, of one call of the vision tower.

    `attention` meets the keys and values of every block; the tower must be `context.is_installed`. Without
    one it is stock's own call.

    In float16 an overflow moves the tower to float32, once for all.
    """

    def planes(given: Tensor) -> list[Tensor]:
        if attention is not None:
            return run_tower(visual, given, **arguments, arr_coc=attention)
        output = visual(given, return_dict=True, **arguments)
        return [output.pooler_output, *output.deepstack_features]

    made = planes(patches.to(visual.dtype))
    if visual.dtype == torch.float16 and not is_finite(made):
        log.warning("the float16 vision tower overflowed; it runs in float32 from now on")
        # Weights made in inference mode could never be trained through again.
        with torch.inference_mode(False):
            visual.float()
        made = planes(patches.float())
    return made


def _stacked(tensors: list[Tensor]) -> Tensor:
    """Rows of all tensors; of one that tensor itself, which saves copying a large picture."""
    return tensors[0] if len(tensors) == 1 else torch.cat(tensors)


def _token_sets(planes: list[Tensor], places: list[Tensor]) -> list[TokenSet]:
    """Planes of several pictures in a row -> a set for each, as many tokens as it has places."""
    rows = zip(*(plane.split([len(at) for at in places]) for plane in planes))
    return [TokenSet(own[0], tuple(own[1:]), at) for own, at in zip(rows, places)]


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


def context_kind(
    realization: Realization, components: Components | None, visual: torch.nn.Module
) -> str:
    """What the kept cells of a realization are encoded with: "glance", "cells" or "none".

    "glance" is "cells" where no glance was taken, or the tower's attention takes no context.
    """
    kind = context_for(realization.config, components)
    possible = realization.glance is not None and is_installed(visual)
    return "cells" if kind == "glance" and not possible else kind


def adapted(
    tokens: TokenSet, realization: Realization, components: Components | None, context: str
) -> TokenSet:
    """Kept tokens as a trained adapter corrects them; the same without one.

    Training shows it native tokens alone: it neither corrects coarser ones nor sees them.

    Args:
        tokens: of the realization's allocation, encoded before.
        realization: what was decided; the adapter reads what its glance saw.
        components: the trained parts, with or without an adapter.
        context: what they were encoded with, as `context_kind` has it.
    """
    allocation = realization.allocation
    native = (allocation.cells[:, 0] == 0).nonzero()[:, 0].to(tokens.features.device)
    if components is None or components.adapter is None or not len(native):
        return tokens
    glance = realization.glance
    seen = glance.state.tokens if glance and glance.state else None
    corrected = components.adapt(
        [plane[native] for plane in tokens.planes],
        tokens.places[native],
        (seen.planes, seen.places) if seen else None,
        len(native) / math.prod(allocation.grid),
        context,
    )
    features, *deepstack = (
        plane.index_copy(0, native, values) for plane, values in zip(tokens.planes, corrected)
    )
    return TokenSet(features, tuple(deepstack), tokens.places)
