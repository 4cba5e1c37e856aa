"""Labels: what each visual token of a drawn scene shows, class by class.

They are what the vision side learns to name, and what the codes of the symbolic stage are made of.
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np
from PIL import Image

from arr_coc.scenes import drawing, writing
from arr_coc.scenes.facts import Facts
from arr_coc.scenes.layouts import boards, dashboards, papers
from arr_coc.scenes.questions import Thing, neighbour
from arr_coc.scenes.richer import ENTRY_KINDS
from arr_coc.scenes.scene import DETAIL_CODE, Scene

# What boards, papers and dashboards show in words: what stands there, and what names it.
ENTRIES = (*papers.FORM_FIELDS, *papers.GOODS)
ENTRIES += tuple(label for labels in dashboards.LABELS for label in labels)
LARGE_TEXTS = (*boards.PLACES, *ENTRIES, *dashboards.TITLES)
# What a visual token can carry, 0 being "nothing" everywhere.
THING_NAMES = ("", *drawing.glyph_names(), *drawing.HOSTS, *writing.QUARTERS, *writing.FIELDS)
THING_NAMES = tuple(dict.fromkeys((*THING_NAMES, *ENTRIES)))
COLOUR_NAMES = ("", *drawing.COLOURS)
WRITTEN_WORDS = tuple(dict.fromkeys(("", *writing.WORDS, *writing.MONTHS, *LARGE_TEXTS)))
EMBLEM, WRITING = 1, 2  # classes of "detail"
# Classes of "extent": the root of a thing's area, in visual tokens, the first up to the least of these,
# each of the others up to so many times the one before it, the last everything above.
EXTENTS, LEAST_EXTENT, EXTENT_STEP = 10, 0.8, 1.25
MOST_LINES = 9  # of a board, told apart
LOWEST, HIGHEST, BETWEEN = 1, 2, 3  # classes of "rank", and of "end"
MOST_COPIES = 4  # standing for more too
ATTRIBUTES = {  # name -> number of classes
    "name": len(THING_NAMES),
    "colour": len(COLOUR_NAMES),
    "detail": 1 + WRITING,
    "centre": 2,  # 1: a thing's centre is here
    "tens": 1 + 10,  # 1 + first digit of what is written here
    "units": 1 + 10,  # 1 + second digit
    "word": len(WRITTEN_WORDS),
    "extent": 1 + EXTENTS,  # how large the thing here is
    "copies": 1 + MOST_COPIES,  # how many things of this name there are
    "left": len(THING_NAMES),  # what is left of the thing here
    "above": len(THING_NAMES),
    # What belongs to the thing here: what is written on its sign or its shop's, the gate and the city of
    # the line of a board, the title of a chart; and whose sign it is.
    "with_tens": 1 + 10,
    "with_units": 1 + 10,
    "with_word": len(WRITTEN_WORDS),
    "with_name": len(THING_NAMES),
    "line": 1 + MOST_LINES,  # of a board, the last one standing for more too
    "rank": 1 + BETWEEN,  # of a bar in its chart, of a price in the picture
    # How the thing here stands to all others.
    "right": len(THING_NAMES),  # what has it on its left
    "below": len(THING_NAMES),
    "end": 1 + BETWEEN,  # leftmost, rightmost or neither
    "alike": len(THING_NAMES),  # the only other thing of its colour
    "of_colour": 1 + MOST_COPIES,  # how many things of its colour there are
    "of_look": 1 + MOST_COPIES,  # and of its name and colour
}
# Of these what the token itself shows says nothing: other places of the picture have to be seen.
RELATED = ("with_tens", "with_units", "with_word", "with_name", "line", "rank")
RELATED += ("right", "below", "end", "alike", "of_colour", "of_look")
CHARACTERS = "0123456789abcdefghijklmnopqrstuvwxyz$="  # also read one by one, where they stand
HALVES = 2  # a visual token's left and right half are read apart
UNKNOWN = -1  # in `name`: a picture whose tokens nobody labelled
# A visual token carries a thing's name, or its detail, where that covers such a share of it.
MIN_SHARE, MIN_DETAIL_SHARE = 0.2, 0.07
TEXT_MARGIN = 3  # pixels between the ends of a box and its line of text


def cell_labels(scene: Scene, h: int, w: int) -> dict[str, np.ndarray]:
    """What each of the `h * w` visual tokens shows, raster order: int64 classes per attribute.

    `characters` is `(h * w, 2 * len(CHARACTERS))` float32, 1 where a character's middle lies in the
    token's left half, then the same for its right half.
    """
    labels = {key: np.zeros((h, w), np.int64) for key in ATTRIBUTES}
    told = _told(scene)
    most = np.full((h, w), MIN_SHARE)  # of a token that one thing covers, so far
    for i, thing in enumerate(scene.objects):
        share = _shares(scene.things_map == i + 1, h, w)
        here = share > most
        most[here] = share[here]
        labels["colour"][here] = COLOUR_NAMES.index(thing.colour or "")
        labels["extent"][here] = _extent(thing.box, scene.image.size, h, w)
        for key, value in told[thing].items():
            labels[key][here] = value
        row, column = _cell_of(thing.box, scene.image.size, h, w)
        labels["centre"][row, column] = 1
    for i, thing in enumerate(scene.objects):  # after all things: a detail lies on top of its host
        if thing.detail_kind is None:
            continue
        here = _shares(scene.things_map == DETAIL_CODE + i + 1, h, w) > MIN_DETAIL_SHARE
        for key, value in (told[thing] | _detail_labels(thing)).items():
            labels[key][here] = value
    flat = {key: value.reshape(-1) for key, value in labels.items()}
    return flat | {"characters": _characters(scene, h, w)}


def thing_classes(thing: Thing, scene: Scene, h: int, w: int) -> dict[str, int]:
    """What is true of a thing, by attribute, where its picture is seen in `h * w` tokens."""
    told = _told(scene)
    classes = dict(told[thing]) if thing in told else {}  # a title is no thing of the scene
    classes["extent"] = _extent(thing.box, scene.image.size, h, w)
    if thing.colour:
        classes["colour"] = COLOUR_NAMES.index(thing.colour)
    return classes | (_written(thing) if thing.detail_kind not in (None, "emblem") else {})


def _characters(scene: Scene, h: int, w: int) -> np.ndarray:
    """Where each written character stands, taking the characters of a line to be equally wide."""
    written = np.zeros((h, HALVES * w, len(CHARACTERS)), np.float32)
    for thing in scene.objects:
        if thing.detail_kind in (None, "emblem"):
            continue
        x0, y0, x1, y1 = thing.detail_box
        width = (x1 - x0 - 2 * TEXT_MARGIN) / len(thing.detail)
        for i, character in enumerate(thing.detail):
            if character in CHARACTERS:
                x = x0 + TEXT_MARGIN + (i + 0.5) * width
                row, column = _cell_of((x, y0, x, y1), scene.image.size, h, HALVES * w)
                written[row, column, CHARACTERS.index(character)] = 1
    # The halves of a token are neighbours in the last axis but one: they join token by token.
    return written.reshape(h * w, -1)  # (h * w, HALVES * len(CHARACTERS))


def _told(scene: Scene) -> dict[Thing, dict[str, int]]:
    """What is true of each thing beyond its colour, its extent and what is written on it."""
    told = _company(scene)
    things = [thing for thing in scene.objects if thing.name]
    names = Counter(thing.name for thing in things)
    looks = Counter((thing.name, thing.colour) for thing in things)
    # As the questions have it, bars and entries are no things of the picture.
    objects = [thing for thing in things if thing.detail_kind not in ENTRY_KINDS]
    for thing in scene.objects:
        told.setdefault(thing, {})
    for thing in things:
        told[thing] |= {"name": _class_of(thing.name), "copies": _few(names[thing.name])}
        for key, back, axis in (("left", "right", 0), ("above", "below", 1)):
            if other := neighbour(thing, scene.objects, axis):
                told[thing][key] = _class_of(other.name)
                told[other][back] = _class_of(thing.name)
        if thing.colour:
            told[thing]["of_look"] = _few(looks[thing.name, thing.colour])
    for thing in objects:
        same = [other for other in objects if thing.colour and other.colour == thing.colour]
        others = [other for other in same if other is not thing]
        told[thing] |= {"of_colour": _few(len(same)), "end": BETWEEN}
        told[thing]["alike"] = _class_of(others[0].name) if len(others) == 1 else 0
    for end, chosen in ((LOWEST, min), (HIGHEST, max)) if objects else ():
        told[chosen(objects, key=lambda thing: thing.box[0] + thing.box[2])]["end"] = end
    return told


def _few(number: int) -> int:
    """The class of a number of things."""
    return min(number, MOST_COPIES)


def _extent(box: Sequence[float], size: tuple[int, int], h: int, w: int) -> int:
    """The class of a box's extent in a picture of `size`."""
    across, down = (box[2] - box[0]) * w / size[0], (box[3] - box[1]) * h / size[1]
    steps = np.log(max(np.sqrt(across * down), LEAST_EXTENT) / LEAST_EXTENT) / np.log(EXTENT_STEP)
    return min(EXTENTS, 1 + int(np.ceil(steps)))


