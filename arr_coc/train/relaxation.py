"""A relaxed top-k, with gradients to whatever decides where tokens go.

A hard top-k is a step: move a score a little and either nothing changes or a whole token does, so its
gradient is 0 almost everywhere. Here each place is kept by a share in (0, 1) that changes smoothly with
its score, and the shares of an image add up to its budget, so that keeping more of one place means
keeping less of the others. Noise on the scores explores other choices.

*Soft* questions show the frozen language model these shares, as `log(share)` added to the attention paid
to each visual token: share 1 adds nothing, share 0 is a dropped token, and in between the answer's loss
has a gradient to every share. *Hard* questions keep `hard_allocation` of the same scores, which is
exactly the budget, and send the gradient of the soft shares back (straight-through, `answering`).
"""

import hashlib
from collections.abc import Sequence

import torch
from torch import Tensor

# Nats of log-relevance over which a place goes from mostly dropped to mostly kept. A lower temperature
# is nearer to the hard top-k, but gives a gradient only to places near the threshold; a higher one
# reaches more places and is further from what is kept in the end.
TEMPERATURE = 0.5
NOISE = 0.3  # scale of the Gumbel noise on log-relevance
STEPS = 40  # halvings of the threshold's interval: float32's own precision
EPS = 1e-6


def soft_top_k(scores: Tensor, total: Tensor, temperature: float = TEMPERATURE) -> Tensor:
    """Shares `sigmoid((score - threshold) / temperature)` that add up to `total`.

    The threshold is found by bisection, without gradients. It depends on every score and on the total,
    and its derivative is put back afterwards: without it raising all scores would seem to help.

    Args:
        scores: `(B, N)`, -inf where a place is not to be chosen.
        total: `(B,)`, each above 0 and below the number of finite scores.
        temperature: in the units of the scores.

    Returns:
        `(B, N)` in (0, 1), 0 where the score is -inf.
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
        slope = share * (1 - share)  # temperature times the derivative of a share by its own score
        slope_sum = slope.sum(1, keepdim=True).clamp(min=EPS)
    # The threshold t keeps sum_i sigmoid((s_i - t) / T) = total, with T the temperature. By the
    # implicit function theorem dt = (sum_i slope_i ds_i - T dtotal) / sum_i slope_i. The terms
    # `x - x.detach()` are 0 in value and have the gradient of x: they carry dt and move nothing.
    moved = (slope * (known - known.detach())).sum(1, keepdim=True)
    moved = moved - temperature * (total - total.detach())[:, None]
    threshold = high + moved / slope_sum  # (B, 1), equal to `high` in value
    return torch.sigmoid((known - threshold) / temperature) * finite


def soft_allocation(scores: Tensor, budget: Tensor, spread: Tensor, even: Tensor) -> Tensor:
    """The relaxation of `allocators.Spread` over `TopK`: shares that add up to the budget.

    Tokens that are spread evenly are wholly there; the rest of the budget is a soft top-k of the other
    places. How many are spread is a whole number, and would give the focus tension no gradient.
    So each even place carries its part of the gradient of `spread * budget`, and the total of the soft
    top-k carries the opposite: more spread is a little more of every even place, and less of the best.

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
    gradient_only = wanted - wanted.detach()  # 0 in value
    total = (budget - count) - gradient_only
    others = torch.where(even > 0, -torch.inf, scores)
    best = soft_top_k(others, total.clamp(min=0.5))
    carried = 1 + gradient_only[:, None] / count.clamp(min=1)[:, None]
    return even * carried + best


def cover(shares: Tensor, places: Sequence[Tensor]) -> Tensor:
    """-log of the share that is kept of each place that holds evidence, the mean over a question's places.

    Each place counts alike, however large: an answer that needs two things is lost with either of them.

    Args:
        shares: `(B, N)` in [0, 1] by which each cell is kept.
        places: for each question `(M, N)` >= 0, none of them all 0; M may be 0.

    Returns:
        `(B,)` nats, 0 where there is no evidence.
    """
    found = []
    for own, each in zip(shares, places, strict=True):
        kept = (each.to(own) @ own) / each.sum(1).to(own).clamp(min=EPS)
        found.append(-kept.clamp(EPS, 1).log().sum() / max(1, len(each)))
    return torch.stack(found)


def hard_allocation(scores: Tensor, budget: Tensor, even: Tensor) -> list[Tensor]:
    """The hard selection of the same scores: raster indices of each image, in rising order.

    Exactly `budget` of them: the even places rank first, whatever their scores, and the ranking is cut
    there. As the Realizer keeps them, but for the noise; ties go to the place that comes first.
    """
    order = torch.where(even > 0, torch.inf, scores.detach())
    ranked = torch.sort(order, dim=1, descending=True, stable=True).indices
    return [row[: int(tokens)].sort().values for row, tokens in zip(ranked, budget)]


def generator(*key: int) -> torch.Generator:
    """A CPU generator that depends on the key alone, so that two processes draw what one would."""
    digest = hashlib.sha256(repr(key).encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))


def gumbel(count: int, random: torch.Generator) -> Tensor:
    """`(count,)` float32 Gumbel noise; its largest values pick a random top-k in proportion."""
    uniform = torch.rand(count, generator=random).clamp(EPS, 1 - EPS)
    return -torch.log(-torch.log(uniform))
