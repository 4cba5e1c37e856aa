"""Page parts: the gradio components of the page that only need placing: settings, theme, HTML.

No handlers and no model here; `app.py` wires the parts.
"""

import json
from typing import Any

import gradio as gr

from arr_coc import comparing, page, page_results, playing

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
QUEUED_JS = f"() => {json.dumps(page_results.queued())}"
_IDLE, _FULL = page_results.answers(None, None), page_results.message(page_results.QUEUE_FULL)
NOT_STARTED = f"shown.includes({json.dumps(page_results.QUEUED)})"
FULL_JS = f"(shown, said) => {NOT_STARTED} ? {json.dumps([_IDLE, _FULL])} : [shown, said]"
UNQUEUED_JS = f"(shown) => {NOT_STARTED} ? {json.dumps(_IDLE)} : shown"


def show(value: str = "", **options: Any) -> gr.HTML:
    """An HTML piece without the framework's own styling; `js_on_load` is none unless given."""
    return gr.HTML(value, apply_default_css=False, **{"js_on_load": None, **options})


def about(bundled: bool) -> str:
    """What the running model can be asked; the bundled one's abilities are its published scores."""
    return page.about(bundled, playing.good_kinds(), playing.weak_kinds())


def settings(share: int = 20) -> dict[str, Any]:
    """The settings under Advanced, by name, in the order of their argument in the handlers."""
    with gr.Accordion("Advanced", open=False, elem_id="arr-advanced"):
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
                page.GLANCE_CHOICES, value="auto", label="The quick first look (glance)"
            )
            parts["prune"] = gr.Radio(
                page.PRUNE_CHOICES, value="before", label="When places are dropped (vision encoder)"
            )
        with gr.Row():
            parts["new_tokens"] = gr.Slider(
                1, 128, comparing.NEW_TOKENS, step=1, label="Longest answer, in tokens", buttons=[]
            )
            parts["revision"] = gr.Dropdown(
                [("the default", "")], value="", label="Revision of the ARR-COC weights"
            )
    order = ("share", "glance", "prune", "allocator", "tier", "new_tokens", "revision")
    return {name: parts[name] for name in order}


def theme() -> gr.themes.Base:
    """System fonts (no request leaves the page), and a button with enough contrast."""
    base = gr.themes.Base(
        primary_hue="orange", neutral_hue="slate", font=SYSTEM_FONTS, font_mono=["monospace"]
    )
    shades = {"button_primary_background_fill": "*primary_700"}
    shades["button_primary_background_fill_hover"] = "*primary_800"
    return base.set(**shades, **{f"{name}_dark": shade for name, shade in shades.items()})
