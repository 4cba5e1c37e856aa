"""Fetching: a base from the Hub into the cache, telling how far it is.

A first download of a large base takes minutes: whoever waits should see that something happens.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from huggingface_hub import snapshot_download
from huggingface_hub.utils import tqdm

from arr_coc import naming
from arr_coc.config import QWEN

OnProgress = Callable[[int, int], None]  # bytes that are there, and bytes in all
# What a base is made of; pickles are never fetched, and folders within the repo hold other formats.
PATTERNS = ("*.safetensors", "*.json", "*.jinja", "*.txt")
BELOW = "*/*"
REVISION = "ARR_COC_BASE_REVISION"


def fetched(base: str, on_progress: OnProgress | None = None) -> str:
    """The folder of a base: its own, or that in the Hub's cache once all of it is there.

    Args:
        base: a folder, or a Hub id; without a network what the cache holds serves.
        on_progress: told, as bytes come.

    Raises:
        Exception: whatever the Hub's client raises.
    """
    if Path(base).is_dir():
        return base
    return snapshot_download(
        base,
        allow_patterns=list(PATTERNS),
        ignore_patterns=BELOW,
        revision=revision_of(base),
        tqdm_class=_bar(on_progress) if on_progress else None,
    )


def revision_of(base: str) -> str | None:
    """The revision of a base on the Hub: of the one that runs `ARR_COC_BASE_REVISION`, else the newest."""
    runs = naming.set_to("ARR_COC_BASE") or QWEN
    return (naming.set_to(REVISION) or None) if base == runs else None


def _bar(on_progress: OnProgress) -> type[tqdm]:
    """A progress bar that also tells `on_progress`, where it counts bytes."""

    class Bar(tqdm):
        """Counts for itself: a bar that is not shown counts nothing."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.counts_bytes = kwargs.get("unit") == "B"
            self.came = int(kwargs.get("initial") or 0)

        def update(self, n: float | None = 1) -> bool | None:
            """As tqdm."""
            self.came += int(n or 0)
            if self.counts_bytes and self.total:
                on_progress(min(self.came, int(self.total)), int(self.total))
            return super().update(n)

    return Bar
