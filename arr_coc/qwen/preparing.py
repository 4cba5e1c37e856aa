"""Preparing: pictures, clips and the prompts around them, as a host's inputs make them; no model runs."""

from collections.abc import Sequence

from PIL import Image
from torch import Tensor

from arr_coc.clips import Clip
from arr_coc.qwen.inputs import Ask, Inputs, Picture, Views
from arr_coc.qwen.prompts import Prompt

Given = Image.Image | Clip | Sequence[Image.Image]  # what a question is about


class Preparing:
    """What a host says of what it was given, and makes of it, with its `inputs`."""

    inputs: Inputs

    def prepare(
        self, image: Given, question: str, grid: tuple[int, int] | None = None
    ) -> Ask | Views:
        """Picture and prompt, as `Inputs.prepare`; of a clip, or of several pictures, `Views`.

        Raises:
            ValueError: for what is no picture, none or too many of them, a clip that the base cannot be
                asked about, or a `grid` for several pictures.
        """
        if isinstance(image, Image.Image):
            return self.inputs.prepare(image, question, grid)
        if isinstance(image, Clip):
            return self.inputs.prepare_clip(image, question, grid)
        several = image if isinstance(image, list | tuple) else [image]
        for one in several:
            if not isinstance(one, Image.Image):
                words = " ".join(repr(one).split())[:60]
                raise ValueError(
                    f"{words} is of type {type(one).__name__}, expected a PIL image (as "
                    "Image.open gives it), a clips.Clip, or a list of images"
                )
        if grid is not None:
            raise ValueError(f"grid is {grid} for several pictures, expected none")
        return self.inputs.prepare_pictures(image, question)

    def prepare_each(self, images: Sequence[Image.Image], questions: Sequence[str]) -> list[Ask]:
        """Each picture with its question; an image that comes several times is prepared once."""
        once = {id(image): image for image in images}
        pictures = {key: self.picture(image) for key, image in once.items()}
        asked = [(pictures[id(image)], text) for image, text in zip(images, questions, strict=True)]
        return [Ask(picture, self.prompt(picture, text)) for picture, text in asked]

    def picture(self, image: Image.Image) -> Picture:
        """The image as the stock processor prepares it, at most `max_pixels`."""
        return self.inputs.picture(image)

    def shrunk(self, picture: Picture, grid: tuple[int, int]) -> Picture:
        """A picture, every frame of it, as `grid` visual tokens; see `Inputs.shrunk`."""
        return self.inputs.shrunk(picture, grid)

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

    # --- what `realizing.Host` and `temporal.ViewsHost` ask ---

    def grid(self, image: Ask) -> tuple[int, int]:
        """`(h, w)` visual tokens of a prepared image."""
        return image.picture.grid

    def pixels(self, image: Ask, side: int | None = None) -> Tensor:
        """`(1, 3, H, W)` sRGB in [0, 1]: every pixel, or `side` samples a side of each token."""
        return image.picture.samples(side) if side else image.picture.pixels()

    def grids(self, views: Views) -> list[tuple[int, int]]:
        """`(h, w)` visual tokens of each moment or picture."""
        return [picture.grid for picture in views.pictures]

    def seconds(self, views: Views) -> tuple[float, ...] | None:
        """When each moment of a clip was; None of pictures."""
        return views.times

    def frames(self, views: Views, side: int | None = None) -> list[Tensor]:
        """`(F, 3, H, W)` of each, as `pixels`."""
        return [picture.frames(side) for picture in views.pictures]
