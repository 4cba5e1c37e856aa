"""Temporal: one decision over the moments of a clip, or over several pictures.

As `realizing`, with one glance over all of them: it says *when* and *where*. Each moment's relevance is on
one scale, blends with that of the moment before, is lifted where there is news (`motion.news`), and begins
anew at a cut (brief, part 29, act four); several pictures compete. One budget goes to the best places of
all, a part of an even share to each moment or picture.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from arr_coc import attending, balancing, knowing, motion
from arr_coc.allocators import Spread, allocator_for
from arr_coc.attending import Allocation
from arr_coc.balancing import FIXED, Scalars
from arr_coc.components import context_for
from arr_coc.config import MINIMUM_BUDGET, NEUTRAL, Config, Pace, Tensions, glance_tokens_each
from arr_coc.realizing import (
    Glance,
    Realization,
    Realizer,
    stage,
    uniform_realization,
)
from arr_coc.texture import CHANNELS, MOTION, SAMPLES
from arr_coc.words import Words

Maps = tuple[Tensor, Tensor, Tensor | None]
Grid = tuple[int, int]


class ViewsHost(Protocol):
    """What the TemporalRealizer needs from a model. `views` is whatever the host prepared."""

    def grids(self, views: Any) -> list[Grid]:
        """`(h, w)` of each moment's, or each picture's, token grid."""

    def seconds(self, views: Any) -> tuple[float, ...] | None:
        """When each moment was; None where they are pictures, none of which follows another."""

    def frames(self, views: Any, side: int | None) -> list[Tensor]:
        """`(F, 3, H, W)` of each, as `Host.pixels`; F frames of a moment, 1 of a picture."""

    def embed(self, question: str) -> Words:
        """The question's own tokens, embedded."""

    def glances(self, views: Any, question: str, tokens: Sequence[int]) -> list[Glance]:
        """Look at all of them in one pass, at most so many visual tokens each, asking the question.

        The attention of all is on one scale.
        """


@dataclass(frozen=True)
class Moments:
    """Everything one decision over several moments or pictures was made of.

    Attributes:
        question, config: what was asked.
        budget: the most that may be spent on all of them.
        views: what was decided of each, as of a picture; `budget` is its share, and its `allocation` may be
            empty. The textures of a clip have one channel more (`texture.CLIP_CHANNELS`).
        times: seconds of each moment; None of pictures.
        cuts: whether each begins a new fixation: its relevance is its own alone.
        own: `(1, h, w)` of each, its relevance before it was blended and lifted.
        seconds: by stage.
        fallback: why the tokens are spread evenly over all of them, or None.
    """

    question: str
    config: Config
    budget: int
    views: tuple[Realization, ...]
    times: tuple[float, ...] | None
    cuts: tuple[bool, ...]
    own: tuple[Tensor, ...]
    seconds: dict[str, float]
    fallback: str | None = None

    @property
    def tensions(self) -> Tensions:
        """The same for all of them."""
        return self.views[0].tensions

    @property
    def kept_glance(self) -> None:
        """None: a glance at several of them is never kept in the cache."""
        return None

    @property
    def counts(self) -> list[int]:
        """Visual tokens that each got."""
        return [len(view.allocation) for view in self.views]

    @property
    def tokens(self) -> int:
        """Visual tokens the language model will hold."""
        return sum(self.counts)


