"""Page saw: what each look saw, side by side under one lens, as escaped HTML.

`lens.js` rebuilds the three from the picture that is on the page already: all of it, at the resolution each
place was given, and shrunk. Nothing is asked of the server.
"""

import json
from collections.abc import Sequence

import numpy as np

from arr_coc.config import small_grid
from arr_coc.page.asking import Asked
from arr_coc.page.frame import escaped
from arr_coc.page.results import LOOKS
from arr_coc.page.viewer import is_after, script
from arr_coc.service.decision import Where
from arr_coc.service.looks import ComparisonResult

SCRIPT = script(("lens.js",), "arrLens(element)")
NOT_ASKED = "not asked this time"
TINY = 1e-9  # relevance that a place has at least, so that there is a most relevant one
LONG = 24  # characters of an answer that stand under a picture


def section(result: ComparisonResult | None, asked: Sequence[Asked] = ()) -> str:
    """The three pictures with their answers and the lens; "" where there is no decision to show.

    Args:
        result: of the looks. Where shrinking was not asked, its picture stands there without an answer.
        asked: what can be asked on the picture; the lens begins on the question's own thing.
    """
    where = result and result["where"]
    if not where or where["fallback"] or not result["tokens_kept"]:
        return ""
    small = small_grid(tuple(where["grid"]), result["tokens_kept"])
    data = {
        "grid": where["grid"],
        "cells": where["cells"],
        "glance": where["glance_grid"],
        "after": is_after(where),
        "small": small,
        "at": _begins(result["question"], where, asked),
    }
    tokens = {
        "full": where["grid"][0] * where["grid"][1],
        "focused": result["tokens_kept"],
        "shrunk": small[0] * small[1],
    }
    panes = "".join(_pane(key, result, count) for key, count in tokens.items())
    return (
        '<section class="arr-saw"><h2 class="arr-h2">What each look saw</h2>'
        '<p class="arr-lead">One lens over all three: move it, and see what was left.</p>'
        f'<div class="arr-looks" data-saw="{escaped(json.dumps(data, separators=(",", ":")))}" '
        'tabindex="0" role="application" aria-label="Lens over what each look saw: arrow keys move it by '
        f'one place, Home brings it back" aria-describedby="arr-lens-said">{panes}</div>'
        '<p class="arr-lens-said" id="arr-lens-said" aria-live="polite"></p></section>'
    )


def _pane(key: str, result: ComparisonResult, tokens: int) -> str:
    look = result[key]
    text = look["text"] if look and look["done"] and not look["error"] else ""
    if len(text) > LONG:
        text = f"{text[:LONG].rstrip()}…"
    says = f"<b>“{escaped(text)}”</b>" if text else f"<span>{NOT_ASKED if not look else ''}</span>"
    return (
        f'<figure class="arr-pane arr-look-{key}" data-look="{key}"><figcaption><span>{LOOKS[key].name}'
        f"<small>{tokens:,} tokens</small></span>{says}</figcaption>"
        '<div class="arr-under-lens"><div class="arr-shot"><canvas class="arr-seen" role="img" '
        f'aria-label="What the {LOOKS[key].name.lower()} saw"></canvas><i class="arr-spot"></i></div>'
        '<canvas class="arr-lens" aria-hidden="true"></canvas></div>'
        '<p class="arr-pixels" aria-hidden="true"></p></figure>'
    )


def _begins(question: str, where: Where, asked: Sequence[Asked]) -> list[float]:
    """Where the lens begins, down and across in shares of the picture: around the most relevant place.

    Of the thing that the question is about, where that is known.
    """
    relevance = np.asarray(where["relevance"], float) + TINY  # (h, w)
    h, w = relevance.shape
    rows, columns = np.indices(relevance.shape)
    boxes = [box for ask in asked if ask["question"] == question for box in ask["boxes"]]
    if boxes:
        left, top, right, bottom = boxes[0]
        down = (rows + 1 > top * h) & (rows < bottom * h)
        inside = down & (columns + 1 > left * w) & (columns < right * w)
        relevance = relevance * inside if inside.any() else relevance
    best = np.unravel_index(relevance.argmax(), relevance.shape)
    near = relevance * (np.maximum(abs(rows - best[0]), abs(columns - best[1])) <= 1)
    middle = (
        ((at + 0.5) * near).sum() / near.sum() / side for at, side in ((rows, h), (columns, w))
    )
    return [round(float(at), 4) for at in middle]
