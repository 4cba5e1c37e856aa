"""Sessions: what the web framework would keep of a visit for ever, forgotten in time."""

import ctypes
import os
import threading
import time
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

SESSION_KEPT = timedelta(minutes=50)  # after a session's last use; the page promises an hour
RECENT_SESSIONS = 32  # more than the queue holds: a call of the API among them may still run
CALL_KEPT = timedelta(seconds=10)  # after its last use, where it waits for nothing
SWEEP_S = 10.0


def forget_sessions(holder: Any, waiting: Mapping[str, Any] | None = None) -> None:
    """Drop what the framework would keep for its last thousands of sessions.

    Each holds the values of all components, so also a visitor's picture; it goes `SESSION_KEPT`
    after its last use. Every call of the API begins one too, with its picture, that nothing uses again:
    these, known by holding no state, go once they wait for nothing, or `RECENT_SESSIONS` later ones came.

    Args:
        holder: gradio's `StateHolder`.
        waiting: what each session still waits for, by its name (gradio's `Queue`).
    """
    now, waiting = datetime.now(), waiting or {}
    expired, over = now - SESSION_KEPT, now - CALL_KEPT
    sessions = list(holder.session_data.items())
    recent = {name for name, _ in sessions[-RECENT_SESSIONS:]}
    calls = {name for name, session in sessions if not session.state_data}
    for name in recent & calls:
        if waiting.get(name) or holder.time_last_used.get(name, now) > over:
            calls.remove(name)
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
            forget_sessions(demo.state_holder, demo._queue.pending_event_ids_session)
            forget_queues(demo._queue, demo.state_holder)
            trim_heap()

    threading.Thread(target=run, daemon=True).start()


def trim_heap() -> None:
    """Return to the system what C allocations left free; pictures of many sizes fragment it.

    Where the C library is not glibc, this does nothing.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if os.name == "posix" else None
    if trim is not None:
        trim(0)
