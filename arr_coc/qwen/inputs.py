"""Inputs: picture and prompt as the stock model takes them: grids, patches, ids, positions.

`Inputs` prepares them with a checkpoint's own processor and tokenizer; geometry is read from its config.
Nothing is encoded here.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize

from arr_coc.config import MAX_PIXELS


def glance_grid(grid: tuple[int, int], tokens: int) -> tuple[int, int]:
    """As `small_grid`, with both sides rounded down, as a processor does.

    Not `small_grid`, which fills more of a budget: the published weights were trained on glances of
    these sizes.
    """
    h, w = grid
    scale = (tokens / (h * w)) ** 0.5
    rows, columns = max(1, int(h * scale)), max(1, int(w * scale))
    # A side shorter than one token is one all the same, and the other then has to give way.
    return min(rows, tokens // columns or 1), min(columns, tokens // rows or 1)


def raster_places(grid: tuple[int, int], device: torch.device | None = None) -> Tensor:
    """`(h * w, 2)` float32 row and column of every token of a grid, in raster order."""
    index = torch.arange(grid[0] * grid[1], device=device)
    return torch.stack([index // grid[1], index % grid[1]], 1).float()


def native_places(
    places: Tensor,
    grid: tuple[int, int],
    covered: tuple[int, int],
    corner: tuple[int, int] = (0, 0),
) -> Tensor:
    """Where tokens of a picture of another size stand in the native one: at the centres of what they cover.

    Args:
        places: `(K, 2)` row and column in tokens of the other picture.
        grid: `(h, w)` of that picture.
        covered: rows and columns of native tokens that it shows.
        corner: the first row and column of those.

    Returns:
        `(K, 2)` in native tokens.
    """
    ratio = places.new_tensor(covered) / places.new_tensor(grid)
    # The centre of token i lies half a token after its place, in either picture.
    return places.new_tensor(corner) + (places + 0.5) * ratio - 0.5


@dataclass(frozen=True)
class Geometry:
    """Sizes of the vision tower's input, read from its config."""

    patch: int
    merge: int
    temporal: int

    @classmethod
    def of(cls, model: Any) -> "Geometry":
        """The geometry of a Qwen3-VL checkpoint."""
        vision = model.config.vision_config
        return cls(vision.patch_size, vision.spatial_merge_size, vision.temporal_patch_size)

    @property
    def unit_pixels(self) -> int:
        """Pixels on one side of a visual token."""
        return self.patch * self.merge


