"""Comparing: the one service under page and API: the stock answer, then ARR-COC's, then both.

`check` is the door: it refuses bad input with an `IntakeError` before any model is asked. Then
`compare_stream` yields plain records that survive pickling (a GPU worker is another process):

    ("full", LookResult)       the stock model's answer so far; the last one carries its measures
    ("focused", LookResult)    the same for ARR-COC
    ("shrunk", LookResult)     the same for the picture resized to as many tokens, where asked for
    ("result", ComparisonResult)   once, last: everything

A request with further `questions` gives ("where", Where) for each instead, and no answers.

It does not raise for what a visitor can cause: a failed look has its sentence in `error`, and the
other looks still arrive.
"""

import logging
import os
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypedDict
from weakref import WeakKeyDictionary

from PIL import Image

from arr_coc.service import intake
from arr_coc.service import token_grid as cutting
from arr_coc.service.decision import Where, describe_where
from arr_coc.service.errors import plainly, sentence

log = logging.getLogger(__name__)

# As `spending`, `allocators`, `attending` and `qwen` have them, told without importing torch.
GLANCES = ("auto", "periphery", "separate", "off")
PRUNES = ("before", "after")
ALLOCATORS = ("topk", "adaptive", "window", "quadtree")
TIERS = ("fast", "balanced", "accurate", "question")
NO_REVISION = "none"
DEADLINE_S = 60.0
NEW_TOKENS = 32
MOST_QUESTIONS = 3
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
    first_token_entropy: float | None


class ComparisonResult(TypedDict):
    """The looks side by side; `shrunk` where it was asked for.

    `ratio` is the stock time to the first token over ARR-COC's, from this one run: above 1 the
    focused look came first. None where either failed.
    """

    question: str
    model: str
    bundled: bool
    device: str
    full: LookResult
    focused: LookResult
    shrunk: LookResult | None
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
    allocator: str
    tier: str | None
    tensions: list[float] | None
    revision: str | None
    shrunk: bool
    native: int | None
    questions: list[str]
    max_new_tokens: int


def check(
    image_source: str | Path | bytes | Image.Image,
    question: str,
    share: float = 0.20,
    *,
    budget: int | None = None,
    glance: str = "auto",
    prune: str = "before",
    allocator: str = "topk",
    tier: str | None = None,
    tensions: list[float] | None = None,
    revision: str | None = None,
    shrunk: bool = False,
    native: int | None = None,
    questions: tuple[str, ...] = (),
    max_new_tokens: int = NEW_TOKENS,
) -> Request:
    """Check everything a visitor gives; cheap things first, no model.

    Args:
        image_source: path, `data:` URL, bytes or PIL image.
        question: at most `intake.MAX_QUESTION` characters.
        share: of the picture's visual tokens, in [0.05, 1].
        budget: visual tokens, which overrides the share.
        glance: one of `GLANCES`.
        prune: "before" or "after" the vision encoder.
        allocator: one of `ALLOCATORS`.
        tier: one of `TIERS`, which overrides the share, or None.
        tensions: compress, exploit and focus in [0, 1], or None to let the policy choose.
        revision: of the ARR-COC weights, of those loaded; None or "" for the default, "none" for none.
        shrunk: look a third time, at the picture resized to the focused look's tokens.
        native: visual tokens to cut the picture into first, one of `token_grid.SIZES`; None as it is.
        questions: up to three whose maps alone are wanted, in place of answers.
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
        allocator=intake.check_choice(allocator, "allocator", ALLOCATORS),
        tier=None if tier is None else intake.check_choice(tier, "tier", TIERS),
        tensions=None if tensions is None else check_tensions(tensions),
        revision=intake.clean_question(revision) if revision else None,
        shrunk=bool(shrunk),
        native=cutting.check(native),
        questions=[intake.clean_question(text) for text in questions[:MOST_QUESTIONS]],
        max_new_tokens=intake.check_new_tokens(max_new_tokens),
        image=intake.open_image(image_source),
    )


def check_tensions(values: Any) -> list[float]:
    """Three numbers in [0, 1], or IntakeError."""
    good = isinstance(values, list | tuple) and len(values) == 3
    if not good or not all(type(v) in (int, float) and 0 <= v <= 1 for v in values):
        raise intake.IntakeError(
            "The tensions are not understood; allowed are three numbers, 0 to 1."
        )
    return [float(value) for value in values]


def compare(model: Any, image_source, question: str, share: float = 0.20, **settings):
    """Check, run the looks, and give the `ComparisonResult`; arguments and errors as `check`."""
    return last(compare_stream(model, check(image_source, question, share, **settings)))


def last(records: Iterator[tuple[str, Any]]) -> ComparisonResult:
    """The final record's value of a stream."""
    *_, (_, result) = records
    return result


