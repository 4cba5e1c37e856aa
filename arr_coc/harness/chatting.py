"""Chatting: what a harness's messages hold: one picture and one text; and where an answer is cut."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from PIL import Image


def one_picture(messages: Iterable[Mapping[str, Any]], where: str) -> tuple[str, Image.Image]:
    """The text and the picture of a conversation.

    Args:
        messages: each with `content`, parts of `type` "text" (with `text`) or "image" (with `url`, a PIL
            image or a file's path).
        where: for the error.

    Raises:
        ValueError: for no picture or several, for sound or video, for an answer among the messages.
    """
    texts, pictures = [], []
    for message in messages:
        if message.get("role") == "assistant":
            raise ValueError(f"{where} holds an answer already, expected one round")
        for part in message["content"]:
            if part["type"] == "text":
                texts.append(part["text"])
            elif part["type"] == "image":
                pictures.append(part["url"])
            else:
                raise ValueError(f"{where} holds {part['type']}, allowed are one picture and text")
    return "\n".join(texts), opened(pictures, where)


def opened(pictures: Sequence[Any], where: str) -> Image.Image:
    """The one picture, opened where it is a file's path; ValueError for another number of them."""
    if len(pictures) != 1:
        raise ValueError(f"{where} holds {len(pictures)} pictures, expected one")
    (picture,) = pictures
    return picture if isinstance(picture, Image.Image) else Image.open(picture)


def ended_at(answer: str, until: str | Sequence[str] | None) -> str:
    """An answer up to the first of the words that end it."""
    for word in [until] if isinstance(until, str) else until or ():
        answer = answer.split(word)[0] if word else answer
    return answer
