"""Page why: three ways of knowing as an equation of pictures, and three tensions to drag, as escaped HTML.

The tensions are ordinary range inputs. While one is dragged `balance.js` reckons again in the browser and
`equation.js` draws; when it is let go, `dials.js` reports it.
"""

import json
from typing import Any, NamedTuple

from arr_coc.config import TENSION_ENDS
from arr_coc.page.frame import escaped
from arr_coc.page.results import message
from arr_coc.page.viewer import script
from arr_coc.service.decision import Where

MAPS = {
    "propositional": (
        "How much detail",
        "Propositional knowing: entropy of brightness and colour inside each token's cell.",
        "Places with many different tones.",
    ),
    "perspectival": (
        "What stands out",
        "Perspectival knowing: edge energy, how strongly brightness changes inside each token's cell.",
        "Outlines, writing and small things.",
    ),
    "participatory": (
        "What the question points to",
        "Participatory knowing: the attention that the token about to answer pays to each place in "
        "a quick, low-resolution look through the model itself.",
        "Where the words lead in a quick, blurry look.",
    ),
}
UNGLANCED = {  # by whether a scan was read; without a glance
    True: (
        "Participatory knowing: what trained parts find by the question's words; no quick look was taken.",
        "Where the words lead, without a quick look.",
    ),
    False: (
        "Participatory knowing: no quick look was taken, and nothing trained reads the question.",
        "Nothing here reads the question.",
    ),
}
MATCHED = {  # by what `participatory_source` names
    "texture": " Trained parts add how well each place's texture matches the question.",
    "scan": " A small network that scans every place finer than the glance adds what it finds.",
}


RELEVANCE = (
    "Relevance",
    "The product, stretched from 0 to 1; the less focus, the more places far from the best ones gain.",
    "Where tokens pay most, place by place.",
)
TOKENS = (
    "Tokens",
    "The best places get tokens; the less focus, the more of the tokens are spread evenly.",
    "The places that are looked at closely.",
)


class Gauge(NamedTuple):
    """A tension's term, and what is said at the right end of its gauge, in between, at the left."""

    term: str
    sentences: tuple[str, str, str]


GAUGES = {
    "compress": Gauge(
        "compress / particularize",
        (
            "Fine detail: what the question points to counts most.",
            "In between: overall structure and the question's target count alike.",
            "Gist: the picture's overall structure counts most.",
        ),
    ),
    "exploit": Gauge(
        "exploit / explore",
        (
            "Looking around: quiet places get their chance too.",
            "In between: the obvious spot, but not only that.",
            "Going for the best spot: what stands out comes first.",
        ),
    ),
    "focus": Gauge(
        "focus / diversify",
        (
            "Several places: more tokens are spread over the whole picture.",
            "In between: some tokens for the best places, some all over the picture.",
            "One place: most tokens gather where relevance is highest.",
        ),
    ),
}
SOURCES = {
    "learned": (
        "A small trained network chose these three. It was taught by answers, and by a stated rule over "
        "the question's words."
    ),
    "imposed": "These three settings were set by hand.",
    "none": "The settings were not used in this run.",
    "lexical prior": (
        "Nothing is learned here: the three settings follow a fixed list of words (“how many” "
        "spreads out, “read” goes for fine detail), and the maps are mixed by a fixed formula."
    ),
}
SCRIPT = script(("allocate.js", "balance.js", "equation.js"), "arrEquation(element)")
# The tensions as they were set last, in the place of the newest run's number.
DIALED_JS = "(shown) => [shown, window.arrDialed]"
GAUGES_JS = script(("dials.js",), "arrGauges(element, trigger)")
# What stands before each map of the equation.
BEFORE = {"participatory": "", "propositional": "×", "perspectival": "×"}


