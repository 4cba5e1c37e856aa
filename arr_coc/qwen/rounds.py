"""Rounds: tokens spent one helping after the other, for as long as the model is unsure.

The model reads the prompt with as many cells as hold most of the relevance, few for one small thing and
many for what has to be counted, and says how unsure its first word is. Where that is too much, the question
is cropped off the KV cache, the next best cells follow at their native positions, and the question is read
once more. What was read stays read: the logits are those of one prefill of the same tokens in that order
(tests/test_rounds.py).
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

import torch
from transformers import DynamicCache

from arr_coc.allocators import places_with
from arr_coc.attending import Allocation, native_allocation
from arr_coc.config import AUTO_MASS, UNSURE
from arr_coc.qwen.batch import read_on
from arr_coc.qwen.encoding import TokenSet, joined
from arr_coc.qwen.host import QwenHost
from arr_coc.qwen.inputs import Ask
from arr_coc.realizing import Realization, Round, recombine

Timed = Callable[[str], AbstractContextManager[None]]


@dataclass(frozen=True)
class Spent:
    """What the rounds came to.

    Attributes:
        tokens: every cell's, in the order in which they were read, without a glance that stays.
        cache: of the whole prompt.
        realization: with the cells of all rounds, and the rounds.
    """

    tokens: TokenSet
    cache: DynamicCache
    realization: Realization


def unsure_above(host: QwenHost, realization: Realization) -> float:
    """Nats of the first word above which more is read: the weights' own, or `config.UNSURE`."""
    components = host.policy(realization.config)
    own = components.unsure if components else None
    return UNSURE if own is None else own


def spend(host: QwenHost, ask: Ask, realization: Realization, timed: Timed) -> Spent:
    """Read cells in rounds.

    Args:
        host: that answers.
        ask: picture and prompt.
        realization: decided for the most that may be spent; its glance with its state.
        timed: counts a block's seconds as a stage, "relevance", "encode" or "prefill".

    Raises:
        ValueError: where the cells are not native ones, or nothing was decided (a fallback).
    """
    glance, bound = realization.kept_glance, unsure_above(host, realization)
    held = [glance.state.tokens] if glance else []
    with timed("prefill"):
        cache = glance.state.cache if glance else host.new_cache()
    kept, rounds, read = realization.allocation.native_index()[:0], [], []
    with timed("relevance"):
        planned = budgets(realization)
    for budget in planned:
        with timed("relevance"):
            more = next_cells(realization, kept, budget)
        if rounds:
            if not len(more):  # an allocator may spend less than it is allowed
                continue
            cache.crop(-ask.prompt.suffix.shape[1])
        with timed("encode"):
            read.append(host.encode(ask.picture, replace(realization, allocation=more)))
        kept = torch.cat([kept, more.native_index()])
        with timed("prefill"):
            entropy = prefill(host, ask, [*held, *read], cache)
        rounds.append(Round(sum(map(len, [*held, *read])), entropy))
        if entropy <= bound:
            break
    everything = cells_at(realization, kept.sort().values)
    final = replace(realization, allocation=everything, rounds=tuple(rounds))
    return Spent(joined(read), cache, final)


def budgets(realization: Realization) -> list[int]:
    """What each round may hold; those that a glance that stays leaves nothing of are left out."""
    glance, grid = realization.kept_glance, realization.grid
    least = glance.tokens if glance else 0
    holding = places_with(realization.relevance[0], AUTO_MASS)
    asked = realization.budget if holding is None else least + holding
    planned = realization.config.rounds(grid[0] * grid[1], realization.budget, asked)
    return [budget for budget in planned if budget > least]


def next_cells(realization: Realization, kept: torch.Tensor, budget: int) -> Allocation:
    """The cells that a budget allows besides those at raster indices `kept`, the best first to be had."""
    glance = realization.kept_glance
    room = budget - (glance.tokens if glance else 0) - len(kept)
    decided = realization
    if budget < realization.budget:
        # Not imposed: the same tensions again.
        decided = recombine(realization, realization.tensions, budget=budget)
    wanted = decided.allocation.native_index()
    fresh = wanted[~torch.isin(wanted, kept)]
    score = realization.relevance[0].float().cpu().flatten()[fresh]
    best = score.sort(descending=True, stable=True).indices[:room]
    return cells_at(realization, fresh[best].sort().values)


def cells_at(realization: Realization, index: torch.Tensor) -> Allocation:
    """Native cells at raster `index`."""
    relevance = realization.relevance[0].float().cpu().flatten()
    return native_allocation(index, realization.grid, relevance[index])


def prefill(host: QwenHost, ask: Ask, tokens: list[TokenSet], cache: DynamicCache) -> float:
    """Read what the cache does not hold yet, the question last; how unsure the first word is, in nats."""
    logits = read_on(host, ask.prompt, [joined(tokens).places], tokens[-1], cache)
    return float(torch.special.entr(logits.float().softmax(-1)).sum())
