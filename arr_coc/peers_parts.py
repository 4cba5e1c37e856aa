"""ARR-COC with its trained weights, without any of them, and with one trained part taken out.

For one table that says what learning is worth, and each part of it. `arr-coc` itself follows the
weights that a host has loaded.
"""

from collections.abc import Callable

from arr_coc.components import PARTS
from arr_coc.peers_base import Call, Reduced
from arr_coc.peers_ours import ARRCOC
from arr_coc.qwen import NO_REVISION
from arr_coc.realizing import Config


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
