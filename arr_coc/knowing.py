"""Knowing: three ways of knowing an image, three maps in [0, 1] on its token grid.

Propositional: how much information a place holds (Shannon entropy of its colours).
Perspectival: what stands out (the texture's edges, so that writing and small things do).
Participatory: what the question couples to; here from the glance, the attention that the token about
to answer pays to each place in a low-resolution pass through the host (brief parts 29 and 45; the glance
replaces the brief's untrained projection, which is never shown as relevance). The three modules couple by
trained weights instead: each scores places in nats, which `Components` adds up.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from arr_coc.texture import CHANNELS, INDEX, check_image, over_largest

# Attention below this share of the picture's largest says nothing.
LEAST = 1e-4
# Heads outside the layers that are read without training start this far below the others, in nats.
OUTSIDE = 3.0
SCORE_BOUND = 6.0  # nats: no part alone may veto a place
# The histogram inside a cell: 4 levels for each of R, G, B. Bins are offset by half a step, so that
# flat grounds near a bin's edge do not split under slight noise.
LEVELS = 4
BINS = LEVELS**3
# The share of glance cells treated as the peak: attention has sinks, single cells far above the rest.
PEAK_QUANTILE = 0.98


class Surface(NamedTuple):
    """What is there, whatever is asked: `(1, 13, h, w)` textures, `(1, h, w)` entropy, what a scan sees."""

    textures: Tensor
    propositional: Tensor
    seen: Tensor | None


class HeadWeights(nn.Module):
    """A weight for each attention head of the glance, moved by the question.

    Starts near the even mean over the layers that are read without training.
    """

    def __init__(
        self,
        embedding_size: int,
        heads: int,
        first: int = 0,
        last: int = 0,
        has_power: bool = False,
    ) -> None:
        """`heads` of the first layers, layer by layer; `first` up to `last` are those read untrained.

        With `has_power` it is learned how much attention counts beside what other parts say.
        """
        super().__init__()
        self.sizes = {"embedding_size": embedding_size, "heads": heads}
        if has_power:
            self.sizes["has_power"] = True
        self.power = nn.Parameter(torch.tensor(1.0)) if has_power else 1.0
        start = torch.full((heads,), -OUTSIDE if last > first else 0.0)
        start[first:last] = 0
        self.start = nn.Parameter(start)
        self.norm = nn.LayerNorm(embedding_size)
        self.moved = nn.Linear(embedding_size, heads, bias=False)
        nn.init.zeros_(self.moved.weight)

    def weights(self, embedding: Tensor) -> Tensor:
        """`(B, D)` question embedding -> `(B, heads)`, adding up to 1."""
        return (self.start + self.moved(self.norm(embedding.float()))).softmax(-1)

    def forward(self, heads: Tensor, embedding: Tensor) -> Tensor:
        """`(B, heads, gh, gw)` attention and `(B, D)` -> `(B, gh, gw)` nats, 0 at the largest."""
        return self.each([heads], embedding)[0]

    def each(self, heads: Sequence[Tensor], embedding: Tensor) -> list[Tensor]:
        """As `forward` of several blocks of one glance, 0 at the largest of all."""
        weights, count = self.weights(embedding)[:, :, None, None], self.sizes["heads"]
        # Another part may have asked the glance to run further layers.
        attention = [(weights * own[:, :count].float()).sum(1) for own in heads]
        peak = _largest(attention).clamp(min=1e-12)
        return [self.power * (own / peak).clamp(min=LEAST).log() for own in attention]


class StateMatch(nn.Module):
    """How well each glance token's state matches the state of the token about to answer."""

    def __init__(self, embedding_size: int, width: int = 32) -> None:
        super().__init__()
        self.sizes = {"embedding_size": embedding_size, "width": width}
        self.norm_place = nn.LayerNorm(embedding_size)
        self.norm_answer = nn.LayerNorm(embedding_size)
        self.place = nn.Linear(embedding_size, width, bias=False)
        self.answer = nn.Linear(embedding_size, width, bias=False)
        nn.init.normal_(self.answer.weight, std=0.02)  # says next to nothing at the start

    def forward(self, states: Tensor, answering: Tensor) -> Tensor:
        """`(B, gh, gw, D)` and `(B, D)` -> `(B, gh, gw)` nats."""
        keys = self.place(self.norm_place(states.float()))
        query = self.answer(self.norm_answer(answering.float()))
        return bounded(torch.einsum("bhwd,bd->bhw", keys, query) * 4 / keys.shape[-1] ** 0.5)


class TextureMatch(nn.Module):
    """Texture projected into the question's space, and its cosine with the question there.

    The projection sees a cell and its eight neighbours.
    """

    def __init__(self, embedding_size: int, width: int = 32) -> None:
        super().__init__()
        self.sizes = {"embedding_size": embedding_size, "width": width}
        self.texture = nn.Conv2d(len(CHANNELS), width, 3, padding=1)
        self.norm = nn.LayerNorm(embedding_size)
        self.question = nn.Linear(embedding_size, width)
        self.scale = nn.Parameter(torch.tensor(0.5))

    def forward(self, textures: Tensor, embedding: Tensor) -> Tensor:
        """`(B, 13, h, w)` and `(B, D)` -> `(B, h, w)` nats."""
        projected = self.texture(textures.float() - 0.5)  # (B, width, h, w)
        question = self.question(self.norm(embedding.float()))[:, :, None, None]
        return bounded(self.scale * 4 * F.cosine_similarity(projected, question, dim=1, eps=1e-4))


