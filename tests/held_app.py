"""Starts the real app with the real model, which goes no further while a file is there.

Run by `app_server.held_server`; its environment names the file, and one that gets a line per look. So a
test decides how long a comparison takes, however fast or busy the machine is. A number in the file is how
many looks of this process are not held.
"""

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import app

HOLD, LOOKS = (Path(os.environ[f"ARR_COC_TEST_{name}"]) for name in ("HOLD", "LOOKS"))
POLL_S = 0.02


class Held:
    """A model whose looks begin, and then wait until they may go on."""

    def __init__(self, model: Any) -> None:
        self.model, self.begun = model, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)

    def stream(self, image: Any, question: str, **options: Any) -> Iterator[Any]:
        """The model's own answers, held after the first."""
        self.begun += 1
        number = self.begun
        with LOOKS.open("a") as file:
            file.write(f"{question}\n")
        for answer in self.model.stream(image, question, **options):
            yield answer
            while is_held(number):
                time.sleep(POLL_S)


def is_held(number: int) -> bool:
    """Whether the look of that number, from 1, may not go on."""
    with suppress(FileNotFoundError):
        return number > int(HOLD.read_text() or 0)
    return False


load, held = app.LOADER.get, cache(Held)  # the one held model of this process
app.LOADER.get = lambda *patience: held(load(*patience))

if __name__ == "__main__":
    app.launch(app.demo, quiet=True)
    app.demo.block_thread()
