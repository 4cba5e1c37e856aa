"""Looks: the plain records of one look at a picture, and of the looks side by side.

They survive pickling and JSON, so that they can leave the model's process and go over the API.
"""

from typing import TYPE_CHECKING, Any, TypedDict

from arr_coc import naming
from arr_coc.service.decision import Where

if TYPE_CHECKING:  # it loads torch
    from arr_coc.components import Origin


# What answers where a server stands in the model's place (`service.served`).
SERVER_DEVICE = "server"
UNNAMED = "a server that does not answer now"
NO_MAP = "The answers come from a server, which keeps to itself where it looked: there is no map."


class LookResult(TypedDict):
    """One look at the picture. Numbers are 0 and `stages_s` empty until the look is done.

    `ended` is why the answer stopped: "end" (the model was done), "length" (as many tokens as were
    allowed) or "time" (the deadline); "" before. `in_full` is why `when="auto"` answered in full.
    """

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
    ended: str
    in_full: str | None


class Source(TypedDict):
    """Where a base or ARR-COC weights are from.

    `name` is a Hub id or a folder's name, `revision` what was asked for ("" for the latest), `commit` of
    the Hub repo ("" of a folder).
    """

    name: str
    revision: str
    commit: str


class MadeBy(TypedDict):
    """What answered: the base, and ARR-COC's weights, None where it was training-free.

    `notices` are what else should be known of them.
    """

    model: str
    base: Source
    weights: Source | None
    notices: list[str]
    bundled: bool
    device: str


class ComparisonResult(MadeBy):
    """The looks side by side; `shrunk` where it was asked for.

    `ratio` is the stock time to the first token over ARR-COC's, from this one run: above 1 the
    focused look came first. None where either failed.
    """

    question: str
    full: LookResult
    focused: LookResult
    shrunk: LookResult | None
    tokens_kept: int
    tokens_total: int
    ratio: float | None
    where: Where | None


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
        ended="",
        in_full=None,
    )


def is_cut(look: LookResult) -> bool:
    """Whether the answer was cut off, so that it is not judged; recordings older than `ended` were not."""
    return look.get("ended", "end") in ("length", "time")


def weights_source(origin: "Origin | None") -> Source | None:
    """Where trained weights are from, as plain values."""
    if origin is None:
        return None
    return Source(name=origin.name, revision=origin.revision or "", commit=origin.commit or "")


def made_by(model: Any, origin: "Origin | None" = None) -> MadeBy:
    """Which model gives an answer; `origin` is of the weights that decide."""
    name = str(model.name)
    return MadeBy(
        model=name,
        base=Source(name=name, revision="", commit=getattr(model, "revision", None) or ""),
        weights=weights_source(origin),
        notices=[naming.without_folders(said) for said in getattr(model, "notices", ())],
        bundled=bool(model.is_bundled),
        device=str(model.device),
    )


def result_of(
    model: Any,
    question: str,
    full: LookResult,
    focused: LookResult,
    shrunk: LookResult | None = None,
    where: Where | None = None,
    origin: "Origin | None" = None,
) -> ComparisonResult:
    """The looks put side by side; `where` is what `focused` followed, decided by weights of `origin`."""
    ratio = None
    if not full["error"] and not focused["error"] and focused["time_to_first_token_s"] > 0:
        ratio = round(full["time_to_first_token_s"] / focused["time_to_first_token_s"], 3)
    return ComparisonResult(
        question=question,
        **made_by(model, origin),
        full=full,
        focused=focused,
        shrunk=shrunk,
        tokens_kept=focused["visual_tokens"],
        tokens_total=focused["visual_tokens_full"] or full["visual_tokens_full"],
        ratio=ratio,
        where=where,
    )
