"""Ablations: ARR-COC with one choice changed: a map, a channel, a tension, an allocator, a glance.

`VARIANTS` names them all; each counts its own cost as `ours` does.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

from arr_coc import knowing
from arr_coc.config import NEUTRAL, Config, Tensions
from arr_coc.peers import frames as peers_frames
from arr_coc.peers.base import Call
from arr_coc.peers.frames import FrameOf
from arr_coc.peers.ours import ARRCOC
from arr_coc.peers.texture_candidates import CANDIDATES, Candidate
from arr_coc.qwen.encoding import TokenSet
from arr_coc.qwen.model import ARRCOCQwen
from arr_coc.realizing import Glance, Realization, recombine
from arr_coc.texture import INDEX

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
    return lambda r, call: replace(r, perspectival=measure(call.host.pixels(call.ask), r.grid))


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
    """ARR-COC with the QuadTree, its cells encoded alone in a frame of `frames`."""

    def __init__(self, frame: FrameOf, name: str) -> None:
        super().__init__(Config(allocator="quadtree"), name)
        self.frame = frame

    def encode(self, call: Call, realization: Realization) -> TokenSet:
        """As ARR-COC, standing elsewhere."""
        cells, picture = realization.allocation, call.ask.picture
        tokens = call.host.encode_with(peers_frames.encode_in, picture, cells, self.frame)
        return call.host.adapted(tokens, realization)


@dataclass(frozen=True)
class OtherGlanceHost:
    """A host whose glance takes another number of tokens, or reads other text layers."""

    host: ARRCOCQwen
    tokens: int | None = None
    span: tuple[float, float] | None = None  # of the text model's depth, as qwen.ATTENTION_SPAN

    def __getattr__(self, name: str) -> Any:
        return getattr(self.host, name)

    def glance(self, image: Any, question: str, tokens: int) -> Glance:
        """As the host's own; its settings are the same afterwards."""
        layers = self.host.attention_layers
        depth = self.host.model.config.text_config.num_hidden_layers
        if self.span:
            first, last = (int(edge * depth) for edge in self.span)
            self.host.attention_layers = list(range(first, max(last, first + 1)))
        try:
            return self.host.glance(image, question, self.tokens or tokens)
        finally:
            self.host.attention_layers = layers


class OtherGlance(ARRCOC):
    """ARR-COC with an `OtherGlanceHost`."""

    def __init__(self, name: str, **changes: Any) -> None:
        super().__init__(name=name)
        self.changes = changes

    def realize(self, call: Call, config: Config) -> Realization:
        """As ARR-COC, with another glance."""
        return super().realize(
            replace(call, host=OtherGlanceHost(call.host, **self.changes)), config
        )


def _variants() -> dict[str, Callable[[], ARRCOC]]:
    configs = {
        "no-glance": {"glance": "off"},
        "separate": {"glance": "separate"},
        "periphery": {"glance": "periphery"},
        "alone": {"surroundings": 0, "halo": 0},
        "no-surroundings": {"surroundings": 0},
        "no-halo": {"halo": 0},
        "halo-1": {"halo": 1},
        "halo-2": {"halo": 2},
        "quadtree-alone": {"allocator": "quadtree", "surroundings": 0},
        "window": {"allocator": "window"},
        "adaptive": {"allocator": "adaptive"},
        "quadtree": {"allocator": "quadtree"},
        "asked-only": {"tensions": Tensions(0.0, 0.5, 1.0)},
        "neutral": {"tensions": NEUTRAL},
    }
    changes = {
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
    frames = {
        "quadtree-coarse-frame": peers_frames.coarse,
        "quadtree-coarse-encoder": peers_frames.coarse_encoder,
        "quadtree-compact": peers_frames.compact,
    }
    looks = {
        "glance-16": {"tokens": 16},
        "glance-36": {"tokens": 36},
        "early-layers": {"span": (0, 1 / 3)},
        "late-layers": {"span": (2 / 3, 1)},
    }
    made: dict[str, Callable[[], ARRCOC]] = {}
    for short, settings in configs.items():
        made[f"arr-coc-{short}"] = lambda n=short, s=settings: ARRCOC(Config(**s), f"arr-coc-{n}")
    for short, change in changes.items():
        made[f"arr-coc-{short}"] = lambda n=short, c=change: Recombined(c, f"arr-coc-{n}")
    for short, frame in frames.items():
        made[f"arr-coc-{short}"] = lambda n=short, f=frame: Framed(f, f"arr-coc-{n}")
    for short, look in looks.items():
        made[f"arr-coc-{short}"] = lambda n=short, o=look: OtherGlance(f"arr-coc-{n}", **o)
    return made


VARIANTS = _variants()
