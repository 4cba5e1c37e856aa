"""Procedural scenes: pictures with questions, their answers, and the boxes that hold the answers.

`make_scene(seed)` is a pure function of its arguments: same seed, same picture, same questions.
It takes a few milliseconds and no network. Answers are drawn evenly, so a guess that knows only
the question does no better than the majority answer. Seeds from `TEST_SEED` up are for final
evaluation: nothing trains or tunes on them. What is asked is in `questions`, the drawing in
`drawing` and `writing`; the large world of streets, shelves and boards begins in `large`.
"""

from collections.abc import Sequence

import numpy as np

from arr_coc.scenes import drawing, large, writing
from arr_coc.scenes.canvas import DETAIL_CODE, MAP_STRIDE, Canvas, Scene
from arr_coc.scenes.drawing import Box, Rng
from arr_coc.scenes.grounds import PLAIN
from arr_coc.scenes.hands import HOME, style_of
from arr_coc.scenes.parts import (
    HOST_ASPECTS,
    HOST_DETAILS,
    add_glyph,
    add_host,
    apart,
    two_colours,
)
from arr_coc.scenes.questions import CHART_KINDS, KINDS, PANEL_KINDS, ask, scenery_of

__all__ = [
    "DETAIL_CODE",
    "DEV_SEED",
    "KINDS_OF",
    "MAP_STRIDE",
    "TEST_SEED",
    "WORLDS",
    "Canvas",
    "Scene",
]
__all__ += ["make_scene"]

TEST_SEED = 1_000_000_000
DEV_SEED = 900_000_000  # validation while working; training stays below

WORLDS = ("small", "large")  # a few things or one panel; streets, shelves, boards and the like
KINDS_OF = {"small": tuple(KINDS), "large": large.ALL_KINDS}  # of question, by world
SMALLEST_SIDE = 96  # pixels of a picture
SMALLEST_PANEL = 192  # pixels on a picture's shorter side that a chart or a form needs
LEAST_DETAIL, MOST_DETAIL = 0.25, 3
PANELS = ("chart", "form")  # settings in which one of them fills the picture
PANEL_SHARE = 0.14  # of the scenes are a panel
PRICED_SHARE = 0.35  # of the scenes put prices on things


def make_scene(
    seed: int,
    *,
    size: tuple[int, int] = (512, 512),
    kinds: Sequence[str] | None = None,
    detail: float = 1.0,
    world: str = "small",
    layouts: Sequence[str] | None = None,
    most: int = large.MOST,
    besides: bool = False,
    hand: str = HOME,
) -> Scene:
    """The scene of `seed`: `size` is (width, height) in pixels, `detail` scales emblems and writing.

    Things keep their size in pixels whatever the size of the picture, a larger one holds more.
    `kinds` limits the questions to those kinds and sees to it that most scenes can be asked them.
    `world` is one of `WORLDS`. The large one has the kinds of `richer.RICHER_KINDS` too and takes
    `layouts`, the names in `layouts.LAYOUTS` to draw (all where None), and `most`, the most things
    that a question counts or compares; with `besides` what is drawn for `kinds` is asked all other kinds
    that fit it too. `hand` names who draws, one of `hands.HANDS`, or `hands.ANY` for one of those for
    training. Raises ValueError for an unknown world, kind, layout or hand, a
    hand held out of training with a seed for it, a layout in the small world, a side under 96 pixels
    (large: outside `large.SIDES`), or `detail` outside [0.25, 3].
    """
    if world not in WORLDS:
        raise ValueError(f"unknown world {world!r}; known: {', '.join(WORLDS)}")
    if not LEAST_DETAIL <= detail <= MOST_DETAIL:
        raise ValueError(f"detail {detail} is outside [{LEAST_DETAIL}, {MOST_DETAIL}]")
    style = style_of(hand, seed, first_held_out_seed=DEV_SEED, wanted=kinds or ())
    if world == "large":
        wishes = {"detail": detail, "layouts": layouts, "most": most, "besides": besides}
        return large.make(seed, size, kinds, hand=style, **wishes)
    if layouts is not None or most != large.MOST or besides:
        given = f"layouts {layouts}, most {most} and besides {besides}"
        raise ValueError(f"{given} are for the large world only")
    chosen = tuple(KINDS if kinds is None else kinds)
    unknown = set(chosen) - set(KINDS)
    if unknown or not chosen:
        raise ValueError(f"unknown kinds {sorted(unknown)}; known: {', '.join(KINDS)}")
    if min(size) < SMALLEST_SIDE:
        raise ValueError(
            f"size {size} is too small: each side needs at least {SMALLEST_SIDE} pixels"
        )
    rng = np.random.default_rng(seed)
    canvas = Canvas(size, detail, style)
    panel_kinds = [kind for kind in chosen if kind in PANEL_KINDS]
    share = PANEL_SHARE if kinds is None else len(panel_kinds) / len(chosen)
    counted = None
    if panel_kinds and rng.random() < share and min(size) >= SMALLEST_PANEL:
        setting = _panel(rng, canvas, panel_kinds)
    else:
        setting, counted = _things(rng, canvas, chosen if kinds else ())
    is_panel = setting in PANELS
    fitting = [kind for kind in chosen if kind == "setting" or (kind in PANEL_KINDS) == is_panel]
    if setting == PLAIN:
        fitting = [kind for kind in fitting if kind != "setting"]
    questions = tuple(
        question
        for kind in fitting
        for question in ask(
            rng,
            kind,
            canvas.things,
            size,
            setting=setting,
            counted=counted,
            scenery=scenery_of(setting),
        )
    )
    things = tuple(canvas.things)
    return Scene(seed, canvas.finished(), questions, things, setting, canvas.things_map)


