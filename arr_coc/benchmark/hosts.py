"""Hosts: the models that are timed, with every part that weights bring."""

import torch

from arr_coc.components import PARTS, for_base
from arr_coc.qwen.context import install
from arr_coc.qwen.loading import BUNDLED_BASE
from arr_coc.qwen.model import ARRCOCQwen
from arr_coc.qwen.shapes import build_host

BUNDLED = "bundled"


def set_attention(host: ARRCOCQwen, name: str) -> None:
    """Compute attention by transformers' function `name`, the vision tower still taking a context."""
    host.model.set_attn_implementation(name)
    install(host.model)  # the call before named a function for the tower as well


def host_of(shapes: str, device: torch.device, dtype: str) -> ARRCOCQwen:
    """The model of these shapes; with the bundled weights, or parts of that kind that were not trained.

    `shapes` is `BUNDLED` or a key of `qwen.shapes.SHAPES`, `dtype` torch's name of one.
    """
    if shapes == BUNDLED:
        return ARRCOCQwen.from_pretrained(BUNDLED_BASE, device=device, dtype=dtype)
    host = build_host(shapes, device, getattr(torch, dtype))
    parts = for_base(
        host.model.config, host.attention_layers, list(PARTS), context="glance", glances=True
    )
    return host.with_policies({"untrained": parts.eval().to(device)})
