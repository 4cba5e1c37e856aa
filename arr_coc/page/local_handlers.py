"""Local handlers: what the page does without the model: cards, links, new pictures, tensions, saving.

Methods of `LocalHandlers` are gradio handlers; `app.py` wires them. Nothing here runs a model or takes a
place in the queue.
"""

import math
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import gradio as gr

from arr_coc.config import ADAPTIVE, TOPK
from arr_coc.page import board, frame, picking, results, share
from arr_coc.page.asking import asking
from arr_coc.page.board import Board, Shown
from arr_coc.page.changes import UNCHANGED, Fresh
from arr_coc.page.drawn import (
    NewPicture,
    all_kinds,
    good_kinds,
    new_picture,
    sign_with,
    was_learned,
)
from arr_coc.page.refusals import spoken
from arr_coc.page.stamps import Turn
from arr_coc.page.tuning import Tuning, sent
from arr_coc.page.visit import BY_SHARE, OWN, PERCENT, card_key, card_of
from arr_coc.service import intake

LONGEST_QUERY = 8000  # characters; a question takes up to nine for each of its own
MORE = 2  # times as many tokens for another look
NOTHING_TO_SAVE = "No comparison is kept here to save: press Compare."
LEAST = round(100 * intake.SHARE_RANGE[0])  # percent of the visual tokens
BY_LINK = "This link asks for {:.0%} of the visual tokens, which was not recorded: press Compare to see it."
ASKED_ANEW = "This question was not recorded of this picture: press Compare to see the answers."
UNKNOWN_SIGN = (
    "The small model here learned some twenty words and numbers of two digits; what else a sign says, it "
    "can only guess."
)


