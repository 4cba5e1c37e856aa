"""What a layout is told before it draws, and what all layouts deal from."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from arr_coc.scenes import drawing
from arr_coc.scenes.canvas import Canvas
from arr_coc.scenes.drawing import Rng
from arr_coc.scenes.parts import HOST_DETAILS

NARROW_HOSTS = ("door", "shirt")
SPARE_NAMES = 2
_REST_COLOURS = 4  # so many colours are kept for the things that no count is about


@dataclass(frozen=True)
class Plan:
    """`wanted` are the kinds to be asked, empty for no preference; `most` things are counted."""

    wanted: tuple[str, ...]
    most: int

    def details(self, host: str) -> list[str]:
        """What a sign, flag, door or shirt carries: what is wanted, and no word where it is narrow."""
        fitting = [d for d in HOST_DETAILS if d != "word" or host not in NARROW_HOSTS]
        return [d for d in fitting if HOST_DETAILS[d] in self.wanted] or fitting


def deal_colours(rng: Rng, n: int, plan: Plan) -> tuple[list[str], list[str]]:
    """Colours for `n` things in random order, and those whose number is even in 1 to `plan.most`.

    The colours of what is left over are others: nobody should count those. Where pairs of a colour are
    wanted rather than counts, all that can come in pairs, and no number is even.
    """
    names = [str(name) for name in rng.permutation(list(drawing.COLOURS))]
    rest, names = names[:_REST_COLOURS], names[_REST_COLOURS:]
    paired = "same_colour" in plan.wanted and "count_colour" not in plan.wanted
    if paired:
        numbers = {name: 2 for name in names[: n // 2]}
    else:
        numbers = {name: int(rng.integers(1, plan.most + 1)) for name in names[: n // plan.most]}
    dealt = [name for name, number in numbers.items() for _ in range(number)]
    dealt += [str(name) for name in rng.choice(rest, n - len(dealt))]
    return [dealt[i] for i in rng.permutation(n)], [] if paired else list(numbers)


def castable(canvas: Canvas, without: Sequence[str] = ()) -> int:
    """How many glyphs a picture can hold: one of each name, but for a few to ask for in vain."""
    return len(set(canvas.names()) - set(without)) - SPARE_NAMES


def cast(
    rng: Rng, canvas: Canvas, n: int, most: int, without: Sequence[str] = ()
) -> tuple[list[str], str | None]:
    """Names of `n` glyphs in random order, and the name of which there are 1 to `most`, evenly.

    No other name comes twice and none is one of those `without`. Where so many would not fit, no name
    is to be counted, and all come once. At most `castable` glyphs can be had.
    """
    assert n <= castable(canvas, without), (n, castable(canvas, without))
    names = [str(name) for name in rng.permutation(canvas.names()) if name not in without]
    if n < most:
        return names[:n], None
    counted = names.pop()
    copies = int(rng.integers(1, most + 1))
    chosen = [counted] * copies + names[: n - copies]
    return [chosen[i] for i in rng.permutation(len(chosen))], counted


def sized(rng: Rng, aspect: float, low: float, high: float, room: tuple[float, float]) -> tuple:
    """Width and height with that ratio, of the area of a square of side `low` to `high`.

    Drawn by area, so that a slender thing is as often the larger one as a square thing; scaled
    down where it would not fit the `room`.
    """
    side = rng.uniform(low, high)
    width, height = side * np.sqrt(aspect), side / np.sqrt(aspect)
    # A hair less than the room: what is left of it must not fall below nothing by rounding.
    shrink = min(1.0, 0.999 * room[0] / width, 0.999 * room[1] / height)
    return width * shrink, height * shrink
