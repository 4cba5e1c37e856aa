"""Config: every setting, its allowed values and its default; read by page, API, commands and library.

`Config` says how to spend an image's visual tokens; `realizing` follows it. No torch here, so that a page
can offer the choices before the model is loaded.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from numbers import Integral, Real
from typing import NamedTuple, TypeVar

# What becomes of the glance (the low-resolution pass), where tokens are dropped, and who picks the places.
GLANCES = ("auto", "periphery", "separate", "off")
PRUNES = ("before", "after")
# What the encoder attends to beside the kept cells.
CONTEXTS = ("auto", "glance", "cells", "none")
# When to look closely: at every question, or only where this machine would be sooner for it.
WHENS = ("always", "auto")
TOPK, ADAPTIVE = "topk", "adaptive"
ALLOCATORS = (TOPK, ADAPTIVE, "window", "quadtree")
# Shares of an image's tokens, by name, and the tier that lets the question's words choose among them.
TIERS = {"fast": 0.10, "balanced": 0.20, "accurate": 0.40}
QUESTION_TIER = "question"
TIER_NAMES = (*TIERS, QUESTION_TIER)
SHARE = 0.20
# Or as many as the question takes: so many of the best places as hold AUTO_MASS of the relevance, at least
# the first of the shares; and up to the next while the first word is unsure (its entropy, in nats, is above
# UNSURE; trained weights may bring a bound of their own).
AUTO, AUTO_MASS, AUTO_SHARES, UNSURE = "auto", 0.95, (0.08, 0.20), 0.3
MINIMUM_BUDGET = 4
# A glance takes one token in so many of the image's, but as many as it takes to find things (6 x 6, or
# 8 x 8) as long as that is at most one in GLANCE_AT_MOST. By context: weights are trained for one size.
GLANCE_SIZES = {"glance": (21, 36), "cells": (16, 64), "none": (16, 64)}
GLANCE_AT_MOST = 4
# A glance at several moments or pictures takes fewer tokens of each, but not fewer than these (4 x 4): kept
# cells are encoded beside it, and too coarse a one spoils them.
GLANCE_LEAST = 16
HALO = 0.5
# Of a moment's relevance, what it has of the moment before; and how far a place that moves is lifted. The
# brief's ranges are .7 to .9 and 1.2 to 1.8 (part 29).
DECAY, BOOST = 0.7, 1.5
# Of a base's numbers; "auto" is what suits the device.
DTYPES = ("auto", "float32", "bfloat16", "float16")
NO_REVISION = "none"  # of ARR-COC weights: training-free beside learned
QWEN = "Qwen/Qwen3-VL-2B-Instruct"  # the base on a Space with a GPU
# 1,048,576 pixels are 1024 visual tokens; Qwen3-VL's own processor would allow 16,384.
MAX_PIXELS = 1024 * 1024
# All moments of a clip together, two frames each: 4096 visual tokens, 16 moments of 256. A question can be
# asked about so many pictures at once.
MAX_CLIP_PIXELS, MAX_PICTURES = 4 * MAX_PIXELS, 6
# Tokens of an answer, and seconds of decoding after which it ends with what there is by then.
NEW_TOKENS, MAX_NEW_TOKENS = 32, 1024
DEADLINE_S = 60.0


class Pace(NamedTuple):
    """How relevance goes from one moment of a clip to the next; trained weights may bring their own.

    Attributes:
        decay: the share of a moment's relevance that is left of it a second later, in [0, 1).
        boost: by how much a place that moves, or begins a scene, is lifted, 1 or more; 1 lifts none.
        lean: nats by which the attention of a glance at a clip favours its last moment over its first, and
            which are taken back; 0 for none.
    """

    decay: float = DECAY
    boost: float = BOOST
    lean: float = 0.0


Number = TypeVar("Number")  # a float, or a tensor while tensions are trained


def one_of(value: str, what: str, allowed: tuple[str, ...]) -> None:
    """Raise ValueError, naming what was given and what is allowed, unless `value` is allowed."""
    if value not in allowed:
        raise ValueError(f"{what} is {value!r}, expected one of {', '.join(allowed)}")


def tokens_for_share(share: float, tokens: int) -> int:
    """The whole number of tokens, at least 1, that is `share` of `tokens`, rounded down.

    Raises:
        ValueError: for a share outside (0, 1].
    """
    if isinstance(share, bool) or not isinstance(share, Real):
        raise ValueError(f"share is {share!r}, expected a number above 0 and at most 1")
    if not 0 < share <= 1:
        raise ValueError(f"share is {share}, allowed is above 0 and at most 1")
    return max(1, int(share * tokens + 1e-9))


def check_budget(budget: int, tokens: int, minimum: int = 1) -> None:
    """Raise ValueError unless `minimum <= budget <= tokens`."""
    if isinstance(budget, bool) or not isinstance(budget, Integral):
        raise ValueError(f"budget is {budget!r}, expected a whole number of tokens")
    if budget > tokens:
        raise ValueError(f"budget {budget} exceeds the {tokens} visual tokens there are")
    if budget < minimum:
        raise ValueError(f"budget {budget} is below the minimum of {minimum} tokens")


def check_new_tokens(count: int) -> None:
    """Raise ValueError unless an answer may have `count` tokens."""
    if isinstance(count, bool) or not isinstance(count, Integral):
        raise ValueError(f"max_new_tokens is {count!r}, expected a whole number")
    if not 1 <= count <= MAX_NEW_TOKENS:
        raise ValueError(f"max_new_tokens is {count}, allowed is 1 to {MAX_NEW_TOKENS}")


def check_question(question: str, name: str = "the question") -> None:
    """Raise ValueError unless something is asked; `name` is what the question is called."""
    if not isinstance(question, str):
        raise ValueError(f"{name} is a {type(question).__name__}, expected text")
    if not question.strip():
        raise ValueError(f"{name} is empty, expected at least one word")


def glance_tokens(grid: tuple[int, int], context: str = "cells") -> int:
    """Tokens that a glance at an image of `grid` takes, in one of `CONTEXTS` but "auto"."""
    tokens, (one_in, enough) = grid[0] * grid[1], GLANCE_SIZES[context]
    return max(1, tokens // one_in, min(enough, tokens // GLANCE_AT_MOST))


def glance_size(grid: tuple[int, int], config: "Config", context: str, budget: int) -> int:
    """At most so many visual tokens for a glance at a picture of which `budget` are kept."""
    tokens = glance_tokens(grid, context)
    # One that stays must leave as much to the fovea.
    return max(1, min(tokens, budget // 2)) if config.glance == "periphery" else tokens


def glance_tokens_each(grids: Sequence[tuple[int, int]], context: str = "cells") -> list[int]:
    """Tokens that one glance takes of each of several moments or pictures; of one, `glance_tokens`.

    All of them together grow with the square root of their number.
    """
    alone = [glance_tokens(grid, context) for grid in grids]
    return [min(own, max(GLANCE_LEAST, int(own / len(grids) ** 0.5))) for own in alone]


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


def spread(focus: Number) -> Number:
    """What a focus tension, a float or a tensor, leaves to other than the best places."""
    return 1 - focus * focus


@dataclass(frozen=True)
class Tensions:
    """Three opponent tensions in [0, 1]; 0.5 is balanced, of focus 0.7.

    Attributes:
        compress: 1 keeps the gist (structure), 0 particularizes (what the question points to).
        exploit: 1 goes for what stands out, 0 explores what does not.
        focus: its square is the share of the tokens that goes to the best places; of the others as many
            as `balancing.Scalars.even` says are spread evenly, without weights all.
    """

    compress: float = 0.5
    exploit: float = 0.5
    focus: float = 0.7

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not 0 <= value <= 1:  # also refuses NaN
                raise ValueError(f"{field.name} is {value}, allowed is 0 to 1")


NEUTRAL = Tensions()
# The ends of each tension's gauge in plain words: what 1 stands for, then what 0 stands for.
TENSION_ENDS = {
    "compress": ("Gist", "Fine detail"),
    "exploit": ("Go for the best spot", "Look around"),
    "focus": ("One place", "Several places"),
}


@dataclass(frozen=True)
class Config:
    """How to spend an image's visual tokens.

    Attributes:
        share: share of the image's native tokens to spend, in (0, 1], or "auto": as many as the relevance
            asks for, and more while the model is unsure, up to the last of `AUTO_SHARES`; `budget` is
            then the most.
        budget: tokens to spend, glance included where it stays in the cache; None takes the share.
        glance: one of `GLANCES`. "separate" throws the low-resolution pass away after reading its
            attention; "periphery" keeps it in the KV cache, before the fovea, as part of the budget;
            "auto" keeps it where the tensions ask for the gist and it fits; "off" takes none.
        prune: "before" the vision encoder (it only sees what is kept) or "after" it.
        context: one of `CONTEXTS`: with "before", what the encoder attends to beside the kept cells: the
            "glance"'s keys and values, which costs no further encoding; coarse "cells" of the rest of the
            picture and a halo, as `surroundings` and `halo` say; "none". "auto" takes what the weights
            were trained for, else cells. Where there is no glance, or the attention function takes no
            keys of another length, "glance" is cells as well.
        surroundings: with "cells", the encoder also sees the rest of the picture, in at most so many
            coarse cells, which the language model never holds; 0 for none, None for as many as a glance
            has.
        halo: with "cells", the encoder also sees so many more native cells next to the kept ones, as a
            share of them; the language model never holds these either.
        tier: one of `TIER_NAMES`, which overrides the share; "question" lets the question's words choose
            (`balancing.lexical_tier`). None for the share.
        allocator: one of `ALLOCATORS`. "adaptive" and "quadtree" may spend less than the budget, never
            more.
        when: one of `WHENS`: "always", or "auto" to answer in full where, by the times measured in this
            process, looking closely would not be sooner.
        decay, boost: as of a `Pace`, for clips; None for those of the weights, else `DECAY` and `BOOST`.
        tensions: imposed tensions; None lets the policy choose.
        revision: revision of the trained weights, of those loaded; None for the default, "none" for
            none of them (training-free).
    """

    share: float | str = SHARE
    budget: int | None = None
    glance: str = "auto"
    prune: str = "before"
    context: str = "auto"
    surroundings: int | None = None
    halo: float = HALO
    tier: str | None = None
    allocator: str = "topk"
    when: str = "always"
    decay: float | None = None
    boost: float | None = None
    tensions: Tensions | None = None
    revision: str | None = None

    def __post_init__(self) -> None:
        one_of(self.glance, "glance", GLANCES)
        one_of(self.prune, "prune", PRUNES)
        one_of(self.context, "context", CONTEXTS)
        one_of(self.allocator, "allocator", ALLOCATORS)
        one_of(self.when, "when", WHENS)
        if self.tier is not None:
            one_of(self.tier, "tier", TIER_NAMES)
        if self.surroundings is not None and self.surroundings < 0:
            raise ValueError(f"surroundings is {self.surroundings}, allowed is 0 or more")
        if not 0 <= self.halo < float("inf"):
            raise ValueError(f"halo is {self.halo}, allowed is 0 or more")
        if self.decay is not None and not 0 <= self.decay < 1:
            raise ValueError(f"decay is {self.decay}, allowed is 0 up to, but not, 1")
        if self.boost is not None and not 1 <= self.boost < float("inf"):
            raise ValueError(f"boost is {self.boost}, allowed is 1 or more")
        if not (self.tensions is None or isinstance(self.tensions, Tensions)):
            raise ValueError(
                f"tensions is {self.tensions!r}, expected Tensions(compress, exploit, focus)"
            )
        if isinstance(self.share, str):
            self._check_auto()
        elif self.budget is None:
            tokens_for_share(self.share, 1)

    def _check_auto(self) -> None:
        if self.share != AUTO:
            raise ValueError(f"share is {self.share!r}, expected a number or {AUTO!r}")
        if self.prune == "after" or self.allocator == "quadtree":
            given = f"prune {self.prune!r} and allocator {self.allocator!r}"
            raise ValueError(
                f"share 'auto' is given with {given}, allowed is 'before', not 'quadtree'"
            )

    @property
    def is_auto(self) -> bool:
        """Whether the tokens are spent in rounds; a tier by name overrides the share."""
        return self.share == AUTO and self.tier is None

    def surrounding_cells(self, grid: tuple[int, int]) -> int:
        """At most so many coarse cells of an image of `grid` are shown to the encoder besides."""
        return glance_tokens(grid) if self.surroundings is None else self.surroundings

    def tokens(self, available: int, suggested: str = "balanced") -> int:
        """Tokens to spend on an image of `available`; ValueError where it does not fit.

        Args:
            available: the image's native tokens.
            suggested: what the "question" tier stands for, a name from `TIERS`
                (`balancing.lexical_tier`).
        """
        minimum = min(MINIMUM_BUDGET, available)
        if self.budget is not None:
            check_budget(self.budget, available, minimum)
            return int(self.budget)
        tier = suggested if self.tier == QUESTION_TIER else self.tier
        share = TIERS[tier] if tier else AUTO_SHARES[-1] if self.is_auto else self.share
        return max(minimum, tokens_for_share(share, available))

    def rounds(self, available: int, most: int, asked: int) -> list[int]:
        """Budgets of the rounds of "auto" on an image of `available` tokens, rising to `most`.

        `asked` is how many the relevance asks for.
        """
        minimum = min(MINIMUM_BUDGET, available)
        least, *more = (
            max(minimum, tokens_for_share(share, available)) for share in AUTO_SHARES[:-1]
        )
        first = max(least, asked)
        return [*(budget for budget in (first, *more) if first <= budget < most), most]
