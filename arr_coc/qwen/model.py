"""ARRCOCQwen: stock Qwen3-VL and ARR-COC on the same weights in memory, streamed and measured.

    model = ARRCOCQwen.from_pretrained("Qwen/Qwen3-VL-2B-Instruct")
    answer = model.generate(image, "What number is on the small sign?")

Decoding is greedy, so that two answers differ by what was seen and not by chance. What stands between
the model and an answer is `qwen.host`.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import torch
from PIL import Image

from arr_coc import naming
from arr_coc.config import (
    DEADLINE_S,
    MAX_PIXELS,
    NEW_TOKENS,
    Config,
    check_new_tokens,
    check_question,
)
from arr_coc.pictures import plain
from arr_coc.qwen import loading, weights
from arr_coc.qwen.answer import Answer, Run, without_state
from arr_coc.qwen.batch import Greedy, answer_batch
from arr_coc.qwen.deciding import decided
from arr_coc.qwen.fetching import OnProgress
from arr_coc.qwen.host import QwenHost
from arr_coc.qwen.looking import looked_at_each
from arr_coc.qwen.preparing import Given
from arr_coc.realizing import Realization
from arr_coc.temporal import Moments


class ARRCOCQwen(QwenHost):
    """Stock Qwen3-VL with an optional focused look; see the module's docstring."""

    @classmethod
    @torch.inference_mode(False)  # weights made in inference mode could never be trained through
    def from_pretrained(
        cls,
        base: str | Path | None = None,
        components: str | Path | None = None,
        revision: str | None = None,
        *,
        device: str | torch.device | None = None,
        dtype: torch.dtype | str | None = None,
        max_pixels: int = MAX_PIXELS,
        on_progress: OnProgress | None = None,
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
            dtype: None takes `ARR_COC_DTYPE`; "auto" is bfloat16 where the GPU has it, float16 on
                older ones, float32 on CPU.
            max_pixels: of a picture; a larger one is shrunk to so many.
            on_progress: told how far the base's download is, in bytes.
            on_bad_weights: "raise", or "notice" to go on without ARR-COC weights that cannot be used;
                `notices` then says why.

        Raises:
            ValueError: for a missing folder, a base that is not Qwen3-VL, weights for another base.
        """
        parts = loading.load_base(base, device=device, dtype=dtype, on_progress=on_progress)
        # A Space that was duplicated to one without a GPU: what it names was made for the other base.
        is_by_default = base is None and components is None and not naming.set_to("ARR_COC_BASE")
        own = weights.BUNDLED_WEIGHTS if is_by_default and parts.is_bundled else None
        if components is None:
            components = weights.default_weights(parts.is_bundled)
        revisions = [revision] if revision else naming.revisions() or [None]
        policies, notices = weights.load_policies(
            parts, components, revisions, on_bad_weights, instead=own
        )
        return cls(
            parts.model,
            parts.tokenizer,
            parts.image_processor,
            name=parts.name if parts.is_bundled else weights.known_name(parts.name, policies),
            revision=parts.revision,
            policies=policies,
            notices=[*parts.notices, *notices],
            is_bundled=parts.is_bundled,
            max_pixels=max_pixels,
        )

    def generate(
        self, image: Given, question: str, use_arr_coc: bool = True, **options: Any
    ) -> Answer:
        """The finished `Answer`; arguments as `stream`."""
        return self._run(image, question, use_arr_coc, **options).finished()

    def stream(
        self,
        image: Given,
        question: str,
        *,
        use_arr_coc: bool = True,
        config: Config | None = None,
        max_new_tokens: int = NEW_TOKENS,
        deadline_s: float = DEADLINE_S,
        grid: tuple[int, int] | None = None,
        text: str | None = None,
    ) -> Iterator[Answer]:
        """Answer a question about an image, as snapshots; the last one is `done` and carries all.

        Args:
            image: RGB; or a `clips.Clip`, or up to six images in a list, which share one budget: their
                answers carry `temporal.Moments` in place of a `Realization`.
            question: the question alone; the chat template is added here.
            use_arr_coc: False is the stock model, unchanged.
            config: how to spend tokens; None takes the defaults. Ignored by the stock model.
            max_new_tokens: 1 to 1024.
            deadline_s: decoding stops after so many seconds, with what there is by then.
            grid: rows and columns of visual tokens to resize the whole image to, or each moment of a clip;
                None its own.
            text: what the model is asked where it is more than the question, such as an instruction how to
                answer. Scan, tensions and tier read the question alone; the glance, a look of the model's
                own, reads all of it. None for the question.

        Raises:
            ValueError: for an empty question, a budget that does not fit, or too many new tokens.
        """
        asked = image, question, use_arr_coc, config, max_new_tokens, deadline_s, grid, text
        yield from self._run(*asked).snapshots()

    def _run(
        self,
        image: Given,
        question: str,
        use_arr_coc: bool,
        config: Config | None = None,
        max_new_tokens: int = NEW_TOKENS,
        deadline_s: float = DEADLINE_S,
        grid: tuple[int, int] | None = None,
        text: str | None = None,
    ) -> Run:
        """Arguments and errors as `stream`."""
        check_new_tokens(max_new_tokens)
        check_question(question)
        spending = (config or Config()) if use_arr_coc else None
        return Run(self, image, question, spending, max_new_tokens, deadline_s, grid, text)

    def generate_batch(
        self,
        images: Sequence[Image.Image],
        questions: Sequence[str],
        *,
        use_arr_coc: bool = True,
        config: Config | None = None,
        max_new_tokens: int = NEW_TOKENS,
    ) -> list[Answer]:
        """Many questions answered at once: glances, kept cells and answers go through the model together.

        Args:
            images: RGB, one for each question; the same one may come again.
            questions: as many.
            use_arr_coc: False is the stock model.
            config: how to spend tokens; None takes the defaults. `when` does not apply.
            max_new_tokens: of each answer, 1 to 1024.

        Returns:
            An answer for each question, the same as `generate` gives, without measures.

        Raises:
            ValueError: for unequal numbers, an empty question, a budget that does not fit.
        """
        check_new_tokens(max_new_tokens)
        if not questions or len(images) != len(questions):
            raise ValueError(
                f"{len(images)} images for {len(questions)} questions, expected one each"
            )
        if others := [image for image in images if not isinstance(image, Image.Image)]:
            given = type(others[0]).__name__
            raise ValueError(f"a {given} is given, expected one image each: `generate` takes clips")
        for number, question in enumerate(questions):
            check_question(question, f"question {number}")
        spending = (config or Config()) if use_arr_coc else None

        def answered() -> tuple[list[Greedy], list[Realization | None]]:
            looks = looked_at_each(self, images, questions, spending)
            prompts, tokens, decided = (list(column) for column in zip(*looks))
            return answer_batch(self, prompts, tokens, max_new_tokens), decided

        with self.lock, torch.inference_mode():
            answers, decided = self.once_more_if_narrow(answered)
        return [
            Answer(answer.text, "done", True, None, realization and without_state(realization))
            for answer, realization in zip(answers, decided)
        ]

    def realize(
        self,
        image: Given,
        question: str,
        config: Config = Config(),
        grid: tuple[int, int] | None = None,
    ) -> Realization | Moments:
        """Decide where the tokens go, without answering; `image` and `grid` as `stream` takes them.

        Raises:
            ValueError: for an empty question, or a budget that does not fit.
        """
        check_question(question)

        def made() -> Realization | Moments:
            asked = self.prepare(image, question, grid)
            return without_state(decided(self, asked, question, config))

        with self.lock, torch.inference_mode():
            return self.once_more_if_narrow(made)

    def visualize_relevance(
        self, image: Image.Image, question: str, config: Config | None = None
    ) -> dict[str, Image.Image]:
        """Pictures of one decision, without answering: overlay, kept cells and the maps, by name."""
        from arr_coc.homunculus import realization_pictures  # loads matplotlib

        if not isinstance(image, Image.Image):
            raise ValueError(f"a {type(image).__name__} is given, expected one image")
        realization = self.realize(image, question, config or Config())
        return realization_pictures(plain(image), realization, self.geometry.unit_pixels)

    def warm_up(self) -> None:
        """One short answer of each kind, so that the first visitor does not pay for lazy set-up."""
        grey = Image.new("RGB", (256, 256), (128, 128, 128))
        for use_arr_coc in (False, True):
            self.generate(grey, "what is this?", use_arr_coc, max_new_tokens=2)
