"""House fronts of the street and the shops: walls, roofs, windows, awnings, boards over a shop window."""

import numpy as np
from PIL import ImageDraw

from arr_coc.scenes import drawing, writing
from arr_coc.scenes.canvas import Canvas
from arr_coc.scenes.drawing import RGB, Box, Rng
from arr_coc.scenes.layouts.paint import WALLS, awning, mix, pick, rounded, window
from arr_coc.scenes.questions import Thing

WINDOW_FRAME = (246, 243, 236)
AWNINGS = ((176, 124, 116), (120, 146, 136), (126, 140, 166), (188, 160, 116), (150, 128, 150))
GLASS = (176, 200, 214)
ROOFS = ((150, 104, 92), (112, 118, 130), (140, 120, 104))
GROUND_FLOOR, FLOOR = 126, 62  # pixels of height
PANE = (26, 38)  # pixels of an upper window
NARROWEST_BOARD = 74  # pixels
POSTS = 16  # pixels of height under a billboard
BOARD_HEIGHT = 34  # pixels of the board with a shop's name


def house(
    rng: Rng, paint: ImageDraw.ImageDraw, box: Box, *, low: bool = False
) -> tuple[float, list[Box]]:
    """A house in `box`, mostly lower than it, a `low` one without upper floors.

    Returns the wall's upper end and its upper windows.
    """
    x0, y0, x1, y1 = box
    wall = pick(rng, WALLS)
    floors = max(0, int((y1 - y0 - GROUND_FLOOR - 22) / FLOOR))
    floors = 0 if low else floors - int(floors > 1 and rng.random() < 0.4)
    top = y1 - GROUND_FLOOR - floors * FLOOR
    shade, pale = mix(wall, (80, 70, 70), 0.3), mix(wall, (255, 255, 255), 0.5)
    peak = min(top - y0, rng.uniform(16, 34))
    if rng.random() < 0.5:
        roof = (
            (x0 - 3, top),
            (x0 + (x1 - x0) * 0.14, top - peak),
            (x1 - (x1 - x0) * 0.14, top - peak),
        )
        paint.polygon((*roof, (x1 + 3, top)), pick(rng, ROOFS))
    else:
        paint.rectangle((x0, top - 12, x1, top), shade)
        paint.rectangle((x0 + 4, top - 20, x1 - 4, top - 12), pale)
    paint.rectangle((x0, top, x1, y1), wall)
    if rng.random() < 0.3:  # courses of brick
        for y in np.arange(top + 8, y1 - GROUND_FLOOR, 9):
            paint.line((x0, y, x1, y), mix(wall, shade, 0.35))
    paint.line((x1 - 1, top, x1 - 1, y1), shade, 2)
    paint.rectangle((x0, y1 - GROUND_FLOOR, x1, y1 - GROUND_FLOOR + 5), pale)
    paint.rectangle((x0, y1 - 10, x1, y1), shade)
    return top, _windows(rng, paint, (x0, top, x1, y1 - GROUND_FLOOR), floors)


def _windows(rng: Rng, paint: ImageDraw.ImageDraw, wall: Box, floors: int) -> list[Box]:
    """Windows floor by floor, some lit, some with a box of plants."""
    x0, top, x1, _ = wall
    columns, boxes = max(2, round((x1 - x0) / 54)), []
    step = (x1 - x0) / columns
    for floor in range(floors):
        for column in range(columns):
            x = x0 + (column + 0.5) * step - PANE[0] / 2
            y = top + floor * FLOOR + 14
            box = rounded(x, y, x + PANE[0], y + PANE[1])
            glass = (250, 232, 176) if rng.random() < 0.18 else GLASS
            window(paint, box, glass, WINDOW_FRAME, cross=True)
            if rng.random() < 0.22:
                paint.rectangle((x - 4, box[3] + 1, box[2] + 4, box[3] + 8), (156, 120, 96))
                paint.ellipse((x - 2, box[3] - 7, box[2] + 2, box[3] + 4), (150, 176, 132))
            boxes.append(box)
    return boxes


def fascia(rng: Rng, canvas: Canvas, box: Box, *, board: bool) -> Thing | None:
    """A shop window in `box` under an awning, or under a `board` with a word, which is returned.

    A window too narrow for a word that can be read has an awning.
    """
    x0, y0, x1, y1 = box
    board = board and x1 - x0 >= NARROWEST_BOARD
    paint = ImageDraw.Draw(canvas.picture)
    head = BOARD_HEIGHT if board else 26
    window(
        paint, (x0, y0 + head, x1, y1), mix(GLASS, (90, 100, 120), 0.15), WINDOW_FRAME, cross=False
    )
    if not board:
        awning(paint, (x0 - 5, y0, x1 + 5, y0 + head + 6), pick(rng, AWNINGS))
        return None
    return name_board(rng, canvas, rounded(x0 - 5, y0 - 4, x1 + 5, y0 + head), writing.word(rng))


def billboard(rng: Rng, canvas: Canvas, box: Box) -> Thing:
    """A billboard on two posts, lit from below, with a word or a formula."""
    x0, y0, x1, y1 = box
    paint, foot = ImageDraw.Draw(canvas.picture), y1 - POSTS
    for x in (x0 + 0.22 * (x1 - x0), x0 + 0.78 * (x1 - x0)):
        paint.rectangle((x - 3, foot, x + 3, y1), (104, 104, 112))
        paint.polygon(((x - 8, foot + 5), (x + 8, foot + 5), (x, foot - 2)), (244, 226, 150))
    return _board_thing(rng, canvas, "billboard", box, (x0, y0, x1, foot), writing.word(rng))


def name_board(rng: Rng, canvas: Canvas, box: Box, word: str) -> Thing:
    """A shop's board with its name on a plate: a sign."""
    return _board_thing(rng, canvas, "sign", box, box, word)


def _board_thing(rng: Rng, canvas: Canvas, name: str, box: Box, board: Box, word: str) -> Thing:
    """A thing that is, or holds, a coloured `board` with a word on a plate."""
    colour = str(pick(rng, list(drawing.COLOURS)))
    rgb: RGB = drawing.jitter(colour, rng)
    paint = ImageDraw.Draw(canvas.picture)
    edge = mix(rgb, (30, 30, 40) if sum(rgb) > 330 else (255, 255, 255), 0.7)
    paint.rounded_rectangle(board, 5, fill=rgb, outline=edge, width=3)
    area = (board[0] + 6, board[1] + 4, board[2] - 6, board[3] - 4)
    where = writing.plate(
        rng, canvas.picture, word, area, canvas.detail, at="anywhere", hand=canvas.hand
    )
    thing = Thing(name, colour, box, "word", word, where)
    canvas.add(thing)
    return thing
