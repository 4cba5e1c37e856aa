"""Papers: a whole-page form with many fields, and a receipt on a table with things around it."""

import numpy as np
from PIL import ImageDraw

from arr_coc.scenes import drawing, writing
from arr_coc.scenes.canvas import Canvas
from arr_coc.scenes.drawing import RGB, Box, Rng
from arr_coc.scenes.facts import Facts
from arr_coc.scenes.layouts.boards import PLACES
from arr_coc.scenes.layouts.paint import (
    font_for,
    mix,
    pick,
    ramp,
    resized,
    rounded,
    write,
)  # fmt: skip
from arr_coc.scenes.layouts.plans import Plan, cast, castable, deal_colours, sized
from arr_coc.scenes.parts import draw_glyph
from arr_coc.scenes.questions import Thing

NUMBERS = (
    "room",
    "seat",
    "floor",
    "order",
    "gate",
    "age",
    "weight",
    "row",
    "line",
    "unit",
    "size",
    "desk",
    "bag",
    "stop",
    "plot",
)
FORM_FIELDS = (*writing.FIELDS, *NUMBERS, "city", "fee", "due")
FORM_ROW, FORM_COLUMN = (52, 70), 460  # pixels: height of a field; a wider page has two columns
PAPER: RGB = (252, 251, 246)
INKS: tuple[RGB, ...] = ((30, 50, 130), (30, 32, 40), (96, 30, 60))
ACCENTS: tuple[RGB, ...] = ((60, 96, 150), (150, 74, 66), (70, 120, 96), (110, 84, 140))
GOODS = (
    "tea",
    "soup",
    "milk",
    "cake",
    "rice",
    "salad",
    "bread",
    "juice",
    "pie",
    "eggs",
    "ham",
    "jam",
)
RECEIPT_WIDTH = (300, 400)  # pixels
RECEIPT_ROW = (34, 42)
FEWEST_LINES, MOST_LINES = 3, 12  # of goods
TAX_SHARE = 0.2  # at most so much of the total is tax
MOST_BESIDE = 28  # things beside a receipt
TURNED = 0.5  # share of the things beside it that are not upright
SPOT = 128  # pixels of the table that a thing beside the receipt gets


def paper_of(canvas: Canvas) -> RGB:
    """The colour of a sheet."""
    return canvas.hand.sheet if canvas.hand else PAPER


