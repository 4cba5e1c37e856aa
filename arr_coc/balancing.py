"""Balancing: three tensions, and the relevance map they make of the three ways of knowing.

compress <-> particularize, exploit <-> explore, focus <-> diversify (brief, part 29). The tensions
come from trained weights (`TensionPolicy`) where a host has them, else from a small lexical prior
over the question's words, which is neutral for words it does not know. The combiner is a stated
fixed formula; recombining cached maps needs no model.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from arr_coc.config import NEUTRAL, Number, Tensions, spread

# A place that does not stand out keeps this much of what the question gives it, against 1 + FLOOR.
FLOOR = 0.05
# What stands out counts as asked for within this many places of what is: a glance is too coarse to see
# the tag under the apple, and points to the apple.
REACH = 1
# Maps are multiplied, so that a place must both be asked for and hold something; below this a map
# alone would veto a place.
LEAST = 1e-3
# Diversity lifts places far from the strongest ones by up to this factor more (part 29, which adds it: then
# a far corner outbids what is asked for a little, and learned maps differ by orders of magnitude).
DIVERSITY_GAIN = 0.3
# Cells that count as the strongest when distances are taken: one in TOP_SHARE.
TOP_SHARE = 20
# How sharply several pictures compete for one budget: 0 is not at all.
RIVALRY = 1.5
MAPS, STATISTICS = 3, 3
EPS = 1e-6
# What a question's words suggest, per tension: each word that occurs moves the tension there.
# Compared as prefixes of whole words, in this order; English only, everything else stays neutral.
LEXICON = {
    "fine": (r"read|number|text|word|letter|date|price|costs?\b|total|sign|plate|label|formula|code|say|"
             "written|emblem|badge|logo|symbol|small|tiny|detail|how much", (0.15, 1.0, 0.95)),
    "target": (r"where|colou?r|which|who\b|whose|whom|what is on|is there|find|locate", (0.25, 0.65, 0.92)),
    "many": (r"how many|counts?\b|counting|all|every|each|number of", (0.4, 0.45, 0.9)),
    "whole": ("describe|scene|picture|image|happening|summar|overall|photo|mood|style|weather|general",
              (0.75, 0.35, 0.55)),
}  # fmt: skip


def lexical_tensions(question: str) -> Tensions:
    """Tensions suggested by the question's words: the mean over the kinds of word that occur.

    A stated prior, not a trained policy. Neutral where no word is known.
    """
    return mean_tensions(word_kinds(question))


def mean_tensions(kinds: Sequence[str]) -> Tensions:
    """The mean over kinds of `LEXICON`; neutral where there are none."""
    goals = [LEXICON[kind][1] for kind in kinds]
    if not goals:
        return NEUTRAL
    return Tensions(*(round(sum(column) / len(goals), 4) for column in zip(*goals)))


def lexical_tier(question: str) -> str:
    """The tier of tokens that the question's words suggest (`config.TIERS`); a stated prior.

    "accurate" where it asks to read or for small detail, whatever else it says; "fast" where it only
    asks about the whole; "balanced" otherwise.
    """
    kinds = word_kinds(question)
    if "fine" in kinds:
        return "accurate"
    return "fast" if kinds == ["whole"] else "balanced"


def word_kinds(question: str) -> list[str]:
    """The kinds of `LEXICON` of which the question holds a word, in the lexicon's order."""
    text = question.lower()
    return [kind for kind, (words, _) in LEXICON.items() if re.search(rf"\b(?:{words})", text)]


class Scalars(NamedTuple):
    """The numbers of `combine`: floats, or 0-d tensors while they are trained.

    Attributes:
        floor: what a place that does not stand out keeps.
        gain: how far diversity lifts places far from the strongest.
        participatory, propositional: exponents of these maps.
        contrast: exponent of the relevance: how steeply it falls off from the best places.
        least: below this a map alone would veto a place.
        even: of the tokens that focus leaves to other than the best places, the share that is spread evenly
            over the picture; the others go to the best as well.
    """

    floor: float | Tensor = FLOOR
    gain: float | Tensor = DIVERSITY_GAIN
    participatory: float | Tensor = 1.0
    propositional: float | Tensor = 1.0
    contrast: float | Tensor = 1.0
    least: float = LEAST
    even: float = 1.0

    def spread(self, focus: Number) -> Number:
        """The share of the tokens that is spread evenly under a focus tension."""
        return self.even * spread(focus)


