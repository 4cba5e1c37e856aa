"""Several handlers: a clip, or several pictures, asked on the page and over the API.

What comes from the browser or a program has type `Any` and is checked: it may be anything.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gradio as gr
from gradio.utils import get_upload_folder

from arr_coc.page import moments
from arr_coc.page.changes import Several
from arr_coc.page.model_handlers import ModelHandlers
from arr_coc.page.refusals import refusal, sentence_of, spoken
from arr_coc.page.stamps import Turn
from arr_coc.page.visit import as_share
from arr_coc.service import intake, several
from arr_coc.service.several import READABLE, SeveralResult
from arr_coc.service.uploads import source_of

ALLOWED = "clip or picture"
ONE = "allowed are one clip, or 1 to 6 pictures."
NOTHING = f"No file was given; {ONE}"
LOOKING = "The model looks…"
MOVING = (".mp4", ".m4v", ".mov", ".webm", ".gif")
OVER = {"several_ask": gr.update(interactive=True), "several_stop": gr.update(interactive=False)}


class SeveralHandlers:
    """The handlers, over those that run the model."""

    def __init__(self, model: ModelHandlers) -> None:
        self.model = model

    def clip(self, clip: Any, question: Any, share: Any, **settings: Any) -> SeveralResult:
        """Both looks at a clip; refusals become sentences. `settings` are those of `check_clip`."""

        def checked() -> several.Request:
            source = source_of(clip, get_upload_folder(), "clip", READABLE)
            return several.check_clip(source, question, share, **settings)

        return self._answered(checked)

    def pictures(self, pictures: Any, question: Any, share: Any, **settings: Any) -> SeveralResult:
        """Both looks at several pictures; `settings` are those of `check_pictures`."""

        def checked() -> several.Request:
            several.check_count(pictures)
            sources = [source_of(picture, get_upload_folder()) for picture in pictures]
            return several.check_pictures(sources, question, share, **settings)

        return self._answered(checked)

    def _answered(self, checked: Callable[[], several.Request]) -> SeveralResult:
        try:
            return several.collected(self._records(checked()))
        except Exception as error:  # whatever it is, it is said in a sentence
            raise refusal(error) from None

    def _records(self, request: several.Request) -> Iterator[tuple[str, Any]]:
        return self.model.run(request)

    # --- the page ---

    def on_waiting(self) -> str:
        """How long the answers will wait for their turn, in a sentence; or that it looks."""
        return spoken(self.model.on_waiting() or LOOKING)

    def on_ask(
        self, files: Any, question: Any, percent: Any, turn: Turn, run: Any
    ) -> Iterator[Several]:
        """What is shown of the looks at the uploaded files, and what is said of it.

        Between two records nothing changes, but Stop can end it there. Where Stop was pressed or a card
        picked since, nothing is shown: the framework may hear of that too late to end the run.
        """
        turn.take(run)
        try:
            request, seen = request_of(files, question, percent), {}
            for kind, value in self._records(request):
                seen[kind] = value
                yield Several()
                if not turn.holds(run):
                    return
            shown = moments.shown(request.firsts, several.collected(seen.items()), percent)
            over = Several(several=shown, several_said=spoken(), **OVER)
        except Exception as error:  # whatever it is, it is said in a sentence
            over = Several(several_said=sentence_of(error), **OVER)
        yield over if turn.holds(run) else Several()

    def on_over(self, turn: Turn, run: Any) -> None:
        """Stop was pressed, or a card picked: what an open run still brings is not shown."""
        turn.take(run)


def request_of(files: Any, question: Any, percent: Any) -> several.Request:
    """The checked request for what was uploaded: one clip, or pictures.

    Raises:
        IntakeError: with one sentence that names what was given and what is allowed.
    """
    if not isinstance(files, list) or not files:
        raise intake.IntakeError(NOTHING)
    share = as_share(percent)
    sources = [source_of(file, get_upload_folder(), "file", ALLOWED) for file in files]
    moving = [source for source in sources if Path(source).suffix.lower() in MOVING]
    if moving and len(sources) > 1:
        raise intake.IntakeError(f"{len(sources)} files with a clip among them were given; {ONE}")
    if moving:
        return several.check_clip(sources[0], question, share, fewer=True)
    return several.check_pictures(sources, question, share)
