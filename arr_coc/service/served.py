"""Served: a vLLM server in the model's place (`ARR_COC_SERVER`, docs/serving.md); no model here.

It answers both looks, a request each; times are measured here, the way over the network included. Where
the focused look went stays in the server's worker, so there is no map, and nothing that needs one.
"""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from PIL import Image

from arr_coc import naming
from arr_coc.balancing import lexical_tier
from arr_coc.config import DEADLINE_S, NEW_TOKENS, Config
from arr_coc.qwen import Answer, Measures
from arr_coc.service.looks import NO_MAP, SERVER_DEVICE, UNNAMED
from arr_coc.serving.client import AWAY, LATE, Client, Reply, ServerError
from arr_coc.serving.counting import PUBLISHED, Cutting, counted

SERVER, KEY = "ARR_COC_SERVER", "ARR_COC_SERVER_KEY"
NO_WEIGHTS = "Which ARR-COC weights the server decides with, it does not tell."
NOT_THERE = "The answers come from a server, which cannot do this: {}."
# What the server's plugin does not know, with the one value that is the server's own.
FIXED = {
    "allocator": ("topk",),
    "prune": ("before",),
    "glance": ("auto", "separate"),
    "when": ("always",),
}


class Served:
    """As much of an `ARRCOCQwen` as two looks ask of it."""

    is_bundled, device, revision = False, SERVER_DEVICE, None
    gone = (LATE, AWAY)  # errors of a look that no other look is tried after

    def __init__(self, client: Client) -> None:
        """Nothing is sent yet: the server may come, go and come back while the page is up."""
        self.client, self.notices = client, [NO_MAP, NO_WEIGHTS]
        cutting = client.cutting
        self.max_pixels = cutting.most
        # As `token_grid` reads them.
        self.image_processor = SimpleNamespace(size={"longest_edge": cutting.most})
        self.geometry = SimpleNamespace(unit_pixels=cutting.unit)

    @property
    def name(self) -> str:
        """As the server calls its model; a word for it while it does not answer."""
        try:
            return Path(self.client.model).name
        except ServerError:
            return UNNAMED

    def stream(
        self,
        image: Image.Image,
        question: str,
        *,
        use_arr_coc: bool = True,
        config: Config | None = None,
        max_new_tokens: int = NEW_TOKENS,
        deadline_s: float = DEADLINE_S,
        grid: tuple[int, int] | None = None,
    ) -> Iterator[Answer]:
        """As `ARRCOCQwen.stream`, without a realization.

        Raises:
            ValueError: for settings that the server does not know, and as `Client.ask`.
        """
        if grid is not None:
            unit = self.client.cutting.unit
            size = (grid[1] * unit, grid[0] * unit)
            image = image.resize(size, Image.Resampling.BICUBIC)
        native = counted(image, None, self.client.cutting).native
        wish = wish_of(config or Config(), question, native) if use_arr_coc else None
        for reply in self.client.ask(
            image, question, wish, max_new_tokens=max_new_tokens, deadline_s=deadline_s
        ):
            stage = "decode" if reply.first_s else "prefill"
            done = bool(reply.ended)
            yield Answer(reply.text, stage, done, _measures(reply) if done else None)

    def realize(self, *_: Any, **__: Any) -> Any:
        """ValueError: the server does not say where it looked."""
        raise ValueError(NO_MAP)

    prepare = realize

    @property
    def inputs(self) -> Any:
        """ValueError: pictures are prepared at the server."""
        raise ValueError(NO_MAP)

    @property
    def lock(self) -> Any:
        """ValueError: nothing runs here that could be held."""
        raise ValueError(NO_MAP)


def served(base: str | Path | None = None) -> Served | None:
    """The server that the owner named; None where none is.

    Args:
        base: a folder of the served checkpoint, which says how it cuts pictures; else as Qwen3-VL.

    Raises:
        ValueError: for an address that is none, or a key that cannot be sent.
    """
    address = naming.set_to(SERVER)
    if not address:
        return None
    told = base is not None and (Path(base) / "preprocessor_config.json").is_file()
    cutting = Cutting.of(Path(base)) if told else PUBLISHED
    return Served(Client(address, cutting=cutting, key=naming.set_to(KEY)))


def wish_of(config: Config, question: str, native: int) -> dict[str, Any]:
    """What a request says of the focused look, for a picture of so many native tokens.

    Raises:
        ValueError: for settings that the server does not know.
    """
    for name, own in FIXED.items():
        if (value := getattr(config, name)) not in own:
            raise ValueError(NOT_THERE.format(f"{name} {value!r}, there it is {own[-1]!r}"))
    if isinstance(config.share, str):
        raise ValueError(NOT_THERE.format(f"share {config.share!r}, there it is a number"))
    if config.revision:
        raise ValueError(NOT_THERE.format("another revision of the weights"))
    wish: dict[str, Any] = {"budget": config.tokens(native, lexical_tier(question))}
    if config.context != "auto":
        wish["context"] = config.context
    if (own := config.tensions) is not None:
        wish["tensions"] = {"compress": own.compress, "exploit": own.exploit, "focus": own.focus}
    return wish


def _measures(reply: Reply) -> Measures:
    """What can be known at the client; 0 and "" stand for what cannot."""
    writing = reply.seconds - reply.first_s
    rate = (reply.tokens - 1) / writing if reply.tokens > 1 and writing > 0 else 0.0
    return Measures(
        stages={},
        time_to_first_token=reply.first_s or reply.seconds,
        decode_tokens_per_second=rate,
        new_tokens=reply.tokens,
        visual_tokens=reply.visual.kept,
        visual_tokens_full=reply.visual.native,
        kv_cache_bytes=0,
        peak_memory_bytes=0,
        peak_memory_kind="",
        ended=reply.ended,
    )
