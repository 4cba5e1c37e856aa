"""Matter handlers: which kept places the answer on the page hangs on, asked when somebody wants to know.

It is asked of the very comparison that is shown: what has changed since is refused in a sentence.
"""

from dataclasses import replace
from typing import Any

from arr_coc.config import AUTO
from arr_coc.page import board
from arr_coc.page.board import Shown
from arr_coc.page.changes import UNCHANGED, Weighed, Weighing
from arr_coc.page.model_handlers import ModelHandlers
from arr_coc.page.refusals import sentence_of, spoken
from arr_coc.page.stamps import Turn, stamp_of
from arr_coc.page.tuning import NOT_KEPT
from arr_coc.page.visit import Visit
from arr_coc.service.comparing import last_or_refusal
from arr_coc.service.intake import IntakeError

MOST = 256  # kept places: each is left out once, in a row of its own
CHANGED = "The picture, the question or a setting is another by now: press Compare first."
NOT_ASKED = "These tensions were not asked with yet: press Compare with these first."
UNDECIDED = "Nothing was decided place by place in this comparison, so no place can be left out."
IN_ROUNDS = (
    "What mattered is asked of one budget; these places came in rounds: choose another tier."
)
CUT_ANEW = "What mattered is asked of the picture as it is, and this one was cut into another grid."
TOO_MANY = "{} places were kept; what mattered is asked of at most {}. Keep fewer."


class MatterHandlers:
    """The handlers, over those that run the model."""

    def __init__(self, model: ModelHandlers) -> None:
        self.model = model

    def on_waiting(self) -> Any:
        """How long the answer will wait for its turn, where it will."""
        words = self.model.on_waiting()
        return spoken(words) if words else UNCHANGED

    def on_matters(
        self, turn: Turn | None = None, run: Any = "", shown: Shown | None = None, **inputs: Any
    ) -> Weighing:
        """What mattered of the comparison that is shown as this begins; the inputs make a `Visit`."""
        try:
            weighed = self._weighed(shown, self.model.local.visited(inputs))
        except Exception as error:  # whatever it is, it is said in a sentence
            return Weighing(said_matter=sentence_of(error))
        is_overtaken = not (turn or Turn()).holds(run)
        return Weighing(None if is_overtaken else weighed, spoken())

    def on_weighed(self, shown: Shown | None, weighed: Shown | None) -> Weighed:
        """What mattered, in the picture's views.

        Once the page has gone on to something else, another budget or other tensions as well, nothing
        changes.
        """
        if not shown or not weighed or shown != {**weighed, "mattered": shown["mattered"]}:
            return Weighed()
        return Weighed(board.board(weighed, opens="mattered").look, weighed)

    def _weighed(self, shown: Shown | None, visit: Visit) -> Shown:
        decided = check(shown, visit)
        request = replace(visit.request(), matters=True)
        value = last_or_refusal(self.model.run(request))
        if value["places"] != decided:
            raise IntakeError(CHANGED)
        return {**shown, "mattered": value}


def check(shown: Shown | None, visit: Visit) -> list[list[int]]:
    """The places that the comparison on the page kept, rows and columns.

    Raises:
        IntakeError: where it is not the one that is asked about, or has no native cells, or too many.
    """
    if not shown:
        raise IntakeError(NOT_KEPT)
    asked = stamp_of(visit)
    stamp = shown["stamp"] or {}
    if any(stamp.get(name) != asked[name] for name in ("picture", "question", "settings")):
        raise IntakeError(CHANGED)
    answered, where = shown["result"]["where"], shown["where"]
    if visit.tier == AUTO:
        raise IntakeError(IN_ROUNDS)
    if not answered or answered["fallback"] or any(level for level, *_ in answered["cells"]):
        raise IntakeError(UNDECIDED)
    if where["cells"] != answered["cells"]:
        raise IntakeError(NOT_ASKED)
    if visit.native_tokens:
        raise IntakeError(CUT_ANEW)
    if len(answered["cells"]) > MOST:
        raise IntakeError(TOO_MANY.format(len(answered["cells"]), MOST))
    return [[row, column] for _, row, column in answered["cells"]]
