"""Clip cards: drawn clips that were compared beforehand, to be looked at without a model."""

from pathlib import Path
from typing import Any

import gradio as gr

from arr_coc.page import moments
from arr_coc.page.board import recorded_words
from arr_coc.page.changes import Several
from arr_coc.page.refusals import spoken
from arr_coc.page.several_handlers import OVER
from arr_coc.page.stamps import Turn
from arr_coc.page.visit import PERCENT
from arr_coc.service import recordings, several
from arr_coc.service.loader import identity_to_come

AGAIN = "“Ask about them” asks the model again, now."


class ClipCards:
    """The clips of a folder that were recorded with the base that is loaded.

    Attributes:
        folder: holds `recorded-clips.json` and the clips.
        recorded: as `recordings.load_clips` gives them; no clip is read before it is asked for.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.recorded = recordings.load_clips(folder, identity_to_come())

    @property
    def questions(self) -> list[str]:
        """What each of them was asked, in their order."""
        return [recording["question"] for recording in self.recorded[1]]

    def on_pick(self, number: int, turn: Turn, run: Any) -> Several:
        """What was recorded of a clip, with the clip and its question in place to be asked again.

        What was asked before has lost its turn; nothing is shown where something newer has it meanwhile.
        """
        turn.take(run)
        about, recorded = self.recorded
        recording = recorded[number]
        path = self.folder / recording["file"]
        shown = moments.shown(
            several.check_clip(str(path), recording["question"]).firsts,
            recording["result"],
            PERCENT,
            answer=recording["answer"],
            recorded=f"{recorded_words(about)} {AGAIN}",
        )
        if not turn.holds(run):
            return Several()
        return Several(
            several=shown,
            several_said=spoken(),
            several_files=gr.update(value=[str(path)]),
            several_question=recording["question"],
            **OVER,
        )
