"""Base: what a token reducer gives the language model, and what every reducer here shares.

A `Method` is called with a host, a prepared image, the question and a budget, and returns a
`Reduced`: tokens that stand at their native positions with every DeepStack plane, and what it cost.
Nothing is generated here, and the stock model is never patched.
"""

from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from arr_coc import attending, config
from arr_coc.attending import Allocation
from arr_coc.config import HALO, glance_tokens
from arr_coc.qwen import encoding
from arr_coc.qwen.encoding import TokenSet
from arr_coc.qwen.inputs import Ask, Picture, Prompt
from arr_coc.qwen.model import ARRCOCQwen
from arr_coc.realizing import Realization, stage


@dataclass(frozen=True)
class Reduced:
    """What a method gives the language model in place of all visual tokens.

    Attributes:
        tokens: features, DeepStack planes and places, after the periphery where there is one.
        kept: `(h, w)` float32 on the CPU, the share of each native place that is shown at native
            resolution: 1 kept, 0 dropped, merged with others or shrunk.
        prompt: the one to answer by; the ask's own unless the method resized the image itself.
        seconds: by stage, everything the method did: select, encode, glance, relevance.
        periphery: the glance's state where its tokens are in a KV cache already (`cache`, cropped
            after them, and `tokens`); None without.
        score: `(h, w)` float32 on the CPU, the method's relevance per native place; None where it
            has none.
        realization: the whole decision, for ARR-COC.
        read: the cache of the whole prompt, where the model has read all of it on the way; else None.
        blocks: where the prompt has several image blocks, the tokens of each; `tokens` are theirs, one
            after the other.
    """

    tokens: TokenSet
    kept: Tensor
    prompt: Prompt
    seconds: dict[str, float]
    periphery: Any = None
    score: Tensor | None = None
    realization: Realization | None = None
    read: Any = None
    blocks: tuple[TokenSet, ...] = ()

    @property
    def held(self) -> TokenSet | tuple[TokenSet, ...]:
        """Every visual token that the language model will hold, the periphery first; or each block's."""
        if self.blocks:
            return self.blocks
        return self.periphery.tokens + self.tokens if self.periphery else self.tokens

    @property
    def visual_tokens(self) -> int:
        """How many these are."""
        return len(self.tokens) + (len(self.periphery.tokens) if self.periphery else 0)


class Method(Protocol):
    """Anything that chooses an image's visual tokens within a budget.

    Attributes:
        name: what tables call it, its key in `methods.EVERY`.
        reads_question: whether its result depends on the question. Where it does not, one result serves
            all questions about a picture, each with its own prompt.
        listens_to_encoder: it hooks the vision encoder, which then must really run.
        resizes: it lays out a prompt of its own around another picture, and so is given the whole text
            that the model is asked, instructions included.
        needs_weights: it raises ValueError on a host without trained weights.
        is_ours: ARR-COC or one of its variants.
        counts_layers: text layers that it runs beforehand are a number, as published, and no share of the
            model's depth.
        parts: those of `components.PARTS` on which its result depends, on a host that has them.
    """

    name: str
    reads_question: bool
    listens_to_encoder: bool
    resizes: bool
    needs_weights: bool
    is_ours: bool
    counts_layers: bool

    @property
    def parts(self) -> frozenset[str]: ...

    def __call__(
        self,
        host: ARRCOCQwen,
        ask: Ask,
        question: str,
        budget: int,
        encodes: "SharedEncodes | None" = None,
    ) -> Reduced: ...


class SharedEncodes:
    """Whole encodes of pictures, kept so that several methods share one.

    Every picture that was asked for stays in memory with its tokens, as long as this does.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[int, torch.dtype], tuple[Picture, TokenSet]] = {}

    def whole(self, host: ARRCOCQwen, picture: Picture) -> TokenSet:
        """Every visual token of a picture, encoded when it is first asked for."""
        # A tower that overflowed has moved to a wider dtype: then it is encoded anew.
        key = id(picture), host.model.model.visual.dtype
        if key not in self._known:
            # The picture is kept too, so that no other one is given its id.
            self._known[key] = picture, host.encode(picture, None)
        return self._known[key][1]


@dataclass(frozen=True)
class Call:
    """One call of a method: what it was given, and the clock."""

    host: ARRCOCQwen
    ask: Ask
    question: str
    budget: int
    encodes: SharedEncodes | None = None
    seconds: dict[str, float] = field(default_factory=dict)

    def timed(self, name: str) -> AbstractContextManager[None]:
        """Count the block's seconds as a stage."""
        return stage(self.seconds, name, self.host.synchronize)

    def encode_all(self) -> TokenSet:
        """Every visual token, as the stock encoder gives them."""
        with self.timed("encode"):
            return self.whole()

    def whole(self) -> TokenSet:
        """As `encode_all`, for a caller that counts the seconds itself."""
        picture = self.ask.picture
        return (self.encodes or SharedEncodes()).whole(self.host, picture)

    def encode_before(self, index: Tensor, around: bool = False) -> TokenSet:
        """The native tokens at raster `index`; the encoder sees nothing else, or what ARR-COC shows it."""
        picture, visual = self.ask.picture, self.host.model.model.visual
        seen = (glance_tokens(picture.grid), HALO) if around else (0, 0.0)
        with self.timed("encode"):
            allocation = self.allocation(index)
            return encoding.encode_before(visual, picture, allocation, *seen)

    def cut(self, tokens: TokenSet, index: Tensor) -> TokenSet:
        """Of every token, the native ones at raster `index`."""
        return encoding.cut(tokens, self.allocation(index))

    def allocation(self, index: Tensor) -> Allocation:
        """Native cells at raster `index`."""
        index = index.cpu()
        return attending.native_allocation(index, self.ask.picture.grid, torch.zeros(len(index)))

    def reduced(self, tokens: TokenSet, index: Tensor, score: Tensor | None = None) -> Reduced:
        """The result where `tokens` show the native places at raster `index` and no others."""
        h, w = self.ask.picture.grid
        kept = torch.zeros(h * w)
        kept[index.cpu()] = 1
        if score is not None:
            score = score.float().cpu().view(h, w)
        return Reduced(tokens, kept.view(h, w), self.ask.prompt, self.seconds, score=score)


class Peer:
    """A method whose `reduce` does the work, once at a time on a host and without gradients."""

    name = ""
    minimum = 1
    reads_question = True
    listens_to_encoder = False
    resizes = False
    needs_weights = False
    is_ours = False
    counts_layers = False
    parts: frozenset[str] = frozenset()

    def __call__(
        self,
        host: ARRCOCQwen,
        ask: Ask,
        question: str,
        budget: int,
        encodes: SharedEncodes | None = None,
    ) -> Reduced:
        """Reduce an image to at most `budget` visual tokens.

        Args:
            host: the base with its weights.
            ask: the prepared picture and the prompt around it.
            question: see `Method.resizes`.
            budget: visual tokens.
            encodes: whole encodes shared with other methods; None encodes anew.

        Raises:
            ValueError: for a budget above the image's tokens or below the method's minimum.
        """
        config.check_budget(budget, ask.picture.tokens, self.minimum)
        shared = None if self.listens_to_encoder else encodes
        with host.lock, torch.inference_mode():
            return self.reduce(Call(host, ask, question, budget, shared))

    def reduce(self, call: Call) -> Reduced:
        """The method itself."""
        raise NotImplementedError
