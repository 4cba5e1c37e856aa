"""Realizing: runs texture, knowing, balancing and attending on a host, and keeps all of it.

The Realizer asks a host for four small things (`Host`); pictures, API and evaluation read the frozen
`Realization` it returns. If a stage fails, tokens are spread uniformly and the reason is kept.
"""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from arr_coc import attending, balancing, knowing
from arr_coc.allocators import Spread, allocator_for
from arr_coc.attending import Allocation
from arr_coc.balancing import FIXED, Scalars
from arr_coc.components import Components, context_for
from arr_coc.config import MINIMUM_BUDGET, NEUTRAL, Config, Tensions, glance_size
from arr_coc.texture import SAMPLES, texture
from arr_coc.words import Words

log = logging.getLogger(__name__)
Seconds = dict[str, float]  # by stage

# Above this compress tension (the gist is asked for) an "auto" glance stays in the cache.
GIST = 0.5


@dataclass(frozen=True)
class Glance:
    """What a host saw at low resolution.

    Attributes:
        attention: `(1, gh, gw)` attention from the prompt's last token, which will answer, to each
            place; any scale >= 0.
        tokens: visual tokens the glance took.
        state: the host's own, with which it continues from the glance; never read here.
        heads: `(1, heads, gh, gw)` the same attention of every head of each layer that the glance ran,
            layer by layer.
        states, answering: `(1, gh, gw, D)` and `(1, D)` what each place and the last token hold half
            way up. These three are for trained weights alone; None where a host gives none.
    """

    attention: Tensor
    tokens: int
    state: Any = field(default=None, repr=False, compare=False)
    heads: Tensor | None = field(default=None, repr=False, compare=False)
    states: Tensor | None = field(default=None, repr=False, compare=False)
    answering: Tensor | None = field(default=None, repr=False, compare=False)


class Round(NamedTuple):
    """A round of spending: visual tokens held after it, and how unsure the first word then was, in nats."""

    tokens: int
    entropy: float


class Host(Protocol):
    """What the Realizer needs from a model. `image` is whatever the host prepared."""

    def grid(self, image: Any) -> tuple[int, int]:
        """`(h, w)` of the image's token grid."""

    def pixels(self, image: Any, side: int | None) -> Tensor:
        """`(1, 3, H, W)` sRGB in [0, 1], as the model sees it, or `side` samples a side of each token."""

    def embed(self, question: str) -> Words:
        """The question's own tokens, embedded."""

    def glance(self, image: Any, question: str, tokens: int) -> Glance:
        """Look at the image with at most `tokens` visual tokens, asking the question."""


@dataclass(frozen=True)
class Realization:
    """Everything one decision was made of; pictures, API and evaluation read from here.

    Maps are `(1, h, w)` in [0, 1]; `textures` is `(1, 13, h, w)`. After a fallback the maps that
    were not reached are None, `relevance` is even, and `fallback` says why. `budget` is the most that
    may be spent; `tokens` is what was, in `rounds` where the config's share is "auto".
    `policy_tensions` and their source are what would have been chosen had none been imposed.
    """

    question: str
    config: Config
    grid: tuple[int, int]
    budget: int
    textures: Tensor | None
    propositional: Tensor | None
    perspectival: Tensor | None
    participatory: Tensor | None
    tensions: Tensions
    tension_source: str
    participatory_source: str
    relevance: Tensor
    allocation: Allocation
    glance: Glance | None
    seconds: dict[str, float]
    fallback: str | None = None
    scalars: Scalars = FIXED
    policy_tensions: tuple[Tensions, str] | None = None
    rounds: tuple[Round, ...] = ()

    @property
    def kept_glance(self) -> Glance | None:
        """The glance whose tokens stay in the cache as the periphery, or None."""
        kept = keeps_glance(self.config, self.glance, self.tensions, self.budget)
        return self.glance if kept else None

    @property
    def tokens(self) -> int:
        """Visual tokens the language model will hold: fovea, and periphery where it is kept."""
        return len(self.allocation) + (self.kept_glance.tokens if self.kept_glance else 0)


