"""Journal: a line of JSON for each finished answer, for owners who ask for it. Off by default.

`ARR_COC_LOG=FILE` turns it on. A line says what was decided and what it took; never what was seen, and
what was asked only where `ARR_COC_LOG_QUESTIONS=1` asks for that too. docs/owners.md has the fields;
`python -m arr_coc.service.latency FILE` reads them back. No torch.
"""

import json
import logging
import os
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from arr_coc import naming
from arr_coc.service import labels

LOG, QUESTIONS = "ARR_COC_LOG", "ARR_COC_LOG_QUESTIONS"
LARGEST = 16 * 2**20  # bytes; then the file becomes FILE.1, and the one that was that goes
LOOKS = ("full", "focused", "shrunk")
log = logging.getLogger(__name__)
_writing = threading.Lock()


def is_on() -> bool:
    """Whether an owner asked for it."""
    return bool(naming.set_to(LOG))


def never_served() -> list[str]:
    """Files that hold what visitors asked or said: not to be downloaded, wherever they lie."""
    return [path for path in map(naming.set_to, (LOG, labels.LABELS)) if path]


def notes_questions() -> bool:
    """Whether what was asked is noted too."""
    return is_on() and naming.set_to(QUESTIONS) == "1"


def noted(records: Iterator[tuple[str, Any]], request: Any) -> Iterator[tuple[str, Any]]:
    """The records of `comparing`, unchanged; where it is turned on, each answer of them is noted.

    It is noted before the result is handed on: nobody may ask for what comes after that. A line that
    cannot be written is a warning in the process's own log, and stops nothing.

    Args:
        records: of one request.
        request: a `comparing.Request`.
    """
    if not is_on():
        yield from records
        return
    for kind, value in records:
        if kind == "result":
            try:
                append(Path(naming.set_to(LOG)), rows_of(value, request))
            except Exception as error:  # an answer is worth more than its line
                log.warning("the log of decisions could not be written: %s", error)
        yield kind, value


def rows_of(result: dict[str, Any], request: Any) -> list[dict[str, Any]]:
    """A row for each look of a `ComparisonResult` that has an answer."""
    config, where, weights = request.config, result["where"], result["weights"] or {}
    about = {
        "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "base": result["base"]["name"],
        "base_commit": result["base"]["commit"] or None,
        "device": result["device"],
        # Of a clip and of several pictures: the first.
        "pixels": list(getattr(request, "pictures", [request.image])[0].size),
    }
    rows = []
    for name in LOOKS:
        look = result[name]
        if not look or look["error"]:
            continue
        tokens, kept = look["visual_tokens_full"], look["visual_tokens"]
        row = about | {"look": name, "tokens": tokens, "kept": kept}
        row["share"] = round(kept / tokens, 4) if tokens else None
        if name == "focused":
            row |= {"weights": weights.get("name"), "revision": weights.get("revision") or None}
            row["commit"] = weights.get("commit") or None
            row |= {"allocator": config.allocator, "glance": config.glance, "prune": config.prune}
            if where:
                row["tensions"] = [where["compress"], where["exploit"], where["focus"]]
                row |= {"tension_source": where["tension_source"], "fallback": where["fallback"]}
        row |= {
            "stages_s": look["stages_s"],
            "first_word_s": look["time_to_first_token_s"],
            "tokens_per_second": round(look["decode_tokens_per_second"], 3),
            "new_tokens": look["new_tokens"],
            "ended": look["ended"],
        }
        if notes_questions():
            row["question"] = request.question
        rows.append(row)
    return rows


def append(path: Path, rows: list[dict[str, Any]], largest: int = LARGEST) -> None:
    """Add rows to a file, whole lines only; one that would become too large is put aside as FILE.1."""
    lines = "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows).encode()
    if not lines:
        return
    with _writing:
        if path.exists() and path.stat().st_size + len(lines) > largest:
            os.replace(path, older(path))
        # Its owner's alone: it says when people asked. One write to the end: a reader never meets half
        # of another process's line.
        file = os.open(path, os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o600)
        try:
            os.write(file, lines)
        finally:
            os.close(file)


def older(path: Path) -> Path:
    """Where the rows before those of a file lie."""
    return path.with_name(path.name + ".1")
