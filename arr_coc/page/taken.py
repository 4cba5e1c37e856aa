"""Page taken: what a visitor gives, handed on as it came; handlers check it and say what is wrong."""

from pathlib import Path
from typing import Any

import gradio as gr
from gradio.utils import get_upload_folder

from arr_coc.service import intake
from arr_coc.service.uploads import source_of


class Picture(gr.Image):
    """`gr.Image` that hands on the file unopened: `intake` opens it, and says what is wrong."""

    is_template = True  # the browser draws a plain Image

    def preprocess(self, payload: Any) -> str | intake.IntakeError | None:
        """The `data:` URL or the path of the file given, None, or why it is refused."""
        try:
            source = None if payload is None else source_of(payload, get_upload_folder())
        except intake.IntakeError as error:  # a handler says it where the visitor looks
            return error
        is_there = source is None or intake.is_data_url(source) or Path(source).is_file()
        return source if is_there else intake.IntakeError(intake.GONE)


class Number(gr.Slider):
    """`gr.Slider` that hands on what is typed: half of a number, or one out of range, is no error yet."""

    is_template = True  # the browser draws a plain Slider

    def preprocess(self, payload: Any) -> Any:
        """The number that stands in the box, or None."""
        return payload


class Choice(gr.Dropdown):
    """`gr.Dropdown` that hands on what is chosen, of choices that came for a visit since forgotten too."""

    is_template = True  # the browser draws a plain Dropdown

    def preprocess(self, payload: Any) -> Any:
        """The value of what is chosen, or None."""
        return payload