def compare_stream(
    model: Any, request: Request, deadline_s: float = DEADLINE_S
) -> Iterator[tuple[str, Any]]:
    """Run the looks of a checked request; see the module for the records.

    Args:
        model: an `ARRCOCQwen`, or anything with its `stream`, `name`, `device`, `is_bundled`.
        request: from `check`.
        deadline_s: seconds of decoding allowed to each look.
    """
    warm_up(model)
    if request["questions"]:
        yield from _wheres(model, request)
        return
    common = {"max_new_tokens": request["max_new_tokens"], "deadline_s": deadline_s}
    if request["native"]:
        common["grid"] = cutting.grid_of(request["image"].size, request["native"])
    full, focused, shrunk, where = empty_look(), empty_look(), None, None
    for full, _ in _looks(model, request, use_arr_coc=False, **common):
        yield "full", full
    try:
        if full["visual_tokens_full"]:
            intake.check_budget(request["budget"], full["visual_tokens_full"])
        config = config_of(request)
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
    if request["shrunk"] and where and not focused["error"]:
        common["grid"] = small_grid(where["grid"], focused["visual_tokens"])
        for shrunk, _ in _looks(model, request, use_arr_coc=False, **common):
            shrunk = {**shrunk, "visual_tokens_full": focused["visual_tokens_full"]}
            yield "shrunk", shrunk
    yield "result", result_of(model, request["question"], full, focused, shrunk, where)


def _wheres(model: Any, request: Request) -> Iterator[tuple[str, Any]]:
    """Where each of the request's questions would look; ("error", sentence) where that fails."""
    try:
        for question in request["questions"]:
            found = model.realize(request["image"], question, config_of(request))
            yield "where", describe_where(found)
    except Exception as error:  # a worker must live on
        log.exception("a decision failed")
        yield "error", sentence(error)


def config_of(request: Request):
    """The `realizing.Config` of a checked request; ValueError where it does not fit."""
    from arr_coc.config import Config

    names = ("share", "budget", "glance", "prune", "allocator", "tier", "revision")
    settings = {name: request[name] for name in names}
    if request["tensions"] is not None:
        from arr_coc.config import Tensions

        settings["tensions"] = Tensions(*request["tensions"])
    return Config(**settings)


def tokens_of(request: Request, available: int) -> int:
    """Visual tokens that a checked request spends on a picture of `available`."""
    from arr_coc.balancing import lexical_tier

    return config_of(request).tokens(available, lexical_tier(request["question"]))


def small_grid(grid: list[int], tokens: int) -> tuple[int, int]:
    """Rows and columns of the picture shrunk to at most `tokens`, its aspect kept."""
    from arr_coc.qwen import inputs

    return inputs.small_grid(tuple(grid), tokens)


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
        first_token_entropy=None,
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


def result_of(model, question, full, focused, shrunk=None, where=None) -> ComparisonResult:
    """The looks put side by side; `where` is the decision that `focused` followed."""
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
        shrunk=shrunk,
        tokens_kept=focused["visual_tokens"],
        tokens_total=focused["visual_tokens_full"] or full["visual_tokens_full"],
        ratio=ratio,
        where=where,
    )


def finish_interrupted(records: Iterator[tuple[str, Any]], model: Any, request: Request):
    """The records of `comparing.compare_stream`, ended properly even where a worker dies.

    What was finished stands: after a finished full look the last record is a "result" in which the
    look under way carries the sentence. Without one the exception goes on.
    """
    done: dict[str, Any] = {}
    try:
        for kind, value in records:
            done[kind] = value
            yield kind, value
    except Exception as error:
        full, focused = (done.get(key, empty_look()) for key in ("full", "focused"))
        if not full["done"] or full["error"]:
            raise
        log.exception("a worker ended after the full look")
        failed, shrunk = {"done": True, "error": plainly(error)}, None
        if not focused["done"]:
            focused = {**focused, **failed}
        elif request["shrunk"]:
            shrunk = {**done.get("shrunk", empty_look()), **failed}
        yield "result", result_of(model, request["question"], full, focused, shrunk)
