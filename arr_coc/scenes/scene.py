"""Procedural scenes: pictures with questions, their answers, and the boxes that hold the answers.

`make_scene(seed)` is a pure function of its arguments: same seed, same picture, same questions.
It takes a few milliseconds and no network. Answers are drawn evenly, so a guess that knows only
the question does no better than the majority answer. Seeds from `TEST_SEED` up are for final
evaluation: nothing trains or tunes on them. What is asked is in `questions`, the drawing in
`drawing` and `writing`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from PIL import Image

from arr_coc.scenes import drawing, writing
from arr_coc.scenes.drawing import Box, Rng
from arr_coc.scenes.grounds import PLAIN
from arr_coc.scenes.hands import HOME, Style, style_of
from arr_coc.scenes.questions import CHART_KINDS, KINDS, PANEL_KINDS, Question, Thing, ask

TEST_SEED = 1_000_000_000
DEV_SEED = 900_000_000  # validation while working; training stays below

MAP_STRIDE = 4  # pixels per cell of Scene.things_map
DETAIL_CODE = 128  # added to a thing's code where its emblem or writing is drawn
SMALLEST_SIDE = 96  # pixels of a picture
SMALLEST_PANEL = 192  # pixels on a picture's shorter side that a chart or a form needs
LEAST_DETAIL, MOST_DETAIL = 0.25, 3
PANELS = ("chart", "form")  # settings in which one of them fills the picture
PANEL_SHARE = 0.14  # of the scenes are a panel
PRICED_SHARE = 0.35  # of the scenes put prices on things
SMALLEST_PRICED = 76  # pixels across: a smaller thing would vanish behind its tag


@dataclass(frozen=True)
class Scene:
    """A picture (RGB) with its things and questions.

    `setting` names what the whole picture shows, one of `drawing.SETTINGS` or `PANELS`, or
    `grounds.PLAIN` where nobody could say. `things_map` is
    `(ceil(H / MAP_STRIDE), ceil(W / MAP_STRIDE))` uint8: 0 background, `1 + i` thing i,
    `DETAIL_CODE + 1 + i` the small detail of thing i.
    """

    seed: int
    image: Image.Image
    questions: tuple[Question, ...]
    objects: tuple[Thing, ...]
    setting: str
    things_map: np.ndarray = field(repr=False, compare=False)


def make_scene(
    seed: int,
    *,
    size: tuple[int, int] = (512, 512),
    kinds: Sequence[str] | None = None,
    detail: float = 1.0,
    hand: str = HOME,
) -> Scene:
    """The scene of `seed`: `size` is (width, height) in pixels, `detail` scales emblems and writing.

    Things keep their size in pixels whatever the size of the picture, a larger one holds more.
    `kinds` limits the questions to those kinds and sees to it that most scenes can be asked them.
    `hand` names who draws, one of `hands.HANDS`, or `hands.ANY` for one of those for training.
    Raises ValueError for an unknown kind or hand, a hand held out of training with a seed for it, a
    side under 96 pixels, or `detail` outside [0.25, 3].
    """
    chosen = tuple(KINDS if kinds is None else kinds)
    unknown = set(chosen) - set(KINDS)
    if unknown or not chosen:
        raise ValueError(f"unknown kinds {sorted(unknown)}; known: {', '.join(KINDS)}")
    if min(size) < SMALLEST_SIDE:
        raise ValueError(
            f"size {size} is too small: each side needs at least {SMALLEST_SIDE} pixels"
        )
    if not LEAST_DETAIL <= detail <= MOST_DETAIL:
        raise ValueError(f"detail {detail} is outside [{LEAST_DETAIL}, {MOST_DETAIL}]")
    style = style_of(hand, seed, first_held_out_seed=DEV_SEED, wanted=kinds or ())
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
        for question in ask(rng, kind, canvas.things, size, setting=setting, counted=counted)
    )
    picture = style.finish(canvas.picture) if style else canvas.picture
    things = tuple(canvas.things)
    return Scene(seed, picture, questions, things, setting, canvas.things_map)


class Canvas:
    """A picture being drawn, with the things on it and the map of where they are."""

    def __init__(self, size: tuple[int, int], detail: float, hand: Style | None = None) -> None:
        """`size` is (width, height); `detail` scales emblems and writing; None is the home hand."""
        self.size, self.detail, self.hand = size, detail, hand
        self.picture: Image.Image | None = None
        self.things: list[Thing] = []
        self.things_map = np.zeros((-(-size[1] // MAP_STRIDE), -(-size[0] // MAP_STRIDE)), np.uint8)

    def add(self, thing: Thing, mask: Image.Image | None = None) -> None:
        """Note a thing that was drawn: where `mask` (of its box) covers it, or all of its box."""
        code = len(self.things) + 1
        self.things.append(thing)
        self._note(mask or _full(thing.box), thing.box, code)
        if thing.detail_box:
            self._note(_full(thing.detail_box), thing.detail_box, DETAIL_CODE + code)

    def _note(self, mask: Image.Image, box: Box, code: int) -> None:
        x, y = int(box[0]) // MAP_STRIDE, int(box[1]) // MAP_STRIDE
        width, height = max(1, mask.width // MAP_STRIDE), max(1, mask.height // MAP_STRIDE)
        covered = np.asarray(mask.resize((width, height), Image.BOX)) > 127
        view = self.things_map[y : y + height, x : x + width]
        view[covered[: view.shape[0], : view.shape[1]]] = code


def _full(box: Box) -> Image.Image:
    """A mask that covers all of a box."""
    return Image.new("L", (max(1, int(box[2] - box[0])), max(1, int(box[3] - box[1]))), 255)


# ----------------------------------------------------------------------------------- layout


def _things(rng: Rng, canvas: Canvas, wanted: Sequence[str]) -> tuple[str, str | None]:
    """A scene of things on a background; returns its setting and the name to count, if any.

    `wanted` are the kinds of question that the scene should be asked; empty for no preference.
    """
    canvas.picture, setting = drawing.background(rng, canvas.size, canvas.hand)
    counted, cast = _cast(rng, canvas, wanted)
    share = 1.0 if {"price", "cheapest"} & set(wanted) else PRICED_SHARE
    priced = rng.random() < share
    details = [detail for detail, kind in _HOST_DETAILS.items() if kind in wanted]
    for name, side in cast:
        placed = _place(rng, canvas, name, side)
        if placed is None:
            continue
        box, angle = placed
        if name in drawing.HOSTS:
            _add_host(rng, canvas, name, box, details or list(_HOST_DETAILS))
        else:
            _add_glyph(rng, canvas, name, box, angle, priced=priced and name != counted)
    return setting, counted


_HOST_DETAILS = {  # what a host carries -> the kind of question about it
    "emblem": "emblem_colour",
    "number": "number",
    "word": "word",
}


def _cast(
    rng: Rng, canvas: Canvas, wanted: Sequence[str]
) -> tuple[str | None, list[tuple[str, float]]]:
    """Who appears: the name to count, if any, and `(name, side in pixels)`, largest first."""
    size = canvas.size
    area = size[0] * size[1] / 512**2  # of the usual picture
    known = canvas.hand.names() if canvas.hand else drawing.glyph_names()
    names = list(rng.permutation(known))
    host_share = 1.0 if set(_HOST_DETAILS.values()) & set(wanted) else 0.8
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
    cast += [(names.pop(), rng.uniform(60, 168)) for _ in range(others)]
    limit = 0.5 * min(size)
    cast = [(str(name), min(side, limit)) for name, side in cast]
    return counted, sorted(cast, key=lambda item: -item[1])


_HOST_ASPECTS = {"sign": 1.0, "flag": 0.95, "door": 0.55, "shirt": 1.25}  # width over height


def _place(rng: Rng, canvas: Canvas, name: str, side: float) -> tuple[Box, float] | None:
    """A free box for a thing whose longer side is `side`, and its angle in degrees.

    None where there is no room: after some attempts the thing shrinks, down to 30 pixels.
    """
    size, taken = canvas.size, [thing.box for thing in canvas.things]
    angle = 0.0 if name in drawing.HOSTS else float(rng.uniform(-12, 12))
    aspect = _HOST_ASPECTS.get(name) or drawing.glyph_aspect(name, angle, canvas.hand)
    for attempt in range(60):
        long_side = side * (0.97**attempt if attempt > 20 else 1)
        width, height = long_side * min(1, aspect), long_side * min(1, 1 / aspect)
        if name == "door":
            width, height = width * 1.3, height * 1.3
        x = int(rng.uniform(2, max(3, size[0] - width - 2)))
        y = int(rng.uniform(2, max(3, size[1] - height - 2)))
        right, bottom = min(size[0], x + int(width)), min(size[1], y + int(height))
        box = (float(x), float(y), float(right), float(bottom))
        if long_side > 30 and all(_apart(box, other) for other in taken):
            return box, angle
    return None


def _apart(a: Box, b: Box, margin: float = 6.0) -> bool:
    across = a[2] + margin < b[0] or b[2] + margin < a[0]
    return across or a[3] + margin < b[1] or b[3] + margin < a[1]


def _colours(rng: Rng) -> tuple[str, str]:
    """The names of two different colours."""
    return tuple(str(c) for c in rng.choice(list(drawing.COLOURS), 2, replace=False))


def _add_glyph(
    rng: Rng, canvas: Canvas, name: str, box: Box, angle: float, *, priced: bool
) -> None:
    """Draw a glyph; where `priced`, mostly with a price tag stuck on it."""
    colour, _ = _colours(rng)
    rgb = drawing.jitter(colour, rng)
    if canvas.hand and canvas.hand.own_colours:
        colour = rgb = None
    drawing.shadow(canvas.picture, box, canvas.hand)
    mask = drawing.draw_glyph(canvas.picture, name, rgb, box, angle, canvas.hand)
    if not priced or box[2] - box[0] < SMALLEST_PRICED or rng.random() < 0.2:
        return canvas.add(Thing(name, colour, box), mask)
    text = f"${rng.integers(2, 100)}"
    area = (box[0], box[1] + 0.4 * (box[3] - box[1]), box[2], box[3])
    where = writing.plate(
        rng, canvas.picture, text, area, canvas.detail, at="bottom", hand=canvas.hand
    )
    canvas.add(Thing(name, colour, box, "price", text, where), mask)


def _add_host(rng: Rng, canvas: Canvas, name: str, box: Box, details: Sequence[str]) -> None:
    """Draw a sign, flag, door or shirt that carries one of the details, keys of `_HOST_DETAILS`."""
    colour, other = _colours(rng)
    rgb = drawing.jitter(colour, rng)
    drawing.shadow(canvas.picture, box, canvas.hand)
    mask, area = drawing.draw_host(canvas.picture, name, rgb, box, canvas.hand)
    kind = details[rng.integers(len(details))]
    if kind == "emblem":
        detail, where = other, _emblem_box(rng, area, canvas.detail)
        shape = drawing.EMBLEM_SHAPES[rng.integers(len(drawing.EMBLEM_SHAPES))]
        drawing.draw_emblem(canvas.picture, shape, drawing.jitter(other, rng), rgb, where)
    else:
        detail = writing.number(rng) if kind == "number" else writing.word(rng)
        where = writing.plate(
            rng, canvas.picture, detail, area, canvas.detail, at="anywhere", hand=canvas.hand
        )
    canvas.add(Thing(name, colour, box, kind, detail, where), mask)


def _emblem_box(rng: Rng, area: Box, detail: float) -> Box:
    """A square somewhere in the area."""
    side = float(np.clip(round(rng.uniform(20, 28) * detail), 4, min(area[2] - area[0], 96)))
    x = round(rng.uniform(area[0], max(area[0], area[2] - side)))
    y = round(rng.uniform(area[1], max(area[1], area[3] - side)))
    return float(x), float(y), float(x + int(side)), float(y + int(side))


def _panel(rng: Rng, canvas: Canvas, kinds: Sequence[str]) -> str:
    """A chart or a form fills the picture; returns which."""
    canvas.picture, _ = drawing.background(rng, canvas.size, canvas.hand)
    kind = kinds[rng.integers(len(kinds))]
    parts = writing.chart if kind in CHART_KINDS else writing.form
    for thing in parts(rng, canvas.picture, canvas.detail, canvas.hand):
        canvas.add(thing)
    return "chart" if kind in CHART_KINDS else "form"
