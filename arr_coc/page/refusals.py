"""Refusals: whatever stopped a request, as one sentence that the framework shows."""

import html
import logging

import gradio as gr

from arr_coc.page.frame import escaped
from arr_coc.service import errors, intake

log = logging.getLogger(__name__)


def spoken(sentence: str = "") -> str:
    """A sentence beside the control that was used; a place that stays, so that it is read aloud."""
    return f'<p class="arr-refusal" role="status">{escaped(sentence)}</p>'


def sentence_of(error: Exception) -> str:
    """Whatever stopped a request, beside the control that was used."""
    return spoken(html.unescape(refusal(error).message))


def refusal(error: Exception) -> gr.Error:
    """A sentence of our own as the framework's error, escaped: its pop-up renders HTML."""
    if not isinstance(error, intake.IntakeError | gr.Error):
        log.error("a request failed", exc_info=error)
    message = html.escape(errors.plainly(error), quote=False)
    return gr.Error(message, title="That did not work", print_exception=False)
