"""Page parts: the gradio components of the page, all of them by name; `app.py` places and wires them."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gradio as gr
from gradio.components import Component

from arr_coc.config import AUTO, NEW_TOKENS, NO_REVISION, QUESTION_TIER, TENSION_ENDS, TIERS, Config
from arr_coc.page import budgets, drawn, frame, picking, results, stamps, viewer, why
from arr_coc.page.changes import Fresh
from arr_coc.page.refusals import spoken
from arr_coc.page.taken import Choice, Number, Picture
from arr_coc.page.visit import BY_SHARE, PERCENT
from arr_coc.service import intake, token_grid
from arr_coc.service.recordings import Recording

LONGER = 4 * intake.MAX_QUESTION  # that a box takes: what is too long is said, and not cut
SYSTEM_FONTS = ["system-ui", "-apple-system", "Segoe UI", "Roboto", "sans-serif"]
ALLOCATOR_CHOICES = [
    ("The most relevant places", "topk"),
    ("As many places as the question seems to need", "adaptive"),
    ("Whole windows", "window"),
    ("Coarse and fine cells that cover everything", "quadtree"),
]
TIER_CHOICES = [
    ("The budget under the picture", BY_SHARE),
    *((f"{tier.capitalize()}: {share:.0%}", tier) for tier, share in TIERS.items()),
    ("Let the question's words choose", QUESTION_TIER),
    ("As few as the answer takes: more while it is unsure", AUTO),
]
# A comparison without a question or a picture would clear the answers and be refused: it does not begin.
OPENING_JS = """() => {
    const box = () => document.querySelector('#arr-question textarea, #arr-question input');
    const say = (words) => { document.querySelector('#arr-unasked p').textContent = words; };
    document.addEventListener('input', (event) => event.target === box() && say(''), true);
    document.addEventListener('click', (event) => {
        const place = document.querySelector('#arr-picture:not(.hidden)');  // for one's own
        const asks = box().value.trim(), sees = !place || place.querySelector('img');
        const goes = !event.target.closest?.('#arr-go') || (asks && sees);
        say(goes ? '' : asks ? 'Choose a picture first.' : 'Write a question first.');
        if (goes) return;
        event.preventDefault();
        event.stopImmediatePropagation();
        if (!asks) box().focus();
    }, true);
    if (new URLSearchParams(location.search).get('arr_view') === 'card')
        for (const place of ['.gradio-container', '#arr-page'])
            document.querySelector(place).classList.add('arr-card-view');
}"""

# In the browser alone, so that a click is answered at once and no later word of the server is lost.
# `go` is the button: dead from the click on, so that no second run is queued behind the first.
DEAD, ALIVE = ({"__type__": "update", "interactive": alive} for alive in (False, True))
QUEUED_JS = (
    "(...shown) => { window.arrState.begin(shown); "
    f"return {json.dumps([results.queued(), DEAD])}; }}"
)
AHEAD_JS = """(words) => { if (words) for (const place of document.querySelectorAll('.arr-queued'))
    place.textContent = words; }"""
_IDLE = results.answers(None, None)
_FULL = results.message(results.QUEUE_FULL) + _IDLE
NOT_STARTED = f"shown.includes({json.dumps(results.QUEUED)})"
FULL_JS = (
    "(shown) => !window.arrState.failed() ? [] "  # it was overtaken: another has the page
    f": [{NOT_STARTED} ? {json.dumps(_FULL)} : shown, {json.dumps(ALIVE)}]"
)
LOOKING_JS = stamps.begun("others", results.message("Looks at each question…"))
NOT_LOOKED_JS = stamps.refused("others", results.message(results.QUEUE_FULL), "")
# What waited for its turn goes when it is overtaken; what came already, the server keeps (`on_stop`).
OVER_JS = f"(shown) => [{NOT_STARTED} ? {json.dumps(_IDLE)} : shown, window.arrState.over()]"


@dataclass(frozen=True)
class Parts:
    """Every component that is wired, by name. `Visit` and `changes` speak of them by these names."""

    chosen: gr.State  # number of the card, None for a picture that is no card
    before: gr.State  # the picture that "Try your own" put away, to come back to
    drawn: gr.State  # questions about a drawn picture, with their answers
    tensions: gr.State  # imposed by dragging; None lets the policy choose
    shown: gr.State  # the comparison on the page, a `board.Shown`
    looks: gr.State  # what came so far of the one that runs
    turn: gr.State  # the newest run, a `stamps.Turn`
    header: gr.HTML
    hero: gr.HTML
    look: gr.HTML
    picture: Picture
    draw: gr.Button
    own: gr.Button
    back: gr.Button
    sign: gr.Row
    writing: gr.Textbox
    put: gr.Button
    question: gr.Textbox
    go: gr.Button
    stop: gr.Button
    chips: gr.HTML
    answers: gr.HTML
    strip: gr.HTML
    shrunk: gr.Checkbox
    cards: gr.HTML
    saw: gr.HTML
    why: gr.HTML
    gauges: gr.HTML
    again: gr.Button
    reset: gr.Button
    cost: gr.HTML
    more: gr.Button
    second: gr.Textbox
    third: gr.Textbox
    compare_maps: gr.Button
    others: gr.HTML
    all_tables: gr.Accordion
    tables: gr.HTML
    links: gr.HTML
    advanced: gr.Accordion
    percent: Number
    tier: gr.Dropdown
    allocator: gr.Dropdown
    glance: gr.Radio
    prune: gr.Radio
    new_tokens: Number
    revision: gr.Dropdown
    native_tokens: gr.Dropdown
    cut_cost: gr.HTML
    about: gr.HTML
    file: gr.Textbox  # what is saved, on its way to the browser
    ahead: gr.Textbox  # how long the wait will be
    key: gr.Textbox  # what the picture shown is called in stamps
    imposed: gr.Textbox  # the tensions set by hand, in a word
    run: gr.Textbox  # the number of the newest run, from the browser
    waking: gr.Timer  # while the model loads
    watch: gr.HTML  # `state.js`, and what it says when the server is gone
    said_picture: gr.HTML
    said_tensions: gr.HTML

    def named(self, *names: str) -> dict[str, Component]:
        """Components by name, as a handler takes them (gradio's `inputs_kwargs`)."""
        return {name: getattr(self, name) for name in names}

    def all(self, names: Sequence[str]) -> list[Component]:
        """Components by name, in that order."""
        return [getattr(self, name) for name in names]

    def of(self, changes: type) -> list[Component]:
        """The outputs of a handler that returns a NamedTuple of `changes`, in its order."""
        return self.all(changes._fields)


def states() -> dict[str, Component]:
    """What the server keeps for a visitor.

    Empty until the page opens, and once a visit was forgotten: no card's answer is another picture's then.
    """
    return {
        "chosen": gr.State(),
        "before": gr.State(),
        "drawn": gr.State(),
        "tensions": gr.State(),
        "shown": gr.State(time_to_live=3600),
        "looks": gr.State(),
        "turn": gr.State(stamps.Turn()),
    }


def show(value: str = "", **options: Any) -> gr.HTML:
    """An HTML piece without the framework's own styling; `js_on_load` is none unless given."""
    return gr.HTML(value, apply_default_css=False, **{"js_on_load": None, **options})


def picture_side(look: str, example: Path | None, at: Sequence[Recording]) -> dict[str, Component]:
    """The left of the desk: the picture, budgets recorded `at`, one's own, new ones, a sign to write on."""
    parts = {"look": show(look, js_on_load=viewer.SCRIPT, elem_id="arr-look")}
    label = "Budget (% of tokens)"
    parts["percent"] = Number(
        5, 100, PERCENT, step=1, label=label, buttons=[], elem_id="arr-budget"
    )
    show(budgets.section(at), js_on_load=budgets.SCRIPT, elem_id="arr-budgets")
    parts["picture"] = Picture(
        str(example) if example else None,
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
    with gr.Row(elem_id="arr-upload"):  # page.css shows it beside an open place to drop a picture
        show(f'<p class="arr-about">{frame.privacy()}</p>')
        parts["back"] = gr.Button("Back to the picture", size="sm", elem_id="arr-back")
    with gr.Row(elem_id="arr-try"):
        parts["draw"] = gr.Button("New picture", size="sm", elem_id="arr-draw")
        parts["own"] = gr.Button("Try your own picture", size="sm", elem_id="arr-own")
    # Hidden until a model that reads is there.
    with gr.Row(visible=False, elem_id="arr-sign") as parts["sign"]:
        parts["writing"] = gr.Textbox(
            placeholder="A word or number for a sign",
            label="Write on a sign",
            show_label=False,
            container=False,
            max_length=LONGER,
            scale=3, elem_id="arr-writing",
        )  # fmt: skip
        parts["put"] = gr.Button("Put it up", size="sm", scale=1, min_width=90, elem_id="arr-put")
    parts["said_picture"] = show(spoken(), elem_id="arr-said-picture")
    return parts


def answer_side(first: Fresh) -> dict[str, Component]:
    """The right of the desk: the question (Compare stays where it was pressed), answers and their cost."""
    parts = {}
    with gr.Row(elem_id="arr-ask"):
        parts["question"] = gr.Textbox(
            first.question,
            label="Question",
            show_label=False,
            container=False,
            placeholder="What do you want to know about the picture?",
            max_length=LONGER,
            scale=5,
            elem_id="arr-question",
        )
        parts["stop"] = gr.Button("Stop", min_width=70, elem_id="arr-stop")
        parts["go"] = gr.Button("Compare", variant="primary", min_width=110, elem_id="arr-go")
    show('<p class="arr-message" role="alert"></p>', elem_id="arr-unasked")
    parts["chips"] = show(js_on_load=picking.CHIPS_JS, elem_id="arr-chips")
    parts["watch"] = show(stamps.WATCH, js_on_load=stamps.SCRIPT, elem_id="arr-watch")
    parts["answers"] = show(first.answers, elem_id="arr-answers")
    parts["strip"] = show(first.strip, elem_id="arr-strip")
    parts["shrunk"] = gr.Checkbox(
        label="Also ask about the picture simply shrunk to the same number of tokens",
        container=False,
        elem_id="arr-shrunk",
    )
    return parts


def reasons(first: Fresh) -> dict[str, Component]:
    """Why there: the equation of the maps, and under it the gauges to drag."""
    parts = {}
    with gr.Column(elem_id="arr-reasons"):
        parts["why"] = show(first.why, js_on_load=why.SCRIPT, elem_id="arr-maps")
        parts["gauges"] = show(first.gauges, js_on_load=why.GAUGES_JS, elem_id="arr-gauges")
        with gr.Row():
            parts["again"] = gr.Button("Compare with these", size="sm", elem_id="arr-again")
            parts["reset"] = gr.Button("Reset", size="sm", elem_id="arr-reset")
        parts["said_tensions"] = show(spoken(), elem_id="arr-said-tensions")
    return parts


def other_questions(*, visible: bool) -> dict[str, Component]:
    """Two more questions about the same picture, their button, and where the maps will stand."""
    parts = {}
    label = "Same picture, other question"
    with gr.Accordion(label, open=False, visible=visible, elem_id="arr-others"):
        with gr.Row(equal_height=True):
            parts["second"] = gr.Textbox(label="Second question", max_length=LONGER)
            parts["third"] = gr.Textbox(label="Third question", max_length=LONGER)
            parts["compare_maps"] = gr.Button("Show where each looks", min_width=160)
        parts["others"] = show(elem_id="arr-side")
    return parts


def settings() -> dict[str, Component]:
    """The settings under Advanced, and the line that says what cutting more finely costs."""
    parts = {}
    with gr.Accordion("Advanced", open=False, elem_id="arr-advanced") as parts["advanced"]:
        with gr.Row():
            parts["tier"] = gr.Dropdown(
                TIER_CHOICES, value=BY_SHARE, label="Tier: overrides the budget"
            )
            parts["allocator"] = gr.Dropdown(
                ALLOCATOR_CHOICES,
                value=Config.allocator,
                label="How tokens are given out (allocator)",
            )
        with gr.Row():
            parts["glance"] = gr.Radio(
                frame.GLANCE_CHOICES, value=Config.glance, label="The quick first look (glance)"
            )
            parts["prune"] = gr.Radio(
                frame.PRUNE_CHOICES,
                value=Config.prune,
                label="When places are dropped (vision encoder)",
            )
        with gr.Row():
            parts["new_tokens"] = Number(
                1, 128, NEW_TOKENS, step=1, label="Longest answer, in tokens", buttons=[]
            )
            parts["revision"] = Choice(
                revision_choices([]), value="", label="Revision of the ARR-COC weights"
            )
            parts["native_tokens"] = Choice(
                [("As it is", token_grid.AS_IS)],
                value=token_grid.AS_IS,
                label="Visual tokens the picture is cut into (native grid)",
            )
        parts["cut_cost"] = show(elem_id="arr-cut-cost")
    return parts


def revision_choices(loaded: list[str]) -> list[tuple[str, str]]:
    """What the ARR-COC weights can be set to, where these revisions are loaded."""
    fixed = [("None: fixed rules", NO_REVISION)] if loaded else []
    return [("The default", ""), *((name, name) for name in loaded), *fixed]


def about(bundled: bool, runs: str = "") -> str:
    """What the running model can be asked; the bundled one's abilities are its published scores."""
    return frame.about(bundled, drawn.good_kinds(), drawn.weak_kinds(), runs) + words()


def words() -> str:
    """What the page's words mean, in the terms of the field: what stands in tooltips, for a touch too."""
    pairs = [(look.name, look.title) for look in results.LOOKS.values()]
    pairs += [own[:2] for own in (*why.MAPS.values(), *viewer.VIEWS.values())]
    for name, (left, right) in TENSION_ENDS.items():
        pairs.append((f"{left} ↔ {right}", f"Tension: {why.GAUGES[name].term}."))
    items = "".join(f"<dt>{frame.escaped(a)}</dt><dd>{frame.escaped(b)}</dd>" for a, b in pairs)
    meant = f"<summary>What the words mean</summary><dl>{items}</dl>"
    return f'<details class="arr-how">{meant}</details>'


def theme() -> gr.themes.Base:
    """System fonts (no request leaves the page), and a button and quiet words with enough contrast."""
    base = gr.themes.Base(
        primary_hue="orange", neutral_hue="slate", font=SYSTEM_FONTS, font_mono=["monospace"]
    )
    shades = {"button_primary_background_fill": "*primary_700"}
    shades["button_primary_background_fill_hover"] = "*primary_800"
    dark = {f"{name}_dark": shade for name, shade in shades.items()}
    quiet = {"body_text_color_subdued": "*neutral_500", "input_placeholder_color": "*neutral_600"}
    return base.set(input_placeholder_color_dark="*neutral_300", **quiet, **shades, **dark)
