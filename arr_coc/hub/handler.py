"""Handler: the weights behind Hugging Face Inference Endpoints, by the platform's convention.

`python -m arr_coc.hub push-model` lays this file beside the weights as `handler.py`. The platform installs
the `requirements.txt` there, makes one `EndpointHandler` with the folder of the repository, and calls it
with the body of each request. A request:

    {"inputs": {"image": "data:image/jpeg;base64,...", "question": "What does the sign say?"},
     "parameters": {"share": 0.2, "max_new_tokens": 32}}

The image is a `data:` URL or bare base64; no address is fetched, and no file is opened. Parameters are
those of `PARAMETERS`, all optional. The answer is plain values; what is refused is `{"error": sentence}`.
"""

import json
import logging
from dataclasses import asdict
from pathlib import Path
from typing import Any

from PIL import Image

from arr_coc import naming
from arr_coc.qwen.loading import BUNDLED_BASE
from arr_coc.qwen.model import ARRCOCQwen
from arr_coc.service import comparing, intake
from arr_coc.service.errors import plainly

BUNDLED = "bundled base"  # how weights name the base that comes with the package
STOCK = "use_arr_coc"
PARAMETERS = (
    "share", "budget", "glance", "prune", "allocator", "tier", "tensions", "native_tokens",
    "max_new_tokens", STOCK,
)  # fmt: skip
DIGITS = 6
log = logging.getLogger(__name__)


class EndpointHandler:
    """Base and weights in memory; called with each request."""

    def __init__(self, path: str = "") -> None:
        """Load the weights in `path`, and the base that their `config.json` names.

        `ARR_COC_BASE` names another copy of that base, such as a folder.

        Raises:
            ValueError: for weights or a base that cannot be loaded, or do not belong together.
        """
        config = json.loads((Path(path) / "config.json").read_text(encoding="utf-8"))
        named = naming.set_to("ARR_COC_BASE") or config["base_model"]
        self.model = ARRCOCQwen.from_pretrained(
            BUNDLED_BASE if named == BUNDLED else named, Path(path)
        )
        self.model.warm_up()

    def __call__(self, data: dict[str, Any]) -> dict[str, Any]:
        """Answer one request; it never raises.

        Returns:
            `text`; `kept`, rows of level, row, column of the places kept (level 0 is one visual token)
            on the `grid` of rows and columns; `visual_tokens` of `visual_tokens_full`; `tensions`;
            `stages_s` and `time_to_first_token_s`; `decode_tokens_per_second`; `new_tokens` and why the
            answer `ended`. Of the stock model without places and tensions. Or `{"error": sentence}`.
        """
        try:
            request, use_arr_coc = _checked(data)
            answer = self.model.generate(
                request.image,
                request.question,
                use_arr_coc,
                config=request.config,
                max_new_tokens=request.max_new_tokens,
                grid=request.grid(),
            )
            return _plain(answer)
        except Exception as error:  # a worker must live on
            if not isinstance(error, intake.IntakeError):
                log.exception("a request failed")
            return {"error": plainly(error)}


def _checked(data: Any) -> tuple[comparing.Request, bool]:
    """The request as the page's own door lets it in, and whether ARR-COC is to look."""
    inputs = data.get("inputs") if isinstance(data, dict) else None
    if not isinstance(inputs, dict):
        raise intake.IntakeError(
            'The body has no inputs; expected {"inputs": {"image": base64, "question": text}}.'
        )
    if unknown := sorted(map(str, set(inputs) - {"image", "question"})):
        raise intake.IntakeError(f"The inputs have {unknown[0]!r}; allowed are image, question.")
    parameters = data.get("parameters") or {}
    if not isinstance(parameters, dict):
        raise intake.IntakeError("The parameters are no object; expected names and values.")
    if unknown := sorted(map(str, set(parameters) - set(PARAMETERS))):
        raise intake.IntakeError(
            f"There is no parameter {unknown[0][:40]!r}; allowed are {', '.join(PARAMETERS)}."
        )
    settings = {name: value for name, value in parameters.items() if name != STOCK}
    use_arr_coc = parameters.get(STOCK, True)
    if not isinstance(use_arr_coc, bool):
        raise intake.IntakeError(f"{STOCK} is {use_arr_coc!r}; allowed are true and false.")
    return comparing.check(_picture(inputs.get("image")), inputs.get("question"), **settings), (
        use_arr_coc
    )


def _picture(given: Any) -> str | Image.Image:
    """The image as a `data:` URL, or as the picture that the platform made of it; never a file's path."""
    if isinstance(given, Image.Image):
        return given
    if not isinstance(given, str) or not given:
        raise intake.IntakeError("The image is missing; expected a data: URL or base64.")
    if intake.is_data_url(given):
        return given
    if "://" in given[:16]:
        raise intake.IntakeError("The image is an address; send the picture itself, as base64.")
    return f"data:;base64,{given}"


def _plain(answer: Any) -> dict[str, Any]:
    """An answer as JSON can hold it."""
    measures, realization = answer.measures, answer.realization
    found = {
        "text": answer.text,
        "visual_tokens": measures.visual_tokens,
        "visual_tokens_full": measures.visual_tokens_full,
        "new_tokens": measures.new_tokens,
        "ended": measures.ended,
        "time_to_first_token_s": round(measures.time_to_first_token, DIGITS),
        "decode_tokens_per_second": round(measures.decode_tokens_per_second, DIGITS),
        "stages_s": {name: round(spent, DIGITS) for name, spent in measures.stages.items()},
    }
    if realization is not None:
        found |= {
            "grid": list(realization.grid),
            "kept": realization.allocation.cells.tolist(),
            "tensions": asdict(realization.tensions),
        }
    return found
