"""vlmeval: ARR-COC as a model of VLMEvalKit.

    from arr_coc.harness.vlmeval import ARRCOC
    supported_VLM["arr-coc-20"] = partial(ARRCOC, base="Qwen/Qwen3-VL-2B-Instruct", share=0.2)

Imported where VLMEvalKit is installed; docs/benchmarks.md says where the lines go.
"""

from collections.abc import Sequence
from pathlib import Path

from vlmeval.vlm.base import BaseModel

from arr_coc.config import MAX_PIXELS, NEW_TOKENS, SHARE
from arr_coc.evaluate.vqa import SHORT
from arr_coc.harness.answering import FOCUSED, Answerer, Look, asked
from arr_coc.harness.chatting import opened


class ARRCOC(BaseModel):
    """Answers one question about one picture at a time."""

    INTERLEAVE = False

    def __init__(
        self,
        base: str | Path | None = None,
        weights: str | Path | None = None,
        share: float | str = SHARE,
        prune: str = "before",
        when: str = "always",
        look: str = FOCUSED,
        max_pixels: int = MAX_PIXELS,
        max_new_tokens: int = NEW_TOKENS,
        instructions: Sequence[str] = (SHORT,),
        device: str | None = None,
        dtype: str | None = None,
    ) -> None:
        """As `Look` and `Answerer`; `instructions` may end a prompt and say nothing of where to look.

        Raises:
            ValueError: for settings that do not go together, or a base that cannot be loaded.
        """
        super().__init__()
        self.max_new_tokens, self.instructions = max_new_tokens, tuple(instructions)
        self.answerer = Answerer(
            Look(look, share, prune, when),
            base,
            weights,
            max_pixels=max_pixels,
            device=device,
            dtype=dtype,
        )

    def generate_inner(self, message: list[dict[str, str]], dataset: str | None = None) -> str:
        """The answer to a message.

        Args:
            message: parts of `type` "image", whose `value` is a file's path, or "text".
            dataset: its name, for the error.

        Raises:
            ValueError: for no picture or several, or no question.
        """
        where = dataset or "the message"
        image = opened([part["value"] for part in message if part["type"] == "image"], where)
        text = "\n".join(part["value"] for part in message if part["type"] == "text")
        return self.answerer(image, asked(text, (), self.instructions), self.max_new_tokens).text
