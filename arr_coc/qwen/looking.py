"""Looking: what answers to many questions are read from, without reading it.

However many ask about a picture, it is prepared once, its maps are made once, and the stock model encodes
it once. Glances of one size are taken in one pass; on a GPU what is kept of several pictures is encoded in
one call, a large picture's worth of tokens at a time.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from typing import NamedTuple

from PIL import Image

from arr_coc.balancing import lexical_tier
from arr_coc.components import Components, context_for
from arr_coc.config import Config, glance_size
from arr_coc.knowing import Surface
from arr_coc.qwen.encoding import TokenSet, joined
from arr_coc.qwen.host import QwenHost
from arr_coc.qwen.inputs import Ask, Prompt
from arr_coc.qwen.rounds import spend
from arr_coc.qwen.together import take_glance_of_each
from arr_coc.realizing import Glance, Realization, Realizer

log = logging.getLogger(__name__)

AT_ONCE = 4096  # visual tokens of one pass: more would take more memory than one large picture
# Of one encoder call, by device: on a CPU a call costs nothing beside its work, and caches hold few.
ENCODED_AT_ONCE = {"cpu": 0}


class Look(NamedTuple):
    """What one answer is read from: prompt, every visual token, the decision (None is the stock model)."""

    prompt: Prompt
    tokens: TokenSet
    realization: Realization | None


class RealizerOfMany(Realizer):
    """Decides about many questions: glances were taken before, and a picture's maps are made once."""

    def __init__(
        self, host: QwenHost, components: Components | None, glances: dict[int, Glance]
    ) -> None:
        """`glances` by the `id` of the ask; one that is not there is taken when it is needed."""
        super().__init__(host, components)
        self.glances = glances
        self.surfaces: dict[int, Surface] = {}

    def _glance(self, image: Ask, question: str, tokens: int) -> Glance:
        return self.glances.get(id(image)) or super()._glance(image, question, tokens)

    def _surface(self, image: Ask, grid: tuple[int, int], side: int | None) -> Surface:
        if id(image.picture) not in self.surfaces:
            self.surfaces[id(image.picture)] = super()._surface(image, grid, side)
        return self.surfaces[id(image.picture)]


def looked_at_each(
    host: QwenHost,
    images: Sequence[Image.Image],
    questions: Sequence[str],
    config: Config | None,
) -> list[Look]:
    """What each answer is read from; no config is the stock model.

    Args:
        host: that looks.
        images: one for each question; the same one may come again.
        questions: as many.
        config: how to spend tokens.
    """
    asks = host.prepare_each(images, questions)
    if config is None:
        return _in_full(host, asks)
    glances = _glances(host, asks, questions, config)
    realizer = RealizerOfMany(host, host.policy(config), glances)
    decided = [realizer.realize(*pair, config) for pair in zip(asks, questions)]
    return _focused(host, asks, decided)


def _in_full(host: QwenHost, asks: Sequence[Ask]) -> list[Look]:
    pictures = list({id(ask.picture): ask.picture for ask in asks}.values())
    encoded: dict[int, TokenSet] = {}
    for some in within(_encoded_at_once(host), [picture.tokens for picture in pictures]):
        own = [pictures[number] for number in some]
        encoded |= {id(p): tokens for p, tokens in zip(own, host.encode_each(own, None))}
    return [Look(ask.prompt, encoded[id(ask.picture)], None) for ask in asks]


def _glances(
    host: QwenHost, asks: Sequence[Ask], questions: Sequence[str], config: Config
) -> dict[int, Glance]:
    """Glances at all questions, by the `id` of the ask; none where they cannot be taken together."""
    if config.glance == "off" or len(asks) == 1:
        return {}
    sizes, context = [], context_for(config, host.policy(config))
    for ask, question in zip(asks, questions):
        budget = config.tokens(ask.picture.tokens, lexical_tier(question))
        sizes.append(glance_size(ask.picture.grid, config, context, budget))
    taken: dict[int, Glance] = {}
    try:
        for some in within(AT_ONCE, sizes):
            own = [asks[number] for number in some]
            found = take_glance_of_each(host, own, [sizes[number] for number in some])
            taken |= {id(ask): glance for ask, glance in zip(own, found)}
    except FloatingPointError:
        raise  # the host may ask again in a wider dtype
    except Exception:  # then each takes its own, and one that fails falls back alone
        log.exception("glances could not be taken together; they are taken one by one")
    return taken


def _focused(host: QwenHost, asks: Sequence[Ask], decided: Sequence[Realization]) -> list[Look]:
    """Kept tokens are encoded together; what came in rounds, or fell back, alone."""
    together = [
        number for number, own in enumerate(decided) if not (own.fallback or own.config.is_auto)
    ]
    encoded: dict[int, TokenSet] = {}
    sizes = [_seen(asks[number], decided[number]) for number in together]
    for some in within(_encoded_at_once(host), sizes):
        numbers = [together[n] for n in some]
        made = host.encode_each([asks[n].picture for n in numbers], [decided[n] for n in numbers])
        encoded |= dict(zip(numbers, made))
    looks = []
    for number, (ask, own) in enumerate(zip(asks, decided)):
        kept = own.kept_glance
        if number in encoded:
            tokens = encoded[number]
        elif own.fallback:
            tokens = host.encode(ask.picture, own)
        else:
            spent = spend(host, ask, own, lambda _: nullcontext())
            tokens, own = spent.tokens, spent.realization
        looks.append(
            Look(ask.prompt, joined([*([kept.state.tokens] if kept else []), tokens]), own)
        )
    return looks


def _encoded_at_once(host: QwenHost) -> int:
    return ENCODED_AT_ONCE.get(host.device.type, AT_ONCE)


def _seen(ask: Ask, decided: Realization) -> int:
    """Visual tokens that the encoder sees of a picture."""
    return ask.picture.tokens if decided.config.prune == "after" else len(decided.allocation)


def within(most: int, sizes: Sequence[int]) -> Iterator[list[int]]:
    """The numbers of `sizes` in groups, in order, of at most so much together; at least one in each."""
    group: list[int] = []
    for number, size in enumerate(sizes):
        if group and sum(sizes[n] for n in group) + size > most:
            yield group
            group = []
        group.append(number)
    if group:
        yield group
