"""Attention of stock Qwen3-VL that no public output carries: first text layers, a vision block.

Recomputed from what public modules receive, under any attention implementation. A hook is registered
only inside `listening` and removed at its end, so a stock call afterwards is what it was.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import Cache, DynamicCache
from transformers.models.qwen3_vl.modeling_qwen3_vl import (
    apply_rotary_pos_emb,
    apply_rotary_pos_emb_vision,
    repeat_kv,
)

from arr_coc.qwen import finite
from arr_coc.qwen.encoding import TokenSet
from arr_coc.qwen.inputs import Prompt
from arr_coc.qwen.layers import embedded, run_layers

# Query rows at a time: 16 heads of 512 rows on 4096 patches are 128 MiB of float32.
ROWS = 512


@contextmanager
def listening(module: torch.nn.Module) -> Iterator[dict[str, Any]]:
    """What `module` is called with inside the block: a dict of its arguments, the last call's."""
    heard: dict[str, Any] = {}

    def hear(_: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        heard.clear()
        heard.update(kwargs)
        if args:
            heard["hidden_states"] = args[0]

    handle = module.register_forward_pre_hook(hear, with_kwargs=True)
    try:
        yield heard
    finally:
        handle.remove()


def vision_attention(
    attention: torch.nn.Module, heard: dict[str, Any], merge: int
) -> tuple[Tensor, Tensor]:
    """Attention each visual token receives in a vision block, and its keys there.

    Args:
        attention: the block's `Qwen3VLVisionAttention`.
        heard: what `listening` heard of one image: `hidden_states`, `position_embeddings`.
        merge: patches on one side of a visual token.

    Returns:
        `(N,)` float32, mean over heads, over all query patches and over the token's own patches: the
        N values add up to `1 / merge**2`. `(N, width)` float32 keys before the rotary embedding (what
        is there, not where), all heads, mean over the token's patches.

    Raises:
        FloatingPointError: where the tower's numbers overflowed.
    """
    states = heard["hidden_states"]
    count = len(states)
    qkv = attention.qkv(states).view(count, 3, attention.num_heads, -1)  # (P, 3, heads, head_dim)
    query, key, _ = qkv.permute(1, 2, 0, 3).unbind(0)  # (heads, P, head_dim)
    cos, sin = heard["position_embeddings"]
    turned = apply_rotary_pos_emb_vision(query.transpose(0, 1), key.transpose(0, 1), cos, sin)
    query, rotated = (t.transpose(0, 1) for t in turned)
    received = torch.zeros(count, device=states.device)
    # Scaled before it is multiplied: the unscaled products of a large head leave float16's range.
    for rows in (query * attention.scaling).split(ROWS, 1):
        received += (rows @ rotated.transpose(1, 2)).float().softmax(-1).sum((0, 1))
    finite.check("the vision attention", [received])
    received = received / (count * attention.num_heads)
    keys = key.transpose(0, 1).reshape(-1, merge**2, attention.dim)  # (N, m*m, width)
    return received.view(-1, merge**2).mean(1), keys.float().mean(1)


class Early(NamedTuple):
    """The first K text layers on a whole prompt of L tokens.

    Attributes:
        left: what the first met and what each left, `(1, L, D)` each.
        cache: their keys and values.
        position_ids: `(4, 1, L)`.
        visual: `(1, L)` bool, where visual tokens stand.
        span: where they stand, as a slice.
    """

    left: list[Tensor]
    cache: DynamicCache
    position_ids: Tensor
    visual: Tensor
    span: slice


def early_states(
    language_model: torch.nn.Module, tokens: TokenSet, prompt: Prompt, layers: int
) -> Early:
    """Run the first text layers alone, DeepStack included, on the whole prompt.

    Args:
        language_model: `Qwen3VLTextModel`.
        tokens: N visual tokens.
        prompt: around them.
        layers: 1 to the model's depth.
    """
    start = prompt.prefix.shape[1]
    ids = prompt.ids(len(tokens))
    visual = ids == prompt.image_token
    position_ids = prompt.position_ids(tokens.places)
    cache = DynamicCache(config=language_model.config)
    left, _ = run_layers(
        language_model,
        embedded(language_model, ids, visual, tokens),
        position_ids,
        range(layers),
        cache,
        visual=visual,
        deepstack=tokens.deepstack,
    )
    return Early(left, cache, position_ids, visual, slice(start, start + len(tokens)))


def early_attention(
    language_model: torch.nn.Module, tokens: TokenSet, prompt: Prompt, layers: int
) -> Tensor:
    """Attention of the prompt's last token to the visual tokens, in the last of the first `layers`.

    Arguments as of `early_states`; `(heads, N)` float32, rows of a softmax over the whole prompt.
    """
    early = early_states(language_model, tokens, prompt, layers)
    last = early.visual.new_tensor([[early.visual.shape[1] - 1]], dtype=torch.long)
    rows = question_attention(
        language_model, early.left, early.cache, early.position_ids, last, early.span, [layers - 1]
    )
    return rows[0, 0, :, 0]


def question_attention(
    language_model: torch.nn.Module,
    hidden_states: Sequence[Tensor],
    cache: Cache,
    position_ids: Tensor,
    rows: Tensor,
    columns: slice,
    layers: Sequence[int],
) -> Tensor:
    """Attention that `rows` of a finished forward pass pay to `columns`, under any implementation.

    Recomputed from the hidden states and the KV cache for the given rows only. Sound for text rows;
    image rows of the first layers would miss DeepStack, which is added after a layer's state is kept.

    Args:
        language_model: `Qwen3VLTextModel`.
        hidden_states: per layer `(B, L, D)`, as `run_layers` and `output_hidden_states=True` give them.
        cache: the KV cache after that pass, L tokens long.
        position_ids: `(4, B, L)` of that pass.
        rows: `(B, R)` int64 query rows of each question. Pads have to stand to the right of them.
        columns: the key columns to return.
        layers: text layers to read.

    Returns:
        `(B, len(layers), heads, R, columns)` float32, rows of a softmax over all the columns they see.

    Raises:
        FloatingPointError: where the model's numbers overflowed.
    """
    batch = torch.arange(len(rows), device=rows.device)[:, None]  # (B, 1), beside rows (B, R)
    cos, sin = language_model.rotary_emb(hidden_states[0], position_ids[1:])  # (B, L, head_dim)
    cos, sin = cos[batch, rows], sin[batch, rows]  # (B, R, head_dim)
    attention = []
    for index in layers:
        layer, keys = language_model.layers[index], cache.layers[index].keys
        module = layer.self_attn
        states = layer.input_layernorm(hidden_states[index][batch, rows])  # (B, R, D)
        query = module.q_proj(states).view(*rows.shape, -1, module.head_dim)
        query = module.q_norm(query).transpose(1, 2)  # (B, heads, R, head_dim)
        query, _ = apply_rotary_pos_emb(query, query, cos, sin)
        # Cached keys are rotated already, and shared by groups of query heads. Scaled before it is
        # multiplied: the unscaled products leave float16's range.
        shared = repeat_kv(keys, module.num_key_value_groups).transpose(2, 3)
        scores = (query * module.scaling) @ shared
        # Causal: no row sees a later column; that hides the pads at the end of a batch's rows too.
        hidden = torch.arange(keys.shape[2], device=rows.device) > rows[:, None, :, None]
        scores = scores.float().masked_fill(hidden, -torch.inf)
        attention.append(scores.softmax(-1)[..., columns])  # (B, heads, R, columns)
    finite.check("the attention to the picture", attention)
    return torch.stack(attention, 1)