class Realizer:
    """Runs the four stages on a host."""

    def __init__(self, host: Host, components: Components | None = None) -> None:
        """`components` are trained parts for the host; None is training-free."""
        self.host, self.components = host, components

    def realize(
        self,
        image: Any,
        question: str,
        config: Config = Config(),
        synchronize: Callable[[], None] = lambda: None,
    ) -> Realization:
        """Decide where the tokens of `image` go for `question`.

        Args:
            image: as the host prepared it.
            question: the question's own text.
            config: how to spend.
            synchronize: called at stage borders before the clock is read (a GPU's barrier).

        Raises:
            ValueError: where the budget does not fit the image. Failures of a stage do not raise:
                they give a uniform allocation and `fallback`.
        """
        grids = self._grids(image, config)
        budget = config.tokens(sum(h * w for h, w in grids), balancing.lexical_tier(question))
        seconds: Seconds = {"glance": 0.0, "relevance": 0.0}
        try:
            return self._realize(image, question, config, grids, budget, seconds, synchronize)
        except FloatingPointError:
            raise  # the host may ask again in a wider dtype
        except Exception as error:  # whatever a stage raises, the answer must still arrive
            log.exception("a stage failed; falling back to a uniform allocation")
            return self._evenly(image, question, config, grids, budget, describe(error), seconds)

    def _grids(self, image: Any, config: Config) -> list[tuple[int, int]]:
        return [self.host.grid(image)]

    def _evenly(self, image: Any, question: str, config: Config, grids: Any, *rest: Any) -> Any:
        return uniform_realization(question, config, grids[0], *rest)

    def _realize(
        self,
        image: Any,
        question: str,
        config: Config,
        grids: list[tuple[int, int]],
        budget: int,
        seconds: Seconds,
        synchronize: Callable[[], None],
    ) -> Realization:
        (grid,), glance, context = grids, None, context_for(config, self.components)
        if config.glance != "off":
            with stage(seconds, "glance", synchronize):
                glance = self._glance(image, question, glance_size(grid, config, context, budget))
        with stage(seconds, "relevance", synchronize):
            surface = self._surface(image, grid, SAMPLES if context == "glance" else None)
            perspectival = knowing.perspectival(surface.textures)
            participatory, coupled = self._participatory(question, glance, surface)
            maps = (surface.propositional, perspectival, participatory)
            own = self._tensions(question, [maps])
            tensions, source = (config.tensions, "imposed") if config.tensions else own
            kept = glance.tokens if keeps_glance(config, glance, tensions, budget) else 0
            scalars = self._scalars()
            relevance, allocation = decide(maps, tensions, budget - kept, config.allocator, scalars)
        return Realization(
            question=question,
            config=config,
            grid=grid,
            budget=budget,
            textures=surface.textures,
            propositional=surface.propositional,
            perspectival=perspectival,
            participatory=participatory,
            tensions=tensions,
            tension_source=source,
            participatory_source=coupled,
            relevance=relevance,
            allocation=allocation,
            glance=glance,
            seconds=seconds,
            scalars=scalars,
            policy_tensions=own,
        )

    def _glance(self, image: Any, question: str, tokens: int) -> Glance:
        return self.host.glance(image, question, tokens)

    def _surface(self, image: Any, grid: tuple[int, int], side: int | None) -> knowing.Surface:
        """Of a picture, its maps drawn from `side` samples on a side of each cell, or from every pixel."""
        pixels, seen = self.host.pixels(image, side), None
        maps = texture(pixels, grid), knowing.propositional(pixels, grid)
        if self.components is not None:
            with torch.inference_mode():
                seen = self.components.see(lambda finer: self.host.pixels(image, finer))
        return knowing.Surface(*maps, seen)

    def _participatory(
        self, question: str, glance: Glance | None, surface: knowing.Surface
    ) -> tuple[Tensor | None, str]:
        """The participatory map and where it comes from, as `Components.participatory`."""
        textures, grid = surface.textures, tuple(surface.textures.shape[-2:])
        if self.components is not None:
            words = self.host.embed(question).to(textures.device)
            with torch.inference_mode():
                return self.components.participatory(glance, textures, words, grid, surface.seen)
        if glance is None:
            return None, "none"
        return knowing.participatory(glance.attention, grid), "glance"

    def _scalars(self) -> Scalars:
        return FIXED if self.components is None else self.components.numbers()

    def _tensions(
        self, question: str, maps: Sequence[tuple[Tensor, Tensor, Tensor | None]]
    ) -> tuple[Tensions, str]:
        """The tensions chosen for a question and the maps of each picture, and by what."""
        if self.components is None or self.components.policy is None:
            return balancing.lexical_tensions(question), "lexical prior"
        # The policy was trained on three maps: one that is missing counts as empty.
        known = [[m if m is not None else torch.zeros_like(own[0]) for m in own] for own in maps]
        each = [balancing.map_statistics(torch.stack(own, 1)) for own in known]
        statistics = torch.stack(each).mean(0)
        with torch.inference_mode():
            words = self.host.embed(question).to(statistics.device)
            values = self.components.policy(words.mean, statistics)[0]
        return Tensions(*values.tolist()), "learned"  # a GPU is waited for once


