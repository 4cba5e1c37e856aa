"""Lines: what one check found: green, or red with what to do. Nothing here ends in a traceback."""

import platform
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from arr_coc import naming
from arr_coc.qwen.loading import first_line

NO_MEMORY = (
    "Take a smaller dtype (--dtype bfloat16 is half of float32), close what else runs, or take a "
    "machine with more memory."
)
OURS = "This is not foreseen: please open an issue with this report (--markdown)."


@dataclass(frozen=True)
class Line:
    """What one check found.

    Attributes:
        name: of the check.
        ok: whether it is green.
        said: what was found, in a sentence.
        todo: what to do where it is red.
    """

    name: str
    ok: bool
    said: str
    todo: str = ""


class Red(Exception):
    """A check that failed: the sentence, and what to do."""

    def __init__(self, said: str, todo: str) -> None:
        super().__init__(said)
        self.todo = todo


def tried(name: str, trial: Callable[[], str], todo: str = OURS) -> Line:
    """The line of a check, whatever happens in it; `todo` is for what it does not name itself."""
    try:
        return Line(name, True, trial())
    except Red as red:
        return Line(name, False, str(red), red.todo)
    except Exception as error:  # a doctor that falls over helps nobody
        if _is_memory(error):
            return Line(name, False, "there is not enough memory", NO_MEMORY)
        plain = isinstance(error, ValueError | OSError)
        said = first_line(error) if plain else f"{type(error).__name__}: {first_line(error)}"
        return Line(name, False, said, todo)


def _is_memory(error: Exception) -> bool:
    text = str(error).lower()
    return (
        isinstance(error, MemoryError)
        or type(error).__name__ == "OutOfMemoryError"
        or "out of memory" in text
        or "can't allocate memory" in text
    )


def without_places(line: Line) -> Line:
    """The same without folders and the name of this machine, so that it can be shown to others."""
    return replace(line, said=scrubbed(line.said), todo=scrubbed(line.todo))


def scrubbed(text: str) -> str:
    """A text in which no path leads to a folder, and this machine has no name."""
    text, host = naming.without_folders(text), platform.node()
    return re.sub(rf"\b{re.escape(host)}\b", "this machine", text) if len(host) > 2 else text


def in_a_sentence(lines: Iterable[Line]) -> str:
    """Several lines in short: all is well, or what is not."""
    lines = list(lines)
    wrong = [line for line in lines if not line.ok]
    if not wrong:
        return "Checked at the start: " + "; ".join(line.said for line in lines) + "."
    said = " ".join(f"{line.said}. {line.todo}" for line in map(without_places, wrong))
    return f"The check at the start found: {said}"
