"""Page live: what the page asks of the model: compare, stop, look at other questions, wake up.

Methods of `Live` are gradio handlers over a loader and the one GPU function, which `app.py` hands in.
"""

import html
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import gradio as gr
from gradio.utils import get_upload_folder

from arr_coc.page import board, frame, parts, results
from arr_coc.page import drawn as page_drawn
from arr_coc.page.steps import SKIP, Steps, as_share, refusal
from arr_coc.service import comparing, intake, token_grid
from arr_coc.service.comparing import finish_interrupted
from arr_coc.service.loader import Loader
from arr_coc.service.looks import empty_look
from arr_coc.service.uploads import source_of

NO_PICTURE = "Choose a picture first: a card, a new one, or your own."
LAST_RUNS = 20  # whose seconds tell how long the queue will take
WORTH_SAYING_S = 3.0
NOT_YET = "The model is waking up; what this costs is known when it is there."


class Picture(gr.Image):
    """`gr.Image` that hands on the file unopened: `intake` opens it, and says what is wrong."""

    is_template = True  # the browser draws a plain Image

    def preprocess(self, payload):
        """The `data:` URL or the path of the file given, or None; refusals are sentences."""
        try:
            return None if payload is None else source_of(payload, get_upload_folder())
        except intake.IntakeError as error:
            raise refusal(error) from None


class Live:
    """The handlers, around the one GPU function, which takes a `comparing.Request` and yields records."""

    def __init__(
        self,
        steps: Steps,
        loader: Loader,
        on_gpu: Callable[[Any], Iterator],
        waiting: Callable[[], int] = lambda: 0,
    ) -> None:
        """`waiting` counts the requests that wait for the GPU."""
        self.steps, self.loader, self.on_gpu, self.waiting = steps, loader, on_gpu, waiting
        self.took: deque[float] = deque(maxlen=LAST_RUNS)  # seconds

    def run(self, request: Any) -> Iterator:
        """The records of one request; how long it took is remembered."""
        begun = time.monotonic()
        yield from self.on_gpu(request)
        self.took.append(time.monotonic() - begun)

    def on_waiting(self) -> str:
        """How long a request that was just made will wait, in a sentence; "" where it hardly will."""
        waiting = self.waiting()
        seconds = waiting * statistics.median(self.took) if self.took else 0
        if seconds < WORTH_SAYING_S:
            return ""
        return f"{results.WAITS}: {waiting} in the queue, about {seconds:.0f} s…"

    def answered(self, image: Any, question: str, share: float, **settings):
        """The last record of a request from the API; refusals become sentences."""
        try:
            source = source_of(image, get_upload_folder())
            request = comparing.check(source, question, share, **settings)
            *_, (kind, value) = finish_interrupted(self.run(request), self.loader.get(), request)
            if kind == "error":
                raise intake.IntakeError(value)
            return value
        except Exception as error:  # whatever it is, it is said in a sentence
            raise refusal(error) from None

    def on_compare(self, picture, question, percent, glance, prune, allocator, tier, new_tokens,
                   revision, cut, shrunk, tensions, chosen, drawn):  # fmt: skip
        """Stream the looks, then what they cost and where looking paid.

        Yields the pieces of `board.BOARD`, the comparison, the looks so far, and the button.
        """
        same, busy, free = gr.skip(), gr.update(interactive=False), gr.update(interactive=True)
        try:
            settings = {"glance": glance, "prune": prune, "allocator": allocator}
            request = comparing.check(
                _given(picture),
                question,
                as_share(percent),
                tier=None if tier == "share" else tier,
                revision=revision,
                tensions=tensions,
                shrunk=shrunk,
                native_tokens=cut,
                max_new_tokens=new_tokens,
                **settings,
            )
            example = self.steps.example_of(chosen)
            truth = self.steps.truth_of(request.question, chosen, drawn)
            looks = {"full": empty_look(), "focused": None, "shrunk": None}
            answers = results.answers(**looks, truth=truth, running=True)
            yield same, answers, "", same, same, "", None, looks, busy
            token_grid.check(cut, token_grid.sizes(self.loader.get()))
            for kind, value in finish_interrupted(self.run(request), self.loader.get(), request):
                if kind == "result":
                    break
                looks[kind] = value
                answers = results.answers(**looks, truth=truth, running=True)
                yield same, answers, *SKIP * 5, looks, same
            as_given = bool(example) and request.question == example.question
            note = results.remark(value, example, as_given, own=drawn is None)
            shown = board.live(request.image, value, truth, note)
            yield *board.board(shown), shown, None, free
        except Exception as error:  # whatever it is, it is said in a sentence
            failure = refusal(error)
            said = results.message(html.unescape(failure.message))
            yield same, results.answers(None, None), said, "", "", "", None, None, free
            raise failure from None

    def on_stop(self, looks):
        """After Stop: what had come so far stays, without reasons, which belong to a finished look."""
        shown = results.answers(**looks) if looks else gr.skip()
        return shown, "", "", None, gr.update(interactive=True)

    def on_ready(self):
        """Once the model is there: the badge, what can be asked, signs, revisions, sizes to cut to."""
        try:
            model = self.loader.get()
        except intake.IntakeError as error:
            return frame.header(frame.badge_failed(str(error))), *SKIP * 4
        learned = getattr(model, "policies", None) or {}
        badge = frame.badge_ready(
            str(model.name),
            model.is_bundled,
            str(model.device),
            bool(learned),
            self.loader.notices,
        )
        reads = not model.is_bundled or page_drawn.can_read(page_drawn.good_kinds())
        return (
            frame.header(badge),
            parts.about(model.is_bundled),
            gr.update(visible=reads),
            gr.update(choices=parts.revision_choices(list(learned))),
            gr.update(choices=token_grid.choices(model)),
        )

    def on_cut(self, picture, question, percent, tier, cut):
        """What cutting the picture into so many tokens would cost, in a sentence; nothing is run."""
        model = self.loader.model
        if model is None or picture is None:
            return results.message(NOT_YET if picture else NO_PICTURE)
        try:
            chosen = token_grid.check(cut, token_grid.sizes(model))
            tier = None if tier == "share" else tier
            request = comparing.check(picture, question or "what?", as_share(percent), tier=tier)
        except intake.IntakeError as error:
            return results.message(str(error))
        before = token_grid.tokens_of(model, request.image.size, None)
        full = token_grid.tokens_of(model, request.image.size, chosen)
        kept = request.tokens(full)
        outside = token_grid.OUTSIDE * token_grid.is_outside(model, chosen)
        return results.message(token_grid.cost_words(full, kept, before) + outside)

    def on_others(self, picture, question, second, third, percent, tier, allocator, revision, cut):
        """Where other questions about the same picture would look, side by side."""
        try:
            asked = (question, second, third)
            asked = tuple(text for text in asked if isinstance(text, str) and text.strip())
            share, first = as_share(percent), asked[0] if asked else ""
            request = comparing.check(
                _given(picture),
                first,
                share,
                tier=None if tier == "share" else tier,
                allocator=allocator,
                revision=revision,
                native_tokens=cut,
                questions=asked,
            )
            token_grid.check(cut, token_grid.sizes(self.loader.get()))
            found = list(self.run(request))
            if found[-1][0] == "error":
                raise intake.IntakeError(found[-1][1])
            wheres = [where for _, where in found]
            return board.side_by_side(request.image, request.questions, wheres)
        except Exception as error:  # whatever it is, it is said in a sentence
            raise refusal(error) from None


def _given(picture: Any) -> Any:
    if picture is None:
        raise intake.IntakeError(NO_PICTURE)
    return picture