# ----------------------------------------------------------------------------------- layout


def _things(rng: Rng, canvas: Canvas, wanted: Sequence[str]) -> tuple[str, str | None]:
    """A scene of things on a background; returns its setting and the name to count, if any.

    `wanted` are the kinds of question that the scene should be asked; empty for no preference.
    """
    canvas.picture, setting = drawing.background(rng, canvas.size, canvas.hand)
    counted, cast = _cast(rng, canvas, wanted)
    share = 1.0 if {"price", "cheapest"} & set(wanted) else PRICED_SHARE
    priced = rng.random() < share
    details = [detail for detail, kind in HOST_DETAILS.items() if kind in wanted]
    for name, side in cast:
        placed = _place(rng, canvas, name, side)
        if placed is None:
            continue
        box, angle = placed
        if name in drawing.HOSTS:
            add_host(rng, canvas, name, box, details or list(HOST_DETAILS))
        else:
            colour, is_priced = two_colours(rng)[0], priced and name != counted
            add_glyph(rng, canvas, name, colour, box, angle=angle, priced=is_priced)
    return setting, counted


def _cast(
    rng: Rng, canvas: Canvas, wanted: Sequence[str]
) -> tuple[str | None, list[tuple[str, float]]]:
    """Who appears: the name to count, if any, and `(name, side in pixels)`, largest first."""
    size = canvas.size
    area = size[0] * size[1] / 512**2  # of the usual picture
    names = list(rng.permutation(canvas.names()))
    host_share = 1.0 if set(HOST_DETAILS.values()) & set(wanted) else 0.8
    hosts = list(rng.permutation(drawing.HOSTS)[: 1 + (rng.random() < 0.6 * area)])
    cast = [(host, rng.uniform(110, 180)) for host in hosts if rng.random() < host_share]
    counted = None
    if "count" in wanted or rng.random() < 0.4:
        counted = str(names.pop())
        copies = rng.integers(1, 5 if area > 0.5 else 3)
        cast += [(counted, rng.uniform(52, 96)) for _ in range(copies)]
    others = rng.integers(max(1, round(2 * area)), max(2, round(6 * area)) + 1)
    if "cheapest" in wanted or "beside" in wanted:
        others = max(others, 3)
    # A hand of few things has not that many left for the largest pictures.
    cast += [(names.pop(), rng.uniform(60, 168)) for _ in range(min(others, len(names)))]
    limit = 0.5 * min(size)
    cast = [(str(name), min(side, limit)) for name, side in cast]
    return counted, sorted(cast, key=lambda item: -item[1])


def _place(rng: Rng, canvas: Canvas, name: str, side: float) -> tuple[Box, float] | None:
    """A free box for a thing whose longer side is `side`, and its angle in degrees.

    None where there is no room: after some attempts the thing shrinks, down to 30 pixels.
    """
    size, taken = canvas.size, [thing.box for thing in canvas.things]
    angle = 0.0 if name in drawing.HOSTS else float(rng.uniform(-12, 12))
    aspect = HOST_ASPECTS.get(name) or drawing.glyph_aspect(name, angle, canvas.hand)
    for attempt in range(60):
        long_side = side * (0.97**attempt if attempt > 20 else 1)
        width, height = long_side * min(1, aspect), long_side * min(1, 1 / aspect)
        if name == "door":
            width, height = width * 1.3, height * 1.3
        x = int(rng.uniform(2, max(3, size[0] - width - 2)))
        y = int(rng.uniform(2, max(3, size[1] - height - 2)))
        right, bottom = min(size[0], x + int(width)), min(size[1], y + int(height))
        box = (float(x), float(y), float(right), float(bottom))
        if long_side > 30 and all(apart(box, other) for other in taken):
            return box, angle
    return None


def _panel(rng: Rng, canvas: Canvas, kinds: Sequence[str]) -> str:
    """A chart or a form fills the picture; returns which."""
    canvas.picture, _ = drawing.background(rng, canvas.size, canvas.hand)
    kind = kinds[rng.integers(len(kinds))]
    parts = writing.chart if kind in CHART_KINDS else writing.form
    for thing in parts(rng, canvas.picture, canvas.detail, canvas.hand):
        canvas.add(thing)
    return "chart" if kind in CHART_KINDS else "form"
