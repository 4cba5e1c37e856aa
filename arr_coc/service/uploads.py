"""Uploads: where a file that a client sent may be read from, whatever the client claims."""

from pathlib import Path
from typing import Any

from arr_coc.service.intake import READABLE, IntakeError, is_data_url


def source_of(
    given: Any, folder: str | Path, what: str = "picture", readable: str = READABLE
) -> str:
    """Where a file that the framework received lies: a `data:` URL, or a path in `folder`.

    Args:
        given: the framework's file record (an object with `model_dump`, or its dict), or a string.
        what, readable: what is expected, for the sentences.
        folder: where uploads are kept. A path is taken from nowhere else, whatever a client claims.

    Raises:
        IntakeError: for anything else.
    """
    data = given.model_dump() if hasattr(given, "model_dump") else given
    if isinstance(data, str):
        data = {"url": data} if is_data_url(data) else {"path": data}
    if not isinstance(data, dict):
        raise IntakeError(f"No {what} was given; allowed is one {readable} file.")
    url, path = data.get("url"), data.get("path")
    if is_data_url(url):
        return url
    if not isinstance(path, str) or "\0" in path or not _is_inside(path, folder):
        raise IntakeError(f"The {what} was not uploaded to this page; upload it first.")
    return path


def _is_inside(path: str, folder: str | Path) -> bool:
    try:
        return Path(path).resolve().is_relative_to(Path(folder).resolve())
    except (OSError, ValueError):
        return False
