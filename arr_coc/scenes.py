"""Procedural scenes: pictures with questions, answers and the boxes that hold the answers.

    python -m arr_coc.scenes --show sheet.png

`make_scene(seed)` is a pure function of its arguments: same seed, same picture, same questions.
It takes a few milliseconds and no network. Answers are drawn uniformly, so a guess that knows
only the question does no better than the majority answer. Seeds from `TEST_SEED` up are for final
evaluation: nothing trains or tunes on them. The drawing itself is in `scenes_draw.py`.
"""

import argparse
import json
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from PIL import Image, ImageDraw

from arr_coc import scenes_draw as draw

TEST_SEED = 1_000_000_000
DEV_SEED = 900_000_000  # validation while working; training stays below

KINDS = {
    "colour": "the colour of a named thing",
    "exists": "whether a named thing is in the picture (yes or no)",
    "emblem_colour": "the colour of a small emblem on a sign, flag, door or shirt (fine detail)",
    "where": "whether a thing is left or right, or at the top or bottom",
    "leftmost": "which thing is leftmost, or rightmost",
    "count": "how many of a named thing there are (1 to 4)",
}

MAP_STRIDE = 4  # pixels per cell of Scene.things_map
EMBLEM_CODE = 128  # added to a thing's code where its emblem is
PLURALS = {"fish": "fish", "butterfly": "butterflies", "leaf": "leaves", "scissors": "scissors"}

PHRASES = {
    "colour": (
        "what colour is the {x}?",
        "what color is the {x}?",
        "which colour is the {x}?",
        "what is the colour of the {x}?",
        "what's the color of the {x}?",
        "tell me the colour of the {x}.",
        "the {x} is what color?",
    ),
    "exists": (
        "is there {a} {x}?",
        "is there {a} {x} in the picture?",
        "do you see {a} {x}?",
        "can you see {a} {x} here?",
        "does the picture show {a} {x}?",
    ),
    "emblem_colour": (
        "what colour is the emblem on the {x}?",
        "what color is the emblem on the {x}?",
        "which colour is the small emblem on the {x}?",
        "what is the color of the emblem on the {x}?",
        "the emblem on the {x} is what colour?",
    ),
    "where_x": (
        "is the {x} on the left or on the right?",
        "is the {x} on the right or on the left?",
        "on which side is the {x}, left or right?",
        "where is the {x}: left or right?",
    ),
    "where_y": (
        "is the {x} at the top or at the bottom?",
        "is the {x} at the bottom or at the top?",
        "where is the {x}, top or bottom?",
    ),
    "leftmost": ("what is leftmost?", "which thing is leftmost?", "what is furthest left?"),
    "rightmost": ("what is rightmost?", "which thing is rightmost?", "what is furthest right?"),
    "count": ("how many {xs} are there?", "how many {xs} do you see?", "count the {xs}."),
}


@dataclass(frozen=True)
class Question:
    """One question; `boxes` hold the evidence, in pixels, and are empty where everything does."""

    text: str
    answer: str
    kind: str
    boxes: tuple[tuple[float, float, float, float], ...] = ()


@dataclass(frozen=True)
class Thing:
    """A drawn thing: its name, the name of its colour, its box; an emblem's where it has one."""

    name: str
    colour: str
    box: tuple[float, float, float, float]
    emblem_colour: str | None = None
    emblem_box: tuple[float, float, float, float] | None = None


@dataclass(frozen=True)
class Scene:
    """A picture (RGB) with its things and questions.

    `things_map` is `(ceil(H / 4), ceil(W / 4))` uint8: 0 background, `1 + i` thing i,
    `EMBLEM_CODE + 1 + i` the emblem of thing i.
    """

    seed: int
    image: Image.Image
    questions: tuple[Question, ...]
    objects: tuple[Thing, ...]
    things_map: np.ndarray = field(repr=False, compare=False)


