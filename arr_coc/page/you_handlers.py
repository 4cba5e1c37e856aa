"""You handlers: "You first" on the page and over the API: rounds to play, and the model's answers to them.

Methods of `YouHandlers` are gradio handlers; `app.py` wires them. What comes from the browser or a program
has type `Any` and is checked: it may be anything.
"""

import io
import math
from dataclasses import replace
from typing import Any

import gradio as gr
from gradio.utils import get_upload_folder
from PIL import Image

from arr_coc.page import you
from arr_coc.page.changes import UNCHANGED, Played
from arr_coc.page.drawn import all_kinds, good_kinds, new_picture
from arr_coc.page.model_handlers import PATIENCE_S, ModelHandlers
from arr_coc.page.refusals import refusal, sentence_of, spoken
from arr_coc.page.tuning import sent
from arr_coc.page.visit import Visit
from arr_coc.service import choosing, comparing, intake
from arr_coc.service.choosing import Contest
from arr_coc.service.comparing import Request
from arr_coc.service.uploads import source_of

# Kinds of question whose answer is a small thing: where to look matters.
SMALL = ("number", "word", "price", "cheapest", "emblem_colour", "chart_value")
NO_ROUND = "There is no picture to spend tokens on any more: take another one."


def request_of(host: Any, source: Any, question: Any, cells: Any) -> Request:
    """The checked request for a contest; it needs the model for the picture's grid, and runs nothing.

    Raises:
        IntakeError: with one sentence that names what was given and what is allowed.
    """
    request = comparing.check(source, question)
    grid = host.inputs.grid_of(request.image.size)
    budget = min(choosing.BUDGET, grid[0] * grid[1])
    places = choosing.check_places(cells, grid, budget)
    return replace(request, config=replace(request.config, budget=budget), places=places)


class YouHandlers:
    """The handlers, over those that run the model."""

    def __init__(self, model: ModelHandlers) -> None:
        self.model = model

    # --- the API ---

    def answered(self, image: Any, question: Any, cells: Any) -> Contest:
        """What comes of the cells; refusals become sentences."""
        try:
            return self._contest(self._given(image, question, cells))
        except Exception as error:  # whatever it is, it is said in a sentence
            raise refusal(error) from None

    def _given(self, image: Any, question: Any, cells: Any) -> Request:
        source = source_of(image, get_upload_folder())
        return request_of(self.model.loader.get(), source, question, cells)

    def _contest(self, request: Request) -> Contest:
        return comparing.last_or_refusal(self.model.run(request))

    # --- the page ---

    def on_unfold(self, playing: you.Round | None) -> Played:
        """The section was opened: a picture to begin with, unless one is being played."""
        return Played() if playing else self._begun(self._drawn)

    def on_round(self, event: gr.EventData, **inputs: Any) -> Played:
        """Another picture was asked for: a new one, or the picture and question above (a `Visit`)."""
        if sent(event, "you") == "above":
            return self._begun(lambda: self._above(self.model.local.visited(inputs)))
        return self._begun(self._drawn)

    def _begun(self, make: Any) -> Played:
        try:
            host = self.model.loader.get(PATIENCE_S)
            playing = make()
            with Image.open(io.BytesIO(playing["picture"])) as image:
                glance, grid = choosing.glance_of(host, image)
                return Played(you.opened(playing, glance, grid, image.size), playing, spoken())
        except Exception as error:  # whatever it is, it is said in a sentence
            return Played(you_said=sentence_of(error))

    def _drawn(self) -> you.Round:
        bundled = self.model.loader.get(PATIENCE_S).is_bundled
        kinds = good_kinds() if bundled else all_kinds()
        new = new_picture([kind for kind in kinds if kind in SMALL] or kinds)
        question, truth = new.questions[0]
        return you.Round(picture=_png(new.image), question=question, truth=truth, seen=False)

    def _above(self, visit: Visit) -> you.Round:
        request = visit.request()
        truth = self.model.local.truth_of(request.question, visit.card, visit.drawn)
        picture = _png(_within(request.image, self.model.loader.get(PATIENCE_S).max_pixels))
        return you.Round(picture=picture, question=request.question, truth=truth, seen=True)

    def on_waiting(self) -> str:
        """How long the answer will wait for its turn, in a sentence; "" where it hardly will."""
        return spoken(self.model.on_waiting())

    def on_spent(self, playing: you.Round | None, event: gr.EventData) -> Played:
        """The tokens are spent: the model answers from them and from its own choice."""
        try:
            if not playing:
                raise intake.IntakeError(NO_ROUND)
            places = sent(event, "places")
            host = self.model.loader.get()
            request = request_of(host, playing["picture"], playing["question"], places)
            contest = self._contest(request)
            glance, _ = choosing.glance_of(host, request.image)
            return Played(you.played(playing, request.image, glance, contest), UNCHANGED, spoken())
        except Exception as error:  # whatever it is, it is said in a sentence
            return Played(you_said=sentence_of(error))


def _within(image: Image.Image, pixels: int) -> Image.Image:
    """The picture, which is kept for the visit, no larger than the model looks at."""
    scale = math.sqrt(pixels / (image.width * image.height))
    if scale >= 1:
        return image
    size = (max(1, int(image.width * scale)), max(1, int(image.height * scale)))
    return image.resize(size, Image.Resampling.BICUBIC)


def _png(image: Image.Image) -> bytes:
    out = io.BytesIO()
    image.save(out, "PNG")
    return out.getvalue()
