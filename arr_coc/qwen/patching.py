"""Patching: pixels as the vision tower takes them, of a whole picture or of some of its visual tokens.

Of a whole picture the stock processor makes them. What it makes of a pixel depends on that pixel alone: of
some tokens they are read from a table of what it makes of every byte, the same to the last bit.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

BYTES = 256
COLOURS = 3


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
class Patcher:
    """Makes patches, each as often as the tower has frames, in block order.

    Attributes:
        processor: the checkpoint's `Qwen2VLImageProcessorPil`.
        geometry: the tower's sizes.
    """

    processor: Any
    geometry: Geometry

    def whole(self, image: Image.Image) -> Tensor:
        """`(P, 3 * temporal * patch * patch)` float32 of an image whose sides are whole visual tokens."""
        batch = self.processor(images=image, return_tensors="pt", do_resize=False)
        return batch["pixel_values"]

    def tokens(self, image: Image.Image, index: np.ndarray) -> Tensor:
        """Those of the visual tokens at raster `index` `(K,)`, in its order: `(K * merge**2, C)`."""
        m, p, unit = self.geometry.merge, self.geometry.patch, self.geometry.unit_pixels
        h, w = image.height // unit, image.width // unit
        cells = np.asarray(image).reshape(h, unit, w, unit, COLOURS).swapaxes(1, 2)
        kept = cells[index // w, index % w]  # (K, unit, unit, 3)
        pixels = kept.reshape(-1, m, p, m, p, COLOURS).transpose(0, 1, 3, 5, 2, 4)
        patches = np.empty((len(kept), m, m, COLOURS, self.geometry.temporal, p, p), np.float32)
        for colour, values in enumerate(self.table):
            patches[:, :, :, colour] = values.take(pixels[:, :, :, colour])[:, :, :, None]
        return torch.from_numpy(patches).flatten(0, 2).flatten(1)

    @cached_property
    def table(self) -> np.ndarray:
        """`(3, 256)` float32: what the processor makes of each byte of each colour."""
        m, p, unit = self.geometry.merge, self.geometry.patch, self.geometry.unit_pixels
        units = math.ceil(BYTES / unit**2)  # side by side, so that there is room for all of them
        ramp = (np.arange(units * unit**2) % BYTES).astype(np.uint8).reshape(unit, -1)
        patches = self.whole(Image.fromarray(np.repeat(ramp[:, :, None], COLOURS, 2))).numpy()
        planes = patches.reshape(units, m, m, COLOURS, self.geometry.temporal, p, p)[:, :, :, :, 0]
        made = planes.transpose(3, 1, 4, 0, 2, 5).reshape(COLOURS, -1)  # in the ramp's order
        return np.ascontiguousarray(made[:, :BYTES])
