"""Pictures: a picture file as a person sees it, in every command as on the page."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import numpy as np
from PIL import Image, ImageOps

log = logging.getLogger(__name__)

ORIENTATION, SIDEWAYS = 0x0112, range(5, 9)  # the EXIF tag; by which rows and columns change places
LONGEST = 200  # times its shorter side: what the stock processor takes
WIDE = ("F", "I")  # modes of pixels that may be none of 8 or 16 bits
DRAFT = (64, 64)  # a JPEG is read whole at any size; this one is quick to make of it


def as_read(picture: Image.Image) -> Image.Image:
    """RGB, upright as EXIF says, transparency laid on white, 16-bit grey brought to 8.

    Raises:
        ValueError: for pixels of floating point or of more than 16 bits.
    """
    upright = _upright(picture)
    if upright.mode == "I" or upright.mode.startswith("I;16"):  # 16-bit greyscale
        values = np.asarray(upright)  # (H, W) whole numbers
        if values.min(initial=0) < 0 or values.max(initial=0) > 65535:
            raise ValueError("The picture has over 16 bits per pixel; at most 16 are allowed.")
        grey = np.empty(values.shape, np.uint8)
        for row, own in zip(grey, values):  # a large picture is not held in wide numbers as well
            row[:] = (own.astype(np.int32) + 128) // 257  # rounded
        return Image.fromarray(grey, "L").convert("RGB")
    if upright.mode == "F":
        raise ValueError("The picture has floating-point pixels; allowed are 8 or 16 bits.")
    if upright.has_transparency_data:
        layer = upright.convert("RGBA")
        paper = Image.new("RGB", layer.size, "white")
        paper.paste(layer, mask=layer)
        return paper
    return (
        upright.copy() if upright is picture and picture.mode == "RGB" else upright.convert("RGB")
    )


def plain(picture: Image.Image) -> Image.Image:
    """As `as_read`; a picture that is so already is given back itself, and not copied."""
    if picture.mode == "RGB" and not picture.has_transparency_data and _upright(picture) is picture:
        return picture
    return as_read(picture)


def _upright(picture: Image.Image) -> Image.Image:
    """A picture turned as EXIF says; itself where that is as it stands."""
    try:
        turned = picture.getexif().get(ORIENTATION, 1) != 1
        return ImageOps.exif_transpose(picture) if turned else picture
    except Exception:  # broken EXIF is no reason to refuse sound pixels
        return picture


def upright_size(picture: Image.Image) -> tuple[int, int]:
    """Width and height of a picture as `as_read` gives it, of its header alone."""
    try:
        is_sideways = picture.getexif().get(ORIENTATION) in SIDEWAYS
    except Exception:  # as in `_upright`
        is_sideways = False
    return picture.size[::-1] if is_sideways else picture.size


def why_unreadable(source: Path | IO[bytes]) -> str | None:
    """What is wrong with a picture file, in words; None where all of it can be read."""
    if isinstance(source, Path) and not source.is_file():
        return "there is no such file"
    try:
        with Image.open(source) as picture:
            size = picture.size  # a draft is smaller
            picture.draft("RGB", DRAFT)
            picture.load()
            if picture.mode in WIDE:
                as_read(picture)  # says which pixels cannot be shown
            return too_long(size)
    except Exception as error:  # a decoder raises anything on a damaged file
        return (str(error).strip() or type(error).__name__).splitlines()[0]


def too_long(size: tuple[int, int]) -> str | None:
    """Why a picture of so many pixels, width and height, is none that Qwen3-VL takes; None where it is."""
    if 0 < max(size) <= LONGEST * min(size):
        return None
    return f"it is {size[0]} x {size[1]} pixels, its longer side may be at most {LONGEST} times the shorter"


def found_in(folders: Sequence[Path], name: str) -> Path:
    """The file of a name, in the first of some folders that has it; where none has, in the first."""
    paths = [folder / name for folder in folders]
    return next((path for path in paths if path.is_file()), paths[0])


def unreadable(folders: Sequence[Path], names: Sequence[str], *, skip: bool) -> list[str]:
    """Those of some folders' pictures that cannot be read, each of which is logged.

    Args:
        folders: where they lie; the first that has a name counts.
        names: paths inside a folder; one may come several times.
        skip: whether the caller goes on without them.

    Raises:
        ValueError: where there are some and they are not to be skipped, or there are no others.
    """
    why = {name: why_unreadable(found_in(folders, name)) for name in dict.fromkeys(names)}
    bad = [name for name, wrong in why.items() if wrong]
    for name in bad:
        log.warning("%s cannot be read: %s", found_in(folders, name), why[name])
    if bad and not (skip and len(bad) < len(why)):
        counted = f"{len(bad)} of {len(why)} pictures in {folders[0]} cannot be read"
        way_out = "" if skip else "; --skip-bad leaves out the questions about such"
        raise ValueError(f"{counted}, the first is {bad[0]!r}: {why[bad[0]]}{way_out}")
    return bad
