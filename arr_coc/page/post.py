"""Post: one picture to send: the card's picture, both answers and what they cost, drawn with pillow."""

import base64
import io
import math
import re
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from PIL import Image, ImageChops, ImageDraw, ImageFont

from arr_coc.page import frame, warping
from arr_coc.page.board import Shown
from arr_coc.page.folding import folded
from arr_coc.page.results import ENOUGH_RUNS, LOOKS, cut_words, ratio_words, shown_ratio
from arr_coc.page.viewer import density_of, shown_side
from arr_coc.ranking import ranks
from arr_coc.scoring import score_exact
from arr_coc.service.looks import LookResult, is_cut

CARD = (1200, 630)
WIDEST = 540  # pixels of the picture in it
EDGE, FOOT = 44, 572  # of the card: its margin, and where its foot begins
LETTERS = ((36, 32, 2), (30, 26, 3), (24, 22, 5), (22, 21, 2))  # question, answers, their lines
TOKENS = 54  # pixels that the words about a look's tokens, their bar and the space after it take
INK, QUIET, GROUND, RULE = (28, 30, 40), (91, 100, 120), (250, 250, 248), (222, 225, 232)
GOOD, BAD = (17, 115, 74), (179, 38, 30)
FILLS = {"full": (154, 161, 180), "focused": (224, 138, 46), "shrunk": (111, 163, 199)}


def png(shown: Shown, sized: bool = False) -> bytes:
    """A card of 1200 x 630 pixels: the picture under its heat, the question, the answers, the cost.

    `sized` shows the homunculus in place of the heat: the picture bent by the tokens spent on it.
    """
    card = Image.new("RGB", CARD, GROUND)
    left, bottom = _picture(card, shown, sized)
    paint, result = ImageDraw.Draw(card), shown["result"]
    width = CARD[0] - left - EDGE
    cost = f"First word of the focused look: {ratio_words(shown_ratio(result))}"
    if shown["runs"] < ENOUGH_RUNS:
        run = "recorded" if shown["recorded"] else "live"
        cost = (
            f"One {run} run; times vary" if shown["runs"] < 2 else "Two recorded runs; times vary"
        )
    write(paint, (left, bottom - 26), wrapped(cost, 19, width, most=1), QUIET)
    _beside(paint, shown, left, bottom - 44)
    _foot(paint, shown)
    out = io.BytesIO()
    card.save(out, "PNG")
    return out.getvalue()


def homunculus_png(shown: Shown) -> bytes:
    """As `png`, `sized`."""
    return png(shown, sized=True)


