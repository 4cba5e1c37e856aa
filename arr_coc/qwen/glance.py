"""The glance: one low-resolution look through the whole of Qwen3-VL, and what is read of it.

Used by `qwen.ARRCOCQwen`, which owns the model; the attention is that of `qwen.encoding`.
"""

from dataclasses import dataclass, replace
from typing import Any

import torch
from transformers import DynamicCache

from arr_coc.qwen import attention as qwen_attention
from arr_coc.qwen import encoding
from arr_coc.qwen.encoding import TokenSet
from arr_coc.qwen.inputs import Ask
from arr_coc.realizing import Glance

# Text layers whose attention is read, in shares of the depth: the middle third, where the question
# finds its place.
ATTENTION_SPAN = (1 / 3, 2 / 3)


@dataclass(frozen=True)
class GlanceState:
    """A look's own state: the KV cache of prefix and glance, and where its tokens stand."""

    cache: DynamicCache
    tokens: TokenSet


def layers_in(span: tuple[float, float], depth: int) -> list[int]:
    """The text layers in a span of the depth, from and up to these shares of it; at least one."""
    first, last = (int(edge * depth) for edge in span)
    return list(range(first, max(last, first + 1)))


def take_glance(host: Any, ask: Ask, tokens: int, layers: list[int] | None = None) -> Glance:
    """Look at a picture with at most `tokens` visual tokens, asking its question.

    Args:
        host: an `ARRCOCQwen`.
        ask: the picture and the prompt around it.
        tokens: at most so many.
        layers: text layers whose attention is averaged into `Glance.attention`; None takes the host's
            `attention_layers`.

    Returns:
        Everything that `realizing.Glance` names; its `state` is a `GlanceState`, whose cache ends with the
        glance: the question is cropped off.
    """
    picture = host.small_picture(ask.picture.source, ask.picture.grid, tokens)
    glance = host.encode_with(encoding.encode_all, picture)
    # Its tokens stand at the centres of the areas they cover, in native tokens.
    ratio = torch.tensor(ask.picture.grid) / torch.tensor(picture.grid)
    places = (glance.places + 0.5) * ratio.to(glance.places) - 0.5
    glance = replace(glance, places=places)
    prompt, cache = ask.prompt, host.new_cache()
    position_ids = prompt.position_ids(places)
    output = host.model(
        input_ids=prompt.ids(len(glance)),
        position_ids=position_ids,
        past_key_values=cache,
        mm_encoder_outputs=glance.encoder_outputs(),
        use_cache=True,
        output_hidden_states=True,
        logits_to_keep=1,
    )
    start = prompt.prefix.shape[1]
    # The token that will answer has read the whole question: ViCrop's signal, the strongest
    # training-free one reported.
    last = prompt.suffix.new_tensor([position_ids.shape[2] - 1])
    columns = slice(start, start + len(glance))
    attention = qwen_attention.question_attention(
        host.model.model.language_model,
        output.hidden_states,
        cache,
        position_ids,
        last,
        columns,
        host.all_layers,
    )[:, :, 0]  # (layers, heads, columns)
    half = output.hidden_states[len(host.all_layers) // 2]
    cache.crop(-prompt.suffix.shape[1])
    entropy = torch.distributions.Categorical(logits=output.logits[0, -1].float()).entropy()
    return Glance(
        attention=attention[layers or host.attention_layers].mean((0, 1)).view(1, *picture.grid),
        tokens=len(glance),
        entropy=float(entropy),
        state=GlanceState(cache, glance),
        heads=attention.flatten(0, 1).view(1, -1, *picture.grid),
        states=half[:, columns].view(1, *picture.grid, -1),
        answering=half[:, -1],
    )