FIXED = Scalars()
TRAINED = 5  # of them are trained, the first ones
# Of new weights. A scan sees every cell: on development scenes a quarter, or an eighth at a fifth of the
# tokens and less below, answered better than all, and as well as none.
EVEN = 0.25


class Combiner(nn.Module):
    """Trained numbers for `combine`, positive, starting at those of the fixed formula."""

    # A learned coupling orders places over many orders of magnitude; the fixed LEAST would level them.
    LEAST = 1e-6

    def __init__(self, even: float = FIXED.even) -> None:
        """`even` as of `Scalars`; it is not trained."""
        super().__init__()
        if not 0 <= even <= 1:
            raise ValueError(f"even is {even}, allowed is 0 to 1")
        self.even, self.sizes = even, {"even": even} if even != FIXED.even else {}
        self.log = nn.Parameter(torch.tensor(FIXED[:TRAINED]).log())

    def forward(self) -> Scalars:
        """The numbers, trained ones as 0-d tensors, in the order in which `Scalars` has them."""
        return Scalars(*self.log.exp().unbind(), least=self.LEAST, even=self.even)


class TensionPolicy(nn.Module):
    """Trained policy: question embedding and map statistics -> three tensions (brief, part 44).

    Input `(B, D)` question embedding and `(B, 9)` mean, max, std of each map; output `(B, 3)` in (0, 1):
    compress, exploit, focus.
    """

    def __init__(self, embedding_size: int, hidden_size: int = 64) -> None:
        super().__init__()
        self.embedding_size, self.hidden_size = embedding_size, hidden_size
        self.sizes = {"embedding_size": embedding_size, "hidden_size": hidden_size}
        self.norm = nn.LayerNorm(embedding_size)
        self.layers = nn.Sequential(
            nn.Linear(embedding_size + MAPS * STATISTICS, hidden_size),
            nn.GELU(),
            nn.Linear(hidden_size, 3),
        )

    def forward(self, embedding: Tensor, statistics: Tensor) -> Tensor:
        """`(B, D)`, `(B, 9)` -> `(B, 3)` in (0, 1)."""
        policy_input = torch.cat([self.norm(embedding.float()), statistics.float()], 1)
        return self.layers(policy_input).sigmoid()


def map_statistics(maps: Tensor) -> Tensor:
    """Mean, max and standard deviation of each map: `(B, 3, h, w)` -> `(B, 9)`."""
    flat = maps.flatten(2)
    return torch.cat([flat.mean(2), flat.amax(2), flat.std(2, correction=0)], 1)


def combine(
    propositional: Tensor,
    perspectival: Tensor,
    participatory: Tensor | None,
    tensions: Tensions,
    scalars: Scalars = FIXED,
) -> Tensor:
    """Combine the maps into relevance by the tensions.

    `seed = near^(1-c) * prop^c * (FLOOR + e*persp + (1-e)*(1-persp))`, stretched to [0, 1], where near is
    `e * (largest part within REACH) + (1-e) * part`; then
    `f^2*seed + (1-f^2)*lifted`, where lifted multiplies by up to 1 + DIVERSITY_GAIN at places far from the
    strongest; then min-max per image (an even map becomes 0.5 everywhere). Trained `scalars` replace FLOOR
    and DIVERSITY_GAIN and put exponents on part, prop and the result, which are 1 in the fixed formula. The
    brief (part 29) adds the maps with weights .4/.3/.3: what merely stands out then outbids what is asked
    for. Multiplying kept more of the answers' boxes (`python -m arr_coc.evaluate`).

    Args:
        propositional, perspectival: `(B, h, w)` in [0, 1].
        participatory: the same, or None where nothing couples the question to the image; the mean of
            the other two then stands in for it.
        tensions: in [0, 1]; while training, anything with the same three attributes `(B, 1, 1)`.
        scalars: of the fixed formula, or trained (`Combiner`).

    Returns:
        `(B, h, w)` in [0, 1].

    Raises:
        ValueError: where shapes differ.
    """
    return combine_each([(propositional, perspectival, participatory)], tensions, scalars)[0]


