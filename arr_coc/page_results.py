"""Page results: the two answers, what they cost, and where looking paid, as escaped HTML.

Values from `comparing` in, strings out; pictures come from `homunculus`, drawn only when asked for.
"""

import re

from PIL import Image

from arr_coc.comparing import ComparisonResult, LookResult, Where, allocation_of
from arr_coc.page import Example, data_url, escaped

OWN_PICTURE = "This picture is your own: the small model here only learned drawn scenes."
LONG = 60  # characters beyond which an answer is set smaller
SAME = 0.05  # ratios this close to 1 are called the same
STAGES = {
    "waiting": "waits",
    "preprocess": "prepares the picture",
    "glance": "takes a quick first look",
    "relevance": "decides where to look",
    "encode": "looks",
    "prefill": "thinks",
    "decode": "writes",
}
LOOKS = {
    "full": (
        "Full look",
        "The stock model: every place of the picture becomes a visual token.",
        "Looks at every place alike, the way such models usually do.",
    ),
    "focused": (
        "Focused look",
        "ARR-COC: the same weights, with visual tokens only for the places that were kept.",
        "Reads the question first, then looks closely only where that pays.",
    ),
}
MAPS = {
    "propositional": (
        "How much detail",
        "Propositional knowing: entropy of brightness and colour inside each token's cell.",
        "Places with many different tones.",
    ),
    "perspectival": (
        "What stands out",
        "Perspectival knowing: visual saliency, a place against its surroundings.",
        "Places unlike what is around them.",
    ),
    "participatory": (
        "What the question points to",
        "Participatory knowing: the attention that the token about to answer pays to each place in "
        "a quick, low-resolution look through the model itself.",
        "Where the words lead in a quick, blurry look.",
    ),
}
GAUGES = (
    (
        "compress",
        "Gist",
        "Fine detail",
        "compress / particularize",
        (
            "Fine detail: what the question points to counts most.",
            "In between: overall structure and the question's target count alike.",
            "Gist: the picture's overall structure counts most.",
        ),
    ),
    (
        "exploit",
        "Go for the best spot",
        "Look around",
        "exploit / explore",
        (
            "Looking around: quiet places get their chance too.",
            "In between: the obvious spot, but not only that.",
            "Going for the best spot: what stands out comes first.",
        ),
    ),
    (
        "focus",
        "One place",
        "Several places",
        "focus / diversify",
        (
            "Several places: tokens spread to places far apart.",
            "In between: a main place, and some around it.",
            "One place: tokens gather where relevance is highest.",
        ),
    ),
)
SOURCES = {
    "learned": "These three settings were learned by a small trained network for this model.",
    "imposed": "These three settings were set by hand.",
    "none": "The settings were not used in this run.",
    "lexical prior": (
        "Nothing is learned here: the three settings follow a fixed list of words (“how many” "
        "spreads out, “read” goes for fine detail), and the maps are mixed by a fixed formula."
    ),
}


def is_right(answer: str, truth: str) -> bool:
    """Whether an answer is the truth, letter case and punctuation aside."""
    return _plain(answer) == _plain(truth) != ""


def answers(
    full: LookResult | None,
    focused: LookResult | None,
    truth: str | None = None,
    running: bool = False,
) -> str:
    """The two answers side by side, each with its stage while it runs and its mark at the end."""
    return (
        '<div class="arr-answers" aria-live="polite">'
        + _answer("full", full, truth, running)
        + _answer("focused", focused, truth, running)
        + "</div>"
    )


def message(sentence: str) -> str:
    """A sentence in place of the strip: what went wrong, or what to do."""
    return f'<p class="arr-message" role="status">{escaped(sentence)}</p>' if sentence else ""


