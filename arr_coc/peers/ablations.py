"""Ablations: ARR-COC with one choice changed: a map, a channel, a tension, an allocator, a glance.

`VARIANTS` names them all; each counts its own cost as `ours` does.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from arr_coc import knowing
from arr_coc.config import AUTO, NEUTRAL, Config, Tensions
from arr_coc.peers.base import Call
from arr_coc.peers.frames import FrameOf, coarse, coarse_encoder, compact, encode_in
from arr_coc.peers.names import OURS
from arr_coc.peers.ours import ARRCOC
from arr_coc.peers.texture_candidates import CANDIDATES, Candidate
from arr_coc.qwen.encoding import TokenSet
from arr_coc.qwen.glance import layers_in
from arr_coc.qwen.inputs import Ask
from arr_coc.qwen.model import ARRCOCQwen
from arr_coc.realizing import Glance, Realization, recombine
from arr_coc.texture import INDEX
from arr_coc.words import Words

Change = Callable[[Realization, Call], Realization]


class Recombined(ARRCOC):
    """ARR-COC that decides again after `change` put something else into its maps or tensions."""

    def __init__(self, change: Change, name: str) -> None:
        super().__init__(name=name)
        self.change = change

    def realize(self, call: Call, config: Config) -> Realization:
        """As ARR-COC, then from the changed maps and tensions; a fallback stays as it is."""
        first = super().realize(call, config)
        if first.fallback:
            return first
        changed = self.change(first, call)
        return recombine(changed, changed.tensions)


def without_map(name: str) -> Change:
    """The same value everywhere in place of a map."""
    return lambda r, _: replace(r, **{name: torch.full_like(getattr(r, name), 0.5)})


def by_channel(name: str) -> Change:
    """A channel of the texture in place of the perspectival map."""
    return lambda r, _: replace(r, perspectival=r.textures[:, INDEX[name]])


def by_candidate(measure: Candidate) -> Change:
    """A candidate for the texture in place of the perspectival map."""
    return lambda r, call: replace(r, perspectival=measure(call.ask.picture.pixels(), r.grid))


def with_peak(quantile: float) -> Change:
    """The glance's even attention, over another of its quantiles, as the participatory map."""
    return lambda r, _: replace(
        r,
        participatory=knowing.participatory(r.glance.attention, r.grid, peak_quantile=quantile),
    )


def with_tensions(**values: float) -> Change:
    """Some tensions set, the others as they were."""
    return lambda r, _: replace(r, tensions=replace(r.tensions, **values))


class Framed(ARRCOC):
    """ARR-COC with the QuadTree, its cells encoded alone and standing in a frame of `frames`."""

    def __init__(self, frame: FrameOf, name: str) -> None:
        super().__init__(Config(allocator="quadtree"), name)
        self.frame = frame

    def encode(self, call: Call, realization: Realization) -> TokenSet:
        """As ARR-COC, the cells standing elsewhere."""
        cells, picture = realization.allocation, call.ask.picture
        tokens = encode_in(call.host.model.model.visual, picture, cells, self.frame)
        return call.host.adapted(tokens, realization)


@dataclass(frozen=True)
class GlanceHost:
    """A `realizing.Host` that glances with another number of tokens, or reads other text layers.

    Everything else is the given host's own.
    """

    host: ARRCOCQwen
    tokens: int | None = None
    span: tuple[float, float] | None = None  # from and up to these shares of the text model's depth

    def grid(self, image: Ask) -> tuple[int, int]:
        """As the host's."""
        return self.host.grid(image)

    def pixels(self, image: Ask, side: int | None) -> Tensor:
        """As the host's."""
        return self.host.pixels(image, side)

    def embed(self, question: str) -> Words:
        """As the host's."""
        return self.host.embed(question)

    def glance(self, image: Ask, question: str, tokens: int) -> Glance:
        """As the host's, with other tokens or layers; `tokens` counts where none were set."""
        layers = layers_in(self.span, self._depth) if self.span else None
        return self.host.glance(image, question, self.tokens or tokens, layers)

    @property
    def _depth(self) -> int:
        return self.host.model.config.text_config.num_hidden_layers


class OtherGlance(ARRCOC):
    """ARR-COC that decides by the glance of a `GlanceHost`."""

    def __init__(
        self, name: str, *, tokens: int | None = None, span: tuple[float, float] | None = None
    ) -> None:
        """`tokens` and `span` as in `GlanceHost`."""
        super().__init__(name=name)
        self.tokens, self.span = tokens, span

    def glancing(self, call: Call) -> GlanceHost:
        """The host, glancing otherwise."""
        return GlanceHost(call.host, self.tokens, self.span)


CONFIGS = {
    "no-glance": Config(glance="off"),
    "scan-alone": Config(glance="off", context="none"),
    "separate": Config(glance="separate"),
    "periphery": Config(glance="periphery"),
    "auto": Config(share=AUTO),
    "context": Config(context="glance"),
    "cells": Config(context="cells"),
    "alone": Config(context="none"),
    "no-surroundings": Config(context="cells", surroundings=0),
    "no-halo": Config(context="cells", halo=0),
    "halo-1": Config(context="cells", halo=1),
    "halo-2": Config(context="cells", halo=2),
    "quadtree-alone": Config(allocator="quadtree", context="none"),
    "window": Config(allocator="window"),
    "adaptive": Config(allocator="adaptive"),
    "quadtree": Config(allocator="quadtree"),
    "asked-only": Config(tensions=Tensions(compress=0.0, exploit=0.5, focus=1.0)),
    "neutral": Config(tensions=NEUTRAL),
}
CHANGES = {
    "no-entropy": without_map("propositional"),
    "no-edges": without_map("perspectival"),
    "compress-half": with_tensions(compress=0.5),
    "exploit-half": with_tensions(exploit=0.5),
    "focus-half": with_tensions(focus=0.7),
    "no-spread": with_tensions(focus=1.0),
    "by-saliency": by_channel("saliency"),
    **{f"by-{name}": by_candidate(measure) for name, measure in CANDIDATES.items()},
    "max-glance": with_peak(1.0),
}
FRAMES = {
    "quadtree-coarse-frame": coarse,
    "quadtree-coarse-encoder": coarse_encoder,
    "quadtree-compact": compact,
}
GLANCES: dict[str, dict[str, Any]] = {
    "glance-16": {"tokens": 16},
    "glance-36": {"tokens": 36},
    "glance-64": {"tokens": 64},
    "early-layers": {"span": (0, 1 / 3)},
    "late-layers": {"span": (2 / 3, 1)},
}


def _variants() -> dict[str, Callable[[], ARRCOC]]:
    """Every variant by its name, in the order of a table."""
    made: dict[str, Callable[[str], ARRCOC]] = {
        **{short: partial(ARRCOC, config) for short, config in CONFIGS.items()},
        **{short: partial(Recombined, change) for short, change in CHANGES.items()},
        **{short: partial(Framed, frame) for short, frame in FRAMES.items()},
        **{short: partial(OtherGlance, **changes) for short, changes in GLANCES.items()},
    }
    names = {short: f"{OURS}-{short}" for short in made}
    return {names[short]: partial(make, names[short]) for short, make in made.items()}


VARIANTS = _variants()
