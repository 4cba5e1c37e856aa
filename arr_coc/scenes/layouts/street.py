"""A busy street: rows of houses with doors, flags and signs, and people on the pavement before them."""

from collections.abc import Sequence

import numpy as np
from PIL import ImageDraw

from arr_coc.scenes import drawing
from arr_coc.scenes.canvas import Canvas
from arr_coc.scenes.drawing import Box, Rng
from arr_coc.scenes.facts import Facts
from arr_coc.scenes.layouts.fronts import POSTS, WINDOW_FRAME, billboard, fascia, house
from arr_coc.scenes.layouts.paint import mix, person, pick, ramp, rounded, tree
from arr_coc.scenes.layouts.plans import Plan, cast, castable, deal_colours, sized
from arr_coc.scenes.parts import add_host, draw_glyph
from arr_coc.scenes.questions import Thing

BAND = 500  # pixels of height that a row of houses with its pavement gets, about
HOUSE = (138, 190)  # pixels of width
PEOPLE_SHARE, SIGN_SHARE = 0.45, 0.45  # of the spots; of the things that have room for a sign
PERSON = (104, 182)  # width and height in pixels
SPOT = 118  # pixels of pavement that somebody or something gets
FLAG_SHARE, FASCIA_SHARE = 0.4, 0.5  # of the houses
FLAG, DOOR, BILLBOARD = (66, 70), (60, 112), (132, 76)  # pixels
BILLBOARD_SHARE = 0.6  # of the streets
HIGHEST_ROOF = 34  # pixels over a wall
SCENERY = ("tree", "house")
SKIES = (((196, 222, 244), (244, 240, 226)), ((238, 216, 204), (250, 238, 210)))
SKIES += (((206, 214, 236), (240, 226, 236)),)


def draw(rng: Rng, canvas: Canvas, plan: Plan) -> Facts:
    """One row of houses, or two one above the other, each with its pavement."""
    width, height = canvas.size
    bands = max(1, round(height / BAND))
    canvas.picture = ramp(canvas.size, *pick(rng, SKIES))
    rows = [_widths(rng, width) for _ in range(bands)]
    doors, asked_doors = deal_colours(rng, sum(map(len, rows)), plan)
    spots = [[rng.random() < PEOPLE_SHARE for _ in range(round(width / SPOT))] for _ in rows]
    _fill_with_people(spots, castable(canvas, SCENERY))
    people = sum(map(sum, spots))
    shirts, asked_shirts = deal_colours(rng, people, plan)
    names, counted = cast(rng, canvas, sum(map(len, spots)) - people, plan.most, SCENERY)
    colours, _ = deal_colours(rng, len(names), plan)
    # At most one billboard in a picture, so that it needs no other name.
    advert = int(rng.integers(len(rows[0]))) if rng.random() < BILLBOARD_SHARE else None
    signs: list[tuple[str, Thing, Thing]] = []
    for band, widths in enumerate(rows):
        top, bottom = band * height / bands, (band + 1) * height / bands
        ground = round(top + (bottom - top) * 0.58)
        _backdrop(rng, canvas, (top, ground))
        _houses(rng, canvas, widths, (top, ground), doors, plan, advert if band == 0 else None)
        _pavement(rng, canvas, (ground, bottom))
        free = width / len(spots[band])
        for i, is_person in enumerate(spots[band]):
            spot = (i * free, ground, (i + 1) * free, bottom)
            if is_person:
                _somebody(rng, canvas, spot, shirts.pop(), plan)
            else:
                signs += _something(rng, canvas, spot, names.pop(), colours.pop())
    dealt = [("door", c) for c in asked_doors] + [("shirt", c) for c in asked_shirts]
    return Facts("street", counted, tuple(dealt), tuple(signs), scenery=SCENERY)


def _widths(rng: Rng, width: int) -> list[float]:
    """Widths of houses that fill `width` between them."""
    shares = rng.uniform(*HOUSE, max(2, round(width / np.mean(HOUSE))))
    return list(shares / shares.sum() * width)


def _fill_with_people(spots: list[list[bool]], most: int) -> None:
    """People in some spots more, the last ones, so that at most so many are left for things."""
    things = sum(not person for row in spots for person in row)
    for row in reversed(spots):
        for i in range(len(row)):
            if things > most and not row[i]:
                row[i], things = True, things - 1


