"""Page why: the three maps side by side and the three tensions to drag, as escaped HTML.

The tensions are ordinary range inputs; `GAUGES_JS` reports them when one is let go.
"""

import json
from typing import NamedTuple

from arr_coc.config import TENSION_ENDS
from arr_coc.page.frame import escaped
from arr_coc.page.results import message
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
MATCHED = " Trained parts add how well each place's texture matches the question."


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
            "Several places: most tokens are spread over the whole picture.",
            "In between: some tokens for the best places, some all over the picture.",
            "One place: most tokens gather where relevance is highest.",
        ),
    ),
}
SOURCES = {
    "learned": "These three settings were learned by a small trained network for this model.",
    "imposed": "These three settings were set by hand.",
    "none": "The settings were not used in this run.",
    "lexical prior": (
        "Nothing is learned here: the three settings follow a fixed list of words (“how many” "
        "spreads out, “read” goes for fine detail), and the maps are mixed by a fixed formula."
    ),
}
GAUGES_JS = """
element.addEventListener('change', (event) => {
    const gauges = element.querySelectorAll('.arr-gauge input');
    if (event.target.closest('.arr-gauge')) trigger('release', {tensions: [...gauges].map(
        (gauge) => 1 - Number(gauge.value) / 100)});
});
element.addEventListener('input', (event) => {
    const gauge = event.target.closest('.arr-gauge');
    if (!gauge) return;
    const at = Number(event.target.value), words = JSON.parse(gauge.dataset.words);
    gauge.querySelector('output').textContent = (1 - at / 100).toFixed(2);
    gauge.querySelector('p').textContent = words[at > 60 ? 0 : at >= 40 ? 1 : 2];
});
const settle = () => element.querySelectorAll('.arr-gauge input').forEach((gauge) => {
    gauge.value = gauge.getAttribute('value');
});
new MutationObserver(settle).observe(element, {
    subtree: true, attributes: true, attributeFilter: ['value'],
});
"""


def maps(where: Where | None, size: tuple[int, int]) -> str:
    """The three ways of knowing side by side, and what they were mixed for.

    Args:
        where: the decision, or None.
        size: `(width, height)` of the picture.
    """
    if where is None:
        return ""
    if where["fallback"]:
        return message(
            f"The focused look could not decide where to look ({where['fallback']}); "
            "its tokens were spread evenly."
        )
    items = ""
    for key, (name, title, words) in MAPS.items():
        title += MATCHED * (key == "participatory" and "texture" in where["participatory_source"])
        items += _map(where[key], name, title, words, size)
    places = where["grid"][0] * where["grid"][1]
    return (
        '<section class="arr-why"><h2 class="arr-h2">Why there</h2>'
        f'<p class="arr-lead">The picture has {places} places{_spent(where)}. '
        f'Three questions decide where they go:</p><div class="arr-maps">{items}</div></section>'
    )


def gauges(where: Where | None) -> str:
    """Three gauges to drag, one plain sentence each, and where their settings come from."""
    if where is None or where["fallback"]:
        return ""
    drawn = "".join(_gauge(name, where[name]) for name in GAUGES)
    source = SOURCES.get(where["tension_source"], where["tension_source"])
    return (
        '<section class="arr-tensions"><h2 class="arr-h2">How it weighed them</h2>'
        '<p class="arr-lead">Drag one: the picture shows at once where it would look instead.</p>'
        f'<div class="arr-gauges">{drawn}</div><p class="arr-about">{escaped(source)}</p></section>'
    )


def _map(
    values: list[list[float]] | None, name: str, title: str, words: str, size: tuple[int, int]
) -> str:
    shown = '<p class="arr-idle">not used in this run</p>'
    if values is not None:
        data = json.dumps([[round(value, 2) for value in row] for row in values])
        shown = (
            f'<canvas class="arr-map" data-map="{data}" style="aspect-ratio:{size[0]}/{size[1]}" '
            f'role="img" aria-label="Map: {name.lower()}"></canvas>'
        )
    return (
        f'<figure title="{escaped(title)}">{shown}'
        f"<figcaption>{name}<small>{words}</small></figcaption></figure>"
    )


def _gauge(tension: str, value: float) -> str:
    """A range input from 0 to 100: the tension's 1 is its left end, 0."""
    (left, right), (term, sentences) = TENSION_ENDS[tension], GAUGES[tension]
    at = round(100 * (1 - value))
    words = sentences[0 if value < 0.4 else 1 if value <= 0.6 else 2]
    return (
        f'<div class="arr-gauge" data-words="{escaped(json.dumps(sentences))}" '
        f'title="Tension: {term}"><div class="arr-ends" aria-hidden="true"><span>{left}</span>'
        f"<span>{right}</span></div>"
        f'<input type="range" min="0" max="100" value="{at}" '
        f'data-tension="{tension}" aria-label="From {left} to {right}">'
        f'<span class="arr-value">{tension} <output>{value:.2f}</output></span><p>{words}</p></div>'
    )


def _spent(where: Where) -> str:
    """How the tokens were given out, to go on a sentence."""
    kept = len(where["cells"])
    even = 0 if where["allocator"] == "quadtree" else round((1 - where["focus"]) * kept)
    where_to = f"{kept - even} to the most relevant, {even} evenly over the rest"
    if not where["glance_grid"]:
        return f"; {kept} visual tokens are given out, {where_to}"
    rows, columns = where["glance_grid"]
    return (
        f"; {kept + rows * columns} visual tokens are given out, {where_to}, "
        f"{rows * columns} to a blurry view of the whole"
    )
