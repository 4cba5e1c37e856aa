"""ARR-COC at the seam of `peers`, and its variants: each has one thing changed, to see what it is worth."""

from collections.abc import Callable
from dataclasses import replace

from arr_coc.components import PARTS
from arr_coc.config import NO_REVISION, Config
from arr_coc.peers.base import Call, Peer, Reduced
from arr_coc.qwen.encoding import TokenSet
from arr_coc.realizing import Realization, Realizer


class ARRCOC(Peer):
    """ARR-COC itself, under any `Config`; its budget is set per call."""

    def __init__(self, config: Config = Config(), name: str = "arr-coc") -> None:
        """`name` is what a table calls this variant."""
        self.config, self.name = config, name

    def reduce(self, call: Call) -> Reduced:
        """Realize, then encode what was allocated.

        A stage that fails does not raise: see `Reduced.realization.fallback`.
        """
        realization = self.realize(call, replace(self.config, budget=call.budget))
        call.seconds.update(realization.seconds)
        with call.timed("encode"):
            tokens = self.encode(call, realization)
        cells, glance = realization.allocation, realization.kept_glance
        h, w = realization.grid
        native = cells.cells[cells.cells[:, 0] == 0]
        reduced = call.reduced(tokens, native[:, 1] * w + native[:, 2], realization.relevance[0])
        return replace(reduced, periphery=glance.state if glance else None, realization=realization)

    def realize(self, call: Call, config: Config) -> Realization:
        """The decision to follow."""
        realizer = Realizer(call.host, call.host.policy(config))
        return realizer.realize(call.ask, call.question, config, call.host.synchronize)

    def encode(self, call: Call, realization: Realization) -> TokenSet:
        """The tokens that the decision keeps."""
        return call.host.encode(call.ask.picture, realization)


class WithoutPart(ARRCOC):
    """ARR-COC whose trained weights lack one part; what it did is then done as without weights."""

    def __init__(self, part: str) -> None:
        """`part` is a name from `components.PARTS`."""
        self.part = part
        super().__init__(Config(revision=f"no-{part}"), f"arr-coc-no-{part}")

    def reduce(self, call: Call) -> Reduced:
        """As ARR-COC; the host's weights are the same afterwards.

        Raises:
            ValueError: where the host has no weights, or weights that never had the part.
        """
        host = call.host
        whole, loaded = host.policy(Config()), host.policies
        if whole is None or self.part not in whole.names:
            found = "there are none" if whole is None else f"these hold {', '.join(whole.names)}"
            raise ValueError(
                f"{self.name} needs trained weights with the part {self.part}: {found}"
            )
        host.policies = loaded | {self.config.revision: whole.without(self.part)}
        try:
            return super().reduce(call)
        finally:
            host.policies = loaded


# Compared only where weights are given: without them there is nothing to take out.
TRAINED: dict[str, Callable[[], ARRCOC]] = {
    f"arr-coc-no-{part}": lambda part=part: WithoutPart(part) for part in PARTS
}
FREE: dict[str, Callable[[], ARRCOC]] = {
    "arr-coc-free": lambda: ARRCOC(Config(revision=NO_REVISION), "arr-coc-free"),
}


def parts_used(name: str) -> frozenset[str]:
    """The trained parts, where there are any, on which what a method of `peers.EVERY` gives depends."""
    if not name.startswith("arr-coc") or name in FREE:
        return frozenset()
    left_out = {part for part in PARTS if name == f"arr-coc-no-{part}"}
    if name == "arr-coc-after":
        left_out |= {"adapter"}
    return frozenset(PARTS) - left_out
