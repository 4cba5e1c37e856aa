"""LoRA: low-rank maps on the vision encoder's queries, keys and values, for the focused look alone.

Kept cells attend to a glance in place of what surrounds them natively: the keys that they meet are those
of a smaller picture. Small learned corrections of what they ask for, of what they answer, and of how the
glance answers them make up for it. Stock's own pass never sees them. Zero at the start: then nothing
changes, bit for bit. Low-rank adaptation is Hu et al., 2106.09685.
"""

import torch
from torch import Tensor, nn

RANK = 32


class EncoderLoRA(nn.Module):
    """Corrections of queries, keys and values, a low-rank map for each block of the encoder.

    The attention function is not told the states from which queries, keys and values were made. It is told
    the values, which are a linear map of them; what is low-rank of the one is low-rank of the other.
    """

    def __init__(self, width: int, blocks: int, rank: int = RANK) -> None:
        """`width` is the encoder's hidden size, `blocks` its depth."""
        super().__init__()
        self.sizes = {"width": width, "blocks": blocks, "rank": rank}
        self.kept_down = nn.Parameter(torch.randn(blocks, width, rank) / width**0.5)
        self.kept_up = nn.Parameter(torch.zeros(blocks, rank, 3 * width))
        self.seen_down = nn.Parameter(torch.randn(blocks, width, rank) / width**0.5)
        self.seen_up = nn.Parameter(torch.zeros(blocks, rank, 2 * width))

    def of_kept(self, block: int, value: Tensor) -> Tensor:
        """What to add to the queries, keys (both before their rotary embedding) and values of kept cells.

        Args:
            block: of the encoder, from 0.
            value: `(1, heads, P, head_dim)` of P patches.

        Returns:
            `(P, 3, heads, head_dim)`: three of each patch.
        """
        return _low_rank(value, self.kept_down[block, None], self.kept_up[block, None])[0]

    def of_seen(self, values: Tensor) -> Tensor:
        """The same of a glance's keys and values, of every block at once.

        `(blocks, heads, P, head_dim)` -> two of each patch: `(blocks, P, 2, heads, head_dim)`.
        """
        return _low_rank(values, self.seen_down, self.seen_up)


def _low_rank(values: Tensor, down: Tensor, up: Tensor) -> Tensor:
    """`(blocks, heads, P, head_dim)` through two matrices a block -> `(blocks, P, M, heads, head_dim)`."""
    blocks, heads, patches, head_dim = values.shape
    rows = values.transpose(1, 2).reshape(blocks, patches, heads * head_dim)
    out = rows @ down.to(rows.dtype) @ up.to(rows.dtype)
    return out.view(blocks, patches, -1, heads, head_dim)
