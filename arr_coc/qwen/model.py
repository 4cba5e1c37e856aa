"""ARRCOCQwen: stock Qwen3-VL and ARR-COC on the same weights in memory, streamed and measured.

    model = ARRCOCQwen.from_pretrained("Qwen/Qwen3-VL-2B-Instruct")
    answer = model.generate(image, "What number is on the small sign?")

Implements the Realizer's `Host` on any Qwen3-VL checkpoint. Only public arguments of the stock model
are used: nothing is patched, and a stock call gives the same before and after an ARR-COC call.
Decoding is greedy, so that two answers differ by what was seen and not by chance.
"""

import copy
import logging
import math
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor
from transformers import DynamicCache

from arr_coc.components import Components
from arr_coc.config import NO_REVISION, Config
from arr_coc.qwen import encoding, glance, loading, weights
from arr_coc.qwen.answer import Answer, Run, without_state
from arr_coc.qwen.encoding import TokenSet
from arr_coc.qwen.inputs import Ask, Geometry, Picture, Prompt
from arr_coc.realizing import Glance, Realization, Realizer

log = logging.getLogger(__name__)

# 1,048,576 pixels are 1024 visual tokens; Qwen3-VL's own processor would allow 16,384 (DESIGN).
MAX_PIXELS = 1024 * 1024
MAX_NEW_TOKENS = 1024


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
        is_bundled: bool = False,
        max_pixels: int = MAX_PIXELS,
    ) -> None:
        """Wrap loaded parts: `Qwen3VLForConditionalGeneration`, tokenizer, `Qwen2VLImageProcessorPil`.

        `policies` are trained components by revision; the first serves where none is named.
        `max_pixels` caps every image, below what the processor itself would allow.
        """
        self.max_pixels = max_pixels
        self.model, self.tokenizer, self.image_processor = model.eval(), tokenizer, image_processor
        self.name, self.is_bundled, self.policies = name, is_bundled, policies or {}
        vision = model.config.vision_config
        self.geometry = Geometry(
            vision.patch_size,
            vision.spatial_merge_size,
            vision.temporal_patch_size,
            tuple(image_processor.image_mean),
            tuple(image_processor.image_std),
        )
        depth = model.config.text_config.num_hidden_layers
        self.attention_layers = glance.layers_in(glance.ATTENTION_SPAN, depth)
        self.all_layers = list(range(depth))
        # rope_deltas is state of the stock model, and one model serves every caller.
        self.lock = threading.RLock()

    @classmethod
    def from_pretrained(
        cls,
        base: str | Path | None = None,
        components: str | Path | None = None,
        revision: str | None = None,
        *,
        device: str | torch.device | None = None,
        dtype: torch.dtype | None = None,
    ) -> "ARRCOCQwen":
        """Load a Qwen3-VL checkpoint, and ARR-COC weights where `components` names them.

        Args:
            base: Hub id or local folder; None takes `ARR_COC_BASE`, else `default_base()`.
            components: Hub id or folder of ARR-COC weights; None takes `weights.default_weights`,
                and "" is training-free, without a network call.
            revision: of `components` on the Hub; None loads each of `ARR_COC_REVISIONS`, the first
                of them being the default, or else the latest.
            device: None takes CUDA where there is one.
            dtype: None takes bfloat16 where the GPU has it, float16 on older ones, float32 on CPU.

        Raises:
            ValueError: for a missing folder, a base that is not Qwen3-VL, weights for another base.
        """
        parts = loading.load_base(base, device=device, dtype=dtype)
        identity = weights.identity(parts.model)
        if components is None:
            components = weights.default_weights(parts.is_bundled)
        policies = {}
        for name in [revision] if revision else weights.revisions() or [None]:
            policy = weights.load_components(components, name, base=parts.name, **identity)
            if policy is not None:
                policies[name or "default"] = policy.to(parts.model.device)
        return cls(
            parts.model,
            parts.tokenizer,
            parts.image_processor,
            name=parts.name,
            policies=policies,
            is_bundled=parts.is_bundled,
        )

    def identity(self) -> dict[str, Any]:
        """What ARR-COC weights for this base must match, as `weights.load_components` takes it."""
        return weights.identity(self.model)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.model.device

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

    def with_policies(self, policies: dict[str, Components]) -> "ARRCOCQwen":
        """The same model in memory with other trained components; this host keeps its own."""
        other = copy.copy(self)
        other.policies = policies
        return other

    # --- the Host protocol: what the Realizer asks for ---

    def grid(self, image: Ask) -> tuple[int, int]:
        """`(h, w)` visual tokens of a prepared image."""
        return image.picture.grid

    def pixels(self, image: Ask) -> Tensor:
        """`(1, 3, H, W)` sRGB in [0, 1]."""
        return image.picture.pixels()

    def embed(self, question: str) -> Tensor:
        """`(1, D)` mean of the question tokens' embeddings; template and specials left out."""
        ids = self.tokenizer(question, add_special_tokens=False, return_tensors="pt").input_ids
        return self.model.get_input_embeddings()(ids.to(self.device)).float().mean(1)

    def glance(
        self, image: Ask, question: str, tokens: int, layers: list[int] | None = None
    ) -> Glance:
        """A low-resolution pass through the whole model; its cache is kept without the question.

        `layers` are text layers to read in place of `attention_layers`.
        """
        return glance.take_glance(self, image, tokens, layers)

    # --- answers ---

    def generate(
        self, image: Image.Image, question: str, use_arr_coc: bool = True, **options
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
        max_new_tokens: int = 32,
        deadline_s: float = 60.0,
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
        if not 1 <= max_new_tokens <= MAX_NEW_TOKENS:
            raise ValueError(
                f"max_new_tokens is {max_new_tokens}, allowed is 1 to {MAX_NEW_TOKENS}"
            )
        if not question.strip():
            raise ValueError("the question is empty, expected at least one word")
        spending = (config or Config()) if use_arr_coc else None
        run = Run(self, image, question, spending, max_new_tokens, deadline_s, grid)
        yield from run.snapshots()

    def visualize_relevance(
        self, image: Image.Image, question: str, config: Config | None = None
    ) -> dict[str, Image.Image]:
        """Pictures of one decision, without answering: overlay, kept cells and the maps, by name."""
        from arr_coc.homunculus import realization_pictures

        return realization_pictures(image, self.realize(image, question, config or Config()))

    def realize(self, image: Image.Image, question: str, config: Config = Config()) -> Realization:
        """Decide where the tokens go, without answering."""
        with self.lock, torch.inference_mode():
            ask = self.prepare(image, question)
            return without_state(Realizer(self, self.policy(config)).realize(ask, question, config))

    def warm_up(self) -> None:
        """One short answer of each kind, so that the first visitor does not pay for lazy set-up."""
        grey = Image.new("RGB", (256, 256), (128, 128, 128))
        for use_arr_coc in (False, True):
            self.generate(grey, "what is this?", use_arr_coc, max_new_tokens=2)

    # --- parts ---

    def prepare(
        self, image: Image.Image, question: str, grid: tuple[int, int] | None = None
    ) -> Ask:
        """Run the stock processor and lay out the prompt; `grid` as in `stream`."""
        picture = self.resized(image, grid) if grid else self.picture(image)
        return Ask(picture, self.prompt(picture, question))

    def picture(self, image: Image.Image) -> Picture:
        """The image as the stock processor prepares it, at most `max_pixels`."""
        size = self.image_processor.size
        longest = min(size["longest_edge"], self.max_pixels)
        return self._process(image, size={**dict(size), "longest_edge": longest})

    def small_picture(self, image: Image.Image, grid: tuple[int, int], tokens: int) -> Picture:
        """The image shrunk below the processor's floor, to at most `tokens` of the same aspect."""
        h, w = grid
        scale = (tokens / (h * w)) ** 0.5
        rows, columns = max(1, int(h * scale)), max(1, int(w * scale))
        rows, columns = min(rows, tokens // columns or 1), min(columns, tokens // rows or 1)
        return self.resized(image, (rows, columns))

    def resized(
        self,
        image: Image.Image,
        grid: tuple[int, int],
        box: tuple[float, float, float, float] | None = None,
    ) -> Picture:
        """The image, or a box (left, top, right, bottom) of its pixels, as `grid` visual tokens."""
        rows, columns = grid
        unit = self.geometry.unit_pixels
        small = image.resize((columns * unit, rows * unit), Image.Resampling.BICUBIC, box)
        return self._process(small, do_resize=False, source=image)

    def _process(self, image: Image.Image, source: Image.Image | None = None, **options) -> Picture:
        batch = self.image_processor(images=image, return_tensors="pt", **options)
        picture = Picture(
            batch["pixel_values"], batch["image_grid_thw"], self.geometry, source or image
        )
        return picture.to(self.device)

    def prompt(self, picture: Picture, question: str) -> Prompt:
        """The chat prompt around the picture's tokens, with the stock model's positions."""
        content = [{"type": "image"}, {"type": "text", "text": question}]
        text = self.tokenizer.apply_chat_template(
            [{"role": "user", "content": content}], tokenize=False, add_generation_prompt=True
        )
        placeholder = self.tokenizer.decode([self.model.config.image_token_id])
        before, after = text.split(placeholder)
        prefix = self.tokenizer(before, add_special_tokens=False, return_tensors="pt").input_ids
        suffix = self.tokenizer(after, add_special_tokens=False, return_tensors="pt").input_ids
        prefix, suffix = prefix.to(self.device), suffix.to(self.device)
        image_token = self.model.config.image_token_id
        pads = prefix.new_full((1, picture.tokens), image_token)
        ids = torch.cat([prefix, pads, suffix], 1)
        positions, _ = self.model.model.get_rope_index(
            ids, (ids == image_token).int(), image_grid_thw=picture.grid_thw
        )
        return Prompt(prefix, suffix, positions, image_token)

    def encode(self, picture: Picture, realization: Realization | None) -> TokenSet:
        """Visual tokens of a picture: all of them (None), or those a Realization keeps."""
        if realization is None:
            return self.encode_with(encoding.encode_all, picture)
        allocation, config = realization.allocation, realization.config
        if config.prune == "before":
            around = config.surrounding_cells(picture.grid), config.halo
            tokens = self.encode_with(encoding.encode_before, picture, allocation, *around)
            return self.adapted(tokens, realization)
        return encoding.cut(self.encode_with(encoding.encode_all, picture), allocation)

    def adapted(self, tokens: TokenSet, realization: Realization) -> TokenSet:
        """Kept tokens as the realization's trained adapter corrects them; the same without one.

        Training shows it native tokens alone: it neither corrects coarser ones nor sees them.
        """
        components, allocation = self.policy(realization.config), realization.allocation
        fine = (allocation.cells[:, 0] == 0).nonzero()[:, 0].to(tokens.features.device)
        if components is None or components.adapter is None or not len(fine):
            return tokens
        planes, look = [tokens.features, *tokens.deepstack], realization.glance
        # A realization that was put away has no state of its look: then nothing is glanced.
        glanced = look.state.tokens if look and look.state else None
        seen = ([glanced.features, *glanced.deepstack], glanced.places) if glanced else None
        share = len(fine) / math.prod(allocation.grid)
        given = [plane[fine] for plane in planes], tokens.places[fine]
        adapted = components.adapt(*given, seen, share)
        features, *deepstack = (
            plane.index_copy(0, fine, now) for plane, now in zip(planes, adapted)
        )
        return TokenSet(features, tuple(deepstack), tokens.places)

    def encode_with(self, encoder, picture: Picture, *rest) -> TokenSet:
        """Run an encoder of `qwen.encoding` on a picture, its other arguments after it.

        In float16 an overflow moves the vision tower to float32, once for all.
        """
        visual = self.model.model.visual
        tokens = encoder(visual, picture, *rest)
        if visual.dtype == torch.float16 and not tokens.features.isfinite().all():
            log.warning("the float16 vision tower overflowed; it runs in float32 from now on")
            visual.float()
            tokens = encoder(visual, picture, *rest)
        return tokens

    def new_cache(self) -> DynamicCache:
        """An empty KV cache of the text model's shape."""
        return DynamicCache(config=self.model.config.get_text_config())

    def synchronize(self) -> None:
        """Wait for the device, so that a clock read afterwards is true."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
