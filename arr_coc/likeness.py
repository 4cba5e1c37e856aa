"""Likeness: which cells have the colours of what a question names.

"Which thing has the same colour as the mailbox?" names one thing and asks for another, which no word
describes. A scan finds the mailbox; here every cell is told how much it shares its colours with what was
found, and the question, whether that matters. Colours are learned: each sample of a cell is shared among a
few of them by how near they are, as in a palette.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

COLOURS = 24  # of the palette
EVERY = 4  # of so many samples on each axis the colour of one is read: all of them say no more
# Nats, at the start, by which a colour is likelier than one whose square of the distance is 1 more.
NARROW = 20.0
FOUND = 4.0  # times the scores, at the start, is how sure it is what the scan found
AROUND = 5  # cells on a side of what a cell's colours stand out from
STANDING_OUT = 4.0  # times what is not as it is around
LEAST = 1e-4  # share of a colour; below, the root's slope has no end
WAYS, SIZE = 4, 16  # ways in which colours are compared, and features of each
CHANNELS = (16, 8)  # of the two convolutions over what came of it


class Likeness(nn.Module):
    """Adds to a scan's scores where colours are those of what it scored highest; nothing at the start."""

    def __init__(self, question: int) -> None:
        """`question` features of a question."""
        super().__init__()
        self.colours = nn.Parameter(torch.rand(COLOURS, 3))
        self.narrow = nn.Parameter(torch.tensor(NARROW))
        self.looks = nn.Linear(2 * COLOURS, WAYS * SIZE, bias=False)
        self.found = nn.Parameter(torch.tensor(FOUND))
        within, out = CHANNELS
        self.around = nn.Conv2d(WAYS + 1, within, 3, padding=1)
        self.out = nn.Conv2d(within, out, 3, padding=1)
        self.by = nn.Linear(question, out)
        nn.init.zeros_(self.by.weight)
        nn.init.zeros_(self.by.bias)

    def see(self, samples: Tensor, side: int) -> Tensor:
        """The colours of every cell, and how they stand out from those around it.

        Args:
            samples: `(B, 3, side * h, side * w)` sRGB in [0, 1].
            side: samples on a side of a cell.

        Returns:
            `(B, 2 * COLOURS, h, w)`: roots of the shares of each colour, and differences of the shares.
        """
        some = samples.float()[..., EVERY // 2 :: EVERY, EVERY // 2 :: EVERY]
        # The distance to a colour, squared, without what all colours have in common.
        by, least = 2 * self.narrow * self.colours, -self.narrow * self.colours.square().sum(1)
        near = F.conv2d(some, by[:, :, None, None], least).softmax(1)
        shares = F.avg_pool2d(near, side // EVERY)
        around = F.avg_pool2d(shares, AROUND, 1, AROUND // 2, count_include_pad=False)
        return torch.cat([shares.clamp(min=LEAST).sqrt(), STANDING_OUT * (shares - around)], 1)

    def forward(self, colours: Tensor, scores: Tensor, question: Tensor) -> Tensor:
        """What to add to the scores.

        Args:
            colours: `(B, 2 * COLOURS, h, w)`, as `see` gives them.
            scores: `(B, h, w)` nats.
            question: `(B, question)`.

        Returns:
            `(B, h, w)` nats.
        """
        B, h, w = scores.shape
        looks = self.looks(colours.flatten(2).transpose(1, 2)).view(B, h * w, WAYS, SIZE)
        found = (self.found * scores.flatten(1).float()).softmax(1)  # (B, N)
        stands = torch.einsum("bn,bnws->bws", found.to(looks), looks)
        near = F.cosine_similarity(looks, stands[:, None], dim=3, eps=1e-4)  # (B, N, WAYS)
        there = found / found.amax(1, keepdim=True)
        maps = torch.cat([near.transpose(1, 2), there[:, None].to(near)], 1).view(B, -1, h, w)
        told = self.out(F.gelu(self.around(maps)))
        return torch.einsum("bc,bchw->bhw", self.by(question), told)
