"""Reading: the glance's pass through the text model, layer by layer, and what is read of it; no vLLM.

vLLM's text model runs on pages of a cache that belong to requests. A glance belongs to none: its few tokens
run densely here, through vLLM's own projections and norms, with their own rotary embedding, because a
glance's tokens stand between whole positions. The tests hold it to `qwen.glance` on transformers' modules,
whose names are the same but for the merged projections.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from arr_coc.realizing import Glance
from arr_coc.serving.tower import first, rotated


@dataclass(frozen=True)
class Reader:
    """A text model, and what of it a glance runs.

    Attributes:
        text: vLLM's `Qwen3LLMModel` or transformers' `Qwen3VLTextModel`.
        config: its config; the rotary embedding is made of it.
        attention_layers: whose attention is averaged into the map.
        depth: how many layers run.
        gather: brings the heads `(heads, G)` of all ranks together; the identity on one.
    """

    text: Any
    config: Any
    attention_layers: Sequence[int]
    depth: int
    gather: Callable[[Tensor], Tensor] = lambda heads: heads

    def read(
        self,
        ids: Tensor,
        positions: Tensor,
        start: int,
        small: tuple[int, int],
        planes: list[Tensor],
    ) -> Glance:
        """Read a prompt whose visual tokens are a glance.

        Args:
            ids: `(L,)` int64, placeholders where the glance stands.
            positions: `(3, L)` whole or fractional.
            start: number of the glance's first token.
            small: its rows and columns, G tokens.
            planes: its features, then its DeepStack planes, `(G, D)` each.

        Returns:
            What `realizing.Glance` names, without a state: nothing goes on from it.
        """
        visual = slice(start, start + small[0] * small[1])
        states = self.text.embed_tokens(ids)
        states = torch.cat([states[:start], planes[0].to(states), states[visual.stop :]])
        angles = self._angles(positions.to(states.device), states.dtype)
        heads, left = [], [states]
        for number in range(self.depth):
            states, attention = self._layer(self.text.layers[number], states, angles, visual)
            heads.append(self.gather(attention))
            left.append(states)
            if number + 1 < len(planes):
                plane = planes[number + 1].to(states)
                states = torch.cat([states[:start], states[visual] + plane, states[visual.stop :]])
        half = left[self.config.num_hidden_layers // 2]
        read = torch.stack(heads)  # (layers, heads, G)
        return Glance(
            attention=read[list(self.attention_layers)].mean((0, 1)).view(1, *small),
            tokens=small[0] * small[1],
            heads=read.flatten(0, 1).view(1, -1, *small),
            states=half[visual].view(1, *small, -1),
            answering=half[-1:],
        )

    def _layer(
        self, layer: Any, states: Tensor, angles: tuple[Tensor, Tensor], visual: slice
    ) -> tuple[Tensor, Tensor]:
        """What a layer leaves, and the attention `(heads, G)` of the last token to the visual ones."""
        module = layer.self_attn
        query, key, value = self._projected(module, layer.input_layernorm(states))
        query = rotated(module.q_norm(query), *angles).transpose(0, 1)  # (heads, L, head_dim)
        key = rotated(module.k_norm(key), *angles).transpose(0, 1)
        groups = len(query) // value.shape[1]
        key = key.repeat_interleave(groups, 0)
        value = value.transpose(0, 1).repeat_interleave(groups, 0)
        scale = self._head_size**-0.5
        mixed = F.scaled_dot_product_attention(
            query[None], key[None], value[None], is_causal=True, scale=scale
        )[0]
        # The last token sees every column, so no mask is needed for its row.
        # Scaled first: the products of float16 would leave its range.
        scores = ((query[:, -1:] * scale) @ key.transpose(1, 2))[:, 0]  # (heads, L)
        attention = scores.float().softmax(-1)[:, visual]
        states = states + first(module.o_proj(mixed.transpose(0, 1).flatten(1)))
        return states + layer.mlp(layer.post_attention_layernorm(states)), attention

    def _projected(self, module: Any, states: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values `(L, heads, head_dim)` of this rank."""
        if hasattr(module, "qkv_proj"):
            sizes = [module.q_size, module.kv_size, module.kv_size]
            parts = first(module.qkv_proj(states)).split(sizes, -1)
        else:
            parts = [project(states) for project in (module.q_proj, module.k_proj, module.v_proj)]
        query, key, value = (part.view(len(states), -1, self._head_size) for part in parts)
        return query, key, value

    @property
    def _head_size(self) -> int:
        own = getattr(self.config, "head_dim", None)
        return own or self.config.hidden_size // self.config.num_attention_heads

    def _angles(self, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Cosines and sines `(L, head_dim)`, of time, rows and columns as M-RoPE interleaves them."""
        rope, size = self.config.rope_parameters, self._head_size
        steps = torch.arange(0, size, 2, dtype=torch.float32, device=positions.device) / size
        turns = positions[:, :, None].float() / rope["rope_theta"] ** steps  # (3, L, size / 2)
        mixed = turns[0].clone()
        for axis in (1, 2):
            columns = slice(axis, 3 * rope["mrope_section"][axis], 3)
            mixed[:, columns] = turns[axis, :, columns]
        both = torch.cat([mixed, mixed], 1)
        return both.cos().to(dtype), both.sin().to(dtype)


def check_rotary(config: Any) -> None:
    """Raise ValueError for a text model whose rotary embedding `Reader` does not know."""
    rope = config.rope_parameters
    kind, interleaved = rope.get("rope_type", "default"), rope.get("mrope_interleaved", False)
    if kind != "default" or not interleaved:
        raise ValueError(
            f"the text model's rope_type is {kind!r} and mrope_interleaved {interleaved}, "
            "expected 'default' and True"
        )
