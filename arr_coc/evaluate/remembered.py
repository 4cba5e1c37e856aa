"""Remembered: what the scenes of a block can be asked, once they were drawn to see it.

Thousands of scenes are drawn before the first question of a rare kind is asked for the last time: longer
than what a resumed evaluation has left to do. What they hold is kept in `ARR_COC_CACHE`
(`~/.cache/arr-coc`), under a digest of all that draws: with other code or artwork nothing is remembered.
"""

import hashlib
import json
import os
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import numpy as np
import PIL

from arr_coc import digests

PACKAGE = Path(__file__).parents[1]
# All of the package that scenes are drawn from, and that says which of them make a block.
DRAWING = (
    "scenes/**/*",
    "bundled/fonts/*",
    "bundled/glyphs/*",
    "bundled/grounds/*",
    "bundled/hands/**/*",
    "evaluate/questions.py",
    "evaluate/views.py",
)


@dataclass(frozen=True)
class Remembered:
    """From a block's first seed to the kinds that each of its scenes can be asked, as `drawn` says.

    Attributes:
        drawn: a function at the top of a module, with all but the seed given by keyword.
        folder: where it is remembered.
    """

    drawn: partial
    folder: Path

    def __call__(self, start: int) -> list[list[str]]:
        """Drawn only where nobody remembers; where nothing can be kept, drawn each time."""
        path = self.folder / f"{self._key()}-{start}.json"
        with suppress(OSError, ValueError):
            return json.loads(path.read_text())
        kinds = self.drawn(start)
        with suppress(OSError):
            self.folder.mkdir(parents=True, exist_ok=True)
            aside = path.with_suffix(f".{os.getpid()}")  # another process may write the same
            aside.write_text(json.dumps(kinds))
            aside.replace(path)
        return kinds

    def _key(self) -> str:
        """Tells these drawings from others."""
        how = self.drawn.func.__module__, sorted(self.drawn.keywords.items())
        return hashlib.sha256(repr(how).encode()).hexdigest()[:16]


def remembered(drawn: partial) -> Remembered:
    """The same function, with the memory of this version of all that draws."""
    at = os.environ.get("ARR_COC_CACHE") or Path.home() / ".cache" / "arr-coc"
    return Remembered(drawn, Path(at) / "scenes" / _of_drawing())


@cache
def _of_drawing() -> str:
    """16 hex digits that change with the code, the artwork and the libraries that draw."""
    mark = hashlib.sha256(repr((np.__version__, PIL.__version__)).encode())
    for pattern in DRAWING:
        for path in sorted(PACKAGE.glob(pattern)):
            if path.is_file() and path.suffix != ".pyc":
                name = path.relative_to(PACKAGE).as_posix()
                mark.update(f"{name} {digests.of_file(path)}\n".encode())
    return mark.hexdigest()[:16]
