"""The bundled base in small: its config, tokenizer, chat template, image settings and folder.

The model is a stock `Qwen3VLForConditionalGeneration` with few and narrow layers; the tokenizer a
byte-level BPE trained here on the scenes' own phrases. Nothing here trains the weights or draws
pictures.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import (
    AutoTokenizer,
    GenerationConfig,
    PreTrainedTokenizerFast,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
)
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from arr_coc.scenes import drawing, phrasings, writing

PATCH, MERGE, TEMPORAL = 16, 2, 2
CELL = PATCH * MERGE  # pixels of one visual token's side
# Visual tokens of a picture: the fewest, and the most by world, 512 x 512 and 1024 x 1024 pixels.
MIN_TOKENS, MAX_TOKENS = 4, {"small": 256, "large": 1024}
# Visual tokens for which the vision side has learned positions; between them it interpolates. A part of
# the weights: it stays when larger pictures come.
POSITION_TOKENS = 256
TEXT_WIDTH = 192  # hidden size of the text model, and so of what the encoder gives it
# What leaves a layer. While these are zero a new layer, or a new unit of an MLP, changes nothing.
_OUTWARDS = ("o_proj.weight", "down_proj.weight", "linear_fc2.weight")

SPECIALS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
)

CHAT_TEMPLATE = """\
{%- for message in messages -%}
{{- '<|im_start|>' + message['role'] + '\\n' -}}
{%- if message['content'] is string -%}
{{- message['content'] -}}
{%- else -%}
{%- for part in message['content'] -%}
{%- if part['type'] == 'image' -%}
{{- '<|vision_start|><|image_pad|><|vision_end|>' -}}
{%- elif part['type'] == 'video' -%}
{{- '<|vision_start|><|video_pad|><|vision_end|>' -}}
{%- elif 'text' in part -%}
{{- part['text'] -}}
{%- endif -%}
{%- endfor -%}
{%- endif -%}
{{- '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- '<|im_start|>assistant\\n' -}}
{%- endif -%}
"""

# Words of easy-VQA, and some that people use beyond the scenes' own phrases.
_OTHER_WORDS = """
rectangle teal shape image contain not field pattern revenue value bar entry corner whereabouts
what number word letter is written on the small big plate label price tag menu form chart bar
total date name signature amount first last next page line month year day week january february
march april may june july august september october november december monday tuesday wednesday
thursday friday saturday sunday highest lowest cheaper dearer more less most fewest left right
above below under over near between beside behind front of top bottom middle corner side how much
cost dollars euros revenue quarter one two three four five six seven eight nine ten zero none
circle square triangle grey gray cyan does contain image photo shape present describe this please
cake bread milk shop street room table window wall sky grass it they both same different and or not
a an the in on at to with there are was has have can you see show tell me which who where when why
"""


def build_tokenizer(vocab_size: int = 1500) -> PreTrainedTokenizerFast:
    """A byte-level BPE with Qwen's special tokens, trained on the scenes' phrases."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    split = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+|\s+"
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(split), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, special_tokens=list(SPECIALS), initial_alphabet=sorted(alphabet)
    )
    tokenizer.train_from_iterator(_corpus(), trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        additional_special_tokens=[t for t in SPECIALS if t not in ("<|im_end|>", SPECIALS[0])],
        chat_template=CHAT_TEMPLATE,
        model_max_length=4096,
        clean_up_tokenization_spaces=False,
    )


def _corpus() -> Iterator[str]:
    """Every phrase with every name, every answer, bare and after a space.

    What only the large world says is not among them: it is spelled from pieces, two to four for most
    words. A word more here would give every piece another id, and weights a vocabulary to grow into.
    """
    names = (*drawing.glyph_names(), *drawing.HOSTS)
    written = (*writing.WORDS, *writing.MONTHS, *writing.FIELDS)
    for phrases in phrasings.PHRASES.values():
        for phrase in phrases:
            for name in names:
                text = phrase.format(
                    x=name, X=name.upper(), a="a", xs=phrasings.PLURALS.get(name, name + "s")
                )
                yield text
                yield text[0].upper() + text[1:]
    words = (
        *names,
        *drawing.COLOURS,
        "yes",
        "no",
        *"0123456789",
        *_OTHER_WORDS.split(),
        *written,
    )
    for word in words:
        yield from (word, f" {word}", f" {word}") * 30
        yield from (word.capitalize(), f" {word.capitalize()}") * 4


@dataclass(frozen=True)
class Sizes:
    """What may grow: text layers, and units of the MLPs in the text's and the vision side's layers."""

    text_layers: int = 4
    text_mlp: int = 512
    vision_mlp: int = 384


def sizes_of(model: Qwen3VLForConditionalGeneration) -> Sizes:
    """The sizes of a model."""
    text, vision = model.config.text_config, model.config.vision_config
    return Sizes(text.num_hidden_layers, text.intermediate_size, vision.intermediate_size)


def build_config(tokenizer: PreTrainedTokenizerFast, sizes: Sizes = Sizes()) -> Qwen3VLConfig:
    """The small Qwen3-VL: text layers of 192, 5 vision layers of 128, two DeepStack planes."""
    ids = {name: tokenizer.convert_tokens_to_ids(name) for name in SPECIALS}
    text = {
        "vocab_size": len(tokenizer),
        "hidden_size": TEXT_WIDTH,
        "intermediate_size": sizes.text_mlp,
        "num_hidden_layers": sizes.text_layers,
        "num_attention_heads": 6,
        "num_key_value_heads": 3,
        "head_dim": 32,
        "max_position_embeddings": 4096,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10_000.0,
            "mrope_section": [6, 5, 5],
            "mrope_interleaved": True,
        },
        "pad_token_id": ids["<|endoftext|>"],
        "tie_word_embeddings": True,
    }
    vision = {
        "depth": 5,
        "hidden_size": 128,
        "intermediate_size": sizes.vision_mlp,
        "num_heads": 4,
        "out_hidden_size": TEXT_WIDTH,
        "num_position_embeddings": POSITION_TOKENS * MERGE**2,  # a patch each
        "patch_size": PATCH,
        "spatial_merge_size": MERGE,
        "temporal_patch_size": TEMPORAL,
        "deepstack_visual_indexes": [1, 3],
    }
    return Qwen3VLConfig(
        text_config=text,
        vision_config=vision,
        image_token_id=ids["<|image_pad|>"],
        video_token_id=ids["<|video_pad|>"],
        vision_start_token_id=ids["<|vision_start|>"],
        vision_end_token_id=ids["<|vision_end|>"],
        tie_word_embeddings=True,
    )


