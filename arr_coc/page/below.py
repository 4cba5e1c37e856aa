"""Page below: the components of what opens below the first screen, and `app.py`'s wiring of them.

Nothing of a section is made before it is opened.
"""

import functools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gradio as gr
from gradio.events import Dependency

from arr_coc.page import moments, results, stamps, you
from arr_coc.page.changes import Played, Several
from arr_coc.page.clip_cards import ClipCards
from arr_coc.page.frame import source
from arr_coc.page.matter_handlers import MatterHandlers
from arr_coc.page.parts import ALIVE, DEAD, Parts, show
from arr_coc.page.refusals import spoken
from arr_coc.page.sense import Sense
from arr_coc.page.several_handlers import LOOKING, MOVING, SeveralHandlers
from arr_coc.page.you_handlers import YouHandlers

ADDRESS = source("address.js")
WEIGHING_JS = stamps.begun("matter", spoken("Leaves out each kept place in turn…"))
NOT_WEIGHED_JS = stamps.refused("matter", spoken(results.QUEUE_FULL), spoken())
STOPPED = "Stopped. What stood here before stays."
QUIET_JS = f"() => {json.dumps(spoken())}"
AGAIN_JS = "() => { window.arrYou.again(); }"
SEVERAL_LEAD = (
    "One budget, the one under the picture above, for all moments of a clip (MP4, WebM or GIF, up to 20 s) "
    "or for up to six pictures. Both looks answer; for a clip the full look also answers from fewer "
    "frames, for as many tokens. The strip shows how many tokens each moment got."
)
# In the browser alone: what is said, Ask, Stop. Ask is dead while it runs, so that no second run is queued.
SEVERAL_LOOKS_JS = f"() => {json.dumps([spoken(LOOKING), DEAD, ALIVE])}"
_ENDED = "if (!document.querySelector('#arr-several-stop').disabled) window.arrState.several.add();"
SEVERAL_STOPPED_JS = f"() => {{ {_ENDED} return {json.dumps([spoken(STOPPED), ALIVE, DEAD])}; }}"
SEVERAL_PICKED_JS = f"() => {{ {_ENDED} return {json.dumps([spoken(), ALIVE, DEAD])}; }}"
_KEEP = {"__type__": "update"}
SEVERAL_FULL_JS = (
    f"() => window.arrState.several.was() ? {json.dumps([_KEEP] * 3)} : "
    f"{json.dumps([spoken(results.QUEUE_FULL), ALIVE, DEAD])}"
)
SEVERAL_PRESS_JS = "() => { document.querySelector('#arr-several-ask')?.click(); }"
SEVERAL_OLD_JS = "() => { window.arrMoments?.another(); }"
# The budget was dragged, typed or set by a button: the clip's answers and the map follow it.
BUDGET_JS = """(percent) => {
    window.arrMoments?.compare();
    if (percent) window.arrSpend?.(Number(percent));
}"""
FULL_JS = f"() => {json.dumps(spoken(results.QUEUE_FULL))}"

# What a server in the model's place has not: it does not say where it looked, and sets or refuses these.
NOT_SERVED = ("matter", "shrunk", "allocator", "glance", "prune", "revision")


@dataclass(frozen=True)
class Below:
    """The components, by the names that `changes` speaks of."""

    address: gr.HTML  # `address.js`
    matter: gr.Button
    said_matter: gr.HTML
    weighed: gr.State  # what the button brought, until it stands on the page
    sense: Sense | None  # where an owner asks for it
    you_first: gr.Accordion
    you: gr.HTML
    you_said: gr.HTML
    playing: gr.State  # a `you.Round`
    several_cards: list[gr.Button]
    several_files: gr.File
    several_question: gr.Textbox
    several_ask: gr.Button
    several_stop: gr.Button
    several_turn: gr.State  # the newest run, a `stamps.Turn`
    several: gr.HTML  # `moments.js`
    several_said: gr.HTML


def address() -> dict[str, Any]:
    """Nothing to see: the browser's address follows the page."""
    script = f"{ADDRESS}\narrAddress(element, trigger);\n"
    return {"address": show(js_on_load=script, elem_id="arr-address")}


def matter() -> dict[str, Any]:
    """A button that asks which kept places mattered; page.css shows it where that is not known yet."""
    named = {"matter": gr.Button("What mattered?", size="sm", elem_id="arr-matter")}
    named |= {"weighed": gr.State(time_to_live=3600)}
    return named | {"said_matter": show(spoken(), elem_id="arr-said-matter")}


def you_first(*, visible: bool) -> dict[str, Any]:
    """ "You first", closed and empty."""
    named = {"playing": gr.State(time_to_live=3600)}
    with gr.Accordion(you.TITLE, open=False, visible=visible, elem_id="arr-you-first") as named[
        "you_first"
    ]:
        named["you"] = show(js_on_load=you.SCRIPT, elem_id="arr-you")
        named["you_said"] = show(spoken(), elem_id="arr-you-said")
    return named


def all_tables(*, visible: bool) -> dict[str, Any]:
    """Closed and empty: the tables come when it is opened."""
    with gr.Accordion("All tables", open=False, visible=visible, elem_id="arr-tables") as fold:
        return {"all_tables": fold, "tables": show()}


