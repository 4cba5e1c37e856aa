"""The Space: one picture, one question, the stock model's answer beside ARR-COC's.

    python app.py        then open http://127.0.0.1:7860

Layout, handlers and ONE GPU function. What is asked and measured lives in `arr_coc.comparing`, what
may come in in `arr_coc.intake`, words and looks in `arr_coc.page`.
"""

import spaces  # isort: skip  (first, so that ZeroGPU can prepare torch)

import html
import importlib.util
import logging
import os
import threading
from pathlib import Path

os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")

import gradio as gr
from gradio.data_classes import FileData
from gradio.utils import get_upload_folder

from arr_coc import comparing, intake, page, page_results
from arr_coc.comparing import ComparisonResult
from arr_coc.serving import Loader, source_of

ON_ZEROGPU = os.environ.get("SPACES_ZERO_GPU", "").lower() in ("1", "t", "true")
EXAMPLES = page.load_examples(Path(__file__).parent / "examples" / "bundled")
GPU_SECONDS = 30
LOAD_AFTER_S = 1.0  # importing torch would hold back the first page
QUEUE_SIZE = 12  # a comparison takes seconds: nobody waits over a minute
MAX_FILE = "20mb"
SHARE = 20  # percent
SYSTEM_FONTS = ["system-ui", "-apple-system", "Segoe UI", "Roboto", "sans-serif"]

LOADER = Loader(warm=not ON_ZEROGPU)
if ON_ZEROGPU:  # forked workers inherit what is loaded at import
    LOADER.load("cuda")


def gpu_seconds(*_, **__) -> int:
    """How long a comparison may hold a GPU."""
    return GPU_SECONDS


@spaces.GPU(duration=gpu_seconds)
def run_on_gpu(request: comparing.Request):
    """The one function that touches the model; yields the plain records of `comparing`."""
    yield from comparing.compare_stream(LOADER.get(), request)


class Picture(gr.Image):
    """`gr.Image` that hands on the file unopened: `intake` opens it, and says what is wrong."""

    is_template = True  # the browser draws a plain Image

    def preprocess(self, payload):
        """The `data:` URL or the path of the file given, or None."""
        return None if payload is None else source_of(payload, get_upload_folder())


def refusal(error: Exception) -> gr.Error:
    """A sentence of our own as the framework's error, escaped: its pop-up renders HTML."""
    text = str(error)
    if isinstance(error, gr.Error):
        title = (error.title or "").lower()
        text = "The GPU worker stopped before it had an answer; try again."
        if "quota" in title:
            text = "Your GPU minutes for today are used up; sign in, or come back tomorrow."
        elif "queue" in title or "no gpu" in title:
            text = "All GPUs are busy; try again in a minute."
    message = html.escape(text, quote=False)
    return gr.Error(message, title="That did not work", print_exception=False)


def compare(
    image: FileData,
    question: str,
    share: float = 0.20,
    budget: int | None = None,
    glance: str = "periphery",
    prune: str = "before",
    max_new_tokens: int = comparing.NEW_TOKENS,
) -> ComparisonResult:
    """Ask one question about one picture twice: the stock model, then ARR-COC on the same weights.

    Args:
        image: a JPEG, PNG, WEBP or AVIF file of at most 20 MB.
        question: at most 500 characters.
        share: share of the picture's visual tokens to keep, 0.05 to 1.
        budget: visual tokens to keep; overrides share.
        glance: what becomes of the quick first look: periphery, separate or off.
        prune: drop tokens before or after the vision encoder.
        max_new_tokens: longest answer in tokens, 1 to 256.
    """
    try:
        request = comparing.check(
            source_of(image, get_upload_folder()),
            question,
            share,
            budget=budget,
            glance=glance,
            prune=prune,
            max_new_tokens=max_new_tokens,
        )
        LOADER.get()
        return comparing.last(run_on_gpu(request))
    except (intake.IntakeError, gr.Error) as error:
        raise refusal(error) from None


def on_compare(picture, question, percent, glance, prune, new_tokens, chosen):
    """Stream both answers, then what they cost and where looking paid."""
    same, busy, free = gr.skip(), gr.update(interactive=False), gr.update(interactive=True)
    try:
        if picture is None:
            raise intake.IntakeError("Choose a picture first: upload, paste or pick one.")
        share = percent / 100 if type(percent) in (int, float) else percent
        request = comparing.check(
            picture, question, share, glance=glance, prune=prune, max_new_tokens=new_tokens
        )
        example = example_of(chosen)
        truth = example.answer if example and example.question == request["question"] else None
        looks = {"full": comparing.empty_look(), "focused": None}
        yield page_results.answers(**looks, truth=truth, running=True), "", same, looks, busy
        LOADER.get()
        for kind, value in run_on_gpu(request):
            if kind == "result":
                break
            looks[kind] = value
            yield page_results.answers(**looks, truth=truth, running=True), same, same, looks, same
        yield (
            page_results.answers(value["full"], value["focused"], truth),
            page_results.strip(value, page_results.remark(value, example, truth is not None)),
            page_results.where_section(request["image"], value),
            None,
            free,
        )
    except (intake.IntakeError, gr.Error) as error:
        failure = refusal(error)
        said = page_results.message(html.unescape(failure.message))
        yield page_results.answers(None, None), said, same, None, free
        raise failure from None


def on_stop(looks):
    """After Stop: what had come so far stays."""
    shown = page_results.answers(**looks) if looks else gr.skip()
    return shown, None, gr.update(interactive=True)


def on_pick(event: gr.EventData):
    """A card was clicked: its picture and question, a clean slate for the answers."""
    chosen = event._data.get("card") if isinstance(event._data, dict) else None
    example = example_of(chosen)
    if example is None:
        return (gr.skip(),) * 7
    shown = page.cards(EXAMPLES, chosen)
    return (
        str(example.path),
        example.question,
        shown,
        chosen,
        page_results.answers(None, None),
        "",
        "",
    )


