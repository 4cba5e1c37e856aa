"""Looking: what an answer is read from, without reading it; for answers to many questions at once."""

from contextlib import nullcontext

from PIL import Image

from arr_coc.config import Config
from arr_coc.qwen.encoding import TokenSet, joined
from arr_coc.qwen.host import QwenHost
from arr_coc.qwen.inputs import Prompt
from arr_coc.qwen.rounds import spend
from arr_coc.realizing import Realization, Realizer


def looked_at(
    host: QwenHost, image: Image.Image, question: str, config: Config | None
) -> tuple[Prompt, TokenSet, Realization | None]:
    """What an answer is read from, without reading it: prompt, every visual token, the decision.

    No config is the stock model.
    """
    ask = host.prepare(image, question)
    if config is None:
        return ask.prompt, host.encode(ask.picture, None), None
    realization = Realizer(host, host.policy(config)).realize(ask, question, config)
    kept = realization.kept_glance
    periphery = [kept.state.tokens] if kept else []
    if config.is_auto and not realization.fallback:
        spent = spend(host, ask, realization, lambda _: nullcontext())
        tokens, realization = spent.tokens, spent.realization
    else:
        tokens = host.encode(ask.picture, realization)
    return ask.prompt, joined([*periphery, tokens]), realization
