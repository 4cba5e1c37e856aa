"""What the trained parts decide for a batch, softly: relevance, tensions, and each place's share.

As `realizing` decides for one question, with noise, a drawn budget and a top-k that has gradients.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace

import torch
from torch import Tensor

from arr_coc import attending, balancing, config, knowing
from arr_coc.components import Components
from arr_coc.config import MINIMUM_BUDGET
from arr_coc.train import relaxation
from arr_coc.train.frozen import Group

# Shares of an image's tokens that a question is given, drawn evenly; the least twice, where tokens
# encoded from a part leave most to mend.
SHARES = (0.05, 0.05, 0.1, 0.2, 0.4)
NO_GLANCE = 0.1  # of the samples couple through texture alone, and are mended without a glance
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
    found: Tensor  # (B, N) the same, with no gradient to the tensions
    blind: Tensor  # (B,) bool, decided without a glance where texture can


def decide(
    parts: Components,
    group: Group,
    random: Sequence[torch.Generator],
    budgets: Sequence[float] = SHARES,
) -> Decision:
    """Decide for every question of a group; `random` is a generator for each of them.

    A question is given one of `budgets`, shares of an image's tokens, drawn evenly.
    """
    draws = torch.stack([torch.rand(2, generator=g) for g in random])
    blind = draws[:, 0] < NO_GLANCE
    participatory = _participatory(parts, group, blind)
    maps = (group.propositional, knowing.perspectival(group.textures), participatory)
    statistics = balancing.map_statistics(torch.stack(maps, 1))
    tensions = _tensions(parts, group, statistics)
    relevance = _combined(parts, maps, tensions)
    budget = _budgets(draws[:, 1], group.grid, budgets)
    spread = config.spread(tensions[:, 2])
    even = _even(budget, spread, group.grid).to(relevance)
    budget = budget.to(relevance)
    noise = [relaxation.gumbel(relevance[0].numel(), g) for g in random]
    noise = relaxation.NOISE * torch.stack(noise).to(relevance)
    scores = _log(relevance) + noise
    # Boxes say where the evidence is, not how much of its surroundings an answer needs: they
    # train where to look, and leave the tensions to answers and words.
    held = tensions.detach()
    found = _log(_combined(parts, maps, held)) + noise
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
        found=relaxation.soft_allocation(found, budget, spread.detach(), even),
        blind=blind,
    )


def _participatory(parts: Components, group: Group, blind: Tensor) -> Tensor:
    """Of every question; the `blind` ones couple without a glance, where texture can."""
    given = (group.textures, group.embedding, group.grid)
    seen, _ = parts.participatory(group.looks, *given)
    if parts.texture is None:
        return seen
    unseen, _ = parts.participatory(None, *given)
    return torch.where(blind[:, None, None].to(seen.device), unseen, seen)


def _tensions(parts: Components, group: Group, statistics: Tensor) -> Tensor:
    """`(B, 3)` of the policy, or the lexical prior's; float32, so that 1 - t has a logarithm."""
    if parts.policy is None:
        return values([balancing.lexical_tensions(a.question) for a in group.asked], statistics)
    return parts.policy(group.embedding, statistics).float()


def _combined(parts: Components, maps: tuple[Tensor, ...], tensions: Tensor) -> Tensor:
    """`(B, h, w)` relevance by tensions `(B, 3)`."""
    c, e, f = (t[:, None, None] for t in tensions.unbind(1))
    given = SimpleNamespace(compress=c, exploit=e, focus=f)
    return balancing.combine(*maps, given, parts.scalars())


def _budgets(draws: Tensor, grid: tuple[int, int], budgets: Sequence[float]) -> Tensor:
    """`(B,)` draws in [0, 1) -> int64 tokens."""
    N = grid[0] * grid[1]
    shares = [budgets[int(draw * len(budgets))] for draw in draws]
    tokens = [max(MINIMUM_BUDGET, config.tokens_for_share(share, N)) for share in shares]
    return torch.tensor(tokens).clamp(max=N - 1)


def _even(budget: Tensor, spread: Tensor, grid: tuple[int, int]) -> Tensor:
    """`(B, N)` 1 at the places to spread evenly, a share `spread` `(B,)` of the budget."""
    even = torch.zeros(len(budget), grid[0] * grid[1])
    for row, (k, share) in enumerate(zip(budget.tolist(), spread.tolist())):
        if count := min(round(share * k), k - 1):
            even[row, attending.uniform(grid, count).native_index()] = 1
    return even


def _log(relevance: Tensor) -> Tensor:
    return relevance.flatten(1).clamp(min=LEAST).log()


def values(tensions: Sequence[config.Tensions], like: Tensor) -> Tensor:
    """`(B, 3)` compress, exploit, focus, on the device of `like`."""
    return like.new_tensor([[t.compress, t.exploit, t.focus] for t in tensions])
