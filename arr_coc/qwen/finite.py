"""Finite: numbers that left a dtype's range are noticed where they arise, by name.

float16 ends at 65,504, and a trained Qwen3-VL may go beyond it on some picture. What is noticed here is a
FloatingPointError; `QwenHost.once_more_if_narrow` then moves the model to a wider dtype and asks again.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

NOT_FINITE = "The model's numbers overflowed on this picture"


def is_finite(tensors: Iterable[Tensor]) -> bool:
    """Whether all numbers of all tensors are neither infinite nor NaN."""
    return all(bool(torch.isfinite(tensor).all()) for tensor in tensors)


def check(what: str, tensors: Iterable[Tensor]) -> None:
    """Raise FloatingPointError, which says `what` it was, where a number is infinite or NaN."""
    if not is_finite(tensors):
        raise FloatingPointError(f"{what} overflowed")


def check_logits(logits: Tensor) -> None:
    """Raise FloatingPointError for logits `(..., vocabulary)` from which no token can be taken.

    Single ones may be minus infinity; the largest of a row is NaN where any is, and infinite where all
    are masked or one overflowed.
    """
    check("logits", [logits.amax(-1)])


@torch.inference_mode(False)  # weights made in inference mode could never be trained through again
def move(model: Any, dtype: torch.dtype) -> None:
    """Move a `Qwen3VLForConditionalGeneration` to a dtype; rotary frequencies are float32 in every one."""
    rotaries = (model.model.visual.rotary_pos_emb, model.model.language_model.rotary_emb)
    frequencies = [rotary.inv_freq for rotary in rotaries]
    model.to(dtype)
    for rotary, inv_freq in zip(rotaries, frequencies, strict=True):
        rotary.inv_freq = inv_freq
