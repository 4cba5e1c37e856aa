"""Comparing: the one service under page and API: the stock answer, then ARR-COC's, then both.

`check` is the door: it refuses bad input with an `IntakeError` before any model is asked. Then
`compare_stream` yields plain records that survive pickling (a GPU worker is another process):

    ("full", LookResult)       the stock model's answer so far; the last one carries its measures
    ("focused", LookResult)    the same for ARR-COC
    ("result", ComparisonResult)   once, last: everything

It does not raise for what a visitor can cause: a failed look has its sentence in `error`, and the
other look still arrives.
"""

import logging
import os
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypedDict
from weakref import WeakKeyDictionary

from PIL import Image

from arr_coc import intake

log = logging.getLogger(__name__)

GLANCES = ("periphery", "separate", "off")
PRUNES = ("before", "after")
DEADLINE_S = 60.0
NEW_TOKENS = 32
_warm: WeakKeyDictionary = WeakKeyDictionary()  # model -> the process it has answered in


class LookResult(TypedDict):
    """One look at the picture. Numbers are 0 and `stages_s` empty until the look is done."""

    text: str
    stage: str
    done: bool
    error: str | None
    visual_tokens: int
    visual_tokens_full: int
    time_to_first_token_s: float
    decode_tokens_per_second: float
    new_tokens: int
    stages_s: dict[str, float]
    kv_cache_bytes: int
    peak_memory_bytes: int
    peak_memory_kind: str


class Where(TypedDict):
    """Where the focused look went. Maps are `h` rows of `w` numbers in [0, 1], rounded."""

    grid: list[int]
    budget: int
    relevance: list[list[float]]
    propositional: list[list[float]] | None
    perspectival: list[list[float]] | None
    participatory: list[list[float]] | None
    participatory_source: str
    cells: list[list[int]]
    cell_budgets: list[float]
    glance_grid: list[int] | None
    compress: float
    exploit: float
    focus: float
    tension_source: str
    fallback: str | None


class ComparisonResult(TypedDict):
    """Both looks side by side.

    `ratio` is the stock time to the first token over ARR-COC's, from this one run: above 1 the
    focused look came first. None where either failed.
    """

    question: str
    model: str
    bundled: bool
    device: str
    full: LookResult
    focused: LookResult
    tokens_kept: int
    tokens_total: int
    ratio: float | None
    where: Where | None


class Request(TypedDict):
    """A comparison that passed the door; plain values, so that it can be pickled."""

    image: Image.Image
    question: str
    share: float
    budget: int | None
    glance: str
    prune: str
    max_new_tokens: int


def check(
    image_source: str | Path | bytes | Image.Image,
    question: str,
    share: float = 0.20,
    *,
    budget: int | None = None,
    glance: str = "periphery",
    prune: str = "before",
    max_new_tokens: int = NEW_TOKENS,
) -> Request:
    """Check everything a visitor gives; cheap things first, no model.

    Args:
        image_source: path, `data:` URL, bytes or PIL image.
        question: at most `intake.MAX_QUESTION` characters.
        share: of the picture's visual tokens, in [0.05, 1].
        budget: visual tokens, which overrides the share.
        glance: "periphery", "separate" or "off".
        prune: "before" or "after" the vision encoder.
        max_new_tokens: longest answer, in tokens.

    Raises:
        IntakeError: with one sentence fit for the visitor.
    """
    return Request(
        question=intake.clean_question(question),
        share=intake.check_share(share),
        budget=intake.check_budget(budget),
        glance=intake.check_choice(glance, "glance", GLANCES),
        prune=intake.check_choice(prune, "place to prune", PRUNES),
        max_new_tokens=intake.check_new_tokens(max_new_tokens),
        image=intake.open_image(image_source),
    )


def compare(model: Any, image_source, question: str, share: float = 0.20, **settings):
    """Check, run both looks, and give the `ComparisonResult`; arguments and errors as `check`."""
    return last(compare_stream(model, check(image_source, question, share, **settings)))


def last(records: Iterator[tuple[str, Any]]) -> ComparisonResult:
    """The final record's value of a stream."""
    *_, (_, result) = records
    return result


def compare_stream(
    model: Any, request: Request, deadline_s: float = DEADLINE_S
) -> Iterator[tuple[str, Any]]:
    """Run both looks of a checked request; see the module for the records.

    Args:
        model: an `ARRCOCQwen`, or anything with its `stream`, `name`, `device`, `is_bundled`.
        request: from `check`.
        deadline_s: seconds of decoding allowed to each look.
    """
    from arr_coc.realizing import Config

    warm_up(model)
    common = {"max_new_tokens": request["max_new_tokens"], "deadline_s": deadline_s}
    full, focused, where = empty_look(), empty_look(), None
    for full, _ in _looks(model, request, use_arr_coc=False, **common):
        yield "full", full
    try:
        if full["visual_tokens_full"]:
            intake.check_budget(request["budget"], full["visual_tokens_full"])
        config = Config(**{name: request[name] for name in ("share", "budget", "glance", "prune")})
    except ValueError as error:
        focused = {**empty_look(), "done": True, "error": sentence(error)}
        yield "focused", focused
    else:
        for focused, realization in _looks(
            model, request, use_arr_coc=True, config=config, **common
        ):
            if focused["done"] and realization is not None:
                where = describe_where(realization)
            yield "focused", focused
    yield "result", _result(model, request["question"], full, focused, where)


