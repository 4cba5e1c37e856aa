"""Deciding: the Realizer for what a question is about, one picture or several at once."""

from arr_coc.config import Config
from arr_coc.qwen.host import QwenHost
from arr_coc.qwen.inputs import Ask, Views
from arr_coc.realizing import Realization, Realizer
from arr_coc.temporal import Moments, TemporalRealizer


def decided(
    host: QwenHost, asked: Ask | Views, question: str, config: Config
) -> Realization | Moments:
    """Where the tokens go, of one picture, or of a clip or several pictures."""
    kind = Realizer if isinstance(asked, Ask) else TemporalRealizer
    return kind(host, host.policy(config)).realize(asked, question, config, host.synchronize)


def views_of(realization: Realization | Moments | None) -> tuple[Realization, ...] | None:
    """What was decided of each picture; None, where nothing was, is the full look."""
    if isinstance(realization, Moments):
        return realization.views
    return None if realization is None else (realization,)
