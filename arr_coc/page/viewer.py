"""Viewer: one picture with everything a look did to it, switched in the browser without the server.

`viewer` gives escaped HTML: the picture, and the decision as data in attributes. `paint.js` draws the
kept cells, heat, what it saw and the homunculus from them, `viewer.js` shows them; `SCRIPT` mounts both
in `gr.HTML` (`js_on_load`) and in a file that stands alone.
"""

import json
from bisect import bisect_left
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from PIL import Image

from arr_coc.page import warping
from arr_coc.page.asking import Asked
from arr_coc.page.frame import data_url, escaped, source
from arr_coc.ranking import ranks
from arr_coc.service.decision import Where
from arr_coc.service.mattering import Mattered

SOURCES = [source(name) for name in ("paint.js", "viewer.js")]
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
# Pixels of the longer side of the picture that is sent: the lens shows them as they are.
SIDE = 800
# The first (share of the side, quality) that needs so few characters, else the last: noise is costly.
SENT = ((1, 88), (1, 78), (1, 68), (1, 58), (0.8, 60), (0.8, 45))
MOST_SENT = 40_000
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
        "Each kept place was left out in turn: red is what the answer's probability loses",
        "Kept places red by what the answer loses without each of them, the fewest that give it framed",
    ),
    "plain": ("Picture", "The picture itself", "The picture itself"),
}
FIRST = "kept"  # of the views
EDGE = 0.15  # of the picture's height: a thing nearer to the top has no room for words above it
HINT = "Point at a place to see what it was given."
ROLLS = "This picture is long: scroll it to see the rest."


def script(names: Sequence[str], call: str) -> str:
    """Sources of this folder, and a call that waits for `paint.js`, which the viewer brings for all."""
    return "".join(map(source, names)) + WHEN_IT_CAN.format(call=call)


def picture_url(image: Image.Image) -> str:
    """The picture as a `data:` URL, its longer side at most `shown_side`, of about `MOST_SENT` bytes."""
    picture, side = image.convert("RGB"), shown_side(image.size)

    @cache
    def at(number: int) -> str:
        share, quality = SENT[number]
        small = picture.copy()
        small.thumbnail((round(share * side),) * 2, Image.Resampling.LANCZOS)
        return data_url(small, quality=quality)

    # Each needs fewer characters than the one before it: halving tries three of them, not all.
    fits = bisect_left(range(len(SENT) - 1), True, key=lambda n: len(at(n)) <= MOST_SENT)
    return at(fits)


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
    asked: Sequence[Asked] = (),
    mattered: Mattered | None = None,
    opens: str = "",
) -> str:
    """The viewer's HTML.

    Args:
        picture: a `data:` URL.
        size: `(width, height)` of the picture, for its aspect.
        where: the decision; None shows the picture alone.
        mattered: which kept places the answer hangs on, where that was asked.
        opens: the view to show at once; empty for the one that was chosen last.
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
        f'<input type="radio" name="arr-view" id="arr-view-{key}" value="{key}" '
        f'data-alt="{escaped(alt)}"{" checked" * (key == FIRST)}>'
        f'<label for="arr-view-{key}" title="{escaped(title)}">{label}</label>'
        for key, (label, title, alt) in VIEWS.items()
        if key != "mattered" or mattered
    )
    data = escaped(json.dumps(look_data(where, mattered), separators=(",", ":")))
    causes = _causes(mattered) if mattered else ""
    opening = f' data-opens="{opens}"' if opens else ""
    return (
        f'<div class="{kind}" style="{aspect}" data-view="{FIRST}" data-look="{data}"{opening}>'
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
        f'<i class="arr-legend-kept"></i><span>kept</span></p></div>{causes}</div>'
    )


def _causes(mattered: Mattered) -> str:
    """What the causal picture shows, in words, with the decided one beside it; shown with that view."""
    loss, smallest, answer = mattered["loss"], mattered["smallest"], escaped(mattered["answer"])
    words = (
        f"Each of the {len(loss)} kept places was left out in turn, of the language model alone: what the "
        f"encoder gave of the others is unchanged. Red is what “{answer}”, {mattered['probability']:.0%} "
        f"likely with all of them, loses; at most {max(0.0, *loss):.0%}. "
    )
    if smallest is None:
        words += "No fewer of them give the same answer alone."
    elif not smallest:
        words += "Without any of them it says the same: it needed none."
    else:
        places = "The place in the frame gives" if len(smallest) == 1 else (
            f"The {len(smallest)} in the frames give"
        )  # fmt: skip
        words += f"{places} the answer alone, confirmed by a look from pixels."
    return (
        '<div class="arr-causes"><figure><canvas class="arr-decided" role="img" aria-label="Heat map of '
        'the decision, to compare"></canvas><figcaption>What was decided</figcaption></figure>'
        f"<p>{words}</p></div>"
    )


def _things(asked: Sequence[Asked]) -> str:
    """A button over each thing that is asked about, small ones on top; the listener is in `viewer.js`."""
    boxes = [(tuple(box), ask) for ask in asked for box in ask["boxes"]]
    boxes.sort(key=lambda pair: -(pair[0][2] - pair[0][0]) * (pair[0][3] - pair[0][1]))
    return "".join(
        f'<button type="button" class="arr-thing{_side(left, top, right, bottom)}" '
        f'data-card="{ask["card"]}" aria-label="Ask: {escaped(ask["question"])}" '
        f'style="left:{100 * left:.2f}%;top:{100 * top:.2f}%;'
        f'width:{100 * (right - left):.2f}%;height:{100 * (bottom - top):.2f}%">'
        f"<span>{escaped(ask['question'])}</span></button>"
        for (left, top, right, bottom), ask in boxes
    )


def _side(left: float, top: float, right: float, bottom: float) -> str:
    """Where the words of a thing would leave the picture: at its left or right, its top, or both ends."""
    middle, at = (left + right) / 2, ""
    if top < EDGE:
        at = " arr-at-top" if bottom < 1 - EDGE else " arr-at-ends"
    return at + (" arr-at-left" if middle < 0.3 else " arr-at-right" if middle > 0.7 else "")


def is_after(where: Where) -> bool:
    """Whether the encoder saw all of the picture, before places were dropped."""
    return where.get("prune") == "after"


def look_data(where: Where, mattered: Mattered | None = None) -> dict[str, Any]:
    """What `viewer.js` draws from: plain lists, maps in hundredths."""
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
        "after": is_after(where),
        "places": placed.places.tolist(),
        "order": placed.cells,
        "mesh": warping.inverse_mesh(density_of(where)).round(3).tolist(),
        **{name: _hundredths(where[name]) for name in maps},
    }


def density_of(where: Where) -> np.ndarray:
    """`(h, w)` visual tokens that a decision spent per place."""
    glance = where["glance_grid"]
    tokens = glance[0] * glance[1] if glance else 0
    return warping.token_density(tuple(where["grid"]), np.array(where["cells"]), tokens)


def _hundredths(rows: list[list[float]] | None) -> list[list[int]] | None:
    return None if rows is None else [[round(100 * value) for value in row] for row in rows]