def warm_up(model: Any) -> None:
    """Once per process and model: short answers, so that no visitor's measure holds lazy set-up."""
    if _warm.get(model) != os.getpid() and hasattr(model, "warm_up"):
        try:
            model.warm_up()
        except Exception:  # what fails here will fail again, and be said, in the look itself
            log.exception("warming up failed")
    _warm[model] = os.getpid()


def empty_look() -> LookResult:
    """A look that has not begun."""
    return LookResult(
        text="",
        stage="waiting",
        done=False,
        error=None,
        visual_tokens=0,
        visual_tokens_full=0,
        time_to_first_token_s=0.0,
        decode_tokens_per_second=0.0,
        new_tokens=0,
        stages_s={},
        kv_cache_bytes=0,
        peak_memory_bytes=0,
        peak_memory_kind="",
    )


def _looks(model: Any, request: Request, **options) -> Iterator[tuple[LookResult, Any]]:
    """Snapshots of one look, each with its realization; the last is done or has an error."""
    look = empty_look()
    try:
        for answer in model.stream(request["image"], request["question"], **options):
            look = {**look, "text": answer.text, "stage": answer.stage, "done": answer.done}
            if answer.measures is not None:
                measures = asdict(answer.measures)
                stages = {name: round(spent, 6) for name, spent in measures.pop("stages").items()}
                seconds = round(measures.pop("time_to_first_token"), 6)
                look = {**look, **measures, "stages_s": stages, "time_to_first_token_s": seconds}
            yield look, answer.realization
    except Exception as error:  # the other look must still arrive, and a worker must live on
        log.exception("a look failed")
        yield {**look, "done": True, "error": sentence(error)}, None


def describe_where(realization: Any) -> Where:
    """A `realizing.Realization` as plain numbers."""
    tensions, allocation = realization.tensions, realization.allocation
    look = realization.kept_look
    return Where(
        grid=list(realization.grid),
        budget=realization.budget,
        relevance=_rows(realization.relevance),
        propositional=_rows(realization.propositional),
        perspectival=_rows(realization.perspectival),
        participatory=_rows(realization.participatory),
        participatory_source=realization.participatory_source,
        cells=allocation.cells.tolist(),
        cell_budgets=[round(budget, 1) for budget in allocation.budgets.tolist()],
        glance_grid=None if look is None else list(look.attention.shape[-2:]),
        compress=round(tensions.compress, 4),
        exploit=round(tensions.exploit, 4),
        focus=round(tensions.focus, 4),
        tension_source=realization.tension_source,
        fallback=realization.fallback,
    )


def allocation_of(where: Where):
    """The `attending.Allocation` that `describe_where` wrote down."""
    import torch

    from arr_coc.attending import Allocation

    cells = torch.tensor(where["cells"], dtype=torch.int64).view(-1, 3)  # (K, 3)
    return Allocation(tuple(where["grid"]), cells, torch.tensor(where["cell_budgets"]))


def sentence(error: Exception) -> str:
    """One sentence for a visitor. Only messages written for people pass; the rest is named."""
    if type(error).__name__ == "OutOfMemoryError" or isinstance(error, MemoryError):
        return "There was not enough memory for this look; keep fewer tokens or a smaller picture."
    if isinstance(error, TimeoutError) or type(error).__name__ == "Empty":
        return "The model took too long and was stopped; try again, or ask for a shorter answer."
    if isinstance(error, ValueError) and not _names_a_path(str(error)):
        text = str(error).splitlines()[0] if str(error) else "the input was refused"
        return text[:300]
    return f"This look failed inside the model ({type(error).__name__}); the next one may work."


def _names_a_path(text: str) -> bool:
    return "/" in text or "\\" in text


def _rows(values: Any) -> list[list[float]] | None:
    """A `(1, h, w)` tensor as nested lists with three decimals."""
    if values is None:
        return None
    return [[round(value, 3) for value in row] for row in values[0].float().cpu().tolist()]


def _result(model, question, full, focused, where) -> ComparisonResult:
    ratio = None
    if not full["error"] and not focused["error"] and focused["time_to_first_token_s"] > 0:
        ratio = round(full["time_to_first_token_s"] / focused["time_to_first_token_s"], 3)
    return ComparisonResult(
        question=question,
        model=str(model.name),
        bundled=bool(model.is_bundled),
        device=str(model.device),
        full=full,
        focused=focused,
        tokens_kept=focused["visual_tokens"],
        tokens_total=focused["visual_tokens_full"] or full["visual_tokens_full"],
        ratio=ratio,
        where=where,
    )
