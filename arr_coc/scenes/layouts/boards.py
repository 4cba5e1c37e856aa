"""A departure board: when something leaves, where it goes, and from which gate."""

import numpy as np
from PIL import ImageDraw

from arr_coc.scenes.canvas import Canvas
from arr_coc.scenes.drawing import RGB, Box, Rng
from arr_coc.scenes.facts import Facts, Line
from arr_coc.scenes.layouts.paint import font_for, mix, pick, ramp, resized, rounded, write
from arr_coc.scenes.layouts.plans import Plan
from arr_coc.scenes.questions import Thing

PLACES = ("rome", "oslo", "paris", "berlin", "lima", "cairo", "delhi", "tokyo", "madrid", "vienna")
PLACES += (
    "dublin",
    "lisbon",
    "prague",
    "seoul",
    "milan",
    "zurich",
    "athens",
    "bern",
    "kyoto",
    "nice",
)
VEHICLES = (("train", "platform"), ("flight", "gate"), ("bus", "stand"), ("ferry", "pier"))
STATES = ("on time", "on time", "delayed", "boarding")
# Of a board: its ground, every second line, its writing, and its heading.
STYLES: tuple[tuple[RGB, RGB, RGB, RGB], ...] = (
    ((24, 26, 34), (34, 37, 48), (252, 206, 84), (246, 246, 246)),
    ((20, 44, 92), (27, 54, 108), (246, 248, 252), (252, 216, 90)),
    ((246, 246, 242), (232, 234, 236), (30, 36, 56), (150, 30, 40)),
    ((22, 62, 56), (28, 74, 66), (240, 246, 236), (250, 208, 110)),
)
ROW = (42, 56)  # pixels of height of a line
LINES = (5, 18)
COLUMNS = {"time": 0.0, "place": 0.24, "gate": 0.62, "state": 0.76}  # where they begin
NARROW = 640  # pixels: a narrower board has no room for the last column
NARROW_COLUMNS = {"time": 0.0, "place": 0.3, "gate": 0.72}


def draw(rng: Rng, canvas: Canvas, plan: Plan) -> Facts:
    """A board with 5 to 18 lines in a hall."""
    width, height = canvas.size
    style = pick(rng, STYLES)
    wall = mix(style[0], (226, 224, 220), rng.uniform(0.72, 0.86))
    canvas.picture = ramp(canvas.size, mix(wall, (255, 255, 255), 0.5), wall)
    paint = ImageDraw.Draw(canvas.picture)
    board = _hall(rng, paint, canvas.size, wall)
    vehicle, gate = pick(rng, VEHICLES)
    columns = COLUMNS if board[2] - board[0] > NARROW else NARROW_COLUMNS
    step = rng.uniform(*ROW)
    head = 1.5 * step
    count = int(np.clip((board[3] - board[1] - head - step - 14) / step, *LINES))
    count = int(rng.integers(max(LINES[0], count - 3), count + 1))
    step = min(step * 1.3, (board[3] - board[1] - head - step - 14) / count)
    board = rounded(*board[:3], board[1] + head + (count + 0.9) * step + 8)
    edge = mix(style[0], (128, 128, 128), 0.5)
    paint.rounded_rectangle(board, 12, fill=style[0], outline=edge, width=5)
    texts = _texts(rng, count)
    left, right = board[0] + 22, board[2] - 18
    widest = min(_rooms(columns, right - left).values())
    font = font_for(
        rng, ["boarding", "platform"], max(70, widest - 10), step - 8, canvas.detail, canvas.hand
    )
    _heading(paint, (left, board[1], right, board[1] + head), vehicle, style, font)
    y = board[1] + head
    for key, share in columns.items():
        title = {"place": "TO", "gate": gate.upper(), "state": ""}.get(key, key.upper())
        small = resized(font, font.size * 0.72)
        write(paint, (left + share * (right - left), y + step * 0.36), title, small, style[3])
    lines = []
    for i in range(count):
        row = rounded(board[0] + 8, y + (i + 0.72) * step, board[2] - 8, y + (i + 1.72) * step)
        if i % 2 == 0:
            paint.rectangle(row, style[1])
        cells = {}
        for key, share in columns.items():
            at = (left + share * (right - left), (row[1] + row[3]) / 2)
            text = texts[key][i]
            shown = text.upper() if key == "place" else text
            ink = style[3] if key == "state" and text != "on time" else style[2]
            box = write(paint, at, shown, font, ink)
            cells[key] = Thing("", "", box, "cell", text, box)
            canvas.add(cells[key])
        lines.append(Line(cells))
    return Facts("board", lines=tuple(lines), vehicle=vehicle, gate=gate)


def _rooms(columns: dict[str, float], width: float) -> dict[str, float]:
    """How wide each column is, in pixels."""
    ends = [*list(columns.values())[1:], 1.0]
    return {
        key: (end - start) * width for (key, start), end in zip(columns.items(), ends, strict=True)
    }


def _texts(rng: Rng, count: int) -> dict[str, list[str]]:
    """What each column says, line by line: times in order, no place, time or gate twice."""
    minutes = np.sort(rng.choice(np.arange(5 * 12, 23 * 12), count, replace=False)) * 5
    return {
        "time": [f"{m // 60:02d}:{m % 60:02d}" for m in minutes],
        "place": [str(place) for place in rng.permutation(PLACES)[:count]],
        "gate": [str(gate) for gate in rng.choice(np.arange(10, 100), count, replace=False)],
        "state": [str(state) for state in rng.choice(STATES, count)],
    }


def _hall(rng: Rng, paint: ImageDraw.ImageDraw, size: tuple[int, int], wall: RGB) -> Box:
    """Pillars and a floor; returns the box of the board that hangs there."""
    width, height = size
    floor, dark = height * 0.93, mix(wall, (70, 72, 84), 0.3)
    for x in np.arange(rng.uniform(-40, 40), width, rng.uniform(120, 200)):
        paint.rectangle((x, 0, x + 18, floor), mix(wall, (255, 255, 255), 0.35))
        paint.rectangle((x + 18, 0, x + 22, floor), mix(wall, dark, 0.5))
    paint.rectangle((0, floor, width, height), dark)
    paint.line((0, floor, width, floor), mix(wall, (255, 255, 255), 0.5), 4)
    margin = rng.uniform(0.02, 0.05) * width
    top, bottom = rng.uniform(0.04, 0.09) * height, rng.uniform(0.9, 0.95) * height
    for x in (0.25 * width, 0.75 * width):
        paint.rectangle((x - 4, 0, x + 4, top), (96, 98, 106))
    return rounded(margin, top, width - margin, bottom)


def _heading(paint: ImageDraw.ImageDraw, box: Box, vehicle: str, style: tuple, font) -> None:
    """What leaves, in large letters, and a clock."""
    middle = (box[1] + box[3]) / 2 + 4
    big = resized(font, min(1.5 * font.size, (box[3] - box[1]) * 0.6))
    plural = {"bus": "BUSES", "ferry": "FERRIES"}.get(vehicle, f"{vehicle}s".upper())
    write(paint, (box[0], middle), plural, big, style[3])
    r = (box[3] - box[1]) * 0.3
    x = box[2] - r - 4
    paint.ellipse(
        (x - r, middle - r, x + r, middle + r), (250, 250, 246), mix(style[0], (128,) * 3, 0.6), 3
    )
    paint.line((x, middle, x, middle - r * 0.62), (30, 30, 36), 3)
    paint.line((x, middle, x + r * 0.45, middle + r * 0.2), (30, 30, 36), 3)
