"""A Qwen3-VL folder with random weights, laid out as the published ones are: for `tests.rehearsal`.

Two sizes. "full" has Qwen3-VL-2B-Instruct's exact shapes and takes its vocabulary from a file of ranks
(a line a token: base64 and rank; `qwen.tiktoken` in the wheel `dashscope`). "middle" has the same layout,
fewer and narrower layers and the bundled base's vocabulary, so that nothing is fetched.
"""

import base64
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration

from arr_coc.pretrain.model import CHAT_TEMPLATE, SPECIALS
from arr_coc.qwen import shapes
from arr_coc.qwen.loading import BUNDLED_BASE

Merges = list[tuple[str, str]]
SIZES = ("middle", "full")
# Added behind the vocabulary, in this order; the second ones count as text.
_SPECIAL = """
<|endoftext|> <|im_start|> <|im_end|> <|object_ref_start|> <|object_ref_end|> <|box_start|> <|box_end|>
<|quad_start|> <|quad_end|> <|vision_start|> <|vision_end|> <|vision_pad|> <|image_pad|> <|video_pad|>
"""
_PLAIN = """
<tool_call> </tool_call> <|fim_prefix|> <|fim_middle|> <|fim_suffix|> <|fim_pad|> <|repo_name|>
<|file_sep|> <tool_response> </tool_response> <think> </think>
"""
SPECIAL, PLAIN = _SPECIAL.split(), _PLAIN.split()
WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
TEXT_MIDDLE = shapes.TEXT_2B | dict(
    hidden_size=256,
    intermediate_size=512,
    num_hidden_layers=6,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=64,
    max_position_embeddings=4096,
    rope_parameters=shapes.TEXT_2B["rope_parameters"] | dict(mrope_section=[12, 10, 10]),
)
VISION_MIDDLE = shapes.VISION_2B | dict(
    depth=6, hidden_size=128, intermediate_size=256, num_heads=4, out_hidden_size=256
) | dict(deepstack_visual_indexes=[1, 3, 5])  # fmt: skip
PADDED = 64  # the published table of embeddings has more rows than there are tokens


def write(folder: Path, size: str = "middle", vocabulary: Path | None = None) -> Path:
    """Write a folder of that size; returns it.

    Args:
        folder: to write, made if need be.
        size: one of `SIZES`.
        vocabulary: of "full", the file of ranks.

    Raises:
        ValueError: for another size, or "full" without its vocabulary.
    """
    if size not in SIZES:
        raise ValueError(f"size is {size!r}, expected one of {', '.join(SIZES)}")
    if size == "full" and not vocabulary:
        raise ValueError("size 'full' needs the file of its vocabulary: --vocabulary qwen.tiktoken")
    folder.mkdir(parents=True, exist_ok=True)
    vocab, merges = of_ranks(vocabulary) if size == "full" else of_the_bundled_base()
    ids = write_tokenizer(folder, vocab, merges)
    write_processors(folder)
    if size == "full":
        text, vision = shapes.TEXT_2B, shapes.VISION_2B
    else:
        rows = -(-(max(ids.values()) + 1) // PADDED) * PADDED
        text, vision = TEXT_MIDDLE | dict(vocab_size=rows), VISION_MIDDLE
    write_config(folder, text, vision, ids)
    write_weights(folder)
    return folder


# --- vocabulary ---


def of_the_bundled_base() -> tuple[dict[str, int], Merges]:
    """The bundled base's tokens without the special ones, numbered from 0, and its merges."""
    model = json.loads((BUNDLED_BASE / "tokenizer.json").read_text())["model"]
    words = sorted(model["vocab"], key=lambda word: model["vocab"][word])
    vocab = {word: number for number, word in enumerate(w for w in words if w not in SPECIALS)}
    return vocab, [tuple(pair) for pair in model["merges"]]


def of_ranks(path: Path) -> tuple[dict[str, int], Merges]:
    """Vocabulary and merges from a file of ranks; a token's merge is the last of its making."""
    lines = (line.split() for line in path.read_bytes().splitlines())
    ranks = {base64.b64decode(token): int(rank) for token, rank in lines}
    letters = byte_letters()

    def spelled(token: bytes) -> str:
        return "".join(letters[byte] for byte in token)

    halves = (halves_of(token, ranks) for token in sorted(ranks, key=lambda token: ranks[token]))
    merges = [tuple(map(spelled, pair)) for pair in halves if pair]
    return {spelled(token): rank for token, rank in ranks.items()}, merges


def halves_of(token: bytes, ranks: dict[bytes, int]) -> list[bytes] | None:
    """The two tokens that are joined last where this one is made; None for a single byte."""
    parts = [token[at : at + 1] for at in range(len(token))]
    while len(parts) > 2:
        rank, at = min(
            (ranks.get(a + b, len(ranks)), i) for i, (a, b) in enumerate(pairwise(parts))
        )
        if rank >= ranks[token]:  # not reached by merges: a token of its own
            return None
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return parts if len(parts) == 2 else None


def byte_letters() -> dict[int, str]:
    """The letter by which a byte-level vocabulary writes each byte: itself where it can be seen."""
    seen = {*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    unseen = [byte for byte in range(256) if byte not in seen]
    return {byte: chr(byte) for byte in seen} | {b: chr(256 + n) for n, b in enumerate(unseen)}


# --- files ---


def write_tokenizer(folder: Path, vocab: dict[str, int], merges: Merges) -> dict[str, int]:
    """The four files of a tokenizer, template included; returns the ids of what was added."""
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(WORDS), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in SPECIAL])
    tokenizer.add_tokens([AddedToken(t, special=False, normalized=False) for t in PLAIN])
    tokenizer.save(str(folder / "tokenizer.json"))
    write_json(folder / "vocab.json", vocab)
    lines = "\n".join(" ".join(pair) for pair in merges)
    (folder / "merges.txt").write_text(f"#version: 0.2\n{lines}\n", encoding="utf-8")
    ids = {token: tokenizer.token_to_id(token) for token in (*SPECIAL, *PLAIN)}
    plain = dict(lstrip=False, normalized=False, rstrip=False, single_word=False)
    settings = {
        "tokenizer_class": "Qwen2Tokenizer",
        "chat_template": CHAT_TEMPLATE,
        "added_tokens_decoder": {
            str(number): {"content": token, "special": token in SPECIAL, **plain}
            for token, number in ids.items()
        },
        "additional_special_tokens": SPECIAL[1:],
        "bos_token": None,
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "unk_token": None,
        "add_prefix_space": False,
        "clean_up_tokenization_spaces": False,
        "errors": "replace",
        "model_max_length": 262144,
        "split_special_tokens": False,
    }
    write_json(folder / "tokenizer_config.json", settings)
    write_json(folder / "chat_template.json", {"chat_template": CHAT_TEMPLATE})
    return ids


