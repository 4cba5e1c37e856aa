"""Writing in scenes: plates and price tags with a line of text, charts and forms.

The fonts are those that come with matplotlib (DejaVu and STIX); another hand brings fonts and plates of
its own, the fonts in `bundled/fonts`. Sizes and boxes are in pixels,
boxes are `(x0, y0, x1, y1)`; everything random comes from the caller's generator. `detail` scales the
writing.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

from PIL import Image, ImageDraw, ImageFont

from arr_coc.scenes.drawing import COLOURS, RGB, Box, Rng, jitter
from arr_coc.scenes.questions import Thing

WORDS = ("open", "stop", "exit", "cafe", "sale", "taxi", "bank", "milk", "hotel", "park", "music")
WORDS += ("pizza", "books", "school", "bus", "zoo", "gold", "fire", "farm", "e=mc2")
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
QUARTERS = ("q1", "q2", "q3", "q4")
FIELDS = ("total", "tax", "table", "date")
FONT_DIR = Path(__file__).parent.parent / "bundled" / "fonts"
FONTS = ("DejaVuSans-Bold", "DejaVuSerif-Bold", "DejaVuSansMono-Bold", "STIXGeneralBol")

# Ground and ink of a plate.
_PLATES = (((248, 247, 240), (28, 30, 40)), ((250, 214, 70), (34, 30, 20)))
_PLATES += (((36, 40, 60), (248, 248, 244)), ((236, 240, 248), (150, 20, 30)))
_LINE_HEIGHT = (19, 27)  # of a plate's capitals with their surroundings, before `detail`
_USUAL_DIGIT = 0.73  # height of a digit over the size of a font, in those of matplotlib


@dataclass(frozen=True)
class Look:
    """A plate's colours, and its shape: one of `PLATE_SHAPES`."""

    ground: RGB
    ink: RGB
    shape: str


PLATE_SHAPES = ("rounded", "square", "pill", "framed", "tag", "bare", "ticket", "oval")


class Writer(Protocol):
    """Another hand: the fonts it writes in, and how its plates look."""

    fonts: tuple[str, ...]
    sheet: RGB  # the paper of a chart or a form

    def plate_look(self, rng: Rng) -> Look: ...


@cache
def _font(name: str, size: int) -> ImageFont.FreeTypeFont:
    folder = FONT_DIR
    if not (folder / f"{name}.ttf").is_file():
        folder = Path(find_spec("matplotlib").origin).parent / "mpl-data" / "fonts" / "ttf"
    return ImageFont.truetype(folder / f"{name}.ttf", size)


def number(rng: Rng) -> str:
    """A number of two digits."""
    return str(rng.integers(10, 100))


def word(rng: Rng) -> str:
    """One of `WORDS`."""
    return str(rng.choice(WORDS))


def _pick_font(rng: Rng, height: float, hand: Writer | None = None) -> ImageFont.FreeTypeFont:
    if hand is None:
        return _font(str(rng.choice(FONTS)), max(4, round(height)))
    name = str(rng.choice(hand.fonts))
    _, top, _, bottom = _font(name, 100).getbbox("8")
    # Fonts fill their lines more or less; digits should be about equally high in all.
    return _font(name, max(4, round(height * _USUAL_DIGIT * 100 / (bottom - top))))


