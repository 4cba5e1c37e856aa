"""Stamps: what a result on the page belongs to: its run, its picture, its question and its settings.

A stamp travels beside its result as an empty element with data attributes. `state.js` compares it with
what is shown, and fades what does not match. A `Turn` says on the server which run is the newest.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypedDict, TypeVar

from arr_coc.page.frame import HOME_JS, escaped, source
from arr_coc.page.visit import Visit

SOURCES = [source(name) for name in ("kept.js", "state.js")]
SCRIPT = f"{HOME_JS}{''.join(SOURCES)}\nwindow.arrState = arrState(element, trigger);\n"
# What is said of the server; what has become old, for a screen reader; what an interruption left.
WATCH = (
    '<p class="arr-alarm" role="alert"></p><p class="arr-heard" role="status"></p>'
    '<section class="arr-kept" aria-label="From before the interruption" hidden><p class="arr-kept-head">'
    '<img alt="The picture it was asked about"><span><b>From before the interruption</b>'
    '<span class="arr-kept-question"></span></span>'
    '<button type="button" class="arr-button">Hide</button></p><div class="arr-kept-body"></div></section>'
)
SETTINGS = (
    "percent", "tier", "allocator", "glance", "prune",
    "new_tokens", "revision", "native_tokens", "imposed",
)  # fmt: skip
SHOWN = ("key", "question", *SETTINGS)  # in the order in which `state.js` is told of them
T = TypeVar("T")
LONGEST_RUN = 16  # digits; the browser counts runs in milliseconds

# In the browser: what is shown has changed; another run is asked for; one is overtaken.
NOW_JS = "(...shown) => { window.arrNow = shown; window.arrState?.look(shown); }"
PRESS_JS = "() => window.arrState.press()"
OVERTAKEN_JS = "() => window.arrState.over()"
BUTTON_JS = "() => window.arrState.button()"
# A picture of one's own is there: a question that was offered for the one before goes.
UNASK_JS = "(key, question) => window.arrState.unask(key, question)"
# What was picked is there, or was refused.
CAME_JS = "() => window.arrState.came()"


def numbered(at: int, which: str = "run") -> str:
    """Gives the newest run's number to a handler, in the place of its input `at`.

    `which` is "run", "later" for a number that nothing older will hold against, or "begun" for that of the
    newest Compare, which keeps it where a run was ended before it was sent.
    """
    return f"(...values) => {{ values[{at}] = window.arrState.{which}(); return values; }}"


def begun(which: str, words: str) -> str:
    """Says that something beside the comparison begins; `refused` says what becomes of it."""
    begins = f"(window.arrBegun ??= {{}})[{json.dumps(which)}] = window.arrState.run()"
    return f"() => {{ {begins}; return {json.dumps(words)}; }}"


def refused(which: str, words: str, quiet: str) -> str:
    """Says why it did not run, `quiet` where it was overtaken: the framework calls that a failure too."""
    same = f"window.arrBegun[{json.dumps(which)}] === window.arrState.run()"
    return f"() => {same} ? {json.dumps(words)} : {json.dumps(quiet)}"


class Stamp(TypedDict):
    """What a result belongs to. What is None is not compared."""

    run: str
    picture: str
    question: str | None
    settings: list[Any] | None


def stamp_of(visit: Visit, run: str = "") -> Stamp:
    """The stamp of what a visit asks for."""
    settings = [getattr(visit, name) for name in SETTINGS]
    return Stamp(run=run, picture=visit.key, question=visit.question, settings=settings)


def with_tensions(stamp: Stamp, imposed: str) -> Stamp:
    """The stamp of what was decided again under other tensions."""
    return {**stamp, "settings": [*stamp["settings"][:-1], imposed]}


def mark(stamp: Stamp | None, done: bool = True) -> str:
    """The element that carries a stamp; `done` where its run has ended."""
    if stamp is None:
        return ""
    settings = stamp["settings"] and json.dumps(stamp["settings"])
    values = {**stamp, "settings": settings}
    data = "".join(
        f' data-{name}="{escaped(value)}"' for name, value in values.items() if value is not None
    )
    return f'<i class="arr-of" hidden{data}{" data-done" * done}></i>'


@dataclass
class Turn:
    """The newest run of one visitor, and the newest pick of a picture.

    What an older one still brings is not shown any more.
    """

    newest: int = 0
    picked: int = 0
    compared: int = 0

    def take(self, run: Any) -> None:
        """A run begins, or the one before is overtaken: what is older has lost its turn."""
        self.newest = max(self.newest, _number(run))

    def compares(self, run: Any) -> bool:
        """Whether a comparison begins: once by its number, and not where it was ended before it came.

        A run without a number always does.
        """
        number, before, newest = _number(run), self.compared, self.newest
        self.compared = max(before, number)
        self.take(run)
        return not number or (number > before and number >= newest)

    def holds(self, run: Any) -> bool:
        """Whether nothing newer has begun since."""
        return _number(run) >= self.newest

    def pick(self, run: Any) -> None:
        """Another picture was picked, drawn or given."""
        self.picked = max(self.picked, _number(run))

    def brought(self, run: Any, bring: Callable[[], T]) -> T | None:
        """What a pick brings; None where another picture was picked meanwhile.

        A run without a number is never overtaken.
        """
        self.pick(run)
        made = bring()
        return made if not _number(run) or _number(run) >= self.picked else None


def _number(run: Any) -> int:
    good = isinstance(run, str) and run.isascii() and run.isdigit() and len(run) <= LONGEST_RUN
    return int(run) if good else 0
