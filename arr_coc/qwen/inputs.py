"""Inputs: picture and prompt as the stock model takes them: grids, patches, ids, positions.

`Inputs` prepares them with a checkpoint's own processor and tokenizer; geometry is read from its config.
Nothing is encoded here.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize

from arr_coc.clips import Clip
from arr_coc.config import MAX_CLIP_PIXELS, MAX_PICTURES, MAX_PIXELS
from arr_coc.pictures import plain, too_long
from arr_coc.qwen.patching import Geometry, Patcher
from arr_coc.qwen.prompts import Chat, Prompt


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
class Picture:
    """One image at the size at which the stock processor would have it, or a moment of a clip.

    Patches are made when they are asked for: a focused look never needs most of them. A patch shows as
    many frames as the tower's `temporal_patch_size`: of a still one image, as often; of a moment several.

    Attributes:
        image: RGB, its sides whole visual tokens.
        source: the image it was made of, for another pass at another size.
        patcher: makes its patches.
        device: where patches go.
        later: the frames of a moment that follow `image`, of its size. Where a clip ends early, its last
            frame stands for those that are missing.
    """

    image: Image.Image
    source: Image.Image
    patcher: Patcher
    device: torch.device
    later: tuple["Picture", ...] = ()

    @property
    def geometry(self) -> Geometry:
        """The tower's sizes."""
        return self.patcher.geometry

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
        return self._with_later(self.patcher.whole(self.image), [p.patches for p in self.later])

    def units(self, index: Tensor) -> Tensor:
        """Patches of the visual tokens at raster `index` `(K,)`: `(K * merge**2, C)`, in that order.

        Those of a picture whose patches were never asked for are made alone.
        """
        if "patches" in self.__dict__:
            own = self.patches.view(self.tokens, self.geometry.merge**2, -1)
            return own[index.to(self.device)].flatten(0, 1)
        own = self.patcher.tokens(self.image, index.cpu().numpy())
        return self._with_later(own, [p.units(index) for p in self.later])

    def frames(self, side: int | None) -> Tensor:
        """`(F, 3, H, W)` of every frame, as `pixels`, or as `samples` of a side."""
        return torch.cat([p.samples(side) if side else p.pixels() for p in (self, *self.later)])

    def pixels(self) -> Tensor:
        """`(1, 3, H, W)` sRGB in [0, 1], as the model sees it; the first frame of a moment."""
        return self._as_tensor(self.image)

    def samples(self, side: int) -> Tensor:
        """`(1, 3, h * side, w * side)`: as `pixels`, means over equal parts of each token."""
        h, w = self.grid
        pixels, rest = divmod(self.geometry.unit_pixels, side)
        if not rest:  # the same means, two to four times as fast
            return self._as_tensor(self.image.reduce(pixels))
        return self._as_tensor(self.image.resize((w * side, h * side), Image.Resampling.BOX))

    def _as_tensor(self, image: Image.Image) -> Tensor:
        values = torch.from_numpy(np.array(image)).to(self.device)  # (H, W, 3) uint8
        return values.permute(2, 0, 1)[None].float().div_(255)

    def _with_later(self, own: Tensor, later: list[Tensor]) -> Tensor:
        """Patches `(P, C)` of the first frame, with those of the later ones in their places."""
        own = own.to(self.device)
        if not later:
            return own
        slots = own.view(len(own), 3, self.geometry.temporal, -1).clone()
        for slot in range(1, self.geometry.temporal):
            frame = later[min(slot, len(later)) - 1]
            slots[:, :, slot] = frame.view(slots.shape)[:, :, slot]
        return slots.flatten(1)


@dataclass(frozen=True)
class Ask:
    """What a Host call looks at: the picture, and the prompt for it."""

    picture: Picture
    prompt: Prompt

    @property
    def pictures(self) -> tuple[Picture, ...]:
        """The one picture, as `Views` have several."""
        return (self.picture,)

    @property
    def tokens(self) -> int:
        """As `Picture`."""
        return self.picture.tokens


@dataclass(frozen=True)
class Views:
    """Several blocks of visual tokens asked about at once: the moments of a clip, or pictures.

    Attributes:
        pictures: one for each block of the prompt; those of a clip have one size.
        prompt: around them.
        times: seconds at which each moment of a clip was; None of pictures.
        frame_times: of each of its frames, those that a last moment lacks left out.
    """

    pictures: tuple[Picture, ...]
    prompt: Prompt
    times: tuple[float, ...] | None = None
    frame_times: tuple[float, ...] | None = None

    @property
    def tokens(self) -> int:
        """N, the native visual tokens of all of them."""
        return sum(picture.tokens for picture in self.pictures)


