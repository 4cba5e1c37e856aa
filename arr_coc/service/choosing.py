"""Choosing: places that a person or a program chose, checked, and what came of them as plain values."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypedDict

from PIL import Image

from arr_coc.service import intake
from arr_coc.service.looks import MadeBy, made_by

if TYPE_CHECKING:  # it loads torch
    from arr_coc.components import Origin

BUDGET = 12  # tokens to spend
GIVEN = 60  # characters of what was given that a refusal repeats


class Tried(TypedDict):
    """What one order of places came to.

    `places` are row and column in native tokens, in the order in which they were spent; `answer` is from
    all of them. `needed` is how many, from the first on, make the model say what its full look says; None
    where all of them do not.
    """

    places: list[list[int]]
    answer: str
    needed: int | None


class Contest(MadeBy):
    """Given places against the model's own choice of `budget` places, of `grid` rows and columns.

    `full` is the full look's answer, `nothing` the one from the question alone. `glance_grid` is how many
    tokens both saw the whole picture in first.
    """

    question: str
    grid: list[int]
    glance_grid: list[int]
    budget: int
    full: str
    nothing: str
    given: Tried
    own: Tried


def check_places(given: Any, grid: tuple[int, int], budget: int) -> tuple[tuple[int, int], ...]:
    """Unique pairs of whole numbers inside the grid, 1 to `budget` of them; else IntakeError."""
    rows, columns = grid
    allowed = (
        f"allowed are 1 to {budget} pairs of row and column, whole numbers from 0 to {rows - 1} and "
        f"from 0 to {columns - 1}, each pair once"
    )
    if not isinstance(given, list | tuple):
        kind = "missing" if given is None else f"of type {type(given).__name__}"
        raise intake.IntakeError(f"The cells are {kind}; {allowed}.")
    if not 1 <= len(given) <= budget:
        raise intake.IntakeError(f"{len(given)} cells were given; {allowed}.")
    taken: list[tuple[int, int]] = []
    for cell in given:
        pair = isinstance(cell, list | tuple) and len(cell) == 2
        if not pair or not all(type(number) is int for number in cell):
            raise intake.IntakeError(f"The cell {_shown(cell)} is no such pair; {allowed}.")
        row, column = cell
        if not (0 <= row < rows and 0 <= column < columns):
            raise intake.IntakeError(f"The cell {_shown(cell)} is outside the picture; {allowed}.")
        if (row, column) in taken:
            raise intake.IntakeError(f"The cell {_shown(cell)} was given twice; {allowed}.")
        taken.append((row, column))
    return tuple(taken)


def _shown(given: Any) -> str:
    text = repr(given)
    return text if len(text) <= GIVEN else text[:GIVEN] + "…"


def describe_contest(
    model: Any,
    image: Image.Image,
    question: str,
    places: Sequence[tuple[int, int]],
    budget: int,
    origin: "Origin | None" = None,
) -> Contest:
    """Ask a model; arguments and errors as `qwen.choosing.contest`; `origin` is of the deciding weights."""
    from arr_coc.qwen.choosing import contest

    found = contest(model, image, question, places, budget)
    given, own = (
        Tried(places=spent.places.tolist(), answer=spent.text, needed=spent.needed)
        for spent in (found.given, found.own)
    )
    return Contest(
        question=question,
        grid=list(found.realization.grid),
        glance_grid=list(found.realization.glance.attention.shape[-2:]),
        budget=budget,
        full=found.full,
        nothing=found.nothing,
        given=given,
        own=own,
        **made_by(model, origin),
    )


def glance_of(model: Any, image: Image.Image) -> tuple[Image.Image, tuple[int, int]]:
    """A picture as the model's glance will see it, and its rows and columns in native tokens."""
    from arr_coc.qwen.choosing import glance_seen

    return glance_seen(model, image, BUDGET), model.inputs.grid_of(image.size)
