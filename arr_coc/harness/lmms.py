"""lmms: ARR-COC as a chat model of lmms-eval, `--model arr_coc`.

    lmms-eval --model arr_coc --model_args pretrained=bundled,share=0.2 --tasks textvqa_val

Needs lmms-eval's own environment (`python -m arr_coc.harness.environment`). Imported by lmms-eval alone.
"""

import os
from statistics import fmean
from typing import Any

import torch
from lmms_eval.api.instance import GenerationResult, Instance, TokenCounts
from lmms_eval.api.model import lmms
from lmms_eval.models.model_utils.gen_metrics import log_metrics
from PIL import Image
from tqdm import tqdm

from arr_coc.config import MAX_NEW_TOKENS, MAX_PIXELS, SHARE
from arr_coc.harness.answering import FOCUSED, Answerer, Asked, Look, asked
from arr_coc.harness.chatting import ended_at, one_picture
from arr_coc.qwen.answer import Measures


class ARRCOC(lmms):
    """Answers one question after the other, so that the seconds are a question's own."""

    is_simple = False

    def __init__(
        self,
        pretrained: str | None = None,
        weights: str | None = None,
        share: float | str = SHARE,
        prune: str = "before",
        when: str = "always",
        look: str = FOCUSED,
        max_pixels: int = MAX_PIXELS,
        dtype: str | None = None,
        device: str | None = None,
        batch_size: int | str = 1,
        max_batch_size: int | None = None,
    ) -> None:
        """As `--model_args` names them, see `Look` and `Answerer`.

        Raises:
            ValueError: for settings that do not go together, or a base that cannot be loaded.
        """
        super().__init__()
        if int(batch_size) != 1:
            raise ValueError(f"batch_size is {batch_size}, expected 1: answers come one by one")
        if torch.cuda.is_available() and device in (None, "cuda"):
            device = f"cuda:{os.environ.get('LOCAL_RANK', 0)}"
        how = Look(look, share, prune, when)
        self.answerer = Answerer(
            how, pretrained, weights, max_pixels=int(max_pixels), device=device, dtype=dtype
        )
        self.batch_size = 1

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return self.answerer.host.device

    def generate_until(self, requests: list[Instance]) -> list[GenerationResult]:
        """A greedy answer to each request, in their order; what they took goes into `throughput`."""
        results, measured, native = [], [], 0
        for request in tqdm(requests, desc="arr_coc", disable=self.rank != 0):
            _, messages_of, options, doc_id, task, split = request.args
            question, image = self._asked(
                messages_of, self.task_dict[task][split][doc_id], f"{task}, question {doc_id}"
            )
            answer = self.answerer(image, question, options.get("max_new_tokens", MAX_NEW_TOKENS))
            measured.append(answer.measures)
            native += self.answerer.native_tokens(image)
            counts = TokenCounts(output_tokens=answer.measures.new_tokens)
            results.append(GenerationResult(ended_at(answer.text, options.get("until")), counts))
        if measured:
            told(measured, native)
        return results

    def _asked(self, messages_of: Any, doc: Any, where: str) -> tuple[Asked, Image.Image]:
        """The question of a document and its picture; a task's own words around it are known."""
        text, image = one_picture(messages_of(doc), where)
        words = getattr(getattr(messages_of, "__self__", None), "lmms_eval_specific_kwargs", None)
        around = [[(words or {}).get(name) or ""] for name in ("pre_prompt", "post_prompt")]
        return asked(text, *around), image

    def loglikelihood(self, requests: list[Instance]) -> list[tuple[float, bool]]:
        """Refused: a focused look is decided once for an answer, not for each continuation."""
        raise NotImplementedError("arr_coc answers; it gives no likelihoods of continuations")

    def generate_until_multi_round(self, requests: list[Instance]) -> list[str]:
        """Refused: one picture and one question at a time."""
        raise NotImplementedError("arr_coc answers one question about one picture, in one round")


def told(measured: list[Measures], native: int) -> None:
    """Give lmms-eval the seconds and the visual tokens, of `native` in all, for its report."""
    tokens = sum(one.new_tokens for one in measured)
    seconds = sum(one.time_to_first_token + one.stages["decode"] for one in measured)
    log_metrics(
        total_gen_tokens=tokens,
        total_elapsed_time=seconds,
        avg_speed=tokens / seconds,
        additional_metrics={
            "first_word_s": fmean(one.time_to_first_token for one in measured),
            "answer_s": seconds / len(measured),
            "visual_tokens": fmean(one.visual_tokens for one in measured),
            "visual_share": sum(one.visual_tokens for one in measured) / native,
            "questions": len(measured),
        },
    )
