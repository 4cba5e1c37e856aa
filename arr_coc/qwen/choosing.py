"""Choosing: what an answer comes to where somebody else chooses the places, beside the model's own choice.

A question is decided as ever; then the chosen cells stand in the place of the decision's own. Everything
else stays: the glance, what the encoder attends to beside them, the trained adapter.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from PIL import Image
from torch import Tensor

from arr_coc.components import context_for
from arr_coc.config import NEW_TOKENS, Config, check_question, glance_tokens
from arr_coc.qwen.answer import without_state
from arr_coc.qwen.batch import answer_batch
from arr_coc.qwen.encoding import TokenSet
from arr_coc.qwen.host import QwenHost
from arr_coc.qwen.inputs import Ask, glance_grid
from arr_coc.qwen.mattering import prefixes, said_with
from arr_coc.qwen.rounds import cells_at
from arr_coc.realizing import Realization, Realizer

# The glance tells how to look and is no token of the answer: both sides spend the same.
GLANCE = "separate"


@dataclass(frozen=True)
class Spent:
    """What one order of places came to.

    Attributes:
        places: `(K, 2)` int64 row and column, in the order in which they were spent.
        text: the answer from the glance and all K.
        needed: how many of them, from the first on, make the model say what the full look says; tokens that
            are left out are so of the language model alone. None where not even all of them do.
    """

    places: Tensor
    text: str
    needed: int | None


@dataclass(frozen=True)
class Contest:
    """Two choices of places for one question.

    Attributes:
        realization: the decision.
        full: the full look's answer.
        nothing: the answer from the question alone, without any visual token.
        given, own: from the places that were given, and from the decision's own, most relevant first.
    """

    realization: Realization
    full: str
    nothing: str
    given: Spent
    own: Spent


def contest(
    host: QwenHost,
    image: Image.Image,
    question: str,
    places: Sequence[Sequence[int]],
    budget: int,
    max_new_tokens: int = NEW_TOKENS,
    revision: str | None = None,
) -> Contest:
    """Answer a question from given places, and from as many as the model chooses itself.

    Args:
        host: that answers.
        image: RGB.
        question: the question alone.
        places: row and column of native tokens, each once, 1 to `budget` of them.
        budget: tokens that the model's own choice may spend.
        max_new_tokens: longest answer.
        revision: of the trained weights, as in `Config`.

    Raises:
        ValueError: for an empty question, places that are not allowed, a budget that does not fit, and
            where nothing was decided (a fallback).
    """
    check_question(question)
    config = Config(budget=budget, glance=GLANCE, revision=revision)

    def held() -> Contest:
        ask = host.prepare(image, question)
        given = raster_index(places, ask.picture.grid, budget)
        realization = Realizer(host, host.policy(config)).realize(ask, question, config)
        if realization.fallback:
            raise ValueError(f"nothing was decided: {realization.fallback}")
        return _contest(host, ask, realization, given, max_new_tokens)

    with host.lock, torch.inference_mode():
        return host.once_more_if_narrow(held)


def _contest(
    host: QwenHost, ask: Ask, realization: Realization, given: Tensor, max_new_tokens: int
) -> Contest:
    orders = [given, by_relevance(realization)]
    (full,) = answer_batch(host, [ask.prompt], [host.encode(ask.picture, None)], max_new_tokens)
    sets = [tokens_at(host, ask, realization, index) for index in orders]
    asked = [sets[0].at(slice(0)), *sets]
    nothing, *answers = answer_batch(host, [ask.prompt] * len(asked), asked, max_new_tokens)
    begun = [
        prefixes(tokens, spent_order(index).to(tokens.features.device))
        for tokens, index in zip(sets, orders)
    ]
    same = said_with(host, ask, [*begun[0], *begun[1]], full.ids).same
    spent = [
        Spent(_places(index, realization.grid[1]), answer.text, _first(gives))
        for index, answer, gives in zip(orders, answers, same.split([len(b) for b in begun]))
    ]
    return Contest(without_state(realization), full.text, nothing.text, *spent)


def glance_seen(host: QwenHost, image: Image.Image, budget: int) -> Image.Image:
    """The picture shrunk as the glance of such a decision sees it, RGB."""
    grid, config = host.inputs.grid_of(image.size), Config(budget=budget, glance=GLANCE)
    tokens = glance_tokens(grid, context_for(config, host.policy(config)))
    return host.resized(image.convert("RGB"), glance_grid(grid, tokens)).image


def tokens_at(host: QwenHost, ask: Ask, realization: Realization, index: Tensor) -> TokenSet:
    """The tokens of a decision in which the cells at raster `index` `(K,)` were kept, in raster order."""
    chosen = replace(realization, allocation=cells_at(realization, index.sort().values))
    return host.encode(ask.picture, chosen)


def by_relevance(realization: Realization) -> Tensor:
    """`(K,)` raster indices of the kept cells, the most relevant first; ties go to the earlier place."""
    index = realization.allocation.native_index()
    relevance = realization.relevance[0].float().cpu().flatten()[index]
    return index[relevance.sort(descending=True, stable=True).indices]


def spent_order(index: Tensor) -> Tensor:
    """`(K,)` raster indices in any order -> where each stands among them in raster order."""
    return torch.searchsorted(index.sort().values, index)


def raster_index(places: Sequence[Sequence[int]], grid: tuple[int, int], budget: int) -> Tensor:
    """Places as `(K,)` int64 raster indices, in their order.

    Raises:
        ValueError: unless they are 1 to `budget` pairs inside the grid, each once.
    """
    if not 1 <= len(places) <= budget:
        raise ValueError(f"{len(places)} places were given, allowed are 1 to {budget}")
    h, w = grid
    index = []
    for row, column in places:
        if not (0 <= row < h and 0 <= column < w):
            raise ValueError(f"place ({row}, {column}) lies outside the {h}x{w} grid")
        if row * w + column in index:
            raise ValueError(f"place ({row}, {column}) was given twice")
        index.append(row * w + column)
    return torch.tensor(index)


def _places(index: Tensor, width: int) -> Tensor:
    return torch.stack([index // width, index % width], 1)


def _first(gives: Tensor) -> int | None:
    """`(K + 1,)` bool -> the first that is true, None for none."""
    found = gives.nonzero()
    return int(found[0, 0]) if len(found) else None
