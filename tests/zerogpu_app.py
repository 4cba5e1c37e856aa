"""Starts the app as on ZeroGPU, without torch or a GPU: torch is hidden and the model a stub.

Run by test_zerogpu.py; its environment names the device API to talk to.
"""

import os
import sys
import time
import types
from dataclasses import dataclass, field

from arr_coc.qwen.paying import FULL, STAGES, StageTimes


class NoTorch:
    """Hides torch, so that `spaces` forks and pickles but moves no weights."""

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "torch":
            raise ImportError("torch is hidden")


sys.meta_path.insert(0, NoTorch())
MAIN = os.getpid()


@dataclass(frozen=True)
class Measures:
    stages: dict = field(default_factory=dict)
    time_to_first_token: float = 0.1
    decode_tokens_per_second: float = 1.0
    new_tokens: int = 1
    visual_tokens: int = 64
    visual_tokens_full: int = 64
    kv_cache_bytes: int = 1
    peak_memory_bytes: int = 1
    peak_memory_kind: str = "nothing"
    first_token_entropy: float | None = None


@dataclass(frozen=True)
class Answer:
    text: str
    stage: str
    done: bool
    measures: Measures | None = None
    realization: None = None


class Stub:
    """Answers with the place it ran in, and fails where it is asked to."""

    name, is_bundled, device, notices = "stub", False, "cuda", []

    def __init__(self):
        self.times = StageTimes()

    @classmethod
    def from_pretrained(cls, **options):
        assert options["device"] == "cuda" and os.getpid() == MAIN
        return cls()

    def warm_up(self):
        assert os.getpid() != MAIN, "there is no GPU in the main process"

    def stream(self, image, question, *, use_arr_coc, **_):
        yield Answer("", "encode", False)
        if "fail" in question and use_arr_coc:
            raise RuntimeError("secret")
        if "die" in question:
            os._exit(1)
        place = "main" if os.getpid() == MAIN else "worker"
        text = f"{place} {image.size[0]}x{image.size[1]}"
        if "how many" in question:  # looks are remembered
            text = str(sum(map(len, self.times.told()[0].values())) // len(STAGES[FULL]))
        seconds = time.monotonic() % 1  # no two alike
        self.times.note(FULL, {"native": 12}, dict.fromkeys(STAGES[FULL], seconds))
        yield Answer(text, "done", True, Measures())


STUBS = {"qwen.model": {"ARRCOCQwen": Stub}}
for name, parts in STUBS.items():
    module = types.ModuleType(f"arr_coc.{name}")
    module.__dict__.update(parts)
    sys.modules[module.__name__] = module

if __name__ == "__main__":
    import app

    app.launch(app.demo, quiet=True)
    app.demo.block_thread()
