"""Reducers that decide before the encoder has run: controls, downsampling, PixelPrune, ViCrop."""

import zlib
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from arr_coc import attending
from arr_coc.config import small_grid
from arr_coc.peers import selection
from arr_coc.peers.base import Call, Peer, Reduced, SharedEncodes
from arr_coc.qwen import inputs
from arr_coc.qwen.encoding import joined
from arr_coc.qwen.inputs import Ask, Picture
from arr_coc.qwen.model import ARRCOCQwen


class Stock(Peer):
    """Every token, whatever the budget: the model as it is."""

    name = "stock"
    reads_question = False

    def __call__(
        self,
        host: ARRCOCQwen,
        ask: Ask,
        question: str,
        budget: int,
        encodes: SharedEncodes | None = None,
    ) -> Reduced:
        """As `Peer`, and the budget is ignored."""
        return super().__call__(host, ask, question, ask.picture.tokens, encodes)

    def reduce(self, call: Call) -> Reduced:
        """All N tokens."""
        return call.reduced(call.encode_all(), torch.arange(call.budget))


class Control(Peer):
    """A baseline that chooses native places without looking.

    "before" the encoder, it sees the kept places alone. "after" it, a kept token carries something of the
    dropped ones, and costs the whole encode. "around" is before it, with the halo and the surroundings
    that ARR-COC shows the encoder besides: what then differs from ARR-COC is the choice of places alone.
    """

    def __init__(self, prune: str = "before") -> None:
        """`prune` is "before", "around" or "after"; the names of the latter two end in it."""
        if prune not in ("before", "around", "after"):
            raise ValueError(f"prune is {prune!r}, expected before, around or after")
        self.prune = prune
        if prune != "before":
            self.name = f"{self.name}-{prune}"

    def reduce(self, call: Call) -> Reduced:
        """Choose and encode, or the other way round."""
        with call.timed("select"):
            index = self.choose(call)
        if self.prune != "after":
            return call.reduced(call.encode_before(index, self.prune == "around"), index)
        everything = call.encode_all()
        with call.timed("select"):
            return call.reduced(call.cut(everything, index), index)

    def choose(self, call: Call) -> Tensor:
        """`(budget,)` raster indices in ascending order."""
        raise NotImplementedError


class Random(Control):
    """Places at random, seeded by the picture and the question; a larger budget adds to a smaller."""

    name = "random"

    def choose(self, call: Call) -> Tensor:
        """The first places of a shuffle."""
        picture = call.ask.picture
        seed = zlib.crc32(call.question.encode(), zlib.crc32(picture.source.tobytes()))
        shuffle = torch.randperm(picture.tokens, generator=torch.Generator().manual_seed(seed))
        return shuffle[: call.budget].sort().values


class Uniform(Control):
    """Places spread evenly (`attending.uniform`)."""

    name = "uniform"
    reads_question = False

    def choose(self, call: Call) -> Tensor:
        """An even sub-grid, filled up."""
        return attending.uniform(call.ask.picture.grid, call.budget).native_index()


class Centre(Control):
    """The places nearest to the centre."""

    name = "centre"
    reads_question = False

    def choose(self, call: Call) -> Tensor:
        """An ellipse of the grid's aspect."""
        return selection.best(selection.central(call.ask.picture.grid).flatten(), call.budget)


class Downsample(Peer):
    """The stock model on the image resized to fit the budget, below the processor's floor too.

    Positions are those of the small image's own prompt. The size fills the budget as far as whole
    rows and columns of nearly the same aspect can.
    """

    name = "downsample"
    resizes = True

    def reduce(self, call: Call) -> Reduced:
        """Resize from the source image, then encode all."""
        picture = call.ask.picture
        grid = small_grid(picture.grid, call.budget)
        if grid == picture.grid:
            return call.reduced(call.encode_all(), torch.arange(picture.tokens))
        with call.timed("select"):
            small = call.host.resized(picture.source, grid)
            prompt = call.host.prompt(small, call.question)
        with call.timed("encode"):
            tokens = call.host.encode(small, None)
        return Reduced(tokens, torch.zeros(picture.grid), prompt, call.seconds)


