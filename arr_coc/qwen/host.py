"""QwenHost: a Qwen3-VL checkpoint in memory, as the Realizer and all that answers with it need it.

Prepares, glances and encodes; `ARRCOCQwen` adds loading and answering. Only public arguments of the stock
model are used: nothing is patched, and a stock call gives the same before and after.
"""

import copy
import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any, Self, TypeVar

import torch
from transformers import DynamicCache

from arr_coc.components import Components
from arr_coc.config import MAX_PIXELS, NO_REVISION, Config
from arr_coc.qwen import context as encoder_context
from arr_coc.qwen import encoding, finite, weights
from arr_coc.qwen.context import EncoderContext
from arr_coc.qwen.encoding import TokenSet
from arr_coc.qwen.glance import (
    ATTENTION_SPAN,
    glance_context,
    glanced_at,
    layers_in,
    take_glance,
    take_glances,
)
from arr_coc.qwen.inputs import Ask, Inputs, Picture, Views
from arr_coc.qwen.loading import wider_dtype
from arr_coc.qwen.paying import StageTimes
from arr_coc.qwen.preparing import Preparing
from arr_coc.realizing import Glance, Realization
from arr_coc.words import Words

log = logging.getLogger(__name__)

Made = TypeVar("Made")
TOWER = "float16 overflowed in the vision tower on a picture; the tower runs in float32 since."


