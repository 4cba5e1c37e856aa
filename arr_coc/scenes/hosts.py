"""Signs, flags and doors as other hands draw them: each in several shapes, in any colour.

A shape is given in shares of its box: posts, then a board in the named colour, then what lies on it.
Everything is drawn `FINER` times finer and averaged down. Sizes and boxes are in pixels.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageDraw

from arr_coc.scenes import shades
from arr_coc.scenes.drawing import RGB, Box

FINER = 3
Points = tuple[tuple[float, float], ...]


def _rectangle(x0: float, y0: float, x1: float, y1: float) -> Points:
    return ((x0, y0), (x1, y0), (x1, y1), (x0, y1))


def _wave(x0: float, y0: float, x1: float, y1: float, height: float) -> Points:
    """A rectangle whose long sides rise and fall once."""
    along = np.linspace(0, 1, 25)
    rise = height * np.sin(2 * np.pi * along)
    top = [(x0 + (x1 - x0) * t, y0 + r) for t, r in zip(along, rise, strict=True)]
    bottom = [(x, y + y1 - y0) for x, y in top]
    return (*top, *reversed(bottom))


def _arch(x0: float, y0: float, x1: float, y1: float, rise: float) -> Points:
    """A rectangle with a round top, `rise` high."""
    turn = np.linspace(np.pi, 2 * np.pi, 25)
    middle, half = (x0 + x1) / 2, (x1 - x0) / 2
    top = [(middle + half * np.cos(t), y0 + rise + rise * np.sin(t)) for t in turn]
    return (*top, (x1, y1), (x0, y1))


@dataclass(frozen=True)
class Shape:
    """One way to draw a host, in shares of its box.

    `area` is free for an emblem or a plate; `panels` are a little darker than the board, `panes` pale.
    """

    board: Points
    area: Box
    posts: Sequence[Points] = ()
    panels: Sequence[Points] = ()
    panes: Sequence[Points] = ()
    knob: tuple[float, float] | None = None


SHAPES = {
    "sign": (
        Shape(  # hung from a bar
            _rectangle(0.02, 0.2, 0.98, 0.92),
            (0.1, 0.28, 0.9, 0.84),
            (
                _rectangle(0, 0, 1, 0.07),
                _rectangle(0.17, 0.05, 0.2, 0.24),
                _rectangle(0.8, 0.05, 0.83, 0.24),
            ),
        ),
        Shape(  # an arrow on a post
            ((0, 0.04), (0.8, 0.04), (1, 0.32), (0.8, 0.6), (0, 0.6)),
            (0.07, 0.1, 0.78, 0.54),
            (_rectangle(0.4, 0, 0.48, 1),),
        ),
        Shape(  # on two posts, with a frame
            _rectangle(0, 0.03, 1, 0.7),
            (0.1, 0.1, 0.9, 0.62),
            (_rectangle(0.12, 0.5, 0.19, 1), _rectangle(0.81, 0.5, 0.88, 1)),
        ),
        Shape(  # a board that stands on the ground
            ((0.12, 0.02), (0.88, 0.02), (0.98, 0.9), (0.02, 0.9)),
            (0.17, 0.1, 0.83, 0.8),
            (_rectangle(0.04, 0.88, 0.12, 1), _rectangle(0.88, 0.88, 0.96, 1)),
        ),
    ),
    "flag": (
        Shape(
            _wave(0.06, 0.1, 1, 0.62, 0.05), (0.16, 0.18, 0.9, 0.54), (_rectangle(0, 0, 0.06, 1),)
        ),
        Shape(  # swallow-tailed
            ((0.06, 0.03), (1, 0.03), (0.86, 0.32), (1, 0.61), (0.06, 0.61)),
            (0.12, 0.1, 0.82, 0.54),
            (_rectangle(0, 0, 0.06, 1),),
        ),
        Shape(  # hung from a rod, pointed below
            ((0.1, 0.06), (0.9, 0.06), (0.9, 0.78), (0.5, 1), (0.1, 0.78)),
            (0.17, 0.14, 0.83, 0.7),
            (_rectangle(0, 0, 1, 0.06),),
        ),
    ),
    "door": (
        Shape(  # panelled, in a frame
            _rectangle(0.06, 0.04, 0.94, 1),
            (0.2, 0.1, 0.8, 0.48),
            (_rectangle(0, 0, 1, 1),),
            (_rectangle(0.18, 0.62, 0.46, 0.92), _rectangle(0.54, 0.62, 0.82, 0.92)),
            knob=(0.84, 0.56),
        ),
        Shape(  # arched, of boards
            _arch(0.04, 0, 0.96, 1, 0.2),
            (0.18, 0.2, 0.82, 0.54),
            panels=[_rectangle(x, 0.56, x + 0.02, 0.99) for x in (0.27, 0.49, 0.71)],
            knob=(0.16, 0.6),
        ),
        Shape(  # with a window below the plate
            _rectangle(0.04, 0.02, 0.96, 1),
            (0.16, 0.06, 0.84, 0.4),
            (_rectangle(0, 0, 1, 1),),
            panes=(_rectangle(0.22, 0.44, 0.48, 0.62), _rectangle(0.52, 0.44, 0.78, 0.62)),
            knob=(0.86, 0.7),
        ),
    ),
}
POST_COLOURS = ((128, 92, 60), (150, 150, 156), (84, 86, 94), (214, 206, 190))


def draw(
    picture: Image.Image, shape: Shape, rgb: RGB, box: Box, *, post: RGB, line: int
) -> tuple[Image.Image, Box]:
    """Draw a shape into `box`, `line` pixels wide at its edge; `(L mask of the box, free area)`."""
    width, height = int(box[2] - box[0]), int(box[3] - box[1])
    tile = Image.new("RGBA", (FINER * width, FINER * height))
    stencil = Image.new("L", tile.size)
    paint = ImageDraw.Draw(tile)
    lab = shades.oklab(np.asarray(rgb))
    edge = shades.srgb(
        lab * (0.45, 0.7, 0.7) if lab[0] > 0.4 else lab * (0, 0.3, 0.3) + (0.85, 0, 0)
    )
    panel = shades.srgb(lab * (0.86, 1, 1) if lab[0] > 0.4 else lab + (0.09, 0, 0))

    def polygon(points: Points, fill: Sequence[int], outline: Sequence[int], thick: int) -> None:
        # Inwards by half the line, so that none of it falls outside of the box.
        scaled = [
            (x * (tile.width - 1 - thick) + thick / 2, y * (tile.height - 1 - thick) + thick / 2)
            for x, y in points
        ]
        paint.polygon(scaled, tuple(int(v) for v in fill))
        paint.line([*scaled, scaled[0], scaled[1]], tuple(int(v) for v in outline), thick, "curve")

    for points in shape.posts:
        polygon(points, post, [v // 2 for v in post], FINER)
    polygon(shape.board, rgb, edge, line * FINER)
    for points in shape.panels:
        polygon(points, panel, panel, 1)
    for points in shape.panes:
        polygon(points, (214, 230, 238), edge, FINER)
    if shape.knob:
        x, y, r = shape.knob[0] * tile.width, shape.knob[1] * tile.height, 0.05 * tile.width
        paint.ellipse((x - r, y - r, x + r, y + r), tuple(int(v) for v in edge))
    board = [(x * tile.width, y * tile.height) for x, y in shape.board]
    ImageDraw.Draw(stencil).polygon(board, 255)
    at = (int(box[0]), int(box[1]))
    small = tile.resize((width, height), Image.BOX)
    picture.paste(small, at, small)
    x0, y0, x1, y1 = shape.area
    area = (box[0] + x0 * width, box[1] + y0 * height, box[0] + x1 * width, box[1] + y1 * height)
    return stencil.resize((width, height), Image.BOX), area