class PixelPrune(Peer):
    """PixelPrune (2604.00886): drops what its neighbours predict, whatever is asked.

    Positions are kept; tau is searched per budget (`selection.pixelprune_select`). The score is
    the residual of that prediction.
    """

    name = "pixelprune"
    reads_question = False

    def reduce(self, call: Call) -> Reduced:
        """Predict pixels, encode what was not predicted."""
        picture = call.ask.picture
        with call.timed("select"):
            unit = picture.geometry.unit_pixels
            pixels = picture.pixels()[0] * 255
            cells = pixels.unfold(1, unit, unit).unfold(2, unit, unit)  # (3, h, w, u, u)
            units = cells.permute(1, 2, 0, 3, 4).flatten(2)  # (h, w, 3 * u * u)
            index, residual = selection.pixelprune_select(units, call.budget)
        # The first unit is kept whatever it shows.
        score = residual.masked_fill(residual.isinf(), 0)
        return call.reduced(call.encode_before(index), index, score)


class ViCrop(Peer):
    """ViCrop, "MLLMs know where to look" (Zhang et al. 2025): a glance, then one crop.

    The whole picture, shrunk to half of the budget, and the crop are two images of one prompt, as there,
    each with positions of its own. The pass that reads the attention is one more, as there. Windows begin
    at the size that fits at native resolution and grow to twice its sides. Attention is that of the
    answering token in the text model's middle layers; `relative` divides it by the attention under a
    general instruction (the paper's rel-att), for one more glance.
    """

    name = "vicrop"
    minimum = 2
    resizes = True
    GENERAL = "Write a general description of the image."

    def __init__(self, relative: bool = False) -> None:
        """The name of the relative variant is "vicrop-relative"."""
        self.relative = relative
        if relative:
            self.name = "vicrop-relative"

    def reduce(self, call: Call) -> Reduced:
        """Glance, choose the window, encode it."""
        host, picture = call.host, call.ask.picture
        with call.timed("glance"):
            glance = host.glance(call.ask, call.question, call.budget // 2)
            attention = glance.attention
            if self.relative:
                general = replace(call.ask, prompt=host.prompt(picture, self.GENERAL))
                usual = host.glance(general, self.GENERAL, call.budget // 2).attention
                attention = attention / usual.clamp(min=1e-12)
        with call.timed("select"):
            score = F.interpolate(attention[None].float(), picture.grid, mode="bilinear")[0, 0]
            room = call.budget - glance.tokens
            base = small_grid(picture.grid, room)
            window = selection.crop_window(score, base)
            rows, columns = window[2] - window[0], window[3] - window[1]
            grid = small_grid((rows, columns), min(room, rows * columns))
            crop = host.resized(picture.source, grid, self.box(picture, window))
        with call.timed("encode"):
            close = host.encode(crop, None)
        small = tuple(glance.attention.shape[-2:])
        overview = glance.state.tokens
        overview = replace(overview, places=inputs.raster_places(small, overview.places.device))
        index = torch.arange(picture.tokens).view(picture.grid)
        inside = index[window[0] : window[2], window[1] : window[3]].flatten()
        shown = (
            inside if grid == (rows, columns) else inside[:0]
        )  # a shrunk crop shows none natively
        blocks = (overview, close)
        prompt = host.inputs.chat.about_pictures([small, grid], call.question)
        return replace(call.reduced(joined(blocks), shown, score), prompt=prompt, blocks=blocks)

    @staticmethod
    def box(
        picture: Picture, window: tuple[int, int, int, int]
    ) -> tuple[float, float, float, float]:
        """A window in native tokens as left, top, right, bottom in pixels of the source."""
        (h, w), (width, height) = picture.grid, picture.source.size
        top, left, bottom, right = window
        return left * width / w, top * height / h, right * width / w, bottom * height / h
