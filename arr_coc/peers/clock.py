"""Clock: one question from the image to the first word, everything that a method does counted.

The benchmark and the evaluation time by this alone, so that their seconds mean the same.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from arr_coc.peers.base import Method, Reduced, SharedEncodes
from arr_coc.peers.names import STOCK
from arr_coc.peers.views import ReducedViews, ViewsMethod
from arr_coc.qwen.batch import first_token, read_on
from arr_coc.qwen.encoding import TokenSet
from arr_coc.qwen.inputs import Ask, Picture, Views
from arr_coc.qwen.model import ARRCOCQwen
from arr_coc.qwen.preparing import Given

SLOW = 1.15  # times stock's fastest seconds: such a measurement is to be made again


def read_first(host: ARRCOCQwen, reduced: Reduced | ReducedViews) -> None:
    """Read up to the first word.

    Of what was read in rounds the prompt's last token alone, as `generate` needs one to begin with.
    """
    if not isinstance(reduced, Reduced) or reduced.read is None:
        first_token(host, reduced.prompt, reduced)
        return
    reduced.read.crop(-1)
    read_on(host, reduced.prompt, [reduced.tokens.places], None, reduced.read)


class OneEncode(SharedEncodes):
    """The whole encode of one picture, for every method that is timed on one as large.

    Encoding takes as long whatever a picture shows: it is done once, and its seconds count for each.
    """

    def __init__(self) -> None:
        super().__init__()
        self._tokens: TokenSet | None = None
        self._seconds = 0.0
        self.saved = 0.0  # seconds that the present method would have taken for it

    def again(self) -> "OneEncode":
        """The same for another method."""
        self.saved = 0.0
        return self

    def whole(self, host: ARRCOCQwen, picture: Picture) -> TokenSet:
        """Every visual token of the picture that was encoded first.

        Raises:
            ValueError: for a picture of another size.
        """
        _ = picture.patches  # every method prepares its own
        if self._tokens is None:
            host.synchronize()
            start = time.perf_counter()
            self._tokens = host.encode(picture, None)
            host.synchronize()
            self._seconds = time.perf_counter() - start
        elif len(self._tokens) != picture.tokens:
            raise ValueError(
                f"a picture of {picture.tokens} visual tokens, and what is encoded has {len(self._tokens)}"
            )
        else:
            self.saved = self._seconds
        return self._tokens


@dataclass(frozen=True)
class Timed:
    """What a method made of a question, and its seconds.

    Attributes:
        ask: the prepared image, clip or images, and prompt.
        reduced: what the language model was given.
        seconds: from the image to the first word.
        stages: preprocess, the method's own stages, and prefill; what is in none of them is the rest of
            `seconds`.
    """

    ask: Ask | Views
    reduced: Reduced | ReducedViews
    seconds: float
    stages: dict[str, float]


def timed(
    host: ARRCOCQwen,
    method: Method | ViewsMethod,
    image: Given,
    text: str,
    question: str,
    budget: Callable[[int], int],
    encodes: "OneEncode | None" = None,
) -> Timed:
    """Prepare, reduce and read, as `ARRCOCQwen.stream` would pay for it.

    Args:
        host: whose model reads.
        method: that is timed.
        image: RGB; or a clip or several images, and a method for those.
        text: what the model is asked.
        question: what the method is told of it.
        budget: visual tokens of an image -> those that the method may spend.
        encodes: of a method for images, the whole encode of as large a picture; its seconds count as if
            the method had made it.
    """
    shared = () if encodes is None else (encodes.again(),)
    host.synchronize()
    start = time.perf_counter()
    with torch.inference_mode():
        ask = host.prepare(image, text)
        if method.name == STOCK:
            # Stock needs all of them: this is its preparing.
            _ = [picture.patches for picture in ask.pictures]
        host.synchronize()
        prepared = time.perf_counter()
        reduced = method(host, ask, question, budget(ask.tokens), *shared)
        host.synchronize()
        chosen = time.perf_counter()
        read_first(host, reduced)
    host.synchronize()
    end = time.perf_counter()
    stages = {"preprocess": prepared - start, "prefill": 0.0} | reduced.seconds
    stages["prefill"] += end - chosen
    saved = encodes.saved if encodes else 0.0
    if saved:
        stages["encode"] += saved
    return Timed(ask, reduced, end - start + saved, stages)
