"""Shop fronts from near: each has a name, a door with a number, and goods with prices in its window."""

import numpy as np
from PIL import Image, ImageDraw

from arr_coc.scenes import drawing, writing
from arr_coc.scenes.canvas import Canvas
from arr_coc.scenes.drawing import Box, Rng
from arr_coc.scenes.facts import Facts
from arr_coc.scenes.layouts.fronts import AWNINGS, GLASS, WINDOW_FRAME, name_board
from arr_coc.scenes.layouts.paint import WALLS, awning, mix, pick, rounded, window
from arr_coc.scenes.layouts.plans import Plan, cast, castable, deal_colours, sized
from arr_coc.scenes.parts import add_host, draw_glyph
from arr_coc.scenes.questions import Thing

SHOP = (322, 250)  # pixels across and down, about
DOOR_WIDTH, BOARD_HEIGHT = 62, 44
SCENERY = ("house",)
MOST_GOODS = 32  # each has a name of its own, but for those that are counted
GOOD = 72  # pixels across that a thing in a window gets
TAG_ROOM = 32  # pixels under a thing for its price


def draw(rng: Rng, canvas: Canvas, plan: Plan) -> Facts:
    """Rows of shops from edge to edge."""
    width, height = canvas.size
    rows, columns = max(1, round(height / SHOP[1])), max(1, round(width / SHOP[0]))
    wide, tall = width / columns, height / rows
    canvas.picture = Image.new("RGB", canvas.size, mix(pick(rng, WALLS), (90, 84, 84), 0.3))
    boxes = [
        (column * wide, row * tall, (column + 1) * wide, (row + 1) * tall)
        for row in range(rows)
        for column in range(columns)
    ]
    goods = max(1, int((wide - DOOR_WIDTH - 56) / GOOD))
    words = [str(word) for word in rng.permutation(writing.WORDS)[: len(boxes)]]
    counts = [int(rng.integers(max(1, goods - 1), goods + 1)) for _ in boxes]
    while sum(counts) > min(MOST_GOODS, castable(canvas, SCENERY)):
        counts[int(np.argmax(counts))] -= 1
    names, counted = cast(rng, canvas, sum(counts), plan.most, SCENERY)
    colours, _ = deal_colours(rng, len(names), plan)
    doors, asked_doors = deal_colours(rng, len(boxes), plan)
    signs: list[tuple[str, Thing, Thing]] = []
    for box, word, count, door in zip(boxes, words, counts, doors, strict=True):
        inside = [(names.pop(), colours.pop()) for _ in range(count)]
        sign, things = _shop(rng, canvas, box, word, inside, door, plan.details("door"))
        signs += [("shop", thing, sign) for thing in things]
    dealt = tuple(("door", c) for c in asked_doors)
    return Facts("shops", counted, dealt, tuple(signs), scenery=SCENERY)


def _shop(
    rng: Rng,
    canvas: Canvas,
    box: Box,
    word: str,
    goods: list[tuple[str, str]],
    door: str,
    details: list[str],
) -> tuple[Thing, list[Thing]]:
    """One shop with goods, `(name, colour)` each, in its window; returns its board and the goods."""
    x0, y0, x1, y1 = box
    paint = ImageDraw.Draw(canvas.picture)
    wall = pick(rng, WALLS)
    paint.rectangle((x0 + 3, y0, x1 - 3, y1), wall, mix(wall, (70, 60, 60), 0.4))
    for x in (x0 + 3, x1 - 13):
        paint.rectangle((x, y0, x + 10, y1), mix(wall, (255, 255, 255), 0.45))
    board = rounded(x0 + 18, y0 + 8, x1 - 18, y0 + 8 + BOARD_HEIGHT)
    sign = name_board(rng, canvas, board, word)
    paint.rectangle((x0 + 3, y1 - 20, x1 - 3, y1), mix(wall, (90, 80, 80), 0.45))
    right = rng.random() < 0.5
    door_x = x1 - 20 - DOOR_WIDTH if right else x0 + 20
    front = rounded(door_x, y0 + 96, door_x + DOOR_WIDTH, y1 - 20)
    others = [name for name in drawing.COLOURS if name != door]
    paint.rectangle((front[0] - 5, front[1] - 5, front[2] + 4, front[3]), WINDOW_FRAME)
    add_host(rng, canvas, "door", front, details, (door, str(pick(rng, others))))
    left, end = (x0 + 24, front[0] - 14) if right else (front[2] + 14, x1 - 24)
    pane = (left, y0 + 64, end, y1 - 30)
    window(paint, pane, mix(GLASS, (255, 250, 236), 0.55), WINDOW_FRAME, cross=False)
    paint.rectangle((left, pane[3] - TAG_ROOM, end, pane[3]), (206, 178, 144))
    awning(paint, (left - 8, y0 + 58, end + 8, y0 + 90), pick(rng, AWNINGS))
    step, foot = (end - left) / len(goods), pane[3] - TAG_ROOM
    room = (min(step - 8, 104), foot - pane[1] - 34)
    things = []
    for i, (name, colour) in enumerate(goods):
        w, h = sized(
            rng, drawing.glyph_aspect(name, 0.0, canvas.hand), 0.55 * room[0], room[0], room
        )
        x = left + (i + 0.5) * step - w / 2
        at = rounded(x, foot - h, x + int(w), foot)
        mask, colour = draw_glyph(rng, canvas, name, colour, at)
        text = f"${rng.integers(2, 100)}"
        area = (left + i * step + 2, foot + 1, left + (i + 1) * step - 2, pane[3] - 1)
        tag = writing.plate(
            rng, canvas.picture, text, area, canvas.detail, at="bottom", hand=canvas.hand
        )
        things.append(Thing(name, colour, at, "price", text, tag))
        canvas.add(things[-1], mask)
    return sign, things