def combine_each(
    maps: Sequence[tuple[Tensor, Tensor, Tensor | None]],
    tensions: Tensions,
    scalars: Scalars = FIXED,
) -> list[Tensor]:
    """As `combine` of the three maps of several moments or pictures, min-max over all of them.

    The best place of all has 1; which is farthest from the strongest is asked within each.
    """
    seeds = ranged([_seed(*own, tensions, scalars) for own in maps])
    even, gain, least = spread(tensions.focus), scalars.gain, scalars.least
    relevances = []
    for seed in seeds:
        # Which places are strongest is a choice without a gradient; how strong they are keeps its own.
        lifted = seed * (1 + gain * distance_to_strongest(seed.detach())) / (1 + gain)
        relevances.append((1 - even) * seed + even * lifted)
    relevances = ranged(relevances)
    if isinstance(scalars.contrast, Tensor):  # 0 has no finite gradient under an exponent
        relevances = [own.clamp(min=least) for own in relevances]
    return [own**scalars.contrast for own in relevances]


def compete(own: Sequence[Tensor]) -> list[Tensor]:
    """Relevance of several pictures, each times what its best place has of the best of all, to `RIVALRY`.

    A picture's places keep their order, and equal pictures stay as they are.

    Args:
        own: `(1, h, w)` of each, in [0, 1].
    """
    peaks = torch.stack([relevance.amax() for relevance in own])
    weights = (peaks / peaks.amax().clamp(min=EPS)) ** RIVALRY
    return [relevance * weight for relevance, weight in zip(own, weights)]


def _seed(
    propositional: Tensor,
    perspectival: Tensor,
    participatory: Tensor | None,
    tensions: Tensions,
    scalars: Scalars,
) -> Tensor:
    """The product of the maps, `(B, h, w)`, as `combine` has it before it is stretched."""
    given = [m for m in (propositional, perspectival, participatory) if m is not None]
    shapes = {tuple(m.shape) for m in given}
    if len(shapes) != 1 or propositional.ndim != 3:
        raise ValueError(f"maps have shapes {sorted(shapes)}, expected one shape (B, h, w)")
    if participatory is None:
        participatory = (propositional + perspectival) / 2
    c, e, least = tensions.compress, tensions.exploit, scalars.least
    reach = F.max_pool2d(participatory, 2 * REACH + 1, 1, REACH)
    near = e * reach + (1 - e) * participatory
    wanted = near.clamp(min=least) ** ((1 - c) * scalars.participatory)
    wanted = wanted * propositional.clamp(min=least) ** (c * scalars.propositional)
    stands_out = scalars.floor + e * perspectival + (1 - e) * (1 - perspectival)
    return wanted * stands_out


def distance_to_strongest(scores: Tensor) -> Tensor:
    """Distance of each cell to the nearest of its image's strongest cells, over the farthest.

    `(B, h, w)` -> `(B, h, w)` in [0, 1]; ties for the strongest go to the earlier place.
    """
    B, h, w = scores.shape
    top = max(1, h * w // TOP_SHARE)
    rows, columns = torch.meshgrid(
        torch.arange(h, device=scores.device), torch.arange(w, device=scores.device), indexing="ij"
    )
    places = torch.stack([rows.flatten(), columns.flatten()], 1).float()  # (N, 2)
    strongest = torch.sort(scores.flatten(1), dim=1, descending=True, stable=True).indices[:, :top]
    nearest = torch.cdist(places.expand(B, -1, -1), places[strongest]).amin(2)  # (B, N)
    return (nearest / nearest.amax(1, keepdim=True).clamp(min=EPS)).view(B, h, w)


def per_image_range(maps: Tensor) -> Tensor:
    """Stretch each `(h, w)` plane of `(B, h, w)` to [0, 1]; an even plane becomes 0.5."""
    return ranged([maps])[0]


def ranged(maps: Sequence[Tensor]) -> list[Tensor]:
    """As `per_image_range` of several maps at once: each row is stretched by its range over all of them."""
    low = torch.stack([own.amin((1, 2)) for own in maps]).amin(0)[:, None, None]
    high = torch.stack([own.amax((1, 2)) for own in maps]).amax(0)[:, None, None]
    span = high - low
    return [
        torch.where(
            span > EPS,
            ((own - low) / span.clamp(min=EPS)).clamp(0, 1),
            torch.full_like(own, 0.5),
        )
        for own in maps
    ]