def form(rng: Rng, canvas: Canvas, plan: Plan) -> Facts:
    """A page with a heading and boxed fields in one or two columns."""
    width, height = canvas.size
    accent = pick(rng, ACCENTS)
    desk = mix(accent, (206, 200, 192), rng.uniform(0.7, 0.9))
    canvas.picture = ramp(canvas.size, desk, mix(desk, (90, 84, 80), 0.25))
    paint = ImageDraw.Draw(canvas.picture)
    margin = rng.uniform(0.025, 0.05) * min(width, height)
    page = rounded(margin, margin, width - margin, height - margin)
    paint.rectangle([v + 6 for v in page], mix(desk, (40, 40, 40), 0.45))
    paint.rectangle(page, paper_of(canvas), (170, 168, 160))
    head = page[1] + 78
    paint.rectangle((page[0], page[1], page[2], page[1] + 12), accent)
    title = font_for(rng, ["REGISTRATION"], (page[2] - page[0]) * 0.55, 40, 1.5, canvas.hand)
    write(
        paint,
        (page[0] + 24, page[1] + 46),
        pick(rng, ("REGISTRATION", "BOOKING", "ORDER FORM")),
        title,
        accent,
    )
    for i in range(24):  # a bar code
        x = page[2] - 130 + i * 4.4
        paint.rectangle((x, page[1] + 28, x + rng.integers(0, 3), page[1] + 62), (50, 50, 56))
    columns = 2 if page[2] - page[0] > 2 * FORM_COLUMN * 0.8 else 1
    rows = int((page[3] - head - 50) / rng.uniform(*FORM_ROW))
    rows = min(rows, -(-len(FORM_FIELDS) // columns))
    names = [str(name) for name in rng.permutation(FORM_FIELDS)[: rows * columns]]
    missing = [name for name in writing.FIELDS if name not in names]
    if missing:  # at least one of the usual fields, whichever
        names[rng.integers(len(names))] = str(pick(rng, missing))
    gap, step = 26, (page[3] - head - 50) / rows
    wide = (page[2] - page[0] - 48 - (columns - 1) * gap) / columns
    font = font_for(rng, ["weight", "10 march"], wide * 0.42, step - 24, canvas.detail, canvas.hand)
    ink, boxed = pick(rng, INKS), bool(rng.random() < 0.5)
    for i, name in enumerate(names):
        column, row = divmod(i, rows)
        x, y = page[0] + 24 + column * (wide + gap), head + row * step
        _field(rng, canvas, name, rounded(x, y, x + wide, y + step - 12), font, ink, boxed=boxed)
    y = page[3] - 26
    paint.line((page[0] + 24, y, page[0] + 0.45 * width, y), (120, 120, 126), 2)
    xs = np.linspace(page[0] + 40, page[0] + 0.36 * width, 30)
    wave = [(x, y - 8 - 9 * np.sin(i * 0.9) * rng.random()) for i, x in enumerate(xs)]
    paint.line(wave, ink, 2)
    return Facts("form", paper="form")


def value_of(rng: Rng, name: str) -> str:
    """What a field of a form holds."""
    if name in ("date", "due"):
        return f"{rng.integers(10, 29)} {pick(rng, writing.MONTHS)}"
    if name == "city":
        return str(pick(rng, PLACES))
    number = writing.number(rng)
    return f"${number}" if name in ("total", "tax", "fee") else number


def _field(rng: Rng, canvas: Canvas, name: str, box: Box, font, ink: RGB, *, boxed: bool) -> None:
    """A label and its value, `boxed` or on a line; both, and what is between them, are the thing."""
    paint = ImageDraw.Draw(canvas.picture)
    x0, y0, x1, y1 = box
    middle, start = (y0 + y1) / 2, x0 + (x1 - x0) * 0.46
    label = name.capitalize() if rng.random() < 0.5 else name.upper()
    named = write(paint, (x0 + 6, middle), label, font, (70, 74, 88))
    if boxed:
        paint.rectangle((start, y0 + 3, x1, y1 - 3), (244, 245, 248), (172, 176, 188))
    else:
        paint.line((x0 + 6, y1 - 2, x1, y1 - 2), (172, 176, 188), 2)
    text = value_of(rng, name)
    room = x1 - start - 18 - font.getlength(text)
    spot = write(paint, (start + 9 + rng.uniform(0, max(0, room)), middle), text, font, ink)
    canvas.add(Thing(name, "white", box, "entry", text, spot, named))


def receipt(rng: Rng, canvas: Canvas, plan: Plan) -> Facts:
    """A slip of paper with goods that add up to its total, on a table with things."""
    width, height = canvas.size
    canvas.picture = _table(rng, canvas.size)
    paint = ImageDraw.Draw(canvas.picture)
    wide = min(rng.uniform(*RECEIPT_WIDTH), width * 0.62)
    x0 = rng.uniform(0.06 * width, 0.94 * width - wide)
    least = FEWEST_LINES + 4  # rows, the date, the table, the total and the tax besides
    step = min(rng.uniform(*RECEIPT_ROW), (0.94 * height - 96) / least)
    lines = max(FEWEST_LINES, int(min(MOST_LINES, (0.94 * height - 96 - 4 * step) / step)))
    count = int(rng.integers(max(FEWEST_LINES, lines - 4), lines + 1))
    tall = 96 + (count + 4) * step
    y0 = rng.uniform(0.02 * height, 0.98 * height - tall)
    slip = rounded(x0, y0, x0 + wide, y0 + tall)
    _slip(paint, slip, paper_of(canvas))
    total = int(rng.integers(max(20, 2 * count), 100))
    cuts = np.sort(rng.choice(np.arange(1, total), count - 1, replace=False))
    prices = np.diff([0, *cuts, total])
    goods = [str(name) for name in rng.permutation(GOODS)[:count]]
    font = font_for(rng, ["10 march total"], wide - 40, step - 6, canvas.detail, canvas.hand)
    head = resized(font, min(30, font.size * 1.4))
    middle = (slip[0] + slip[2]) / 2
    write(
        paint,
        (middle, slip[1] + 30),
        pick(rng, ("THANK YOU", "CORNER SHOP", "GROCERY")),
        head,
        (40, 42, 50),
        "mm",
    )
    entries = [("date", value_of(rng, "date")), ("table", writing.number(rng))]
    entries += [(name, f"${price}") for name, price in zip(goods, prices, strict=True)]
    tax = int(rng.integers(1, max(2, round(TAX_SHARE * total)) + 1))
    entries += [("total", f"${total}"), ("tax", f"${tax}")]
    y = slip[1] + 60
    for i, (name, text) in enumerate(entries):
        if i in (2, len(entries) - 2):
            y += 8
            for x in np.arange(slip[0] + 16, slip[2] - 16, 10):
                paint.line((x, y, x + 5, y), (150, 150, 150), 2)
            y += 4
        row = rounded(slip[0] + 14, y, slip[2] - 14, y + step - 2)
        at = (row[1] + row[3]) / 2
        shown = name.upper() if name in ("total", "tax") else name.capitalize()
        named = write(paint, (row[0] + 6, at), shown, font, (60, 60, 70))
        spot = write(paint, (row[2] - 6, at), text, font, (26, 28, 36), "rm")
        canvas.add(Thing(name, "white", row, "entry", text, spot, named))
        y += step
    counted, asked = _around(rng, canvas, plan, slip)
    return Facts("receipt", counted, tuple(("", c) for c in asked), paper="receipt")


def _table(rng: Rng, size: tuple[int, int]):
    """A wooden table from above."""
    wood = pick(rng, ((206, 176, 140), (184, 156, 128), (222, 202, 176), (176, 170, 166)))
    picture = ramp(size, mix(wood, (255, 255, 255), 0.16), mix(wood, (70, 50, 40), 0.14))
    paint = ImageDraw.Draw(picture)
    for y in np.arange(rng.uniform(10, 60), size[1], rng.uniform(70, 120)):
        paint.line((0, y, size[0], y), mix(wood, (80, 56, 40), 0.4), 2)
        for _ in range(5):
            x, dy = rng.uniform(0, size[0]), rng.uniform(8, 60)
            paint.line((x, y + dy, x + rng.uniform(60, 200), y + dy), mix(wood, (90, 66, 50), 0.14))
    return picture


def _slip(paint: ImageDraw.ImageDraw, box: Box, paper: RGB) -> None:
    """Paper with a torn lower edge and its shadow."""
    x0, y0, x1, y1 = box
    teeth = np.linspace(x0, x1, 31)
    edge = [(x, y1 + (8 if i % 2 else 0)) for i, x in enumerate(teeth)]
    paint.polygon([(x + 6, y + 6) for x, y in [(x0, y0), *edge, (x1, y0)]], (130, 112, 96))
    paint.polygon([(x0, y0), *edge, (x1, y0)], paper, (196, 192, 186))


def _around(rng: Rng, canvas: Canvas, plan: Plan, slip: Box) -> tuple[str | None, list[str]]:
    """Things on the table on both sides of the slip; the name to count, and colours to count."""
    width, height = canvas.size
    cells = []
    for x0, x1 in ((4, slip[0] - 12), (slip[2] + 16, width - 4)):
        columns = int((x1 - x0) / (SPOT * 0.6)) if x1 - x0 < 2 * SPOT else int((x1 - x0) / SPOT)
        rows = height // SPOT
        cells += [
            (x0 + (x1 - x0) / columns * i, height / rows * j, (x1 - x0) / columns, height / rows)
            for i in range(min(columns, 8))
            for j in range(rows)
        ]
    cells = [cells[i] for i in rng.permutation(len(cells))[: max(1, round(0.8 * len(cells)))]]
    cells = cells[: min(MOST_BESIDE, castable(canvas))]
    names, counted = cast(rng, canvas, len(cells), plan.most)
    colours, asked = deal_colours(rng, len(cells), plan)
    for (x, y, wide, tall), name, colour in zip(cells, names, colours, strict=True):
        angle = float(rng.uniform(-14, 14)) if rng.random() < TURNED else 0.0
        w, h = sized(
            rng, drawing.glyph_aspect(name, angle, canvas.hand), 48, 116, (wide - 10, tall - 12)
        )
        x, y = x + rng.uniform(4, wide - w - 4), y + rng.uniform(4, tall - h - 6)
        box = rounded(x, y, round(x) + int(w), round(y) + int(h))
        mask, colour = draw_glyph(rng, canvas, name, colour, box, angle=angle)
        canvas.add(Thing(name, colour, box), mask)
    return counted, asked
