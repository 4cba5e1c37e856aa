"""API: the endpoints that a program calls, typed; their docstrings are what it reads of them.

Arguments are checked where the page's are, by `comparing.check`. The framework wants every argument of a
call by place, so that `compare` and `relevance` can never have another one: whatever else may be set goes
by name, to `compare_with` and `relevance_with`.
"""

from typing import Any

from gradio.data_classes import FileData

from arr_coc.config import NEW_TOKENS, Config
from arr_coc.page import frame
from arr_coc.page.clip_cards import ClipCards
from arr_coc.page.local_handlers import LocalHandlers
from arr_coc.page.model_handlers import ModelHandlers
from arr_coc.page.several_handlers import SeveralHandlers
from arr_coc.page.you_handlers import YouHandlers
from arr_coc.service.choosing import Contest
from arr_coc.service.decision import Where
from arr_coc.service.looks import ComparisonResult
from arr_coc.service.several import SeveralResult


class Endpoints:
    """The endpoints, over the page's own handlers."""

    def __init__(self, local: LocalHandlers, model: ModelHandlers) -> None:
        self.local, self.model, self.you = local, model, YouHandlers(model)
        self.several, self.clips = SeveralHandlers(model), ClipCards(local.folder)

    def compare(
        self,
        image: FileData,
        question: str,
        share: float = Config.share,
        budget: int | None = Config.budget,
        glance: str = Config.glance,
        prune: str = Config.prune,
        max_new_tokens: int = NEW_TOKENS,
        shrunk: bool = False,
    ) -> ComparisonResult:
        """Ask one question about one picture twice: the stock model, then ARR-COC on the same weights.

        Args:
            image: a JPEG, PNG, WEBP or AVIF file of at most 20 MB.
            question: at most 500 characters.
            share: share of the picture's visual tokens to keep, 0.05 to 1.
            budget: visual tokens to keep; overrides share.
            glance: what becomes of the quick first look: auto, periphery, separate or off.
            prune: drop tokens before or after the vision encoder.
            max_new_tokens: longest answer in tokens, 1 to 256.
            shrunk: ask a third time, about the whole picture resized to the same number of tokens.
        """
        settings = {"glance": glance, "prune": prune, "max_new_tokens": max_new_tokens}
        settings |= {"share": share, "budget": budget, "shrunk": shrunk}
        return self.model.answered(image, question, settings)

    # What these two return is not typed again: the page would be sent every schema eight times more.
    def compare_with(
        self, image: FileData, question: str, settings: dict[str, Any]
    ) -> dict[str, Any]:
        """As compare, which tells what comes back, with any setting by its name.

        Args:
            image: a JPEG, PNG, WEBP or AVIF file of at most 20 MB.
            question: at most 500 characters.
            settings: any of share (auto as well: as many tokens as the relevance asks for, and more while the first word is unsure), budget, glance, prune, max_new_tokens, shrunk as in compare; allocator (topk, adaptive, window, quadtree); tier (fast, balanced, accurate, question), which overrides share; context (auto, glance, cells, none); when (always, auto); tensions (compress, exploit and focus, 0 to 1); revision of the ARR-COC weights (none for fixed rules); native_tokens to cut the picture into first.
        """  # noqa: E501  the framework reads one line of an argument
        return self.model.answered(image, question, settings)

    def relevance(self, image: FileData, question: str, share: float = Config.share) -> Where:
        """Where looking pays for a question: maps, tensions and the places kept, without an answer.

        Args:
            image: a JPEG, PNG, WEBP or AVIF file of at most 20 MB.
            question: at most 500 characters.
            share: share of the picture's visual tokens to keep, 0.05 to 1.
        """
        return self.model.answered(image, question, {"share": share}, alone=True)

    def relevance_with(
        self, image: FileData, question: str, settings: dict[str, Any]
    ) -> dict[str, Any]:
        """As relevance, which tells what comes back, with any setting by its name.

        Args:
            image: a JPEG, PNG, WEBP or AVIF file of at most 20 MB.
            question: at most 500 characters.
            settings: as in compare_with; those of answers do nothing here.
        """
        return self.model.answered(image, question, settings, alone=True)

    def you_first(self, image: FileData, question: str, cells: list[list[int]]) -> Contest:
        """Answer from places that you choose after the model's quick first look, against its own choice of 12.

        Args:
            image: a JPEG, PNG, WEBP or AVIF file of at most 20 MB.
            question: at most 500 characters.
            cells: 1 to 12 pairs of row and column in visual tokens from the top left, from 0, each once, in the order in which you would spend them.
        """  # noqa: E501  the framework reads one line of an argument
        return self.you.answered(image, question, cells)

    def compare_clip(
        self,
        clip: FileData,
        question: str,
        share: float = Config.share,
        frames: int | None = None,
        fps: float | None = None,
        max_new_tokens: int = NEW_TOKENS,
        fewer: bool = False,
    ) -> SeveralResult:
        """Ask one question about a moving picture twice: the stock model, then ARR-COC with one budget over all moments.

        Args:
            clip: an MP4, WebM or GIF file of at most 20 MB, 20 seconds and 9.4 megapixels a frame.
            question: at most 500 characters.
            share: share of all moments' visual tokens to keep, 0.05 to 1.
            frames: how many frames to read, 1 to 64, spread evenly; two make a moment.
            fps: or how many a second; without either two a second, at least four.
            max_new_tokens: longest answer in tokens, 1 to 256.
            fewer: whether to ask the stock model a third time, of so few of the clip's moments that they have as many tokens.
        """  # noqa: E501  the framework reads one line of a description
        settings = {"frames": frames, "fps": fps, "max_new_tokens": max_new_tokens}
        return self.several.clip(clip, question, share, fewer=fewer, **settings)

    def compare_pictures(
        self,
        pictures: list[FileData],
        question: str,
        share: float = Config.share,
        max_new_tokens: int = NEW_TOKENS,
    ) -> SeveralResult:
        """Ask one question about several pictures twice: the stock model, then ARR-COC with one budget over all.

        Args:
            pictures: 1 to 6 JPEG, PNG, WEBP or AVIF files of at most 20 MB each.
            question: at most 500 characters.
            share: share of all pictures' visual tokens to keep, 0.05 to 1.
            max_new_tokens: longest answer in tokens, 1 to 256.
        """  # noqa: E501  the framework reads one line of a description
        return self.several.pictures(pictures, question, share, max_new_tokens=max_new_tokens)

    def examples(self) -> list[frame.Listed]:
        """The questions of this page's cards with their true answers."""
        return frame.listed(self.local.examples)
