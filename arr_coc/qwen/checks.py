"""Checks: that a checkpoint is whole. What is missing is a ValueError of one sentence that names it."""

from collections.abc import Callable
from typing import Any, TypeVar

Part = TypeVar("Part")
PREPROCESSOR, TOKENIZER, TEMPLATE = (
    "preprocessor_config.json",
    "tokenizer.json",
    "chat_template.jinja or a chat_template in tokenizer_config.json",
)


def tensors(base: str, info: dict[str, Any]) -> list[str]:
    """Whether the weights fill the model.

    Args:
        base: as it was named.
        info: of `from_pretrained(output_loading_info=True)`.

    Returns:
        A sentence for what the files hold beyond the model; it is not used.

    Raises:
        ValueError: where the model has tensors that the files do not hold, or of another shape:
            transformers would fill them with random numbers.
    """
    if missing := sorted(info["missing_keys"]):
        raise ValueError(
            f"base {base!r} lacks {len(missing)} of the model's tensors in its safetensors files, "
            f"the first is {missing[0]!r}: it is damaged or not complete"
        )
    if unlike := sorted(info["mismatched_keys"]):
        name, found, expected = unlike[0]
        raise ValueError(
            f"base {base!r} has tensors of other shapes than its config.json says: {name!r} is "
            f"{tuple(found)}, expected {tuple(expected)}"
        )
    extra = sorted(info["unexpected_keys"])
    if not extra:
        return []
    return [
        f"base {base!r} holds {len(extra)} tensors that Qwen3-VL has no place for, the first is "
        f"{extra[0]!r}; they are not used"
    ]


def part(base: str, file: str, load: Callable[[], Part]) -> Part:
    """What `load` gives; where it cannot, which of the base's files is missing or damaged.

    Raises:
        ValueError: naming the file.
    """
    try:
        return load()
    except (OSError, ValueError, KeyError, TypeError) as error:
        said = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ValueError(f"base {base!r} has no {file} that can be read: {said}") from error


def chat(base: str, tokenizer: Any, image_token: int) -> None:
    """Whether the tokenizer can put a picture and a question into a chat.

    Raises:
        ValueError: without a chat template, or with one that has no single place for the picture.
    """
    if not tokenizer.chat_template:
        raise ValueError(f"base {base!r} has no {TEMPLATE}, expected Qwen3-VL's")
    if (pad := _token(tokenizer, image_token)) is None:
        raise ValueError(
            f"base {base!r} has no token {image_token} in its {TOKENIZER}, which its config.json names as "
            "image_token_id"
        )
    content = [{"type": "image"}, {"type": "text", "text": "what is it?"}]
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": content}], tokenize=False, add_generation_prompt=True
    )
    if (places := text.count(pad)) != 1:
        raise ValueError(
            f"base {base!r} has a chat template that writes {pad!r} {places} times for one picture, "
            "expected once"
        )


def clip(tokenizer: Any, video_token: int) -> None:
    """Whether the tokenizer can put a clip into a chat.

    Raises:
        ValueError: naming the token or the template that is missing.
    """
    if (pad := _token(tokenizer, video_token)) is None:
        raise ValueError(
            f"the base cannot be asked about clips: its {TOKENIZER} has no token {video_token}, which its "
            "config.json names as video_token_id, expected '<|video_pad|>'"
        )
    content = [{"type": "video"}, {"type": "text", "text": "what is it?"}]
    text = tokenizer.apply_chat_template([{"role": "user", "content": content}], tokenize=False)
    if (places := text.count(pad)) != 1:
        raise ValueError(
            f"the base cannot be asked about clips: its chat template writes {pad!r} {places} times for "
            "one, expected once"
        )


def _token(tokenizer: Any, number: int) -> str | None:
    """The token of that id; None where there is none of its own."""
    token = tokenizer.convert_ids_to_tokens(number)
    return token if token and tokenizer.convert_tokens_to_ids(token) == number else None
