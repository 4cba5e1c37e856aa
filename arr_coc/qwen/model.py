"""ARRCOCQwen: stock Qwen3-VL and ARR-COC on the same weights in memory, streamed and measured.

    model = ARRCOCQwen.from_pretrained("Qwen/Qwen3-VL-2B-Instruct")
    answer = model.generate(image, "What number is on the small sign?")

Implements the Realizer's `Host` on any Qwen3-VL checkpoint. Only public arguments of the stock model
are used: nothing is patched, and a stock call gives the same before and after an ARR-COC call.
Decoding is greedy, so that two answers differ by what was seen and not by chance.
"""

import copy
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import torch
from PIL import Image
from torch import Tensor
from transformers import DynamicCache

from arr_coc.components import Components
from arr_coc.config import (
    DEADLINE_S,
    MAX_PIXELS,
    NEW_TOKENS,
    NO_REVISION,
    Config,
    check_new_tokens,
)
from arr_coc.qwen import encoding, loading, weights
from arr_coc.qwen.answer import Answer, Run, without_state
from arr_coc.qwen.encoding import TokenSet
from arr_coc.qwen.glance import ATTENTION_SPAN, layers_in, take_glance
from arr_coc.qwen.inputs import Ask, Inputs, Picture, Prompt
from arr_coc.realizing import Glance, Realization, Realizer


