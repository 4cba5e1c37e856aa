"""What stays here unless it is asked for: results of one's own pictures, and folders of this machine.

Used by `files`, which makes the lists.
"""

import json
from pathlib import Path
from typing import Any

from arr_coc import naming
from arr_coc.hub import cards

SHIPPED = ("bundled", "qwen")  # examples of the repository; others are an owner's own
OWN_DATA = "--own-data"


def is_own(summary: dict[str, Any]) -> bool:
    """Whether an evaluation asked about a folder, or a local set, of whoever ran it."""
    return not {"folder", "set"}.isdisjoint(
        summary.get("data") or {}
    )  # "folder": of earlier versions


def own_results(results: Path) -> list[Path]:
    """Folders below `results` that hold an evaluation of one's own pictures."""
    found = []
    for path in sorted(results.rglob(cards.SUMMARY)):
        try:
            own = is_own(json.loads(path.read_text(encoding="utf-8")))
        except (ValueError, AttributeError):  # no summary of ours
            continue
        if own:
            found.append(path.parent)
    return found


def own_examples(examples: Path) -> list[Path]:
    """Folders of cards that are not the repository's."""
    folders = (path for path in sorted(examples.glob("*")) if path.is_dir())
    return [path for path in folders if path.name not in SHIPPED]


def without(files: dict[str, Any], folders: list[Path], root: Path) -> dict[str, Any]:
    """A list of files by their path from `root`, less those in `folders`."""
    left_out = tuple(f"{folder.relative_to(root).as_posix()}/" for folder in folders)
    return {name: source for name, source in files.items() if not name.startswith(left_out)}


def told(path: Path) -> Path | str:
    """A JSON file as it may be read by others: itself, or its text without folders of this machine."""
    if path.suffix != ".json":
        return path
    text = path.read_text(encoding="utf-8")
    try:
        said = json.loads(text)
    except ValueError:
        return path
    cleaned = naming.cleaned(said)
    return path if cleaned == said else json.dumps(cleaned, indent=1, ensure_ascii=False) + "\n"
