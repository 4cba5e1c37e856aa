"""Changes: what became of a clip's things, told of every visual token of every moment.

The vision side sees one moment at a time, so only the text side can tell what is new, gone, in another
colour or on its way, by looking back from one moment's tokens to those before. It is asked so on its way
through the layers; the read-outs are thrown away with the others (`codes.Heads`).
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import nn

from arr_coc.pretrain.labels import THING_NAMES
from arr_coc.scenes import actors
from arr_coc.scenes.actors import Actor
from arr_coc.scenes.drawing import Box
from arr_coc.scenes.moments import Told

NEW, GONE, RECOLOURED, ON_ITS_WAY = 1, 2, 3, 4  # classes; 0 is nothing, or what stays as it is
KINDS = 1 + ON_ITS_WAY
UNTOLD = -100  # where nobody knows: the view moves, or another scene begins
READ_AFTER = 4  # layers of the text side
BACKGROUND_WEIGHT = 0.1  # of the class "nothing", against 1: most tokens change nothing


def changes_of(told: Told, groups: int, grid: tuple[int, int]) -> torch.Tensor:
    """What happens at each visual token of `groups` moments, and to what: `(groups * h * w, 2)` int64.

    The second is a class of `labels.THING_NAMES`. `grid` is (h, w) of a moment.
    """
    if told.pans or told.cuts:
        return torch.full((groups * grid[0] * grid[1], 2), UNTOLD)
    changes = torch.zeros(groups, *grid, 2, dtype=torch.long)
    for actor, seen in zip(told.actors, told.visible, strict=True):
        places = dict(seen)
        name = THING_NAMES.index(actor.name)
        for moment in range(1, groups):
            kind, box = _change(actor, places, moment)
            if box is not None:
                changes[moment][_tokens(box, told.size, grid)] = torch.tensor([kind, name])
    return changes.reshape(-1, 2)


def _change(actor: Actor, places: dict[int, Box], moment: int) -> tuple[int, Box | None]:
    """What is different with a thing since the moment before, and where it is seen or was."""
    before, now = places.get(moment - 1), places.get(moment)
    if now is None:
        return GONE, before
    if before is None:
        return NEW, now
    if actor.colours[moment] != actor.colours[moment - 1]:
        return RECOLOURED, now
    return (ON_ITS_WAY, now) if actor.role == actors.MOVES else (0, None)


def _tokens(box: Box, size: tuple[int, int], grid: tuple[int, int]) -> tuple[slice, slice]:
    """Rows and columns of the tokens that a box covers, one at least each way."""
    (h, w), (width, height) = grid, size
    top, bottom = min(h - 1, round(box[1] * h / height)), round(box[3] * h / height)
    left, right = min(w - 1, round(box[0] * w / width)), round(box[2] * w / width)
    return slice(top, max(bottom, top + 1)), slice(left, max(right, left + 1))


class ChangeHeads(nn.Module):
    """Read-outs of the text side at visual tokens: what happens there, and to what."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.kind, self.name = nn.Linear(width, KINDS), nn.Linear(width, len(THING_NAMES))

    def loss(
        self, layers: Sequence[torch.Tensor], shown: torch.Tensor, changes: torch.Tensor
    ) -> torch.Tensor:
        """Cross-entropy of what happens, and of what it happens to where something does.

        Args:
            layers: hidden states `(n, L, D)` before the first and after every layer.
            shown: `(N,)` where visual tokens stand in each sequence.
            changes: `(n, N, 2)` as `changes_of` gives them.
        """
        hidden = layers[min(READ_AFTER, len(layers) - 1)][:, shown]
        x, (kind, name) = self.norm(hidden).flatten(0, 1), changes.flatten(0, 1).unbind(-1)
        weight = torch.ones(KINDS, device=x.device)
        weight[0] = BACKGROUND_WEIGHT
        happens = kind > 0
        loss = F.cross_entropy(self.kind(x).float(), kind, weight, ignore_index=UNTOLD)
        if happens.any():
            loss = loss + F.cross_entropy(self.name(x[happens]).float(), name[happens])
        return loss
