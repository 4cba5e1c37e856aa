"""A town map from above: a river, parks, streets with blocks, landmarks, and pins with numbers."""

import numpy as np
from PIL import Image, ImageDraw

from arr_coc.scenes import drawing
from arr_coc.scenes.canvas import Canvas
from arr_coc.scenes.drawing import RGB, Box, Rng
from arr_coc.scenes.facts import Facts
from arr_coc.scenes.layouts.paint import font_for, mix, pick, rounded, write
from arr_coc.scenes.layouts.plans import Plan, cast, castable, deal_colours, sized
from arr_coc.scenes.parts import draw_glyph
from arr_coc.scenes.questions import Thing

CELL = 128  # pixels of a block of the town with its half streets, each way
ROAD = (14, 24)  # width in pixels
LANDMARK, PIN = 0.44, 0.3  # shares of the blocks
MOST_LANDMARKS = 30
SCENERY = ("tree", "house")
LANDMARK_SIDES = (46, 88)
PIN_SIZE = (56, 70)  # width and height in pixels
# Of a map: its land, its water, its parks, its blocks, its streets.
STYLES: tuple[tuple[RGB, RGB, RGB, RGB, RGB], ...] = (
    ((240, 236, 226), (168, 204, 226), (200, 222, 182), (229, 223, 211), (255, 255, 255)),
    ((232, 236, 232), (160, 196, 208), (186, 212, 178), (220, 226, 222), (252, 250, 240)),
    ((244, 230, 206), (170, 198, 200), (206, 210, 160), (234, 217, 190), (255, 246, 228)),
    ((226, 228, 238), (158, 184, 220), (190, 210, 196), (214, 216, 230), (250, 250, 255)),
)


def draw(rng: Rng, canvas: Canvas, plan: Plan) -> Facts:
    """Blocks with landmarks and pins between streets."""
    width, height = canvas.size
    style = pick(rng, STYLES)
    canvas.picture = Image.new("RGB", canvas.size, style[0])
    paint = ImageDraw.Draw(canvas.picture)
    columns, rows = width // CELL, height // CELL
    across, down = width / columns, height / rows
    _town(rng, paint, (columns, rows), (across, down), style)
    cells = [(column, row) for row in range(rows) for column in range(columns)]
    cells = [cells[i] for i in rng.permutation(len(cells))]
    landmarks, pins = round(LANDMARK * len(cells)), max(2, round(PIN * len(cells)))
    landmarks = min(MOST_LANDMARKS, castable(canvas, SCENERY), landmarks)
    names, counted = cast(rng, canvas, landmarks, plan.most, SCENERY)
    colours, _ = deal_colours(rng, len(names), plan)
    tints, asked = deal_colours(rng, pins, plan)
    numbers = [str(n) for n in rng.choice(np.arange(10, 100), pins, replace=False)]
    signs = []
    for i, name in enumerate(names):
        column, row = cells[i]
        cell = (column * across, row * down, (column + 1) * across, (row + 1) * down)
        pinned = i < pins // 2
        thing = _landmark(rng, canvas, name, colours.pop(), cell, pinned=pinned)
        if pinned:  # a pin at the right of its landmark
            x, foot = thing.box[2] + rng.uniform(2, 6), thing.box[3] - rng.uniform(0, 6)
            signs.append(("pin", thing, _pin(rng, canvas, numbers.pop(), tints.pop(), x, foot)))
    for column, row in cells[len(names) : len(names) + len(tints)]:
        x = column * across + rng.uniform(16, across - PIN_SIZE[0] - 16)
        foot = row * down + rng.uniform(PIN_SIZE[1] + 14, down - 12)
        _pin(rng, canvas, numbers.pop(), tints.pop(), x, foot)
    dealt = tuple(("pin", colour) for colour in asked)
    return Facts("map", counted, dealt, tuple(signs), scenery=SCENERY)