class ARRCOCQwen:
    """Stock Qwen3-VL with an optional adaptive look; see the module's docstring."""

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        image_processor: Any,
        *,
        name: str = "unnamed",
        policies: dict[str, Components] | None = None,
        notices: Sequence[str] = (),
        is_bundled: bool = False,
        max_pixels: int = MAX_PIXELS,
    ) -> None:
        """Wrap loaded parts: `Qwen3VLForConditionalGeneration`, tokenizer, `Qwen2VLImageProcessorPil`.

        `policies` are trained components by revision, the first serving where none is named; `notices`
        say why others are not among them. `max_pixels` caps every image, below what the processor itself
        would allow.
        """
        self.model, self.tokenizer, self.image_processor = model.eval(), tokenizer, image_processor
        self.name, self.is_bundled = name, is_bundled
        self.policies, self.notices = policies or {}, list(notices)
        self.inputs = Inputs(model, tokenizer, image_processor, max_pixels)
        self.geometry, self.max_pixels = self.inputs.geometry, max_pixels
        depth = model.config.text_config.num_hidden_layers
        self.attention_layers = layers_in(ATTENTION_SPAN, depth)
        # rope_deltas is state of the stock model, and one model serves every caller.
        self.lock = threading.RLock()

    @classmethod
    @torch.inference_mode(False)  # weights made in inference mode could never be trained through
    def from_pretrained(
        cls,
        base: str | Path | None = None,
        components: str | Path | None = None,
        revision: str | None = None,
        *,
        device: str | torch.device | None = None,
        dtype: torch.dtype | None = None,
        on_bad_weights: weights.OnBadWeights = "raise",
    ) -> Self:
        """Load a Qwen3-VL checkpoint, and ARR-COC weights where `components` names them.

        Args:
            base: Hub id or local folder; None takes `ARR_COC_BASE`, else `default_base()`.
            components: Hub id or folder of ARR-COC weights; None takes `weights.default_weights`,
                and "" is training-free, without a network call.
            revision: of `components` on the Hub; None loads each of `ARR_COC_REVISIONS`, the first
                of them being the default, or else the latest.
            device: None takes CUDA where there is one.
            dtype: None takes bfloat16 where the GPU has it, float16 on older ones, float32 on CPU.
            on_bad_weights: "raise", or "notice" to go on without ARR-COC weights that cannot be used;
                `notices` then says why.

        Raises:
            ValueError: for a missing folder, a base that is not Qwen3-VL, weights for another base.
        """
        parts = loading.load_base(base, device=device, dtype=dtype)
        if components is None:
            components = weights.default_weights(parts.is_bundled)
        revisions = [revision] if revision else weights.revisions() or [None]
        policies, notices = weights.load_policies(parts, components, revisions, on_bad_weights)
        return cls(
            parts.model,
            parts.tokenizer,
            parts.image_processor,
            name=parts.name,
            policies=policies,
            notices=notices,
            is_bundled=parts.is_bundled,
        )

    # --- the host and its trained components ---

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

    def grid(self, image: Ask) -> tuple[int, int]:
        """`(h, w)` visual tokens of a prepared image."""
        return image.picture.grid

    def pixels(self, image: Ask) -> Tensor:
        """`(1, 3, H, W)` sRGB in [0, 1]."""
        return image.picture.pixels()

    def embed(self, question: str) -> Tensor:
        """`(1, D)` mean of the question tokens' embeddings; template and specials left out."""
        return self.model.get_input_embeddings()(self.inputs.ids(question)).float().mean(1)

    def glance(
        self, image: Ask, question: str, tokens: int, layers: list[int] | None = None
    ) -> Glance:
        """A low-resolution pass through the whole model; its cache is kept without the question.

        `layers` are text layers to read in place of `attention_layers`. The question is in the prompt.
        """
        return take_glance(self, image, tokens, layers)

    # --- answers ---

    def generate(
        self, image: Image.Image, question: str, use_arr_coc: bool = True, **options: Any
    ) -> Answer:
        """The finished `Answer`; arguments as `stream`."""
        *_, answer = self.stream(image, question, use_arr_coc=use_arr_coc, **options)
        return answer

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
        """Answer a question about an image, as snapshots; the last one is `done` and carries all.

        Args:
            image: RGB.
            question: the question alone; the chat template is added here.
            use_arr_coc: False is the stock model, unchanged.
            config: how to spend tokens; None takes the defaults. Ignored by the stock model.
            max_new_tokens: 1 to 1024.
            deadline_s: decoding stops after so many seconds, with what there is by then.
            grid: rows and columns of visual tokens to resize the whole image to; None its own.

        Raises:
            ValueError: for an empty question, a budget that does not fit, or too many new tokens.
        """
        check_new_tokens(max_new_tokens)
        if not question.strip():
            raise ValueError("the question is empty, expected at least one word")
        spending = (config or Config()) if use_arr_coc else None
        run = Run(self, image, question, spending, max_new_tokens, deadline_s, grid)
        yield from run.snapshots()

    def realize(self, image: Image.Image, question: str, config: Config = Config()) -> Realization:
        """Decide where the tokens go, without answering."""
        with self.lock, torch.inference_mode():
            ask = self.prepare(image, question)
            return without_state(Realizer(self, self.policy(config)).realize(ask, question, config))

    def visualize_relevance(
        self, image: Image.Image, question: str, config: Config | None = None
    ) -> dict[str, Image.Image]:
        """Pictures of one decision, without answering: overlay, kept cells and the maps, by name."""
        from arr_coc.homunculus import realization_pictures  # loads matplotlib

        realization = self.realize(image, question, config or Config())
        return realization_pictures(image, realization, self.geometry.unit_pixels)

    def warm_up(self) -> None:
        """One short answer of each kind, so that the first visitor does not pay for lazy set-up."""
        grey = Image.new("RGB", (256, 256), (128, 128, 128))
        for use_arr_coc in (False, True):
            self.generate(grey, "what is this?", use_arr_coc, max_new_tokens=2)

    # --- parts of an answer, for who puts them together in another way ---

    def prepare(
        self, image: Image.Image, question: str, grid: tuple[int, int] | None = None
    ) -> Ask:
        """Picture and prompt, as `Inputs.prepare`."""
        return self.inputs.prepare(image, question, grid)

    def picture(self, image: Image.Image) -> Picture:
        """The image as the stock processor prepares it, at most `max_pixels`."""
        return self.inputs.picture(image)

    def resized(
        self,
        image: Image.Image,
        grid: tuple[int, int],
        box: tuple[float, float, float, float] | None = None,
    ) -> Picture:
        """The image, or a box of it, as `grid` visual tokens; see `Inputs.resized`."""
        return self.inputs.resized(image, grid, box)

    def prompt(self, picture: Picture, question: str) -> Prompt:
        """The chat prompt around the picture's tokens, with the stock model's positions."""
        return self.inputs.prompt(picture, question)

    def encode(self, picture: Picture, realization: Realization | None) -> TokenSet:
        """Visual tokens of a picture: all of them (None), or those a Realization keeps."""
        if realization is None:
            return self.encode_with(encoding.encode_all, picture)
        allocation, config = realization.allocation, realization.config
        if config.prune == "after":
            return encoding.cut(self.encode_with(encoding.encode_all, picture), allocation)
        around = config.surrounding_cells(picture.grid), config.halo
        tokens = self.encode_with(encoding.encode_before, picture, allocation, *around)
        return self.adapted(tokens, realization)

    def encode_with(
        self, encoder: Callable[..., TokenSet], picture: Picture, *rest: Any
    ) -> TokenSet:
        """Run an encoder of `qwen.encoding` on a picture, its other arguments after it."""
        return encoder(self.model.model.visual, picture, *rest)

    def adapted(self, tokens: TokenSet, realization: Realization) -> TokenSet:
        """Kept tokens as the realization's trained adapter corrects them, see `encoding.adapted`."""
        return encoding.adapted(tokens, realization, self.policy(realization.config))