def _backdrop(rng: Rng, canvas: Canvas, span: tuple[float, float]) -> None:
    """Clouds, and trees that look over the roofs."""
    width, (top, ground) = canvas.size[0], span
    paint = ImageDraw.Draw(canvas.picture, "RGBA")
    for x in rng.uniform(0, width, 1 + width // 400):
        y, r = top + rng.uniform(0.1, 0.3) * (ground - top), rng.uniform(12, 24)
        for step, rise in ((-1.4, 0.7), (0, 1.0), (1.4, 0.8)):
            puff = (x + (step - 1.2) * r, y - rise * r, x + (step + 1.2) * r, y + rise * r)
            paint.ellipse(puff, (255, 255, 255, 150))
    for x in rng.uniform(0, width, rng.integers(2, 3 + width // 260)):
        tree(paint, rng, x, ground, rng.uniform(0.8, 0.96) * (ground - top))


def _houses(
    rng: Rng,
    canvas: Canvas,
    widths: Sequence[float],
    span: tuple[float, float],
    doors: list[str],
    plan: Plan,
    low: int | None,
) -> None:
    """A row of houses from the sky (top of `span`) to the ground, each with a door.

    House number `low`, if any, has a billboard on its roof.
    """
    paint, x = ImageDraw.Draw(canvas.picture), 0.0
    for i, wide in enumerate(widths):
        right = rng.random() < 0.5
        roof, windows = house(rng, paint, (x, span[0] + 8, x + wide, span[1]), low=i == low)
        foot = roof - HIGHEST_ROOF + POSTS
        if i == low and foot - BILLBOARD[1] > span[0]:
            middle, half = x + wide / 2, min(BILLBOARD[0], wide - 16) / 2
            billboard(rng, canvas, rounded(middle - half, foot - BILLBOARD[1], middle + half, foot))
        door_x = x + wide - DOOR[0] - 12 if right else x + 12
        box = rounded(door_x, span[1] - DOOR[1], door_x + DOOR[0], span[1])
        paint.rectangle((box[0] - 5, box[1] - 5, box[2] + 4, box[3]), WINDOW_FRAME)
        colour = doors.pop()
        add_host(rng, canvas, "door", box, plan.details("door"), (colour, _other(rng, colour)))
        free = (x + 12, x + wide - DOOR[0] - 26) if right else (x + DOOR[0] + 26, x + wide - 12)
        shop = (free[0], span[1] - 112, free[1], span[1] - 8)
        fascia(rng, canvas, shop, board=bool(rng.random() < FASCIA_SHARE))
        if windows and rng.random() < FLAG_SHARE:
            left, top = windows[rng.integers(len(windows))][:2]
            flag_x = min(max(x + 4, left - 12), x + wide - FLAG[0] - 4)
            flag = rounded(flag_x, top - 8, flag_x + FLAG[0], top - 8 + FLAG[1])
            if flag[1] > max(roof, span[0]) and flag[3] < box[1] - 6:
                colour = str(pick(rng, list(drawing.COLOURS)))
                pair = (colour, _other(rng, colour))
                add_host(rng, canvas, "flag", flag, plan.details("flag"), pair, grounded=False)
        x += wide


def _other(rng: Rng, colour: str) -> str:
    """Any colour but this one."""
    return str(pick(rng, [name for name in drawing.COLOURS if name != colour]))


def _pavement(rng: Rng, canvas: Canvas, span: tuple[float, float]) -> None:
    """Paving stones, a kerb, a strip of road and some trees."""
    width, (top, bottom) = canvas.size[0], span
    paint = ImageDraw.Draw(canvas.picture)
    stone = pick(rng, ((222, 216, 204), (210, 212, 214), (228, 214, 200)))
    kerb = bottom - (bottom - top) * 0.16
    paint.rectangle((0, top, width, kerb), stone)
    joint = mix(stone, (120, 116, 110), 0.16)
    for i, y in enumerate(np.linspace(top, kerb, 6)[:-1]):
        paint.line((0, y, width, y), joint)
        for x in np.arange((i % 2) * 34 - rng.uniform(0, 20), width, 68):
            paint.line((x, y, x - 8, y + (kerb - top) / 5), joint)
    paint.rectangle((0, kerb, width, bottom), (150, 152, 160))
    paint.rectangle((0, kerb - 5, width, kerb), (238, 234, 226))
    for x in np.arange(rng.uniform(-50, 0), width, 90):
        paint.rectangle((x, (kerb + bottom) / 2, x + 46, (kerb + bottom) / 2 + 5), (236, 234, 226))


def _somebody(rng: Rng, canvas: Canvas, spot: Box, colour: str, plan: Plan) -> None:
    """A person in a shirt of the colour, somewhere in the spot."""
    tall = min(PERSON[1], spot[3] - spot[1] - 2) * rng.uniform(0.94, 1)
    wide = min(PERSON[0], spot[2] - spot[0] - 8)
    x = spot[0] + rng.uniform(4, spot[2] - spot[0] - wide - 4)
    foot = spot[3] - rng.uniform(2, max(3, spot[3] - spot[1] - tall))
    person(
        rng,
        canvas,
        (x, foot - tall, x + wide, foot),
        (colour, _other(rng, colour)),
        plan.details("shirt"),
    )


def _something(
    rng: Rng, canvas: Canvas, spot: Box, name: str, colour: str
) -> list[tuple[str, Thing, Thing]]:
    """A glyph in the spot, sometimes with a small sign above it: `("next", thing, sign)`."""
    tall, wide = spot[3] - spot[1], spot[2] - spot[0]
    signed = rng.random() < SIGN_SHARE
    room = (wide - 12, tall - 96 if signed else tall - 20)
    w, h = sized(rng, drawing.glyph_aspect(name, 0.0, canvas.hand), 46, 104, room)
    x = spot[0] + rng.uniform(6, wide - w - 6)
    low = spot[3] - (rng.uniform(4, 10) if signed else rng.uniform(4, tall - h - 14))
    box = rounded(x, low - h, x + int(w), low)
    mask, colour = draw_glyph(rng, canvas, name, colour, box)
    thing = Thing(name, colour, box)
    canvas.add(thing, mask)
    if not signed:
        return []
    side = 78
    left = min(max(spot[0] + 4, (box[0] + box[2] - side) / 2), spot[2] - side - 4)
    board = rounded(left, box[1] - 8 - side, left + side, box[1] - 8)
    other = str(pick(rng, list(drawing.COLOURS)))
    sign = add_host(rng, canvas, "sign", board, ("word", "number"), (other, _other(rng, other)))
    return [("above", thing, sign)]
