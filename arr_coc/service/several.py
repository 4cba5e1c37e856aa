"""Several: a clip, or up to six pictures, in place of one picture: checked, asked, and what came of it.

`check_clip` and `check_pictures` are the door, as `comparing.check`. `compare_stream` yields the records of
`comparing`, where a clip's "shrunk" look is at fewer of its moments, and one more before the result:
("moments", Decided), what was decided of each of them.
`collected` puts them together. A failed look has its sentence in `error`, and the other still arrives.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from PIL import Image

from arr_coc import clips
from arr_coc.config import DEADLINE_S, MAX_PICTURES, NEW_TOKENS, Config
from arr_coc.service import comparing, intake
from arr_coc.service.decision import as_rows
from arr_coc.service.looks import SERVER_DEVICE, ComparisonResult, LookResult, MadeBy, empty_look
from arr_coc.service.settings import check_yes

if TYPE_CHECKING:  # it loads torch
    from arr_coc.temporal import Moments


READABLE = clips.READABLE
CLIPS = "clips"  # among the scores of a base
SCORES = Path(__file__).parent.parent / "bundled" / "base" / "scores.json"
ONE_PICTURE = "The answers come from a server, which takes one picture and no clip."


class Moment(TypedDict):
    """What one moment of a clip, or one of the pictures, got.

    `time` is in seconds since the clip began, None of pictures; `cut` says that it began a new fixation.
    `tokens` of `tokens_total` visual tokens were kept. `cells` are rows of level, row and column in a grid
    of `grid` rows and columns; `relevance` is as many rows of numbers in [0, 1], None after a fallback.
    """

    time: float | None
    cut: bool
    tokens: int
    tokens_total: int
    grid: list[int]
    cells: list[list[int]]
    cell_budgets: list[float]
    relevance: list[list[float]] | None


class Decided(TypedDict):
    """One decision over all of them; `fallback` is why tokens were spread evenly, or None."""

    moments: list[Moment]
    compress: float
    exploit: float
    focus: float
    fallback: str | None


class SeveralResult(MadeBy):
    """Both looks at a clip or at several pictures.

    `fewer` is the stock model's at so few whole moments that they have as many tokens as the focused look,
    where it was asked for. `ratio` is the stock time to the first token over ARR-COC's; `decided` is None
    where the focused look failed, and `notice` what should be known of the model in this.
    """

    question: str
    full: LookResult
    focused: LookResult
    fewer: LookResult | None
    tokens_kept: int
    tokens_total: int
    ratio: float | None
    decided: Decided | None
    notice: str


UNTRAINED = (
    "The bundled model was not trained on clips or on several pictures: it reads them, and its answers "
    "mean nothing."
)


@dataclass(frozen=True)
class Request:
    """What passed the door: a clip or pictures, a question, and how to spend tokens. It can be pickled.

    Attributes:
        image: a `Clip`, or RGB pictures, upright.
        question: one clean line.
        config: how the focused look spends its tokens.
        max_new_tokens: longest answer, in tokens.
        shrunk: look a third time, at fewer moments of the clip; as of `comparing.Request`.
    """

    image: clips.Clip | list[Image.Image]
    question: str
    config: Config
    max_new_tokens: int = NEW_TOKENS
    shrunk: bool = False

    @property
    def pictures(self) -> list[Image.Image]:
        """The clip's frames, or the pictures."""
        return list(self.image.frames) if isinstance(self.image, clips.Clip) else self.image

    @property
    def firsts(self) -> list[Image.Image]:
        """One picture for each moment, its first frame; or the pictures."""
        return (
            self.pictures[:: clips.FRAMES_OF_MOMENT]
            if isinstance(self.image, clips.Clip)
            else self.image
        )


def check_clip(
    source: Any,
    question: str,
    share: float = Config.share,
    *,
    frames: int | None = None,
    fps: float | None = None,
    max_new_tokens: int = NEW_TOKENS,
    fewer: bool = False,
) -> Request:
    """Check what a visitor gives with a clip; no model.

    Args:
        source: path, `data:` URL or bytes of an MP4, WebM or GIF file.
        question, share, max_new_tokens: as of `comparing.check`.
        frames, fps: as of `clips.read_clip`.
        fewer: look a third time, at fewer moments.

    Raises:
        IntakeError: with one sentence fit for the visitor.
    """
    settings = _settings(question, share, max_new_tokens)
    if frames is not None:
        allowed = f"allowed is a whole number from 1 to {clips.MAX_FRAMES}"
        frames = intake.check_whole(frames, "number of frames", 1, clips.MAX_FRAMES, allowed)
    if fps is not None:
        fps = intake.check_number(fps, "number of frames a second", "allowed is one above 0")
    if intake.is_data_url(source):
        source = intake.read(source)
    if isinstance(source, bytes | str) and not source:
        raise intake.IntakeError(f"No clip was given; allowed is one {clips.READABLE} file.")
    try:
        clip = clips.read_clip(source, frames=frames, fps=fps)
    except ValueError as error:
        raise intake.IntakeError(str(error)) from error
    return Request(clip, *settings, shrunk=check_yes(fewer, "setting fewer"))


