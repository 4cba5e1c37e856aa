"""Facts: what is known of a drawn layout beyond its list of things."""

from collections.abc import Mapping
from dataclasses import dataclass

from arr_coc.scenes.drawing import Box
from arr_coc.scenes.questions import Thing


@dataclass(frozen=True)
class Line:
    """One line of a departure board: its cells by column ("time", "place", "gate")."""

    cells: Mapping[str, Thing]


@dataclass(frozen=True)
class Chart:
    """One chart of several: its title, where the title is written, and its bars."""

    title: str
    title_box: Box
    bars: tuple[Thing, ...]


@dataclass(frozen=True)
class Facts:
    """What is true of a drawn layout and cannot be read off its list of things.

    Attributes:
        setting: what the whole picture shows.
        counted: the name whose copies are to be counted, their number drawn evenly.
        dealt: `(name, colour)` pairs whose number was drawn evenly, the name "" for all things.
        signs: `(how, thing, sign)`: a sign that stands "next" to a thing, or names its "shop", or a
            numbered "pin" beside it.
        lines: of a board, top to bottom, with `vehicle` and `gate`, its words for what leaves and where.
        paper: "form" or "receipt", whose entries are the things of that detail; "" for none.
        charts: the charts of a dashboard.
        scenery: names of glyphs that the scenery shows too, so that nobody asks whether they are there.
    """

    setting: str
    counted: str | None = None
    dealt: tuple[tuple[str, str], ...] = ()
    signs: tuple[tuple[str, Thing, Thing], ...] = ()
    lines: tuple[Line, ...] = ()
    vehicle: str = ""
    gate: str = ""
    paper: str = ""
    charts: tuple[Chart, ...] = ()
    scenery: tuple[str, ...] = ()
