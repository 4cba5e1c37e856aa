"""A crowd of things out in the open, some with signs beside them, some with a price."""

from arr_coc.scenes import drawing, writing
from arr_coc.scenes.canvas import Canvas
from arr_coc.scenes.drawing import Box, Rng
from arr_coc.scenes.facts import Facts
from arr_coc.scenes.layouts.paint import rounded
from arr_coc.scenes.layouts.plans import Plan, cast, castable, deal_colours, sized
from arr_coc.scenes.parts import add_host, draw_glyph
from arr_coc.scenes.questions import Thing

CELL = 146  # pixels that a thing gets, each way; the things stand anywhere in their cells
FILLED = (0.72, 0.95)  # share of the cells that hold something
SIDES = (52, 122)  # a thing has the area of a square of such a side
HOST_SIZES = {"sign": (100, 112), "flag": (104, 116), "door": (68, 124), "shirt": (126, 112)}
SIGN_GAP = (3, 14)  # pixels between a thing and the sign beside it
SCENERY = ("house",)  # of a background
LONE_ENDS = 0.3  # of the crowds have one thing that is clearly leftmost, one rightmost
TURNED = 0.4  # share of the things that are not upright: turning takes time
CELLS_PER_SIGN = 9
MOST_GLYPHS = 25  # besides those with a sign: each has a name of its own