def example_of(chosen) -> page.Example | None:
    """The card of that number, or None."""
    good = type(chosen) is int and 0 <= chosen < len(EXAMPLES)
    return EXAMPLES[chosen] if good else None


def on_open(request: gr.Request):
    """Fill in what a link asks for (`arr_example`, `arr_q`, `arr_budget` in percent); never run."""
    wish = page.wish(request.query_params if request else {}, EXAMPLES, SHARE)
    example = example_of(wish.chosen)
    picture = str(example.path) if example else None
    return picture, wish.question, wish.percent, page.cards(EXAMPLES, wish.chosen), wish.chosen


def on_ready():
    """Once the model is there: the badge, and what can be asked."""
    try:
        model = LOADER.get()
    except intake.IntakeError as error:
        return page.header(page.badge_failed(str(error))), gr.skip()
    learned = bool(getattr(model, "policies", None))
    badge = page.badge_ready(str(model.name), model.is_bundled, str(model.device), learned)
    return page.header(badge), page.about(model.is_bundled)


def on_own_picture():
    """A visitor's own picture: no card is chosen any more, so no truth is known."""
    return page.cards(EXAMPLES), None


def build() -> gr.Blocks:
    """The page."""

    def show(value="", **options):
        return gr.HTML(value, apply_default_css=False, **{"js_on_load": None, **options})

    private = {"api_visibility": "private", "show_progress": "hidden"}
    quick = {**private, "queue": False}
    with gr.Blocks(title=page.TITLE, analytics_enabled=False, delete_cache=(300, 3000)) as demo:
        chosen, shown = gr.State(), gr.State()
        head = show(page.header(page.badge_loading()))
        with gr.Row(equal_height=False, elem_id="arr-desk"):
            with gr.Column(scale=5, min_width=320):
                picture = Picture(
                    type="filepath",
                    image_mode=None,
                    sources=["upload", "clipboard"],
                    label="Picture",
                    height=400,
                    buttons=["fullscreen"],
                    alt_text="The picture asked about",
                    elem_id="arr-picture",
                )
                about = show(page.about(bundled=True), elem_id="arr-about")
            with gr.Column(scale=6, min_width=320):
                question = gr.Textbox(
                    label="Question",
                    placeholder="What do you want to know about the picture?",
                    max_length=intake.MAX_QUESTION,
                    elem_id="arr-question",
                )
                share = gr.Slider(
                    5, 100, SHARE, step=1, label="Share of visual tokens to keep (%)", buttons=[]
                )
                with gr.Row(elem_id="arr-ask"):
                    go = gr.Button("Compare", variant="primary", scale=3, elem_id="arr-go")
                    stop = gr.Button("Stop", scale=1, min_width=80, elem_id="arr-stop")
                answers = show(page_results.answers(None, None), elem_id="arr-answers")
                strip = show(elem_id="arr-strip")
        cards = show(page.cards(EXAMPLES), js_on_load=page.CARDS_JS, elem_id="arr-pick")
        where = show(elem_id="arr-where")
        with gr.Accordion("Advanced", open=False):
            glance = gr.Radio(
                page.GLANCE_CHOICES, value="periphery", label="The quick first look (glance)"
            )
            prune = gr.Radio(
                page.PRUNE_CHOICES, value="before", label="When places are dropped (vision encoder)"
            )
            new_tokens = gr.Slider(
                1, 128, comparing.NEW_TOKENS, step=1, label="Longest answer, in tokens", buttons=[]
            )
        inputs = [picture, question, share, glance, prune, new_tokens, chosen]
        running = gr.on(
            [go.click, question.submit],
            on_compare,
            inputs,
            [answers, strip, where, shown, go],
            concurrency_id="gpu",
            concurrency_limit=1,
            trigger_mode="multiple",  # a click while Stop is still at work is not lost
            **private,
        )
        stop.click(on_stop, shown, [answers, shown, go], cancels=[running], **quick)
        picked = [picture, question, cards, chosen, answers, strip, where]
        cards.select(on_pick, None, picked, **quick)
        gr.on([picture.upload, picture.clear], on_own_picture, None, [cards, chosen], **quick)
        demo.load(on_open, None, [picture, question, share, cards, chosen], **quick)
        demo.load(on_ready, None, [head, about], **quick)
        gr.api(compare, api_name="compare", concurrency_id="gpu", concurrency_limit=1)
    demo.queue(max_size=QUEUE_SIZE, api_open=False)
    return demo


def theme() -> gr.themes.Base:
    """System fonts (no request leaves the page), and a button with enough contrast."""
    base = gr.themes.Base(
        primary_hue="orange", neutral_hue="slate", font=SYSTEM_FONTS, font_mono=["monospace"]
    )
    shades = {"button_primary_background_fill": "*primary_700"}
    shades["button_primary_background_fill_hover"] = "*primary_800"
    return base.set(**shades, **{f"{name}_dark": shade for name, shade in shades.items()})


def launch(demo: gr.Blocks, **options):
    """Start serving, then load the model; `options` go to `Blocks.launch`."""
    server = demo.launch(
        prevent_thread_lock=True,
        ssr_mode=False,
        enable_monitoring=False,
        run_history=False,
        show_error=False,
        max_file_size=MAX_FILE,
        mcp_server=importlib.util.find_spec("mcp") is not None,
        footer_links=["api"],
        theme=theme(),
        css=page.CSS,
        **options,
    )
    threading.Timer(LOAD_AFTER_S, LOADER.start).start()
    return server


demo = build()
if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    launch(demo)
    demo.block_thread()