def plate(
    rng: Rng,
    picture: Image.Image,
    text: str,
    area: Box,
    detail: float,
    *,
    at: str,
    hand: Writer | None = None,
) -> Box:
    """Write `text` on a small plate inside `area` (made smaller where it would not fit).

    `at` is "anywhere" in the area or the middle of its "bottom" edge. Returns the plate's box.
    """
    height = rng.uniform(*_LINE_HEIGHT) * detail
    font = _pick_font(rng, height, hand)
    shown = text.upper() if text.isalpha() and rng.random() < 0.7 else text
    room = (area[2] - area[0], area[3] - area[1])
    while font.size > 5 and (font.getlength(shown) + 8 > room[0] or font.size * 1.2 > room[1]):
        font = _font(Path(font.path).stem, font.size - 1)
    width = min(room[0], font.getlength(shown) + 8)
    tall = min(room[1], font.size * 1.15 + 2)
    if at == "bottom":
        x, y = (area[0] + area[2] - width) / 2, area[3] - tall
    else:
        x = rng.uniform(area[0], max(area[0], area[2] - width))
        y = rng.uniform(area[1], max(area[1], area[3] - tall))
    box = tuple(float(round(v)) for v in (x, y, x + width, y + tall))
    look = hand.plate_look(rng) if hand else Look(*_PLATES[rng.integers(len(_PLATES))], "rounded")
    paint = ImageDraw.Draw(picture)
    _board(paint, box, look)
    stroke = look.ground if look.shape == "bare" else None
    _write(paint, box, shown, font, look.ink, centred=hand is not None, stroke=stroke)
    return box