def draw(rng: Rng, canvas: Canvas, plan: Plan) -> Facts:
    """Things on a background, loosely in rows."""
    width, height = canvas.size
    canvas.picture, setting = drawing.background(rng, canvas.size, canvas.hand)
    columns, rows = width // CELL, height // CELL
    across, down = width / columns, height / rows
    cells = [(column, row) for row in range(rows) for column in range(columns)]
    pairable = cells
    if "leftmost" in plan.wanted or (not plan.wanted and rng.random() < LONE_ENDS):
        pairable, ends = _with_lone_ends(rng, cells, columns)
        cells = pairable + ends
    signed = _signed_cells(rng, pairable)
    free = [cell for cell in cells if cell not in signed]
    hosts = list(rng.permutation(list(HOST_SIZES)))[: 2 + len(cells) // 16]
    glyphs = min(MOST_GLYPHS, castable(canvas, SCENERY) - len(signed) // 2)
    filled = min(round(len(free) * rng.uniform(*FILLED)), glyphs + len(hosts))
    free = [free[i] for i in rng.permutation(len(free))[:filled]]
    hosts = hosts[: len(free)]
    names, counted = cast(
        rng, canvas, len(free) - len(hosts) + len(signed) // 2, plan.most, SCENERY
    )
    colours, asked = deal_colours(rng, len(names) + len(hosts) + len(signed) // 2, plan)
    signs = []
    for left, _ in zip(signed[::2], signed[1::2], strict=True):
        box = (left[0] * across, left[1] * down, (left[0] + 2) * across, (left[1] + 1) * down)
        signs.append(_with_sign(rng, canvas, (names.pop(), colours.pop(), colours.pop()), box))
    priced = set(rng.permutation(len(names))[: rng.integers(2, plan.most + 1)])
    for i, (column, row) in enumerate(free):
        box = (column * across, row * down, (column + 1) * across, (row + 1) * down)
        if i < len(names):
            price = i in priced and names[i] != counted
            _add_glyph(rng, canvas, names[i], colours.pop(), box, price=price)
        else:
            name = str(hosts[i - len(names)])
            colour = colours.pop()
            others = [c for c in drawing.COLOURS if c != colour]
            pair = (colour, others[rng.integers(len(others))])
            place = _within(rng, box, HOST_SIZES[name])
            add_host(rng, canvas, name, place, plan.details(name), pair)
    dealt = tuple(("", c) for c in asked)
    return Facts(setting, counted, dealt, tuple(signs), scenery=SCENERY)


def _with_lone_ends(rng: Rng, cells: list, columns: int) -> tuple[list, list]:
    """The cells of the inner columns, and one cell each of the first column and the last."""
    ends = [[cell for cell in cells if cell[0] == column] for column in (0, columns - 1)]
    kept = [cell for cell in cells if 0 < cell[0] < columns - 1]
    return kept, [end[rng.integers(len(end))] for end in ends]


def _signed_cells(rng: Rng, cells: list) -> list:
    """Cells for things with signs, each with its right neighbour: [thing, sign, thing, sign, ...]."""
    chosen: list = []
    for i in rng.permutation(len(cells)):
        column, row = cells[i]
        pair = [(column, row), (column + 1, row)]
        if pair[1] in cells and not set(pair) & set(chosen):
            chosen += pair
        if len(chosen) // 2 >= max(1, len(cells) // CELLS_PER_SIGN):
            break
    return chosen


def _within(rng: Rng, cell: Box, size: tuple[float, float]) -> Box:
    """A box of `size` somewhere in the cell, scaled down where it would not fit."""
    room = (cell[2] - cell[0] - 10, cell[3] - cell[1] - 10)
    shrink = min(1.0, room[0] / size[0], room[1] / size[1])
    w, h = int(size[0] * shrink), int(size[1] * shrink)
    x = round(cell[0] + 5 + rng.uniform(0, room[0] - w))
    y = round(cell[1] + 5 + rng.uniform(0, room[1] - h))
    return float(x), float(y), float(x + w), float(y + h)


def _add_glyph(
    rng: Rng, canvas: Canvas, name: str, colour: str, cell: Box, *, price: bool
) -> Thing:
    """A glyph in its cell; where `price`, with a tag stuck on it."""
    angle = float(rng.uniform(-10, 10)) if rng.random() < TURNED else 0.0
    low, high = (84, SIDES[1]) if price else SIDES  # a smaller thing would vanish behind its tag
    room = (cell[2] - cell[0] - 10, cell[3] - cell[1] - 10)
    box = _within(
        rng, cell, sized(rng, drawing.glyph_aspect(name, angle, canvas.hand), low, high, room)
    )
    mask, colour = draw_glyph(rng, canvas, name, colour, box, angle=angle)
    thing = Thing(name, colour, box)
    if price:
        text = f"${rng.integers(2, 100)}"
        area = (box[0], box[1] + 0.4 * (box[3] - box[1]), box[2], box[3])
        tag = writing.plate(
            rng, canvas.picture, text, area, canvas.detail, at="bottom", hand=canvas.hand
        )
        thing = Thing(name, colour, box, "price", text, tag)
    canvas.add(thing, mask)
    return thing


def _with_sign(
    rng: Rng, canvas: Canvas, dealt: tuple[str, str, str], cells: Box
) -> tuple[str, Thing, Thing]:
    """A thing and a sign close beside it, on its right or its left, with a word or a number.

    `dealt` are the thing's name, its colour and the sign's.
    """
    name, colour, other = dealt
    y0, y1 = cells[1] + 5, cells[3] - 5
    aspect = drawing.glyph_aspect(name, 0.0, canvas.hand)
    w, h = sized(rng, aspect, 64, SIDES[1], (cells[2] - cells[0] - 130, y1 - y0))
    sign_w, sign_h = (min(v, y1 - y0) for v in HOST_SIZES["sign"])
    gap = rng.uniform(*SIGN_GAP)
    x = cells[0] + 5 + rng.uniform(0, cells[2] - cells[0] - w - gap - sign_w - 10)
    foot = y0 + rng.uniform(max(h, sign_h), y1 - y0)
    right = rng.random() < 0.5
    thing_x, sign_x = (x, x + w + gap) if right else (x + sign_w + gap, x)
    box = rounded(thing_x, foot - h, thing_x + int(w), foot)
    mask, colour = draw_glyph(rng, canvas, name, colour, box)
    thing = Thing(name, colour, box)
    canvas.add(thing, mask)
    board = rounded(sign_x, foot - sign_h, sign_x + sign_w, foot)
    sign = add_host(rng, canvas, "sign", board, ("word", "number"), (other, other))
    return "next", thing, sign
