"""Cases: what is timed, on pictures of which sizes, with how many tokens."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from PIL import Image

from arr_coc.clips import Clip, clip_of
from arr_coc.config import MINIMUM_BUDGET, NO_REVISION, Config
from arr_coc.peers.base import Method
from arr_coc.peers.methods import METHODS
from arr_coc.peers.names import STOCK
from arr_coc.peers.ours import ARRCOC
from arr_coc.peers.views import ViewsMethod
from arr_coc.peers.views_methods import VIEWS_METHODS, ARRCOCViews
from arr_coc.qwen.weights import BUNDLED_WEIGHTS, CONFIG

QUESTION = "What number is on the small sign?"
SIZES = {"cpu": (300, 1024, 2048, 4096), "cuda": (1024, 2048, 4096)}
CLIP_SIZES = (256,)  # of each moment
SHARES = (0.05, 0.10, 0.20, 0.40)
FREE = {"revision": NO_REVISION}
OURS: dict[str, Config] = {
    "after": Config(glance="off", prune="after", **FREE),
    # The encoder sees the kept cells alone: the evaluation's cost curve reads this case.
    "before": Config(glance="off", context="none", **FREE),
    "before + separate glance": Config(glance="separate", context="cells", **FREE),
    # As "before", decided by weights: a focused look whose glance is spared.
    "scan alone": Config(glance="off", context="none"),
    # With every part that weights bring: each of them is counted.
    "glance as context": Config(glance="separate", context="glance"),
}
# As `evaluate` calls them.
PEERS = ("downsample", "pixelprune", "fastv")
CASES: dict[str, Callable[[], Method]] = {
    **{name: partial(ARRCOC, config, name) for name, config in OURS.items()},
    **{name: METHODS[name] for name in PEERS},
}
# The focused look with either context, see `config.CONTEXTS`.
BY_CONTEXT = {"cells": "before + separate glance", "glance": "glance as context"}
# Of clips: the focused look, and the stock model on fewer frames.
CLIP_CASES: dict[str, Callable[[], ViewsMethod]] = {
    **{name: partial(ARRCOCViews, OURS[name], name) for name in BY_CONTEXT.values()},
    "fewer-frames": VIEWS_METHODS["fewer-frames"],
}
# Frames that a moment shows. A clip has at most so many seconds (`clips.MAX_SECONDS`) and 64 frames.
FRAMES_EACH, FRAMES_APART_S = 2, 0.3


def shipped() -> str:
    """The case that is the focused look with the context that the shipped weights were trained for."""
    about = json.loads((BUNDLED_WEIGHTS / CONFIG).read_text(encoding="utf-8"))
    return BY_CONTEXT[about.get("context", "cells")]


@dataclass(frozen=True)
class Case:
    """One method on a picture, or a clip, of `tokens` visual tokens with a budget.

    `moments` are the clip's, which share the tokens; 0 is a picture.
    """

    name: str
    tokens: int
    budget: int
    moments: int = 0

    @property
    def method(self) -> Method | ViewsMethod:
        """A fresh one."""
        stock, cases = (VIEWS_METHODS, CLIP_CASES) if self.moments else (METHODS, CASES)
        return stock[STOCK]() if self.name == STOCK else cases[self.name]()

    def given(self, unit_pixels: int) -> Image.Image | Clip:
        """What is asked about; a token has `unit_pixels` a side."""
        if not self.moments:
            return image_of(self.tokens, unit_pixels)
        each = self.tokens // self.moments
        frames = [image_of(each, unit_pixels) for _ in range(FRAMES_EACH * self.moments)]
        return clip_of(frames, times=[FRAMES_APART_S * number for number in range(len(frames))])


def image_of(tokens: int, unit_pixels: int) -> Image.Image:
    """A busy picture of exactly `tokens` visual tokens, each `unit_pixels` a side."""
    rows = int(tokens**0.5)
    while tokens % rows:
        rows -= 1
    width, height = tokens // rows * unit_pixels, rows * unit_pixels
    return Image.effect_noise((width // 8, height // 8), 80).resize((width, height)).convert("RGB")


def cases(sizes: Sequence[int], shares: Sequence[float], moments: int = 0) -> list[Case]:
    """Stock and every other case that makes sense, for each size and share.

    Args:
        sizes: visual tokens of a picture, or of each moment.
        shares: of all tokens.
        moments: of a clip; 0 asks about pictures.
    """
    listed = []
    for size in sizes:
        tokens = size * (moments or 1)
        names = tuple(CLIP_CASES if moments else CASES)
        listed.append(Case(STOCK, tokens, tokens, moments))
        for share in shares:
            budget = max(MINIMUM_BUDGET, round(share * tokens))
            listed += [Case(name, tokens, budget, moments) for name in names]
    return listed
