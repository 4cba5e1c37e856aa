"""ARR-COC as a method beside its peers, and ARR-COC without a part of its weights or without all of them.

Variants in which a choice is changed, not the weights, are in `ablations`.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from arr_coc.components import CLIP_PARTS, ENCODING_PARTS, PARTS
from arr_coc.config import AUTO, NO_REVISION, Config
from arr_coc.peers.base import Call, Peer, Reduced
from arr_coc.qwen import encoding
from arr_coc.qwen.encoding import TokenSet
from arr_coc.qwen.model import ARRCOCQwen
from arr_coc.qwen.rounds import spend
from arr_coc.realizing import Host, Realization, Realizer

# Beside trained parts: the entropy of a first word, in nats, above which more is looked at.
UNSURE = "unsure"


class ARRCOC(Peer):
    """ARR-COC itself, under any `Config`; its budget is set per call."""

    is_ours = True

    def __init__(self, config: Config = Config(), name: str = "arr-coc") -> None:
        """`name` is what a table calls this variant."""
        self.config, self.name = config, name

    @property
    def parts(self) -> frozenset[str]:
        """Every trained part; without weights none, and after the encoder nothing is adapted.

        In rounds the bound as well (`UNSURE`) at which they end.
        """
        if self.config.revision == NO_REVISION:
            return frozenset()
        unused = ENCODING_PARTS if self.config.prune == "after" else ()
        bound = [UNSURE] if self.config.is_auto else []
        return frozenset([*PARTS, *bound]) - frozenset([*unused, *CLIP_PARTS])

    def reduce(self, call: Call) -> Reduced:
        """Realize, then encode what was allocated.

        A stage that fails does not raise: see `Reduced.realization.fallback`.
        """
        realization = self.realize(call, replace(self.config, budget=call.budget))
        call.seconds.update(realization.seconds)
        glance, in_rounds, read = realization.kept_glance, realization.config.is_auto, None
        if in_rounds and not realization.fallback:
            spent = spend(call.host, call.ask, realization, call.timed)
            realization, read = spent.realization, spent.cache
            # The rounds have used up the cache of a glance that stays: it is read with the others.
            tokens = glance.state.tokens + spent.tokens if glance else spent.tokens
            glance = None
        else:
            with call.timed("encode"):
                tokens = self.encode(call, realization)
        native = realization.allocation.native().native_index()
        reduced = call.reduced(tokens, native, realization.relevance[0])
        periphery = glance.state if glance else None
        return replace(reduced, periphery=periphery, realization=realization, read=read)

    def realize(self, call: Call, config: Config) -> Realization:
        """The decision to follow."""
        realizer = Realizer(self.glancing(call), call.host.policy(config))
        return realizer.realize(call.ask, call.question, config, call.host.synchronize)

    def glancing(self, call: Call) -> Host:
        """What the decision asks for the picture, the question and the glance: the host itself."""
        return call.host

    def encode(self, call: Call, realization: Realization) -> TokenSet:
        """The tokens that the decision keeps."""
        if realization.config.prune == "after":
            return encoding.cut(call.whole(), realization.allocation)
        return call.host.encode(call.ask.picture, realization)


class WithoutPart(ARRCOC):
    """ARR-COC whose trained weights lack one part; what it did is then done as without weights."""

    needs_weights = True

    def __init__(self, part: str) -> None:
        """`part` is a name from `components.PARTS`."""
        self.part = part
        super().__init__(name=f"arr-coc-no-{part}")

    @property
    def parts(self) -> frozenset[str]:
        """The parts that are left in."""
        return super().parts - {self.part}

    def reduce(self, call: Call) -> Reduced:
        """As ARR-COC on a host without the part; its errors."""
        return super().reduce(replace(call, host=host_without(call.host, self)))


class LacksPart(Protocol):
    """A method that is ARR-COC without the part `part`, under its `config`."""

    name: str
    part: str
    config: Config


def host_without(host: ARRCOCQwen, method: LacksPart) -> ARRCOCQwen:
    """The host whose weights lack a part; where nothing else is left, one without weights.

    Raises:
        ValueError: where the host has no weights, or weights that never had the part.
    """
    whole = host.policy(method.config)
    if whole is None or method.part not in whole.names:
        names = "there are none" if whole is None else f"these hold {', '.join(whole.names)}"
        needed = f"{method.name} needs trained weights with the part {method.part}"
        raise ValueError(f"{needed}: {names}")
    remaining = whole.without(method.part)
    return host.with_policies({"default": remaining} if remaining else {})


class EveryRound(ARRCOC):
    """ARR-COC that spends in rounds and never stops early: what rounds lose against one encode of all."""

    needs_weights = True

    def __init__(self) -> None:
        super().__init__(Config(share=AUTO), "arr-coc-rounds")

    def reduce(self, call: Call) -> Reduced:
        """As share "auto" where the first word is always called unsure.

        Raises:
            ValueError: where the host has no weights to call it so.
        """
        whole = call.host.policy(self.config)
        if whole is None:
            raise ValueError(f"{self.name} needs trained weights: there are none")
        host = call.host.with_policies({"default": whole.with_numbers(unsure=-1.0)})
        return super().reduce(replace(call, host=host))


# Compared only where weights are given: without them there is nothing to take out.
TRAINED: dict[str, Callable[[], ARRCOC]] = {
    f"arr-coc-no-{part}": lambda part=part: WithoutPart(part)
    for part in PARTS
    if part not in CLIP_PARTS
} | {"arr-coc-rounds": EveryRound}
FREE: dict[str, Callable[[], ARRCOC]] = {
    "arr-coc-free": lambda: ARRCOC(Config(revision=NO_REVISION), "arr-coc-free"),
}