@dataclass(frozen=True)
class Picture:
    """One image at the size at which the stock processor would have it.

    Patches are made when they are asked for: a focused look never needs most of them.

    Attributes:
        image: RGB, its sides whole visual tokens.
        source: the image it was made of, for another pass at another size.
        geometry: the tower's sizes.
        processor: the checkpoint's `Qwen2VLImageProcessorPil`.
        device: where patches go.
    """

    image: Image.Image
    source: Image.Image
    geometry: Geometry
    processor: Any
    device: torch.device

    @property
    def grid(self) -> tuple[int, int]:
        """`(h, w)` in visual tokens."""
        width, height = self.image.size
        return height // self.geometry.unit_pixels, width // self.geometry.unit_pixels

    @property
    def patch_grid(self) -> tuple[int, int]:
        """Rows and columns of patches."""
        h, w = self.grid
        return h * self.geometry.merge, w * self.geometry.merge

    @property
    def tokens(self) -> int:
        """N, the image's visual tokens."""
        return self.grid[0] * self.grid[1]

    @property
    def grid_thw(self) -> Tensor:
        """`(1, 3)` int64, (1, patch rows, patch columns), as the stock model takes it."""
        return torch.tensor([[1, *self.patch_grid]], device=self.device)

    @cached_property
    def patches(self) -> Tensor:
        """`(P, 3 * temporal * patch * patch)` float32, normalised, in block order: all of them."""
        return self._processed(self.image)

    def units(self, index: Tensor) -> Tensor:
        """Patches of the visual tokens at raster `index` `(K,)`: `(K * merge**2, C)`, in that order.

        Those of a picture whose patches were never asked for are made alone, by the stock processor.
        """
        unit, (h, w) = self.geometry.unit_pixels, self.grid
        if "patches" in self.__dict__ or not len(index):
            own = self.patches.view(h * w, self.geometry.merge**2, -1)
            return own[index.to(self.device)].flatten(0, 1)
        cells = (
            np.asarray(self.image).reshape(h, unit, w, unit, 3).swapaxes(1, 2)
        )  # (h, w, u, u, 3)
        kept = cells[index.cpu() // w, index.cpu() % w]  # (K, u, u, 3)
        # Side by side they are a picture one token high, whose patches are in the same order.
        return self._processed(Image.fromarray(kept.swapaxes(0, 1).reshape(unit, -1, 3)))

    def pixels(self) -> Tensor:
        """`(1, 3, H, W)` sRGB in [0, 1], as the model sees it."""
        return self._as_tensor(self.image)

    def samples(self, side: int) -> Tensor:
        """`(1, 3, h * side, w * side)` sRGB in [0, 1]: means over equal parts of each token."""
        h, w = self.grid
        small = self.image.resize((w * side, h * side), Image.Resampling.BOX)
        return self._as_tensor(small)

    def _as_tensor(self, image: Image.Image) -> Tensor:
        values = torch.from_numpy(np.array(image)).to(self.device)  # (H, W, 3) uint8
        return values.permute(2, 0, 1)[None].float() / 255

    def _processed(self, image: Image.Image) -> Tensor:
        batch = self.processor(images=image, return_tensors="pt", do_resize=False)
        return batch["pixel_values"].to(self.device)


@dataclass(frozen=True)
class Prompt:
    """A chat prompt with one image, in token ids, and native M-RoPE positions.

    Attributes:
        prefix: `(1, A)` ids before the visual tokens, `<|vision_start|>` included.
        suffix: `(1, Z)` ids after them, from `<|vision_end|>` on.
        positions: `(3, 1, A + N + Z)` int64 native positions of the stock model.
        image_token: id of the visual placeholder.
    """

    prefix: Tensor
    suffix: Tensor
    positions: Tensor
    image_token: int

    @property
    def origin(self) -> int:
        """Position of the image's first token, from which its rows and columns count."""
        return int(self.positions[0, 0, self.prefix.shape[1]])

    def ids(self, visual_tokens: int) -> Tensor:
        """`(1, A + K + Z)` ids with K placeholders."""
        pads = self.prefix.new_full((1, visual_tokens), self.image_token)
        return torch.cat([self.prefix, pads, self.suffix], 1)

    def position_ids(self, places: Tensor) -> Tensor:
        """`(4, 1, A + K + Z)` for K visual tokens at `places` `(K, 2)` in native tokens.

        A contiguous text row on top of the native positions of what is kept. int64 where every place
        is whole, so that the stock values are met; float32 otherwise (bfloat16 cannot hold 257.5).
        """
        # M-RoPE counts time, row and column from the image's first token; a still has one time. The
        # rotary embedding computes in float32, so a coarse cell may stand between two rows.
        spatial = places.t() + self.origin  # (2, K)
        visual = torch.cat([torch.full_like(spatial[:1], self.origin), spatial])[
            :, None
        ]  # (3, 1, K)
        if bool((visual == visual.round()).all()):
            visual = visual.long()
        # What follows the image keeps its native positions, however few visual tokens are left.
        A, Z = self.prefix.shape[1], self.suffix.shape[1]
        before, after = self.positions[:, :, :A], self.positions[:, :, -Z:]
        kept = torch.cat([before.to(visual.dtype), visual, after.to(visual.dtype)], 2)
        # The fourth row is for masks alone: gaps in it would be read as packed sequences.
        text = torch.arange(kept.shape[2], device=kept.device, dtype=kept.dtype)
        return torch.cat([text[None, None], kept], 0)


@dataclass(frozen=True)
class Ask:
    """What a Host call looks at: the picture, and the prompt for it."""

    picture: Picture
    prompt: Prompt


class Inputs:
    """Prepares pictures and prompts for one checkpoint, on the device of its weights."""

    def __init__(
        self, model: Any, tokenizer: Any, image_processor: Any, max_pixels: int = MAX_PIXELS
    ) -> None:
        """Take the parts of a checkpoint, as `ARRCOCQwen`; no picture gets more than `max_pixels`."""
        self.model, self.tokenizer, self.image_processor = model, tokenizer, image_processor
        self.max_pixels = max_pixels
        self.geometry = Geometry.of(model)
        self.image_token = model.config.image_token_id

    def prepare(
        self, image: Image.Image, question: str, grid: tuple[int, int] | None = None
    ) -> Ask:
        """Picture and prompt; `grid` resizes the whole image to so many rows and columns of tokens."""
        picture = self.resized(image, grid) if grid else self.picture(image)
        return Ask(picture, self.prompt(picture, question))

    def picture(self, image: Image.Image) -> Picture:
        """The image as the stock processor resizes it, at most `max_pixels`."""
        h, w = self.grid_of(image.size)
        unit, whole = self.geometry.unit_pixels, image.convert("RGB")
        sized = whole.resize((w * unit, h * unit), self.image_processor.resample)
        return self._picture(sized, whole)

    def grid_of(self, size: tuple[int, int]) -> tuple[int, int]:
        """`(h, w)` in visual tokens of a picture of so many pixels, width and height."""
        limits, unit = self.image_processor.size, self.geometry.unit_pixels
        height, width = smart_resize(
            size[1],
            size[0],
            factor=unit,
            min_pixels=limits["shortest_edge"],
            max_pixels=min(limits["longest_edge"], self.max_pixels),
        )
        return height // unit, width // unit

    def resized(
        self,
        image: Image.Image,
        grid: tuple[int, int],
        box: tuple[float, float, float, float] | None = None,
    ) -> Picture:
        """The image, or a box (left, top, right, bottom) of its pixels, as `grid` visual tokens.

        Smaller pictures than the processor's floor can be made so.
        """
        rows, columns = grid
        unit = self.geometry.unit_pixels
        small = image.resize((columns * unit, rows * unit), Image.Resampling.BICUBIC, box)
        return self._picture(small, image)

    def _picture(self, sized: Image.Image, source: Image.Image) -> Picture:
        return Picture(sized, source, self.geometry, self.image_processor, self.model.device)

    def prompt(self, picture: Picture, question: str) -> Prompt:
        """The chat prompt around the picture's tokens, with the stock model's positions."""
        content = [{"type": "image"}, {"type": "text", "text": question}]
        text = self.tokenizer.apply_chat_template(
            [{"role": "user", "content": content}], tokenize=False, add_generation_prompt=True
        )
        before, after = text.split(self.tokenizer.decode([self.image_token]))
        prefix, suffix = self.ids(before), self.ids(after)
        pads = prefix.new_full((1, picture.tokens), self.image_token)
        ids = torch.cat([prefix, pads, suffix], 1)
        positions, _ = self.model.model.get_rope_index(
            ids, (ids == self.image_token).int(), image_grid_thw=picture.grid_thw
        )
        return Prompt(prefix, suffix, positions, self.image_token)

    def ids(self, text: str) -> Tensor:
        """`(1, L)` token ids of a text, without special tokens around it."""
        ids = self.tokenizer(text, add_special_tokens=False, return_tensors="pt").input_ids
        return ids.to(self.model.device)
