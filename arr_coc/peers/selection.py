"""How the published token reducers choose: pure functions of tensors, without a model.

Each function names the paper it follows and what it leaves open there. Indices are raster indices
into the N tokens of one image; ties go to the earlier token. `before` and `after` put
them to work on a host.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

VISIONZIP_DOMINANT = 54 / 64  # VisionZip's 64 tokens are 54 dominant and 10 contextual ones
PIXELPRUNE_STEPS = 20  # halvings of [0, 255]: far finer than one 8-bit level
DART_PIVOTS = 4  # of the picture, and as many of the text
GAIN_FLOOR = 1e-9  # a DPP's gain below it is rounding
# ViCrop's windows, as multiples of the smallest one's sides.
VICROP_SIZES = (1.0, 1.2, 1.4, 1.6, 1.8, 2.0)


def best(score: Tensor, k: int) -> Tensor:
    """`(k,)` indices of the k largest of `(N,)`, in raster order."""
    return torch.sort(score, descending=True, stable=True).indices[:k].sort().values


def central(grid: tuple[int, int]) -> Tensor:
    """`(h, w)` in (0, 1]: nearness to the centre, distances counted in half sides of the grid."""
    axes = [(2 * torch.arange(size) + 1 - size).float() / size for size in grid]
    return 1 - (axes[0][:, None] ** 2 + axes[1][None] ** 2) / 2


def max_min_select(features: Tensor, k: int) -> Tensor:
    """DivPrune (Alvar et al. 2025): greedily the token farthest from all chosen ones.

    Distance is 1 - cosine; the first token is the one farthest from its nearest neighbour.

    Args:
        features: `(N, D)`.
        k: 1 to N.

    Returns:
        `(k,)` int64, ascending.
    """
    distance = 1 - cosines(features)
    nearest = distance.clone().fill_diagonal_(torch.inf).amin(1)
    chosen: list[int] = []
    while len(chosen) < k:
        pick = first_largest(nearest)
        nearest = torch.minimum(nearest, distance[pick]) if chosen else distance[pick].clone()
        chosen.append(pick)
        nearest[chosen] = -torch.inf
    return torch.tensor(sorted(chosen))


def conditional_kernel(features: Tensor, relevance: Tensor) -> Tensor:
    """CDPruner's kernel (Zhang et al. 2025): `L_ij = r_i cos(v_i, v_j) r_j`, r scaled to [0, 1].

    Args:
        features: `(N, D)`.
        relevance: `(N,)`, any scale; even relevance counts as 1 everywhere.

    Returns:
        `(N, N)` float64.
    """
    spread = relevance.max() - relevance.min()
    scaled = (relevance - relevance.min()) / spread if spread > 0 else torch.ones_like(relevance)
    scaled = scaled.double()
    return scaled[:, None] * cosines(features.double()) * scaled[None]


def dpp_greedy(kernel: Tensor, k: int) -> Tensor:
    """Greedy MAP of a determinantal point process (Chen et al. 2018), of fixed size.

    Each step takes the item that multiplies the determinant of the chosen block most, kept up to
    date by an incremental Cholesky factor. Past the kernel's rank, where every gain is 0, items are
    taken by their own diagonal value.

    Args:
        kernel: `(N, N)` float64, positive semidefinite, diagonal in [0, 1].
        k: 1 to N.

    Returns:
        `(k,)` int64, ascending.
    """
    own = kernel.diagonal()
    gains, factor = own.clone(), kernel.new_zeros(k, len(kernel))
    chosen: list[int] = []
    for step in range(k):
        order = torch.where(gains > GAIN_FLOOR, gains, own * GAIN_FLOOR)
        order[chosen] = -torch.inf
        pick = first_largest(order)
        chosen.append(pick)
        if gains[pick] > GAIN_FLOOR:
            row = kernel[pick] - factor[:step, pick] @ factor[:step]
            factor[step] = row / gains[pick].sqrt()
            gains = gains - factor[step] ** 2
    return torch.tensor(sorted(chosen))


def dart_select(
    states: Tensor,
    norms: Tensor,
    k: int,
    words: Tensor,
    word_norms: Tensor,
    pivots: int = DART_PIVOTS,
) -> Tensor:
    """DART (Wen et al. 2025): pivots of largest key norm, then what duplicates them least.

    The picture's pivots are kept. Each pivot in turn, the picture's first, then the text's, takes an equal
    share of the remaining budget: the free tokens of lowest cosine to it. Where the shares are not whole,
    the first pivots take one more.

    Args:
        states: `(N, D)` of the picture's tokens.
        norms: `(N,)` of their keys.
        k: 1 to N.
        words: `(T, D)` of the text's tokens.
        word_norms: `(T,)` of their keys.
        pivots: at most so many of each, and of the picture never more than k.

    Returns:
        `(k,)` int64, ascending.
    """
    own = _largest(norms, min(pivots, k))
    unit, chosen = F.normalize(states.float(), dim=1), own.tolist()
    leading = torch.cat(
        [unit[own], F.normalize(words[_largest(word_norms, pivots)].float(), dim=1)]
    )
    similarity = leading @ unit.t()  # (pivots, N)
    share, more = divmod(k - len(chosen), len(leading))
    for turn, row in enumerate(similarity):
        row = row.clone()
        row[chosen] = torch.inf
        quota = share + (turn < more)
        chosen += torch.sort(row, stable=True).indices[:quota].tolist()
    return torch.tensor(sorted(chosen))


def _largest(values: Tensor, count: int) -> Tensor:
    """Indices of the largest of `(N,)`, the largest first; the earlier of equal ones."""
    return torch.sort(values, descending=True, stable=True).indices[:count]


def changes(features: Tensor) -> Tensor:
    """EVS (Bagrov et al. 2025): how far each token is from the one at its place a moment before.

    Args:
        features: `(G, N, D)` of G moments.

    Returns:
        `(G, N)` float32, one less the cosine; infinite in the first moment, which is kept whole.
    """
    unit = F.normalize(features.float(), dim=-1)
    changed = torch.full(features.shape[:2], torch.inf, device=features.device)
    changed[1:] = 1 - (unit[1:] * unit[:-1]).sum(-1)
    return changed


def visionzip_merge(received: Tensor, keys: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """VisionZip (Yang et al. 2024): dominant tokens by attention, the rest merged into a few.

    54 of 64 tokens are dominant. Of the rest, evenly spaced ones are targets, every other joins the
    target of most similar key, and a target becomes the mean of its group.

    Args:
        received: `(N,)` attention each token receives.
        keys: `(N, C)`.
        k: 1 to N.

    Returns:
        `(k,)` int64, ascending: where the k tokens stand, a merged one at its target. `(k, N)`
        float32: each token's weights over the N, rows adding up to 1.
    """
    dominant = best(received, max(1, round(k * VISIONZIP_DOMINANT)))
    rest = torch.ones_like(received, dtype=torch.bool).index_fill_(0, dominant, False)
    rest = rest.nonzero()[:, 0]
    count = k - len(dominant)
    targets = rest[torch.arange(count, device=rest.device) * len(rest) // max(count, 1)]
    places = torch.cat([dominant, targets]).sort().values
    groups = torch.full_like(received, -1, dtype=torch.long)  # (N,): the group each token joins
    groups[places] = torch.arange(k, device=rest.device)
    loose = (groups < 0).nonzero()[:, 0]
    if count:  # without a target the other tokens are dropped
        nearest = cosines(keys)[loose][:, targets].argmax(1)
        groups[loose] = groups[targets][nearest]
    weights = torch.zeros(k, len(received), device=rest.device)
    member = (groups >= 0).nonzero()[:, 0]
    weights[groups[member], member] = 1
    return places, weights / weights.sum(1, keepdim=True)


def pixelprune_residual(units: Tensor, tau: float) -> Tensor:
    """PixelPrune (2604.00886): how far each merge unit is from its JPEG-LS-like prediction.

    Neighbours: A left, B up, C up-left. Where C is within `tau` of A and not of B, there is an edge
    that runs on, and B predicts; else A. The first row has only A and the first column only B. The
    unit is kept where its residual exceeds `tau`; the first always is.

    Args:
        units: `(h, w, C)` pixels of each merge unit, any scale.
        tau: on that scale; differences are the largest absolute one over a unit.

    Returns:
        `(h, w)` float32; infinite for the first unit.
    """
    left = torch.full(units.shape[:2], torch.inf, device=units.device)
    up, left_corner, up_corner = left.clone(), left.clone(), left.clone()
    left[:, 1:] = _gap(units[:, 1:], units[:, :-1])
    up[1:] = _gap(units[1:], units[:-1])
    left_corner[1:, 1:] = up[1:, :-1]  # C against A: one above the other
    up_corner[1:, 1:] = left[:-1, 1:]  # C against B: side by side
    runs_on = (left_corner <= tau) & (up_corner > tau)
    runs_on[1:, 0] = True
    return torch.where(runs_on, up, left)


def _gap(a: Tensor, b: Tensor) -> Tensor:
    """The largest difference between two units, `(..., C)` each."""
    return (a - b).abs().amax(-1)


def pixelprune_keep(units: Tensor, tau: float) -> Tensor:
    """`(h, w)` bool: the units that PixelPrune keeps at `tau`; arguments as `pixelprune_residual`."""
    return pixelprune_residual(units, tau) > tau


def pixelprune_select(units: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """PixelPrune with `tau` searched so that at most k units are kept, then filled up to k.

    The paper fixes tau and spends what comes; here the smallest tau that fits is found by bisection
    and what it leaves goes to the largest residuals below it, so that all spend alike.

    Args:
        units: `(h, w, C)` pixels in [0, 255].
        k: 1 to h * w.

    Returns:
        `(k,)` int64 ascending, and the `(h, w)` residual at that tau.
    """
    low, high = 0.0, 255.0
    if int(pixelprune_keep(units, low).sum()) <= k:
        high = low
    for _ in range(PIXELPRUNE_STEPS if high > low else 0):
        tau = (low + high) / 2
        fits = int(pixelprune_keep(units, tau).sum()) <= k
        low, high = (low, tau) if fits else (tau, high)
    residual = pixelprune_residual(units, high)
    # Units that exceed tau have the largest residuals: they come first, then the fill.
    return best(residual.flatten(), k), residual


def crop_window(attention: Tensor, base: tuple[int, int]) -> tuple[int, int, int, int]:
    """ViCrop's window (Zhang et al. 2025): where attention stands out most from its surroundings.

    For each size, the window of largest mean; among sizes, the one whose mean exceeds that of the
    windows one token away by most. Ties go to the smaller window, then to the earlier place.

    Args:
        attention: `(h, w)` >= 0.
        base: rows and columns of the smallest window, in tokens.

    Returns:
        top, left, bottom, right in tokens.
    """
    h, w = attention.shape
    window, largest = (0, 0, *base), -torch.inf
    for size in VICROP_SIZES:
        rows, columns = (min(full, round(side * size)) for side, full in zip(base, (h, w)))
        means = F.avg_pool2d(attention[None, None].float(), (rows, columns), 1)[0, 0]
        top, left = divmod(first_largest(means.flatten()), means.shape[1])
        around = means[max(top - 1, 0) : top + 2, max(left - 1, 0) : left + 2]
        others = max(around.numel() - 1, 1)
        contrast = float(means[top, left] - (around.sum() - means[top, left]) / others)
        contrast = contrast if around.numel() > 1 else 0.0
        if contrast > largest:
            window, largest = (top, left, top + rows, left + columns), contrast
    return window


def cosines(features: Tensor) -> Tensor:
    """`(N, N)` cosines between the rows of `(N, D)`: float64 where these are, else float32."""
    unit = F.normalize(features if features.dtype == torch.float64 else features.float(), dim=-1)
    return unit @ unit.t()


def first_largest(values: Tensor) -> int:
    """Index of the largest of `(N,)`; the first of equal ones, on every device."""
    return int((values == values.max()).nonzero()[0])