def strip(result: ComparisonResult, note: str = "") -> str:
    """Tokens, time to the first word, memory: what each look cost; under it a note."""
    full, focused = result["full"], result["focused"]
    if full["error"] or focused["error"]:
        failed = "The full look" if full["error"] else "The focused look"
        return message(f"{failed} did not finish, so there is nothing to compare.")
    share = focused["visual_tokens"] / max(1, full["visual_tokens"])
    items = [
        _measure(
            "Visual tokens",
            "Pieces of the picture that the language model holds",
            (full["visual_tokens"], focused["visual_tokens"]),
            lambda count: f"{count:,}",
            f"{focused['visual_tokens']} of {full['visual_tokens']} kept, {share:.0%}",
        ),
        _measure(
            "Time to first word",
            "Time to the first token, every stage counted: " + _stage_text(full, focused),
            (full["time_to_first_token_s"], focused["time_to_first_token_s"]),
            _seconds,
            f"{ratio_words(result['ratio'])}, measured in this one run",
        ),
        _measure(
            "Memory",
            "KV cache: what the model keeps of picture and question while it writes",
            (full["kv_cache_bytes"], focused["kv_cache_bytes"]),
            _megabytes,
            f"for the context (KV cache). In all {_megabytes(full['peak_memory_bytes'])} and "
            f"{_megabytes(focused['peak_memory_bytes'])}: {focused['peak_memory_kind']}",
        ),
    ]
    return f'<div class="arr-strip">{"".join(items)}</div>{message(note)}'


def remark(result: ComparisonResult, example: Example | None, as_given: bool) -> str:
    """What to say about a comparison of this card; None for a picture of the visitor's own."""
    if example is None:
        return OWN_PICTURE if result["bundled"] else ""
    if not as_given:
        return ""
    return f"An honest failure: {example.note}" if example.expected_failure else example.note


def ratio_words(ratio: float | None) -> str:
    """The measured ratio in words, whichever way it goes."""
    if ratio is None or ratio <= 0:
        return "not measured"
    if ratio > 1 + SAME:
        return f"{ratio:.1f}× faster" if ratio >= 1.1 else "slightly faster"
    if ratio < 1 - SAME:
        return f"{1 / ratio:.1f}× slower" if ratio <= 0.91 else "slightly slower"
    return "about the same"


def where_section(image: Image.Image, result: ComparisonResult) -> str:
    """Where looking pays: one large picture with a switch, the three maps, the tensions."""
    where = result["where"]
    if where is None:
        return ""
    if where["fallback"]:
        return message(
            f"The focused look could not decide where to look ({where['fallback']}); "
            "its tokens were spread evenly."
        )
    views = _views(image, where)
    tabs = "".join(
        f'<input type="radio" name="arr-view" id="arr-view-{key}"{" checked" * (key == "heat")}>'
        f'<label for="arr-view-{key}" title="{escaped(title)}">{label}</label>'
        for key, (label, title, _, _) in views.items()
    )
    figures = "".join(
        f'<figure class="arr-{key}"><img src="{data_url(picture)}" alt="{escaped(alt)}"></figure>'
        for key, (_, _, alt, picture) in views.items()
    )
    kept, places = result["tokens_kept"], where["grid"][0] * where["grid"][1]
    return (
        '<section class="arr-where"><h2 class="arr-h2">Where looking pays</h2>'
        '<div class="arr-two"><div class="arr-views" role="radiogroup" aria-label="How to show it">'
        f'{tabs}<div class="arr-stage">{figures}</div>'
        '<p class="arr-legend"><span>little</span><i></i><span>much</span></p></div>'
        f'<div class="arr-side"><p class="arr-lead">The picture has {places} places; '
        f"{kept} visual tokens were spent{_glance_words(where)}. "
        "Three questions decide where they go:</p>"
        f'<div class="arr-maps">{_maps(image, where)}</div>{tensions(where)}</div></div></section>'
    )


def tensions(where: Where) -> str:
    """Three gauges, one plain sentence each, and where the settings come from."""
    gauges = "".join(_gauge(where[gauge[0]], *gauge[1:]) for gauge in GAUGES)
    source = SOURCES.get(where["tension_source"], where["tension_source"])
    return (
        '<h2 class="arr-h2">How it decided</h2>'
        f'<div class="arr-gauges">{gauges}</div><p class="arr-about">{escaped(source)}</p>'
    )


def _answer(key: str, look: LookResult | None, truth: str | None, running: bool) -> str:
    name, title, idle = LOOKS[key]
    mark, body = "", f'<p class="arr-idle">{idle}</p>'
    if look is not None and look["error"]:
        body = f'<p class="arr-failed">{escaped(look["error"])}</p>'
    elif look is not None and (look["text"] or look["done"]):
        size = "arr-text arr-long" if len(look["text"]) > LONG else "arr-text"
        body = f'<p class="{size}">{escaped(look["text"]) or "(no words came)"}</p>'
        if look["done"] and truth is not None:
            right = is_right(look["text"], truth)
            words = "✓ right" if right else f"✗ wrong: it is {escaped(truth)}"
            mark = f'<span class="arr-mark arr-{"right" if right else "wrong"}">{words}</span>'
    elif look is not None and running:
        body = f'<p class="arr-idle arr-pulse">{STAGES.get(look["stage"], "works")}…</p>'
    elif look is not None:
        body = '<p class="arr-idle">Stopped.</p>'
    return (
        f'<article class="arr-answer arr-look-{key}"><h2 title="{escaped(title)}">{name}</h2>'
        f"{body}{mark}</article>"
    )


