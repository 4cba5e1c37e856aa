"""Intake: what a visitor gives, checked before anything is decoded or run.

Pictures come as a path, a `data:` URL, bytes or a PIL image; questions and numbers as they arrive
over the API. Whatever is refused raises one exception, `IntakeError`, with one sentence that names
what was given and what is allowed. Nothing here knows the model, the page or the network.
"""

import base64
import binascii
import io
import math
import re
import threading
import unicodedata
import warnings
from pathlib import Path
from typing import Any

from PIL import Image

from arr_coc.config import MINIMUM_BUDGET
from arr_coc.pictures import as_read

MAX_BYTES = 20 * 2**20
MAX_PIXELS = 40_000_000
MAX_PIXELS_JPEG = 64_000_000  # a JPEG is decoded at a fraction of its size, so phone photos pass
MIN_SIDE = 8
MAX_ASPECT = 100  # the stock processor refuses over 200; half leaves room for rounding
USEFUL_PIXELS = 4 * 2**20  # 4096 visual tokens of 32x32 pixels; more would be thrown away
DECODED_AT_ONCE = 2  # pictures; one of the most pixels takes some 400 MB while it is read
MAX_QUESTION = 500
SHARE_RANGE = (0.05, 1.0)
BUDGET_RANGE = (MINIMUM_BUDGET, 16_384)
NEW_TOKENS_RANGE = (1, 256)

GONE = "The picture's file is not there (any more); choose it again."
READABLE = "JPEG, PNG, WEBP or AVIF"
REFUSED = {
    "HEIC": "This is a HEIC photo, which browsers and this page cannot read; export it as JPEG.",
    "SVG": "This is an SVG drawing, not a picture made of pixels; save it as PNG.",
    "GIF": "This is a GIF; save the frame you want to ask about as PNG, or ask about all of it as a clip.",
    "PDF": "This is a PDF document; save the page you want to ask about as PNG or JPEG.",
    "BMP": "This is a BMP file; save it as PNG.",
    "TIFF": "This is a TIFF file; save it as PNG or JPEG.",
}
HEIC_BRANDS = {b"heic", b"heix", b"hevc", b"hevx", b"heim", b"heis", b"mif1", b"msf1"}
# Chat-template marks: <|im_start|>, <|vision_pad|>, ... and the bare tags that are also one token.
SPECIAL = re.compile(r"<\|[^<>|]{0,64}\|>|</?(?:think|tool_call|tool_response)>")
_decoding = threading.BoundedSemaphore(DECODED_AT_ONCE)
BIDI = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\ufeff"


class IntakeError(ValueError):
    """Something given is not allowed. `str(error)` is one sentence fit for a visitor."""


def open_image(
    source: str | Path | bytes | Image.Image, *, useful: int = USEFUL_PIXELS
) -> Image.Image:
    """Read a picture safely: every limit is checked before its pixels are decoded.

    Args:
        source: a file's path, a `data:` URL, the file's bytes, or a PIL image.
        useful: pixels beyond which a picture is shrunk, its aspect kept.

    Returns:
        A `PIL.Image.Image`, mode RGB, uint8 in [0, 255], upright (EXIF applied), the first frame
        of an animation, transparency laid on white, at most `useful` pixels.

    Raises:
        IntakeError: with the sentence to show.
    """
    if isinstance(source, Image.Image):
        check_size(*source.size, MAX_PIXELS)
        return _finish(source, useful)
    data = read(source)
    kind = sniff(data)
    if kind in REFUSED:
        raise IntakeError(f"{REFUSED[kind]} Allowed are {READABLE}.")
    if kind is None:
        raise IntakeError(f"This file is not a picture this page can read; allowed are {READABLE}.")
    try:
        with _decoding, _open(data, kind) as picture:
            check_size(*picture.size, MAX_PIXELS_JPEG if kind == "JPEG" else MAX_PIXELS)
            if kind == "JPEG":
                picture.draft(None, _fit(picture.size, useful))
            picture.load()  # frame 0
            return _finish(picture, useful)
    except IntakeError:
        raise
    except Exception as error:  # a decoder raises anything on a damaged file, struct.error included
        raise IntakeError(
            f"This {kind} file is cut short or damaged and cannot be read; "
            f"allowed is a complete {READABLE} file."
        ) from error


