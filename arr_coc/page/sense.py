"""Sense: "Does this map make sense?", under the map of a comparison, where an owner asks for it."""

import json
from dataclasses import dataclass
from typing import Any

import gradio as gr

from arr_coc.page.board import Shown
from arr_coc.page.parts import Parts, show
from arr_coc.page.refusals import refusal, sentence_of, spoken
from arr_coc.page.tuning import NOT_KEPT
from arr_coc.service import labels
from arr_coc.service.intake import IntakeError

ASKED = "Does this map make sense?"
YES, NO = "Yes", "No"
OLDER = "The map on the page has changed since: say it of the one that is there now."
NO_MAP = "Nothing was decided in this comparison, so there is no map to judge."
KEPT = "Kept: {}."
# The run whose map is seen when the answer is given: the server may know of a newer one.
SEEN_JS = (
    "(...values) => { values[2] = document.querySelector('#arr-look .arr-of')?.dataset.run ?? ''; "
    "return values; }"
)
EMPTY_JS = f"() => [null, {json.dumps(spoken())}, '']"


@dataclass(frozen=True)
class Sense:
    """The components; they are made where an owner asks for them alone."""

    answer: gr.Radio
    said: gr.HTML
    seen: gr.Textbox
    kept: gr.Textbox  # what was kept of this map, "" where nothing was


def ask() -> Sense | None:
    """The question with what is kept of its answer; page.css shows it under a finished map."""
    if not labels.is_on():
        return None
    answer = gr.Radio([YES, NO], label=ASKED, info=labels.TOLD, elem_id="arr-sense")
    said = show(spoken(), elem_id="arr-said-sense")
    return Sense(answer, said, gr.Textbox(visible="hidden"), gr.Textbox(visible="hidden"))


def wire(sense: Sense | None, page: Parts, quick: dict[str, Any]) -> None:
    """The question's events; `quick` is how events run."""
    if sense is None:
        return
    told = [sense.answer, page.shown, sense.seen, sense.kept]
    heard = [sense.answer, sense.said, sense.kept]
    # A second press while the first is being kept is told after it.
    sense.answer.input(on_answer, told, heard, js=SEEN_JS, trigger_mode="always_last", **quick)
    # Another map has come: it has no answer yet.
    page.look.change(None, None, heard, js=EMPTY_JS, **quick)


def on_answer(
    answer: Any, shown: Shown | None, seen: Any, kept: Any, request: gr.Request
) -> tuple[Any, str, Any]:
    """Keep an answer about the map on the page; refused, what was `kept` before stays chosen."""
    before = kept if kept in (YES, NO) else None
    try:
        if answer not in (YES, NO):
            raise IntakeError(f"The answer is {str(answer)[:40]!r}; {YES} or {NO} is expected.")
        of = check(shown, seen)
        question, tensions = shown["result"]["question"], tensions_of(shown)
        labels.keep(
            getattr(request, "session_hash", None) or "", of, question, tensions, answer == YES
        )
    except Exception as error:  # whatever it is, it is said in a sentence
        older = str(error) == OLDER  # `kept` is of a map that is gone
        return None if older else before, sentence_of(error), gr.skip()
    return gr.skip(), spoken(KEPT.format(answer.lower())), answer


def check(shown: Shown | None, seen: Any) -> str:
    """What names the comparison whose map is seen.

    Raises:
        IntakeError: where it is not the one on the page any more, or shows no decision.
    """
    if not shown:
        raise IntakeError(NOT_KEPT)
    stamp = shown["stamp"] or {}
    if seen != stamp.get("run", ""):
        raise IntakeError(OLDER)
    if not shown["where"] or shown["where"]["fallback"]:
        raise IntakeError(NO_MAP)
    return json.dumps(stamp, sort_keys=True)


def tensions_of(shown: Shown) -> list[float]:
    """Compress, exploit and focus of the map as it is shown, also where they were dragged."""
    return [float(shown["where"][name]) for name in ("compress", "exploit", "focus")]


def makes_sense(question: str, tensions: list[float], yes: bool, request: gr.Request) -> str:
    """Say whether the map of compare or relevance makes sense, where the owner of this page asks.

    Args:
        question: as it was asked, at most 500 characters.
        tensions: compress, exploit and focus of that `where`, each from 0 to 1; saying it again changes the answer.
        yes: whether the map makes sense.
    """  # noqa: E501  the framework reads one line of an argument
    try:
        labels.keep(getattr(request, "session_hash", None) or "", "api", question, tensions, yes)
    except Exception as error:  # whatever it is, it is said in a sentence
        raise refusal(error) from None
    return KEPT.format(YES.lower() if yes else NO.lower())
