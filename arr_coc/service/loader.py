"""Loader: the model, loaded late and once.

No gradio here. The model is imported only when it is loaded, so that a page can answer first.
"""

import json
import logging
import os
import threading
from concurrent.futures import Future
from functools import lru_cache
from pathlib import Path
from typing import Any

from arr_coc import digests, naming
from arr_coc.config import QWEN
from arr_coc.service import comparing, intake
from arr_coc.service.recordings import Identity, on_hub

LOAD_TIMEOUT_S = 240
AGAIN_S = 60.0  # after a base was not fetched
SERVED_AT_ONCE = 8
NOT_FETCHED = "NotFetched"  # of `qwen.loading`, by name: importing it imports torch
BUNDLED = Path(__file__).parent.parent / "bundled"
HUB_WAITS_S = 5.0  # that the first page waits for what weights on the Hub say of themselves
DIGEST_AT_MOST = 256 * 2**20  # bytes, a quarter of a second: the page waits for it
log = logging.getLogger(__name__)


class Loader:
    """Loads the one model in the background, so that the page answers before it is there."""

    def __init__(self, warm: bool = True) -> None:
        """With `warm`, short answers and the short check are run after loading; not where loading has no
        GPU yet."""
        self.warm, self.model, self.error = warm, None, None
        self.health = ""  # what the short check found, in a sentence; "" where it was not run
        self.progress: tuple[int, int] | None = (
            None  # bytes of a download: that are there, and in all
        )
        self.ready, self.lock, self.thread = threading.Event(), threading.Lock(), None
        self.tries_again = False  # after a while, as what failed may be the network

    def start(self) -> None:
        """Begin loading, once; not where `load` was called already."""
        with self.lock:
            if self.thread is None and not self.ready.is_set():
                self.thread = threading.Thread(target=self.load, daemon=True)
                self.thread.start()

    def load(self, device: str | None = None) -> None:
        """Load here and now; a failure is kept as a sentence, of the Hub until it is tried again.

        ARR-COC weights that cannot be used do not stop the model: it goes on with those that can,
        or training-free, and `notices` says why.
        """
        try:
            if is_served():
                from arr_coc.service.served import served

                base = base_to_come()
                self.model = served(BUNDLED / "base" if base == "bundled" else base)
                self.ready.set()
                return
            from arr_coc.qwen.model import ARRCOCQwen

            model = ARRCOCQwen.from_pretrained(
                device=device, on_bad_weights="notice", on_progress=self.on_progress
            )
            if self.warm:
                from arr_coc.check.trials import quick

                comparing.warm_up(model)
                self.health = quick(model)
            self.model = model
        except Exception as error:
            log.exception("the model did not load")
            plain = str(error) if isinstance(error, ValueError) else type(error).__name__
            self.error = naming.without_folders(plain.splitlines()[0])
            # Where loading has no GPU yet, workers inherit what there is: later it would be too late.
            if self.warm and type(error).__name__ == NOT_FETCHED:
                self.tries_again = True
                again = threading.Timer(AGAIN_S, self._again)
                again.daemon = True
                again.start()
        self.ready.set()

    def _again(self) -> None:
        with self.lock:
            self.tries_again, self.error, self.thread = False, None, None
            self.ready.clear()
        self.start()

    def on_progress(self, came: int, total: int) -> None:
        """So many bytes of a download are there, of so many."""
        self.progress = came, total

    @property
    def notices(self) -> list[str]:
        """What should be known of the model, a sentence each: weights left out, numbers that overflowed."""
        return [naming.without_folders(said) for said in getattr(self.model, "notices", ())]

    @property
    def fetched(self) -> str:
        """How much of a download is there, in words; "" where nothing is being fetched."""
        came, total = self.progress or (0, 0)
        return f"{came / 1e9:.1f} of {total / 1e9:.1f} GB" if came < total else ""

    def get(self, patience_s: float = LOAD_TIMEOUT_S) -> Any:
        """The model; waits for it. Raises IntakeError with the reason if it did not load, or not yet."""
        if not self.ready.is_set():
            self.start()
            if not self.ready.wait(patience_s):
                so_far = f" ({self.fetched} are here)" if self.fetched else ""
                raise intake.IntakeError(
                    f"The model is still loading{so_far}; try again in a minute."
                )
        if self.error:
            raise intake.IntakeError(f"The model did not load: {self.error}")
        return self.model


