"""The Space: one picture, one question, the stock model's answer beside ARR-COC's.

    python app.py        then open http://127.0.0.1:7860

`layout` places the page's parts, `wire` connects them to their handlers, `endpoints` is the API, `launch`
serves. ONE function here holds a GPU. What is asked and measured lives in `arr_coc.service.comparing`,
what may come in in `arr_coc.service.intake`, words and looks in `arr_coc.page`.
"""

import spaces  # isort: skip  (first, so that ZeroGPU can prepare torch)

import gc
import importlib.util
import logging
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# Until the page is built: hardly anything of what is made could go, and looking takes a sixth of the time.
gc.disable()
os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")
os.environ.setdefault("GRADIO_ANALYTICS_MAX_EVENTS", "100")  # it would keep 10,000
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")

import gradio as gr
from gradio.events import Dependency

from arr_coc import naming
from arr_coc.config import DEADLINE_S
from arr_coc.page import (
    below,
    changes,
    cost,
    frame,
    idea,
    measured,
    parts,
    picking,
    saw,
    sense,
    share,
    stamps,
    why,
)  # fmt: skip
from arr_coc.page.api import Endpoints
from arr_coc.page.local_handlers import LocalHandlers
from arr_coc.page.matter_handlers import MatterHandlers
from arr_coc.page.model_handlers import ModelHandlers
from arr_coc.page.parts import Parts, show
from arr_coc.page.preview import middleware
from arr_coc.service import comparing, journal, labels, learned, recordings, several
from arr_coc.service.loader import Loader, at_once, base_to_come, identity_to_come, is_served
from arr_coc.service.sessions import keep_forgetting

ON_ZEROGPU = naming.on_zerogpu()
FOLDER = Path(naming.set_to("ARR_COC_EXAMPLES") or recordings.examples_for(base_to_come()))
RESULTS = Path(__file__).parent / "results"
GPU_SECONDS = 30
LOOK_SECONDS = 8.0 if ON_ZEROGPU else DEADLINE_S  # three fit into what ZeroGPU lends
# Between two looks at how far loading is; before it, for importing torch would hold back the first page.
WAKING_S, LOAD_AFTER_S = 1.0, 1.0
QUEUE_SIZE = 12  # a comparison takes seconds: nobody waits over a minute
SESSIONS = 500  # kept at once, about 0.3 MB each
MAX_FILE = "20mb"

# How events run: none is part of the API; most are quick and wait for nothing; a GPU takes one at a time.
PRIVATE = {"api_visibility": "private", "show_progress": "hidden"}
QUICK = {**PRIVATE, "queue": False}
EVERY = {**QUICK, "trigger_mode": "multiple"}  # also what comes while another is on its way
LAST = {**QUICK, "trigger_mode": "always_last"}
GPU = {"concurrency_id": "gpu", "concurrency_limit": at_once()}

LOADER = Loader(warm=not ON_ZEROGPU)
if ON_ZEROGPU:  # forked workers inherit what is loaded at import
    LOADER.load("cuda")


def gpu_seconds(*_: Any, **__: Any) -> int:
    """How long a comparison may hold a GPU."""
    return GPU_SECONDS


@spaces.GPU(duration=gpu_seconds)
def run_on_gpu(request: comparing.Request | several.Request) -> Iterator[tuple[str, Any]]:
    """The one function that touches the model; yields the plain records of `comparing`."""
    stream, model = several if isinstance(request, several.Request) else comparing, LOADER.get()
    records = stream.compare_stream(model, request, LOOK_SECONDS)
    yield from learned.handed_back(records, model) if ON_ZEROGPU else records  # a worker ends


IDENTITY = identity_to_come()
LOCAL = LocalHandlers(FOLDER, "SPACE_ID" in os.environ, bundled=base_to_come() == "bundled")
MODEL = ModelHandlers(
    LOCAL, LOADER, lambda one: learned.learning(run_on_gpu(one), LOADER), lambda: len(demo._queue)
)
API, MATTER = Endpoints(LOCAL, MODEL), MatterHandlers(MODEL)


