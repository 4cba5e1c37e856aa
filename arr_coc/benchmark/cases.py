"""Cases: what is timed, on pictures of which sizes, with how many tokens."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from PIL import Image

from arr_coc.config import MINIMUM_BUDGET, Config
from arr_coc.peers.base import Method
from arr_coc.peers.methods import METHODS
from arr_coc.peers.names import STOCK
from arr_coc.peers.ours import ARRCOC

QUESTION = "What number is on the small sign?"
SIZES = {"cpu": (300, 1024), "cuda": (1024, 2048, 4096)}
SHARES = (0.05, 0.10, 0.20, 0.40)
OURS: dict[str, Config] = {
    "after": Config(glance="off", prune="after"),
    # The encoder sees the kept cells alone: the evaluation's cost curve reads this case.
    "before": Config(glance="off", context="none"),
    "before + separate glance": Config(glance="separate", context="cells"),
    "glance as context": Config(glance="separate", context="glance"),
}
# As `evaluate` calls them.
PEERS = ("downsample", "pixelprune", "fastv")
CASES: dict[str, Callable[[], Method]] = {
    **{name: partial(ARRCOC, config, name) for name, config in OURS.items()},
    **{name: METHODS[name] for name in PEERS},
}
# Of pictures so large a whole encode takes minutes: there only what does not need one is timed again.
LARGE = 4096
WITHOUT_ENCODE = ("before", "glance as context", "downsample", "pixelprune")
SHIPPED = "before + separate glance"


@dataclass(frozen=True)
class Case:
    """One method on a picture of `tokens` visual tokens with a budget."""

    name: str
    tokens: int
    budget: int

    @property
    def method(self) -> Method:
        """A fresh one."""
        return METHODS[STOCK]() if self.name == STOCK else CASES[self.name]()


def image_of(tokens: int, unit_pixels: int) -> Image.Image:
    """A busy picture of exactly `tokens` visual tokens, each `unit_pixels` a side."""
    rows = int(tokens**0.5)
    while tokens % rows:
        rows -= 1
    width, height = tokens // rows * unit_pixels, rows * unit_pixels
    return Image.effect_noise((width // 8, height // 8), 80).resize((width, height)).convert("RGB")


def cases(sizes: Sequence[int], shares: Sequence[float]) -> list[Case]:
    """Stock and every other case that makes sense, for each size and share."""
    listed = []
    for tokens in sizes:
        names = WITHOUT_ENCODE if tokens >= LARGE else tuple(CASES)
        listed.append(Case(STOCK, tokens, tokens))
        for share in shares:
            budget = max(MINIMUM_BUDGET, round(share * tokens))
            listed += [Case(name, tokens, budget) for name in names]
    return listed
