"""Serving: what stands between a web framework and the model: loading late, trusting no path.

No gradio here. The model is imported only when it is loaded, so that a page can answer first.
"""

import logging
import threading
from pathlib import Path
from typing import Any

from arr_coc import comparing, intake

LOAD_TIMEOUT_S = 240
log = logging.getLogger(__name__)


class Loader:
    """Loads the one model in the background, so that the page answers before it is there."""

    def __init__(self, warm: bool = True) -> None:
        """With `warm`, short answers are run after loading; not where loading has no GPU yet."""
        self.warm, self.model, self.error = warm, None, None
        self.ready, self.lock, self.thread = threading.Event(), threading.Lock(), None

    def start(self) -> None:
        """Begin loading, once; not where `load` was called already."""
        with self.lock:
            if self.thread is None and not self.ready.is_set():
                self.thread = threading.Thread(target=self.load, daemon=True)
                self.thread.start()

    def load(self, device: str | None = None) -> None:
        """Load here and now; a failure is kept as a sentence."""
        try:
            from arr_coc.qwen import ARRCOCQwen

            model = ARRCOCQwen.from_pretrained(device=device)
            if self.warm:
                comparing.warm_up(model)
            self.model = model
        except Exception as error:
            log.exception("the model did not load")
            plain = str(error) if isinstance(error, ValueError) else type(error).__name__
            self.error = plain.splitlines()[0]
        self.ready.set()

    def get(self):
        """The model; waits for it. Raises IntakeError with the reason if it did not load."""
        if not self.ready.is_set():
            self.start()
            if not self.ready.wait(LOAD_TIMEOUT_S):
                raise intake.IntakeError("The model is still loading; try again in a minute.")
        if self.error:
            raise intake.IntakeError(f"The model did not load: {self.error}")
        return self.model


def source_of(given: Any, folder: str | Path) -> str:
    """Where a file that the framework received lies: a `data:` URL, or a path in `folder`.

    Args:
        given: the framework's file record (an object with `model_dump`, or its dict), or a string.
        folder: where uploads are kept. A path is taken from nowhere else, whatever a client claims.

    Raises:
        IntakeError: for anything else.
    """
    data = given.model_dump() if hasattr(given, "model_dump") else given
    if isinstance(data, str):
        data = {"url": data} if _is_data_url(data) else {"path": data}
    if not isinstance(data, dict):
        raise intake.IntakeError(f"No picture was given; allowed is one {intake.READABLE} file.")
    url, path = data.get("url"), data.get("path")
    if _is_data_url(url):
        return url
    if not isinstance(path, str) or "\0" in path or not _is_inside(path, folder):
        raise intake.IntakeError("The picture was not uploaded to this page; upload it first.")
    return path


def _is_data_url(text: Any) -> bool:
    return isinstance(text, str) and text[:5].lower() == "data:"


def _is_inside(path: str, folder: str | Path) -> bool:
    try:
        return Path(path).resolve().is_relative_to(Path(folder).resolve())
    except (OSError, ValueError):
        return False