def make_scene(
    seed: int,
    *,
    size: tuple[int, int] = (512, 512),
    kinds: Sequence[str] | None = None,
    detail: float = 1.0,
) -> Scene:
    """The scene of `seed`: `size` is (width, height) in pixels, `detail` scales the emblems.

    Things keep their size in pixels whatever the size of the picture, a larger one holds more.
    `kinds` limits the questions to those kinds and makes sure that the scene can be asked them.
    Raises ValueError for an unknown kind, a side under 96 pixels, or `detail` outside [0.25, 3].
    """
    chosen = tuple(KINDS if kinds is None else kinds)
    unknown = set(chosen) - set(KINDS)
    if unknown or not chosen:
        raise ValueError(f"unknown kinds {sorted(unknown)}; known: {', '.join(KINDS)}")
    if min(size) < 96:
        raise ValueError(f"size {size} is too small: each side needs at least 96 pixels")
    if not 0.25 <= detail <= 3:
        raise ValueError(f"detail {detail} is outside [0.25, 3]")
    rng = np.random.default_rng(seed)
    picture = draw.background(rng, size)
    things_map = np.zeros((-(-size[1] // MAP_STRIDE), -(-size[0] // MAP_STRIDE)), np.uint8)
    things: list[Thing] = []
    counted, cast = _cast(rng, size, chosen if kinds else ())
    for name, side in cast:
        box = _place(rng, name, side, size, [thing.box for thing in things])
        if box is not None:
            things.append(_add(rng, picture, things_map, len(things), name, box, detail))
    asked = {kind: _ASKERS[kind](rng, things, size) for kind in chosen if kind != "count"}
    if "count" in chosen and counted:
        asked["count"] = _ask_count(rng, things, counted)
    questions = tuple(question for kind in asked for question in asked[kind])
    return Scene(seed, picture, questions, tuple(things), things_map)


# ----------------------------------------------------------------------------------- layout


def _cast(rng, size, wanted) -> tuple[str | None, list[tuple[str, float]]]:
    """Who appears: the name to count, if any, and `(name, side in pixels)`, largest first."""
    area = size[0] * size[1] / 512**2
    names = list(rng.permutation(draw.glyph_names()))
    host_share = 1.0 if "emblem_colour" in wanted else 0.75
    hosts = list(rng.permutation(draw.HOSTS)[: 1 + (rng.random() < 0.5 * area)])
    cast = [(host, rng.uniform(110, 180)) for host in hosts if rng.random() < host_share]
    counted = None
    if "count" in wanted or rng.random() < 0.5:
        counted = str(names.pop())
        copies = rng.integers(1, 5 if area > 0.5 else 3)
        cast += [(counted, rng.uniform(52, 96)) for _ in range(copies)]
    others = rng.integers(max(1, round(2 * area)), max(2, round(6 * area)) + 1)
    cast += [(names.pop(), rng.uniform(60, 168)) for _ in range(others)]
    limit = 0.5 * min(size)
    cast = [(str(name), min(side, limit)) for name, side in cast]
    return counted, sorted(cast, key=lambda item: -item[1])


_HOST_ASPECTS = {"sign": 1.0, "flag": 0.95, "door": 0.55, "shirt": 1.25}


def _place(rng, name, side, size, taken):
    """A free box for a thing whose longer side is `side`, or None where there is no room."""
    angle = 0.0 if name in draw.HOSTS else float(rng.uniform(-12, 12))
    aspect = _HOST_ASPECTS.get(name) or draw.glyph_aspect(name, angle)
    for attempt in range(60):
        long_side = side * (0.97**attempt if attempt > 20 else 1)
        width, height = long_side * min(1, aspect), long_side * min(1, 1 / aspect)
        if name == "door":
            width, height = width * 1.3, height * 1.3
        x = int(rng.uniform(2, max(3, size[0] - width - 2)))
        y = int(rng.uniform(2, max(3, size[1] - height - 2)))
        box = (x, y, min(size[0], x + int(width)), min(size[1], y + int(height)))
        if long_side > 30 and all(_apart(box, other) for other in taken):
            return (*box, angle)
    return None


def _apart(a, b, margin: float = 6.0) -> bool:
    across = a[2] + margin < b[0] or b[2] + margin < a[0]
    return across or a[3] + margin < b[1] or b[3] + margin < a[1]


def _add(rng, picture, things_map, index, name, placed, detail) -> Thing:
    """Draw one thing, note it in the map, and describe it."""
    *box, angle = placed
    box = tuple(float(v) for v in box)
    colour, other = (str(c) for c in rng.choice(list(draw.COLOURS), 2, replace=False))
    rgb = draw.jitter(colour, rng)
    draw.shadow(picture, box)
    if name not in draw.HOSTS:
        mask = draw.draw_glyph(picture, name, rgb, box, angle)
        _note(things_map, mask, box, index + 1)
        return Thing(name, colour, box)
    mask, area = draw.draw_host(picture, name, rgb, box)
    _note(things_map, mask, box, index + 1)
    emblem = _emblem_box(rng, area, detail)
    shape = draw.EMBLEM_SHAPES[rng.integers(len(draw.EMBLEM_SHAPES))]
    draw.draw_emblem(picture, shape, draw.jitter(other, rng), rgb, emblem)
    spot = Image.new("L", tuple(int(emblem[i + 2] - emblem[i]) for i in (0, 1)), 255)
    _note(things_map, spot, emblem, EMBLEM_CODE + index + 1)
    return Thing(name, colour, box, other, emblem)


def _emblem_box(rng, area, detail):
    side = float(np.clip(round(rng.uniform(20, 28) * detail), 4, min(area[2] - area[0], 96)))
    x = round(rng.uniform(area[0], max(area[0], area[2] - side)))
    y = round(rng.uniform(area[1], max(area[1], area[3] - side)))
    return float(x), float(y), float(x + int(side)), float(y + int(side))


def _note(things_map, mask, box, code) -> None:
    """Write `code` where `mask` covers the picture, at the map's stride."""
    x, y = int(box[0]) // MAP_STRIDE, int(box[1]) // MAP_STRIDE
    width, height = max(1, mask.width // MAP_STRIDE), max(1, mask.height // MAP_STRIDE)
    covered = np.asarray(mask.resize((width, height), Image.BOX)) > 127
    view = things_map[y : y + height, x : x + width]
    view[covered[: view.shape[0], : view.shape[1]]] = code


# -------------------------------------------------------------------------------- questions


def _phrase(rng, key: str, name: str = "") -> str:
    """One phrasing of `key`; now and then capitalised or without its mark, as people type."""
    text = str(rng.choice(PHRASES[key]))
    article = "an" if name[:1] in "aeiou" else "a"
    text = text.format(x=name, a=article, xs=PLURALS.get(name, name + "s"))
    if rng.random() < 0.3:
        text = text[0].upper() + text[1:]
    return text.rstrip("?.") if rng.random() < 0.2 else text


def _unique(things) -> list[Thing]:
    names = [thing.name for thing in things]
    return [thing for thing in things if names.count(thing.name) == 1]


def _pick(rng, items: list, most: int) -> list:
    return [items[i] for i in rng.permutation(len(items))[:most]]


def _ask_colour(rng, things, size):
    for thing in _pick(rng, _unique(things), 3):
        yield Question(_phrase(rng, "colour", thing.name), thing.colour, "colour", (thing.box,))


def _ask_exists(rng, things, size):
    there = [name for name in draw.glyph_names() if any(t.name == name for t in things)]
    absent = [name for name in draw.glyph_names() if name not in there]
    for _ in range(2):
        present = bool(there) and rng.random() < 0.5
        name = str(rng.choice(there if present else absent))
        boxes = tuple(thing.box for thing in things if thing.name == name)
        yield Question(_phrase(rng, "exists", name), "yes" if present else "no", "exists", boxes)


def _ask_emblem_colour(rng, things, size):
    for thing in things:
        if thing.emblem_colour:
            text = _phrase(rng, "emblem_colour", thing.name)
            yield Question(text, thing.emblem_colour, "emblem_colour", (thing.emblem_box,))


def _ask_where(rng, things, size):
    for thing in _pick(rng, _unique(things), 2):
        axis = int(rng.integers(2))
        offset = (thing.box[axis] + thing.box[axis + 2]) / 2 / size[axis] - 0.5
        if abs(offset) < 0.08:
            continue
        answer = (("left", "right"), ("top", "bottom"))[axis][int(offset > 0)]
        text = _phrase(rng, ("where_x", "where_y")[axis], thing.name)
        yield Question(text, answer, "where", (thing.box,))


def _ask_leftmost(rng, things, size):
    key = ("leftmost", "rightmost")[int(rng.integers(2))]
    sign = 1 if key == "leftmost" else -1
    edge = 0 if key == "leftmost" else 2
    ranked = sorted(things, key=lambda thing: sign * (thing.box[0] + thing.box[2]))
    margin = 0.05 * size[0]
    if len(ranked) > 1 and all(
        sign * (other.box[0] + other.box[2] - ranked[0].box[0] - ranked[0].box[2]) > 2 * margin
        and sign * (other.box[edge] - ranked[0].box[edge]) > margin / 2
        for other in ranked[1:]
    ):
        yield Question(_phrase(rng, key), ranked[0].name, "leftmost", (ranked[0].box,))


def _ask_count(rng, things, name):
    boxes = tuple(thing.box for thing in things if thing.name == name)
    if boxes:
        yield Question(_phrase(rng, "count", name), str(len(boxes)), "count", boxes)


_ASKERS = {
    "colour": _ask_colour,
    "exists": _ask_exists,
    "emblem_colour": _ask_emblem_colour,
    "where": _ask_where,
    "leftmost": _ask_leftmost,
}


# ------------------------------------------------------------------------------ contact sheet


def contact_sheet(seeds: Sequence[int], *, columns: int = 4, detail: float = 1.0) -> Image.Image:
    """Scenes side by side with their questions, answers and evidence boxes (RGB)."""
    tile, text_height, gap = 384, 150, 12
    rows = -(-len(seeds) // columns)
    sheet = Image.new(
        "RGB", (columns * (tile + gap) + gap, rows * (tile + text_height) + gap), "white"
    )
    for i, seed in enumerate(seeds):
        scene = make_scene(seed, detail=detail)
        picture = scene.image.copy()
        paint = ImageDraw.Draw(picture)
        for question in scene.questions:
            for box in question.boxes:
                paint.rectangle(box, outline=(225, 0, 120))
        x = gap + i % columns * (tile + gap)
        y = gap + i // columns * (tile + text_height)
        sheet.paste(picture.resize((tile, tile), Image.LANCZOS), (x, y))
        lines = [f"{q.text} {q.answer}" for q in scene.questions]
        short = [textwrap.shorten(line, 62) for line in lines[:10]]
        ImageDraw.Draw(sheet).multiline_text(
            (x, y + tile + 4), "\n".join(short), "black", spacing=2
        )
    return sheet


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Draw scenes with questions, answers and boxes.")
    parser.add_argument("--show", metavar="PNG", required=True, help="contact sheet to write")
    parser.add_argument(
        "--seed", type=int, default=DEV_SEED, help="first seed (default %(default)s)"
    )
    parser.add_argument("--n", type=int, default=12, help="how many scenes (default %(default)s)")
    parser.add_argument("--detail", type=float, default=1.0, help="scale of the fine detail")
    args = parser.parse_args(argv)
    contact_sheet(range(args.seed, args.seed + args.n), detail=args.detail).save(args.show)
    print(json.dumps({"file": args.show, "seed": args.seed, "n": args.n}))


if __name__ == "__main__":
    main()