def layout() -> tuple[Parts, below.Below]:
    """Everything that stands on the page, opened on the first card; nothing is wired yet."""
    under, first = {}, LOCAL.opened(0 if LOCAL.examples else None)
    named = parts.states()
    with gr.Column(elem_id="arr-page"):
        named["header"] = show(frame.header(frame.badge_loading()))
        named["hero"] = show(first.hero, elem_id="arr-hero")
        if LOCAL.bundled:
            show(measured.at_2b(RESULTS, brief=True), elem_id="arr-beside-hero")
        with gr.Row(equal_height=False, elem_id="arr-desk"):
            with gr.Column(scale=5, min_width=320, elem_id="arr-left"):
                card = LOCAL.examples[0].path if LOCAL.examples else None
                named |= parts.picture_side(first.look, card, LOCAL.recorded[1])
                under |= below.matter()
                under["sense"] = sense.ask()
            with gr.Column(scale=6, min_width=320, elem_id="arr-right"):
                cards, script = picking.cards(LOCAL.examples, first.chosen), picking.CARDS_JS
                named["cards"] = show(cards, js_on_load=script, elem_id="arr-pick")
                named |= parts.answer_side(first)
        named["saw"] = show(first.saw, js_on_load=saw.SCRIPT, elem_id="arr-saw")
        show(idea.section(), elem_id="arr-idea")
        named |= parts.reasons(first)
        under |= below.you_first(visible=not is_served())  # a server does not say where it looked
        under |= below.several(API.clips.questions, visible=not is_served())
        named["cost"] = show(first.cost, js_on_load=cost.SCRIPT, elem_id="arr-cost")
        if LOCAL.bundled:
            show(measured.at_2b(RESULTS), elem_id="arr-at-2b")
        named["more"] = gr.Button("Look again with more tokens", size="sm", elem_id="arr-more")
        named |= parts.other_questions(visible=not is_served())
        show(measured.section(RESULTS, IDENTITY), elem_id="arr-results")
        named |= below.all_tables(visible=bool(measured.load(RESULTS, IDENTITY)))
        named["links"] = show(first.links, js_on_load=share.SCRIPT, elem_id="arr-links")
        under |= below.address()
        if LOCAL.on_space:
            gr.DuplicateButton(size="sm")
        named |= parts.settings()
        named["about"] = show(parts.about(LOCAL.bundled), elem_id="arr-about")
        for name in ("file", "ahead", "key", "imposed", "run"):
            named[name] = gr.Textbox(first.key if name == "key" else None, visible="hidden")
        named["waking"] = gr.Timer(WAKING_S, active=False)
    for name in below.NOT_SERVED if is_served() else ():
        (under | named)[name].visible = False
    return Parts(**named), below.Below(**under)


def wire(demo: gr.Blocks, page: Parts, under: below.Below) -> None:
    """What happens when: every event of the page and its handler."""
    long = [wire_comparing(page), wire_reasons(page)]
    long.append(below.wire_matter(under, page, MATTER, QUICK, {**GPU, **PRIVATE}))
    # Before what brings the other picture or question.
    wire_overtaking(page, long, under.address.select)
    wire_pictures(page)
    below.wire_budget(page, QUICK)
    wire_settings(page)
    sense.wire(under.sense, page, QUICK)
    below.wire_you(under, page, API.you, QUICK, {**GPU, **PRIVATE})
    below.wire_several(under, page, API.several, API.clips, QUICK, {**GPU, **PRIVATE})
    opening = [*page.of(changes.Fresh), page.percent]
    under.address.select(LOCAL.on_address, page.turn, opening, **EVERY)
    opened = demo.load(LOCAL.on_open, None, opening, js=parts.OPENING_JS, **QUICK)
    opened.then(None, page.all(stamps.SHOWN), None, js=stamps.NOW_JS, **QUICK)
    ready = page.of(changes.Ready)
    demo.load(MODEL.on_ready, None, ready, **QUICK)
    page.waking.tick(MODEL.on_ready, None, ready, **QUICK)


