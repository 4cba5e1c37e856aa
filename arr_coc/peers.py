"""Published token reducers on the same host, the same budget and the same seams as ARR-COC.

    reduced = METHODS["divprune"]()(host, host.prepare(image, question), question, budget=51)

Written from the papers' descriptions; each class says where it had to choose. Every method keeps
native positions and all DeepStack planes, and counts everything it does. Nothing is generated here.
"""

from collections.abc import Callable
from dataclasses import replace

from arr_coc.balancing import NEUTRAL, Tensions
from arr_coc.peers_after import DART, CDPruner, DivPrune, FastV, VisionZip
from arr_coc.peers_base import Call, Method, Peer, Reduced
from arr_coc.peers_before import Centre, Downsample, PixelPrune, Random, Stock, Uniform, ViCrop
from arr_coc.realizing import Config, Realizer

__all__ = ["ARRCOC", "EVERY", "METHODS", "VARIANTS", "Method", "Reduced"]


class ARRCOC(Peer):
    """ARR-COC itself, under any `Config`; its budget is set per call."""

    def __init__(self, config: Config = Config(), name: str = "arr-coc") -> None:
        """`name` is what a table calls this variant."""
        self.config, self.name = config, name

    def reduce(self, call: Call) -> Reduced:
        """Realize, then encode what was allocated.

        A stage that fails does not raise: see `Reduced.realization.fallback`.
        """
        host, config = call.host, replace(self.config, budget=call.budget)
        realizer = Realizer(host, host.policy(config))
        realization = realizer.realize(call.ask, call.question, config, host.synchronize)
        call.seconds.update(realization.seconds)
        with call.timed("encode"):
            tokens = host.encode(call.ask.picture, realization)
        cells, look = realization.allocation, realization.kept_look
        h, w = realization.grid
        native = cells.cells[cells.cells[:, 0] == 0]
        reduced = call.reduced(tokens, native[:, 1] * w + native[:, 2], realization.relevance[0])
        return replace(reduced, periphery=look.state if look else None, realization=realization)


# In the order of a table: the model as it is, controls, before the encoder, after it, twice, ours.
METHODS: dict[str, Callable[[], Method]] = {
    "stock": Stock,
    "random": Random,
    "uniform": Uniform,
    "centre": Centre,
    "random-after": lambda: Random("after"),
    "uniform-after": lambda: Uniform("after"),
    "downsample": Downsample,
    "pixelprune": PixelPrune,
    "fastv": FastV,
    "visionzip": VisionZip,
    "divprune": DivPrune,
    "cdpruner": CDPruner,
    "dart": DART,
    "vicrop": ViCrop,
    "arr-coc": ARRCOC,
    "arr-coc-after": lambda: ARRCOC(Config(prune="after"), "arr-coc-after"),
}


def _variant(name: str, **settings) -> tuple[str, Callable[[], Method]]:
    return name, lambda: ARRCOC(Config(**settings), name)


# ARR-COC with one thing changed, to see what that thing is worth.
VARIANTS: dict[str, Callable[[], Method]] = dict(
    [
        _variant("arr-coc-no-glance", glance="off"),
        _variant("arr-coc-context", context=0.1),
        _variant("arr-coc-separate", glance="separate"),
        _variant("arr-coc-periphery", glance="periphery"),
        _variant("arr-coc-window", allocator="window"),
        _variant("arr-coc-adaptive", allocator="adaptive"),
        _variant("arr-coc-quadtree", allocator="quadtree"),
        _variant("arr-coc-asked-only", tensions=Tensions(0.0, 0.5, 1.0)),
        _variant("arr-coc-neutral", tensions=NEUTRAL),
    ]
)
EVERY = METHODS | VARIANTS
