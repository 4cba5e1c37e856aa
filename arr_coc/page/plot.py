"""Page plot: curves of up to five ways as SVG, a mark at each point; chart.css has their colours."""

from collections.abc import Sequence
from typing import NamedTuple

from arr_coc.page.frame import escaped

WIDTH, HEIGHT = 440, 290  # of the drawing, in its own units
LEFT, RIGHT, TOP, BOTTOM = 46, 22, 12, 40  # of its margins
MARKS = (  # a shape for each curve, around (0, 0)
    "M-5-5H5V5H-5Z",
    "M-6 0A6 6 0 1 0 6 0A6 6 0 1 0-6 0Z",
    "M0-6.5L6.5 5H-6.5Z",
    "M0-7L7 0L0 7L-7 0Z",
    "M-6.5-5H6.5L0 6.5Z",
)


class Point(NamedTuple):
    """A point of a curve, in the values of its axes."""

    x: float
    y: float


class Axis(NamedTuple):
    """A scale from `low` to `high`: its ticks with what is written at each, and in words what it is of."""

    low: float
    high: float
    ticks: Sequence[tuple[float, str]]
    words: str = ""

    def share(self, value: float) -> float:
        """Where a value stands, from 0 to 1."""
        return (value - self.low) / (self.high - self.low)


def plot(curves: Sequence[Sequence[Point]], across: Axis, up: Axis, label: str) -> str:
    """The curves, the first ones over the others.

    Args:
        curves: at most `len(MARKS)`.
        across: of x.
        up: of y; its words are not drawn.
        label: what a screen reader says; the numbers belong in a table beside it.
    """

    def at(point: Point) -> tuple[float, float]:
        x = LEFT + across.share(point.x) * (WIDTH - LEFT - RIGHT)
        return x, TOP + (1 - up.share(point.y)) * (HEIGHT - TOP - BOTTOM)

    parts = ""
    for value, text in up.ticks:
        _, y = at(Point(across.low, value))
        parts += f'<path class="arr-chart-grid" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>'
        parts += f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{text}</text>'
    for value, text in across.ticks:
        x, _ = at(Point(value, up.low))
        parts += f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{text}</text>'
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts += (
        f'<text x="{middle}" y="{HEIGHT - 5}" text-anchor="middle">{escaped(across.words)}</text>'
    )
    for number in reversed(range(len(curves))):
        points = [at(point) for point in curves[number]]
        line = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        parts += f'<path class="arr-chart-line arr-chart-{number}" d="M{line}"/>'
        for x, y in points:
            parts += f'<g transform="translate({x:.1f} {y:.1f})">{mark(number)}</g>'
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escaped(label)}">{parts}</svg>'


def mark(number: int) -> str:
    """The mark of a curve, for a drawing of its own."""
    return f'<path class="arr-chart-{number}" d="{MARKS[number]}"/>'


def key(number: int) -> str:
    """The mark of a curve as a picture for a row of a table."""
    return f'<svg viewBox="-9 -9 18 18" aria-hidden="true">{mark(number)}</svg>'