def _measure(name, title, values, form, words) -> str:
    top = max(*values, 1e-9)
    bars = "".join(
        f'<div class="arr-bar arr-look-{key}"><span>{label}</span>'
        f'<i><b style="width:{max(2, 100 * value / top):.0f}%"></b></i><em>{form(value)}</em></div>'
        for key, label, value in zip(("full", "focused"), ("Full", "Focused"), values)
    )
    return (
        f'<div class="arr-measure"><h3 title="{escaped(title)}">{name}</h3>{bars}'
        f"<p>{escaped(words)}</p></div>"
    )


def _views(image: Image.Image, where: Where) -> dict[str, tuple[str, str, str, Image.Image]]:
    from arr_coc import homunculus

    allocation = allocation_of(where)
    glance = where["glance_grid"]
    small = homunculus.glance_picture(image, tuple(glance)) if glance else None
    saw = "The picture rebuilt at the resolution each place was given" + (
        "; the blurry background is the quick first look" if glance else ""
    )
    return {
        "heat": (
            "Heat",
            "Relevance: the three maps mixed",
            "The picture under its heat map: bright where looking pays",
            homunculus.overlay(image, where["relevance"]),
        ),
        "kept": (
            "Kept places",
            "The cells that became visual tokens",
            "Kept places bright with outlines, the rest dimmed",
            homunculus.kept_cells(image, allocation),
        ),
        "saw": ("What it saw", saw, saw, homunculus.what_it_saw(image, allocation, small)),
        "plain": ("Picture", "The picture itself", "The picture itself", image),
    }


def _maps(image: Image.Image, where: Where) -> str:
    from arr_coc import homunculus

    items = []
    for key, (name, title, words) in MAPS.items():
        values = where[key]
        if values is None:
            shown = '<p class="arr-idle">not used in this run</p>'
        else:
            picture = homunculus.map_picture(values, image.size, side=288)
            shown = f'<img src="{data_url(picture, "PNG")}" alt="Map: {name.lower()}">'
        items.append(
            f'<figure title="{escaped(title)}">{shown}'
            f"<figcaption>{name}<small>{words}</small></figcaption></figure>"
        )
    return "".join(items)


def _gauge(value: float, left: str, right: str, term: str, sentences) -> str:
    at = round(100 * (1 - value))
    words = sentences[0 if value < 0.4 else 1 if value <= 0.6 else 2]
    return (
        f'<div class="arr-gauge" title="Tension: {term}"><div class="arr-ends"><span>{left}</span>'
        f'<span>{right}</span></div><div class="arr-track" role="img" '
        f'aria-label="{at} % of the way from {left} to {right}"><b style="left:{at}%"></b></div>'
        f"<p>{words}</p></div>"
    )


def _glance_words(where: Where) -> str:
    if not where["glance_grid"]:
        return f" on the {len(where['cells'])} most relevant"
    rows, columns = where["glance_grid"]
    return (
        f": {len(where['cells'])} on the most relevant places, "
        f"{rows * columns} on a blurry view of the whole"
    )


def _stage_text(full: LookResult, focused: LookResult) -> str:
    names = [name for name in full["stages_s"] if name != "decode"]
    rows = [
        f"{name} {_seconds(full['stages_s'][name])} / {_seconds(focused['stages_s'].get(name, 0))}"
        for name in names
    ]
    return ", ".join(rows)


def _seconds(value: float) -> str:
    return f"{value:.2f} s" if value >= 1 else f"{1000 * value:.0f} ms"


def _megabytes(value: float) -> str:
    size = value / 1e6
    if size >= 1000:
        return f"{size / 1000:.1f} GB"
    return f"{size:.0f} MB" if size >= 10 else f"{size:.2f} MB"


def _plain(text: str) -> str:
    return " ".join(re.sub(r"[^\w\s]", " ", text.lower()).split())
