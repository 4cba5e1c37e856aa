"""Model handlers: what the page asks of the model: compare, stop, look at other questions, wake up.

Methods of `ModelHandlers` are gradio handlers over a loader and the one GPU function, which `app.py`
hands in.
"""

import html
import re
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import gradio as gr
from gradio.utils import get_upload_folder
from PIL import Image

from arr_coc.page import board, drawn, frame, hero, parts, results
from arr_coc.page.board import Shown
from arr_coc.page.changes import UNCHANGED, Compared, Overtaken, Ready, Stopped
from arr_coc.page.local_handlers import LocalHandlers
from arr_coc.page.refusals import refusal, sentence_of, spoken
from arr_coc.page.stamps import Turn, mark, stamp_of
from arr_coc.page.visit import NO_PICTURE, Visit
from arr_coc.service import comparing, intake, journal, token_grid
from arr_coc.service.comparing import Request, finish_interrupted
from arr_coc.service.loader import Loader, at_once
from arr_coc.service.looks import NO_MAP, SERVER_DEVICE, UNNAMED, Source, empty_look, weights_source
from arr_coc.service.settings import named
from arr_coc.service.uploads import source_of

LAST_RUNS = 20  # whose seconds tell how long the queue will take
WORTH_SAYING_S = 3.0
SPEAKS_OF_SHRUNK = re.compile(r"[^.]*\b[Ss]hrink\w*[^.]*\.")
NOT_YET = "The model is waking up; what this costs is known when it is there."
PATIENCE_S = 5.0  # that a game waits for the model
SHORT = 7  # digits of a commit
FREE = gr.update(interactive=True)
NO_REASONS = {"saw": "", "why": "", "gauges": ""}  # they belong to a finished look


