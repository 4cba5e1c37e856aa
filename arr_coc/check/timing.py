"""Timing: both looks at a few picture sizes on this machine, and from which on looking closely pays.

The prediction between the sizes is `qwen.paying`'s, the one that `Config(when="auto")` follows.
"""

import time
from dataclasses import dataclass
from typing import Any

from arr_coc.check.trials import QUESTION, drawn
from arr_coc.components import context_for
from arr_coc.config import Config, glance_tokens
from arr_coc.qwen.answer import Measures
from arr_coc.qwen.paying import FOCUSED, FULL, StageTimes, way_of, worked_on

SIDES = (8, 16, 32)  # visual tokens a side of the square pictures that are timed
REPEATS = 3
LOOKS = (FULL, FOCUSED)


@dataclass(frozen=True)
class Size:
    """Both looks at a picture of one size.

    Attributes:
        tokens: the picture's visual tokens.
        kept: those that the focused look held.
        stages: for each look its seconds by stage, of the run with the median time to the first word.
        first: for each look those seconds to the first word.
    """

    tokens: int
    kept: int
    stages: dict[str, dict[str, float]]
    first: dict[str, float]


def largest_side(host: Any) -> int:
    """Visual tokens a side of the largest square picture that the page would give this base."""
    pixels = min(host.image_processor.size["longest_edge"], host.max_pixels)
    return int((pixels // host.geometry.unit_pixels**2) ** 0.5)


def timed(host: Any, seconds: float) -> list[Size]:
    """Both looks at each size of `SIDES` that the base takes, for about so many seconds.

    The smallest size is always timed; a larger one only where, growing as fast as its tokens, it fits.
    """
    host.times, begun, sizes = StageTimes(), time.monotonic(), []
    sides = [side for side in SIDES if side <= largest_side(host)] or [largest_side(host)]
    for number, side in enumerate(sides):
        started = time.monotonic()
        sizes.append(_size(host, side, once=seconds / 10))
        spent = time.monotonic() - started
        if number + 1 < len(sides):
            growth = (sides[number + 1] / side) ** 2
            if time.monotonic() - begun + spent * growth > seconds:
                break
    return sizes


def _size(host: Any, side: int, once: float) -> Size:
    """The median of `REPEATS` runs of each look, or one run where it takes longer than `once` seconds."""
    runs: dict[str, Measures] = {}
    for look in LOOKS:
        measures = []
        while len(measures) < REPEATS:
            begun = time.monotonic()
            measures.append(_run(host, side, look))
            if time.monotonic() - begun > once:
                break
        measures.sort(key=lambda one: one.time_to_first_token)
        runs[look] = measures[len(measures) // 2]
    return Size(
        tokens=runs[FULL].visual_tokens_full,
        kept=runs[FOCUSED].visual_tokens,
        stages={look: dict(one.stages) for look, one in runs.items()},
        first={look: one.time_to_first_token for look, one in runs.items()},
    )


def _run(host: Any, side: int, look: str) -> Measures:
    answer = host.generate(
        drawn(), QUESTION, look == FOCUSED, config=Config(), max_new_tokens=2, grid=(side, side)
    )
    return answer.measures


def pays(host: Any, sizes: list[Size]) -> str:
    """From which picture size on looking closely is sooner here, in a sentence."""
    weights = host.policy(Config())
    context = context_for(Config(), weights)
    way = way_of(Config(), context, weights is not None)
    sooner = None
    smallest, largest = int(sizes[0].tokens ** 0.5), largest_side(host)
    for side in range(largest, smallest - 1, -1):
        native, glance = side * side, glance_tokens((side, side), context)
        tokens = worked_on(Config(), native, Config().tokens(native), glance)
        if host.times.why_not(tokens, way):
            break
        sooner = side
    unit, last = host.geometry.unit_pixels, sizes[-1]
    if sooner is None and last.tokens < largest**2:
        return (
            f"looking closely is not sooner here at {last.tokens:,} tokens; larger pictures, up to "
            f"{largest**2:,}, were not timed: give --seconds more"
        )
    if sooner is None:
        return (
            f"looking closely is not sooner here, at any size up to {largest**2:,} tokens; "
            'Config(when="auto") then answers in full'
        )
    beyond = f", predicted beyond {last.tokens:,}" if largest**2 > last.tokens else ""
    from_all = " or fewer" if sooner == smallest else ""
    times = last.first[FULL] / last.first[FOCUSED]
    return (
        f"looking closely is sooner from {sooner**2:,} tokens{from_all} on ({sooner * unit} x "
        f"{sooner * unit} pixels{beyond}); {times:.1f} times as soon at {last.tokens:,}"
    )