class TemporalRealizer(Realizer):
    """Runs the four stages on a host, for all moments of a clip, or several pictures, at once.

    `realize` gives `Moments`; it refuses what only one picture can have (`check_config`) as well.
    """

    host: ViewsHost

    def _grids(self, image: Any, config: Config) -> list[Grid]:
        check_config(config)
        return self.host.grids(image)

    def _evenly(self, image: Any, question: str, config: Config, grids: Any, *rest: Any) -> Moments:
        return evenly(self.host.seconds(image), question, config, grids, *rest)

    def _realize(
        self,
        views: Any,
        question: str,
        config: Config,
        grids: list[Grid],
        budget: int,
        seconds: dict[str, float],
        synchronize: Callable[[], None],
    ) -> Moments:
        config, lean = self._paced(config)
        glances, context = None, context_for(config, self.components)
        if config.glance != "off":
            with stage(seconds, "glance", synchronize):
                tokens = glance_tokens_each(grids, context)
                glances = self.host.glances(views, question, tokens)
        with stage(seconds, "relevance", synchronize):
            frames = self.host.frames(views, SAMPLES if context == "glance" else None)
            times = self.host.seconds(views)
            textures, moved, cuts = motion.seen(frames, grids, times is not None)
            words = None
            if self.components is not None:
                words = self.host.embed(question).to(textures[0].device)
            coupled, source = self._coupled(views, words, glances, textures, grids)
            if glances and coupled and times is not None and lean:
                coupled = motion.upright(coupled, lean)
            if coupled and moved and self.components and self.components.motion:
                with torch.inference_mode():
                    nats = self.components.motion(words.mean)
                    coupled = motion.asked_for(coupled, moved, nats)
            maps = [
                (
                    knowing.propositional(own, grid).mean(0, keepdim=True),
                    knowing.perspectival(texture_of),
                    coupled[number] if coupled else None,
                )
                for number, (own, grid, texture_of) in enumerate(zip(frames, grids, textures))
            ]
            policy = self._tensions(question, maps)
            tensions, chosen_by = (config.tensions, "imposed") if config.tensions else policy
            scalars = self._scalars()
            own, relevance = relevances(maps, moved, cuts, tensions, config, scalars, times)
            allocations = allocate(relevance, budget, tensions, config.allocator, scalars)
        made = tuple(
            Realization(
                question=question,
                config=config,
                grid=grids[number],
                budget=len(allocations[number]),
                textures=textures[number],
                propositional=maps[number][0],
                perspectival=maps[number][1],
                participatory=maps[number][2],
                tensions=tensions,
                tension_source=chosen_by,
                participatory_source=source,
                relevance=relevance[number],
                allocation=allocations[number],
                glance=glances[number] if glances else None,
                seconds={},
                scalars=scalars,
                policy_tensions=policy,
            )
            for number in range(len(grids))
        )
        return Moments(question, config, budget, made, times, tuple(cuts), tuple(own), seconds)

    def _paced(self, config: Config) -> tuple[Config, float]:
        """The config with numbers for decay and boost, and the lean that is taken back."""
        pace = (self.components.pace if self.components else None) or Pace()
        decay = pace.decay if config.decay is None else config.decay
        boost = pace.boost if config.boost is None else config.boost
        return replace(config, decay=decay, boost=boost), pace.lean

    def _coupled(
        self,
        views: Any,
        words: Words | None,
        glances: list[Glance] | None,
        textures: list[Tensor],
        grids: list[Grid],
    ) -> tuple[list[Tensor] | None, str]:
        """The participatory maps on one scale and where they come from."""
        if self.components is not None:
            still = [own[:, : len(CHANNELS)] for own in textures]
            with torch.inference_mode():
                seen = self.components.see_each(lambda side: self.host.frames(views, side))
                return self.components.participatory_each(glances, still, words, grids, seen)
        if glances is None:
            return None, "none"
        return knowing.participatory_each([own.attention for own in glances], grids), "glance"


def recombine(
    moments: Moments, tensions: Tensions | None = None, budget: int | None = None
) -> Moments:
    """Decide again from the maps already there, as `realizing.recombine`; its errors as well."""
    if moments.fallback:
        raise ValueError(f"there are no maps to recombine: {moments.fallback}")
    views, tensions = moments.views, tensions or moments.tensions
    spent = moments.config.budget if budget is None else budget
    config = replace(moments.config, tensions=tensions, budget=spent)
    places = sum(view.relevance.numel() for view in views)
    budget = config.tokens(places, balancing.lexical_tier(moments.question))
    maps = [(view.propositional, view.perspectival, view.participatory) for view in views]
    moved = [view.textures[:, MOTION.index] for view in views] if moments.times else None
    scalars, times = views[0].scalars, moments.times
    own, relevance = relevances(maps, moved, moments.cuts, tensions, config, scalars, times)
    allocations = allocate(relevance, budget, tensions, config.allocator, scalars)
    changed = {"config": config, "tensions": tensions, "tension_source": "imposed"}
    made = [
        replace(view, relevance=now, allocation=kept, budget=len(kept), **changed)
        for view, now, kept in zip(views, relevance, allocations)
    ]
    return replace(moments, config=config, budget=budget, views=tuple(made), own=tuple(own))


