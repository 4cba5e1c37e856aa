"""Relaxing: a top-k that lets gradients through, for training what decides where tokens go.

Hard top-k has no gradient. Here each place is kept by a share in (0, 1), the shares of an image add up
to its budget, and noise on the scores explores other choices. The shares go into the frozen language
model as `log(share)` on the attention to each visual token: a token with share 0 is as good as dropped.
"""

import hashlib

import torch
from torch import Tensor

# Nats of log-relevance over which a place goes from mostly dropped to mostly kept.
TEMPERATURE = 0.5
NOISE = 0.3  # scale of the Gumbel noise on log-relevance
STEPS = 40  # of bisection: float32's own precision
EPS = 1e-6


def soft_top_k(scores: Tensor, total: Tensor, temperature: float = TEMPERATURE) -> Tensor:
    """Shares `sigmoid((score - threshold) / temperature)` that add up to `total`.

    The threshold depends on every score and on the total; its derivative is taken by the implicit
    function theorem. Without it raising all scores would seem to help.

    Args:
        scores: `(B, N)`, -inf where a place is out of the question.
        total: `(B,)`, each above 0 and below the number of finite scores.

    Returns:
        `(B, N)` in (0, 1).
    """
    finite = scores.isfinite()
    known = torch.where(finite, scores, scores.new_zeros(()))
    with torch.no_grad():
        reach = 20 * temperature
        low = torch.where(finite, known, torch.inf).amin(1, keepdim=True) - reach
        high = torch.where(finite, known, -torch.inf).amax(1, keepdim=True) + reach
        for _ in range(STEPS):
            middle = (low + high) / 2
            share = torch.sigmoid((known - middle) / temperature) * finite
            over = share.sum(1, keepdim=True) > total[:, None]
            low, high = torch.where(over, middle, low), torch.where(over, high, middle)
        share = torch.sigmoid((known - high) / temperature) * finite
        slope = share * (1 - share)
        slope_sum = slope.sum(1, keepdim=True).clamp(min=EPS)
    moved = (slope * (known - known.detach())).sum(1, keepdim=True)
    moved = moved - temperature * (total - total.detach())[:, None]
    threshold = high + moved / slope_sum  # equal to `high`; the difference carries the gradient
    return torch.sigmoid((known - threshold) / temperature) * finite


def soft_allocation(scores: Tensor, budget: Tensor, spread: Tensor, even: Tensor) -> Tensor:
    """The relaxation of `allocators.Spread` over `TopK`: shares that add up to the budget.

    Args:
        scores: `(B, N)` log-relevance.
        budget: `(B,)` tokens.
        spread: `(B,)` share of the budget that is spread evenly.
        even: `(B, N)` 1 at the places spread evenly, `round(spread * budget)` of them, 0 elsewhere.

    Returns:
        `(B, N)`.
    """
    count = even.sum(1)
    wanted = spread * budget
    # The count is rounded; its gradient is that of the tension.
    total = (budget - count) - (wanted - wanted.detach())
    rest = torch.where(even > 0, -torch.inf, scores)
    best = soft_top_k(rest, total.clamp(min=0.5))
    carried = 1 + (wanted - wanted.detach())[:, None] / count.clamp(min=1)[:, None]
    return even * carried + best


def hard_allocation(scores: Tensor, budget: Tensor, even: Tensor) -> list[Tensor]:
    """What the same scores keep for good: raster indices of each image, `budget` of them."""
    order = torch.where(even > 0, torch.inf, scores.detach())
    ranked = torch.sort(order, dim=1, descending=True, stable=True).indices
    return [row[: int(k)].sort().values for row, k in zip(ranked, budget)]


def generator(*key: int) -> torch.Generator:
    """A CPU generator that depends on the key alone: two processes draw what one would."""
    digest = hashlib.sha256(repr(key).encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))


def gumbel(count: int, random: torch.Generator) -> Tensor:
    """`(count,)` float32 Gumbel noise; its largest values pick a random top-k in proportion."""
    uniform = torch.rand(count, generator=random).clamp(EPS, 1 - EPS)
    return -torch.log(-torch.log(uniform))
