"""Labels: what visitors say of maps, for owners who ask for it. Off by default.

`ARR_COC_LABELS=FILE` turns it on. A line is what `python -m arr_coc.train --people FILE` reads, with a
`label` that tells a changed mind from a second person: of several lines with one label the last counts.
No picture is in it, and nothing about who asked. No torch.
"""

import contextlib
import hashlib
import hmac
import json
import logging
import os
import secrets
import threading
from pathlib import Path
from typing import Any

from arr_coc import naming
from arr_coc.service.intake import IntakeError, clean_question

LABELS = "ARR_COC_LABELS"
LARGEST = 16 * 2**20  # bytes; a full file takes no more: what people said is not thrown away
TOLD = (
    "Your answer is kept to train on, with your question, the three tensions of this map and a random "
    "number; not the picture, and nothing about you. A second press changes it."
)
OFF = "Whether maps make sense is not asked here: the owner of this page did not turn it on."
FULL = "The owner's file of answers is full: yours was not kept."
UNWRITTEN = "Your answer could not be written down here: it was not kept."
log = logging.getLogger(__name__)
_writing = threading.Lock()
_secret = secrets.token_bytes(16)  # of this process: no label can be led back to a visitor


def _lock(file: Any) -> None:
    """Other processes wait that write to it too; not on Windows."""
    with contextlib.suppress(ImportError):
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX)


def is_on() -> bool:
    """Whether an owner asked for it."""
    return bool(naming.set_to(LABELS))


def keep(visitor: str, comparison: str, question: Any, tensions: Any, makes_sense: Any) -> None:
    """Write down what a visitor says of one map.

    Args:
        visitor, comparison: any names of them; they go into the label's digest alone.
        question: at most 500 characters.
        tensions: compress, exploit and focus that the map was made with, each in [0, 1].
        makes_sense: true or false.

    Raises:
        IntakeError: where it is not turned on, for what is not allowed, and where it cannot be kept.
    """
    if not is_on():
        raise IntakeError(OFF)
    row = {"question": clean_question(question), "makes_sense": makes_sense, "tensions": tensions}
    if not any(character.isalnum() for character in row["question"]):
        raise IntakeError("The question has no word in it; words are expected.")
    if not isinstance(makes_sense, bool):
        raise IntakeError(f"makes_sense is {str(makes_sense)[:40]!r}; true or false is expected.")
    if not _are_tensions(tensions):
        raise IntakeError(
            f"The tensions are {str(tensions)[:80]!r}; three numbers from 0 to 1 are expected."
        )
    of = json.dumps([visitor, comparison, row["question"], tensions]).encode()
    row["label"] = hmac.new(_secret, of, hashlib.sha256).hexdigest()[:16]
    try:
        _append(Path(naming.set_to(LABELS)), row)
    except OSError as error:  # a full or read-only disk, a folder in the file's place
        log.warning("a label could not be written: %s", error)
        raise IntakeError(UNWRITTEN) from error


def _are_tensions(values: Any) -> bool:
    numbers = isinstance(values, list) and len(values) == 3
    numbers = numbers and all(type(value) in (int, float) for value in values)
    return numbers and all(0 <= value <= 1 for value in values)


def _append(path: Path, row: dict[str, Any]) -> None:
    """Add one whole line, or none: half a line would end a training that reads the file."""
    line = (json.dumps(row, separators=(",", ":")) + "\n").encode()
    with _writing:
        file = os.open(path, os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o600)
        try:
            _lock(file)
            size = os.fstat(file).st_size
            if size + len(line) > LARGEST:
                raise IntakeError(FULL)
            if os.write(file, line) < len(line):
                os.ftruncate(file, size)
                raise OSError("the disk is full")
        finally:
            os.close(file)  # which unlocks it
