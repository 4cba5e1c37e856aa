"""Answering in training: the visual tokens the frozen base answers from, and the logits it gives.

A question is asked in one of two ways. *Softly*, every likely token is there by its share, so that
the answer has a gradient to where tokens go. With a *hard* selection exactly the budget's tokens are
kept, encoded from a part of the picture and corrected by the adapter, as when a person asks.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from arr_coc.adapting import glanced, strength
from arr_coc.components import Components
from arr_coc.qwen.encoding import TokenSet
from arr_coc.qwen.model import ARRCOCQwen
from arr_coc.train import frozen, relaxation
from arr_coc.train.chunks import ROWS, by_length
from arr_coc.train.decision import Decision
from arr_coc.train.frozen import Group

SPARE = 16  # likely tokens beyond the budget, or half of it, that a soft question is still shown


@dataclass(frozen=True)
class HardSelection:
    """The kept tokens of R questions: which they are, and three encodings of them."""

    partial: list[TokenSet]  # encoded from the kept places and what surrounds them
    full: list[TokenSet]  # the same places, of the full encoder's tokens
    adapted: list[TokenSet]  # `partial` as the adapter corrects it
    shares: list[Tensor]  # (K,) each, 1 with the gradient of the soft shares


def soft_selection(
    group: Group, decision: Decision, rows: Sequence[int]
) -> tuple[list[TokenSet], list[Tensor]]:
    """The full encoder's tokens where a share is worth showing, and those shares, `(K,)` each."""
    tokens, shares = [], []
    for row in rows:
        budget = int(decision.budget[row])
        count = min(decision.shares.shape[1], budget + max(SPARE, budget // 2))
        index = decision.shares[row].detach().topk(count).indices.sort().values
        tokens.append(group.full_of(row).at(index))
        shares.append(decision.shares[row, index])
    return tokens, shares


def hard_selection(
    host: ARRCOCQwen,
    parts: Components,
    group: Group,
    decision: Decision,
    rows: Sequence[int],
) -> HardSelection:
    """What each question of `rows` keeps, its budget of tokens, as inference would keep them."""
    rows = list(rows)
    scores, budget, even = (t[rows] for t in (decision.scores, decision.budget, decision.even))
    kept = relaxation.hard_allocation(scores, budget, even)
    owners = [group.picture_of[row] for row in rows]
    contexts = [group.contexts[p] for p in owners] if parts.context == "glance" else None
    with torch.set_grad_enabled(torch.is_grad_enabled() and parts.lora is not None):
        pictures = [group.pictures[p] for p in owners]
        partial = frozen.encode_kept(host, pictures, kept, contexts, parts.lora)
    # Straight-through: forward, a kept token is wholly there; backward, it has the gradient of its
    # soft share. Here the tensions learn what tokens from everywhere are worth to an encoder that
    # sees little else.
    soft = [decision.shares[row, index] for row, index in zip(rows, kept)]
    return HardSelection(
        partial=partial,
        full=[group.full_of(row).at(index) for row, index in zip(rows, kept)],
        adapted=adapt(parts, group, decision, rows, partial) if parts.adapter else partial,
        shares=[1 + share - share.detach() for share in soft],
    )


def adapt(
    parts: Components,
    group: Group,
    decision: Decision,
    rows: Sequence[int],
    partial: Sequence[TokenSet],
) -> list[TokenSet]:
    """Each question's tokens as the adapter corrects them, all of them in one call."""
    *planes, places = _padded([[*_planes(tokens), tokens.places] for tokens in partial])
    counts = torch.tensor([len(tokens) for tokens in partial], device=places.device)
    padding = torch.arange(places.shape[1], device=places.device)[None] >= counts[:, None]  # (R, K)
    levels = torch.zeros(places.shape[:2], dtype=torch.long, device=places.device)
    native_tokens = decision.shares.shape[1]
    strengths = [strength(len(tokens) / native_tokens, parts.context) for tokens in partial]
    seen = []
    for row, tokens in zip(rows, partial):
        if decision.without_glance[row]:
            seen.append([torch.zeros_like(p, dtype=torch.float32) for p in _planes(tokens)])
            continue
        glance = group.glance_tokens[group.picture_of[row]]
        seen.append(glanced(_planes(glance), glance.places, tokens.places))
    strengths = counts.new_tensor(strengths, dtype=torch.float)
    adapted = parts.adapter(planes, places, levels, padding, _padded(seen), strengths)
    # Without the padding again: one token set for each row.
    unpadded = [[plane[i, : len(tokens)] for plane in adapted] for i, tokens in enumerate(partial)]
    return [
        TokenSet(row[0], tuple(row[1:]), tokens.places) for row, tokens in zip(unpadded, partial)
    ]


def answer_logits(
    host: ARRCOCQwen,
    group: Group,
    rows: Sequence[int],
    tokens: Sequence[TokenSet],
    shares: Sequence[Tensor | None] | None = None,
) -> list[Tensor]:
    """Teacher-forced logits of the true answer of each question of `rows`.

    Args:
        host: the frozen base.
        group: holds prompts and answers.
        rows: R questions of the group.
        tokens: the visual tokens of each of them.
        shares: by which each token is there, as `frozen.answer_logits`; None for 1 everywhere.

    Returns:
        `(answer's length, vocabulary)` float32 for each of `rows`, in their order.
    """
    shares = shares or [None] * len(rows)
    by_row: dict[int, Tensor] = {}
    for batch in by_length(tokens, ROWS):
        answers = [group.answers[rows[i]] for i in batch]
        logits = frozen.answer_logits(
            host,
            [group.prompts[rows[i]] for i in batch],
            [tokens[i] for i in batch],
            answers,
            [shares[i] for i in batch],
        )
        by_row.update(zip(batch, logits.split([len(answer) for answer in answers])))
    return [by_row[i] for i in range(len(rows))]


def _planes(tokens: TokenSet) -> list[Tensor]:
    return [tokens.features, *tokens.deepstack]


def _padded(rows: Sequence[Sequence[Tensor]]) -> list[Tensor]:
    """R rows of planes `(K, ...)`, K differing -> planes `(R, longest K, ...)`, 0 beyond each row."""
    return [nn.utils.rnn.pad_sequence(list(planes), batch_first=True) for planes in zip(*rows)]
