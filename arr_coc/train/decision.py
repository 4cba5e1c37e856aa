"""What the trained parts decide for a batch, softly: relevance, tensions, and each place's share.

As `realizing` decides for one question, with noise, a drawn budget and a top-k that has gradients
(`relaxation`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace

import torch
from torch import Tensor

from arr_coc import attending, balancing, knowing
from arr_coc.balancing import TensionPolicy
from arr_coc.components import Components
from arr_coc.config import Config, Tensions
from arr_coc.train import relaxation
from arr_coc.train.frozen import Group

# Shares of an image's tokens that a question is given, drawn evenly. The least is there twice: it
# leaves the adapter most to correct.
SHARES = (0.05, 0.05, 0.1, 0.2, 0.4)
# This share of the questions couple without the glance, by texture and scan, and are corrected without it.
NO_GLANCE = 0.1
LEAST = 1e-6


@dataclass(frozen=True)
class Decision:
    """What was decided for the B questions of a group, N places each."""

    perspectival: Tensor  # (B, h, w)
    participatory: Tensor  # (B, h, w)
    statistics: Tensor  # (B, 9) of the maps
    tensions: Tensor  # (B, 3)
    relevance: Tensor  # (B, h, w)
    budget: Tensor  # (B,) tokens
    scores: Tensor  # (B, N) noisy log-relevance
    even: Tensor  # (B, N) 1 where a token is spread evenly
    shares: Tensor  # (B, N), adding up to the budget
    cover_shares: Tensor  # (B, N) the same, with no gradient to the tensions
    without_glance: Tensor  # (B,) bool, decided without one where texture or scan can


def decide(
    parts: Components,
    group: Group,
    random: Sequence[torch.Generator],
    budgets: Sequence[float] = SHARES,
) -> Decision:
    """Decide for every question of a group.

    Args:
        parts: the trained components.
        group: B questions with what the frozen base says about them.
        random: a generator for each question.
        budgets: shares of an image's tokens, of which each question is given one, drawn evenly.
    """
    draws = torch.stack([torch.rand(2, generator=g) for g in random])
    without_glance = draws[:, 0] < NO_GLANCE
    participatory = _participatory(parts, group, without_glance)
    maps = (group.propositional, knowing.perspectival(group.textures), participatory)
    statistics = balancing.map_statistics(torch.stack(maps, 1))
    tensions = _tensions(parts, group, statistics)
    relevance = _combined(parts, maps, tensions)
    budget = _budgets(draws[:, 1], group.grid, budgets)
    spread = parts.scalars().spread(tensions[:, 2])
    even = _even(budget, spread, group.grid).to(relevance)
    budget = budget.to(relevance)
    noise = [relaxation.gumbel(relevance[0].numel(), g) for g in random]
    noise = relaxation.NOISE * torch.stack(noise).to(relevance)
    scores = _log(relevance) + noise
    # Boxes say where the evidence is, not how much of its surroundings an answer needs. So `cover`,
    # which they are for, trains where to look and leaves the tensions to answers and words: its
    # scores are the same numbers, combined by tensions that take no gradient.
    cover_scores = _log(_combined(parts, maps, tensions.detach())) + noise
    return Decision(
        perspectival=maps[1],
        participatory=participatory,
        statistics=statistics,
        tensions=tensions,
        relevance=relevance,
        budget=budget,
        scores=scores,
        even=even,
        shares=relaxation.soft_allocation(scores, budget, spread, even),
        cover_shares=relaxation.soft_allocation(cover_scores, budget, spread.detach(), even),
        without_glance=without_glance,
    )


def _participatory(parts: Components, group: Group, without_glance: Tensor) -> Tensor:
    """`(B, h, w)` what each question couples to; `(B,)` says which of them go without a glance."""
    seen = parts.see(lambda _: group.fine)
    seen = None if seen is None else seen[group.picture_of]
    textures, words = group.textures, group.words
    coupled, _ = parts.participatory(group.glances, textures, words, group.grid, seen)
    rows = without_glance.to(coupled.device).nonzero()[:, 0]
    only_glance = (
        parts.texture is None and seen is None
    )  # then nothing else tells where a question points
    if only_glance or not len(rows):
        return coupled
    seen = None if seen is None else seen[rows]
    by_others, _ = parts.participatory(None, textures[rows], words.rows(rows), group.grid, seen)
    return coupled.index_copy(0, rows, by_others)


def _tensions(parts: Components, group: Group, statistics: Tensor) -> Tensor:
    """`(B, 3)` of the policy, or the lexical prior's; float32, so that 1 - t has a logarithm."""
    if parts.policy is None:
        lexical = [balancing.lexical_tensions(q.question) for q in group.questions]
        return tension_values(lexical, statistics)
    return float32_tensions(parts.policy, group.words.mean, statistics)


def float32_tensions(policy: TensionPolicy, embedding: Tensor, statistics: Tensor) -> Tensor:
    """`(B, 3)` of a policy in float32, whatever autocast is on: in bfloat16 there are 256 of them.

    Args:
        policy: with float32 weights.
        embedding: `(B, D)` of the questions.
        statistics: `(B, 9)` of the maps.
    """
    with torch.autocast(embedding.device.type, enabled=False):
        return policy(embedding.float(), statistics.float())


def _combined(parts: Components, maps: tuple[Tensor, ...], tensions: Tensor) -> Tensor:
    """`(B, h, w)` relevance by tensions `(B, 3)`."""
    c, e, f = (t[:, None, None] for t in tensions.unbind(1))
    each = SimpleNamespace(compress=c, exploit=e, focus=f)  # as `Tensions`, a value per question
    return balancing.combine(*maps, each, parts.scalars())


def _budgets(draws: Tensor, grid: tuple[int, int], budgets: Sequence[float]) -> Tensor:
    """`(B,)` draws in [0, 1) -> int64 tokens, at least one fewer than the grid has."""
    native_tokens = grid[0] * grid[1]
    shares = [budgets[int(draw * len(budgets))] for draw in draws]
    tokens = [Config(share=share).tokens(native_tokens) for share in shares]
    return torch.tensor(tokens).clamp(max=native_tokens - 1)


def _even(budget: Tensor, spread: Tensor, grid: tuple[int, int]) -> Tensor:
    """`(B, N)` 1 at the places to spread evenly, a share `spread` `(B,)` of the budget.

    One token at least is left for the best place.
    """
    even = torch.zeros(len(budget), grid[0] * grid[1])
    for row, (tokens, share) in enumerate(zip(budget.tolist(), spread.tolist())):
        if count := min(round(share * tokens), tokens - 1):
            even[row, attending.uniform(grid, count).native_index()] = 1
    return even


def _log(relevance: Tensor) -> Tensor:
    return relevance.flatten(1).clamp(min=LEAST).log()


def tension_values(tensions: Sequence[Tensions], like: Tensor) -> Tensor:
    """`(B, 3)` compress, exploit, focus, on the device of `like`."""
    return like.new_tensor([[t.compress, t.exploit, t.focus] for t in tensions])
