"""Greedy answers to many questions at once, from visual tokens that are already chosen.

Rows are padded on the right: a real token never sees a pad (causal in the prefill, masked while
decoding) and no row of attention is empty. A periphery that a method left in a KV cache is put in
front of its fovea in the one prefill, which gives the same (the glance law in DESIGN). A test holds
that the ids are those of `ARRCOCQwen.generate`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from arr_coc.qwen.encoding import (
    TokenSet,
)
from arr_coc.qwen.inputs import Prompt
from arr_coc.qwen.model import ARRCOCQwen

UNUSED_ID = 0  # where the tokenizer names no pad: any id that is not the image's


@dataclass(frozen=True)
class Greedy:
    """One answer: its text, its token ids (end token included), the first token's entropy in nats."""

    text: str
    ids: tuple[int, ...]
    entropy: float


def held_tokens(reduced: Any) -> TokenSet:
    """Every visual token that the language model holds for a `peers.Reduced`, periphery first."""
    if reduced.periphery is None:
        return reduced.tokens
    return reduced.periphery.tokens + reduced.tokens


def answer_batch(
    host: Any, prompts: Sequence[Prompt], tokens: Sequence[TokenSet], max_new_tokens: int
) -> list[Greedy]:
    """Answer one question per row, greedily.

    Args:
        host: an `ARRCOCQwen`.
        prompts: B prompts.
        tokens: B sets of visual tokens, any sizes.
        max_new_tokens: rows stop there, or at an end token of the model's generation config.

    Raises:
        ValueError: for no rows, or unequal numbers of prompts and token sets.
    """
    if not prompts or len(prompts) != len(tokens):
        raise ValueError(f"{len(prompts)} prompts for {len(tokens)} token sets, expected one each")
    ids, positions, mask = _padded(host, prompts, tokens)  # (B, L), (4, B, L), (B, L)
    rows, last = torch.arange(len(ids), device=ids.device), mask.sum(1) - 1
    cache = host.new_cache()
    hidden = host.model.model(
        input_ids=ids,
        attention_mask=mask,
        position_ids=positions,
        past_key_values=cache,
        mm_encoder_outputs=reduce(add, tokens).encoder_outputs(),
        use_cache=True,
    ).last_hidden_state
    logits = host.model.lm_head(hidden[rows, last]).float()  # (B, vocabulary)
    entropy = torch.distributions.Categorical(logits=logits).entropy()
    following = positions[:, rows, last][:, :, None]  # (4, B, 1)
    ends, replies = _end_ids(host), []
    open_rows = torch.ones_like(rows, dtype=torch.bool)
    for _ in range(max_new_tokens):
        token = logits.argmax(-1)
        replies.append(torch.where(open_rows, token, -1))
        open_rows = open_rows & ~torch.isin(token, ends)
        if not open_rows.any() or len(replies) == max_new_tokens:
            break
        following = following + 1
        mask = torch.cat([mask, mask.new_ones(len(ids), 1)], 1)
        hidden = host.model.model(
            input_ids=token[:, None],
            attention_mask=mask,
            position_ids=following,
            past_key_values=cache,
            use_cache=True,
        ).last_hidden_state
        logits = host.model.lm_head(hidden[:, -1]).float()
    return _texts(host, torch.stack(replies, 1), entropy)


def first_token(host: Any, prompt: Prompt, reduced: Any) -> int:
    """The first answer token of one question, going on from a periphery's own cache.

    This is the prefill as `ARRCOCQwen.stream` pays for it; the cache is used up.
    """
    glance, places = reduced.periphery, held_tokens(reduced).places
    cache = glance.cache if glance else host.new_cache()
    done = cache.get_seq_length()
    output = host.model(
        input_ids=prompt.ids(len(places))[:, done:],
        position_ids=prompt.position_ids(places)[:, :, done:],
        past_key_values=cache,
        mm_encoder_outputs=reduced.tokens.encoder_outputs(),
        use_cache=True,
        logits_to_keep=1,
    )
    return int(output.logits[0, -1].argmax())


def _padded(host, prompts, tokens) -> tuple[Tensor, Tensor, Tensor]:
    ids = [prompt.ids(len(t))[0] for prompt, t in zip(prompts, tokens, strict=True)]
    places = [prompt.position_ids(t.places)[:, 0] for prompt, t in zip(prompts, tokens)]
    length = max(len(row) for row in ids)
    pad = host.tokenizer.pad_token_id
    batch = ids[0].new_full((len(ids), length), UNUSED_ID if pad is None else pad)
    # One fractional row makes all of them float32, in which whole positions stay what they are.
    dtype = torch.float32 if any(p.is_floating_point() for p in places) else torch.long
    positions = torch.zeros(4, len(ids), length, dtype=dtype, device=batch.device)
    mask = torch.zeros_like(batch)
    for row, (own, place) in enumerate(zip(ids, places)):
        batch[row, : len(own)], mask[row, : len(own)] = own, 1
        positions[:, row, : len(own)] = place.to(dtype)
    return batch, positions, mask


def _end_ids(host) -> Tensor:
    ends = host.model.generation_config.eos_token_id
    ends = [] if ends is None else [ends] if isinstance(ends, int) else list(ends)
    return torch.tensor(ends, dtype=torch.long, device=host.device)


def _texts(host, replies: Tensor, entropy: Tensor) -> list[Greedy]:
    answers = []
    for row, surprise in zip(replies.tolist(), entropy.tolist()):
        ids = tuple(token for token in row if token >= 0)
        text = host.tokenizer.decode(ids, skip_special_tokens=True).strip()
        answers.append(Greedy(text, ids, surprise))
    return answers


@dataclass(frozen=True)
class Padded:
    """Rows of a batch, padded on the right: `(B, L)` ids and mask, `(4, B, L)` positions."""

    ids: Tensor
    mask: Tensor
    positions: Tensor
    lengths: Tensor


def padded(
    host: ARRCOCQwen,
    prompts: Sequence[Prompt],
    tokens: Sequence[TokenSet],
    answers: Sequence[list[int]],
) -> Padded:
    """Prompts with their visual tokens and answers, one per row."""
    ids, positions = [], []
    for prompt, visual, answer in zip(prompts, tokens, answers, strict=True):
        row = prompt.ids(len(visual))[0]
        ids.append(torch.cat([row, row.new_tensor(answer)]))
        at = prompt.position_ids(visual.places)[:, 0].float()
        after = torch.arange(1, len(answer) + 1, device=at.device)
        positions.append(torch.cat([at, at[:, -1:] + after], 1))
    lengths = torch.tensor([len(row) for row in ids], device=ids[0].device)
    longest = int(lengths.max())
    pad = host.tokenizer.pad_token_id or 0
    mask = torch.arange(longest, device=lengths.device)[None] < lengths[:, None]
    return Padded(
        torch.stack([F.pad(row, (0, longest - len(row)), value=pad) for row in ids]),
        mask.long(),
        torch.stack([F.pad(at, (0, longest - at.shape[1])) for at in positions], 1),
        lengths,
    )
