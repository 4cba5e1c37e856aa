"""Tower: the stock vision tower's blocks run one by one, for the passes that are ARR-COC's own.

What `Qwen3VLVisionModel.forward` does around its blocks is done here, with its own modules, but for the
patch embedding: a convolution whose steps are as large as its kernel is a matrix product, and as one it
takes a fraction of the time on a CPU. It rounds otherwise in the last bits, and so whole pictures go
through stock's own call.
"""

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn


def run_tower(
    visual: nn.Module,
    patches: Tensor,
    *,
    interp_indices: Tensor,
    interp_weights: Tensor,
    position_ids: Tensor,
    **options: Any,
) -> list[Tensor]:
    """The tower on patches, with the arguments of its own call.

    Args:
        visual: `Qwen3VLVisionModel`.
        patches: `(P, C)` whole merge units in block order.
        interp_indices, interp_weights: `(P, taps)` where learned positions are read.
        position_ids: `(P, 2)` patch coordinates.
        options: what every block and its attention function is told: `cu_seqlens` at least.

    Returns:
        The features `(P / merge**2, D)`, and one such plane per DeepStack layer.
    """
    states = embedded_patches(visual.patch_embed, patches)
    learned = (visual.pos_embed(interp_indices) * interp_weights[:, :, None]).sum(1)
    states = states + learned.to(states.dtype)
    angles = visual.rotary_pos_emb(states, position_ids)
    mergers = dict(zip(visual.deepstack_visual_indexes, visual.deepstack_merger_list, strict=True))
    deepstack = []
    for number, block in enumerate(visual.blocks):
        states = block(states, position_embeddings=angles, **options)
        if number in mergers:
            deepstack.append(mergers[number](states))
    return [visual.merger(states), *deepstack]


def embedded_patches(embedding: nn.Module, patches: Tensor) -> Tensor:
    """`(P, C)` -> `(P, width)` by a tower's patch embedding, which may be a matrix product already."""
    convolution = getattr(embedding, "proj", None)
    if not isinstance(convolution, nn.Conv3d):
        return embedding(patches)
    weight = convolution.weight.flatten(1)
    return F.linear(patches.to(weight.dtype), weight, convolution.bias)
