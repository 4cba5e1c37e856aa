"""The glance: one low-resolution pass through the whole of Qwen3-VL, and what is read of it.

Used by `qwen.QwenHost`, which holds the model. `encode_glances` and `read_glances` work on many questions
at once, as training asks them; `take_glance` is one question, whose KV cache is kept.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache

from arr_coc.qwen import finite
from arr_coc.qwen.attention import question_attention
from arr_coc.qwen.context import EncoderContext, Recorder, is_installed, native_context
from arr_coc.qwen.encoding import TokenSet, encode_pictures, joined
from arr_coc.qwen.inputs import Ask, Picture, Views, glance_grid, native_places
from arr_coc.qwen.layers import embedded, run_layers
from arr_coc.realizing import Glance, Realization

# Text layers whose attention is read, in shares of the depth: the middle third, where the question
# finds its place.
ATTENTION_SPAN = (1 / 3, 2 / 3)


@dataclass(frozen=True)
class Seen:
    """What a glance leaves of one picture.

    Attributes:
        tokens: the glance's visual tokens, where they stand.
        context: what its encoder pass leaves for the kept cells to attend to; None where the attention
            takes no context.
    """

    tokens: TokenSet
    context: EncoderContext | None


@dataclass(frozen=True)
class GlanceState(Seen):
    """A glance's own state, with which an answer can go on.

    Attributes:
        text: `Qwen3VLTextModel`.
        begun: keys and values of the text layers that have run, of prefix and glance alone.
        reached: `(1, A + G, D)` what the last of those layers left.
        position_ids: `(4, 1, A + G)`.
        depth: how many have run.
    """

    text: torch.nn.Module
    begun: DynamicCache
    reached: Tensor
    position_ids: Tensor
    depth: int

    @cached_property
    def cache(self) -> DynamicCache:
        """The KV cache of prefix and glance in every text layer.

        The layers that the glance did not need run now: most questions never ask for it.
        """
        rest = range(self.depth, len(self.text.layers))
        run_layers(self.text, self.reached, self.position_ids, rest, self.begun)
        return self.begun


@dataclass(frozen=True)
class Readings:
    """What was read of B glances on one grid: the tensors of `realizing.Glance`, with B rows."""

    attention: Tensor  # (B, gh, gw)
    heads: Tensor  # (B, heads, gh, gw)
    states: Tensor  # (B, gh, gw, D)
    answering: Tensor  # (B, D)

    def row(self, number: int) -> "Readings":
        """Of one of them."""
        parts = (self.attention, self.heads, self.states, self.answering)
        return Readings(*(part[number : number + 1] for part in parts))

    def glance(self, state: Seen) -> Glance:
        """As `realizing.Glance`, with what the glance leaves."""
        return Glance(
            attention=self.attention,
            tokens=len(state.tokens),
            state=state,
            heads=self.heads,
            states=self.states,
            answering=self.answering,
        )


def layers_in(span: tuple[float, float], depth: int) -> list[int]:
    """The text layers in a span of the depth, from and up to these shares of it; at least one."""
    first, last = (int(edge * depth) for edge in span)
    return list(range(first, max(last, first + 1)))


def depth_needed(host: Any, layers: Sequence[int] | None = None) -> int:
    """How many text layers a glance has to run: up to the last that anything is read of.

    Args:
        host: a `QwenHost`; its trained components may read heads of more layers.
        layers: whose attention is averaged; None takes the host's `attention_layers`.
    """
    config = host.model.config.text_config
    read = [heads // config.num_attention_heads for heads in host.heads_read()]
    last = max(host.attention_layers if layers is None else layers)
    return max(last + 1, config.num_hidden_layers // 2, *read)


@dataclass(frozen=True)
class Pass:
    """One low-resolution pass through the model: its parts, before they become glances."""

    encoded: list[tuple[TokenSet, EncoderContext | None]]
    position_ids: Tensor
    cache: DynamicCache
    depth: int
    reached: Tensor
    readings: list[Readings]


def take_glance(host: Any, ask: Ask, tokens: int, layers: list[int] | None = None) -> Glance:
    """Look at a picture with at most `tokens` visual tokens, asking its question.

    Args:
        host: a `QwenHost`.
        ask: the picture and the prompt around it.
        tokens: at most so many.
        layers: text layers whose attention is averaged into `Glance.attention`; None takes the host's
            `attention_layers`.

    Returns:
        Everything that `realizing.Glance` names; its `state` is a `GlanceState`, whose cache ends with the
        glance: the question is cropped off.
    """
    done = _look(host, ask, [tokens], layers)
    ((glance, context),) = done.encoded
    # The cache then ends with the glance: in the answer's prompt the fovea follows it, and after that
    # the question once more.
    end = ask.prompt.prefix.shape[1] + len(glance)
    done.cache.crop(end - done.position_ids.shape[2])
    text, position_ids = host.model.model.language_model, done.position_ids[:, :, :end]
    reached = done.reached[:, :end]
    state = GlanceState(glance, context, text, done.cache, reached, position_ids, done.depth)
    return done.readings[0].glance(state)


def take_glances(
    host: Any, views: Views, tokens: Sequence[int], layers: list[int] | None = None
) -> list[Glance]:
    """Look at a whole clip, or at several pictures, in one pass of at most so many tokens each.

    The attention of all blocks is that of one softmax: it says in which of them, and where there. What a
    glance's `state` holds is a `Seen`; no answer can go on from such a pass.
    """
    done = _look(host, views, tokens, layers)
    return [read.glance(Seen(*own)) for read, own in zip(done.readings, done.encoded)]


def _look(host: Any, asked: Ask | Views, tokens: Sequence[int], layers: list[int] | None) -> Pass:
    prompt = asked.prompt
    grids = [glance_grid(p.grid, most) for p, most in zip(asked.pictures, tokens, strict=True)]
    encoded = encode_glances(host, asked.pictures, grids)
    small = [own for own, _ in encoded]
    counts = [len(own) for own in small]
    ids, position_ids = prompt.ids(counts), prompt.position_ids([own.places for own in small])
    cache, depth = host.new_cache(), depth_needed(host, layers)
    visual = ids == prompt.image_token
    left, reached = glance_layers(
        host, ids, position_ids, joined(small), depth, cache, visual=visual
    )
    last = ids.new_tensor([ids.shape[1] - 1])
    starts = prompt.starts(counts)
    readings = read_blocks(host, left, cache, position_ids, last, starts, grids, layers)
    return Pass(encoded, position_ids, cache, depth, reached, readings)


def glance_layers(
    host: Any,
    ids: Tensor,
    position_ids: Tensor,
    tokens: TokenSet,
    depth: int,
    cache: DynamicCache,
    mask: Tensor | None = None,
    visual: Tensor | None = None,
) -> tuple[list[Tensor], Tensor]:
    """The first `depth` text layers on B prompts, as `layers.run_layers`.

    `visual` `(B, L)` says where visual tokens stand; None is where the ids are those of images.
    """
    text = host.model.model.language_model
    visual = ids == host.inputs.image_token if visual is None else visual
    states = embedded(text, ids, visual, tokens)
    return run_layers(
        text,
        states,
        position_ids,
        range(depth),
        cache,
        visual=visual,
        deepstack=tokens.deepstack,
        mask=mask,
    )


def encode_glances(
    host: Any, pictures: Sequence[Picture], grids: Sequence[tuple[int, int]]
) -> list[tuple[TokenSet, EncoderContext | None]]:
    """Each picture shrunk to a grid of visual tokens and encoded in one call.

    Returns:
        For each the tokens, standing at native places, and the context that their keys and values make.
    """
    visual = host.model.model.visual
    small = [host.shrunk(p, grid) for p, grid in zip(pictures, grids, strict=True)]
    recorder = Recorder(visual, len(small)) if is_installed(visual) else None
    glances = []
    for number, tokens in enumerate(encode_pictures(visual, small, recorder)):
        own, grid = small[number], pictures[number].grid
        placed = replace(tokens, places=native_places(tokens.places, own.grid, grid))
        layers = recorder and recorder.layers(number)
        glances.append((placed, layers and native_context(visual, layers, own, grid)))
    return glances


def glance_context(host: Any, picture: Picture, realization: Realization) -> EncoderContext | None:
    """The keys and values of a realization's glance, of the tower's present dtype.

    Where the realization was put away, without its glance's state, or the tower has moved to float32
    since, the picture is encoded small anew.
    """
    state, visual = realization.glance.state, host.model.model.visual
    if state is not None and state.context and state.context.dtype == visual.dtype:
        return state.context
    grid = tuple(realization.glance.attention.shape[-2:])
    ((_, context),) = encode_glances(host, [picture], [grid])
    return context


def glanced_at(host: Any, picture: Picture, realization: Realization) -> Realization:
    """The realization with what its glance saw; encoded small anew where that was put away."""
    glance = realization.glance
    if glance is None or glance.state is not None:
        return realization
    ((tokens, context),) = encode_glances(host, [picture], [tuple(glance.attention.shape[-2:])])
    return replace(realization, glance=replace(glance, state=Seen(tokens, context)))


def read_glances(
    host: Any,
    left: Sequence[Tensor],
    cache: DynamicCache,
    position_ids: Tensor,
    last: Tensor,
    start: int,
    grid: tuple[int, int],
    layers: list[int] | None = None,
) -> Readings:
    """As `read_blocks` of prompts with one block: its first column and its grid, the same in every row."""
    return read_blocks(host, left, cache, position_ids, last, [start], [grid], layers)[0]


def read_blocks(
    host: Any,
    left: Sequence[Tensor],
    cache: DynamicCache,
    position_ids: Tensor,
    last: Tensor,
    starts: Sequence[int],
    grids: Sequence[tuple[int, int]],
    layers: list[int] | None = None,
) -> list[Readings]:
    """What the token about to answer pays to each visual token, and what both hold half way up.

    Args:
        host: a `QwenHost`.
        left: `(B, L, D)` what the first text layer met and what each left, for as many as have run.
        cache: their keys and values, uncropped.
        position_ids: `(4, B, L)` of that pass.
        last: `(B,)` int64, the last token of each prompt. It has read the whole question: ViCrop's
            signal, the strongest training-free one reported.
        starts: column of each block's first visual token, the same in every row.
        grids: rows and columns of each block's visual tokens, the same in every row.
        layers: as in `take_glance`.

    Returns:
        Of each block.

    Raises:
        FloatingPointError: where the model's numbers overflowed.
    """
    text = host.model.model.language_model
    layers = host.attention_layers if layers is None else layers
    spans = [slice(start, start + h * w) for start, (h, w) in zip(starts, grids, strict=True)]
    columns = slice(spans[0].start, spans[-1].stop)
    attention = question_attention(
        text, left, cache, position_ids, last[:, None], columns, range(len(left) - 1)
    )[:, :, :, 0]  # (B, layers, heads, columns)
    half = left[len(text.layers) // 2]  # (B, L, D)
    rows = torch.arange(len(last), device=last.device)
    finite.check("the glance", [half])
    readings = []
    for span, grid in zip(spans, grids):
        own = attention[..., span.start - columns.start : span.stop - columns.start]
        readings.append(
            Readings(
                attention=own[:, layers].mean((1, 2)).view(-1, *grid),
                heads=own.flatten(1, 2).reshape(len(last), -1, *grid),
                states=half[:, span].reshape(len(last), *grid, -1),
                answering=half[rows, last],
            )
        )
    return readings
