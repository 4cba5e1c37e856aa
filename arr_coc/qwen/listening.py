"""Listening: what follows `generate` as it decodes: the text so far, an end, the first word's entropy."""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import LogitsProcessor, StoppingCriteria
from transformers.generation.streamers import BaseStreamer

from arr_coc.qwen import finite

UNDECODED = "\ufffd"


def whole_text(tokenizer: Any, ids: Sequence[int]) -> str:
    """The text of the most of these ids that end in a whole character."""
    for count in range(len(ids), 0, -1):
        text = tokenizer.decode(ids[:count], skip_special_tokens=True)
        if not text.endswith(UNDECODED):
            return text.strip()
    return ""


class Streamer(BaseStreamer):
    """Collects token ids as generate() makes them, and reports the text so far."""

    def __init__(self, tokenizer: Any, report: Callable[[str], None]) -> None:
        """`report` is called with the text so far."""
        self.tokenizer, self.report = tokenizer, report
        self.ids: list[int] = []
        self.text = ""
        self.first_at: float | None = None
        self.prompt_seen = False

    def put(self, value: Tensor) -> None:
        """Called with the prompt once, then with each token."""
        if not self.prompt_seen:
            self.prompt_seen = True
            return
        self.ids.extend(value.flatten().tolist())  # reading it waits for the device
        self.first_at = self.first_at or time.perf_counter()
        text = self.tokenizer.decode(self.ids, skip_special_tokens=True)
        if not text.endswith(UNDECODED):  # half a character: wait for the rest
            self.text = text.strip()
            self.report(self.text)

    def end(self) -> None:
        """Nothing is held back."""


class Stop(StoppingCriteria):
    """Stops decoding when the consumer left or `allowed_s` seconds have passed since the first token."""

    def __init__(self, event: threading.Event, allowed_s: float) -> None:
        self.event, self.allowed_s, self.late = event, allowed_s, False
        self._began: float | None = None

    def __call__(self, input_ids: Tensor, scores: Tensor, **_: Any) -> Tensor:
        now = time.perf_counter()
        self._began = now if self._began is None else self._began
        self.late = now - self._began >= self.allowed_s
        stop = self.event.is_set() or self.late
        return torch.full((len(input_ids),), stop, dtype=torch.bool, device=input_ids.device)


class FirstEntropy(LogitsProcessor):
    """Notes the entropy of the first token's distribution, and refuses logits that are no numbers.

    It changes nothing.
    """

    def __init__(self) -> None:
        self.first: Tensor | None = None

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        finite.check_logits(scores)
        if self.first is None:
            self.first = scores[0]
        return scores

    def nats(self) -> float | None:
        """The entropy in nats; None where no token came. Reading it waits for the device."""
        if self.first is None:
            return None
        return round(float(torch.special.entr(self.first.float().softmax(-1)).sum()), 4)