def _class_of(name: str) -> int:
    """Class of a thing's name; 0 for those of the large world that are not among `THING_NAMES`."""
    return THING_NAMES.index(name) if name in THING_NAMES else 0


def _detail_labels(thing: Thing) -> dict[str, int]:
    """The emblem's colour, or what is written: its digits, or its first known word."""
    if thing.detail_kind == "emblem":
        return {"detail": EMBLEM, "colour": COLOUR_NAMES.index(thing.detail)}
    digits = [int(c) + 1 for c in thing.detail if c.isdigit() and "=" not in thing.detail]
    words = [WRITTEN_WORDS.index(word) for word in thing.detail.split() if word in WRITTEN_WORDS]
    labels = dict(zip(("tens", "units"), digits, strict=False)) | {"detail": WRITING, "colour": 0}
    return labels | ({"word": words[0]} if words else {})


def _written(thing: Thing) -> dict[str, int]:
    """The digits or the word that a thing shows."""
    labels = _detail_labels(thing)
    return {key: labels[key] for key in ("tens", "units", "word") if key in labels}


def _company(scene: Scene) -> dict[Thing, dict[str, int]]:
    """What belongs to a thing and is not on it, by thing."""
    company: dict[Thing, dict[str, int]] = {}
    facts = scene.facts or Facts(scene.setting)
    for how, thing, sign in facts.signs:
        company[thing] = {f"with_{key}": value for key, value in _written(sign).items()}
        if how != "shop":  # whose goods are many
            company[sign] = {"with_name": _class_of(thing.name)}
    for i, line in enumerate(facts.lines):
        city, gate = _written(line.cells["place"]), _written(line.cells["gate"])
        beside = {"place": gate, "gate": city}
        for key, cell in line.cells.items():
            others = beside.get(key, city | gate)
            company[cell] = {f"with_{name}": value for name, value in others.items()}
            company[cell]["line"] = min(i + 1, MOST_LINES)
    charts = [(chart.title, chart.bars) for chart in facts.charts]
    # A picture of the small world is one chart, without a title.
    charts = charts or [("", [thing for thing in scene.objects if thing.detail_kind == "value"])]
    charts.append(("", [thing for thing in scene.objects if thing.detail_kind == "price"]))
    for title, bars in charts:
        ranked = sorted(bars, key=lambda bar: int(bar.detail.lstrip("$")))
        word = WRITTEN_WORDS.index(title) if title in WRITTEN_WORDS else 0
        for bar in ranked:
            rank = {id(ranked[0]): LOWEST, id(ranked[-1]): HIGHEST}.get(id(bar), BETWEEN)
            company[bar] = (
                company.get(bar, {}) | {"rank": rank} | ({"with_word": word} if word else {})
            )
    return company


def _shares(mask: np.ndarray, h: int, w: int) -> np.ndarray:
    """Share of each token, `(h, w)` in [0, 1], that the mask covers."""
    return np.asarray(Image.fromarray(mask.astype(np.float32)).resize((w, h), Image.BOX))


def _cell_of(box: Sequence[float], size: tuple[int, int], h: int, w: int) -> tuple[int, int]:
    """Row and column of the token where a box of a picture of `size` has its middle."""
    x, y = (box[0] + box[2]) / 2 / size[0], (box[1] + box[3]) / 2 / size[1]
    return min(h - 1, int(y * h)), min(w - 1, int(x * w))