def bounded(nats: Tensor) -> Tensor:
    """The same near 0, never beyond `SCORE_BOUND` either way."""
    return SCORE_BOUND * torch.tanh(nats / SCORE_BOUND)


def upsampled(scores: Tensor, grid: tuple[int, int]) -> Tensor:
    """`(B, gh, gw)` -> `(B, h, w)`, bilinear."""
    return F.interpolate(scores[:, None], grid, mode="bilinear", align_corners=False)[:, 0]


def coupled(scores: Tensor) -> Tensor:
    """`(B, h, w)` nats -> `(B, h, w)` in (0, 1], 1 at the largest; only differences count."""
    return coupled_each([scores])[0]


def coupled_each(scores: Sequence[Tensor]) -> list[Tensor]:
    """As `coupled` of several moments or pictures that are asked about at once: 1 at the largest of all."""
    peak = _largest(scores)
    return [(own - peak).exp() for own in scores]


def _largest(maps: Sequence[Tensor]) -> Tensor:
    """`(B, h, w)` maps of any sizes -> `(B, 1, 1)`, each row's largest value over all of them."""
    return torch.stack([own.amax((1, 2)) for own in maps]).amax(0)[:, None, None]


def propositional(image: Tensor, grid: tuple[int, int]) -> Tensor:
    """Shannon entropy of the colour histogram inside each cell, over the image's largest.

    Args:
        image: `(B, 3, H, W)` sRGB in [0, 1].
        grid: `(h, w)` the token grid.

    Returns:
        `(B, h, w)` float32 in [0, 1]; 0 for a cell of one colour.

    Raises:
        ValueError: as `texture.check_image`.
    """
    check_image(image, grid)
    B, _, H, W = image.shape
    h, w = grid
    # A grid finer than the picture: repeat pixels, so that every cell holds at least one.
    image = (
        F.interpolate(image.float(), (max(H, h), max(W, w))) if h > H or w > W else image.float()
    )
    H, W = image.shape[-2:]
    level = (image * (LEVELS - 1)).round().clamp(0, LEVELS - 1).long()  # (B, 3, H, W)
    color = (level[:, 0] * LEVELS + level[:, 1]) * LEVELS + level[:, 2]  # (B, H, W)
    row = torch.arange(H, device=image.device) * h // H  # (H,)
    column = torch.arange(W, device=image.device) * w // W  # (W,)
    cell = row[:, None] * w + column  # (H, W)
    batch = torch.arange(B, device=image.device)[:, None, None] * (h * w)
    # One histogram for all cells of all images: a number for each image, cell and colour.
    index = (batch + cell) * BINS + color  # (B, H, W)
    counts = torch.bincount(index.flatten(), minlength=B * h * w * BINS)
    share = counts.view(B, h, w, BINS).float()
    share = share / share.sum(-1, keepdim=True).clamp(min=1)
    entropy = torch.special.entr(share).sum(-1) / math.log(BINS)  # (B, h, w)
    return over_largest(entropy)


def perspectival(textures: Tensor) -> Tensor:
    """`(B, 13, h, w)` textures -> `(B, h, w)` edge energy in [0, 1]."""
    return textures[:, INDEX["edge"]]


def participatory(
    attention: Tensor, grid: tuple[int, int], *, peak_quantile: float = PEAK_QUANTILE
) -> Tensor:
    """Bring the glance's question-to-image attention to the token grid.

    Args:
        attention: `(B, gh, gw)` non-negative attention on the glance's own grid, any scale.
        grid: `(h, w)` the token grid.
        peak_quantile: in [0, 1], the quantile of the attention that becomes 1; 1 is its largest.

    Returns:
        `(B, h, w)` float32 in [0, 1], per image: bilinear, over its peak quantile.

    Raises:
        ValueError: where attention is not finite, negative, or not `(B, gh, gw)`.
    """
    return participatory_each([attention], [grid], peak_quantile=peak_quantile)[0]


def participatory_each(
    attentions: Sequence[Tensor],
    grids: Sequence[tuple[int, int]],
    *,
    peak_quantile: float = PEAK_QUANTILE,
) -> list[Tensor]:
    """As `participatory` of several blocks of one glance, over the highest of their peaks.

    So it says in which of them as well as where.
    """
    attentions = [_checked(own) for own in attentions]
    # The least attention is what every place gets, whatever is there.
    least = torch.stack([own.amin((1, 2)) for own in attentions]).amin(0)[:, None, None]
    attentions = [own - least for own in attentions]
    peaks = [own.flatten(1).quantile(peak_quantile, dim=1) for own in attentions]
    peak = torch.stack(peaks).amax(0)[:, None, None]
    # A glance of few cells can have a zero quantile; its largest value serves then.
    peak = torch.where(peak > 0, peak, _largest(attentions))
    return [
        upsampled(torch.where(peak > 0, (own / peak.clamp(min=1e-20)).clamp(0, 1), own), grid)
        for own, grid in zip(attentions, grids, strict=True)
    ]


def _checked(attention: Tensor) -> Tensor:
    """In float32; ValueError as `participatory`."""
    if attention.ndim != 3:
        raise ValueError(f"attention has shape {tuple(attention.shape)}, expected (B, gh, gw)")
    attention = attention.float()
    if not attention.isfinite().all() or (attention < 0).any():
        raise ValueError(
            "attention holds a negative or non-finite value, expected finite values >= 0"
        )
    return attention