def wire_comparing(page: Parts) -> Dependency:
    """Compare and everything that presses it, dead while the very same is asked; returns its run."""
    pressed = [page.question.submit, page.again.click]
    gr.on(pressed, None, None, None, js=stamps.PRESS_JS, **QUICK)
    spent = [page.percent, page.tier, page.allocator]
    more = page.more.click(LOCAL.on_more, [page.shown, page.allocator], spent, **QUICK)
    more.then(None, None, None, js=stamps.PRESS_JS, **QUICK)
    shown = page.all(stamps.SHOWN)
    page.go.click(None, shown, [page.answers, page.go], js=parts.QUEUED_JS, **QUICK)
    waiting = page.go.click(
        MODEL.on_waiting, [page.turn, page.run], page.ahead, js=stamps.numbered(1), **QUICK
    )
    waiting.then(None, page.ahead, None, js=parts.AHEAD_JS, **QUICK)
    running = page.go.click(
        MODEL.on_compare,
        inputs_kwargs=page.named(
            "turn", "run", "key", "picture", "drawn", "question", "percent", "glance", "prune", "allocator",
            "tier", "new_tokens", "revision", "native_tokens", "shrunk", "imposed", "tensions", "chosen",
        ),
        outputs=page.of(changes.Compared),
        js=stamps.numbered(1, "begun"),
        trigger_mode="multiple",  # a click while Stop is still at work is not lost
        **GPU,
        **PRIVATE,
    )  # fmt: skip
    running.failure(None, page.answers, [page.answers, page.go], js=parts.FULL_JS, **QUICK)
    changed = [getattr(page, name).change for name in stamps.SHOWN]
    gr.on(changed, None, page.all(stamps.SHOWN), None, js=stamps.NOW_JS, **QUICK)
    page.watch.select(None, None, page.go, js=stamps.BUTTON_JS, **QUICK)
    return running


def wire_overtaking(page: Parts, long: list[Dependency], back: Any) -> None:
    """What ends the run that is open, and lets nothing of it arrive any more; `long` are cancelled.

    `back` is the event of an address that was gone back to.

    A sign or a picture of one's own may be refused: it ends a run only once it is there (`state.js`).
    """
    picked = [page.cards.select, page.look.select, page.chips.click]
    overtaking = [*picked, back, page.draw.click, page.chips.select]
    over, stopped = [page.looks, page.turn, page.run], page.of(changes.Stopped)
    late = page.of(changes.Compared)
    stop, told = page.stop.click, [page.answers, page.go]
    gr.on([*overtaking, stop], None, page.answers, told, js=parts.OVER_JS, **QUICK)
    options = {"js": stamps.numbered(2), "cancels": long, **QUICK}
    gr.on(overtaking, MODEL.on_stop, over, stopped, **options)
    stop(MODEL.on_stop, [*over, page.shown], stopped, **options)
    page.watch.stop(MODEL.on_late, [*over, page.shown], late, js=stamps.numbered(2), **QUICK)
    page.watch.clear(None, None, page.go, js=stamps.OVERTAKEN_JS, **QUICK)
    page.watch.clear(
        MODEL.on_overtaken,
        [page.turn, page.run],
        page.of(changes.Overtaken),
        js=stamps.numbered(1),
        cancels=long,
        **QUICK,
    )


def wire_pictures(page: Parts) -> None:
    """Everything that brings another picture, or another question to it."""
    fresh, told = page.of(changes.Fresh), page.said_picture
    picked = [page.cards.select, page.look.select, page.chips.click]
    brought = gr.on(picked, LOCAL.on_pick, [page.percent, page.turn], fresh, **EVERY)
    drawing = page.draw.click(
        lambda *given: LOCAL.on_draw(LOADER.model, *given),
        [page.percent, page.turn, page.run],
        fresh,
        js=stamps.numbered(2, "later"),
        **EVERY,
    )
    page.own.click(LOCAL.on_own, page.picture, [page.picture, page.before, told], **QUICK)
    page.back.click(LOCAL.on_back, [page.before, page.key], [page.picture, told], **QUICK)
    own = [page.picture, page.question, page.key, page.drawn, page.percent, page.turn, page.run]
    numbered = stamps.numbered(len(own) - 1, "later")
    given = page.picture.upload(LOCAL.on_own_picture, own, fresh, js=numbered, **EVERY)
    kept = [page.key, page.question]
    unasked = given.then(None, kept, page.question, js=stamps.UNASK_JS, **QUICK)
    put_up = [page.put.click, page.writing.submit]
    signed = [page.writing, page.percent, page.turn, page.run]
    sign = gr.on(put_up, LOCAL.on_sign, signed, fresh, js=stamps.numbered(3, "later"), **EVERY)
    for one in (brought, drawing, unasked, sign):  # a Compare pressed meanwhile is meant for it
        one.then(None, None, None, js=stamps.CAME_JS, **QUICK)
    chosen = page.chips.select(LOCAL.on_chip, page.drawn, page.question, **QUICK)
    chosen.then(None, None, None, js=stamps.PRESS_JS, **QUICK)
    chosen.then(LOCAL.on_question, [*kept, page.percent], page.links, **QUICK)


