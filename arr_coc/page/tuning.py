"""Tuning: what follows a budget or tensions that are dragged; no model runs.

Methods of `Tuning` are gradio handlers, as those of `local_handlers`, which has them too.
"""

import json
from typing import Any

import gradio as gr

from arr_coc.page import board
from arr_coc.page.board import Shown
from arr_coc.page.cards import Cards
from arr_coc.page.changes import Budgeted, Tuned
from arr_coc.page.refusals import spoken
from arr_coc.page.visit import card_of, tension_words
from arr_coc.service import intake
from arr_coc.service.settings import check_tensions

LONGEST = 200  # characters of three tensions as JSON
NOT_KEPT = "This comparison is not kept any more: press Compare first."


class Tuning(Cards):
    """The handlers over one folder of examples; what comes from the browser is `Any`, and is checked."""

    def on_budget(
        self, shown: Shown | None, key: Any, question: Any, percent: Any, tensions: Any = None
    ) -> Budgeted:
        """The budget was let go: what was recorded of the card of that key at that budget, where it was.

        Tensions set by hand stay: the maps are what they give at that budget, and the answers fade. Else
        all stays as it is, and fades: it is another budget's.
        """
        chosen = card_of(key)
        example = self.example_of(chosen)
        recorded = shown and shown["recorded"] and example and question == example.question
        if not recorded or type(percent) not in (int, float):
            return Budgeted()
        other = self.shown(chosen, round(percent))
        return Budgeted(**board.tuned(other, tensions)) if other else Budgeted()

    def on_tensions(self, shown: Shown | None, dialed: Any) -> Tuned:
        """A gauge was let go: the maps already there are recombined; no model, no GPU.

        `dialed` are the three as JSON, as they stand when this is asked: of several presses the last.
        """
        if not shown:
            return Tuned(said_tensions=spoken(NOT_KEPT))
        try:
            tensions = check_tensions(_parsed(dialed))
        except intake.IntakeError as error:
            return Tuned(said_tensions=spoken(str(error)))
        return self._tuned(shown, tensions)

    def on_reset(self, shown: Shown | None) -> Tuned:
        """Back to the tensions that the question had chosen."""
        return self._tuned(shown, None) if shown else Tuned(said_tensions=spoken(NOT_KEPT))

    def _tuned(self, shown: Shown, tensions: list[float] | None) -> Tuned:
        shown, pieces = board.under(shown, tensions)
        imposed, said = tension_words(tensions), spoken()
        return Tuned(**pieces, shown=shown, tensions=tensions, imposed=imposed, said_tensions=said)


def _parsed(text: Any) -> Any:
    """What JSON of at most `LONGEST` characters holds, or None."""
    try:
        return json.loads(text) if isinstance(text, str) and len(text) <= LONGEST else None
    except (ValueError, RecursionError):
        return None


def sent(event: gr.EventData, name: str) -> Any:
    """What the browser sent with an event, or None."""
    return event._data.get(name) if isinstance(event._data, dict) else None
