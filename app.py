"""The Space: one picture, one question, the stock model's answer beside ARR-COC's.

    python app.py        then open http://127.0.0.1:7860

Layout, handlers and ONE GPU function. What is asked and measured lives in `arr_coc.service.comparing`, what
may come in in `arr_coc.service.intake`, words and looks in `arr_coc.page`.
"""

import spaces  # isort: skip  (first, so that ZeroGPU can prepare torch)

import importlib.util
import logging
import os
import threading
from pathlib import Path

os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")
os.environ.setdefault("GRADIO_ANALYTICS_MAX_EVENTS", "100")  # it would keep 10,000
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")

import gradio as gr
from gradio.data_classes import FileData

from arr_coc.config import DEADLINE_S, NEW_TOKENS, Config
from arr_coc.page import board as page_board
from arr_coc.page import cost as page_cost
from arr_coc.page import frame, measured, parts, viewer
from arr_coc.page import share as page_share
from arr_coc.page import why as page_why
from arr_coc.page.live import Live, Picture
from arr_coc.page.parts import show
from arr_coc.page.steps import Steps
from arr_coc.service import comparing, intake, recordings
from arr_coc.service.decision import Where
from arr_coc.service.loader import Loader, base_to_come
from arr_coc.service.looks import ComparisonResult
from arr_coc.service.sessions import keep_forgetting

ON_ZEROGPU = os.environ.get("SPACES_ZERO_GPU", "").lower() in ("1", "t", "true")
FOLDER = Path(os.environ.get("ARR_COC_EXAMPLES") or recordings.examples_for(base_to_come()))
RESULTS = Path(__file__).parent / "results"
STEPS = Steps(FOLDER, "SPACE_ID" in os.environ, bundled=base_to_come() == "bundled")
GPU_SECONDS = 30
# Three looks must fit into what ZeroGPU lends.
LOOK_SECONDS = 8.0 if ON_ZEROGPU else DEADLINE_S
LOAD_AFTER_S = 1.0  # importing torch would hold back the first page
QUEUE_SIZE = 12  # a comparison takes seconds: nobody waits over a minute
SESSIONS = 500  # kept at once, about 0.3 MB each
MAX_FILE = "20mb"

LOADER = Loader(warm=not ON_ZEROGPU)
if ON_ZEROGPU:  # forked workers inherit what is loaded at import
    LOADER.load("cuda")


def gpu_seconds(*_, **__) -> int:
    """How long a comparison may hold a GPU."""
    return GPU_SECONDS


@spaces.GPU(duration=gpu_seconds)
def run_on_gpu(request: comparing.Request):
    """The one function that touches the model; yields the plain records of `comparing`."""
    yield from comparing.compare_stream(LOADER.get(), request, LOOK_SECONDS)


LIVE = Live(STEPS, LOADER, lambda request: run_on_gpu(request), lambda: len(demo._queue))


def compare(
    image: FileData,
    question: str,
    share: float = Config.share,
    budget: int | None = Config.budget,
    glance: str = Config.glance,
    prune: str = Config.prune,
    max_new_tokens: int = NEW_TOKENS,
    shrunk: bool = False,
) -> ComparisonResult:
    """Ask one question about one picture twice: the stock model, then ARR-COC on the same weights.

    Args:
        image: a JPEG, PNG, WEBP or AVIF file of at most 20 MB.
        question: at most 500 characters.
        share: share of the picture's visual tokens to keep, 0.05 to 1.
        budget: visual tokens to keep; overrides share.
        glance: what becomes of the quick first look: auto, periphery, separate or off.
        prune: drop tokens before or after the vision encoder.
        max_new_tokens: longest answer in tokens, 1 to 256.
        shrunk: ask a third time, of the whole picture resized to as many tokens.
    """
    settings = {"glance": glance, "prune": prune, "max_new_tokens": max_new_tokens}
    return LIVE.answered(image, question, share, budget=budget, shrunk=shrunk, **settings)


def relevance(image: FileData, question: str, share: float = Config.share) -> Where:
    """Where looking pays for a question: maps, tensions and the places kept, without an answer.

    Args:
        image: a JPEG, PNG, WEBP or AVIF file of at most 20 MB.
        question: at most 500 characters.
        share: share of the picture's visual tokens to keep, 0.05 to 1.
    """
    return LIVE.answered(image, question, share, questions=(question,))


def examples() -> list[frame.Listed]:
    """The questions of this page's cards with their true answers."""
    return frame.listed(STEPS.examples)


