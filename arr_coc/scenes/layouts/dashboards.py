"""A dashboard: several charts with titles, bars upright or lying, and tiles with a number."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from arr_coc.scenes import drawing, writing
from arr_coc.scenes.canvas import Canvas
from arr_coc.scenes.drawing import RGB, Box, Rng
from arr_coc.scenes.facts import Chart, Facts
from arr_coc.scenes.layouts.paint import font_for, mix, pick, resized, rounded, write
from arr_coc.scenes.layouts.plans import Plan, deal_colours
from arr_coc.scenes.questions import Thing

TITLES = ("sales", "visits", "rain", "costs", "users", "energy", "orders", "calls", "trips", "mail")
REVENUE = "revenue"  # the title of the one chart that shows quarters
LABELS = (("mon", "tue", "wed", "thu", "fri"), ("jan", "feb", "mar", "apr", "may"))
LABELS += (("east", "west", "north", "south"), ("a", "b", "c", "d", "e"))
LABELS += (("tea", "milk", "juice", "soup"), ("rome", "oslo", "lima", "bern", "nice"))
CARD = (300, 290)  # pixels that a chart gets, about
FEWEST_BARS, MOST_BARS = 3, 5
LYING_SHARE = 0.35  # of the charts have lying bars
TILE_HEIGHT = 84  # of the row of tiles at the top, in pixels
# Ground, card, writing and lines of a dashboard.
STYLES: tuple[tuple[RGB, RGB, RGB, RGB], ...] = (
    ((232, 236, 242), (255, 255, 255), (44, 50, 66), (206, 210, 218)),
    ((30, 34, 46), (44, 50, 66), (234, 236, 242), (84, 92, 112)),
    ((240, 234, 224), (253, 251, 246), (70, 56, 46), (212, 204, 192)),
    ((222, 234, 230), (250, 253, 252), (34, 62, 60), (190, 210, 206)),
)


class Plot(NamedTuple):
    """Where and how bars are drawn; `rows` are label, colour and value of each."""

    paint: ImageDraw.ImageDraw
    box: Box
    rows: Sequence[tuple[str, str, int]]
    font: ImageFont.FreeTypeFont
    style: tuple[RGB, RGB, RGB, RGB]


def draw(rng: Rng, canvas: Canvas, plan: Plan) -> Facts:
    """Charts in rows below tiles with figures."""
    width, height = canvas.size
    style = pick(rng, STYLES)
    canvas.picture = Image.new("RGB", canvas.size, style[0])
    paint = ImageDraw.Draw(canvas.picture)
    gap = 14
    top = _tiles(rng, canvas, (gap, gap, width - gap, gap + TILE_HEIGHT), style) + gap
    columns, rows = max(1, round(width / CARD[0])), max(1, round((height - top) / CARD[1]))
    if columns * rows < 2:
        columns = 2
    titles = [str(title) for title in rng.permutation(TITLES)[: columns * rows]]
    titles[rng.integers(len(titles))] = REVENUE
    dark = sum(style[1]) < 300
    unseen = "black" if dark else "white"
    kinds = [LABELS[i] for i in rng.integers(len(LABELS), size=len(titles))]
    low, high = min(FEWEST_BARS, plan.most), min(MOST_BARS, plan.most)
    counts = [int(rng.integers(low, 1 + min(high, len(labels)))) for labels in kinds]
    colours, asked = deal_colours(rng, sum(counts), plan)
    stand_in = _stand_in(colours)
    colours = [stand_in if colour == unseen else colour for colour in colours]
    asked = [colour for colour in asked if colour not in (unseen, stand_in)]
    wide, tall = (width - gap * (columns + 1)) / columns, (height - top - gap * rows) / rows
    charts = []
    for i, (title, labels, count) in enumerate(zip(titles, kinds, counts, strict=True)):
        row, column = divmod(i, columns)
        x, y = gap + column * (wide + gap), top + row * (tall + gap)
        card = rounded(x, y, x + wide, y + tall)
        paint.rounded_rectangle(card, 10, style[1], style[3])
        names = list(writing.QUARTERS[:count]) if title == REVENUE else list(labels[:count])
        tints = [colours.pop() for _ in names]
        charts.append(
            _chart(rng, canvas, card, title, list(zip(names, tints, strict=False)), style)
        )
    return Facts("dashboard", dealt=tuple(("bar", c) for c in asked), charts=tuple(charts))


def _stand_in(colours: Sequence[str]) -> str:
    """The most frequent colour: it takes the bars whose colour could not be seen."""
    return max(
        drawing.COLOURS,
        key=lambda name: (name not in ("black", "white")) * (1 + colours.count(name)),
    )


def _tiles(rng: Rng, canvas: Canvas, box: Box, style: tuple[RGB, RGB, RGB, RGB]) -> float:
    """A row of tiles with a large figure each; returns where it ends."""
    paint = ImageDraw.Draw(canvas.picture)
    count = max(2, round((box[2] - box[0]) / 210))
    step = (box[2] - box[0]) / count
    font = font_for(rng, ["month", "99"], step * 0.4, 34, canvas.detail, canvas.hand)
    for i, name in enumerate(
        rng.permutation(("today", "week", "month", "year", "open", "new"))[:count]
    ):
        x = box[0] + i * step
        tile = rounded(
            x + (0 if i == 0 else 6), box[1], x + step - (0 if i == count - 1 else 6), box[3]
        )
        paint.rounded_rectangle(tile, 10, style[1], style[3])
        accent = drawing.jitter(str(pick(rng, ("red", "orange", "green", "blue", "purple"))), rng)
        paint.rounded_rectangle((tile[0] + 10, tile[1] + 14, tile[0] + 16, tile[3] - 14), 3, accent)
        middle = (tile[1] + tile[3]) / 2
        write(
            paint,
            (tile[0] + 28, middle),
            str(name),
            resized(font, font.size * 0.85),
            mix(style[2], style[1], 0.35),
        )
        text = writing.number(rng)
        spot = write(
            paint, (tile[2] - 14, middle), text, resized(font, font.size * 1.25), style[2], "rm"
        )
        canvas.add(Thing("", "", spot, "number", text, spot))
    return box[3]


def _chart(
    rng: Rng,
    canvas: Canvas,
    card: Box,
    title: str,
    named: Sequence[tuple[str, str]],
    style: tuple[RGB, RGB, RGB, RGB],
) -> Chart:
    """One chart in its card; `named` are label and colour of each bar."""
    paint = ImageDraw.Draw(canvas.picture)
    font = font_for(rng, ["north 99"], (card[2] - card[0]) * 0.4, 28, canvas.detail, canvas.hand)
    at = (card[0] + 16, card[1] + 10 + font.size * 0.7)
    title_box = write(paint, at, title.capitalize(), resized(font, font.size * 1.1), style[2])
    box = (card[0] + 14, title_box[3] + 6, card[2] - 14, card[3] - 8)
    values = [int(v) for v in rng.choice(np.arange(10, 100), len(named), replace=False)]
    rows = [(*pair, value) for pair, value in zip(named, values, strict=True)]
    parts = _lying if rng.random() < LYING_SHARE else _upright
    bars = parts(rng, Plot(paint, box, rows, font, style))
    for bar in bars:
        canvas.add(bar)
    return Chart(title, title_box, tuple(bars))


def _upright(rng: Rng, plot: Plot) -> list[Thing]:
    """Upright bars, the value above each and its label below."""
    paint, box, rows, font, style = plot
    line = font.size * 1.3
    floor, ceiling = box[3] - line, box[1] + line
    step, bars = (box[2] - box[0]) / len(rows), []
    longest = max(font.getlength(name.upper()) for name, _, _ in rows)
    small = resized(font, font.size * min(1.0, (step - 8) / longest))
    for share in (0.25, 0.5, 0.75, 1.0):
        y = floor - (floor - ceiling) * share
        paint.line((box[0], y, box[2], y), mix(style[3], style[1], 0.5))
    for i, (name, colour, value) in enumerate(rows):
        x0 = box[0] + i * step
        peak = round(floor - (floor - ceiling) * value / 100)
        bar = (x0 + 0.2 * step, peak, x0 + 0.8 * step, floor)
        paint.rectangle(bar, drawing.jitter(colour, rng), mix(style[2], style[1], 0.5))
        middle = x0 + step / 2
        spot = write(paint, (middle, peak - line / 2), str(value), font, style[2], "mm")
        label = write(paint, (middle, floor + line / 2), name.upper(), small, style[2], "mm")
        whole = _around([bar, spot, label])
        bars.append(Thing(name, colour, whole, "value", str(value), spot, label))
    paint.line((box[0], floor, box[2], floor), style[2], 2)
    return bars


def _lying(rng: Rng, plot: Plot) -> list[Thing]:
    """Lying bars, the label left of each and the value behind its end."""
    paint, box, rows, font, style = plot
    font = resized(font, min(font.size, (box[3] - box[1]) / len(rows) / 1.3))
    left = box[0] + max(font.getlength(name.upper()) for name, _, _ in rows) + 12
    right = box[2] - font.getlength("99") - 12
    step, bars = (box[3] - box[1]) / len(rows), []
    for i, (name, colour, value) in enumerate(rows):
        y0 = box[1] + i * step
        end, middle = round(left + (right - left) * value / 100), y0 + step / 2
        bar = (left, y0 + 0.18 * step, end, y0 + 0.82 * step)
        paint.rectangle(bar, drawing.jitter(colour, rng), mix(style[2], style[1], 0.5))
        spot = write(paint, (end + 6, middle), str(value), font, style[2])
        label = write(paint, (left - 6, middle), name.upper(), font, style[2], "rm")
        whole = _around([bar, spot, label])
        bars.append(Thing(name, colour, whole, "value", str(value), spot, label))
    paint.line((left, box[1], left, box[3]), style[2], 2)
    return bars


def _around(boxes: Sequence[Box]) -> Box:
    """The smallest box that holds all of them."""
    low, high = np.min(boxes, 0), np.max(boxes, 0)
    return rounded(low[0], low[1], high[2], high[3])
