"""Places: which M-RoPE positions a prompt's tokens get where pictures hold fewer than native; no vLLM.

A picture's rows and columns count from the position of its first token, and the text after it goes on from
there plus its longer side, whatever was kept. So what follows a picture stands where it stands in the stock
model, and a cached prefix is right for whoever shares it. vLLM's positions are whole numbers.

Where the model itself decides, the places are known only after the prompt's positions have been made:
kept tokens then all stand at the picture's first position, and carry their row and column with their
features, as channels of small whole numbers that every dtype holds exactly (`with_channels`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

# A row or a column is two digits of this base: bfloat16 holds whole numbers exactly up to 256.
BASE = 256
CHANNELS = 4


@dataclass(frozen=True)
class Span:
    """A picture's, or a video frame's, tokens within a prompt.

    Attributes:
        offset: number of its first token in the prompt.
        grid: rows and columns of its native tokens.
        kept: how many tokens it has in the prompt.
        index: `(kept,)` int64 their raster indices; None where the model will decide.
    """

    offset: int
    grid: tuple[int, int]
    kept: int
    index: Tensor | None = None


def whole(offset: int, grid: tuple[int, int]) -> Span:
    """A span that holds every token of its grid."""
    tokens = grid[0] * grid[1]
    return Span(offset, grid, tokens, torch.arange(tokens))


def mrope_positions(length: int, spans: Sequence[Span]) -> tuple[Tensor, int]:
    """Positions of a prompt, and by how much those of what follows it are ahead of their numbers.

    Args:
        length: tokens of the prompt.
        spans: its pictures, in their order.

    Returns:
        `(3, length)` int64 time, row and column; the next token's position minus `length`.
    """
    parts, done, position = [], 0, 0
    for span in spans:
        text = span.offset - done
        parts.append(_text(position, text))
        origin = position + text
        places = torch.zeros(3, span.kept, dtype=torch.int64)
        if span.index is not None:
            places[1], places[2] = span.index // span.grid[1], span.index % span.grid[1]
        parts.append(places + origin)
        done, position = span.offset + span.kept, origin + max(span.grid)
    parts.append(_text(position, length - done))
    return torch.cat(parts, 1), position - done


def ahead(grids: Sequence[tuple[int, int]], kept: Sequence[int]) -> int:
    """By how much positions after pictures are ahead of the tokens' numbers; below 0 for behind."""
    return sum(max(grid) - count for grid, count in zip(grids, kept, strict=True))


def with_channels(features: Tensor, index: Tensor, columns: int) -> Tensor:
    """`(K, D)` features followed by `CHANNELS` that say where each token stands.

    Args:
        features: any dtype.
        index: `(K,)` int64 raster indices.
        columns: of the picture's grid.
    """
    index = index.to(features.device)
    row, column = index // columns, index % columns
    digits = [row // BASE, row % BASE, column // BASE, column % BASE]
    return torch.cat([features, torch.stack(digits, 1).to(features.dtype)], 1)


def without_channels(features: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """Features `(K, width)` and offsets `(3, K)` int64 of time, row and column from the picture's origin.

    Features without channels have offsets of 0: their positions are right already.
    """
    digits = features[:, width:].long().T  # (4, K) or (0, K)
    offsets = torch.zeros(3, len(features), dtype=torch.int64, device=features.device)
    if len(digits):
        offsets[1] = digits[0] * BASE + digits[1]
        offsets[2] = digits[2] * BASE + digits[3]
    return features[:, :width], offsets


def _text(start: int, count: int) -> Tensor:
    return (torch.arange(count) + start).expand(3, -1)
