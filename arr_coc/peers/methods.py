"""Published token reducers on the same host, the same budget and the same seams as ARR-COC.

    reduced = METHODS["divprune"]()(host, host.prepare(image, question), question, budget=51)

Written from the papers' descriptions; each class says where it had to choose. Every method keeps
native positions and all DeepStack planes, and counts everything it does. Nothing is generated here.
"""

from collections.abc import Callable

from arr_coc.config import Config
from arr_coc.peers import ablations
from arr_coc.peers.after import DART, CDPruner, DivPrune, FastV, VisionZip
from arr_coc.peers.base import Method
from arr_coc.peers.before import Centre, Downsample, PixelPrune, Random, Stock, Uniform, ViCrop
from arr_coc.peers.names import OURS, OURS_AFTER, STOCK
from arr_coc.peers.ours import ARRCOC, FREE, TRAINED

# In the order of a table: the model as it is; controls; those that choose before the encoder, after it,
# and by two passes; ARR-COC.
METHODS: dict[str, Callable[[], Method]] = {
    STOCK: Stock,
    "random": Random,
    "uniform": Uniform,
    "centre": Centre,
    "random-around": lambda: Random("around"),
    "uniform-around": lambda: Uniform("around"),
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
    OURS: ARRCOC,
    OURS_AFTER: lambda: ARRCOC(Config(prune="after"), OURS_AFTER),
}

# ARR-COC with one thing changed, to see what that is worth.
VARIANTS: dict[str, Callable[[], Method]] = ablations.VARIANTS | FREE | TRAINED
EVERY = METHODS | VARIANTS
