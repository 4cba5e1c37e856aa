"""Scanning: what a small convolutional network sees in every cell, and how well it matches the question.

A glance is too coarse for things of a token or two: where hundreds of pixels are shrunk to one, what a
thing is called is gone. This network scans every cell at `FINE` x `FINE` samples, for a small part of what
the vision encoder takes. What it sees is matched with the question at once and, moved by the question
(feature-wise linear modulation, 1709.07871), looked over again with its surroundings: what stands "left of
the sign" is not where the sign is.
"""

from contextlib import nullcontext
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from arr_coc.knowing import bounded

FINE = 16  # samples on a side of each cell
# Channels after each halving of the sides, from `FINE` samples to one place.
WIDTHS = (32, 64, 128, 192)
DILATIONS = (1, 2, 4, 8)  # of the convolutions that look over a cell's surroundings
GROUPS = 4  # of channels that are normalized together
CONTRAST = 4.0  # by which samples around grey are spread


@cache
def has_tiles() -> bool:
    """Whether this CPU multiplies matrices of bfloat16 in tiles (AMX)."""
    capabilities = getattr(torch.cpu, "get_capabilities", dict)  # not in every torch
    return bool(capabilities().get("amx_bf16"))


class Moved(nn.Module):
    """A convolution of what was seen, once the question has scaled and shifted it."""

    def __init__(self, question: int, width: int, dilation: int) -> None:
        """`question` features of a question, `width` channels."""
        super().__init__()
        self.norm = nn.GroupNorm(GROUPS, width)
        self.by = nn.Linear(question, 2 * width)
        self.around = nn.Conv2d(width, width, 3, padding=dilation, dilation=dilation)
        nn.init.zeros_(self.by.weight)
        nn.init.zeros_(self.by.bias)

    def forward(self, seen: Tensor, question: Tensor) -> Tensor:
        """`(B, width, h, w)` and `(B, question)` -> as `seen`."""
        scale, shift = self.by(question)[:, :, None, None].chunk(2, 1)
        return seen + self.around(F.gelu(self.norm(seen) * (1 + scale) + shift))


class ScanMatch(nn.Module):
    """Every cell seen, and scored against the question; says next to nothing at the start."""

    def __init__(self, embedding_size: int, width: int = 64, question: int = 192) -> None:
        """`width` channels are matched, with `question` features of a question."""
        super().__init__()
        self.sizes = {"embedding_size": embedding_size, "width": width, "question": question}
        pairs = list(zip((3, *WIDTHS), WIDTHS))
        self.halvings = nn.ModuleList(nn.Conv2d(a, b, 3, stride=2, padding=1) for a, b in pairs)
        self.norms = nn.ModuleList(nn.GroupNorm(GROUPS, b) for _, b in pairs)
        self.mixed = nn.Conv2d(WIDTHS[-1], width, 3, padding=1)
        self.norm = nn.LayerNorm(embedding_size)
        self.question = nn.Sequential(
            nn.Linear(embedding_size, question), nn.GELU(), nn.Linear(question, question)
        )
        self.named = nn.Linear(question, width)
        self.scale = nn.Parameter(torch.tensor(0.5))
        self.moved = nn.ModuleList(Moved(question, width, dilation) for dilation in DILATIONS)
        self.out = nn.Conv2d(width, 1, 1)
        nn.init.zeros_(self.out.weight)

    def see(self, samples: Tensor) -> Tensor:
        """`(B, 3, FINE * h, FINE * w)` sRGB in [0, 1] -> `(B, width, h, w)`, whatever is asked."""
        seen = (samples.float() - 0.5) * CONTRAST
        # In bfloat16 where a CPU is fast in it, but as autocast has it while training. Not of one column:
        # oneDNN's convolution in tiles reads memory there that nobody wrote.
        columns = seen.shape[-1] // FINE
        fast = seen.device.type == "cpu" and not self.training and has_tiles() and columns > 1
        with torch.autocast("cpu", torch.bfloat16) if fast else nullcontext():
            # Anew: a single picture passes for contiguous with any strides, and would take a slower way.
            seen = seen.clone(memory_format=torch.channels_last)
            for halving, norm in zip(self.halvings, self.norms, strict=True):
                seen = F.gelu(norm(halving(seen)))
            return self.mixed(seen).float()

    def forward(self, seen: Tensor, embedding: Tensor) -> Tensor:
        """`(B, width, h, w)` and `(B, D)` -> `(B, h, w)` nats."""
        question = self.question(self.norm(embedding.float()))
        named = self.named(question)[:, :, None, None]
        alike = self.scale * 4 * F.cosine_similarity(seen, named, dim=1, eps=1e-4)
        for moved in self.moved:
            seen = moved(seen, question)
        return bounded(alike + self.out(F.gelu(seen))[:, 0])