def _town(
    rng: Rng,
    paint: ImageDraw.ImageDraw,
    count: tuple[int, int],
    step: tuple[float, float],
    style: tuple[RGB, ...],
) -> None:
    """The ground: houses in their blocks, parks, streets, an avenue and a river over them."""
    land, water, park, block, road = style
    width, height = count[0] * step[0], count[1] * step[1]
    for row in range(count[1]):
        for column in range(count[0]):
            x, y = column * step[0], row * step[1]
            box = (x + 12, y + 12, x + step[0] - 12, y + step[1] - 12)
            green = rng.random() < 0.2
            paint.rounded_rectangle(box, 8, park if green else block)
            for _ in range(7 if green else 4):
                px, py = rng.uniform(box[0], box[2] - 22), rng.uniform(box[1], box[3] - 22)
                if green:
                    paint.ellipse((px, py, px + 14, py + 14), mix(park, (110, 150, 100), 0.3))
                else:
                    w, h = rng.uniform(10, 26, 2)
                    tint = mix(block, (150, 140, 130), 0.2)
                    paint.rectangle((px, py, min(px + w, box[2]), min(py + h, box[3])), tint)
    for axis in (0, 1):
        for i in range(count[axis] + 1):
            at, half = i * step[axis], rng.uniform(*ROAD) / 2
            line = (
                (at - half, 0, at + half, height) if axis == 0 else (0, at - half, width, at + half)
            )
            paint.rectangle(line, road)
    xs = np.linspace(-20, width + 20, 24)
    bend = np.sin(xs / width * rng.uniform(3, 7) + rng.uniform(0, 6)) * 0.12 * height
    ys = rng.uniform(0.2, 0.8) * height + bend + (xs - width / 2) * rng.uniform(-0.3, 0.3)
    river = [(float(x), float(y)) for x, y in zip(xs, ys, strict=True)]
    paint.line(river, mix(water, (90, 130, 160), 0.25), 44, joint="curve")
    paint.line(river, water, 38, joint="curve")
    slope = rng.uniform(-0.6, 0.6) * width
    start = rng.uniform(0.2, 0.8) * width
    avenue = (start, -20, start + slope, height + 20)
    paint.line(avenue, mix(road, (200, 160, 80), 0.5), 24)
    paint.line(avenue, mix(road, (250, 214, 120), 0.6), 18)


def _landmark(
    rng: Rng, canvas: Canvas, name: str, colour: str, cell: Box, *, pinned: bool
) -> Thing:
    """A glyph in its block, at the left where a pin comes beside it."""
    x0, y0, x1, y1 = cell
    beside = PIN_SIZE[0] + 8 if pinned else 0
    room = (x1 - x0 - 12 - beside, y1 - y0 - 16)
    w, h = sized(rng, drawing.glyph_aspect(name, 0.0, canvas.hand), *LANDMARK_SIDES, room)
    x = x0 + 6 + rng.uniform(0, room[0] - w)
    low = y0 + 8 + rng.uniform(max(h, PIN_SIZE[1]), y1 - y0 - 14)
    box = rounded(x, low - h, round(x) + int(w), low)
    mask, colour = draw_glyph(rng, canvas, name, colour, box)
    thing = Thing(name, colour, box)
    canvas.add(thing, mask)
    return thing


def _pin(rng: Rng, canvas: Canvas, text: str, colour: str, x: float, foot: float) -> Thing:
    """A pin with a number in its head, its point at `foot`."""
    wide, tall = PIN_SIZE
    x = float(np.clip(x, 2, canvas.size[0] - wide - 2))
    box = rounded(x, foot - tall, x + wide, foot)
    x0, y0, x1, y1 = box
    rgb, middle = drawing.jitter(colour, rng), (x0 + x1) / 2
    mask = Image.new("L", (wide, tall))
    for paint, dx, dy, ground in (
        (ImageDraw.Draw(canvas.picture), x0, y0, True),
        (ImageDraw.Draw(mask), 0.0, 0.0, False),
    ):
        head = (dx, dy, dx + wide - 1, dy + wide - 1)
        point = (
            (dx + 8, dy + wide * 0.78),
            (dx + wide - 8, dy + wide * 0.78),
            (dx + wide / 2, dy + tall - 1),
        )
        edge = mix(rgb, (30, 30, 40) if sum(rgb) > 330 else (255, 255, 255), 0.7)
        paint.polygon(point, rgb if ground else 255, edge if ground else 255)
        paint.ellipse(head, rgb if ground else 255, edge if ground else 255, 2)
    area = (x0 + 11, y0 + 12, x1 - 11, y0 + wide - 12)
    paint = ImageDraw.Draw(canvas.picture)
    paint.ellipse((x0 + 9, y0 + 9, x1 - 9, y0 + wide - 9), (250, 249, 244))
    font = font_for(rng, ["88"], area[2] - area[0], area[3] - area[1], canvas.detail, canvas.hand)
    spot = write(paint, (middle, y0 + wide / 2), text, font, (30, 32, 44), "mm")
    thing = Thing("pin", colour, box, "number", text, spot)
    canvas.add(thing, mask)
    return thing
