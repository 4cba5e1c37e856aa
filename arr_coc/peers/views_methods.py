"""Token reducers for a clip, or for several pictures, on one host, one budget and the same seams.

    views = host.prepare(clip, question)
    reduced = VIEWS_METHODS["evs"]()(host, views, question, budget=102)

Published ones are written from their descriptions; each class says where it had to choose. A moment that
keeps nothing keeps its time in the prompt; only `fewer-frames` drops that too.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from arr_coc import attending
from arr_coc.clips import FRAMES_OF_MOMENT, fewer_frames
from arr_coc.components import PARTS
from arr_coc.config import MINIMUM_BUDGET, Config, small_grid
from arr_coc.peers import selection
from arr_coc.peers.names import OURS, STOCK
from arr_coc.peers.ours import host_without
from arr_coc.peers.views import ReducedViews, ViewsCall, ViewsMethod, ViewsPeer
from arr_coc.qwen.deciding import decided
from arr_coc.qwen.encoding import TokenSet
from arr_coc.qwen.inputs import Ask, Picture, Views
from arr_coc.temporal import Moments

UNBLENDED = f"{OURS}-unblended"
PACE = "pace"  # beside trained parts: the numbers by which the moments of a clip are decided


class StockViews(ViewsPeer):
    """Every token, whatever the budget: the model as it is."""

    name = STOCK

    def reduce(self, call: ViewsCall) -> ReducedViews:
        """All N tokens."""
        pictures = call.views.pictures
        return call.reduced(call.encode(pictures), [torch.arange(p.tokens) for p in pictures])


class FewerFrames(ViewsPeer):
    """As many whole moments as the budget holds, of frames evenly apart from the first to the last.

    What the stock processor shows of a clip that it is asked for fewer frames of.
    """

    name = "fewer-frames"
    resizes = True
    of_clips = True

    def reduce(self, call: ViewsCall) -> ReducedViews:
        """Choose frames, make moments of them, encode all of those."""
        host, views = call.host, call.views
        with call.timed("select"):
            native = views.pictures[0].grid
            count = len(views.frame_times)
            numbers, grid = fewer_frames(count, len(views.pictures), native, call.budget)
            moments, at = self._moments(call, numbers, grid)
            prompt = host.inputs.chat.about_clip(grid, at, call.question)
        held = call.encode(moments)
        seen = {number // FRAMES_OF_MOMENT for number in numbers}
        shown = tuple(number in seen for number in range(len(views.pictures)))
        kept = tuple(
            torch.full(picture.grid, float(is_shown and grid == picture.grid))
            for picture, is_shown in zip(views.pictures, shown)
        )
        return ReducedViews(held, kept, prompt, call.seconds, shown=shown)

    def _moments(
        self, call: ViewsCall, numbers: list[int], grid: tuple[int, int]
    ) -> tuple[list[Picture], list[float]]:
        """Moments of the frames at `numbers`, two each, and the middle of their times."""
        frames = [
            one for own in call.views.pictures for one in (replace(own, later=()), *own.later)
        ]
        chosen = [frames[number] for number in numbers]
        if grid != call.views.pictures[0].grid:
            chosen = [call.host.shrunk(frame, grid) for frame in chosen]
        moments, at, times = [], [], call.views.frame_times
        for start in range(0, len(numbers), FRAMES_OF_MOMENT):
            own = slice(start, start + FRAMES_OF_MOMENT)
            first, *later = chosen[own]
            moments.append(replace(first, later=tuple(later)))
            at.append((times[numbers[own][0]] + times[numbers[own][-1]]) / 2)
        return moments, at


class SmallerFrames(ViewsPeer):
    """Every frame, or picture, shrunk by the same share; below the processor's floor too."""

    name = "smaller-frames"
    resizes = True

    def minimum(self, views: Views) -> int:
        """A token for each of them."""
        return len(views.pictures)

    def reduce(self, call: ViewsCall) -> ReducedViews:
        """Shrink all of them, lay them out anew, encode all of that."""
        chat, views = call.host.inputs.chat, call.views
        with call.timed("select"):
            grids = self.grids(call)
            small = [
                picture if grid == picture.grid else call.host.shrunk(picture, grid)
                for picture, grid in zip(views.pictures, grids)
            ]
            if views.times is None:
                prompt = chat.about_pictures(grids, call.question)
            else:
                prompt = chat.about_clip(grids[0], views.times, call.question)
        held = call.encode(small)
        # What was shrunk shows no place at native resolution.
        kept = tuple(
            torch.full(picture.grid, float(grid == picture.grid))
            for picture, grid in zip(views.pictures, grids)
        )
        shown = (True,) * len(views.pictures)
        return ReducedViews(held, kept, prompt, call.seconds, shown=shown)

    def grids(self, call: ViewsCall) -> list[tuple[int, int]]:
        """Rows and columns of each, as many as whole ones of nearly the same aspect can be."""
        pictures, every = call.views.pictures, call.views.tokens
        if call.budget == every:
            return [picture.grid for picture in pictures]
        spare = call.budget - len(pictures)
        return [
            small_grid(picture.grid, 1 + spare * picture.tokens // every) for picture in pictures
        ]


class AfterViews(ViewsPeer):
    """Encodes everything, then keeps the native tokens that `choose` names."""

    def reduce(self, call: ViewsCall) -> ReducedViews:
        """Encode, choose, cut."""
        everything = call.encode(call.views.pictures)
        with call.timed("select"):
            chosen, start, index = self.choose(call, everything), 0, []
            for own in everything:
                inside = (chosen >= start) & (chosen < start + len(own))
                index.append(chosen[inside] - start)
                start += len(own)
            held = [own.at(at) for own, at in zip(everything, index)]
        return call.reduced(held, index)

    def choose(self, call: ViewsCall, everything: Sequence[TokenSet]) -> Tensor:
        """`(budget,)` ascending indices into the tokens of all moments, one after the other."""
        raise NotImplementedError


class EVS(AfterViews):
    """Efficient Video Sampling (Bagrov et al. 2025, arXiv 2510.14624): what changed, whatever is asked.

    The change of a token is one less the cosine between it and the token at the same place of the moment
    before; the first moment is kept whole, and of all the others the tokens that changed most, with one
    threshold over the whole clip. Features are those that the encoder hands to the language model, without
    the DeepStack planes, which are cut with the same tokens.
    """

    name = "evs"
    of_clips = keeps_a_moment = True

    def minimum(self, views: Views) -> int:
        """The first moment."""
        return views.pictures[0].tokens

    def choose(self, call: ViewsCall, everything: Sequence[TokenSet]) -> Tensor:
        """The first moment, then the largest changes of all."""
        features = torch.stack([own.features for own in everything])
        return selection.best(selection.changes(features).flatten(), call.budget)


class DivPruneViews(AfterViews):
    """DivPrune (Alvar et al. 2025) over the tokens of all moments at once, whatever is asked."""

    name = "divprune"

    def choose(self, call: ViewsCall, everything: Sequence[TokenSet]) -> Tensor:
        """Greedy max-min cosine distance."""
        features = torch.cat([own.features for own in everything])
        return selection.max_min_select(features, call.budget).to(features.device)


class ARRCOCViews(ViewsPeer):
    """ARR-COC itself, under any `Config`; its budget is set per call."""

    is_ours = True
    parts = frozenset({*PARTS, PACE})

    def __init__(self, config: Config = Config(), name: str = OURS) -> None:
        """`name` is what a table calls this variant."""
        self.config, self.name = config, name

    def minimum(self, views: Views) -> int:
        """As `Config.tokens`."""
        return min(MINIMUM_BUDGET, views.tokens)

    def reduce(self, call: ViewsCall) -> ReducedViews:
        """Realize, then encode what was allocated.

        A stage that fails does not raise: see `ReducedViews.realization.fallback`.
        """
        realization = self.realize(call)
        with call.timed("encode"):
            held = call.host.encode_each(call.views.pictures, realization.views)
        native = [view.allocation.native().native_index() for view in realization.views]
        score = tuple(view.relevance[0].float().cpu() for view in realization.views)
        return replace(call.reduced(held, native), score=score, realization=realization)

    def realize(self, call: ViewsCall) -> Moments:
        """The decision to follow; its seconds are counted."""
        config = replace(self.config, budget=call.budget)
        realization = decided(call.host, call.views, call.question, config)
        call.seconds.update(realization.seconds)
        return realization


class WithoutMotion(ARRCOCViews):
    """ARR-COC that does not ask how much a question asks for what moves."""

    needs_weights = True
    of_clips = True
    part = "motion"
    parts = ARRCOCViews.parts - {part}

    def __init__(self) -> None:
        super().__init__(name=f"{OURS}-no-{self.part}")

    def reduce(self, call: ViewsCall) -> ReducedViews:
        """As ARR-COC on a host without the part; its errors."""
        return super().reduce(replace(call, host=host_without(call.host, self)))


class EachAlone(ARRCOCViews):
    """ARR-COC on each moment as on a picture of its own: no clip is known, and each gets an equal share.

    Each has a glance of its own, asked the question about it alone, as large as a picture's.
    """

    parts = frozenset(PARTS)

    def __init__(self) -> None:
        super().__init__(Config(glance="separate"), f"{OURS}-each-alone")

    def minimum(self, views: Views) -> int:
        """As `Config.tokens`, for each of them."""
        return sum(min(MINIMUM_BUDGET, picture.tokens) for picture in views.pictures)

    def realize(self, call: ViewsCall) -> Moments:
        """The decisions, one after the other."""
        host, pictures = call.host, call.views.pictures
        level = [torch.zeros(picture.grid) for picture in pictures]
        views = []
        for picture, share in zip(pictures, attending.share_out(level, call.budget)):
            prompt = host.inputs.chat.about_pictures([picture.grid], call.question)
            config = replace(self.config, budget=share)
            views.append(decided(host, Ask(picture, prompt), call.question, config))
            for name, seconds in views[-1].seconds.items():
                call.seconds[name] = call.seconds.get(name, 0.0) + seconds
        return Moments(
            question=call.question,
            config=self.config,
            budget=call.budget,
            views=tuple(views),
            times=call.views.times,
            cuts=(True,) * len(views),
            own=tuple(view.relevance for view in views),
            seconds=dict(call.seconds),
            fallback=next((view.fallback for view in views if view.fallback), None),
        )


# In the order of a table.
VIEWS_METHODS: dict[str, Callable[[], ViewsMethod]] = {
    STOCK: StockViews,
    FewerFrames.name: FewerFrames,
    SmallerFrames.name: SmallerFrames,
    EVS.name: EVS,
    DivPruneViews.name: DivPruneViews,
    OURS: ARRCOCViews,
    UNBLENDED: lambda: ARRCOCViews(Config(decay=0.0, boost=1.0), UNBLENDED),
    f"{OURS}-no-decay": lambda: ARRCOCViews(Config(decay=0.0), f"{OURS}-no-decay"),
    f"{OURS}-no-boost": lambda: ARRCOCViews(Config(boost=1.0), f"{OURS}-no-boost"),
    f"{OURS}-no-motion": WithoutMotion,
    f"{OURS}-each-alone": EachAlone,
}
