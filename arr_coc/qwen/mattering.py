"""Mattering: which of the kept places an answer hangs on, by leaving each of them out.

Tokens are dropped from the language model alone: the others keep their native positions and what the
encoder gave of them, so that a place is not seen, yet may have coloured its neighbours. What such a set
promises is confirmed by a look of its own, from pixels (`confirmed`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from arr_coc.qwen.batch import answer_batch, padded
from arr_coc.qwen.encoding import TokenSet
from arr_coc.qwen.host import QwenHost
from arr_coc.qwen.inputs import Ask
from arr_coc.qwen.rounds import cells_at
from arr_coc.realizing import Realization

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
        smallest: `(k,)` int64, the fewest tokens found that still give the answer, in rising order. They
            are a beginning of the order in which leaving out costs most; there may be fewer.
    """

    ids: tuple[int, ...]
    probability: float
    without: Tensor
    smallest: Tensor

    @property
    def loss(self) -> Tensor:
        """`(K,)` probability that leaving out each token costs; below 0 where it was in the way."""
        return self.probability - self.without


def said_with(host: QwenHost, ask: Ask, sets: Sequence[TokenSet], answer: Sequence[int]) -> Said:
    """How likely an answer is from each of several sets of visual tokens.

    Args:
        host: the model.
        ask: prompt and picture, the same for all sets.
        sets: R sets of native tokens; empty ones too.
        answer: its token ids, one at least.

    Raises:
        ValueError: for no sets or an empty answer.
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
    wanted = torch.tensor(answer, device=logits.device).expand(len(sets), -1)
    chances = logits.log_softmax(-1).gather(2, wanted[..., None])[..., 0]
    same = (logits.argmax(-1) == wanted).all(1)
    return Said(chances.sum(1).exp().cpu(), same.cpu())


def without_each(tokens: TokenSet) -> list[TokenSet]:
    """K tokens -> K sets, each without one of them."""
    index = torch.arange(len(tokens), device=tokens.features.device)
    return [tokens.at(index[index != left_out]) for left_out in range(len(tokens))]


def prefixes(tokens: TokenSet, order: Tensor) -> list[TokenSet]:
    """Beginnings of an order of K tokens: none of them, the first, the first two, and so on to all.

    Args:
        tokens: K of them.
        order: `(K,)` int64, indices of `tokens`, each once.
    """
    return [tokens.at(order[:count].sort().values) for count in range(len(order) + 1)]


def what_matters(host: QwenHost, ask: Ask, tokens: TokenSet, max_new_tokens: int = 16) -> Mattering:
    """Leave out each of an answer's visual tokens in turn.

    Args:
        host: that answered.
        ask: prompt and picture.
        tokens: the K visual tokens that it answered from.
        max_new_tokens: longest answer.
    """
    (answer,) = answer_batch(host, [ask.prompt], [tokens], max_new_tokens)
    left_out = said_with(host, ask, [tokens, *without_each(tokens)], answer.ids)
    whole, without = float(left_out.probability[0]), left_out.probability[1:]
    order = without.argsort(stable=True).to(tokens.features.device)
    enough = said_with(host, ask, prefixes(tokens, order), answer.ids).same
    count = int(enough.nonzero()[0, 0]) if enough.any() else len(tokens)
    return Mattering(answer.ids, whole, without, order[:count].sort().values.cpu())


def confirmed(
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
        index: `(k,)` int64 in rising order; none at all is asked without visual tokens.
        answer: token ids.
    """
    if len(index):
        fewer = replace(realization, allocation=cells_at(realization, index))
        tokens = host.encode(ask.picture, fewer)
    else:
        tokens = host.encode(ask.picture, realization).at(slice(0))
    return bool(said_with(host, ask, [tokens], answer).same[0])
