"""Serving: what stands between a web framework and the model: loading late, trusting no path.

No gradio here. The model is imported only when it is loaded, so that a page can answer first.
"""

import ctypes
import logging
import os
import threading
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from arr_coc import comparing, intake

LOAD_TIMEOUT_S = 240
SESSION_KEPT = timedelta(minutes=50)  # after a session's last use; the page promises an hour
RECENT_SESSIONS = 32  # more than the queue holds: an API call among them may still run
SWEEP_S = 10.0
QUOTA = "Your GPU minutes for today are used up; sign in, or come back tomorrow."
BUSY = "All GPUs are busy; try again in a minute."
TOO_MUCH = "This asks for more GPU time than one visit has; ask for a shorter answer."
EXPIRED = "This visit has expired; reload the page and try again."
ABORTED = "The GPU worker stopped before it had an answer; try again."
log = logging.getLogger(__name__)


class Loader:
    """Loads the one model in the background, so that the page answers before it is there."""

    def __init__(self, warm: bool = True) -> None:
        """With `warm`, short answers are run after loading; not where loading has no GPU yet."""
        self.warm, self.model, self.error = warm, None, None
        self.notices: list[str] = []  # why named ARR-COC weights are not in use, one sentence each
        self.ready, self.lock, self.thread = threading.Event(), threading.Lock(), None

    def start(self) -> None:
        """Begin loading, once; not where `load` was called already."""
        with self.lock:
            if self.thread is None and not self.ready.is_set():
                self.thread = threading.Thread(target=self.load, daemon=True)
                self.thread.start()

    def load(self, device: str | None = None) -> None:
        """Load here and now; a failure is kept as a sentence.

        ARR-COC weights that cannot be used do not stop the model: it goes on with those that can,
        or training-free, and `notices` says why.
        """
        try:
            from arr_coc import loading
            from arr_coc.qwen import ARRCOCQwen

            model = ARRCOCQwen.from_pretrained(components="", device=device)
            if components := loading.default_weights(model.is_bundled):
                found = loading.policies_for(model, components, loading.revisions())
                model.policies, self.notices = found
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


def base_to_come() -> str:
    """Which base `loading.default_base` will name, told without importing torch: for the cards."""
    on_gpu_space = "SPACE_ID" in os.environ and (
        os.environ.get("SPACES_ZERO_GPU") or Path("/dev/nvidia0").exists()
    )
    return os.environ.get("ARR_COC_BASE") or ("qwen" if on_gpu_space else "bundled")


def forget_sessions(holder: Any) -> None:
    """Drop what the framework would keep for its last thousands of sessions.

    Each holds the values of all components, so also a visitor's picture; it goes `SESSION_KEPT`
    after its last use. Every API call begins one too, 0.1 MB that nothing uses again: these, known
    by holding no state, go as soon as `RECENT_SESSIONS` later ones came.

    Args:
        holder: gradio's `StateHolder`.
    """
    expired = datetime.now() - SESSION_KEPT
    sessions = list(holder.session_data.items())
    calls = {name for name, session in sessions[:-RECENT_SESSIONS] if not session.state_data}
    for name, _ in sessions:
        if name in calls or holder.time_last_used.get(name, expired) < expired:
            holder.session_data.pop(name, None)
            holder.time_last_used.pop(name, None)


def forget_queues(queue: Any, holder: Any) -> None:
    """Drop the message queues of sessions that are gone and wait for nothing; 2000 would be kept.

    Args:
        queue: gradio's `Queue`.
        holder: gradio's `StateHolder`, after `forget_sessions`.
    """
    for name, waits_for in list(queue.pending_event_ids_session.items()):
        if not waits_for and name not in holder.session_data:
            queue.pending_event_ids_session.pop(name, None)
            queue.pending_messages_per_session.pop(name, None)


def keep_forgetting(demo: Any) -> None:
    """Forget what gradio's `Blocks` keep of visits that are over, for as long as the process lives."""

    def run() -> None:
        while True:
            time.sleep(SWEEP_S)
            forget_sessions(demo.state_holder)
            forget_queues(demo._queue, demo.state_holder)
            give_back_memory()

    threading.Thread(target=run, daemon=True).start()


def give_back_memory() -> None:
    """Return to the system what C allocations left free; pictures of many sizes fragment it.

    Where the C library is not glibc, this does nothing.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if os.name == "posix" else None
    if trim is not None:
        trim(0)


def plainly(error: Exception) -> str:
    """One sentence for whatever stopped a request: our own refusal, the platform, or the model.

    The platform's errors share one class; they are told apart by `title`, and a worker's by the name
    of the exception it died of, which is their `message`.
    """
    if isinstance(error, intake.IntakeError):
        return str(error)
    title, said = str(getattr(error, "title", "")).lower(), str(getattr(error, "message", ""))
    if "no gpu" in f"{title} {said.lower()}" or "queue" in title:
        return BUSY
    if "quota" in title or "credits" in title:
        return QUOTA
    if "duration" in title:
        return TOO_MUCH
    if "token" in said.lower():
        return EXPIRED
    if not title:
        return comparing.sentence(error)
    if said in ("OutOfMemoryError", "MemoryError"):
        return comparing.NO_MEMORY
    return comparing.TOO_LONG if said in ("TimeoutError", "Empty") else ABORTED


def standing(records: Iterator[tuple[str, Any]], model: Any, request: comparing.Request):
    """The records of `comparing.compare_stream`, ended properly even where a worker dies.

    What was finished stands: after a finished full look the last record is a "result" in which the
    look under way carries the sentence. Without one the exception goes on.
    """
    done: dict[str, Any] = {}
    try:
        for kind, value in records:
            done[kind] = value
            yield kind, value
    except Exception as error:
        full, focused = (done.get(key, comparing.empty_look()) for key in ("full", "focused"))
        if not full["done"] or full["error"]:
            raise
        log.exception("a worker ended after the full look")
        failed, shrunk = {"done": True, "error": plainly(error)}, None
        if not focused["done"]:
            focused = {**focused, **failed}
        elif request["shrunk"]:
            shrunk = {**done.get("shrunk", comparing.empty_look()), **failed}
        yield "result", comparing.result_of(model, request["question"], full, focused, shrunk)


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
