"""Film: a decision in six seconds, as a GIF to post: blurred glance, glow, what was kept, the answer.

Made with pillow when somebody asks for it, and kept nowhere.
"""

import base64
import io
import math
from collections.abc import Iterator
from typing import NamedTuple

from PIL import Image, ImageDraw, ImageFilter

from arr_coc.page import post
from arr_coc.page.board import Shown
from arr_coc.page.frame import TITLE
from arr_coc.ranking import ranks
from arr_coc.service.decision import Where

PICTURE = (480, 440)  # pixels that it fits into
EDGE, TOP, FOOT = 14, 62, 62  # pixels around it: the sides, the question above, the answer below
SECONDS = 6.0
GLANCE_S, GLOW_S, KEPT_S = 1.1, 0.9, 2.0  # the answer stands for what is left
STEPS_S = 0.1  # from frame to frame while anything moves
COLOURS = 256
LARGEST = 3_000_000  # bytes
SMALLER = 0.75  # of the sides, where it became larger
PALE = 0.6  # of the page's colour, over what is not kept


class Frame(NamedTuple):
    """One picture of the film, how long it stands, and what is said under it."""

    picture: Image.Image
    seconds: float
    said: str


def gif(shown: Shown) -> bytes:
    """The film of a comparison, at most `LARGEST` bytes: a picture that is hard to pack is made smaller.

    Raises:
        ValueError: where nothing was decided (a fallback, or a focused look that failed).
    """
    where = shown["result"]["where"]
    if not where or where["fallback"]:
        raise ValueError("nothing was decided, expected a decision to show")
    body = base64.b64decode(shown["picture"].partition(",")[2])
    with Image.open(io.BytesIO(body)) as opened:
        picture = opened.convert("RGB")
    scale = min(PICTURE[0] / picture.width, PICTURE[1] / picture.height)
    while len(made := _made(picture, scale, shown, where)) > LARGEST:
        scale *= SMALLER
    return made


def _made(picture: Image.Image, scale: float, shown: Shown, where: Where) -> bytes:
    size = tuple(max(2, round(scale * side)) for side in picture.size)
    frames = list(_frames(picture.resize(size, Image.Resampling.LANCZOS), where, shown))
    pages = [_page(frame, shown) for frame in frames]
    # One palette for all frames: what stands still is then packed once.
    kinds = [pages[0], pages[round(GLOW_S / STEPS_S)], pages[-1]]
    sheet = Image.new("RGB", (len(kinds) * pages[0].width, pages[0].height))
    for number, page in enumerate(kinds):
        sheet.paste(page, (number * page.width, 0))
    # A third of its sides has the same colours, and is searched in a ninth of the time.
    small = sheet.resize((sheet.width // 3, sheet.height // 3), Image.Resampling.NEAREST)
    palette = small.quantize(COLOURS, Image.Quantize.MAXCOVERAGE)
    pages = [page.quantize(palette=palette, dither=Image.Dither.NONE) for page in pages]
    out = io.BytesIO()
    pages[0].save(
        out,
        "GIF",
        save_all=True,
        append_images=pages[1:],
        duration=[round(1000 * frame.seconds) for frame in frames],
        loop=0,
    )
    return out.getvalue()


def _frames(picture: Image.Image, where: Where, shown: Shown) -> Iterator[Frame]:
    from arr_coc import homunculus

    look = where["look_grid"] or [max(2, round(side / 4)) for side in where["grid"]]
    glance = homunculus.glance_picture(picture, tuple(look))
    glance = glance.resize(picture.size, Image.Resampling.BICUBIC)
    yield Frame(glance, GLANCE_S, "It sees the picture blurred, and reads the question")
    placed = ranks(where["relevance"], where["cells"])
    warm = homunculus.overlay(picture, placed.brightness, max(picture.size)).resize(picture.size)
    steps = round(GLOW_S / STEPS_S)
    for step in range(1, steps + 1):
        glow = Image.blend(glance, warm, 0.9 * step / steps)
        yield Frame(glow, STEPS_S, "It decides where looking pays")
    steps, count = round(KEPT_S / STEPS_S), len(where["cells"])
    pale = _pale(picture)
    for step in range(1, steps + 1):
        first = math.ceil(count * step / steps)
        said = f"{first:,} of {where['grid'][0] * where['grid'][1]:,} places become tokens"
        yield Frame(_kept(picture, pale, where, placed.cells, first), STEPS_S, said)
    whole = _kept(picture, pale, where, placed.cells, count)
    text, _ = post.answered(shown["result"]["focused"], shown["truth"])
    rest = SECONDS - GLANCE_S - GLOW_S - KEPT_S
    yield Frame(whole, rest, f"It answers: {text}")


def _kept(
    picture: Image.Image, pale: Image.Image, where: Where, order: list[int], first: int
) -> Image.Image:
    """The `first` kept cells as they are, the most relevant first, the rest pale."""
    made, (h, w) = pale.copy(), where["grid"]
    across, down = picture.width / w, picture.height / h
    best = sorted(range(len(order)), key=lambda n: order[n])[:first]
    for level, row, column in (where["cells"][n] for n in best):
        side = 1 << level
        left, top = round(column * side * across), round(row * side * down)
        right = round(min(w, (column + 1) * side) * across)
        bottom = round(min(h, (row + 1) * side) * down)
        made.paste(picture.crop((left, top, right, bottom)), (left, top))
    return made


def _pale(picture: Image.Image) -> Image.Image:
    """The picture soft and near the page's colour, to lie under what is kept."""
    soft = picture.filter(ImageFilter.GaussianBlur(max(picture.size) / 60))
    grey = Image.blend(soft, soft.convert("L").convert("RGB"), 0.6)
    return Image.blend(grey, Image.new("RGB", picture.size, post.GROUND), PALE)


def _page(frame: Frame, shown: Shown) -> Image.Image:
    """A frame with the question above and what is said below."""
    width = PICTURE[0] + 2 * EDGE
    page = Image.new("RGB", (width, TOP + frame.picture.height + FOOT), post.GROUND)
    paint, room = ImageDraw.Draw(page), width - 2 * EDGE
    question = post.wrapped(shown["result"]["question"], 19, room, most=2, bold=True)
    post.write(paint, (EDGE, (TOP - question.height) // 2), question, post.INK)
    page.paste(frame.picture, ((width - frame.picture.width) // 2, TOP))
    below = TOP + frame.picture.height + 8
    last = frame.said.startswith("It answers")
    said = post.wrapped(frame.said, 19 if last else 16, room, most=1, bold=last)
    colour = post.answered(shown["result"]["focused"], shown["truth"])[1] if last else post.QUIET
    below = post.write(paint, (EDGE, below), said, colour)
    post.write(paint, (EDGE, page.height - 22), post.wrapped(TITLE, 12, room, most=1), post.QUIET)
    return page