def several(clips: Sequence[str], *, visible: bool) -> dict[str, Any]:
    """A clip or several pictures to be asked about, closed and empty; `clips` are what cards ask."""
    with gr.Accordion(moments.TITLE, open=False, visible=visible, elem_id="arr-several-fold"):
        show(f'<p class="arr-lead">{SEVERAL_LEAD}</p>')
        with gr.Row(elem_id="arr-clips", visible=bool(clips)):
            cards = [gr.Button(f"▶ {question}", size="sm", min_width=160) for question in clips]
        named: dict[str, Any] = {
            "several_cards": cards,
            "several_files": gr.File(
                label="One clip, or up to six pictures",
                file_count="multiple",
                file_types=[*MOVING, "image"],
                height=140,
                elem_id="arr-several-files",
            ),
            "several_question": gr.Textbox(
                label="Question about them", max_lines=2, elem_id="arr-several-question"
            ),
        }
        with gr.Row():
            named["several_ask"] = gr.Button("Ask about them", elem_id="arr-several-ask")
            named["several_stop"] = gr.Button("Stop", interactive=False, elem_id="arr-several-stop")
        named["several_turn"] = gr.State(stamps.Turn())
        named["several_said"] = show(spoken(), elem_id="arr-several-said")
        named["several"] = show(js_on_load=moments.SCRIPT, elem_id="arr-several")
    return named


def wire_several(
    below: Below,
    page: Parts,
    handlers: SeveralHandlers,
    cards: ClipCards,
    quick: dict[str, Any],
    gpu: dict[str, Any],
) -> None:
    """The section's events; `quick` and `gpu` are how events run."""
    asked = [below.several_files, below.several_question, page.percent]
    pressed, answered = below.several_ask.click, [getattr(below, name) for name in Several._fields]
    said = answered[1:4]  # and both buttons
    below.several_question.submit(None, None, None, js=SEVERAL_PRESS_JS, **quick)
    pressed(None, None, said, js=SEVERAL_LOOKS_JS, **quick)
    pressed(handlers.on_waiting, None, below.several_said, **quick)
    # A click while Stop is still at work is not lost.
    turn = [below.several_turn, page.run]
    asking = {"js": stamps.numbered(len(asked) + 1, "later"), "trigger_mode": "multiple", **gpu}
    running = pressed(handlers.on_ask, [*asked, *turn], answered, **asking)
    running.failure(None, None, said, js=SEVERAL_FULL_JS, **quick)
    picked = [card.click for card in below.several_cards]
    later = stamps.numbered(1, "later")
    below.several_stop.click(handlers.on_over, turn, None, js=later, **quick)
    below.several_stop.click(None, None, said, js=SEVERAL_STOPPED_JS, cancels=running, **quick)
    if picked:
        gr.on(picked, None, None, said, js=SEVERAL_PICKED_JS, cancels=running, **quick)
    for number, click in enumerate(picked):
        click(functools.partial(cards.on_pick, number), turn, answered, js=later, **quick)
    # Other words, and a dragged budget, `moments.js` sees for itself. A card's own file is not another one.
    for event in ("upload", "delete", "clear"):
        getattr(below.several_files, event)(None, None, None, js=SEVERAL_OLD_JS, **quick)


def wire_budget(page: Parts, quick: dict[str, Any]) -> None:
    """What follows the budget in the browser alone: wired first, as what follows waits for a server."""
    page.percent.change(None, page.percent, None, js=BUDGET_JS, **quick)


def wire_matter(
    below: Below,
    page: Parts,
    handlers: MatterHandlers,
    quick: dict[str, Any],
    gpu: dict[str, Any],
) -> Dependency:
    """The button's events; `quick` and `gpu` are how events run. Returns the model's run."""
    below.matter.click(None, None, below.said_matter, js=WEIGHING_JS, **quick)
    below.matter.click(handlers.on_waiting, None, below.said_matter, **quick)
    running = below.matter.click(
        handlers.on_matters,
        inputs_kwargs=page.named("turn", "run", "shown", "picture", "tensions", *stamps.SHOWN),
        outputs=[below.weighed, below.said_matter],
        js=stamps.numbered(1),
        **gpu,
    )
    placed = [page.look, page.shown]
    running.success(handlers.on_weighed, [page.shown, below.weighed], placed, **quick)
    running.failure(None, None, below.said_matter, js=NOT_WEIGHED_JS, **quick)
    # Another look has come: nothing of the one before is being asked any more.
    page.look.change(None, None, below.said_matter, js=QUIET_JS, **quick)
    return running


def wire_you(
    below: Below, page: Parts, handlers: YouHandlers, quick: dict[str, Any], gpu: dict[str, Any]
) -> None:
    """The section's events; `quick` and `gpu` are how events run."""
    played = [getattr(below, name) for name in Played._fields]
    below.you_first.expand(handlers.on_unfold, below.playing, played, **quick)
    below.you.select(
        handlers.on_round,
        inputs_kwargs=page.named("picture", "question", "chosen", "drawn", "key"),
        outputs=played,
        **quick,
    ).then(None, None, None, js=AGAIN_JS, **quick)
    below.you.submit(handlers.on_waiting, None, below.you_said, **quick)
    running = below.you.submit(handlers.on_spent, below.playing, played, **gpu)
    refused = running.failure(None, None, below.you_said, js=FULL_JS, **quick)
    for ended in (running, refused):  # after a failure nothing but its own event runs
        ended.then(None, None, None, js=AGAIN_JS, **quick)