class LocalHandlers(Tuning):
    """The handlers over one folder of examples; what comes from the browser is `Any`, and is checked."""

    def __init__(self, folder: Path, on_space: bool = False, bundled: bool = False) -> None:
        super().__init__(folder)
        self.on_space, self.bundled = on_space, bundled

    def opened(
        self,
        chosen: Any,
        question: str | None = None,
        percent: int = PERCENT,
        *,
        is_set: bool = False,
    ) -> Fresh:
        """The page on a card: what was recorded of it, where its own question is asked.

        Where a budget `is_set` that was not recorded, what was at another one fades (`state.js`).
        """
        example, shown, note = self.example_of(chosen), None, ""
        question = question or (example.question if example else "")
        if example and question == example.question:
            shown = self.shown(chosen, percent) or (self.shown(chosen, PERCENT) if is_set else None)
        credit = f" Photo: {example.credit}." if example and example.credit else ""
        if example and question != example.question:
            note = ASKED_ANEW + credit
        elif percent != PERCENT and not shown and not is_set:
            note = BY_LINK.format(percent / 100)
        elif example and not self.is_recorded(example):
            note = results.NOT_RECORDED + credit
        pieces = board.board(shown) if shown else board.blank(example and example.path, note)
        picture = gr.update(visible="hidden", value=str(example.path) if example else None)
        chips = asking(self.asked(chosen), chosen)
        return self._fresh(
            pieces, picture, question, percent, chosen=chosen, chips=chips, shown=shown
        )

    def _fresh(
        self,
        pieces: Board,
        picture: dict[str, Any],
        question: str | None,
        percent: int = PERCENT,
        *,
        chosen: Any = None,
        drawn: list[tuple[str, str]] | None = None,
        chips: str = "",
        shown: Shown | None = None,
        is_own: bool = False,
        linked: str = "",
    ) -> Fresh:
        """The page on a picture. A question of None stays as it is; what belonged to another goes.

        The link asks the question, or what is `linked`.
        """
        return Fresh(
            **pieces._asdict(),
            picture=picture,
            question=UNCHANGED if question is None else question,
            chosen=chosen,
            drawn=drawn,
            chips=chips,
            tensions=None,
            shown=shown,
            links=share.section(chosen, question or linked, percent, self.on_space),
            others="",
            second="",
            third="",
            key=OWN * is_own + secrets.token_hex(8) if chosen is None else card_key(chosen),
            imposed="",
            said_picture=spoken(),
            said_tensions=spoken(),
        )

    def on_pick(self, percent: Any, turn: Turn, event: gr.EventData) -> Fresh:
        """A card was clicked: its picture, its question, and what was recorded of them.

        Of what is picked, drawn or given in quick succession the last stays, by a number of the browser's.
        """
        chosen, run = sent(event, "card"), sent(event, "run")
        if not self.example_of(chosen):
            return Fresh()
        opened = turn.brought(
            run, lambda: self.opened(chosen, percent=_percent(percent), is_set=True)
        )
        return opened or Fresh()

    def on_open(self, request: gr.Request) -> tuple:
        """The page as a link opens it; without one, question and budget may be the visitor's by now."""
        opened = self._asked_for(given := request.query_params if request else {})
        return opened if any(name in given for name in frame.LINKED) else _untouched(opened)

    def on_address(self, turn: Turn, event: gr.EventData) -> tuple:
        """Back or forward in the browser: the page as that address opens it."""
        asked = _parameters(sent(event, "query"))
        opened = turn.brought(sent(event, "run"), lambda: self._asked_for(asked))
        return opened or (*Fresh(), UNCHANGED)

    def _asked_for(self, parameters: Mapping[str, str]) -> tuple:
        """What a link fills in (`arr_example`, `arr_q`, `arr_budget` in percent), and its percentage."""
        wish = frame.wish(parameters, self.examples, PERCENT)
        return *self.opened(wish.chosen, wish.question, wish.percent), wish.percent

    def on_own(self, picture: Any) -> tuple[dict[str, Any], Any, str]:
        """The place to drop a picture of one's own, and the picture that stood there, to come back to.

        What was said of a picture before goes, here and in `on_back`.
        """
        return gr.update(value=None, visible=True), picture or UNCHANGED, spoken()

    def on_back(self, before: Any, key: Any = None) -> tuple[dict[str, Any], str]:
        """No picture of one's own after all: what stood there before, if forgotten a card's."""
        example = self.example_of(card_of(key))
        before = str(example.path) if before is None and example else before
        return gr.update(value=before, visible="hidden"), spoken()

    def on_own_picture(
        self,
        picture: Any,
        question: Any = None,
        key: Any = None,
        drawn: Any = None,
        percent: Any = PERCENT,
        turn: Turn | None = None,
        run: Any = "",
    ) -> Fresh:
        """A visitor's own picture: no card is chosen any more, so no truth is known.

        A question that was offered for the picture before goes with it; one's own stays, which the browser
        sees to (`state.js`): it may be written meanwhile. A refused picture changes nothing, and the place
        to drop one stays open.
        """
        example = self.example_of(card_of(key))
        offered = [*dict(drawn or ()), *([example.question] if example else [])]
        written = question if isinstance(question, str) and question not in offered else ""
        note, hidden = results.OWN_PICTURE if self.bundled else "", gr.update(visible="hidden")

        def opened() -> Fresh:
            if isinstance(picture, intake.IntakeError):
                raise picture
            pieces = board.blank(intake.open_image(picture), note)
            return self._fresh(pieces, hidden, None, _percent(percent), is_own=True, linked=written)

        return _given(turn, run, opened, picture=gr.update(value=None, visible=True))

    def on_draw(
        self, model: Any, percent: Any = PERCENT, turn: Turn | None = None, run: Any = ""
    ) -> Fresh:
        """A newly drawn picture with questions of kinds that the model can answer, truth known."""
        bundled = model is None or model.is_bundled
        kinds = good_kinds() if bundled else all_kinds()
        turn = turn or Turn()
        return turn.brought(run, lambda: self._drawn(new_picture(kinds), percent)) or Fresh()

    def on_sign(
        self, writing: Any, percent: Any = PERCENT, turn: Turn | None = None, run: Any = ""
    ) -> Fresh:
        """A drawn picture with the visitor's own word or number on a sign; refused, nothing changes."""
        unknown = self.bundled and not was_learned(writing)
        note = UNKNOWN_SIGN if unknown else ""
        return _given(turn, run, lambda: self._drawn(sign_with(writing), percent, note))

    def _drawn(self, new: NewPicture, percent: Any, note: str = "") -> Fresh:
        return self._fresh(
            board.blank(new.image, note),
            gr.update(visible="hidden", value=new.image),
            new.questions[0][0],
            _percent(percent),
            drawn=list(new.questions),
            chips=picking.chips(new.questions),
        )

    def on_chip(self, drawn: Any, event: gr.EventData) -> Any:
        """One of the questions offered for a drawn picture."""
        number = sent(event, "ask")
        known = type(number) is int and 0 <= number < len(drawn or ())
        return drawn[number][0] if known else UNCHANGED

    def on_more(self, shown: Shown | None, allocator: Any) -> tuple[int, str, Any]:
        """Twice the share that the comparison shown kept, and no tier or allocator that spends less."""
        allocator = TOPK if allocator == ADAPTIVE else allocator
        if not shown:
            return PERCENT, BY_SHARE, allocator
        kept, total = (shown["result"][name] for name in ("tokens_kept", "tokens_total"))
        return min(100, max(LEAST, math.ceil(100 * MORE * kept / total))), BY_SHARE, allocator

    def on_save(self, shown: Shown | None, event: gr.EventData) -> Any:
        """The comparison as a file for the browser to save, `name|data: URL`; or why not, a sentence."""
        kind = sent(event, "save")
        if not shown:
            return NOTHING_TO_SAVE
        return share.saved(shown, kind) if kind in share.KINDS else UNCHANGED

    def on_question(self, key: Any, question: Any, percent: Any) -> Any:
        """The link follows what is asked of the picture of that `key`."""
        try:
            question = intake.clean_question(question)
        except intake.IntakeError:
            return UNCHANGED
        return share.section(card_of(key), question, _percent(percent), self.on_space)


def _given(turn: Turn | None, run: Any, open_it: Callable[[], Fresh], **refused: Any) -> Fresh:
    """The page on what a visitor gave, which overtakes a run; what is `refused` changes, and why."""
    turn = turn or Turn()
    try:
        fresh = turn.brought(run, open_it)
    except intake.IntakeError as error:
        return Fresh(said_picture=spoken(str(error)), **refused)
    if fresh:
        turn.take(run)
    return fresh or Fresh()


def _percent(value: Any) -> int:
    """A budget as the browser sent it, in whole percent; the usual one where it is none."""
    known = type(value) in (int, float) and LEAST <= value <= 100
    return round(value) if known else PERCENT


def _untouched(opened: tuple) -> tuple:
    """What opens the page, without the question and the percentage."""
    *fresh, _ = opened
    return *Fresh(*fresh)._replace(question=UNCHANGED), UNCHANGED


def _parameters(query: Any) -> dict[str, str]:
    """What an address asks for; nothing where it is none."""
    known = isinstance(query, str) and len(query) <= LONGEST_QUERY
    return dict(parse_qsl(query.removeprefix("?"))) if known else {}
