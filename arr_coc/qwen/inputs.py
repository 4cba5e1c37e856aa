"""Inputs: picture and prompt as the stock model takes them: grids, patches, ids, positions.

Geometry is read from the checkpoint's config; nothing is encoded here.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor


def small_grid(grid: tuple[int, int], tokens: int) -> tuple[int, int]:
    """The grid nearest to `grid`'s aspect that fills most of `tokens`.

    Sides are the exact ones rounded down or up, whichever fit: rounding both down, as a processor
    does, would waste up to a third of a small budget.

    Args:
        grid: `(h, w)` to shrink.
        tokens: 1 to h * w.
    """
    h, w = grid
    scale = (tokens / (h * w)) ** 0.5
    candidates = []
    for side in {int(h * scale), int(h * scale) + 1}:
        rows = min(max(side, 1), h, tokens)
        columns = min(tokens // rows, w, max(1, int(w * scale) + 1) if h * scale >= 1 else w)
        distortion = abs(rows * w - columns * h)
        candidates.append((-rows * columns, distortion, rows, columns))
    return min(candidates)[2:]


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


@dataclass(frozen=True)
class Ask:
    """What a Host call looks at: the picture, and the prompt for it."""

    picture: Picture
    prompt: Prompt