def size_of(source: str | Path | bytes | Image.Image | IntakeError) -> tuple[int, int]:
    """Width and height that `open_image` would give, turned or not, from the file's header alone.

    Raises:
        IntakeError: as `open_image`, what only the pixels show apart; one that is given.
    """
    if isinstance(source, IntakeError):
        raise source
    if not isinstance(source, Image.Image):
        data = read(source)
        kind = sniff(data)
        if kind is None or kind in REFUSED:
            raise IntakeError(f"This file is not a picture; allowed are {READABLE}.")
        try:
            source = _open(data, kind)
        except IntakeError:
            raise
        except Exception as error:  # a decoder raises anything on a damaged file
            raise IntakeError(f"This {kind} file cannot be read; choose it again.") from error
    return _fit(source.size, USEFUL_PIXELS)


def sniff(data: bytes) -> str | None:
    """The format by content: a key of `REFUSED`, "JPEG", "PNG", "WEBP", "AVIF", or None."""
    if data[:3] == b"\xff\xd8\xff":
        return "JPEG"
    if data[:8] == b"\x89PNG\r\n\x1a\n":
        return "PNG"
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "WEBP"
    if data[4:8] == b"ftyp":
        length = int.from_bytes(data[:4], "big")
        brands = {data[i : i + 4] for i in range(8, min(max(length, 12), 256), 4)}
        if brands & {b"avif", b"avis"}:
            return "AVIF"
        return "HEIC" if brands & HEIC_BRANDS else None
    if data[:6] in (b"GIF87a", b"GIF89a"):
        return "GIF"
    if data[:5] == b"%PDF-":
        return "PDF"
    if data[:2] == b"BM":
        return "BMP"
    if data[:4] in (b"II*\0", b"MM\0*"):
        return "TIFF"
    head = data[:2048].removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    if head.startswith(b"<") and b"<svg" in head:
        return "SVG"
    return None


def check_size(width: int, height: int, max_pixels: int) -> None:
    """Raise IntakeError unless a picture of `width` x `height` pixels is within the limits."""
    if width * height > max_pixels:
        raise IntakeError(
            f"The picture is {width}x{height}, {width * height / 1e6:.0f} megapixels; "
            f"at most {max_pixels / 1e6:.0f} megapixels are allowed."
        )
    if min(width, height) < MIN_SIDE:
        raise IntakeError(
            f"The picture is {width}x{height} pixels; each side must have at least {MIN_SIDE}."
        )
    if max(width, height) > MAX_ASPECT * min(width, height):
        raise IntakeError(
            f"The picture is {width}x{height}, {max(width, height) / min(width, height):.0f} times "
            f"longer than wide; at most {MAX_ASPECT} times is allowed."
        )


def clean_question(text: str) -> str:
    """A question as the model may see it: one line, no chat-template marks, no control characters.

    Raises:
        IntakeError: if it is not text, is empty (also after cleaning), or exceeds `MAX_QUESTION`.
    """
    if not isinstance(text, str):
        raise IntakeError(f"The question is {_kind(text)}; a line of text is expected.")
    if len(text) > MAX_QUESTION:
        raise IntakeError(
            f"The question has {len(text):,} characters; at most {MAX_QUESTION} are allowed."
        )
    cleaned = "".join(_harmless(character) for character in text)
    while (without := SPECIAL.sub("", cleaned)) != cleaned:  # removing one mark may join another
        cleaned = without
    cleaned = " ".join(cleaned.split())
    if not cleaned:
        given = "holds nothing but control marks" if text.strip() else "is empty"
        raise IntakeError(f"The question {given}; write 1 to {MAX_QUESTION} characters.")
    return cleaned


def check_share(share: float) -> float:
    """The share of the picture's tokens to keep, as a float in `SHARE_RANGE`; else IntakeError."""
    low, high = SHARE_RANGE
    allowed = f"allowed is {low:g} to {high:g} ({low:.0%} to {high:.0%})"
    value = check_number(share, "share of tokens", allowed)
    if not low <= value <= high:
        raise IntakeError(f"The share of tokens is {value:g}; {allowed}.")
    return value


def check_budget(budget: int | None, tokens: int | None = None) -> int | None:
    """A budget in tokens, or None for none given.

    Args:
        budget: whole number of visual tokens.
        tokens: how many the picture has, where known; the budget may not exceed it.

    Raises:
        IntakeError: for anything else.
    """
    if budget is None:
        return None
    high = tokens or BUDGET_RANGE[1]
    low = min(BUDGET_RANGE[0], high)
    allowed = f"allowed is a whole number from {low} to {high:,}"
    if tokens:
        allowed += ", the tokens of this picture"
    return check_whole(budget, "budget", low, high, allowed)


def check_new_tokens(count: int) -> int:
    """How many tokens an answer may have; IntakeError outside `NEW_TOKENS_RANGE`."""
    low, high = NEW_TOKENS_RANGE
    allowed = f"allowed is a whole number from {low} to {high}"
    return check_whole(count, "length of an answer in tokens", low, high, allowed)