def build() -> gr.Blocks:
    """The page."""
    private = {"api_visibility": "private", "show_progress": "hidden"}
    quick = {**private, "queue": False}
    gpu = {"concurrency_id": "gpu", "concurrency_limit": 1}
    steps, live, first = STEPS, LIVE, STEPS.opened(0 if STEPS.examples else None)
    pieces = dict(zip(page_board.BOARD, first))
    with gr.Blocks(title=frame.TITLE, analytics_enabled=False, delete_cache=(300, 3000)) as demo:
        # Empty until the page opens, and again once a visit was forgotten: no card's answer is taken
        # for that of another picture then.
        chosen, drawn, tensions = gr.State(), gr.State(), gr.State()
        shown, looks = gr.State(time_to_live=3600), gr.State()
        with gr.Column(elem_id="arr-page"):
            head = show(frame.header(frame.badge_loading(bool(first[13]))))
            with gr.Row(equal_height=False, elem_id="arr-desk"):
                with gr.Column(scale=5, min_width=320, elem_id="arr-left"):
                    look = show(pieces["look"], js_on_load=viewer.SCRIPT, elem_id="arr-look")
                    picture = Picture(
                        str(steps.examples[0].path) if steps.examples else None,
                        type="filepath",
                        image_mode=None,
                        format="png",
                        sources=["upload", "clipboard"],
                        label="Your own picture",
                        height=300,
                        buttons=[],
                        visible="hidden",
                        elem_id="arr-picture",
                    )
                    with gr.Row(elem_id="arr-try"):
                        draw = gr.Button("New picture", size="sm", elem_id="arr-draw")
                        own = gr.Button("Try your own", size="sm", elem_id="arr-own")
                    sign, writing, put = parts.sign()
                with gr.Column(scale=6, min_width=320, elem_id="arr-right"):
                    with gr.Row(elem_id="arr-ask"):
                        question = gr.Textbox(
                            first[7],
                            label="Question",
                            show_label=False,
                            container=False,
                            placeholder="What do you want to know about the picture?",
                            max_length=intake.MAX_QUESTION,
                            scale=5,
                            elem_id="arr-question",
                        )
                        go = gr.Button(
                            "Compare", variant="primary", min_width=110, elem_id="arr-go"
                        )
                        stop = gr.Button("Stop", min_width=70, elem_id="arr-stop")
                    chips = show(js_on_load=frame.CHIPS_JS, elem_id="arr-chips")
                    answers = show(pieces["answers"], elem_id="arr-answers")
                    strip = show(pieces["strip"], elem_id="arr-strip")
                    shrunk = gr.Checkbox(
                        label="Also ask of the picture simply shrunk to as many tokens",
                        container=False,
                        elem_id="arr-shrunk",
                    )
            cards = show(
                frame.cards(steps.examples, first[9]), js_on_load=frame.CARDS_JS, elem_id="arr-pick"
            )
            with gr.Row(equal_height=False, elem_id="arr-reasons"):
                with gr.Column(scale=6, min_width=320):
                    why = show(pieces["why"], js_on_load=viewer.SCRIPT, elem_id="arr-maps")
                with gr.Column(scale=5, min_width=320):
                    gauges = show(
                        pieces["gauges"], js_on_load=page_why.GAUGES_JS, elem_id="arr-gauges"
                    )
                    with gr.Row():
                        again = gr.Button("Compare with these", size="sm", elem_id="arr-again")
                        reset = gr.Button("Reset", size="sm", elem_id="arr-reset")
            cost = show(pieces["cost"], js_on_load=page_cost.SCRIPT, elem_id="arr-cost")
            if steps.bundled:
                show(measured.at_2b(RESULTS))
            more = gr.Button("Look again with more tokens", size="sm", elem_id="arr-more")
            second, third, compare_maps, others = parts.others()
            show(measured.section(RESULTS), elem_id="arr-results")
            published = bool(measured.load(RESULTS))
            with gr.Accordion(
                "Figures", open=False, visible=published, elem_id="arr-figures"
            ) as figures:
                drawn_figures = show()
            links = show(first[14], js_on_load=page_share.SCRIPT, elem_id="arr-links")
            if steps.on_space:
                gr.DuplicateButton(size="sm")
            settings, advanced, cut_cost = parts.settings()
            about = show(parts.about(steps.bundled), elem_id="arr-about")
            file = gr.Textbox(visible="hidden", elem_id="arr-file")
            ahead = gr.Textbox(visible="hidden", elem_id="arr-ahead")

        board = [look, answers, strip, why, gauges, cost]
        inputs = [picture, question, *settings.values(), shrunk, tensions, chosen, drawn]
        # Everything that compares presses the one button, which is dead while it compares.
        gr.on([question.submit, again.click], None, None, None, js=parts.PRESS_JS, **quick)
        more.click(
            steps.on_more, settings["share"], [settings["share"], settings["tier"]], **quick
        ).then(None, None, None, js=parts.PRESS_JS, **quick)
        go.click(None, None, [answers, strip, go], js=parts.QUEUED_JS, **quick)
        go.click(live.on_waiting, None, ahead, **quick).then(
            None, ahead, None, js=parts.AHEAD_JS, **quick
        )
        running = go.click(
            live.on_compare,
            inputs,
            [*board, shown, looks, go],
            trigger_mode="multiple",  # a click while Stop is still at work is not lost
            **gpu,
            **private,
        )
        said = [answers, strip]
        running.failure(None, said, [*said, go], js=parts.FULL_JS, **quick)
        stop.click(None, answers, answers, js=parts.UNQUEUED_JS, **quick)
        stopped = [answers, why, gauges, looks, go]
        stop.click(live.on_stop, looks, stopped, cancels=[running], **quick)
        fresh = [*board, picture, question, cards, chosen, drawn, chips, tensions, shown, links]
        fresh += [others, second, third]
        cards.select(steps.on_pick, None, fresh, **quick)
        own.click(steps.on_own, None, picture, **quick)
        picture.upload(steps.on_own_picture, picture, fresh, **quick)
        draw.click(lambda: steps.on_draw(LOADER.model), None, fresh, **quick)
        gr.on([put.click, writing.submit], steps.on_sign, writing, fresh, **quick)
        chips.select(steps.on_chip, drawn, question, **quick).then(
            None, None, None, js=parts.PRESS_JS, **quick
        )
        question.input(None, None, None, js=parts.STALE_JS, **quick)
        tuned = [look, why, gauges, shown, tensions]
        gauges.release(steps.on_tensions, shown, tuned, trigger_mode="always_last", **quick)
        reset.click(steps.on_reset, shown, tuned, **quick)
        compare_maps.click(None, None, others, js=parts.LOOKING_JS, **quick)
        compare_maps.click(
            live.on_others,
            [
                picture,
                question,
                second,
                third,
                *(settings[name] for name in ("share", "tier", "allocator", "revision", "cut")),
            ],
            others,
            **gpu,
            **private,
        )
        figures.expand(lambda: measured.figures(RESULTS), None, drawn_figures, **quick)
        links.select(steps.on_save, shown, file, **quick).then(
            None, file, None, js=page_share.DOWNLOAD, **quick
        )
        gr.on(
            [question.blur, settings["share"].release],
            steps.on_question,
            [chosen, question, settings["share"]],
            links,
            trigger_mode="always_last",
            **quick,
        )
        gr.on(
            [advanced.expand, settings["cut"].input, settings["share"].release,
             settings["tier"].input, picture.change],
            live.on_cut,
            [picture, question, *(settings[name] for name in ("share", "tier", "cut"))],
            cut_cost,
            trigger_mode="always_last",
            **quick,
        )  # fmt: skip
        demo.load(steps.on_open, None, [*fresh, settings["share"]], js=parts.CARD_VIEW_JS, **quick)
        ready = [head, about, sign, settings["revision"], settings["cut"]]
        demo.load(live.on_ready, None, ready, **quick)
        gr.api(compare, api_name="compare", **gpu)
        gr.api(relevance, api_name="relevance", **gpu)
        gr.api(examples, api_name="examples", queue=False)
    demo.queue(max_size=QUEUE_SIZE, api_open=False)
    return demo


def launch(demo: gr.Blocks, **options):
    """Start serving, then load the model; `options` go to `Blocks.launch`."""
    server = demo.launch(
        prevent_thread_lock=True,
        ssr_mode=False,
        enable_monitoring=False,
        run_history=False,
        show_error=False,
        max_file_size=MAX_FILE,
        allowed_paths=[str(FOLDER)],
        mcp_server=importlib.util.find_spec("mcp") is not None,
        footer_links=["api"],
        theme=parts.theme(),
        css=frame.CSS,
        state_session_capacity=SESSIONS,
        **options,
    )
    keep_forgetting(demo)
    threading.Timer(LOAD_AFTER_S, LOADER.start).start()
    return server


demo = build()
if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    launch(demo)
    demo.block_thread()
