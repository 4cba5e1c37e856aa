"""Shapes: Qwen3-VL models of known sizes with random weights, for what needs no pretrained ones.

The benchmark's 2B shapes, and tiny ones for tests. Nothing here can answer a question.
"""

from typing import TYPE_CHECKING, Any

import torch

from arr_coc.qwen.loading import BUNDLED_BASE

if TYPE_CHECKING:  # transformers is loaded when a host is built
    from arr_coc.qwen.model import ARRCOCQwen

# Qwen3-VL-2B-Instruct, from its published config.
TEXT_2B = dict(
    vocab_size=151936,
    hidden_size=2048,
    intermediate_size=6144,
    num_hidden_layers=28,
    num_attention_heads=16,
    num_key_value_heads=8,
    head_dim=128,
    max_position_embeddings=262144,
    rms_norm_eps=1e-6,
    tie_word_embeddings=True,
    rope_parameters=dict(
        rope_type="default",
        rope_theta=5_000_000.0,
        mrope_section=[24, 20, 20],
        mrope_interleaved=True,
    ),
)
VISION_2B = dict(
    depth=24,
    hidden_size=1024,
    intermediate_size=4096,
    num_heads=16,
    out_hidden_size=2048,
    num_position_embeddings=2304,
    patch_size=16,
    spatial_merge_size=2,
    temporal_patch_size=2,
    deepstack_visual_indexes=[5, 11, 17],
)
# The same layout in small, to try the command itself.
TEXT_TINY = TEXT_2B | dict(
    vocab_size=2048, hidden_size=128, intermediate_size=256, num_hidden_layers=4
) | dict(num_attention_heads=2, num_key_value_heads=1)  # fmt: skip
VISION_TINY = VISION_2B | dict(
    depth=4, hidden_size=64, intermediate_size=128, num_heads=4, out_hidden_size=128
) | dict(deepstack_visual_indexes=[0, 1, 2])  # fmt: skip
# The sizes that Qwen3-VL's own processor allows: 64 to 16,384 visual tokens.
MIN_PIXELS, MAX_PIXELS = 256 * 256, 4096 * 4096
SHAPES = {"2b": (TEXT_2B, VISION_2B), "tiny": (TEXT_TINY, VISION_TINY)}


def build_host(shapes: str, device: torch.device, dtype: torch.dtype) -> "ARRCOCQwen":
    """The model of these shapes with random weights, as a host."""
    return host_of(SHAPES[shapes], f"random {shapes}", device, dtype)


def host_of(
    shapes: tuple[dict[str, Any], dict[str, Any]],
    name: str,
    device: torch.device,
    dtype: torch.dtype,
) -> "ARRCOCQwen":
    """The model of a text and a vision config with random weights, as a host of this name."""
    from transformers import (
        AutoTokenizer,
        Qwen2VLImageProcessorPil,
        Qwen3VLConfig,
        Qwen3VLForConditionalGeneration,
    )

    from arr_coc.qwen.model import ARRCOCQwen

    # The tokenizer's ids lie in the larger vocabulary; a prompt's length is what matters here.
    tokenizer = AutoTokenizer.from_pretrained(BUNDLED_BASE)
    text, vision = shapes
    ids = tokenizer.convert_tokens_to_ids
    config = Qwen3VLConfig(
        text_config=text,
        vision_config=vision,
        image_token_id=ids("<|image_pad|>"),
        video_token_id=ids("<|video_pad|>"),
        vision_start_token_id=ids("<|vision_start|>"),
        vision_end_token_id=ids("<|vision_end|>"),
        tie_word_embeddings=True,
        dtype=dtype,
    )
    with torch.device("meta"):
        model = Qwen3VLForConditionalGeneration(config)
    fill(model, device, dtype)
    model.generation_config.eos_token_id = None  # random weights: every answer in full length
    model.generation_config.pad_token_id = ids("<|endoftext|>")
    processor = Qwen2VLImageProcessorPil(
        patch_size=vision["patch_size"],
        merge_size=vision["spatial_merge_size"],
        temporal_patch_size=vision["temporal_patch_size"],
        size={"shortest_edge": MIN_PIXELS, "longest_edge": MAX_PIXELS},
        image_mean=[0.5] * 3,
        image_std=[0.5] * 3,
    )
    return ARRCOCQwen(model, tokenizer, processor, name=name, max_pixels=MAX_PIXELS)


def fill(model: Any, device: torch.device, dtype: torch.dtype) -> None:
    """Give a model on the meta device small random weights; its rotary tables are built anew."""
    model.to(dtype).to_empty(device=device)
    generator = torch.Generator(device).manual_seed(0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim == 1 and "norm" in name and name.endswith("weight"):
                parameter.fill_(1.0)
            else:
                parameter.uniform_(-0.03, 0.03, generator=generator)
    for parent in (model.model.visual, model.model.language_model):
        for name, module in list(parent.named_children()):
            if "rotary" in name:
                setattr(parent, name, type(module)(module.config).to(device))
    model.tie_weights()
    model.eval()
