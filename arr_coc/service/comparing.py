"""Comparing: the one service under page and API: the stock answer, then ARR-COC's, then both.

`check` is the door: it refuses bad input with an `IntakeError` before any model is asked. Then
`compare_stream` yields plain records that survive pickling (a GPU worker is another process):

    ("full", LookResult)       the stock model's answer so far; the last one carries its measures
    ("focused", LookResult)    the same for ARR-COC
    ("shrunk", LookResult)     the same for the picture resized to as many tokens, where asked for
    ("result", ComparisonResult)   once, last: everything

A request with further `questions` gives ("where", Where) for each instead, and no answers; one with
`places` gives ("contest", Contest), one that asks what `matters` ("mattered", Mattered).

It does not raise for what a visitor can cause: a failed look has its sentence in `error`, and the
other looks still arrive.
"""

import logging
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from PIL import Image

from arr_coc.config import (
    ALLOCATORS,
    AUTO,
    CONTEXTS,
    DEADLINE_S,
    GLANCES,
    NEW_TOKENS,
    PRUNES,
    TIER_NAMES,
    WHENS,
    Config,
    Tensions,
    small_grid,
)
from arr_coc.service import intake, token_grid
from arr_coc.service.decision import describe_where
from arr_coc.service.errors import plainly, sentence
from arr_coc.service.looks import ComparisonResult, LookResult, empty_look, result_of
from arr_coc.service.settings import check_revision, check_tensions, check_yes, named_revision

if TYPE_CHECKING:  # it loads torch
    from arr_coc.components import Origin

log = logging.getLogger(__name__)

MOST_QUESTIONS = 3
NOT_AUTO = (
    'The share "auto" spends tokens in rounds; it is allowed where places are dropped before the encoder, '
    "and with every allocator but the quadtree."
)
_warm: WeakKeyDictionary = WeakKeyDictionary()  # model -> the process it has answered in


@dataclass(frozen=True)
class Request:
    """What passed the door: a picture, a question, and how to spend tokens on them. It can be pickled.

    Attributes:
        image: RGB, upright, at most `intake.USEFUL_PIXELS`.
        question: one clean line.
        config: how the focused look spends its tokens.
        shrunk: look a third time, at the picture resized to the focused look's tokens.
        native_tokens: visual tokens to cut the picture into first; None as it is.
        questions: those whose maps alone are wanted, in place of answers.
        places: those that somebody chose, to be answered from beside the model's own choice.
        matters: which kept places the answer hangs on is wanted, in place of answers.
        max_new_tokens: longest answer, in tokens.
    """

    image: Image.Image
    question: str
    config: Config
    shrunk: bool = False
    native_tokens: int | None = None
    questions: tuple[str, ...] = ()
    places: tuple[tuple[int, int], ...] = ()
    matters: bool = False
    max_new_tokens: int = NEW_TOKENS

    def tokens(self, available: int) -> int:
        """Visual tokens that the focused look spends on a picture of `available`."""
        from arr_coc.balancing import lexical_tier

        return self.config.tokens(available, lexical_tier(self.question))

    def grid(self) -> tuple[int, int] | None:
        """Rows and columns that the picture is to be cut into; None as it is."""
        if not self.native_tokens:
            return None
        return token_grid.grid_of(self.image.size, self.native_tokens)


def check(
    image_source: str | Path | bytes | Image.Image,
    question: str,
    share: float | str = Config.share,
    *,
    budget: int | None = Config.budget,
    glance: str = Config.glance,
    prune: str = Config.prune,
    context: str = Config.context,
    when: str = Config.when,
    allocator: str = Config.allocator,
    tier: str | None = Config.tier,
    tensions: Sequence[float] | None = None,
    revision: str | None = Config.revision,
    shrunk: bool = False,
    native_tokens: int | None = None,
    questions: Sequence[str] = (),
    max_new_tokens: int = NEW_TOKENS,
) -> Request:
    """Check everything a visitor gives, cheap things first, and translate the settings, once; no model.

    Args:
        image_source: path, `data:` URL, bytes or PIL image.
        question: at most `intake.MAX_QUESTION` characters.
        share: of the picture's visual tokens, in [0.05, 1], or "auto": as many as the relevance asks for,
            and more while unsure.
        budget: visual tokens, which overrides the share.
        glance, prune, context, when, allocator: as in `Config`.
        tier: one of `config.TIER_NAMES`, which overrides the share, or None.
        tensions: compress, exploit and focus in [0, 1], or None to let the policy choose.
        revision: of the ARR-COC weights, of those loaded; None or "" for the default, "none" for none.
        shrunk: look a third time, at the picture resized to the focused look's tokens.
        native_tokens: to cut the picture into first, one of `token_grid.SIZES`; None as it is.
        questions: up to three whose maps alone are wanted, in place of answers.
        max_new_tokens: longest answer, in tokens.

    Raises:
        IntakeError: with one sentence fit for the visitor.
    """
    question = intake.clean_question(question)
    if share == AUTO and (prune == "after" or allocator == "quadtree"):
        raise intake.IntakeError(NOT_AUTO)
    config = Config(
        share=AUTO if share == AUTO else intake.check_share(share),
        budget=intake.check_budget(budget),
        glance=intake.check_choice(glance, "glance", GLANCES),
        prune=intake.check_choice(prune, "place to prune", PRUNES),
        context=intake.check_choice(context, "context", CONTEXTS),
        when=intake.check_choice(when, "when", WHENS),
        allocator=intake.check_choice(allocator, "allocator", ALLOCATORS),
        tier=None if tier is None else intake.check_choice(tier, "tier", TIER_NAMES),
        tensions=None if tensions is None else Tensions(*check_tensions(tensions)),
        revision=named_revision(revision),
    )
    return Request(
        question=question,
        config=config,
        shrunk=check_yes(shrunk, "setting shrunk"),
        native_tokens=token_grid.check(native_tokens),
        questions=tuple(intake.clean_question(text) for text in questions[:MOST_QUESTIONS]),
        max_new_tokens=intake.check_new_tokens(max_new_tokens),
        image=intake.open_image(image_source),
    )


