"""The files of an upload, laid out as they will lie in the repository."""

import shutil
from collections.abc import Mapping
from pathlib import Path

from arr_coc.hub import files as hub_files


def laid_out(files: Mapping[str, Path | str | bytes], folder: Path) -> Path:
    """`files` (path in the repository, what is sent) written below `folder`, which is returned."""
    for name, source in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(source, Path):
            shutil.copyfile(source, path)
        else:
            path.write_bytes(hub_files.bytes_of(source))
    return folder