def write_processors(folder: Path) -> None:
    """How pictures and videos are cut: those of the published 2B."""
    cut = {
        "patch_size": 16,
        "temporal_patch_size": 2,
        "merge_size": 2,
        "image_mean": [0.5] * 3,
        "image_std": [0.5] * 3,
        "processor_class": "Qwen3VLProcessor",
    }
    pictures = {"shortest_edge": shapes.MIN_PIXELS, "longest_edge": shapes.MAX_PIXELS}
    kind = {"image_processor_type": "Qwen2VLImageProcessorFast", "size": pictures}
    write_json(folder / "preprocessor_config.json", cut | kind)
    videos = {"shortest_edge": 64 * 64, "longest_edge": 25_165_824}
    kind = {"video_processor_type": "Qwen3VLVideoProcessor", "size": videos}
    write_json(folder / "video_preprocessor_config.json", cut | kind)


def write_config(
    folder: Path, text: dict[str, Any], vision: dict[str, Any], ids: dict[str, int]
) -> None:
    """`config.json`, with the older names of the rotary settings, and how to generate."""
    rope = text["rope_parameters"]
    ends = [ids["<|im_end|>"], ids["<|endoftext|>"]]
    own = {key: value for key, value in text.items() if key != "rope_parameters"}
    own |= {
        "model_type": "qwen3_vl_text",
        "dtype": "bfloat16",
        "hidden_act": "silu",
        "attention_bias": False,
        "bos_token_id": ends[1],
        "eos_token_id": ends[0],
        "rope_theta": rope["rope_theta"],
        "rope_scaling": {key: rope[key] for key in rope if key != "rope_theta"},
        "use_cache": True,
    }
    seen = {"model_type": "qwen3_vl", "hidden_act": "gelu_pytorch_tanh", "in_channels": 3}
    config = {
        "architectures": ["Qwen3VLForConditionalGeneration"],
        "model_type": "qwen3_vl",
        "image_token_id": ids["<|image_pad|>"],
        "video_token_id": ids["<|video_pad|>"],
        "vision_start_token_id": ids["<|vision_start|>"],
        "vision_end_token_id": ids["<|vision_end|>"],
        "text_config": own,
        "vision_config": vision | seen,
        "tie_word_embeddings": True,
    }
    write_json(folder / "config.json", config)
    sampling = {"do_sample": True, "top_p": 0.8, "top_k": 20, "temperature": 0.7}
    generation = {"bos_token_id": ends[1], "pad_token_id": ends[1], "eos_token_id": ends}
    write_json(folder / "generation_config.json", generation | sampling)


def write_weights(folder: Path) -> None:
    """Small random weights in bfloat16, in one safetensors file without the tied head."""
    config = Qwen3VLConfig.from_pretrained(folder)
    with torch.device("meta"):
        model = Qwen3VLForConditionalGeneration(config)
    shapes.fill(model, torch.device("cpu"), torch.bfloat16)
    state = {k: v.contiguous() for k, v in model.state_dict().items() if k != "lm_head.weight"}
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})


def write_json(path: Path, values: dict[str, Any]) -> None:
    """Indented, in UTF-8."""
    path.write_text(json.dumps(values, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
