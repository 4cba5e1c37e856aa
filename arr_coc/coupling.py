"""Coupling: what a trained question couples to in the picture (participatory knowing, learned).

Three small parts, each of which gives every place a score, in nats, for one question. `HeadWeights`
believes some attention heads of the glance more than others; `StateMatch` compares what the answering
token holds with what each glance token holds; `TextureMatch` is the brief's projection of texture into
the question's space, which needs no glance. `coupled` makes one map in [0, 1] of their sum.
Trained by `arr_coc.train`; never shown untrained. Sources: brief parts 29, 44 and 45.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# Attention below this share of the picture's largest says nothing.
LEAST = 1e-4
# Heads outside the layers that are read without training start this far below the others, in nats.
OUTSIDE = 3.0
CHANNELS = 13  # of texture
SCORE_BOUND = 6.0  # nats: no part alone may veto a place for good


class HeadWeights(nn.Module):
    """A weight for each attention head of the glance, moved by the question.

    Starts near the even mean over the layers that are read without training.
    """

    def __init__(self, embedding_size: int, heads: int, first: int = 0, last: int = 0) -> None:
        """`heads` over all layers, layer by layer; `first` up to `last` are those read untrained."""
        super().__init__()
        self.sizes = {"embedding_size": embedding_size, "heads": heads}
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
        weighted = self.weights(embedding)[:, :, None, None] * heads.float()
        attention = weighted.sum(1)
        peak = attention.amax((1, 2), keepdim=True).clamp(min=1e-12)
        return (attention / peak).clamp(min=LEAST).log()


class StateMatch(nn.Module):
    """How well each glance token's state matches the state of the token about to answer."""

    def __init__(self, embedding_size: int, width: int = 32) -> None:
        super().__init__()
        self.sizes = {"embedding_size": embedding_size, "width": width}
        self.norm_place, self.norm_answer = (
            nn.LayerNorm(embedding_size),
            nn.LayerNorm(embedding_size),
        )
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
        self.texture = nn.Conv2d(CHANNELS, width, 3, padding=1)
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
    return (scores - scores.amax((1, 2), keepdim=True)).exp()
