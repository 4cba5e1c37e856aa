"""Viewer: one picture with everything a look did to it, switched in the browser without the server.

`viewer` gives escaped HTML: the picture, and the decision as data in attributes. `paint.js` draws the
kept cells, heat, what it saw and the homunculus from them, `viewer.js` shows them; `SCRIPT` mounts both
in `gr.HTML` (`js_on_load`) and in a file that stands alone.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from arr_coc.page import warping
from arr_coc.page.asking import Asked
from arr_coc.page.frame import data_url, escaped
from arr_coc.ranking import ranks
from arr_coc.service.decision import Where
from arr_coc.service.mattering import Mattered

SOURCES = [
    (Path(__file__).parent / name).read_text(encoding="utf-8") for name in ("paint.js", "viewer.js")
]
SCRIPT = (
    f"{''.join(SOURCES)}\narrViewer(element, typeof trigger === 'undefined' ? null : trigger);\n"
)
# For what draws beside the viewer: which part's script runs first, nobody says.
WHEN_IT_CAN = """
(function begin() {{
    if (window.arrPaint) {call};
    else requestAnimationFrame(begin);
}})();
"""
SIDE = 640  # pixels of the longer side of the picture that is sent
LONG = 5.0  # times as long as the other side: such a picture is shown in a frame that scrolls
THIN, LONGEST = (
    110,
    8000,
)  # pixels of its shorter side, as in page.css, and at most of its longer one
VIEWS = {
    "kept": (
        "Kept",
        "The places that became visual tokens in full colour, the most relevant the clearest",
        "Kept places outlined in full colour, the rest of the picture pale and soft",
    ),
    "heat": (
        "Heat map",
        "Places by their rank in relevance; the bright ones were kept, the brightest matter most",
        "The picture in grey under its heat map, place by place: bright places were kept, the "
        "brightest matter most",
    ),
    "saw": (
        "As it saw",
        "The picture rebuilt at the resolution each place was given; dark and coarse: no token of its own",
        "The picture rebuilt at the resolution each place was given: sharp where tokens were kept, "
        "dark and coarse where it was seen only in passing",
    ),
    "sized": (
        "Homunculus",
        "The picture sized by attention: area follows the visual tokens spent",
        "The picture bent so that each place's area follows the visual tokens spent on it",
    ),
    "mattered": (
        "Mattered",
        "Each kept place was left out in turn, of the language model alone: red is what the answer's "
        "probability loses. The framed places give the answer by themselves, confirmed from pixels",
        "Kept places red by what the answer loses without each of them, the fewest that give it framed",
    ),
    "plain": ("Picture", "The picture itself", "The picture itself"),
}
FIRST = "kept"  # of the views
HINT = "Point at a place to see what it was given."
ROLLS = "This picture is long: scroll it to see the rest."


def script(names: Sequence[str], call: str) -> str:
    """Sources of this folder, and a call that waits for `paint.js`, which the viewer brings for all."""
    sources = ((Path(__file__).parent / name).read_text(encoding="utf-8") for name in names)
    return "".join(sources) + WHEN_IT_CAN.format(call=call)


def picture_url(image: Image.Image) -> str:
    """The picture as a `data:` URL, its longer side at most `shown_side`."""
    small, side = image.convert("RGB"), shown_side(image.size)
    small.thumbnail((side, side), Image.Resampling.LANCZOS)
    return data_url(small)


def shown_side(size: tuple[int, int]) -> int:
    """Pixels that the longer side of such a picture needs to be shown: `SIDE`, and more if it is long."""
    if not is_long(size):
        return SIDE
    return min(LONGEST, max(SIDE, round(THIN * max(size) / min(size))))


def is_long(size: tuple[int, int]) -> bool:
    """Whether a picture of that width and height would be a thin line where all of it is shown."""
    return max(size) > LONG * min(size)


def viewer(
    picture: str,
    size: tuple[int, int],
    where: Where | None,
    name: str = "arr",
    asked: Sequence[Asked] = (),
    mattered: Mattered | None = None,
) -> str:
    """The viewer's HTML.

    Args:
        picture: a `data:` URL.
        size: `(width, height)` of the picture, for its aspect.
        where: the decision; None shows the picture alone.
        name: sets radios of several viewers on one page apart.
        mattered: which kept places the answer hangs on, where that was asked.
        asked: questions whose things light up on the picture, to be asked by a click.
    """
    aspect = f"--arr-aspect:{size[0] / size[1]:.4f}"
    shown = f'<img class="arr-base" src="{picture}" alt="The picture asked about">'
    kind, roll, hint = "arr-viewer", '<div class="arr-roll">', HINT
    if is_long(size):
        kind, hint = f"{kind} arr-long-picture", f"{ROLLS} {HINT}"
        roll = '<div class="arr-roll" tabindex="0" role="region" aria-label="A long picture, to scroll">'
    if where is None or where["fallback"]:
        body = f'{roll}<div class="arr-stage">{shown}</div></div>'
        body += f'<p class="arr-about">{ROLLS}</p>' * is_long(size)
        return f'<div class="{kind}" style="{aspect}">{body}</div>'
    radios = "".join(
        f'<input type="radio" name="{name}-view" id="{name}-view-{key}" value="{key}" '
        f'data-alt="{escaped(alt)}"{" checked" * (key == FIRST)}>'
        f'<label for="{name}-view-{key}" title="{escaped(title)}">{label}</label>'
        for key, (label, title, alt) in VIEWS.items()
        if key != "mattered" or mattered
    )
    data = escaped(json.dumps(look_data(where, mattered), separators=(",", ":")))
    return (
        f'<div class="{kind}" style="{aspect}" data-view="{FIRST}" data-look="{data}">'
        f'<div class="arr-views" role="radiogroup" aria-label="How to show the picture">{radios}</div>'
        f'<div class="arr-frame">{roll}<div class="arr-stage">{shown}'
        f'<canvas class="arr-over" role="img" aria-label="{escaped(VIEWS[FIRST][2])}"></canvas>'
        '<div class="arr-cursor" hidden></div><div class="arr-cells" tabindex="0" role="application" '
        'aria-label="Places of the picture: arrow keys move, Escape leaves"></div>'
        f"{_things(asked)}</div></div>"
        f'<p class="arr-readout" aria-live="polite" data-hint="{hint}">{hint}</p></div>'
        '<div class="arr-under"><label class="arr-slide"><span>Original</span>'
        '<input type="range" class="arr-wipe" min="0" max="100" value="100" '
        'aria-label="How much of the picture shows the view"><span>View</span></label>'
        '<button type="button" class="arr-button arr-play">How it decided</button>'
        '<p class="arr-legend" aria-hidden="true"><i class="arr-legend-rest"></i><span>not kept</span>'
        f'<i class="arr-legend-kept"></i><span>kept</span></p></div></div>'
    )


def _things(asked: Sequence[Asked]) -> str:
    """A button over each thing that is asked about; the listener is in `viewer.js`."""
    return "".join(
        f'<button type="button" class="arr-thing{_side((left + right) / 2)}" data-card="{ask["card"]}" '
        f'aria-label="Ask: {escaped(ask["question"])}" style="left:{100 * left:.2f}%;top:{100 * top:.2f}%;'
        f'width:{100 * (right - left):.2f}%;height:{100 * (bottom - top):.2f}%">'
        f"<span>{escaped(ask['question'])}</span></button>"
        for ask in asked
        for left, top, right, bottom in ask["boxes"]
    )


def _side(middle: float) -> str:
    """Where the words of a thing would leave the picture: at its left or at its right."""
    return " arr-at-left" if middle < 0.3 else " arr-at-right" if middle > 0.7 else ""


def look_data(where: Where, mattered: Mattered | None = None) -> dict[str, Any]:
    """What `viewer.js` draws from: plain lists, maps with two decimals."""
    placed = ranks(where["relevance"], where["cells"])
    maps = ("propositional", "perspectival", "participatory")
    return {
        "grid": where["grid"],
        "cells": where["cells"],
        "budgets": where["cell_budgets"],
        "budget": where["budget"],
        "looked": where["look_grid"],
        "mattered": mattered,
        "glance": where["glance_grid"],
        "places": placed.places.tolist(),
        "order": placed.cells,
        "brightness": placed.brightness.round(3).tolist(),
        "mesh": warping.inverse_mesh(density_of(where)).round(4).tolist(),
        **{name: _short(where[name]) for name in maps},
    }


def density_of(where: Where) -> np.ndarray:
    """`(h, w)` visual tokens that a decision spent per place."""
    glance = where["glance_grid"]
    tokens = glance[0] * glance[1] if glance else 0
    return warping.token_density(tuple(where["grid"]), np.array(where["cells"]), tokens)


def _short(rows: list[list[float]] | None) -> list[list[float]] | None:
    return None if rows is None else [[round(value, 2) for value in row] for row in rows]
