"""The layouts of the large world, each a function of the generator, in one table."""

from collections.abc import Callable
from typing import NamedTuple

from arr_coc.scenes.canvas import Canvas
from arr_coc.scenes.drawing import Rng
from arr_coc.scenes.facts import Facts
from arr_coc.scenes.layouts import (
    boards,
    crowd,
    dashboards,
    maps,
    papers,
    shelves,
    shops,
    street,
)  # fmt: skip
from arr_coc.scenes.layouts.plans import Plan

THINGS = ("colour", "exists", "where", "beside", "count", "setting")  # with many things
THINGS += ("relation", "larger", "attribute")
HOSTS = ("emblem_colour", "number", "word")
PRICES = ("price", "cheaper")
COLOURS = ("count_colour", "same_colour")  # where no house, shirt or pin has a colour too


class Layout(NamedTuple):
    """How a layout is drawn, and which kinds of question it can be asked."""

    draw: Callable[[Rng, Canvas, Plan], Facts]
    kinds: tuple[str, ...]


LAYOUTS = {
    "street": Layout(street.draw, (*THINGS, *HOSTS, "sign_beside", "count_colour")),
    "shops": Layout(shops.draw, (*THINGS, *HOSTS, *PRICES, "sign_beside", "count_colour")),
    "shelves": Layout(shelves.draw, (*THINGS, *PRICES, *COLOURS)),
    "crowd": Layout(
        crowd.draw, (*THINGS, "leftmost", *HOSTS, *PRICES, "cheapest", "sign_beside", *COLOURS)
    ),
    "map": Layout(maps.draw, (*THINGS, "number", "sign_beside", "count_colour")),
    "board": Layout(boards.draw, ("setting", "board_row")),
    "form": Layout(papers.form, ("setting", "form", "paper")),
    "receipt": Layout(papers.receipt, (*THINGS, *COLOURS, "paper")),
    "dashboard": Layout(
        dashboards.draw, ("setting", "chart_value", "chart_highest", "bar", "count_colour")
    ),
}
