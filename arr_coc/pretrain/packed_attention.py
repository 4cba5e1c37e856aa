"""Packed attention: each packed question attends to its picture's prefix and to itself alone.

The same as one sequence under a mask, but what the mask would forbid is not computed: of a picture with
twenty questions that is four fifths of the text side's attention. The layout is carried as an argument of
the model's call (`layout`), which reaches the attention function; a call without it is stock SDPA.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, sdpa_mask
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

NAME = "packed"


class Layout(NamedTuple):
    """Where the questions stand in B sequences of length L that begin with the same P tokens.

    `prefix` is P. `tokens` (B, Q, T): for question q its tokens' places after the prefix, up to T, the last
    place where it has fewer or there is no such question. `places` (B, L - P): where in the
    Q * T of these each token after the prefix is found, 0 for padding, whose result nobody reads.
    """

    prefix: int
    tokens: Tensor
    places: Tensor

    def to(self, device: torch.device) -> "Layout":
        """The same on `device`."""
        return Layout(self.prefix, self.tokens.to(device), self.places.to(device))


def layout_of(prefix: int, lengths: Sequence[Sequence[int]], length: int) -> Layout:
    """The layout of sequences of `length`: for each its questions' `lengths`, one behind the other."""
    most = max(len(row) for row in lengths)
    longest = max(max(row, default=0) for row in lengths)
    tokens = torch.full((len(lengths), most, longest), length - prefix - 1)
    places = torch.zeros(len(lengths), length - prefix, dtype=torch.long)
    for row, its in enumerate(lengths):
        start = 0
        for number, count in enumerate(its):
            tokens[row, number, :count] = torch.arange(start, start + count)
            first = number * longest
            places[row, start : start + count] = torch.arange(first, first + count)
            start += count
    return Layout(prefix, tokens, places)


def install(model: nn.Module) -> None:
    """Let the text side of a Qwen3-VL take a `layout`."""
    ALL_ATTENTION_FUNCTIONS.register(NAME, _attend)
    ALL_MASK_ATTENTION_FUNCTIONS.register(NAME, sdpa_mask)
    model.set_attn_implementation({"text_config": NAME})


def _attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    layout: Layout | None = None,
    **options: Any,
) -> tuple[Tensor, Tensor | None]:
    """Queries (B, H, L, D), keys and values (B, G, L, D) -> (B, L, H, D), as stock functions do."""
    if layout is None:
        stock = ALL_ATTENTION_FUNCTIONS["sdpa"]
        return stock(module, query, key, value, attention_mask, **options)
    scale, prefix = options["scaling"], layout.prefix
    groups = query.shape[1] // key.shape[1]
    key, value = (states.repeat_interleave(groups, 1) for states in (key, value))
    shared = [states[:, :, :prefix] for states in (query, key, value)]
    if query.device.type == "cpu":  # whose backward pass of a causal block this small is faster so
        shared = [states.float() for states in shared]
    head = F.scaled_dot_product_attention(*shared, is_causal=True, scale=scale).to(query.dtype)
    own = [states[:, :, prefix:] for states in (query * scale, key, value)]
    tail = _attend_questions(own, key[:, :, :prefix], value[:, :, :prefix], layout)
    return torch.cat([head, tail], 2).transpose(1, 2), None


def _attend_questions(own: Sequence[Tensor], key: Tensor, value: Tensor, layout: Layout) -> Tensor:
    """Each question to the prefix's `key` and `value`, and to itself up to each token: `(B, H, L - P, D)`.

    `own` are the questions' queries, scaled, keys and values. One softmax over both, by plain products: the
    fused kernels are made for longer sequences. A question is as long as the longest only where it is
    multiplied with itself; with the prefix, most of the work, each token is multiplied once.
    """
    query, own_key, own_value = (_by_question(states, layout.tokens) for states in own)
    to_own = _in_sequence(query @ own_key.transpose(-1, -2), layout.places)  # (B, H, L - P, T)
    to_own = to_own.masked_fill(_later(layout)[:, None], -torch.inf)
    to_prefix = own[0] @ key.transpose(-1, -2)  # (B, H, L - P, P)
    weights = torch.cat([to_prefix, to_own], -1).softmax(-1).to(value.dtype)
    on_prefix, on_own = weights.split([key.shape[2], to_own.shape[-1]], -1)
    seen = _by_question(on_own, layout.tokens) @ own_value  # (B, Q, H, T, D)
    return on_prefix @ value + _in_sequence(seen, layout.places)


def _later(layout: Layout) -> Tensor:
    """`(B, L - P, T)`: which of its question's tokens come after each token."""
    most = layout.tokens.shape[-1]
    within = layout.places % most  # the token's number in its question
    return torch.arange(most, device=within.device) > within[..., None]


def _by_question(states: Tensor, tokens: Tensor) -> Tensor:
    """`(B, H, L, X)` -> each question's own, `(B, Q, H, T, X)`; `tokens` (B, Q, T) are places in L."""
    heads, length, width = states.shape[1:]
    first = torch.arange(len(tokens), device=states.device)[:, None, None] * length
    rows = states.transpose(1, 2).reshape(-1, heads * width)
    # `index_select`, whose gradient is added up by rows, not by elements as that of `rows[...]`.
    picked = rows.index_select(0, (tokens + first).flatten())
    return picked.view(*tokens.shape, heads, width).transpose(2, 3)


def _in_sequence(states: Tensor, places: Tensor) -> Tensor:
    """`(B, Q, H, T, X)` -> in the order of the sequences, `(B, H, L - P, X)`."""
    batch, questions, heads, most, width = states.shape
    first = torch.arange(batch, device=states.device)[:, None] * questions * most
    rows = states.transpose(2, 3).reshape(-1, heads * width)
    found = rows.index_select(0, (places + first).flatten())
    return found.view(*places.shape, heads, width).transpose(1, 2)