def _board(paint: ImageDraw.ImageDraw, box: Box, look: Look) -> None:
    """The board of a plate that fills `box`; nothing for a bare one."""
    edge = tuple((a + 2 * b) // 3 for a, b in zip(look.ground, look.ink, strict=True))
    tall = box[3] - box[1]
    if look.shape in ("square", "ticket"):
        paint.rectangle(box, fill=look.ground, outline=edge)
    elif look.shape in ("pill", "oval"):
        paint.rounded_rectangle(box, tall / 2, fill=look.ground, outline=edge)
    elif look.shape != "bare":
        paint.rounded_rectangle(box, 3, fill=look.ground, outline=edge)
    if look.shape == "framed":
        paint.rectangle((box[0] + 2, box[1] + 2, box[2] - 2, box[3] - 2), outline=edge)
    elif look.shape == "oval":
        paint.line((box[0] + tall / 2, box[3] - 2, box[2] - tall / 2, box[3] - 2), fill=look.ink)
    elif look.shape == "ticket":  # notched
        for y in (box[1], box[3] - 3):
            for x in range(int(box[0]) + 2, int(box[2]) - 2, 6):
                paint.rectangle((x, y, x + 2, y + 2), fill=edge)
    elif look.shape == "tag":  # on a string
        middle = (box[0] + box[2]) / 2
        paint.line((middle, box[1], middle, box[1] - tall / 3), fill=edge, width=2)


def _write(
    paint: ImageDraw.ImageDraw,
    box: Box,
    text: str,
    font: ImageFont.FreeTypeFont,
    ink: RGB,
    *,
    centred: bool = False,
    stroke: RGB | None = None,
) -> None:
    """A line of text in the middle of a box: of its font's line, or `centred` as it looks.

    `stroke` is the colour of an outline around each letter.
    """
    middle = ((box[0] + box[2]) / 2, (box[1] + box[3]) / 2)
    if centred:
        _, top, _, bottom = paint.textbbox(middle, text, font=font, anchor="mm")
        middle = (middle[0], middle[1] + middle[1] - (top + bottom) / 2)
    width = 0 if stroke is None else max(1, round(font.size / 9))
    paint.text(
        middle, text, font=font, fill=ink, anchor="mm", stroke_width=width, stroke_fill=stroke
    )


def chart(
    rng: Rng, picture: Image.Image, detail: float, hand: Writer | None = None
) -> Iterator[Thing]:
    """A bar chart of three or four quarters, each bar with its value; a thing per bar."""
    width, height = picture.size
    paint = ImageDraw.Draw(picture)
    left, top = rng.uniform(0.04, 0.1) * width, rng.uniform(0.04, 0.1) * height
    right, bottom = width - left, height - rng.uniform(0.04, 0.1) * height
    paper = hand.sheet if hand else (250, 250, 247)
    paint.rounded_rectangle((left, top, right, bottom), 8, fill=paper, outline=(150,) * 3)
    font = _pick_font(rng, rng.uniform(19, 25) * detail, hand)
    count = int(rng.integers(3, 5))
    values = rng.choice(range(10, 100), count, replace=False)
    line = font.size * 1.3
    floor, ceiling, step = bottom - line - 4, top + line + 6, (right - left - 12) / count
    paint.line((left + 6, floor, right - 6, floor), (90, 90, 100), 2)
    for i, value in enumerate(values):
        x0, x1 = left + 6 + i * step, left + 6 + (i + 1) * step
        colour = str(rng.choice([c for c in COLOURS if c != "white"]))
        peak = floor - (floor - ceiling) * float(value) / 100
        bar = (x0 + 0.2 * step, peak, x1 - 0.2 * step, floor)
        paint.rectangle(bar, fill=jitter(colour, rng), outline=(60, 60, 70))
        above = (x0 + 2, peak - line, x1 - 2, peak)
        _write(paint, above, str(value), font, (30, 32, 40))
        _write(paint, (x0, floor, x1, bottom), QUARTERS[i].upper(), font, (30, 32, 40))
        box = (x0, max(top, above[1]), x1, bottom)
        spot = _rounded(_inked(above, font.getlength(str(value))))
        label = _rounded(_inked((x0, floor, x1, bottom), font.getlength(QUARTERS[i].upper())))
        yield Thing(QUARTERS[i], colour, _rounded(box), "value", str(value), spot, label)


def form(
    rng: Rng, picture: Image.Image, detail: float, hand: Writer | None = None
) -> Iterator[Thing]:
    """A sheet of paper with three or four entries; a thing per entry."""
    width, height = picture.size
    paint = ImageDraw.Draw(picture)
    left, top = rng.uniform(0.05, 0.16) * width, rng.uniform(0.05, 0.12) * height
    right, bottom = width - left, height - rng.uniform(0.05, 0.12) * height
    paper = hand.sheet if hand else (252, 251, 246)
    paint.rectangle((left, top, right, bottom), fill=paper, outline=(140, 140, 140))
    names = list(rng.permutation(FIELDS)[: rng.integers(3, 5)])
    font = _pick_font(rng, rng.uniform(19, 25) * detail, hand)
    step = (bottom - top - 12) / len(names)
    for i, name in enumerate(names):
        y0 = top + 6 + i * step + rng.uniform(0, 0.3) * step
        row = (left + 8, y0, right - 8, min(bottom - 2, y0 + font.size * 1.4))
        text = f"{rng.integers(10, 29)} {rng.choice(MONTHS)}" if name == "date" else number(rng)
        text = f"${text}" if name in ("total", "tax") else text
        middle = (row[1] + row[3]) / 2
        shown = name.capitalize() if rng.random() < 0.5 else name.upper()
        paint.text((row[0], middle), shown, font=font, fill=(40, 44, 60), anchor="lm")
        length = font.getlength(text)
        free = row[2] - row[0] - font.getlength(shown) - length - 12
        x = row[2] - length - rng.uniform(0, max(1, min(48, free)))
        paint.text((x, middle), text, font=font, fill=(20, 40, 120), anchor="lm")
        paint.line((row[0], row[3], row[2], row[3]), (200, 200, 205))
        spot = _rounded((x - 2, row[1], min(right, x + length + 2), row[3]))
        label = _rounded((row[0], row[1], row[0] + font.getlength(shown), row[3]))
        yield Thing(str(name), "white", _rounded(row), "entry", text, spot, label)


def _inked(box: Box, length: float) -> Box:
    """The middle of `box` that a line of text of `length` pixels takes."""
    middle = (box[0] + box[2]) / 2
    half = min(length / 2 + 2, (box[2] - box[0]) / 2)
    return middle - half, box[1], middle + half, box[3]


def _rounded(box: Box) -> Box:
    return tuple(float(round(v)) for v in box)
