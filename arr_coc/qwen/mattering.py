"""Mattering: which of the kept places an answer hangs on, by leaving each of them out.

Tokens are dropped from the language model alone: the others keep their native positions and what the
encoder gave of them, so that a place is not seen, yet may have coloured its neighbours. What such a set
promises is confirmed by a look of its own, from pixels (`is_said`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from PIL import Image
from torch import Tensor

from arr_coc.config import NEW_TOKENS, Config, check_question
from arr_coc.qwen import finite
from arr_coc.qwen.answer import without_state
from arr_coc.qwen.batch import answer_batch, padded
from arr_coc.qwen.encoding import TokenSet
from arr_coc.qwen.host import QwenHost
from arr_coc.qwen.inputs import Ask
from arr_coc.qwen.rounds import cells_at
from arr_coc.realizing import Realization, Realizer

TOKENS_AT_ONCE = 8192  # of all rows that are read in one call, pads included


@dataclass(frozen=True)
class Said:
    """How an answer fares with R sets of visual tokens.

    Attributes:
        probability: `(R,)` float32 of the whole answer.
        same: `(R,)` bool, whether it is what the model would say itself, greedily.
    """

    probability: Tensor
    same: Tensor


@dataclass(frozen=True)
class Mattering:
    """What K kept tokens are worth to an answer.

    Attributes:
        ids: the answer's, end token included where it came to one.
        probability: of the answer with all K tokens.
        without: `(K,)` float32, the same with each token left out.
        order: `(K,)` int64, indices of the tokens, those first that cost most to leave out.
        enough: how many tokens, the first of `order`, give the answer by themselves.
    """

    ids: tuple[int, ...]
    probability: float
    without: Tensor
    order: Tensor
    enough: int

    @property
    def loss(self) -> Tensor:
        """`(K,)` probability that leaving out each token costs; below 0 where it was in the way."""
        return self.probability - self.without

    def first(self, count: int) -> Tensor:
        """`(count,)` int64, the tokens that cost most to leave out, as indices in rising order."""
        return self.order[:count].sort().values


def said_with(host: QwenHost, ask: Ask, sets: Sequence[TokenSet], answer: Sequence[int]) -> Said:
    """How likely an answer is from each of several sets of visual tokens.

    Args:
        host: the model.
        ask: prompt and picture, the same for all sets.
        sets: R sets of native tokens; empty ones too.
        answer: its token ids, one at least.

    Raises:
        ValueError: for no sets or an empty answer.
        FloatingPointError: where the model's numbers overflowed.
    """
    if not sets or not answer:
        raise ValueError(f"{len(sets)} sets and {len(answer)} answer tokens, expected one at least")
    length = ask.prompt.ids(0).shape[1] + len(answer) + max(map(len, sets))
    rows = max(1, TOKENS_AT_ONCE // length)
    parts = [
        _said(host, ask, sets[start : start + rows], answer) for start in range(0, len(sets), rows)
    ]
    return Said(
        torch.cat([part.probability for part in parts]), torch.cat([part.same for part in parts])
    )


def _said(host: QwenHost, ask: Ask, sets: Sequence[TokenSet], answer: Sequence[int]) -> Said:
    batch = padded(host, [ask.prompt] * len(sets), sets, [list(answer)] * len(sets))
    hidden = host.model.model(**batch.inputs(), use_cache=False).last_hidden_state
    # The logits of a token stand at the one before it; all answers are equally long.
    back = torch.arange(len(answer) + 1, 1, -1, device=hidden.device)
    at = batch.lengths[:, None] - back  # (R, answer)
    picked = hidden.gather(1, at[..., None].expand(-1, -1, hidden.shape[-1]))
    logits = host.model.lm_head(picked).float()
    finite.check_logits(logits)
    wanted = torch.tensor(answer, device=logits.device).expand(len(sets), -1)
    chances = logits.log_softmax(-1).gather(2, wanted[..., None])[..., 0]
    same = (logits.argmax(-1) == wanted).all(1)
    return Said(chances.sum(1).exp().cpu(), same.cpu())


def without_each(tokens: TokenSet, stay: TokenSet | None = None) -> list[TokenSet]:
    """K tokens -> K sets, each without one of them; those of `stay` stand before every set."""
    index = torch.arange(len(tokens), device=tokens.features.device)
    return [_behind(stay, tokens.at(index[index != out])) for out in range(len(tokens))]


def prefixes(tokens: TokenSet, order: Tensor, stay: TokenSet | None = None) -> list[TokenSet]:
    """Beginnings of an order of K tokens: none of them, the first, the first two, and so on to all.

    Args:
        tokens: K of them.
        order: `(K,)` int64, indices of `tokens`, each once.
        stay: stand before every set.
    """
    counts = range(len(order) + 1)
    return [_behind(stay, tokens.at(order[:count].sort().values)) for count in counts]


def _behind(stay: TokenSet | None, tokens: TokenSet) -> TokenSet:
    return tokens if stay is None else stay + tokens


def what_matters(
    host: QwenHost,
    ask: Ask,
    tokens: TokenSet,
    stay: TokenSet | None = None,
    max_new_tokens: int = NEW_TOKENS,
) -> Mattering:
    """Leave out each of an answer's kept tokens in turn.

    Args:
        host: that answered.
        ask: prompt and picture.
        tokens: the K kept tokens that it answered from.
        stay: those of a glance that it held besides, which are not asked about; None for none.
        max_new_tokens: longest answer.

    Raises:
        FloatingPointError: where the model's numbers overflowed.
    """
    whole = _behind(stay, tokens)
    (answer,) = answer_batch(host, [ask.prompt], [whole], max_new_tokens)
    left_out = said_with(host, ask, [whole, *without_each(tokens, stay)], answer.ids)
    probability, without = float(left_out.probability[0]), left_out.probability[1:]
    order = without.argsort(stable=True)
    beginnings = prefixes(tokens, order.to(tokens.features.device), stay)
    given = said_with(host, ask, beginnings, answer.ids).same
    # With all of them it is given; but for a draw, which another padding may decide otherwise.
    enough = int(given.nonzero()[0, 0]) if given.any() else len(tokens)
    return Mattering(answer.ids, probability, without, order, enough)


@dataclass(frozen=True)
class Examined:
    """A question's decision and what matters of it.

    Attributes:
        realization: the decision.
        mattering: of its kept cells, in their order.
        smallest: `(k,)` int64, indices of kept cells that give the answer alone, encoded anew from pixels:
            the fewest of the order in which leaving out costs most. None where only all of them do.
    """

    realization: Realization
    mattering: Mattering
    smallest: Tensor | None


def examine(
    host: QwenHost, image: Image.Image, question: str, config: Config = Config()
) -> Examined:
    """Decide and answer a question, and ask which of the kept places the answer hangs on.

    Args:
        host: that answers.
        image: RGB.
        question: the question alone.
        config: how to spend tokens, on native cells, before or after the encoder.

    Raises:
        ValueError: for an empty question; for share "auto", whose rounds have no one budget; for coarse
            cells, and where nothing was decided (a fallback).
    """
    check_question(question)
    if config.is_auto:
        raise ValueError('share is "auto", expected a number: what matters is asked of one budget')
    with host.lock, torch.inference_mode():
        return host.once_more_if_narrow(lambda: _examine(host, image, question, config))


def _examine(host: QwenHost, image: Image.Image, question: str, config: Config) -> Examined:
    ask = host.prepare(image, question)
    realization = Realizer(host, host.policy(config)).realize(ask, question, config)
    if realization.fallback or not realization.allocation.is_native:
        why = realization.fallback or f"allocator {config.allocator!r} gave coarse cells"
        raise ValueError(f"what matters is asked of native cells that were decided: {why}")
    glance, tokens = realization.kept_glance, host.encode(ask.picture, realization)
    stay = glance.state.tokens if glance else None
    found = what_matters(host, ask, tokens, stay)
    smallest = _smallest(host, ask, realization, found)
    return Examined(without_state(realization), found, smallest)


def _smallest(
    host: QwenHost, ask: Ask, realization: Realization, found: Mattering
) -> Tensor | None:
    """See `Examined`. Tokens that were encoded among others may say more than the same ones alone."""
    index = realization.allocation.native_index()
    if (
        not found.enough
    ):  # no cell at all was asked for already, and has no pixels to confirm it from
        return found.first(0)
    for count in range(found.enough, len(index)):
        chosen = found.first(count)
        if is_said(host, ask, realization, index[chosen], found.ids):
            return chosen
    return None


def is_said(
    host: QwenHost,
    ask: Ask,
    realization: Realization,
    index: Tensor,
    answer: Sequence[int],
) -> bool:
    """Whether the cells at raster `index` alone, encoded anew from pixels, give the answer.

    Args:
        host: that answered.
        ask: prompt and picture.
        realization: the decision they are from; its glance with its state where they are encoded beside it.
        index: `(k,)` int64 in rising order, one at least.
        answer: token ids.
    """
    fewer = replace(realization, allocation=cells_at(realization, index))
    tokens = host.encode(ask.picture, fewer)
    glance = realization.kept_glance
    seen = _behind(glance.state.tokens if glance else None, tokens)
    return bool(said_with(host, ask, [seen], answer).same[0])
