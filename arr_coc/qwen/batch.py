"""Batch: greedy answers to many questions at once, from visual tokens that are already chosen.

Rows are padded on the right: a real token never sees a pad (causal in the prefill, masked while
decoding) and no row of attention is empty. A periphery that a method left in a KV cache is put in
front of its fovea in the one prefill, which gives the same. A test holds
that the ids are those of `ARRCOCQwen.generate`. A row about a clip or several pictures has a set of visual
tokens for each block of its prompt; the rows of one batch are of one modality.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import DynamicCache

from arr_coc.qwen import finite
from arr_coc.qwen.encoding import TokenSet, joined
from arr_coc.qwen.host import QwenHost
from arr_coc.qwen.layers import CACHE
from arr_coc.qwen.listening import whole_text
from arr_coc.qwen.prompts import IMAGE, Prompt

Held = TokenSet | Sequence[TokenSet]  # of a prompt's one block, or of each
UNUSED_ID = 0  # where the tokenizer names no pad: any id that is not the image's


@dataclass(frozen=True)
class Greedy:
    """One answer: its text, its token ids (end token included), the first token's entropy in nats."""

    text: str
    ids: tuple[int, ...]
    entropy: float


def blocks_of(held: Held) -> list[TokenSet]:
    """The visual tokens of each block of a prompt."""
    return [held] if isinstance(held, TokenSet) else list(held)


@dataclass(frozen=True)
class Padded:
    """Rows of a batch, padded on the right.

    Attributes:
        ids, mask: `(B, L)` int64; the mask is 1 for tokens and 0 for pads.
        positions: `(4, B, L)` as `Prompt.position_ids`.
        lengths: `(B,)` int64, tokens of each row.
        tokens: the visual tokens of all rows, in their order.
        modality: of all of them.
    """

    ids: Tensor
    mask: Tensor
    positions: Tensor
    lengths: Tensor
    tokens: TokenSet
    modality: str = IMAGE

    def inputs(self) -> dict[str, Any]:
        """The batch as the stock model takes it."""
        return {
            "input_ids": self.ids,
            "attention_mask": self.mask,
            "position_ids": self.positions,
            "mm_encoder_outputs": self.tokens.encoder_outputs(self.modality),
        }


def padded(
    host: QwenHost,
    prompts: Sequence[Prompt],
    tokens: Sequence[Held],
    answers: Sequence[list[int]] | None = None,
) -> Padded:
    """Prompts with their visual tokens, and with answers where they are given, one per row.

    Args:
        host: whose tokenizer names the pad.
        prompts: B prompts.
        tokens: the visual tokens of each, any sizes.
        answers: token ids that follow each prompt; None for none.

    Raises:
        ValueError: for prompts about pictures and clips in one batch.
    """
    modalities = {prompt.modality for prompt in prompts}
    if len(modalities) > 1:
        raise ValueError(f"a batch is about {' and '.join(sorted(modalities))}, expected one")
    blocks = [blocks_of(visual) for visual in tokens]
    ids, positions = [], []
    for prompt, visual, answer in zip(prompts, blocks, answers or [[]] * len(prompts), strict=True):
        own = prompt.ids([len(block) for block in visual])[0]
        at = prompt.position_ids([block.places for block in visual])[:, 0]
        following = torch.arange(1, len(answer) + 1, device=at.device, dtype=at.dtype)
        ids.append(torch.cat([own, own.new_tensor(answer)]))
        positions.append(torch.cat([at, at[:, -1:] + following], 1))
    lengths = torch.tensor([len(row) for row in ids], device=ids[0].device)
    pad = host.tokenizer.pad_token_id
    # One fractional row makes all of them float32, in which whole positions stay what they are.
    dtype = torch.float32 if any(at.is_floating_point() for at in positions) else torch.long
    rows = [at.to(dtype).t() for at in positions]  # (L, 4) each
    within = torch.arange(int(lengths.max()), device=lengths.device)
    return Padded(
        pad_sequence(ids, batch_first=True, padding_value=UNUSED_ID if pad is None else pad),
        (within < lengths[:, None]).long(),
        pad_sequence(rows, batch_first=True).permute(2, 0, 1),  # (B, L, 4) -> (4, B, L)
        lengths,
        joined([block for visual in blocks for block in visual]),
        modalities.pop(),
    )