def wire_reasons(page: Parts) -> Dependency:
    """Gauges to drag, maps of other questions, tables, what can be saved; returns the maps' run."""
    tuned = page.of(changes.Tuned)
    dialed = [page.shown, page.run]
    page.gauges.release(LOCAL.on_tensions, dialed, tuned, js=why.DIALED_JS, **LAST)
    page.reset.click(LOCAL.on_reset, page.shown, tuned, **QUICK)
    page.compare_maps.click(None, None, page.others, js=parts.LOOKING_JS, **QUICK)
    looking = page.compare_maps.click(
        MODEL.on_others,
        inputs_kwargs=page.named("picture", "second", "third", "tensions", *stamps.SHOWN),
        outputs=page.others,
        **GPU,
        **PRIVATE,
    )
    looking.failure(None, None, page.others, js=parts.NOT_LOOKED_JS, **QUICK)
    page.all_tables.expand(lambda: measured.tables(RESULTS, IDENTITY), None, page.tables, **QUICK)
    saved = page.links.select(LOCAL.on_save, page.shown, page.file, **EVERY)
    saved.then(None, page.file, None, js=share.DOWNLOAD, **QUICK)
    return looking


def wire_settings(page: Parts) -> None:
    """What was recorded, the link and the cost of a finer cut follow what is set."""
    # Of one event the framework runs each listener after the one before: what is looked at comes first.
    page.percent.change(
        LOCAL.on_budget,
        [page.shown, page.key, page.question, page.percent, page.tensions],
        page.of(changes.Budgeted),
        **LAST,
    )
    gr.on(
        [page.question.blur, page.question.submit, page.go.click, page.percent.change],
        LOCAL.on_question,
        [page.key, page.question, page.percent],
        page.links,
        **LAST,
    )
    costs = [page.advanced.expand, page.native_tokens.input, page.percent.change]
    gr.on(
        [*costs, page.tier.change, page.question.blur, page.picture.change],
        MODEL.on_cut,
        inputs_kwargs=page.named("picture", "question", "percent", "tier", "native_tokens", "key"),
        outputs=page.cut_cost,
        **LAST,
    )


def endpoints(demo: gr.Blocks) -> None:
    """The API: these and no others."""
    others = (API.compare_clip, API.compare_pictures, API.you_first)
    for long in (API.compare, API.relevance, API.compare_with, API.relevance_with, *others):
        gr.api(long, api_name=long.__name__, **GPU)
    gr.api(API.examples, api_name="examples", queue=False)
    if labels.is_on():
        gr.api(sense.makes_sense, api_name="makes_sense", queue=False)


def build() -> gr.Blocks:
    """The page and its API, not yet served."""
    with gr.Blocks(title=frame.TITLE, analytics_enabled=False, delete_cache=(300, 3000)) as demo:
        wire(demo, *layout())
        endpoints(demo)
    demo.queue(max_size=QUEUE_SIZE, api_open=False)
    return demo


def launch(demo: gr.Blocks, **options: Any) -> tuple:
    """Start serving, then load the model; `options` go to `Blocks.launch`."""
    server = demo.launch(
        prevent_thread_lock=True,
        **dict.fromkeys(("ssr_mode", "enable_monitoring", "run_history", "show_error"), False),
        max_file_size=MAX_FILE,
        allowed_paths=[str(FOLDER)],
        blocked_paths=journal.never_served(),
        mcp_server=importlib.util.find_spec("mcp") is not None,
        footer_links=["api"],
        theme=parts.theme(),
        css=frame.CSS,
        state_session_capacity=SESSIONS,
        app_kwargs={"middleware": middleware(LOCAL.told)},
        **options,
    )
    keep_forgetting(demo)
    threading.Timer(LOAD_AFTER_S, LOADER.start).start()
    return server


demo = build()
gc.freeze()  # what is there stays: it need not be looked through again, nor copied by a worker
gc.enable()
if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    launch(demo)
    demo.block_thread()
