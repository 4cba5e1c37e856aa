"""Changes: what a handler changes on the page, by the names of the components in `parts.Parts`.

`Parts.of` gives the outputs of a handler in the order of its changes, so that no handler counts places.
A component that is not named stays as it is.
"""

from typing import Any, NamedTuple

import gradio as gr

UNCHANGED = gr.skip()


class Fresh(NamedTuple):
    """A picture has just come: the page as it opens on it. `drawn` are its known answers."""

    look: Any = UNCHANGED
    answers: Any = UNCHANGED
    strip: Any = UNCHANGED
    saw: Any = UNCHANGED
    why: Any = UNCHANGED
    gauges: Any = UNCHANGED
    cost: Any = UNCHANGED
    hero: Any = UNCHANGED
    picture: Any = UNCHANGED
    question: Any = UNCHANGED
    chosen: Any = UNCHANGED
    drawn: Any = UNCHANGED
    chips: Any = UNCHANGED
    tensions: Any = UNCHANGED
    shown: Any = UNCHANGED
    links: Any = UNCHANGED
    others: Any = UNCHANGED
    second: Any = UNCHANGED
    third: Any = UNCHANGED
    key: Any = UNCHANGED
    imposed: Any = UNCHANGED
    said_picture: Any = UNCHANGED
    said_tensions: Any = UNCHANGED


class Budgeted(NamedTuple):
    """The budget of a recorded card was changed to one that was recorded too."""

    look: Any = UNCHANGED
    answers: Any = UNCHANGED
    strip: Any = UNCHANGED
    saw: Any = UNCHANGED
    why: Any = UNCHANGED
    gauges: Any = UNCHANGED
    cost: Any = UNCHANGED
    hero: Any = UNCHANGED
    shown: Any = UNCHANGED


class Compared(NamedTuple):
    """A comparison begins, goes on or ends. `looks` is what came so far; `go` the button."""

    look: Any = UNCHANGED
    answers: Any = UNCHANGED
    strip: Any = UNCHANGED
    saw: Any = UNCHANGED
    why: Any = UNCHANGED
    gauges: Any = UNCHANGED
    cost: Any = UNCHANGED
    hero: Any = UNCHANGED
    said_tensions: Any = UNCHANGED
    shown: Any = UNCHANGED
    looks: Any = UNCHANGED
    go: Any = UNCHANGED


class Stopped(NamedTuple):
    """Stop was pressed, or something else overtook the run."""

    answers: Any = UNCHANGED
    saw: Any = UNCHANGED
    why: Any = UNCHANGED
    gauges: Any = UNCHANGED
    looks: Any = None
    go: Any = UNCHANGED


class Overtaken(NamedTuple):
    """Another picture came under a run: the page is that picture's already."""

    looks: Any = None
    go: Any = UNCHANGED


class Tuned(NamedTuple):
    """The comparison shown was decided again under other tensions, or why it was not."""

    look: Any = UNCHANGED
    why: Any = UNCHANGED
    gauges: Any = UNCHANGED
    shown: Any = UNCHANGED
    tensions: Any = UNCHANGED
    imposed: Any = UNCHANGED
    said_tensions: Any = UNCHANGED


class Played(NamedTuple):
    """ "You first" goes on: what is shown of the round, the round, and what is said of it."""

    you: Any = UNCHANGED
    playing: Any = UNCHANGED
    you_said: Any = UNCHANGED


class Several(NamedTuple):
    """A clip or several pictures were asked about, or picked: what is shown and said, and the fields."""

    several: Any = UNCHANGED
    several_said: Any = UNCHANGED
    several_ask: Any = UNCHANGED
    several_stop: Any = UNCHANGED
    several_files: Any = UNCHANGED
    several_question: Any = UNCHANGED


class Weighing(NamedTuple):
    """What mattered of a comparison was asked: the comparison with it, or why there is none."""

    weighed: Any = None
    said_matter: Any = UNCHANGED


class Weighed(NamedTuple):
    """What mattered stands on the page, or nothing changes, where that shows something else by now."""

    look: Any = UNCHANGED
    shown: Any = UNCHANGED


class Ready(NamedTuple):
    """The model is there, is still to come (then `waking` asks again), or will not come."""

    header: Any = UNCHANGED
    waking: Any = UNCHANGED
    about: Any = UNCHANGED
    sign: Any = UNCHANGED
    revision: Any = UNCHANGED
    native_tokens: Any = UNCHANGED