def check_pictures(
    sources: Any,
    question: str,
    share: float = Config.share,
    *,
    max_new_tokens: int = NEW_TOKENS,
) -> Request:
    """As `check_clip`, with 1 to `MAX_PICTURES` pictures as of `comparing.check`."""
    settings = _settings(question, share, max_new_tokens)
    check_count(sources)
    pictures = []
    for number, source in enumerate(sources, 1):
        try:
            pictures.append(intake.open_image(source))
        except intake.IntakeError as error:
            raise intake.IntakeError(f"Picture {number}: {error}") from error
    return Request(pictures, *settings)


def check_count(sources: Any) -> None:
    """Raise IntakeError unless there are 1 to `MAX_PICTURES` of them."""
    allowed = f"1 to {MAX_PICTURES} are allowed."
    if not isinstance(sources, list | tuple):
        raise intake.IntakeError(f"No list of pictures was given; {allowed}")
    if not 1 <= len(sources) <= MAX_PICTURES:
        raise intake.IntakeError(f"{len(sources)} pictures were given; {allowed}")


def _settings(question: str, share: float, max_new_tokens: int) -> tuple[str, Config, int]:
    config = Config(share=intake.check_share(share))
    return intake.clean_question(question), config, intake.check_new_tokens(max_new_tokens)


def compare_stream(
    model: Any, request: Request, deadline_s: float = DEADLINE_S
) -> Iterator[tuple[str, Any]]:
    """Both looks of a checked request; see the module for the records. Arguments as of `comparing`."""
    comparing.warm_up(model)
    full, focused = empty_look(), empty_look()
    if str(model.device) == SERVER_DEVICE:
        full = focused = {**empty_look(), "done": True, "error": ONE_PICTURE}
        yield "result", comparing.result_of(model, request.question, full, focused)
        return
    options = {"max_new_tokens": request.max_new_tokens, "deadline_s": deadline_s}
    for full, _ in comparing.looks_of(model, request, use_arr_coc=False, **options):
        yield "full", full
    asked, decided = {"use_arr_coc": True, "config": request.config, **options}, None
    for focused, moments in comparing.looks_of(model, request, **asked):
        if focused["done"] and moments is not None:
            decided = moments
            yield "moments", describe_moments(moments)
        yield "focused", focused
    fewer = None
    if request.shrunk and decided and not focused["error"]:
        for fewer in _at_fewer(model, request, decided, focused, options):
            yield "shrunk", fewer
    origin = comparing.origin_of(model, request.config)
    yield (
        "result",
        comparing.result_of(model, request.question, full, focused, fewer, origin=origin),
    )


def _at_fewer(
    model: Any, request: Request, decided: "Moments", focused: LookResult, options: dict[str, Any]
) -> Iterator[LookResult]:
    """Snapshots of the stock model's look at as many tokens as `focused` had, in fewer moments."""
    native = decided.views[0].grid
    count, budget = len(request.image.frames), focused["visual_tokens"]
    numbers, grid = clips.fewer_frames(count, len(decided.views), native, budget)
    asked = replace(request, image=clips.with_frames(request.image, numbers))
    for look, _ in comparing.looks_of(model, asked, use_arr_coc=False, grid=grid, **options):
        yield {**look, "visual_tokens_full": focused["visual_tokens_full"]}


def describe_moments(moments: "Moments") -> Decided:
    """A decision as plain numbers."""
    times = moments.times or (None,) * len(moments.views)
    tensions = moments.tensions
    described = []
    for time, cut, view in zip(times, moments.cuts, moments.views, strict=True):
        kept = view.allocation
        described.append(
            Moment(
                time=None if time is None else round(float(time), 3),
                cut=bool(cut),
                tokens=len(kept),
                tokens_total=view.grid[0] * view.grid[1],
                grid=list(view.grid),
                cells=kept.cells.tolist(),
                cell_budgets=[round(budget, 1) for budget in kept.budgets.tolist()],
                relevance=None if moments.fallback else as_rows(view.relevance),
            )
        )
    return Decided(
        moments=described,
        compress=round(tensions.compress, 4),
        exploit=round(tensions.exploit, 4),
        focus=round(tensions.focus, 4),
        fallback=moments.fallback,
    )


@cache
def was_scored_on_clips(scores: Path = SCORES) -> bool:
    """Whether the bundled base was trained, and so scored, on clips too."""
    return CLIPS in json.loads(scores.read_text(encoding="utf-8"))


def collected(records: Iterable[tuple[str, Any]]) -> SeveralResult:
    """All records of one request as one result."""
    seen: dict[str, Any] = dict(records)
    return result_of(seen["result"], seen.get("moments"))


def result_of(result: ComparisonResult, decided: Decided | None) -> SeveralResult:
    """The looks with what was decided; a decision whose look failed is left out."""
    if result["focused"]["error"]:
        decided = None
    besides = {name: value for name, value in result.items() if name not in ("shrunk", "where")}
    notice = UNTRAINED * (result["bundled"] and not was_scored_on_clips())
    return SeveralResult(**besides, fewer=result["shrunk"], decided=decided, notice=notice)