def check_config(config: Config) -> None:
    """Raise ValueError for what only one picture can have."""
    if config.glance == "periphery":
        raise ValueError(
            "glance is 'periphery', allowed for a clip or several pictures is auto, separate, off"
        )
    if config.is_auto:
        raise ValueError("share is 'auto', allowed for a clip or several pictures is a number")


def relevances(
    maps: Sequence[Maps],
    moved: Sequence[Tensor] | None,
    cuts: Sequence[bool],
    tensions: Tensions,
    config: Config,
    scalars: Scalars = FIXED,
    times: Sequence[float] | None = None,
) -> tuple[list[Tensor], list[Tensor]]:
    """Maps of each moment -> its own relevance, and blended and lifted; `(1, h, w)` all.

    Of pictures, in which nothing is `moved`: after they competed.
    """
    own = balancing.combine_each(maps, tensions, scalars)
    if moved is None:
        return own, balancing.compete(own)
    new = motion.news(moved, cuts)
    return own, lift(blend(own, cuts, config.decay, times), new, config.boost)


def blend(
    own: Sequence[Tensor],
    cuts: Sequence[bool],
    decay: float | Tensor,
    times: Sequence[float] | None = None,
) -> list[Tensor]:
    """Each moment's relevance, or what is left of the one before where that is more, but at a cut.

    Of it a share `decay` is left after a second. What comes is there at once, and what was there fades: a
    mean of both would give what is shown for one moment alone the least. What is blended on is not lifted
    by motion: a place that goes on moving would rise without end.

    Args:
        own: `(1, h, w)` of each moment.
        cuts: whether each begins anew.
        decay: in [0, 1).
        times: seconds of each; without them a second apart.
    """
    times = range(len(own)) if times is None else times
    blended: list[Tensor] = []
    for number, (relevance, new) in enumerate(zip(own, cuts, strict=True)):
        if new:
            blended.append(relevance)
            continue
        left = decay ** (times[number] - times[number - 1])
        blended.append(torch.maximum(relevance, left * blended[-1]))
    return blended


def lift(relevance: Sequence[Tensor], new: Sequence[Tensor], boost: float) -> list[Tensor]:
    """New places times up to `boost`; all of it over the largest, where that is then above 1."""
    lifted = [own * (1 + (boost - 1) * news) for own, news in zip(relevance, new, strict=True)]
    largest = max(float(own.detach().max()) for own in lifted)
    return [own / largest for own in lifted] if largest > 1 else lifted


def allocate(
    relevance: Sequence[Tensor],
    budget: int,
    tensions: Tensions,
    allocator: str = "topk",
    scalars: Scalars = FIXED,
) -> list[Allocation]:
    """One budget over `(1, h, w)` relevance of several moments or pictures.

    Each gets as many tokens as it has of the best places of all (`attending.share_out`), and spends them
    as a picture does. Each gets some (`attending.least_each`), but of a budget that is small for so many.
    """
    # On a fast device with ties the order must not depend on the device: decide on the CPU.
    maps = [own[0].float().cpu() for own in relevance]
    best = allocator_for(allocator, compress=tensions.compress, minimum=MINIMUM_BUDGET)
    spread = Spread(best, scalars.spread(tensions.focus))
    counts = attending.share_out(maps, budget, attending.least_each(budget, len(maps)))
    return [
        spread(own, count) if count else attending.nothing(tuple(own.shape))
        for own, count in zip(maps, counts)
    ]


def evenly(
    times: tuple[float, ...] | None,
    question: str,
    config: Config,
    grids: Sequence[Grid],
    budget: int,
    reason: str,
    seconds: dict[str, float],
) -> Moments:
    """The fallback: tokens spread evenly over all moments or pictures, no maps, and the reason."""
    level = [torch.full((1, *grid), 0.5) for grid in grids]
    views = []
    for grid, count in zip(grids, attending.share_out([own[0] for own in level], budget)):
        even = uniform_realization(question, config, grid, max(1, count), reason, {})
        if not count:
            even = replace(even, budget=0, allocation=attending.nothing(grid))
        views.append(replace(even, tensions=config.tensions or NEUTRAL))
    cuts = (True,) * len(grids)
    return Moments(
        question, config, budget, tuple(views), times, cuts, tuple(level), seconds, reason
    )
