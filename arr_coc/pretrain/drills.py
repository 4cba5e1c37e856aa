"""Drills: pictures drawn for lessons, of a few things that invite to be compared.

Scenes leave to chance whether two things share a colour or both have a price, and there what takes two
steps came up too seldom to be learned. Nobody is evaluated on them.
"""

import numpy as np

from arr_coc.scenes import drawing
from arr_coc.scenes.canvas import Canvas, Scene
from arr_coc.scenes.hands import Style
from arr_coc.scenes.parts import add_glyph

SPACE = 96  # pixels on a side of the place that a thing may take
SIDES = (48, 88)  # pixels of a thing's longer side
FEWEST, FILLED_SHARE = 4, 0.75  # things, and of the places at most this share is taken
COLOURS = 4  # that few things have; half as many as things where these are more
PRICED_SHARE = 0.5  # of the drills whose things are dealt colours
MARGIN, LARGEST_ANGLE = 3, 12  # pixels to the edge of its place, and degrees either way


def drill(rng: np.random.Generator, size: tuple[int, int], hand: Style | None) -> Scene:
    """Things of unlike names in few colours, on a grid, in half of the drills or more with prices.

    `size` is (width, height) in pixels, `hand` None for the home hand. It has no questions of its own.
    """
    canvas = Canvas(size, 1.0, hand)
    canvas.picture, setting = drawing.background(rng, size, hand)
    columns, rows = size[0] // SPACE, size[1] // SPACE
    # Things in colours of their own have nothing else to be compared by.
    priced = rng.random() < PRICED_SHARE or (hand is not None and hand.own_colours)
    most = max(FEWEST, round(FILLED_SHARE * rows * columns))
    places = rng.permutation(rows * columns)[: rng.integers(FEWEST, most + 1)]
    colours = rng.permutation(list(drawing.COLOURS))[: max(COLOURS, len(places) // 2)]
    for name, place in zip(rng.permutation(canvas.names()), places, strict=False):
        angle = float(rng.uniform(-LARGEST_ANGLE, LARGEST_ANGLE))
        side = SIDES[1] if priced else rng.uniform(*SIDES)
        aspect = drawing.glyph_aspect(str(name), angle, hand)
        width, height = int(side * min(1, aspect)), int(side * min(1, 1 / aspect))
        x = int(place % columns * SPACE + rng.uniform(MARGIN, SPACE - width - MARGIN))
        y = int(place // columns * SPACE + rng.uniform(MARGIN, SPACE - height - MARGIN))
        box = (float(x), float(y), float(x + width), float(y + height))
        colour = str(rng.choice(colours))
        add_glyph(rng, canvas, str(name), colour, box, angle=angle, priced=bool(priced))
    return Scene(0, canvas.finished(), (), tuple(canvas.things), setting, canvas.things_map)
