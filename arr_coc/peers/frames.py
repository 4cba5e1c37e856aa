"""Frames of positions: where the cells of a mixed-resolution allocation stand.

The default, `cells.cell_patch_positions`, is the native frame: a patch stands at the centre
of the square that it covers on the native grid. That is true to the place, but patches of one
coarse cell then lie 2^level apart, and the encoder only ever met neighbours 1 apart. The frames
here keep them 1 apart, each at a price; `ablations` has a variant for each. Level-0 cells stand in
the same places in every frame.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from arr_coc.attending import Allocation
from arr_coc.qwen.cells import cell_patch_positions, cell_patches, cell_places
from arr_coc.qwen.encoding import TokenSet, encode_patches
from arr_coc.qwen.inputs import Picture


class Frame(NamedTuple):
    """Where K cells stand, float32.

    Attributes:
        positions: `(K * merge**2, 2)` patch coordinates for the encoder's rotary positions.
        learned_at: the same for its table of learned positions, on the native patch grid.
        places: `(K, 2)` row and column for the language model.
    """

    positions: Tensor
    learned_at: Tensor
    places: Tensor


FrameOf = Callable[[Allocation, int], Frame]  # from an allocation and the merge size


def coarse(allocation: Allocation, merge: int) -> Frame:
    """Each cell where it would stand in the whole picture shrunk to the cell's own level.

    The stock model's positions of the shrunk picture, where all cells are of one level; cells of
    different levels may meet in one place.
    """
    level, corner = allocation.cells[:, 0], allocation.cells[:, 1:]
    own = torch.cat([corner, corner + 1], 1)  # bounds on the level's own grid
    positions = cell_patch_positions(own, merge)
    native = torch.tensor(allocation.grid)
    shrunk = (native + 2 ** level[:, None] - 1) // 2 ** level[:, None]  # (K, 2), rounded up
    # The learned table is read from corner to corner of the native patch grid: the shrunk one is stretched.
    stretch = (native * merge - 1) / (shrunk * merge - 1).clamp(min=1)
    return Frame(positions, positions * stretch.repeat_interleave(merge**2, 0), cell_places(own))


def coarse_encoder(allocation: Allocation, merge: int) -> Frame:
    """As `coarse` for the encoder, native places for the language model."""
    return coarse(allocation, merge)._replace(places=cell_places(allocation.bounds()))


def compact(allocation: Allocation, merge: int) -> Frame:
    """Native, but for the rotary positions: the cell's patches 1 apart around the cell's centre."""
    bounds = allocation.bounds()
    places = cell_places(bounds)
    around = cell_patch_positions(torch.cat([places, places + 1], 1), merge)
    return Frame(around, cell_patch_positions(bounds, merge), places)


def encode_in(
    visual: torch.nn.Module,
    picture: Picture,
    allocation: Allocation,
    frame: FrameOf,
) -> TokenSet:
    """As `encoding.encode_before` without surroundings, the cells standing in a frame."""
    device, cells = picture.device, frame(allocation, picture.geometry.merge)
    positions, learned_at, places = (where.to(device) for where in cells)
    features, deepstack = encode_patches(
        visual,
        cell_patches(picture, allocation),
        positions,
        picture.patch_grid,
        learned_at,
    )
    return TokenSet(features, tuple(deepstack), places)