def is_served() -> bool:
    """Whether the owner named a server that answers in the model's place (`service.served`)."""
    return bool(naming.set_to("ARR_COC_SERVER"))


def at_once() -> int:
    """Requests that are answered at once: one by a model here, several by a server in its place."""
    return SERVED_AT_ONCE if is_served() else 1


def base_to_come() -> str:
    """Which base `loading.default_base` will name, without importing torch: for the cards.

    With a server, the one that its owner says it serves, else Qwen3-VL.
    """
    if is_served():
        return naming.set_to("ARR_COC_BASE") or QWEN
    on_gpu_space = "SPACE_ID" in os.environ and (
        naming.on_zerogpu() or Path("/dev/nvidia0").exists()
    )
    return naming.set_to("ARR_COC_BASE") or (QWEN if on_gpu_space else "bundled")


def identity_to_come() -> Identity:
    """Which base and weights will be loaded, by the digests of their files, without importing torch.

    None stands for what cannot be known cheaply: a file over `DIGEST_AT_MOST`, weights on the Hub.
    """
    base = base_to_come()
    bundled = base == "bundled" or Path(base).resolve() == (BUNDLED / "base").resolve()
    weights = naming.weights()
    foreign = False
    if weights and bundled and not naming.set_to("ARR_COC_BASE"):
        foreign = is_for_another(weights, naming.first_revision())
    if foreign or (bundled and weights is None):
        weights = str(BUNDLED / "arr-coc")
    of_weights = _digest_in(Path(weights)) if weights else ""
    return Identity(
        base=base,
        base_sha256=_digest_in(BUNDLED / "base" if bundled else Path(base)),
        weights_sha256=of_weights if of_weights or not weights else None,
        weights=on_hub(weights),
        weights_settings=digests.of_settings(Path(weights)) if weights else "",
    )


@lru_cache  # of the Hub it asks the network, and pages of cards, of clips and of results each ask this
def is_for_another(weights: str, revision: str | None) -> bool:
    """Whether weights say that they are for another base than the bundled one, which its own then serve.

    A page that was published with Qwen3-VL's weights and duplicated on a CPU is such a case. Weights that
    cannot be read say nothing.
    """
    try:
        told = Path(weights) / "config.json"
        if not Path(weights).is_dir():
            told = _told_soon(weights, revision)
        of_weights, own = (
            json.loads(path.read_text(encoding="utf-8"))
            for path in (told, BUNDLED / "arr-coc" / "config.json")
        )
        return any(of_weights.get(name) != own[name] for name in ("embedding_size", "fingerprint"))
    except Exception as error:  # the network's are many; loading says in a sentence what is wrong
        log.info("%s are not read before they are loaded: %s", weights, type(error).__name__)
        return False


def _told_soon(weights: str, revision: str | None) -> Path:
    """What weights on the Hub say of themselves, if it comes soon: the page waits for it.

    Raises:
        TimeoutError: where it did not; it still comes for the next start.
        Exception: whatever the Hub's client raises.
    """
    from huggingface_hub import hf_hub_download

    told: Future[Path] = Future()

    def ask() -> None:
        try:
            told.set_result(Path(hf_hub_download(weights, "config.json", revision=revision)))
        except Exception as error:
            told.set_exception(error)

    threading.Thread(target=ask, daemon=True).start()
    return told.result(HUB_WAITS_S)


def _digest_in(folder: Path) -> str | None:
    """SHA-256 of the weights in a folder; "" where there are none, None where they are large or damaged."""
    try:
        small = digests.weights_bytes(folder) <= DIGEST_AT_MOST
        return digests.of_weights(folder) if small else None
    except ValueError:  # loading will say it
        return None