def maps(where: Where | None, size: tuple[int, int], answered: Where | None = None) -> str:
    """The three ways of knowing as an equation of pictures: weighed, multiplied, and what comes of it.

    `equation.js` draws it, and draws it anew while a gauge is dragged.

    Args:
        where: the decision, or None.
        size: `(width, height)` of the picture.
        answered: the decision that the answer is from, where `where` was decided again since.
    """
    if where is None:
        return ""
    if where["fallback"]:
        return message(
            f"The focused look could not decide where to look ({where['fallback']}); "
            "its tokens were spread evenly."
        )
    parts = ""
    for key, sign in BEFORE.items():
        name, title, words = MAPS[key]
        if key == "participatory":
            source = where["participatory_source"]
            if where["look_grid"] is None:
                title, words = UNGLANCED[any(part in source for part in MATCHED)]
            title += "".join(more for part, more in MATCHED.items() if part in source)
        parts += _part(
            key, sign, name, title, words, size, f"{key.capitalize()}<span> knowing</span>"
        )
    parts += _part("relevance", "=", *RELEVANCE, size, "Their product")
    parts += _part("tokens", "→", *TOKENS, size, "What is spent")
    data = escaped(json.dumps(sum_of(where, answered or where), separators=(",", ":")))
    places = where["grid"][0] * where["grid"][1]
    return (
        '<section class="arr-why"><h2 class="arr-h2">Three ways of knowing, weighed</h2>'
        f'<p class="arr-lead">Each map says how much it wants each of the {places} places. Multiplied, '
        "they must agree.</p>"
        f'<div class="arr-equation" data-sum="{data}">{parts}</div>{_in_rounds(where)}'
        '<p class="arr-from" role="status"></p></section>'
    )


def _in_rounds(where: Where) -> str:
    """How many tokens each round came to, and how sure the first word was then; "" of one budget."""
    rounds = where.get("rounds", [])
    said = ", then ".join(f"{tokens:.0f} tokens ({nats:.2f} nats)" for tokens, nats in rounds)
    if len(rounds) == 1:
        return message(f"One round was enough, for the first word was sure then: {said}.")
    return message(f"Spent in rounds, while the first word was unsure: {said}.") if rounds else ""


def sum_of(where: Where, answered: Where) -> dict[str, Any]:
    """What `balance.js` reckons with: plain lists, maps with the digits that were written down."""
    names = ("propositional", "perspectival", "participatory")
    return {
        "grid": where["grid"],
        **{name: where[name] for name in names},
        "scalars": where["scalars"],
        "budget": where["budget"],
        "allocator": where["allocator"],
        "glance": where["glance"],
        "look": where["look_grid"],
        "cells": where["cells"],
        "tensions": [where[name] for name in GAUGES],
        "answered": [answered[name] for name in GAUGES],
        "kept": answered["cells"],
    }


def gauges(where: Where | None) -> str:
    """Three gauges to drag, one plain sentence each, and where their settings come from."""
    if where is None or where["fallback"]:
        return ""
    drawn = "".join(_gauge(name, where[name]) for name in GAUGES)
    source = SOURCES.get(where["tension_source"], where["tension_source"])
    return (
        '<section class="arr-tensions"><h2 class="arr-h2">Three tensions weigh them</h2>'
        '<p class="arr-lead">Drag one: the pictures above follow, in your browser alone.</p>'
        f'<div class="arr-gauges">{drawn}</div><p class="arr-about">{escaped(source)}</p></section>'
    )


def _part(
    key: str,
    sign: str,
    name: str,
    title: str,
    words: str,
    size: tuple[int, int],
    over: str,
) -> str:
    """One picture of the equation and what stands before it; `equation.js` draws it and says its weight."""
    before = f'<span class="arr-sign" aria-hidden="true">{sign}</span>' if sign else ""
    return (
        f'<figure class="arr-part-{key}" title="{escaped(title)}"><div class="arr-tile">{before}'
        f'<canvas class="arr-map" data-part="{key}" data-name="{escaped(name)}" role="img" '
        f'aria-label="{escaped(name)}" style="aspect-ratio:{size[0]}/{size[1]}"></canvas></div>'
        f'<figcaption><i>{over}</i>{name}<b class="arr-weight"></b><small>{words}</small></figcaption>'
        "</figure>"
    )


def _gauge(tension: str, value: float) -> str:
    """A range input from 0 to 100: the tension's 1 is its left end, 0."""
    (left, right), (term, sentences) = TENSION_ENDS[tension], GAUGES[tension]
    at = round(100 * (1 - value))
    words = sentences[0 if value < 0.4 else 1 if value <= 0.6 else 2]
    return (
        f'<div class="arr-gauge" data-words="{escaped(json.dumps(sentences))}" '
        f'title="Tension: {term}"><div class="arr-value"><output>{value:.2f}</output> {tension}</div>'
        f'<div class="arr-ends" aria-hidden="true"><span>{left}</span><span>{right}</span></div>'
        f'<input type="range" min="0" max="100" value="{at}" data-tension="{tension}" '
        f'data-exact="{value}" aria-label="From {left} to {right}" '
        f'aria-valuetext="{tension} {value:.2f}. {words}"><p class="arr-said-gauge">{words}</p></div>'
    )
