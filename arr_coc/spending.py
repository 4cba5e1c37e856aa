"""Spending: how many of an image's visual tokens to use, and how to look before choosing them.

`Config` is the one dataclass of settings; `realizing` follows it.
"""

from dataclasses import dataclass

from arr_coc import attending, balancing
from arr_coc.allocators import check_allocator
from arr_coc.balancing import Tensions

GLANCES = ("auto", "separate", "periphery", "off")
PRUNES = ("before", "after")
# The tier that lets the question's words choose among `attending.TIERS`.
QUESTION_TIER = "question"
MINIMUM_BUDGET = 4
# A glance takes one token in GLANCE_SHARE of the image's, but as many as it takes to find things
# (GLANCE_TOKENS, 8 x 8) as long as that is at most one in GLANCE_AT_MOST.
GLANCE_SHARE, GLANCE_TOKENS, GLANCE_AT_MOST = 16, 64, 4
HALO = 0.5


def glance_tokens(grid: tuple[int, int]) -> int:
    """Tokens that a glance at an image of `grid` takes."""
    tokens = grid[0] * grid[1]
    return max(1, tokens // GLANCE_SHARE, min(GLANCE_TOKENS, tokens // GLANCE_AT_MOST))


@dataclass(frozen=True)
class Config:
    """How to spend an image's visual tokens.

    Attributes:
        share: share of the image's native tokens to spend, in (0, 1]; `budget` overrides it.
        budget: tokens to spend, glance included where it stays in the cache; None takes the share.
        glance: "separate" throws the low-resolution look away after reading its attention;
            "periphery" keeps it in the KV cache, before the fovea, as part of the budget; "auto" keeps
            it where the tensions ask for the gist and it fits; "off" takes none.
        prune: "before" the vision encoder (it only sees what is kept) or "after" it.
        surroundings: with "before", the encoder also sees the rest of the picture, in at most so many
            coarse cells, which the language model never holds; 0 for none, None for as many as a glance
            has.
        halo: with "before", the encoder also sees so many more native cells next to the kept ones, as a
            share of them; the language model never holds these either.
        tier: a name from `attending.TIERS`, which overrides the share, or "question", which lets the
            question's words choose one (`balancing.lexical_tier`); None for the share.
        allocator: a name from `allocators.ALLOCATORS`. "adaptive" and "quadtree" may spend less than
            the budget, never more.
        tensions: imposed tensions; None lets the policy choose.
        revision: revision of the trained weights, of those loaded; None for the default, "none" for
            none of them (training-free).
    """

    share: float = 0.20
    budget: int | None = None
    glance: str = "auto"
    prune: str = "before"
    surroundings: int | None = None
    halo: float = HALO
    tier: str | None = None
    allocator: str = "topk"
    tensions: Tensions | None = None
    revision: str | None = None

    def __post_init__(self) -> None:
        if self.glance not in GLANCES:
            raise ValueError(f"glance is {self.glance!r}, expected one of {', '.join(GLANCES)}")
        if self.prune not in PRUNES:
            raise ValueError(f"prune is {self.prune!r}, expected one of {', '.join(PRUNES)}")
        tiers = (*attending.TIERS, QUESTION_TIER)
        if self.tier is not None and self.tier not in tiers:
            raise ValueError(f"tier is {self.tier!r}, expected one of {', '.join(tiers)}")
        check_allocator(self.allocator)
        if self.surroundings is not None and self.surroundings < 0:
            raise ValueError(f"surroundings is {self.surroundings}, allowed is 0 or more")
        if not self.halo >= 0:
            raise ValueError(f"halo is {self.halo}, allowed is 0 or more")
        if self.budget is None:
            attending.tokens_for_share(self.share, 1)

    def surrounding_cells(self, grid: tuple[int, int]) -> int:
        """At most so many coarse cells of an image of `grid` are shown to the encoder besides."""
        return glance_tokens(grid) if self.surroundings is None else self.surroundings

    def tokens(self, available: int, question: str = "") -> int:
        """Tokens to spend on an image of `available`; ValueError where it does not fit.

        `question` matters to the "question" tier alone.
        """
        minimum = min(MINIMUM_BUDGET, available)
        if self.budget is not None:
            attending.check_budget(self.budget, available, minimum)
            return self.budget
        tier = balancing.lexical_tier(question) if self.tier == QUESTION_TIER else self.tier
        share = attending.TIERS[tier] if tier else self.share
        return max(minimum, attending.tokens_for_share(share, available))
