"""Side by side: pictures of one size through the vision side in one call of its attention.

The stock model calls it once for each picture, which leaves a GPU waiting where they are small and many.
How many there are is an argument of the model's call, which reaches the attention function; a call
without it is stock's.
"""

from typing import Any

import torch
from torch import Tensor, nn
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.vision_utils import get_vision_position_ids

NAME = "side_by_side"


def install(model: nn.Module) -> None:
    """Let the vision side of a Qwen3-VL take `arguments_for` pictures of one size."""
    ALL_ATTENTION_FUNCTIONS.register(NAME, _attend)
    model.set_attn_implementation({"vision_config": NAME})


def arguments_for(grid_thw: Tensor, merge: int, device: torch.device) -> dict[str, Any]:
    """What the vision side on `device` is told of pictures that all have the first one's grid, `(n, 3)`.

    `merge` is how many patches a visual token has on each side.
    """
    count = len(grid_thw)
    ends = torch.tensor([0, int(grid_thw.prod(1).sum())], dtype=torch.int32)
    positions = get_vision_position_ids(grid_thw[:1], merge).repeat(count, 1)
    return {
        "grid_thw": grid_thw.to(device),
        "position_ids": positions.to(device),
        "cu_seqlens": ends.to(device),  # one segment, which the attention function divides
        "pictures": count,
    }


def _attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    pictures: int = 1,
    **options: Any,
) -> tuple[Tensor, Tensor | None]:
    """Queries, keys and values (1, H, pictures * P, D) -> (1, pictures * P, H, D), each by itself."""
    stock = ALL_ATTENTION_FUNCTIONS["sdpa"]
    own = [states[0].unflatten(1, (pictures, -1)).transpose(0, 1) for states in (query, key, value)]
    seen, weights = stock(module, *own, attention_mask, **options)
    return seen.flatten(0, 1)[None], weights