def check_choice(value: str, what: str, allowed: tuple[str, ...]) -> str:
    """`value` if it is one of `allowed`; else IntakeError naming both."""
    if not isinstance(value, str) or value not in allowed:
        raise IntakeError(f"The {what} is {shown(value)}; allowed is {', '.join(allowed)}.")
    return value


def shown(value: Any) -> str:
    """What was given, as a sentence may show it: a text's beginning, a number, the type of all else."""
    if isinstance(value, str):
        return repr(value[:40])
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return f"{value:g}" if is_number and abs(value) < 1e15 else _kind(value)


def is_data_url(text: Any) -> bool:
    """Whether `text` is a `data:` URL, by its first letters."""
    return isinstance(text, str) and text[:5].lower() == "data:"


def read(source: str | Path | bytes) -> bytes:
    """The bytes of a path or a `data:` URL, at most `MAX_BYTES`; else IntakeError."""
    if isinstance(source, bytes):
        return _limit(source)
    if is_data_url(source):
        header, _, body = source.partition(",")
        body = "".join(body.split())  # it may come in lines
        if len(body) > MAX_BYTES * 4 / 3 + 4:
            raise _too_big(len(body) * 3 // 4)
        if not header.lower().endswith(";base64"):
            raise IntakeError("This data: URL is not base64; allowed is base64 or a picture file.")
        try:
            return _limit(base64.b64decode(body, validate=True))
        except binascii.Error as error:
            raise IntakeError("This data: URL holds broken base64; send it complete.") from error
    if not isinstance(source, str | Path) or not str(source):
        raise IntakeError(f"No picture was given; allowed is one {READABLE} file.")
    try:
        path = Path(source)
        if not path.is_file():
            raise IntakeError(GONE)
        if path.stat().st_size > MAX_BYTES:
            raise _too_big(path.stat().st_size)
        return path.read_bytes()
    except (OSError, ValueError) as error:
        if isinstance(error, IntakeError):
            raise
        raise IntakeError("The picture's file cannot be read; choose it again.") from error


def _limit(data: bytes) -> bytes:
    if len(data) > MAX_BYTES:
        raise _too_big(len(data))
    return data


def _too_big(size: int) -> IntakeError:
    return IntakeError(
        f"The file has {size / 2**20:.1f} MB; at most {MAX_BYTES // 2**20} MB are allowed."
    )


def _open(data: bytes, kind: str) -> Image.Image:
    """Read the header only. Pillow's own bomb check comes first for very large pictures."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            return Image.open(io.BytesIO(data), formats=[kind])
    except Image.DecompressionBombError as error:
        given = re.search(r"\d+", str(error))
        size = f"{int(given[0]) / 1e6:.0f}" if given else "too many"
        limit = MAX_PIXELS_JPEG if kind == "JPEG" else MAX_PIXELS
        raise IntakeError(
            f"The picture has {size} megapixels; at most {limit / 1e6:.0f} megapixels are allowed."
        ) from error


def _fit(size: tuple[int, int], useful: int) -> tuple[int, int]:
    """The size of at most `useful` pixels with the same aspect; never larger than `size`."""
    scale = min(1.0, math.sqrt(useful / (size[0] * size[1])))
    return max(1, int(size[0] * scale)), max(1, int(size[1] * scale))


def _finish(picture: Image.Image, useful: int) -> Image.Image:
    """As `pictures.as_read`, at most `useful` pixels."""
    try:
        rgb = as_read(picture)
    except ValueError as error:
        raise IntakeError(str(error)) from error
    size = _fit(rgb.size, useful)
    return rgb if size == rgb.size else rgb.resize(size, Image.Resampling.LANCZOS, reducing_gap=3)


def _harmless(character: str) -> str:
    if character.isspace():
        return " "
    if character in BIDI or unicodedata.category(character) in ("Cc", "Cs"):
        return ""
    return character


def _kind(value: object) -> str:
    return "missing" if value is None else f"of type {type(value).__name__}"


def check_number(value: object, what: str, allowed: str) -> float:
    """A finite number, or IntakeError naming what was given and what is allowed."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise IntakeError(f"The {what} is {_kind(value)}; {allowed}.")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise IntakeError(f"The {what} is not a finite number; {allowed}.")
    return number


def check_whole(value: object, what: str, low: int, high: int, allowed: str) -> int:
    """A whole number from `low` to `high`, or IntakeError."""
    number = check_number(value, what, allowed)
    if number != int(number) or not low <= number <= high:
        raise IntakeError(f"The {what} is {number:g}; {allowed}.")
    return int(number)
