"""Views: what a token reducer makes of a clip or of several pictures, with one budget over all of them.

As `base` for one picture: every token stands at its native position with all DeepStack planes, each moment
keeps its own time before its own tokens, and what a method costs is counted. The methods are in
`views_methods`.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from arr_coc import config
from arr_coc.qwen.encoding import TokenSet, encode_pictures, joined
from arr_coc.qwen.inputs import Picture, Views
from arr_coc.qwen.model import ARRCOCQwen
from arr_coc.qwen.prompts import Prompt
from arr_coc.realizing import stage
from arr_coc.temporal import Moments


@dataclass(frozen=True)
class ReducedViews:
    """What a method gives the language model in place of all visual tokens of a clip, or of pictures.

    Attributes:
        held: the tokens of each block of `prompt`, some of which may be empty.
        kept: `(h, w)` float32 on the CPU of each native moment or picture, as `base.Reduced.kept`; of one
            that was dropped whole as well.
        prompt: the one to answer by; the given one unless the method resized or dropped frames.
        seconds: by stage, everything the method did.
        score: `(h, w)` float32 on the CPU of each native moment or picture, the method's relevance; None
            where it has none.
        realization: the whole decision, for ARR-COC.
        shown: of a method that resizes, whether each native moment or picture is seen at all.
    """

    held: tuple[TokenSet, ...]
    kept: tuple[Tensor, ...]
    prompt: Prompt
    seconds: dict[str, float]
    score: tuple[Tensor, ...] | None = None
    realization: Moments | None = None
    shown: tuple[bool, ...] | None = None

    @property
    def tokens(self) -> TokenSet:
        """Those of all blocks, in their order."""
        return joined(self.held)

    @property
    def periphery(self) -> None:
        """None: a glance at several views never stays in a KV cache."""
        return None

    @property
    def visual_tokens(self) -> int:
        """Visual tokens the language model will hold."""
        return sum(map(len, self.held))


class ViewsMethod(Protocol):
    """Anything that chooses the visual tokens of a clip, or of several pictures, within a budget.

    Attributes:
        name: what tables call it, its key in `views_methods.VIEWS_METHODS`.
        resizes, needs_weights, is_ours, parts: as `base.Method`.
        of_clips: whether it needs moments that follow each other, and refuses pictures.
        keeps_a_moment: whether it keeps a whole moment, and needs a budget for that.
    """

    name: str
    resizes: bool
    needs_weights: bool
    is_ours: bool
    of_clips: bool
    keeps_a_moment: bool

    @property
    def parts(self) -> frozenset[str]: ...

    def __call__(
        self, host: ARRCOCQwen, views: Views, question: str, budget: int
    ) -> ReducedViews: ...


@dataclass(frozen=True)
class ViewsCall:
    """One call of a method: what it was given, and the clock."""

    host: ARRCOCQwen
    views: Views
    question: str
    budget: int
    seconds: dict[str, float] = field(default_factory=dict)

    def timed(self, name: str) -> AbstractContextManager[None]:
        """Count the block's seconds as a stage."""
        return stage(self.seconds, name, self.host.synchronize)

    def encode(self, pictures: Sequence[Picture]) -> tuple[TokenSet, ...]:
        """Every visual token of some moments or pictures, as the stock encoder gives them."""
        with self.timed("encode"):
            return tuple(encode_pictures(self.host.model.model.visual, pictures))

    def reduced(self, held: Sequence[TokenSet], index: Sequence[Tensor]) -> ReducedViews:
        """The result where each block's tokens show its native places at raster `index`, no others."""
        kept = tuple(
            torch.zeros(picture.tokens).index_fill_(0, own.cpu(), 1).view(picture.grid)
            for picture, own in zip(self.views.pictures, index, strict=True)
        )
        return ReducedViews(tuple(held), kept, self.views.prompt, self.seconds)


class ViewsPeer:
    """A method whose `reduce` does the work, once at a time on a host and without gradients."""

    name = ""
    resizes = False
    needs_weights = False
    is_ours = False
    of_clips = False
    keeps_a_moment = False
    parts: frozenset[str] = frozenset()

    def __call__(self, host: ARRCOCQwen, views: Views, question: str, budget: int) -> ReducedViews:
        """Reduce a clip, or several pictures, to at most `budget` visual tokens in all.

        Args:
            host: the base with its weights.
            views: the prepared moments or pictures, and the prompt around them.
            question: the whole text that the model is asked where the method `resizes`, which then lays
                out a prompt of its own; else the question alone.
            budget: visual tokens.

        Raises:
            ValueError: for a budget above all their tokens or below the method's minimum, and for
                pictures where the method is `of_clips`.
        """
        if self.of_clips and views.times is None:
            count = len(views.pictures)
            raise ValueError(f"{self.name} is given {count} pictures, allowed is a clip")
        config.check_budget(budget, views.tokens, self.minimum(views))
        with host.lock, torch.inference_mode():
            return self.reduce(ViewsCall(host, views, question, budget))

    def minimum(self, views: Views) -> int:
        """The fewest tokens with which the method can do its work."""
        return 1

    def reduce(self, call: ViewsCall) -> ReducedViews:
        """The method itself."""
        raise NotImplementedError
