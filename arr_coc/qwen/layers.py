"""Layers: the stock text model's layers run one by one, for passes that do not need all of them.

What `Qwen3VLTextModel.forward` does around its layers is done here, with its own modules: positions, the
causal mask, DeepStack after the first layers. A test holds the states equal to the stock pass, bit for bit.
"""

import inspect
from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import DynamicCache, Qwen3VLForConditionalGeneration
from transformers.masking_utils import create_causal_mask

from arr_coc.qwen.encoding import TokenSet

# How stock calls name the KV cache: `cache` from transformers 5.24 on, which warns about the name before.
_NAMES = inspect.signature(Qwen3VLForConditionalGeneration.forward).parameters
CACHE = "cache" if "cache" in _NAMES else "past_key_values"


def embedded(text: torch.nn.Module, ids: Tensor, visual: Tensor, tokens: TokenSet) -> Tensor:
    """What the first layer meets: `(B, L, D)`.

    Args:
        text: `Qwen3VLTextModel`.
        ids: `(B, L)` int64, placeholders where visual tokens stand.
        visual: `(B, L)` bool, where they stand.
        tokens: those of all rows, in their order.
    """
    states = text.embed_tokens(ids)
    return states.masked_scatter(visual[:, :, None], tokens.features.to(states))


def run_layers(
    text: torch.nn.Module,
    states: Tensor,
    position_ids: Tensor,
    layers: range,
    cache: DynamicCache,
    *,
    visual: Tensor | None = None,
    deepstack: Sequence[Tensor] = (),
    mask: Tensor | None = None,
) -> tuple[list[Tensor], Tensor]:
    """Some layers on a whole sequence.

    Args:
        text: `Qwen3VLTextModel`.
        states: `(B, L, D)` that the first of the layers meets.
        position_ids: `(4, B, L)` as `Prompt.position_ids`.
        layers: which, one after the other.
        cache: takes their keys and values; nothing of these layers is in it yet.
        visual: `(B, L)` bool, where visual tokens stand.
        deepstack: a plane `(K, D)` for each of the model's first layers, K tokens in all rows.
        mask: `(B, L)`, 0 for pads; None without pads.

    Returns:
        What the first layer met and what each left, before DeepStack as `output_hidden_states` has it,
        `(B, L, D)` each; and what the next layer is to meet, `(B, L, D)`.
    """
    rotary = text.rotary_emb(states, position_ids[1:])
    causal = create_causal_mask(text.config, states, mask, None, position_ids=position_ids[0])
    left = [states]
    for index in layers:
        states = text.layers[index](
            states,
            attention_mask=causal,
            position_ids=position_ids[0],
            **{CACHE: cache},
            position_embeddings=rotary,
        )
        left.append(states)
        # A DeepStack plane is added to the visual tokens after each of the first layers.
        if index < len(deepstack):
            states = states.clone()
            states[visual] += deepstack[index].to(states)
    return left, states