def build_model(
    tokenizer: PreTrainedTokenizerFast, seed: int = 0, sizes: Sizes = Sizes()
) -> Qwen3VLForConditionalGeneration:
    """The small model with fresh weights (float32)."""
    torch.manual_seed(seed)
    model = Qwen3VLForConditionalGeneration(build_config(tokenizer, sizes))
    eos = [tokenizer.convert_tokens_to_ids(t) for t in ("<|im_end|>", "<|endoftext|>")]
    model.generation_config = GenerationConfig(
        do_sample=False, eos_token_id=eos, pad_token_id=eos[1], max_new_tokens=16
    )
    return model


def build_image_processor(
    max_tokens: int = MAX_TOKENS["small"],
) -> Qwen2VLImageProcessorPil:
    """The stock processor with this model's range of sizes: 4 to `max_tokens` visual tokens."""
    return Qwen2VLImageProcessorPil(
        patch_size=PATCH,
        merge_size=MERGE,
        temporal_patch_size=TEMPORAL,
        size={"shortest_edge": MIN_TOKENS * CELL**2, "longest_edge": max_tokens * CELL**2},
        image_mean=[0.5, 0.5, 0.5],
        image_std=[0.5, 0.5, 0.5],
    )


def patchify(images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """What the image processor gives when it need not resize.

    Args:
        images: `(n, H, W, 3)` uint8, or `(n, 2, H, W, 3)` for moments of a clip, two frames each.

    Returns:
        Pixels `(n * H/16 * W/16, 3 * 2 * 16 * 16)` float32 in [-1, 1], a row per patch, and
        `image_grid_thw` `(n, 3)`. The stock encoder looks at each moment of a clip by itself, so moments
        come as pictures do.
    """
    if images.ndim == 4:  # a still picture is two equal frames
        images = images[:, None].expand(-1, TEMPORAL, -1, -1, -1)
    n, _, height, width, _ = images.shape
    gh, gw = height // PATCH, width // PATCH
    x = images.float().mul(2 / 255).sub(1)
    x = x.view(n, TEMPORAL, gh // MERGE, MERGE, PATCH, gw // MERGE, MERGE, PATCH, 3)
    # The four patches of a merge unit follow each other, then the units row by row; within a patch
    # colour, then frames, then rows and columns of pixels.
    x = x.permute(0, 2, 5, 3, 6, 8, 1, 4, 7)  # (n, h, w, MERGE, MERGE, 3, TEMPORAL, PATCH, PATCH)
    grid = torch.tensor([[1, gh, gw]]).expand(n, 3)
    return x.reshape(n * gh * gw, -1), grid


def load(
    folder: str | Path, dtype: torch.dtype = torch.float32
) -> tuple[Qwen3VLForConditionalGeneration, PreTrainedTokenizerFast]:
    """`(model, tokenizer)` from a folder that `save` wrote."""
    model = Qwen3VLForConditionalGeneration.from_pretrained(folder, dtype=dtype)
    return model, AutoTokenizer.from_pretrained(folder)


def max_tokens_of(folder: str | Path) -> int:
    """The most visual tokens that the image processor in a folder gives a picture."""
    settings = json.loads((Path(folder) / "preprocessor_config.json").read_text())
    return settings["size"]["longest_edge"] // CELL**2


def with_tokenizer(
    model: Qwen3VLForConditionalGeneration,
    old: PreTrainedTokenizerFast,
    new: PreTrainedTokenizerFast,
) -> Qwen3VLForConditionalGeneration:
    """The same model speaking the tokenizer `new`: tokens that `old` had too keep their rows."""
    known, table = old.get_vocab(), model.get_input_embeddings().weight.detach()
    rows = torch.randn(len(new), table.shape[1]) * table.std()
    for token, index in new.get_vocab().items():
        if token in known:
            rows[index] = table[known[token]]
    grown = build_model(new, sizes=sizes_of(model))
    state = {
        key: value
        for key, value in model.state_dict().items()
        if value.shape[:1] != table.shape[:1]
    }
    missing = grown.load_state_dict(state, strict=False).missing_keys
    assert all("embed" in key or "lm_head" in key for key in missing), missing
    grown.get_input_embeddings().weight.data.copy_(rows)
    return grown


def grown_to(
    model: Qwen3VLForConditionalGeneration, tokenizer: PreTrainedTokenizerFast, sizes: Sizes
) -> Qwen3VLForConditionalGeneration:
    """A larger model that computes the same function, for training to go on from.

    What is new takes part in nothing yet: new layers stand behind the others and add zero, and so do
    the new units of an MLP.

    Raises:
        ValueError: if `sizes` is smaller than the model somewhere.
    """
    own = sizes_of(model)
    for name, now in vars(own).items():
        if vars(sizes)[name] < now:
            raise ValueError(f"{name} {vars(sizes)[name]} is less than the weights' own {now}")
    larger = build_model(tokenizer, sizes=sizes)
    old = model.state_dict()
    with torch.no_grad():
        for name, values in larger.state_dict().items():
            if name in old and old[name].shape == values.shape:
                values.copy_(old[name])
                continue
            if name.endswith(_OUTWARDS):
                values.zero_()
            if name in old:
                values[tuple(slice(length) for length in old[name].shape)] = old[name]
    return larger
