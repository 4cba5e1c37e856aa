"""Adapting: the quality adapter, which corrects visual tokens encoded from a part of the picture.

A vision encoder that sees the kept patches, and the rest in coarse cells, gives other features than one
that sees all of them. The adapter adds to each kept token a small correction, given the cell's level and
place, what the glance saw there, and where it attends, what else was kept. The glance is a picture encoded
as a whole: its tokens know what lies around them. The gates are 0 at the start: then it is the identity,
bit for bit. Trained by `arr_coc.train` to come near what the full encoder gives at the same places (brief,
part 29).
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# Shares of a picture's native tokens: corrected in full where at most the first is kept, and not at all
# from the second on. An encoder that sees so much leaves nothing to correct.
FULL_UP_TO, NONE_FROM = 1 / 8, 1 / 4
LEVELS = 6  # of cells; coarser ones count as the last
# Wavelengths of the sines that encode a token's place, in native tokens.
WAVELENGTHS = (4.0, 8.0, 16.0, 32.0, 64.0)
HEADS = 4


class QualityAdapter(nn.Module):
    """`x + tanh(gate) * correction` on the features and on each DeepStack plane.

    The correction comes from one narrow trunk: all planes of a token, where it `glances` those of the
    glance at its place too, its level and its place, and a small MLP; where it attends, self-attention
    among the kept tokens before that.
    """

    def __init__(
        self,
        feature_size: int,
        planes: int,
        width: int = 96,
        attends: bool = False,
        glances: bool = False,
    ) -> None:
        """`planes` counts the features and the DeepStack planes; `attends` is the self-attention."""
        super().__init__()
        self.sizes = {"feature_size": feature_size, "planes": planes, "width": width}
        self.sizes |= {"attends": attends, "glances": glances}
        read = 2 * planes if glances else planes
        self.norms = nn.ModuleList(nn.LayerNorm(feature_size) for _ in range(read))
        self.enter = nn.Linear(read * feature_size, width)
        self.level = nn.Embedding(LEVELS, width)
        self.place = nn.Linear(4 * len(WAVELENGTHS), width)
        self.norm = nn.LayerNorm(width) if attends else None
        self.attention = nn.MultiheadAttention(width, HEADS, batch_first=True) if attends else None
        self.mlp = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )
        self.leave = nn.ModuleList(nn.Linear(width, feature_size) for _ in range(planes))
        self.gates = nn.Parameter(torch.zeros(planes))

    def forward(
        self,
        planes: list[Tensor],
        places: Tensor,
        levels: Tensor,
        padding: Tensor | None = None,
        glance: list[Tensor] | None = None,
        strengths: Tensor | None = None,
    ) -> list[Tensor]:
        """Correct the tokens of B pictures.

        Args:
            planes: the features, then each DeepStack plane, `(B, K, D)`, any dtype.
            places: `(B, K, 2)` row and column in native tokens.
            levels: `(B, K)` int64, level of each token's cell.
            padding: `(B, K)` bool, True where a row holds no token; None where all do.
            glance: `glanced` planes, `(B, K, D)` each, 0 where there was no glance; None for 0 anywhere.
                An adapter that does not glance ignores them.
            strengths: `(B,)` by which the corrections are multiplied, see `strength`; None for 1.

        Returns:
            As `planes`, shapes and dtypes included.
        """
        read = planes
        if self.sizes["glances"]:
            read = [*planes, *(glance or [torch.zeros_like(plane) for plane in planes])]
        normed = [norm(plane.float()) for norm, plane in zip(self.norms, read, strict=True)]
        states = self.enter(torch.cat(normed, -1)) + self.level(levels.clamp(max=LEVELS - 1))
        states = states + self.place(waves(places))  # (B, K, width)
        if self.attention is not None:
            inner = self.norm(states)
            mixed = self.attention(
                inner, inner, inner, key_padding_mask=padding, need_weights=False
            )
            states = states + mixed[0]
        states = states + self.mlp(states)
        factor = 1 if strengths is None else strengths[:, None, None]
        return [
            plane + (factor * torch.tanh(gate) * leave(states)).to(plane.dtype)
            for plane, gate, leave in zip(planes, self.gates, self.leave)
        ]


def strength(share: float, context: str = "cells") -> float:
    """How much of its correction a token gets where `share` of the picture's native tokens is kept.

    With halo and surroundings ("cells") little is left to correct from a quarter on; beside a glance the
    encoder misses what is not kept, to the last token.
    """
    if context == "glance":
        return 1 - share
    return min(1.0, max(0.0, (NONE_FROM - share) / (NONE_FROM - FULL_UP_TO)))


def glanced(planes: list[Tensor], places: Tensor, at: Tensor) -> list[Tensor]:
    """What a glance saw at other places, between its tokens (bilinear), and at its border beyond them.

    Args:
        planes: of the glance, `(G, D)` each, its tokens in raster order.
        places: `(G, 2)` row and column of their centres in native tokens, a regular grid.
        at: `(K, 2)`.

    Returns:
        `(K, D)` each.
    """
    rows = len(places[:, 0].unique())
    columns = len(places) // rows
    size = torch.tensor([rows, columns], device=at.device)
    first, last = places[0], places[-1]
    # Along an axis of one token every place is that token's.
    step = ((last - first) / (size - 1).clamp(min=1)).clamp(min=1e-6)
    index = torch.minimum(((at - first) / step).clamp(min=0), size - 1)  # in the glance's tokens
    # grid_sample counts (x, y) from -1 to 1 between the outer edges, token centres half a token inside.
    where = (2 * index + 1) / size - 1
    field = torch.cat(planes, 1).float().view(1, rows, columns, -1).permute(0, 3, 1, 2)
    sampled = F.grid_sample(field, where.flip(1)[None, None], align_corners=False)  # (1, C, 1, K)
    return list(sampled[0, :, 0].T.split([plane.shape[1] for plane in planes], 1))


def waves(places: Tensor) -> Tensor:
    """`(..., 2)` rows and columns -> `(..., 4 * len(WAVELENGTHS))` sines and cosines."""
    angle = places.float()[..., None] * (2 * torch.pi / places.new_tensor(WAVELENGTHS).float())
    return torch.cat([angle.sin(), angle.cos()], -1).flatten(-2)