class ModelHandlers:
    """The handlers, around the one GPU function, which takes a `Request` and yields records."""

    def __init__(
        self,
        local: LocalHandlers,
        loader: Loader,
        on_gpu: Callable[[Request], Iterator[tuple[str, Any]]],
        waiting: Callable[[], int] = lambda: 0,
    ) -> None:
        """`local` knows the cards and their truth; `waiting` counts the requests that wait for the GPU."""
        self.local, self.loader, self.on_gpu, self.waiting = local, loader, on_gpu, waiting
        self.took: deque[float] = deque(maxlen=LAST_RUNS)  # seconds of comparisons

    def run(self, request: Request) -> Iterator[tuple[str, Any]]:
        """The records of one request, ended properly and noted where it is wished; how long it took."""
        begun = time.monotonic()
        records = finish_interrupted(self.on_gpu(request), self.loader.get(), request)
        for kind, value in journal.noted(records, request):
            if kind == "result":  # the page reads no further
                self.took.append(time.monotonic() - begun)
            yield kind, value

    def on_waiting(self, turn: Turn | None = None, run: Any = "") -> str:
        """How long a request that was just made will wait, in a sentence; "" where it hardly will."""
        (turn or Turn()).take(run)
        waiting = self.waiting()
        seconds = waiting / at_once() * statistics.median(self.took) if self.took else 0
        if seconds < WORTH_SAYING_S:
            return ""
        return f"{results.WAITS}: {waiting} in the queue, about {seconds:.0f} s…"

    def answered(self, image: Any, question: str, settings: Any, *, alone: bool = False) -> Any:
        """The last record of a request from the API; refusals become sentences.

        `settings` are those of `comparing.check` by name; `alone` asks for the decision without answers.
        """
        try:
            source = source_of(image, get_upload_folder())
            own = {"questions": (question,)} if alone else {}
            request = comparing.check(source, question, **named(settings), **own)
            token_grid.check(request.native_tokens, token_grid.sizes(self.loader.get()))
            records = self.run(request)
            return comparing.last_or_refusal(records)
        except Exception as error:  # whatever it is, it is said in a sentence
            raise refusal(error) from None

    def on_compare(
        self, turn: Turn | None = None, run: Any = "", **inputs: Any
    ) -> Iterator[Compared]:
        """Stream the looks, then what they cost and where looking paid; the inputs make a `Visit`.

        Once the run has lost its turn nothing more is shown, not even a refusal.
        """
        turn = turn or Turn()
        try:
            yield from _held(turn, run, self._compared(self.local.visited(inputs), str(run)))
        except Exception as error:  # whatever it is, it is said in a sentence
            if not turn.holds(run):
                yield Compared()
                return
            failure = refusal(error)
            yield Compared(
                answers=results.answers(None, None),
                strip=results.message(html.unescape(failure.message)),
                **NO_REASONS,
                cost="",
                hero=hero.hero(None),
                shown=None,
                looks=None,
                go=FREE,
            )
            raise failure from None

    def _compared(self, visit: Visit, run: str) -> Iterator[Compared]:
        stamp = stamp_of(visit, run)
        stamped = mark(stamp, done=False)
        request = visit.request()
        truth = self.local.truth_of(request.question, visit.card, visit.drawn)
        looks = _nothing()
        answers = results.answers(**looks, truth=truth, running=True)
        yield Compared(
            answers=answers + stamped,
            strip="",
            cost="",
            hero=hero.hero(None),
            shown=None,
            looks={**looks, "stamp": stamp},
        )
        token_grid.check(visit.native_tokens, token_grid.sizes(self.loader.get()))
        for kind, value in self.run(request):
            if kind == "result":
                break
            looks[kind] = value
            answers = results.answers(**looks, truth=truth, running=True)
            yield Compared(answers=answers + stamped, looks={**looks, "stamp": stamp})
        note = _note(self.local, visit, request, value)
        shown = board.live(request.image, value, truth, note, stamp)
        pieces = board.board(shown)._asdict()
        yield Compared(**pieces, said_tensions=spoken(), shown=shown, looks=None, go=FREE)

    def on_stop(
        self, looks: Any, turn: Turn | None = None, run: Any = "", shown: Shown | None = None
    ) -> Stopped:
        """After Stop, or whatever overtakes a run: what had come so far stays.

        The reasons shown go: they belong to a finished look. Where nothing ran yet, the answers are again
        those `shown` before.
        """
        (turn or Turn()).take(run)
        if not looks:
            answers = board.board(shown).answers if shown else UNCHANGED
            return Stopped(answers=answers, go=FREE)
        stamp = looks.get("stamp")
        came = {name: look for name, look in looks.items() if name != "stamp"}
        answers = results.answers(**came) + mark(stamp)
        return Stopped(answers=answers, **NO_REASONS, go=FREE)

    def on_late(
        self, looks: Any, turn: Turn | None = None, run: Any = "", shown: Shown | None = None
    ) -> Compared:
        """What a run brought after it had been ended goes: all is again as it is `shown`, or stopped."""
        if shown:
            return Compared(**board.board(shown)._asdict(), looks=None, go=FREE)
        return Compared(**self.on_stop(looks or _nothing(), turn, run)._asdict())

    def on_overtaken(self, turn: Turn | None = None, run: Any = "") -> Overtaken:
        """Another picture came while a run was open: what that still brings is not shown."""
        (turn or Turn()).take(run)
        return Overtaken(go=FREE)

    def on_ready(self) -> Ready:
        """Once the model is there: the badge, what can be asked, signs, revisions, sizes to cut to.

        Before, how far it is: a first download may take minutes. Every open tab asks, so none is held.
        """
        try:
            model = self.loader.get(0.0)
        except intake.IntakeError as error:
            if self.loader.ready.is_set():
                badge = frame.badge_failed(self.loader.error or str(error))
                return Ready(frame.header(badge), waking=gr.update(active=self.loader.tries_again))
            badge = frame.badge_loading(self.loader.fetched)
            return Ready(frame.header(badge), waking=gr.update(active=True))
        learned = getattr(model, "policies", None) or {}
        known = _known(self.loader, learned)
        badge = frame.badge_ready(
            str(model.name),
            model.is_bundled,
            str(getattr(model, "placed", model.device)),
            bool(learned),
            **known,
        )
        reads = not model.is_bundled or drawn.can_read(drawn.good_kinds())
        return Ready(
            header=frame.header(badge),
            waking=gr.update(active=model.name == UNNAMED),  # a server may come up late
            about=parts.about(model.is_bundled, " ".join(frame.what_runs(**known))),
            sign=gr.update(visible=reads),
            revision=gr.update(choices=parts.revision_choices(list(learned))),
            native_tokens=gr.update(choices=token_grid.choices(model)),
        )

    def on_cut(self, **inputs: Any) -> str:
        """What cutting the picture into so many tokens would cost, in a sentence; nothing is run."""
        visit, model = self.local.visited(inputs), self.loader.model
        if model is None or visit.picture is None:
            return results.message(_not_yet(self.loader) if visit.picture else NO_PICTURE)
        try:
            chosen = token_grid.check(visit.native_tokens, token_grid.sizes(model))
            size = intake.size_of(visit.picture)
            blank = Image.new("RGB", (intake.MIN_SIDE,) * 2)  # the size alone counts
            request = replace(visit, picture=blank, question=visit.question or "what?").request()
        except intake.IntakeError as error:
            return results.message(str(error))
        before, full = (token_grid.tokens_of(model, size, cut) for cut in (None, chosen))
        outside = token_grid.OUTSIDE * token_grid.is_outside(model, chosen)
        words = token_grid.cost_words(full, request.tokens(full), before)
        return results.message(words + outside)

    def on_others(self, **inputs: Any) -> str:
        """Where other questions about the same picture would look, side by side."""
        try:
            visit = self.local.visited(inputs)
            questions = visit.questions()
            first = questions[0] if questions else ""
            request = replace(visit, question=first).request(questions)
            token_grid.check(visit.native_tokens, token_grid.sizes(self.loader.get()))
            records = list(self.run(request))
            kind, value = records[-1]
            if kind == "error":
                raise intake.IntakeError(value)
            wheres = [where for _, where in records]
            stamp = {**stamp_of(visit), "question": None}
            return board.side_by_side(request.image, request.questions, wheres) + mark(stamp)
        except Exception as error:  # whatever it is, it is said in a sentence
            return sentence_of(error)


