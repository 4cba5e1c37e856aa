"""Errors: what went wrong, as one sentence fit for a visitor.

No path, no type name and no stack leaves here; what a sentence leaves out is in the log.
"""

from arr_coc import naming
from arr_coc.service import intake

NO_MEMORY = "There was not enough memory for this look; keep fewer tokens or a smaller picture."
TOO_LONG = "The model took too long and was stopped; try again, or ask for a shorter answer."


def sentence(error: Exception) -> str:
    """One sentence for a visitor. Only messages written for people pass; the rest is named."""
    kind, text = type(error).__name__, str(error)
    if isinstance(error, intake.IntakeError):
        return text
    if kind == "ServerError":  # of `serving.client`: written for visitors, and may hold an address
        return naming.without_folders(text)[:300]
    if kind == "OutOfMemoryError" or isinstance(error, MemoryError) or _names_memory(text):
        return NO_MEMORY
    if isinstance(error, TimeoutError) or kind == "Empty":
        return TOO_LONG
    if isinstance(error, ValueError) and not _names_a_path(text):
        return (text.splitlines()[0] if text else "the input was refused")[:300]
    return f"This look failed inside the model ({kind}); the next one may work."


def _names_memory(text: str) -> bool:
    """On a CPU torch says with a RuntimeError that there is no memory."""
    return "out of memory" in text.lower() or "can't allocate memory" in text


def _names_a_path(text: str) -> bool:
    return "/" in text or "\\" in text


QUOTA = "Your GPU minutes for today are used up; sign in, or come back tomorrow."
BUSY = "All GPUs are busy; try again in a minute."
TOO_MUCH = "This asks for more GPU time than one visit has; ask for a shorter answer."
EXPIRED = "This visit has expired; reload the page and try again."
ABORTED = "The GPU worker stopped before it had an answer; try again."


def plainly(error: Exception) -> str:
    """One sentence for whatever stopped a request: our own refusal, the platform, or the model.

    The platform's errors share one class; they are told apart by `title`, and a worker's by the name
    of the exception it died of, which is their `message`.
    """
    if isinstance(error, intake.IntakeError):
        return str(error)
    title, message = str(getattr(error, "title", "")).lower(), str(getattr(error, "message", ""))
    if "no gpu" in f"{title} {message.lower()}" or "queue" in title:
        return BUSY
    if "quota" in title or "credits" in title:
        return QUOTA
    if "duration" in title:
        return TOO_MUCH
    if "token" in message.lower():
        return EXPIRED
    if not title:
        return sentence(error)
    if message in ("OutOfMemoryError", "MemoryError"):
        return NO_MEMORY
    return TOO_LONG if message in ("TimeoutError", "Empty") else ABORTED
