"""Paying: whether looking closely only where it matters would be sooner here than looking at everything.

A focused look saves encoder work and pays for a glance and for maps: on a small picture, or a fast machine,
that is a loss. `StageTimes` remembers what each stage took in this process, and predicts both looks.
Focused looks that go about it differently, say after the encoder, are remembered apart.
"""

from collections import deque
from collections.abc import Iterable

import numpy as np

from arr_coc.config import Config

AGAIN = (
    20  # times that a focused look is not taken in a row before it is tried again: machines change
)
KEPT = 64  # runs of each stage that are remembered: the machine may be slower now than an hour ago
FULL, FOCUSED = "full", "focused"
# What a look's seconds are made of, and the tokens by which each grows.
STAGES = {
    FULL: {"preprocess": "native", "encode": "native", "prefill": "native"},
    FOCUSED: {
        "preprocess": "native",
        "glance": "glance",
        "relevance": "native",
        "encode": "encoded",
        "prefill": "held",
    },
}

Seen = tuple[float, float]  # tokens, seconds
Told = tuple[dict[tuple[str, str, str], list[Seen]], int]


def way_of(config: Config | None, context: str = "", learned: bool = False, blocks: int = 1) -> str:
    """What a look's seconds depend on besides tokens, in a word.

    Args:
        config: None for a full look.
        context: what its context came to (`components.context_for`).
        learned: whether weights decide, and not rules.
        blocks: moments or pictures; tokens of several cost an encoder less.
    """
    how = ""
    if config:
        rounds = " in rounds" if config.is_auto else ""
        by = "weights" if learned else "rules"
        how = f"{config.glance} {config.prune} {context} {config.allocator}"
        how += f" by {by}{rounds}"
    return how if blocks == 1 else f"{how} of {blocks}".strip()


def worked_on(config: Config, native: int, held: int, glance: int) -> dict[str, int]:
    """The tokens by which `STAGES` of either look grow.

    Args:
        config: of the focused look.
        native: tokens of all that is asked about.
        held: that may go to the text model.
        glance: that the glance takes.
    """
    encoded = held if config.prune == "before" else native
    return {"native": native, "glance": glance, "encoded": encoded, "held": held}


class StageTimes:
    """Seconds of each stage of both looks on this machine, by the tokens that it worked on."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str, str], deque[Seen]] = {}
        self._passed_over = 0  # focused looks in a row that were not taken

    def note(
        self, look: str, tokens: dict[str, int], seconds: dict[str, float], way: str = ""
    ) -> None:
        """Remember a run; one that is remembered already counts once.

        Args:
            look: `FULL` or `FOCUSED`.
            tokens: by name, the values of `STAGES[look]`.
            seconds: by stage.
            way: see `way_of`.
        """
        for stage, by in STAGES[look].items():
            own = self._seen.setdefault((look, stage, way), deque(maxlen=KEPT))
            # Preparing is one stage for both looks, but stock prepares every patch in it.
            if (entry := (tokens[by], seconds[stage])) not in own:
                own.append(entry)

    def told(self) -> Told:
        """All that is remembered, for another process to `learn`."""
        return {key: list(seen) for key, seen in self._seen.items()}, self._passed_over

    def learn(self, told: Told) -> None:
        """Remember what another process, say a GPU worker that ends, has noted since."""
        noted, self._passed_over = told
        for key, seen in noted.items():
            own = self._seen.setdefault(key, deque(maxlen=KEPT))
            own.extend(entry for entry in seen if entry not in own)

    def predicted(self, look: str, tokens: dict[str, int], way: str = "") -> float | None:
        """Seconds to the first word of a look at so many tokens; None before its first run."""
        stages = [(self._seen.get((look, stage, way)), by) for stage, by in STAGES[look].items()]
        if not all(seen for seen, _ in stages):
            return None
        return sum(_at(seen, tokens[by]) for seen, by in stages)

    def why_not(self, tokens: dict[str, int], way: str = "", full_way: str = "") -> str | None:
        """A sentence where a focused look would not be sooner than the full one; None where it would.

        None too before the first such look; a full one is then taken once, to compare with.
        """
        full = self.predicted(FULL, tokens, full_way)
        focused = self.predicted(FOCUSED, tokens, way)
        if focused is None or (full is not None and focused < full):
            return None
        if full is None:
            return "Answered in full: how long that takes here was not known yet."
        return (
            f"Answered in full: looking closely at {tokens['held']} of {tokens['native']} tokens would "
            f"take {focused:.2g} s here, all of them {full:.2g} s."
        )

    def passes_over(self, tokens: dict[str, int], way: str, full_way: str = "") -> str | None:
        """As `why_not`, for a look that is about to be taken: now and then it is taken all the same."""
        said = self.why_not(tokens, way, full_way)
        self._passed_over = self._passed_over + 1 if said else 0
        if self._passed_over <= AGAIN:
            return said
        self._passed_over = 0
        return None


def _at(seen: Iterable[Seen], tokens: float) -> float:
    """Seconds at so many tokens: the median at each size that was seen, linear between two of them.

    Beyond them seconds grow with the tokens: at least so much for an encoder, whose attention grows faster.
    """
    by_size: dict[float, list[float]] = {}
    for size, seconds in list(seen):  # which another thread may add to
        by_size.setdefault(size, []).append(seconds)
    sizes = sorted(by_size)
    medians = [float(np.median(by_size[size])) for size in sizes]
    if tokens > sizes[-1]:
        return medians[-1] * tokens / sizes[-1]
    return float(np.interp(tokens, sizes, medians))