class Inputs:
    """Prepares pictures and prompts for one checkpoint, on the device of its weights."""

    def __init__(
        self, model: Any, tokenizer: Any, image_processor: Any, max_pixels: int = MAX_PIXELS
    ) -> None:
        """Take the parts of a checkpoint, as `ARRCOCQwen`; no picture gets more than `max_pixels`."""
        self.model, self.tokenizer, self.image_processor = model, tokenizer, image_processor
        self.max_pixels = max_pixels
        self.geometry = Geometry.of(model)
        self.patcher = Patcher(image_processor, self.geometry)
        self.chat = Chat(model, tokenizer)
        self.image_token = model.config.image_token_id

    def prepare(
        self, image: Image.Image, question: str, grid: tuple[int, int] | None = None
    ) -> Ask:
        """Picture and prompt; `grid` resizes the whole image to so many rows and columns of tokens."""
        picture = self.resized(image, grid) if grid else self.picture(image)
        return Ask(picture, self.prompt(picture, question))

    def prepare_pictures(self, images: Sequence[Image.Image], question: str) -> Views:
        """Several pictures, all of them within `MAX_CLIP_PIXELS`, and the prompt around them.

        Raises:
            ValueError: for none, or more than `MAX_PICTURES`.
        """
        if not 1 <= len(images) <= MAX_PICTURES:
            raise ValueError(f"{len(images)} pictures are given, allowed are 1 to {MAX_PICTURES}")
        most = min(self.max_pixels, MAX_CLIP_PIXELS // len(images))
        seen = map(plain, images)
        pictures = tuple(self._at(image, self.grid_of(image.size, most)) for image in seen)
        grids = [picture.grid for picture in pictures]
        return Views(pictures, self.chat.about_pictures(grids, question))

    def prepare_clip(self, clip: Clip, question: str, grid: tuple[int, int] | None = None) -> Views:
        """The moments of a clip, each of as many frames as a patch shows, and the prompt around them.

        `grid` is rows and columns of each moment's visual tokens; None takes those of a picture, as long as
        the whole clip stays within `MAX_CLIP_PIXELS`.

        Raises:
            ValueError: where the checkpoint has no token or no template for clips.
        """
        together, count = self.geometry.temporal, len(clip.frames)
        starts = range(0, count, together)
        most = min(self.max_pixels, MAX_CLIP_PIXELS // len(starts))
        grid = grid or self.grid_of(clip.frames[0].size, most)
        frames = [self._at(frame, grid) for frame in clip.frames]
        later = [tuple(frames[start + 1 : start + together]) for start in starts]
        moments = tuple(replace(frames[start], later=own) for start, own in zip(starts, later))
        # The stock processor's: the middle between a moment's first frame and its last.
        ends = [min(start + together, count) - 1 for start in starts]
        times = tuple((clip.times[i] + clip.times[j]) / 2 for i, j in zip(starts, ends))
        return Views(moments, self.chat.about_clip(grid, times, question), times, clip.times)

    def picture(self, image: Image.Image) -> Picture:
        """The image, as a person sees it, as the stock processor resizes it, at most `max_pixels`."""
        image = plain(image)
        return self._at(image, self.grid_of(image.size))

    def _at(self, image: Image.Image, grid: tuple[int, int]) -> Picture:
        unit, whole = self.geometry.unit_pixels, plain(image)
        size = grid[1] * unit, grid[0] * unit
        same = size == whole.size  # resizing would give a copy
        return self._picture(
            whole if same else whole.resize(size, self.image_processor.resample), whole
        )

    def grid_of(self, size: tuple[int, int], at_most: int | None = None) -> tuple[int, int]:
        """`(h, w)` in visual tokens of a picture of so many pixels, width and height.

        `at_most` are the pixels that it may take; None is the host's own limit.
        """
        if wrong := too_long(size):
            raise ValueError(f"the picture cannot be asked about: {wrong}")
        limits, unit = self.image_processor.size, self.geometry.unit_pixels
        height, width = smart_resize(
            size[1],
            size[0],
            factor=unit,
            min_pixels=limits["shortest_edge"],
            max_pixels=min(limits["longest_edge"], at_most or self.max_pixels),
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
        unit, image = self.geometry.unit_pixels, plain(image)
        small = image.resize((columns * unit, rows * unit), Image.Resampling.BICUBIC, box)
        return self._picture(small, image)

    def shrunk(self, picture: Picture, grid: tuple[int, int]) -> Picture:
        """A picture made anew of its source as `grid` visual tokens, every frame of it."""
        later = tuple(self.resized(p.source, grid) for p in picture.later)
        return replace(self.resized(picture.source, grid), later=later)

    def _picture(self, sized: Image.Image, source: Image.Image) -> Picture:
        return Picture(sized, source, self.patcher, self.model.device)

    def prompt(self, picture: Picture, question: str) -> Prompt:
        """The chat prompt around the picture's tokens, with the stock model's positions."""
        return self.chat.about_pictures([picture.grid], question)

    def ids(self, text: str) -> Tensor:
        """As `Chat.ids`."""
        return self.chat.ids(text)
