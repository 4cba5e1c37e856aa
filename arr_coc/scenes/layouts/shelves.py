"""Market shelves: rows of goods, each above its price tag."""

import numpy as np
from PIL import ImageDraw

from arr_coc.scenes import drawing, writing
from arr_coc.scenes.canvas import Canvas
from arr_coc.scenes.drawing import Rng
from arr_coc.scenes.facts import Facts
from arr_coc.scenes.layouts.paint import WALLS, awning, mix, pick, ramp, rounded
from arr_coc.scenes.layouts.plans import Plan, cast, castable, deal_colours, sized
from arr_coc.scenes.parts import draw_glyph
from arr_coc.scenes.questions import Thing

GOODS = (10, 14)  # on shelves of 512 x 512 pixels; on larger ones more, though not as many more
GROWTH = 0.75  # power of the area with which they become more
PLACE_ASPECT = 1.12  # height over width of what a thing and its tag get
EDGE = 36  # height of a shelf's front, on which the tags hang, before `detail`
MOST_GOODS = 34  # different names are needed, and some to ask for in vain


def draw(rng: Rng, canvas: Canvas, plan: Plan) -> Facts:
    """Shelves from wall to wall under an awning."""
    width, height = canvas.size
    top = rng.uniform(0.06, 0.09) * height
    wall = pick(rng, WALLS)
    canvas.picture = ramp(
        canvas.size, mix(wall, (255, 255, 255), 0.4), mix(wall, (90, 80, 80), 0.2)
    )
    paint = ImageDraw.Draw(canvas.picture)
    goods = rng.uniform(*GOODS) * (width * height / 512**2) ** GROWTH
    place = np.sqrt(width * (height - top) / goods / PLACE_ASPECT)
    columns, rows = round(width / place), max(2, round((height - top) / place / PLACE_ASPECT))
    edge = float(np.clip(EDGE * canvas.detail, 30, 56))
    wood = mix(
        pick(rng, ((196, 160, 120), (168, 132, 104), (214, 206, 196), (150, 158, 166))), wall, 0.3
    )
    side, step = 10, (height - top) / rows
    across = (width - 2 * side) / columns
    for row in range(rows):
        _shelf(paint, top + row * step, top + (row + 1) * step, width, edge, wood)
    for x in (0, width - side):
        paint.rectangle((x, top, x + side, height), mix(wood, (60, 50, 40), 0.25))
    awning(
        paint, (0, 0, width, top), pick(rng, ((176, 120, 112), (116, 144, 132), (120, 136, 164)))
    )
    places = [(row, column) for row in range(rows) for column in range(columns)]
    most = min(MOST_GOODS, castable(canvas))
    taken = max(1, round(min(most, len(places) * rng.uniform(0.85, 1))))
    places = [places[i] for i in sorted(rng.permutation(len(places))[:taken])]
    names, counted = cast(rng, canvas, taken, plan.most)
    colours, asked = deal_colours(rng, taken, plan)
    for (row, column), name, colour in zip(places, names, colours, strict=True):
        x, foot = side + column * across, top + (row + 1) * step - edge
        room = (across - 12, step - edge - 16)
        aspect = drawing.glyph_aspect(name, 0.0, canvas.hand)
        w, h = sized(rng, aspect, 0.42 * min(room), 0.96 * min(room), room)
        left = x + (across - w) * rng.uniform(0.35, 0.65)
        box = rounded(left, foot - h, left + int(w), foot)
        mask, colour = draw_glyph(rng, canvas, name, colour, box)
        text = f"${rng.integers(2, 100)}"
        area = (x + 4, foot + 2, x + across - 4, foot + edge - 2)
        tag = writing.plate(
            rng, canvas.picture, text, area, canvas.detail, at="bottom", hand=canvas.hand
        )
        canvas.add(Thing(name, colour, box, "price", text, tag), mask)
    return Facts("market", counted, tuple(("", colour) for colour in asked))


def _shelf(
    paint: ImageDraw.ImageDraw, top: float, bottom: float, width: float, edge: float, wood: tuple
) -> None:
    """One shelf: its shaded back and its front edge."""
    shade = mix(wood, (70, 60, 54), 0.35)
    paint.rectangle((0, top, width, top + 9), shade)
    paint.rectangle((0, bottom - edge, width, bottom), wood)
    paint.rectangle((0, bottom - edge, width, bottom - edge + 3), mix(wood, (255, 255, 255), 0.5))
    paint.line((0, bottom - 1, width, bottom - 1), shade, 3)
