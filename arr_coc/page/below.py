"""Page below: the components of what opens below the first screen, and `app.py`'s wiring of them.

Nothing of a section is made before it is opened.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gradio as gr
from gradio.events import Dependency

from arr_coc.page import results, stamps, you
from arr_coc.page.changes import Played
from arr_coc.page.matter_handlers import MatterHandlers
from arr_coc.page.parts import Parts, show
from arr_coc.page.refusals import spoken
from arr_coc.page.you_handlers import YouHandlers

ADDRESS = (Path(__file__).parent / "address.js").read_text(encoding="utf-8")
# What a stamp compares; that tensions were imposed, their numbers say.
ASKED = [name for name in stamps.SHOWN if name != "imposed"]
WEIGHING_JS = f"() => {json.dumps(spoken('Leaves out each kept place in turn…'))}"
QUIET_JS = f"() => {json.dumps(spoken())}"
MATTERED_JS = "() => { document.querySelector('#arr-look input[value=mattered]')?.click(); }"
AGAIN_JS = "() => { window.arrYou.again(); }"
FULL_JS = f"() => {json.dumps(spoken(results.QUEUE_FULL))}"


@dataclass(frozen=True)
class Below:
    """The components, by the names that `changes` speaks of."""

    address: gr.HTML  # `address.js`
    matter: gr.Button
    said_matter: gr.HTML
    you_first: gr.Accordion
    you: gr.HTML
    you_said: gr.HTML
    playing: gr.State  # a `you.Round`


def address() -> dict[str, Any]:
    """Nothing to see: the browser's address follows the page."""
    script = f"{ADDRESS}\narrAddress(element, trigger);\n"
    return {"address": show(js_on_load=script, elem_id="arr-address")}


def matter() -> dict[str, Any]:
    """A button that asks which kept places mattered; page.css shows it where that is not known yet."""
    named = {"matter": gr.Button("What mattered?", size="sm", elem_id="arr-matter")}
    return named | {"said_matter": show(spoken(), elem_id="arr-said-matter")}


def you_first() -> dict[str, Any]:
    """ "You first", closed and empty."""
    named = {"playing": gr.State(time_to_live=3600)}
    with gr.Accordion(you.TITLE, open=False, elem_id="arr-you-first") as named["you_first"]:
        named["you"] = show(js_on_load=you.SCRIPT, elem_id="arr-you")
        named["you_said"] = show(spoken(), elem_id="arr-you-said")
    return named


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
        inputs_kwargs=page.named("turn", "run", "shown", "picture", "tensions", *ASKED),
        outputs=[page.look, page.shown, below.said_matter],
        js=stamps.numbered(1),
        **gpu,
    )
    running.success(None, None, None, js=MATTERED_JS, **quick)
    running.failure(None, None, below.said_matter, js=FULL_JS, **quick)
    # Another look has come: nothing of the one before is being asked any more.
    page.look.change(None, None, below.said_matter, js=QUIET_JS, **quick)
    return running


def wire_you(
    below: Below, page: Parts, handlers: YouHandlers, quick: dict[str, Any], gpu: dict[str, Any]
) -> Dependency:
    """The section's events; `quick` and `gpu` are how events run. Returns the model's run."""
    played = [getattr(below, name) for name in Played._fields]
    below.you_first.expand(handlers.on_unfold, below.playing, played, **quick)
    below.you.select(
        handlers.on_round,
        inputs_kwargs=page.named("picture", "question", "chosen", "drawn"),
        outputs=played,
        **quick,
    ).then(None, None, None, js=AGAIN_JS, **quick)
    below.you.submit(handlers.on_waiting, None, below.you_said, **quick)
    running = below.you.submit(handlers.on_spent, below.playing, played, **gpu)
    running.failure(None, None, below.you_said, js=FULL_JS, **quick)
    running.then(None, None, None, js=AGAIN_JS, **quick)
    return running