def _not_yet(loader: Loader) -> str:
    """Why nothing is known of the model: it comes, or it could not be loaded."""
    try:
        loader.get(0.0)
    except intake.IntakeError as error:
        return str(error) if loader.ready.is_set() else NOT_YET
    return NOT_YET


def _known(loader: Loader, learned: Mapping[str, Any]) -> dict[str, Any]:
    """Of the loaded base and weights, as `frame.what_runs` takes it."""
    commit = loader.model.revision
    origins = [_words(weights_source(policy.origin)) for policy in learned.values()]
    return {
        "notices": loader.notices,
        "base": f"{loader.model.name} at {commit[:SHORT]}" if commit else "",
        "weights": ", ".join(filter(None, origins)),
        "health": loader.health,
    }


def _words(source: Source | None) -> str:
    """Where weights are from, as a tooltip says it; "" of those that do not say it."""
    if source is None:
        return ""
    at = f" at {source['revision']}" if source["revision"] else ""
    commit = f" ({source['commit'][:SHORT]})" if source["commit"] else ""
    return f"{source['name']}{at}{commit}"


def _held(turn: Turn, run: Any, changes: Iterator[Compared]) -> Iterator[Compared]:
    """What changes while a run has its turn, and at its loss that nothing does.

    Of a run that ends the framework sends once more what came last, and emptiness where nothing came.
    """
    if turn.compares(run):
        for change in changes:
            if not turn.holds(run):
                break
            yield change
        else:
            return
    yield Compared()


def _nothing() -> dict[str, Any]:
    """What has come of a comparison that has just begun."""
    return {"full": empty_look(), "focused": None, "shrunk": None}


def _note(
    local: LocalHandlers, visit: Visit, request: Request, result: comparing.ComparisonResult
) -> str:
    """What to say about a comparison that has just run."""
    example = local.noted(visit.card)
    as_given = bool(example) and request.question == example.question and visit.is_usual
    note = results.remark(result, example, as_given, own=visit.is_own)
    if result["shrunk"] is None:  # nothing is said of an answer that is not there
        note = SPEAKS_OF_SHRUNK.sub("", note).strip()
    return f"{note} {NO_MAP}".strip() if result["device"] == SERVER_DEVICE else note