class QwenHost(Preparing):
    """The stock model with its inputs, its trained components and a lock; see the module's docstring."""

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        image_processor: Any,
        *,
        name: str = "unnamed",
        revision: str | None = None,
        policies: dict[str, Components] | None = None,
        notices: Sequence[str] = (),
        is_bundled: bool = False,
        max_pixels: int = MAX_PIXELS,
    ) -> None:
        """Wrap loaded parts: `Qwen3VLForConditionalGeneration`, tokenizer, `Qwen2VLImageProcessorPil`.

        `name` and `revision`, a commit, are where the base can be had. `policies` are trained components
        by revision, the first serving where none is named; `notices` say why others are not among them.
        `max_pixels` caps every image, below what the processor itself
        would allow.
        """
        self.model, self.tokenizer, self.image_processor = model.eval(), tokenizer, image_processor
        self.name, self.revision, self.is_bundled = name, revision, is_bundled
        self.policies, self._notices = policies or {}, list(notices)
        self.inputs = Inputs(model, tokenizer, image_processor, max_pixels)
        self.geometry, self.max_pixels = self.inputs.geometry, max_pixels
        self.placed = str(model.device)  # ZeroGPU tells it to the thread that loads alone
        encoder_context.install(model)
        self.times = StageTimes()
        depth = model.config.text_config.num_hidden_layers
        self.attention_layers = layers_in(ATTENTION_SPAN, depth)
        # rope_deltas is state of the stock model, and one model serves every caller.
        self.lock = threading.RLock()

    # --- the model and its trained components ---

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.model.device

    def identity(self) -> dict[str, Any]:
        """What ARR-COC weights for this base must match, as `weights.load_components` takes it."""
        return weights.identity(self.model)

    def policy(self, config: Config) -> Components | None:
        """The trained components of the config's revision, or the default ones; None without weights.

        Raises:
            ValueError: for a revision that was not loaded.
        """
        if config.revision is None:
            return next(iter(self.policies.values()), None)
        if config.revision == NO_REVISION:
            return None
        if config.revision not in self.policies:
            loaded = ", ".join(self.policies) or "none"
            raise ValueError(f"revision is {config.revision!r}, loaded: {loaded}")
        return self.policies[config.revision]

    def heads_read(self) -> list[int]:
        """For each of the trained components that reads heads of the glance, of how many."""
        parts = [own.heads for own in self.policies.values() if own.heads is not None]
        return [part.sizes["heads"] for part in parts]

    @property
    def notices(self) -> list[str]:
        """What whoever asks should know, a sentence each: weights left out, numbers that overflowed."""
        tower = self.is_narrow and self.model.model.visual.dtype != torch.float16
        return [*self._notices, *([TOWER] if tower else [])]

    @property
    def is_narrow(self) -> bool:
        """Whether the text model is in float16, whose numbers end at 65,504."""
        return self.model.get_input_embeddings().weight.dtype == torch.float16

    def widen(self) -> bool:
        """Move a float16 model to bfloat16, where the device has it, or to float32, for good.

        Returns:
            Whether it was in float16: what overflowed may be tried again.
        """
        if not self.is_narrow:
            return False
        wide = wider_dtype(self.device)
        finite.move(self.model, wide)
        now = str(wide).removeprefix("torch.")
        said = f"float16 overflowed on a picture; the model runs in {now} since."
        log.warning(said)
        self._notices.append(said)
        return True

    def once_more_if_narrow(self, work: Callable[[], Made]) -> Made:
        """What `work` gives; where float16 overflows in it, once more in a wider dtype, from its beginning.

        Raises:
            ValueError: where it overflows in the wider dtype as well.
        """
        while True:
            try:
                return work()
            except FloatingPointError as error:
                if not self.widen():
                    dtype = str(self.model.dtype).removeprefix("torch.")
                    raise ValueError(f"{finite.NOT_FINITE}: {error} in {dtype}.") from error

    def with_policies(self, policies: dict[str, Components]) -> Self:
        """The same model in memory with other trained components; this host keeps its own."""
        other = copy.copy(self)
        other.policies = policies
        return other

    def new_cache(self) -> DynamicCache:
        """An empty KV cache of the text model's shape."""
        return DynamicCache(config=self.model.config.get_text_config())

    def synchronize(self) -> None:
        """Wait for the device, so that a clock read afterwards is true."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    # --- the Host protocol: what the Realizer asks for ---

    def embed(self, question: str) -> Words:
        """The question's tokens, embedded; template and specials left out."""
        return Words.of_one(self.model.get_input_embeddings()(self.inputs.ids(question))[0])

    def glance(
        self, image: Ask, question: str, tokens: int, layers: list[int] | None = None
    ) -> Glance:
        """A low-resolution pass through the whole model; its cache is kept without the question.

        `layers` are text layers to read in place of `attention_layers`. The question is in the prompt.
        """
        return take_glance(self, image, tokens, layers)

    def glances(self, views: Views, question: str, tokens: Sequence[int]) -> list[Glance]:
        """One low-resolution pass over all of them, as `glance`; its cache is thrown away."""
        return take_glances(self, views, tokens)

    # --- the parts of an answer ---

    def encode(self, picture: Picture, realization: Realization | None) -> TokenSet:
        """Visual tokens of a picture: all of them (None), or those a Realization keeps."""
        return self.encode_each([picture], realization and [realization])[0]

    def encode_each(
        self, pictures: Sequence[Picture], realizations: Sequence[Realization] | None
    ) -> list[TokenSet]:
        """As `encode` of each picture, in one call of the encoder; none sees another.

        `realizations` are one for each, of one config, or None for all tokens of all pictures.
        """
        visual = self.model.model.visual
        if realizations is None:
            return encoding.encode_pictures(visual, pictures)
        allocations = [realization.allocation for realization in realizations]
        if realizations[0].config.prune == "after":
            whole = encoding.encode_pictures(visual, pictures)
            return [encoding.cut(tokens, kept) for tokens, kept in zip(whole, allocations)]
        parts = self.policy(realizations[0].config)
        if parts and parts.adapter:  # it reads what the glance saw
            pairs = zip(pictures, realizations)
            realizations = [glanced_at(self, picture, own) for picture, own in pairs]
        tokens, contexts = self._encode_kept(pictures, realizations)
        if any(context and context.dtype != visual.dtype for context in contexts):
            # The tower overflowed and runs in float32 from here on, and so must what it recorded.
            tokens, _ = self._encode_kept(pictures, realizations)
        return [self.adapted(own, decided) for own, decided in zip(tokens, realizations)]

    def _encode_kept(
        self, pictures: Sequence[Picture], realizations: Sequence[Realization]
    ) -> tuple[list[TokenSet], list[EncoderContext | None]]:
        """Kept tokens as the encoder gives them, and the contexts beside which they were encoded."""
        visual, config = self.model.model.visual, realizations[0].config
        parts = self.policy(config)
        kind = encoding.context_kind(realizations[0], parts, visual)
        contexts = [
            glance_context(self, picture, own) if kind == "glance" and len(own.allocation) else None
            for picture, own in zip(pictures, realizations)
        ]
        around = [config.surrounding_cells(p.grid) if kind == "cells" else 0 for p in pictures]
        tokens = encoding.encode_kept(
            visual,
            pictures,
            [own.allocation for own in realizations],
            around,
            config.halo if kind == "cells" else 0.0,
            contexts,
            parts and parts.lora,
        )
        return tokens, contexts

    def adapted(self, tokens: TokenSet, realization: Realization) -> TokenSet:
        """Kept tokens as the realization's trained adapter corrects them, see `encoding.adapted`."""
        parts = self.policy(realization.config)
        kind = encoding.context_kind(realization, parts, self.model.model.visual)
        return encoding.adapted(tokens, realization, parts, kind)
