"""Page parts: the gradio components of the page that only need placing: settings, theme, HTML.

No handlers and no model here; `app.py` wires the parts.
"""

import json
from typing import Any

import gradio as gr

from arr_coc.config import NEW_TOKENS, NO_REVISION
from arr_coc.page import drawn, frame, results, why
from arr_coc.service import intake, token_grid

SYSTEM_FONTS = ["system-ui", "-apple-system", "Segoe UI", "Roboto", "sans-serif"]
ALLOCATOR_CHOICES = [
    ("The most relevant places, up to the budget", "topk"),
    ("As many places as the question seems to need", "adaptive"),
    ("Whole windows", "window"),
    ("Coarse and fine cells that cover everything", "quadtree"),
]
TIER_CHOICES = [
    ("The share set above", "share"),
    ("Fast: 10 %", "fast"),
    ("Balanced: 20 %", "balanced"),
    ("Accurate: 40 %", "accurate"),
    ("Let the question's words choose", "question"),
]
CARD_VIEW_JS = """() => {
    if (new URLSearchParams(location.search).get('arr_view') === 'card')
        for (const place of ['.gradio-container', '#arr-page'])
            document.querySelector(place).classList.add('arr-card-view');
}"""

# In the browser alone, so that a click is answered at once and no later word of the server is lost.
# `go` is the button: dead from the click on, so that no second run is queued behind the first.
PRESS_JS = "() => { document.querySelector('#arr-go').click(); }"
_DEAD, _ALIVE = ({"__type__": "update", "interactive": alive} for alive in (False, True))
QUEUED_JS = f"() => {json.dumps([results.queued(), '', _DEAD])}"
AHEAD_JS = """(words) => { if (words) for (const place of document.querySelectorAll('.arr-queued'))
    place.textContent = words; }"""
_IDLE, _FULL = results.answers(None, None), results.message(results.QUEUE_FULL)
NOT_STARTED = f"shown.includes({json.dumps(results.QUEUED)})"
FULL_JS = (
    f"(shown, said) => {NOT_STARTED} ? {json.dumps([_IDLE, _FULL, _ALIVE])} "
    f": [shown, said, {json.dumps(_ALIVE)}]"
)
# The answers shown belong to the question as it was: the next ones take their place in full colour.
STALE_JS = """() => document.querySelectorAll('#arr-answers .arr-answers, #arr-strip .arr-strip').forEach(
    (part) => { part.style.opacity = 0.45; part.title = 'of the question asked before'; })"""
LOOKING_JS = f"() => {json.dumps(results.message('Looks at each question…'))}"
UNQUEUED_JS = f"(shown) => {NOT_STARTED} ? {json.dumps(_IDLE)} : shown"


def revision_choices(loaded: list[str]) -> list[tuple[str, str]]:
    """What the ARR-COC weights can be set to, where these revisions are loaded."""
    fixed = [("none: fixed rules", NO_REVISION)] if loaded else []
    return [("the default", ""), *((name, name) for name in loaded), *fixed]


def show(value: str = "", **options: Any) -> gr.HTML:
    """An HTML piece without the framework's own styling; `js_on_load` is none unless given."""
    return gr.HTML(value, apply_default_css=False, **{"js_on_load": None, **options})


def about(bundled: bool) -> str:
    """What the running model can be asked; the bundled one's abilities are its published scores."""
    return frame.about(bundled, drawn.good_kinds(), drawn.weak_kinds()) + words()


def words() -> str:
    """What the page's words mean, in the terms of the field: what stands in tooltips, for a touch too."""
    pairs = [(name, title) for name, title, *_ in results.LOOKS.values()]
    pairs += [(name, title) for name, title, _ in why.MAPS.values()]
    pairs += [(f"{left} ↔ {right}", f"Tension: {term}.") for _, left, right, term, _ in why.GAUGES]
    items = "".join(f"<dt>{frame.escaped(a)}</dt><dd>{frame.escaped(b)}</dd>" for a, b in pairs)
    return (
        f'<details class="arr-how"><summary>What the words mean</summary><dl>{items}</dl></details>'
    )


def settings(share: int = 20) -> tuple[dict[str, Any], gr.Accordion, gr.HTML]:
    """The settings under Advanced, by name, in the order of their argument in the handlers.

    And the accordion itself, and the line that says what cutting more finely costs.
    """
    with gr.Accordion("Advanced", open=False, elem_id="arr-advanced") as advanced:
        with gr.Row():
            parts = {
                "share": gr.Slider(
                    5, 100, share, step=1, label="Share of visual tokens to keep (%)", buttons=[]
                ),
                "tier": gr.Dropdown(TIER_CHOICES, value="share", label="Tier: overrides the share"),
                "allocator": gr.Dropdown(
                    ALLOCATOR_CHOICES, value="topk", label="How tokens are given out (allocator)"
                ),
            }
        with gr.Row():
            parts["glance"] = gr.Radio(
                frame.GLANCE_CHOICES, value="auto", label="The quick first look (glance)"
            )
            parts["prune"] = gr.Radio(
                frame.PRUNE_CHOICES,
                value="before",
                label="When places are dropped (vision encoder)",
            )
        with gr.Row():
            parts["new_tokens"] = gr.Slider(
                1, 128, NEW_TOKENS, step=1, label="Longest answer, in tokens", buttons=[]
            )
            parts["revision"] = gr.Dropdown(
                revision_choices([]), value="", label="Revision of the ARR-COC weights"
            )
            parts["cut"] = gr.Dropdown(
                [("as it is", token_grid.AS_IS)],
                value=token_grid.AS_IS,
                label="Visual tokens the picture is cut into (native grid)",
            )
        cost = show(elem_id="arr-cut-cost")
    order = ("share", "glance", "prune", "allocator", "tier", "new_tokens", "revision", "cut")
    return {name: parts[name] for name in order}, advanced, cost


def sign() -> tuple[gr.Row, gr.Textbox, gr.Button]:
    """The row in which a visitor writes a word for a sign: hidden until a model that reads is there."""
    with gr.Row(visible=False, elem_id="arr-sign") as row:
        writing = gr.Textbox(
            placeholder="Your word or number",
            label="Write on a sign",
            show_label=False,
            container=False,
            max_length=drawn.LONGEST,
            scale=3,
        )
        put = gr.Button("Put it up", size="sm", scale=1, min_width=90)
    return row, writing, put


def others() -> tuple[gr.Textbox, gr.Textbox, gr.Button, gr.HTML]:
    """Two more questions about the same picture, their button, and where the maps will stand."""
    with gr.Accordion("Same picture, other question", open=False, elem_id="arr-others"):
        with gr.Row(equal_height=True):
            second = gr.Textbox(label="Second question", max_length=intake.MAX_QUESTION)
            third = gr.Textbox(label="Third question", max_length=intake.MAX_QUESTION)
            button = gr.Button("Show where each looks", min_width=160)
        shown = show(elem_id="arr-side")
    return second, third, button, shown


def theme() -> gr.themes.Base:
    """System fonts (no request leaves the page), and a button and quiet words with enough contrast."""
    base = gr.themes.Base(
        primary_hue="orange", neutral_hue="slate", font=SYSTEM_FONTS, font_mono=["monospace"]
    )
    shades = {"button_primary_background_fill": "*primary_700"}
    shades["button_primary_background_fill_hover"] = "*primary_800"
    dark = {f"{name}_dark": shade for name, shade in shades.items()}
    return base.set(body_text_color_subdued="*neutral_500", **shades, **dark)