def compare(
    model: Any,
    image_source: str | Path | bytes | Image.Image,
    question: str,
    share: float = Config.share,
    **settings: Any,
) -> ComparisonResult:
    """Check, run the looks, and return the result; arguments and errors as `check`."""
    return last(compare_stream(model, check(image_source, question, share, **settings)))


def last(records: Iterator[tuple[str, Any]]) -> ComparisonResult:
    """The final record's value of a stream."""
    *_, (_, result) = records
    return result


def last_or_refusal(records: Iterator[tuple[str, Any]]) -> Any:
    """As `last`; IntakeError with its sentence where the final record is an "error"."""
    *_, (kind, value) = records
    if kind == "error":
        raise intake.IntakeError(value)
    return value


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
    if request.questions or request.places or request.matters:
        yield from _besides(model, request)
        return
    options = {"max_new_tokens": request.max_new_tokens, "deadline_s": deadline_s}
    if grid := request.grid():
        options["grid"] = grid
    full, focused, shrunk, where = empty_look(), empty_look(), None, None
    for full, _ in looks_of(model, request, use_arr_coc=False, **options):
        yield "full", full
    try:
        if full["error"] in getattr(model, "gone", ()):  # who waited in vain does not wait twice
            raise intake.IntakeError(full["error"])
        check_revision(model, request.config.revision)
        if full["visual_tokens_full"]:
            intake.check_budget(request.config.budget, full["visual_tokens_full"])
    except intake.IntakeError as error:
        focused = {**empty_look(), "done": True, "error": sentence(error)}
        yield "focused", focused
    else:
        looks = looks_of(model, request, use_arr_coc=True, config=request.config, **options)
        for focused, realization in looks:
            if focused["done"] and realization is not None:
                where = describe_where(realization)
            yield "focused", focused
    if request.shrunk and where and not focused["error"]:
        options["grid"] = small_grid(tuple(where["grid"]), focused["visual_tokens"])
        for shrunk, _ in looks_of(model, request, use_arr_coc=False, **options):
            shrunk = {**shrunk, "visual_tokens_full": focused["visual_tokens_full"]}
            yield "shrunk", shrunk
    origin = origin_of(model, request.config)
    yield "result", result_of(model, request.question, full, focused, shrunk, where, origin)


def origin_of(model: Any, config: Config) -> "Origin | None":
    """Where the weights that decide under a config are from; None where it is training-free."""
    if not hasattr(model, "policy"):
        return None
    try:
        return getattr(model.policy(config), "origin", None)
    except ValueError:  # no such revision: the look has said it
        return None


def _besides(model: Any, request: Request) -> Iterator[tuple[str, Any]]:
    """What is asked in place of a comparison; ("error", sentence) where that fails."""
    from arr_coc.service.choosing import describe_contest
    from arr_coc.service.mattering import describe_mattering

    image, question, config = request.image, request.question, request.config
    try:
        check_revision(model, config.revision)
        if request.places:
            origin = origin_of(model, config)
            places, budget = request.places, config.budget
            yield "contest", describe_contest(model, image, question, places, budget, origin)
        elif request.matters:
            yield "mattered", describe_mattering(model, image, question, config)
        for other in request.questions:
            yield "where", describe_where(model.realize(image, other, config, request.grid()))
    except Exception as error:  # a worker must live on
        if not isinstance(error, intake.IntakeError):
            log.exception("a decision failed")
        yield "error", sentence(error)


def warm_up(model: Any) -> None:
    """Once per process and model: short answers, so that no visitor's measure holds lazy set-up."""
    if _warm.get(model) != os.getpid() and hasattr(model, "warm_up"):
        try:
            model.warm_up()
        except Exception:  # what fails here will fail again, and be said, in the look itself
            log.exception("warming up failed")
    _warm[model] = os.getpid()


def looks_of(model: Any, request: Request, **options: Any) -> Iterator[tuple[LookResult, Any]]:
    """Snapshots of one look, each with its realization; the last is done or has an error."""
    look = empty_look()
    try:
        for answer in model.stream(request.image, request.question, **options):
            look = {**look, "text": answer.text, "stage": answer.stage, "done": answer.done}
            if answer.measures is not None:
                measures = asdict(answer.measures)
                stages = {name: round(spent, 6) for name, spent in measures.pop("stages").items()}
                seconds = round(measures.pop("time_to_first_token"), 6)
                look = {**look, **measures, "stages_s": stages, "time_to_first_token_s": seconds}
                if not math.isfinite(look["first_token_entropy"] or 0):  # JSON has no NaN
                    look["first_token_entropy"] = None
            yield look, answer.realization
    except Exception as error:  # the other look must still arrive, and a worker must live on
        log.exception("a look failed")
        yield {**look, "done": True, "error": sentence(error)}, None


def finish_interrupted(
    records: Iterator[tuple[str, Any]], model: Any, request: Request
) -> Iterator[tuple[str, Any]]:
    """The records of `compare_stream`, ended properly even where a worker dies.

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
        elif request.shrunk:
            shrunk = {**done.get("shrunk", empty_look()), **failed}
        yield "result", result_of(model, request.question, full, focused, shrunk)
