"""Page steps: what the page does without the model: cards, links, new pictures, tensions, saving.

Methods of `Steps` are gradio handlers; each gives plain values for the components that `app.py` wires
to it. Nothing here runs a model or takes a place in the queue.
"""

import html
import logging
from pathlib import Path
from typing import Any

import gradio as gr

from arr_coc.page import board as page_board
from arr_coc.page import drawn as page_drawn
from arr_coc.page import frame, results, share
from arr_coc.service import comparing, errors, intake, recordings

log = logging.getLogger(__name__)
SKIP = (gr.skip(),)
SHARE = 20  # percent
MORE = 2  # times as many tokens for another look
NOT_KEPT = "This comparison is not kept any more: press Compare first."
UNKNOWN_SIGN = (
    "The small model here learned some twenty words and numbers of two digits; what else a sign says, it "
    "can only guess."
)


def refusal(error: Exception) -> gr.Error:
    """A sentence of our own as the framework's error, escaped: its pop-up renders HTML."""
    if not isinstance(error, intake.IntakeError | gr.Error):
        log.error("a request failed", exc_info=error)
    message = html.escape(errors.plainly(error), quote=False)
    return gr.Error(message, title="That did not work", print_exception=False)


class Steps:
    """The handlers over one folder of examples and what was recorded of them.

    "Fresh" values, for a picture that has just come, are in this order: the pieces of
    `board.BOARD`, picture, question, cards, chosen card, known answers, questions to click,
    tensions, comparison, share, and what stood under "other question": maps and two questions.
    """

    def __init__(self, folder: Path, on_space: bool = False, bundled: bool = False) -> None:
        self.folder, self.on_space, self.bundled = folder, on_space, bundled
        self.examples = frame.load_examples(folder)
        self.recorded = recordings.load(folder)

    def example_of(self, chosen: Any) -> frame.Example | None:
        """The card of that number, or None."""
        good = type(chosen) is int and 0 <= chosen < len(self.examples)
        return self.examples[chosen] if good else None

    def truth_of(self, question: str, chosen: Any, drawn: Any) -> str | None:
        """The answer, where this question about this picture has a known one.

        A card's is not told before its comparison was recorded: nobody has seen then how the model
        words its answer.
        """
        example = self.example_of(chosen)
        if example is None:
            return dict(drawn or ()).get(question)
        told = question == example.question and self._found(example) is not None
        return example.answer if told else None

    def _found(self, example: frame.Example) -> recordings.Recording | None:
        return recordings.find(self.recorded[1], example.path, example.question)

    def opened(self, chosen: Any, question: str | None = None, percent: int = SHARE) -> tuple:
        """Fresh values of a card: what was recorded of it, where its own question is asked."""
        example = self.example_of(chosen)
        question = question or (example.question if example else "")
        shown = None
        if example and question == example.question and percent == SHARE:
            shown = page_board.recorded(self.folder, example, self.recorded)
        board = page_board.board(shown) if shown else page_board.blank(example and example.path)
        if example and not self._found(example):
            said = results.NOT_RECORDED + f" Photo: {example.credit}." * bool(example.credit)
            board = (*board[:2], results.message(said), *board[3:])
        path = str(example.path) if example else None
        return self._fresh(board, path, question, percent, chosen=chosen, shown=shown)

    def _fresh(
        self, board, path, question, percent=SHARE, chosen=None, drawn=None, chips="", shown=None
    ):
        picture = gr.update(visible="hidden", **({} if path is False else {"value": path}))
        links = share.section(chosen, question or "", percent, self.on_space)
        cards = frame.cards(self.examples, chosen)
        asked = gr.skip() if question is None else question
        others = ("", "", "")
        return (*board, picture, asked, cards, chosen, drawn, chips, None, shown, links, *others)

    def on_pick(self, event: gr.EventData):
        """A card was clicked: its picture, its question, and what was recorded of them."""
        chosen = _given(event, "card")
        return self.opened(chosen) if self.example_of(chosen) else SKIP * len(self.opened(None))

    def on_open(self, request: gr.Request):
        """Fill in what a link asks for (`arr_example`, `arr_q`, `arr_budget` in percent); never run."""
        wish = frame.wish(request.query_params if request else {}, self.examples, SHARE)
        return *self.opened(wish.chosen, wish.question, wish.percent), wish.percent

    def on_own(self):
        """The place to drop a picture of one's own."""
        return gr.update(value=None, visible=True)

    def on_own_picture(self, picture):
        """A visitor's own picture: no card is chosen any more, so no truth is known."""
        try:
            board = page_board.blank(intake.open_image(picture))
            if self.bundled:
                board = (*board[:2], results.message(results.OWN_PICTURE), *board[3:])
        except intake.IntakeError as error:
            said = results.message(str(error))
            board = (gr.skip(), results.answers(None, None), said, "", "", "")
        return self._fresh(board, False, None)

    def on_draw(self, model: Any):
        """A newly drawn picture with questions of kinds that the model can answer, truth known."""
        kinds = (
            page_drawn.good_kinds() if model is None or model.is_bundled else page_drawn.all_kinds()
        )
        return self._drawn(lambda: page_drawn.new_picture(kinds))

    def on_sign(self, writing):
        """A drawn picture with the visitor's own word or number on a sign."""
        unknown = self.bundled and not page_drawn.was_learned(writing)
        return self._drawn(lambda: page_drawn.sign_with(writing), UNKNOWN_SIGN if unknown else "")

    def _drawn(self, make, said: str = ""):
        try:
            made = make()
        except intake.IntakeError as error:
            raise refusal(error) from None
        board = page_board.blank(made.image)
        return self._fresh(
            (*board[:2], results.message(said), *board[3:]),
            made.image,
            made.questions[0][0],
            drawn=list(made.questions),
            chips=frame.chips(made.questions),
        )

    def on_chip(self, drawn, event: gr.EventData):
        """One of the questions offered for a drawn picture."""
        number = _given(event, "ask")
        good = type(number) is int and 0 <= number < len(drawn or ())
        return drawn[number][0] if good else gr.skip()

    def on_tensions(self, shown, event: gr.EventData):
        """A gauge was let go: the maps already there are recombined; no model, no GPU."""
        if not shown:
            raise refusal(intake.IntakeError(NOT_KEPT))
        try:
            tensions = comparing.check_tensions(_given(event, "tensions"))
            shown, pieces = page_board.under(shown, tensions)
        except ValueError as error:
            raise refusal(error) from None
        return *pieces, shown, tensions

    def on_reset(self, shown):
        """Back to the tensions that the question had chosen."""
        if not shown:
            raise refusal(intake.IntakeError(NOT_KEPT))
        shown, pieces = page_board.under(shown, None)
        return *pieces, shown, None

    def on_more(self, percent):
        """Twice the share for another look, and no tier that would override it."""
        known = type(percent) in (int, float) and percent > 0
        return min(100, MORE * percent) if known else SHARE, "share"

    def on_save(self, shown, event: gr.EventData):
        """The comparison as a file for the browser to save, `name|data: URL`."""
        kind = _given(event, "save")
        if not shown:
            sentence = "There is no comparison to save yet: press Compare."
            raise refusal(intake.IntakeError(sentence))
        return share.saved(shown, kind) if kind in share.KINDS else gr.skip()

    def on_question(self, chosen, question, percent):
        """The link follows what is asked."""
        try:
            question = intake.clean_question(question)
        except intake.IntakeError:
            return gr.skip()
        good = type(percent) in (int, float) and 5 <= percent <= 100
        return share.section(chosen, question, round(percent) if good else SHARE, self.on_space)


def as_share(percent: Any) -> Any:
    """A percentage as a share; what is no number is left for the door to refuse."""
    return percent / 100 if type(percent) in (int, float) else percent


def _given(event: gr.EventData, name: str) -> Any:
    """What the browser sent with an event, or None."""
    return event._data.get(name) if isinstance(event._data, dict) else None