def _picture(card: Image.Image, shown: Shown, sized: bool) -> tuple[int, int]:
    """Put the picture in; returns where the words beside it begin, and how far down they may go."""
    from arr_coc import homunculus

    body = base64.b64decode(shown["picture"].partition(",")[2])
    with Image.open(io.BytesIO(body)) as opened:
        picture = opened.convert("RGB")
    where = shown["result"]["where"]
    if sized and where and not where["fallback"]:
        picture = warping.bent(picture, density_of(where))
    elif where and not where["fallback"]:
        brightness = ranks(where["relevance"], where["cells"]).brightness
        picture = homunculus.overlay(picture, brightness, shown_side(picture.size))
    bottom = FOOT - 26
    picture = folded(picture, (WIDEST, bottom - EDGE))
    size = picture.size
    corners = Image.new("L", (2 * size[0], 2 * size[1]))
    ImageDraw.Draw(corners).rounded_rectangle((0, 0, *corners.size), 28, fill=255)
    at = (EDGE, EDGE + (bottom - EDGE - size[1]) // 2)
    seen = ImageChops.darker(corners.resize(size), picture.getchannel("A"))
    card.paste(picture, at, seen)
    return EDGE + size[0] + 56, bottom


def _beside(paint: ImageDraw.ImageDraw, shown: Shown, left: int, bottom: int) -> None:
    """The question and the answers beside the picture, in the largest letters that hold them all."""
    width, result = CARD[0] - left - EDGE, shown["result"]
    looks = {key: result[key] for key in LOOKS if result[key] is not None}
    most = max(1, *(look["visual_tokens"] for look in looks.values()))
    for question_size, answer_size, rows in LETTERS:
        question = wrapped(result["question"], question_size, width, most=4, bold=True)
        answers = {
            key: wrapped(
                answered(look, shown["truth"])[0], answer_size, width, most=rows, bold=True
            )
            for key, look in looks.items()
        }
        height = question.height + sum(TOKENS + lines.height for lines in answers.values())
        if height <= bottom - EDGE and not any(
            lines.cut for lines in (question, *answers.values())
        ):
            break
    y = write(paint, (left, EDGE - 6), question, INK) + 20
    for key, lines in answers.items():
        label = f"{LOOKS[key].name} · {looks[key]['visual_tokens']:,} visual tokens"
        write(paint, (left, y), wrapped(label, 19, width, most=1), QUIET)
        below = write(paint, (left, y + 26), lines, answered(looks[key], shown["truth"])[1]) + 5
        long = round(width * looks[key]["visual_tokens"] / most)
        paint.rectangle((left, below, left + width - 1, below + 5), fill=RULE)
        paint.rectangle((left, below, left + max(3, long) - 1, below + 5), fill=FILLS[key])
        y += TOKENS + lines.height


def answered(look: LookResult, truth: str | None) -> tuple[str, tuple[int, int, int]]:
    """An answer with its mark, and its colour."""
    if look["error"] or not look["done"]:
        return "did not finish", QUIET
    text = look["text"] or "(no words came)"
    if is_cut(look):
        return f"{text} ({cut_words(look)})", INK
    if truth is None:
        return text, INK
    return (f"✓ {text}", GOOD) if score_exact(look["text"], truth) else (f"✗ {text}", BAD)


def _foot(paint: ImageDraw.ImageDraw, shown: Shown) -> None:
    """What made it, at the left; with which model, on what and when, at the right."""
    result, right = shown["result"], CARD[0] - EDGE
    paint.line((EDGE, FOOT, right, FOOT), fill=RULE, width=1)
    title = wrapped(frame.TITLE, 18, right, most=1, bold=True)
    write(paint, (EDGE, FOOT + 18), title, INK)
    day = re.search(r"\d{4}-\d\d-\d\d", shown["recorded"])
    run = f"recorded {day[0]}" if day else "recorded" if shown["recorded"] else "one live run"
    base = "small bundled model" if result["bundled"] else result["model"]
    device = {"cuda": "GPU"}.get(result["device"].split(":")[0], result["device"].upper())
    begin = EDGE + title.width + 16
    line = wrapped(frame.LINE, 16, right, most=1)
    made = wrapped(f"{base} · {device} · {run}", 16, right - begin, most=1)
    write(paint, (right - made.width, FOOT + 19), made, QUIET)
    if begin + line.width + 32 <= right - made.width:
        write(paint, (begin, FOOT + 19), line, QUIET)


def words_of(shown: Shown) -> list[str]:
    """What a visitor or a model wrote of the words that a picture shows."""
    result = shown["result"]
    looks = (result[key] for key in FILLS)
    return [result["question"], shown["truth"] or "", *(look["text"] for look in looks if look)]


def unwritable(text: str) -> str:
    """The first letter that the font has not; "" where it has all."""
    font = _font(24, bold=True)

    def drawn(letter: str) -> bytes:
        return bytes(font.getmask(letter))

    nothing = drawn("\U0010ffff")  # what stands for a letter that it has not
    return next((letter for letter in text if letter.strip() and drawn(letter) == nothing), "")


def _font(size: int, bold: bool) -> ImageFont.FreeTypeFont:
    folder = Path(find_spec("matplotlib").origin).parent / "mpl-data" / "fonts" / "ttf"
    return ImageFont.truetype(folder / f"DejaVuSans{'-Bold' * bold}.ttf", size)


@dataclass(frozen=True)
class Lines:
    """Words set in lines; `height` and `width` in pixels. `cut` where words were left out."""

    lines: list[str]
    font: ImageFont.FreeTypeFont
    cut: bool

    @property
    def step(self) -> int:
        return round(1.3 * self.font.size)

    @property
    def height(self) -> int:
        return self.step * len(self.lines)

    @property
    def width(self) -> int:
        return math.ceil(max(map(self.font.getlength, self.lines)))


def wrapped(text: str, size: int, width: int, *, most: int, bold: bool = False) -> Lines:
    """Text in at most so many lines of at most `width` pixels; "…" stands where it was cut."""
    font = _font(size, bold)
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if font.getlength(longer) <= width or not lines[-1]:
            lines[-1] = longer
        else:
            lines.append(word)
    cut = len(lines) > most
    if cut:
        lines = [*lines[: most - 1], lines[most - 1] + " …"]
    for n, line in enumerate(lines):
        while font.getlength(lines[n]) > width and len(lines[n]) > 2:
            lines[n] = lines[n].rstrip("… ")[:-1] + "…"
        cut = cut or lines[n] != line
    return Lines(lines, font, cut)


def write(
    paint: ImageDraw.ImageDraw, at: tuple[int, int], lines: Lines, colour: tuple[int, int, int]
) -> int:
    """Write lines from a top left corner; returns where the next begin."""
    for n, line in enumerate(lines.lines):
        paint.text((at[0], at[1] + n * lines.step), line, font=lines.font, fill=colour)
    return at[1] + lines.height
