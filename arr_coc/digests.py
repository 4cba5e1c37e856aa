"""Digests: SHA-256 of files, and of the weights in a folder whether in one file or in shards.

Read in blocks, so that gigabytes take no memory. No torch: the page asks before the model is loaded.
"""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
BLOCK = 1 << 20  # bytes
SETTINGS = ("context", "unsure", "pace", "parts")  # of ARR-COC weights, in their config.json


def of_file(path: Path) -> str:
    """SHA-256 of a file, in hex."""
    found = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            found.update(block)
    return found.hexdigest()


def weights_files(folder: Path) -> list[Path]:
    """The safetensors files that make up the weights in a folder, in a fixed order; none without any.

    Where there is an index it names them, as transformers reads it; one file of the plain name goes first.

    Raises:
        ValueError: for an index that is damaged, or names a file that is not there.
    """
    whole, index = folder / WEIGHTS, folder / INDEX
    if whole.is_file():
        return [whole]
    if not index.is_file():
        return []
    try:
        names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{INDEX} of {folder.name!r} is damaged: {error}") from error
    if missing := [name for name in names if not (folder / name).is_file()]:
        raise ValueError(f"{folder.name!r} lacks {missing[0]!r}, which its {INDEX} names")
    return [folder / name for name in names]


def of_weights(folder: Path) -> str:
    """SHA-256 of the weights in a folder, in hex; "" where there are none.

    Of one file it is that file's; of shards it is that of a list of their names and digests.
    """
    files = weights_files(folder)
    if not files or files == [folder / WEIGHTS]:
        return of_file(files[0]) if files else ""
    lines = "".join(f"{of_file(file)}  {file.name}\n" for file in files)
    return hashlib.sha256(lines.encode()).hexdigest()


def of_settings(folder: Path, names: Sequence[str] = SETTINGS) -> str:
    """SHA-256 of what ARR-COC weights say beside their tensors, in hex; "" where nothing can be read.

    The context, the bound of share "auto", the pace of clips and the parts' options decide as well.
    """
    try:
        said = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return ""
    own = {name: said.get(name) for name in names} if isinstance(said, dict) else {}
    return hashlib.sha256(json.dumps(own, sort_keys=True).encode()).hexdigest()


def weights_bytes(folder: Path) -> int:
    """How large the weights in a folder are, all files together."""
    return sum(file.stat().st_size for file in weights_files(folder))