def decide(
    maps: tuple[Tensor, Tensor, Tensor | None],
    tensions: Tensions,
    budget: int,
    allocator: str = "topk",
    scalars: Scalars = FIXED,
) -> tuple[Tensor, Allocation]:
    """Maps and tensions -> relevance `(1, h, w)` and its allocation of at most `budget` tokens.

    The focus tension says how many of them are spread evenly (`Scalars.spread`); the others go to the
    best places.
    """
    relevance = balancing.combine(*maps, tensions, scalars)
    best = allocator_for(allocator, compress=tensions.compress, minimum=MINIMUM_BUDGET)
    allocate = Spread(best, scalars.spread(tensions.focus))
    # On a fast device with ties the order must not depend on the device: decide on the CPU.
    return relevance, allocate(relevance[0].float().cpu(), budget)


def recombine(
    realization: Realization, tensions: Tensions | None = None, budget: int | None = None
) -> Realization:
    """Decide again from the maps already there: other tensions, another budget, no model.

    Raises:
        ValueError: after a fallback (no maps), or for a budget that does not fit.
    """
    if realization.fallback:
        raise ValueError(f"there are no maps to recombine: {realization.fallback}")
    tensions = tensions or realization.tensions
    held = {} if budget is None else {"budget": budget}
    config = replace(realization.config, tensions=tensions, **held)
    places = realization.grid[0] * realization.grid[1]
    total = config.tokens(places, balancing.lexical_tier(realization.question))
    glance = realization.glance
    kept = glance.tokens if keeps_glance(config, glance, tensions, total) else 0
    if total - kept < 1:
        raise ValueError(f"budget {total} leaves nothing beside the glance's {kept} tokens")
    maps = (realization.propositional, realization.perspectival, realization.participatory)
    relevance, allocation = decide(
        maps, tensions, total - kept, config.allocator, realization.scalars
    )
    return replace(
        realization,
        config=config,
        budget=total,
        tensions=tensions,
        tension_source="imposed",
        relevance=relevance,
        allocation=allocation,
        rounds=(),
    )


def keeps_glance(config: Config, glance: Glance | None, tensions: Tensions, budget: int) -> bool:
    """Whether the glance's tokens stay in the cache, as part of the budget."""
    if glance is None or config.glance not in ("periphery", "auto"):
        return False
    fits = glance.tokens <= 3 * budget // 4
    return config.glance == "periphery" or (fits and tensions.compress > GIST)


def uniform_realization(
    question: str, config: Config, grid: tuple[int, int], budget: int, reason: str, seconds: Seconds
) -> Realization:
    """The fallback: tokens spread evenly, no maps, and the reason."""
    maps = ("textures", "propositional", "perspectival", "participatory")
    return Realization(
        question=question,
        config=config,
        grid=grid,
        budget=budget,
        **dict.fromkeys(maps),
        tensions=config.tensions or NEUTRAL,
        tension_source="none",
        participatory_source="none",
        relevance=torch.full((1, *grid), 0.5),
        allocation=attending.uniform(grid, budget),
        glance=None,
        seconds=seconds,
        fallback=reason,
    )


def describe(error: Exception) -> str:
    """One line that names an error's type and says what it says."""
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no message'}"


@contextmanager
def stage(seconds: Seconds, name: str, synchronize: Callable[[], None]) -> Iterator[None]:
    """Add the wall seconds of the block to `seconds[name]`, synchronised at both ends."""
    synchronize()
    start = time.perf_counter()
    try:
        yield
    finally:
        synchronize()
        seconds[name] = seconds.get(name, 0.0) + time.perf_counter() - start
