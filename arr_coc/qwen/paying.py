"""Paying: whether looking closely only where it matters would be sooner here than looking at everything.

A focused look saves encoder work and pays for a glance and for maps: on a small picture, or a fast machine,
that is a loss. `StageTimes` remembers what each stage took in this process, and predicts both looks.
"""

from collections import deque
from collections.abc import Iterable

import numpy as np

KEPT = 64  # runs of each stage that are remembered: the machine may be slower now than an hour ago
FULL, FOCUSED = "full", "focused"
# What a look's seconds are made of, and the tokens by which each grows.
STAGES = {
    FULL: {"preprocess": "native", "encode": "native", "prefill": "native"},
    FOCUSED: {
        "preprocess": "native",
        "glance": "glance",
        "relevance": "native",
        "encode": "held",
        "prefill": "held",
    },
}

Seen = tuple[float, float]  # tokens, seconds


class StageTimes:
    """Seconds of each stage of both looks on this machine, by the tokens that it worked on."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], deque[Seen]] = {}

    def note(self, look: str, tokens: dict[str, int], seconds: dict[str, float]) -> None:
        """Remember a run; one that is remembered already counts once.

        Args:
            look: `FULL` or `FOCUSED`.
            tokens: by name, the values of `STAGES[look]`.
            seconds: by stage.
        """
        for stage, by in STAGES[look].items():
            own = self._seen.setdefault((look, stage), deque(maxlen=KEPT))
            # Preparing is one stage for both looks, but stock prepares every patch in it.
            if (entry := (tokens[by], seconds[stage])) not in own:
                own.append(entry)

    def predicted(self, look: str, tokens: dict[str, int]) -> float | None:
        """Seconds to the first word of a look at so many tokens; None before its first run."""
        stages = [(self._seen.get((look, stage)), by) for stage, by in STAGES[look].items()]
        if not all(seen for seen, _ in stages):
            return None
        return sum(_at(seen, tokens[by]) for seen, by in stages)

    def why_not(self, tokens: dict[str, int]) -> str | None:
        """A sentence where a focused look would not be sooner than the full one; None where it would.

        None too as long as either has not been run yet.
        """
        full, focused = (self.predicted(look, tokens) for look in (FULL, FOCUSED))
        if full is None or focused is None or focused < full:
            return None
        return (
            f"Answered in full: looking closely at {tokens['held']} of {tokens['native']} tokens would "
            f"take {focused:.2g} s here, all of them {full:.2g} s."
        )


def _at(seen: Iterable[Seen], tokens: float) -> float:
    """Seconds at so many tokens: the median at each size that was seen, linear between two of them.

    Beyond them seconds grow with the tokens: at least so much for an encoder, whose attention grows faster.
    """
    by_size: dict[float, list[float]] = {}
    for size, seconds in seen:
        by_size.setdefault(size, []).append(seconds)
    sizes = sorted(by_size)
    medians = [float(np.median(by_size[size])) for size in sizes]
    if tokens > sizes[-1]:
        return medians[-1] * tokens / sizes[-1]
    return float(np.interp(tokens, sizes, medians))