def answer_batch(
    host: QwenHost,
    prompts: Sequence[Prompt],
    tokens: Sequence[Held],
    max_new_tokens: int,
) -> list[Greedy]:
    """Answer one question per row, greedily.

    Args:
        host: whose model answers.
        prompts: B prompts.
        tokens: the visual tokens of each, any sizes.
        max_new_tokens: rows stop there, or at an end token of the model's generation config.

    Raises:
        ValueError: for no rows, unequal numbers of prompts and token sets, or as `padded`.
        FloatingPointError: where the model's numbers overflowed.
    """
    if not prompts or len(prompts) != len(tokens):
        raise ValueError(f"{len(prompts)} prompts for {len(tokens)} token sets, expected one each")
    batch, cache = padded(host, prompts, tokens), host.new_cache()
    last, mask = batch.lengths - 1, batch.mask
    rows = torch.arange(len(last), device=last.device)
    hidden = host.model.model(**batch.inputs(), **{CACHE: cache}, use_cache=True).last_hidden_state
    logits = host.model.lm_head(hidden[rows, last]).float()  # (B, vocabulary)
    finite.check_logits(logits)  # also of rows that end here
    entropy = torch.distributions.Categorical(logits=logits).entropy()
    following = batch.positions[:, rows, last][:, :, None]  # (4, B, 1)
    ends, replies = _end_ids(host), []
    open_rows = torch.ones_like(rows, dtype=torch.bool)
    for _ in range(max_new_tokens):
        token = logits.argmax(-1)
        replies.append(torch.where(open_rows, token, -1))
        open_rows = open_rows & ~torch.isin(token, ends)
        if not open_rows.any() or len(replies) == max_new_tokens:
            break
        following = following + 1
        # A new token stands after the pads in the cache, but right after its row's last one by its
        # position; the mask keeps the pads between them hidden.
        mask = torch.cat([mask, mask.new_ones(len(rows), 1)], 1)
        hidden = host.model.model(
            input_ids=token[:, None],
            attention_mask=mask,
            position_ids=following,
            **{CACHE: cache},
            use_cache=True,
        ).last_hidden_state
        logits = host.model.lm_head(hidden[:, -1]).float()
        finite.check_logits(logits[open_rows])
    return _texts(host, torch.stack(replies, 1), entropy)


def first_token(host: QwenHost, prompt: Prompt, reduced: Any) -> int:
    """The first answer token of one question, going on from a periphery's own cache.

    This is the prefill as `ARRCOCQwen.stream` pays for it; the cache is used up.
    """
    glance = reduced.periphery
    places = [block.places for block in blocks_of(reduced.held)]
    cache = glance.cache if glance else host.new_cache()
    return int(read_on(host, prompt, places, reduced.tokens, cache).argmax())


def read_on(
    host: QwenHost,
    prompt: Prompt,
    places: Sequence[Tensor],
    tokens: TokenSet | None,
    cache: DynamicCache,
) -> Tensor:
    """Logits `(vocabulary,)` of the first word, once everything that a cache does not hold is read.

    Args:
        host: whose model reads.
        prompt: whose last part, the question, comes last.
        places: `(K, 2)` of every visual token of each block, those in the cache first.
        tokens: the visual tokens that are not in it; None where all are.
        cache: of the prompt's beginning; of the whole prompt afterwards.

    Raises:
        FloatingPointError: where the model's numbers overflowed.
    """
    done = cache.get_seq_length()
    output = host.model(
        input_ids=prompt.ids([len(own) for own in places])[:, done:],
        position_ids=prompt.position_ids(places)[:, :, done:],
        **{CACHE: cache},
        mm_encoder_outputs=tokens.encoder_outputs(prompt.modality) if tokens else None,
        use_cache=True,
        logits_to_keep=1,
    )
    logits = output.logits[0, -1]
    finite.check_logits(logits)
    return logits


def _end_ids(host: QwenHost) -> Tensor:
    ends = host.model.generation_config.eos_token_id
    ends = [] if ends is None else [ends] if isinstance(ends, int) else list(ends)
    return torch.tensor(ends, dtype=torch.long, device=host.device)


def _texts(host: QwenHost, replies: Tensor, entropy: Tensor) -> list[Greedy]:
    answers = []
    for row, surprise in zip(replies.tolist(), entropy.tolist()):
        ids = tuple(token for token in row if token >= 0)
        answers.append(Greedy(whole_text(host.tokenizer, ids), ids, surprise))
    return answers
