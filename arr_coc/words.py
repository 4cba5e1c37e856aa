"""Words: what the tokens of questions are embedded as, in their order.

Most of what decides reads their mean alone; what scans also reads which stands beside which.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class Words(NamedTuple):
    """The embedded tokens of B questions.

    Attributes:
        each: `(B, L, D)`, 0 after a question's end.
        lengths: `(B,)` int64, how many tokens each question has; 1 or more.
    """

    each: Tensor
    lengths: Tensor

    @classmethod
    def of_one(cls, embedded: Tensor) -> "Words":
        """Of one question, `(L, D)`."""
        # Filled on the device: a GPU is not waited for.
        return cls(embedded[None].float(), torch.full((1,), len(embedded), device=embedded.device))

    @classmethod
    def of_all(cls, words: Sequence["Words"]) -> "Words":
        """Those of several, side by side; the longest says how long all of them are."""
        longest = max(own.each.shape[1] for own in words)
        padded = [
            torch.nn.functional.pad(own.each, (0, 0, 0, longest - own.each.shape[1]))
            for own in words
        ]
        return cls(torch.cat(padded), torch.cat([own.lengths for own in words]))

    @property
    def mean(self) -> Tensor:
        """`(B, D)` mean over each question's tokens."""
        return self.each.sum(1) / self.lengths[:, None]

    @property
    def are_there(self) -> Tensor:
        """`(B, L)` bool: which are a question's own."""
        places = torch.arange(self.each.shape[1], device=self.each.device)
        return places < self.lengths[:, None]

    def rows(self, rows: Tensor) -> "Words":
        """Those of the questions at these indices."""
        return Words(self.each[rows], self.lengths[rows])

    def to(self, device: torch.device) -> "Words":
        """The same on a device."""
        return Words(self.each.to(device), self.lengths.to(device))
