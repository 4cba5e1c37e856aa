"""Labels: what each visual token of a drawn scene shows, class by class.

They are what the vision side learns to name, and what the codes of the symbolic stage are made of.
"""

from collections.abc import Sequence

import numpy as np
from PIL import Image

from arr_coc.scenes import drawing, writing
from arr_coc.scenes.layouts import boards, dashboards, papers
from arr_coc.scenes.questions import Thing, neighbour
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
ATTRIBUTES = {  # name -> number of classes
    "name": len(THING_NAMES),
    "colour": len(COLOUR_NAMES),
    "detail": 1 + WRITING,
    "centre": 2,  # 1: a thing's centre is here
    "tens": 1 + 10,  # 1 + first digit of what is written here
    "units": 1 + 10,  # 1 + second digit
    "word": len(WRITTEN_WORDS),
    "extent": 1 + EXTENTS,  # how large the thing here is
    "copies": 1 + 4,  # how many things of this name there are, four standing for more too
    "left": len(THING_NAMES),  # what is left of the thing here
    "above": len(THING_NAMES),
}
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
    names = [thing.name for thing in scene.objects]
    most = np.full((h, w), MIN_SHARE)  # of a token that one thing covers, so far
    for i, thing in enumerate(scene.objects):
        share = _shares(scene.things_map == i + 1, h, w)
        here = share > most
        most[here] = share[here]
        labels["colour"][here] = COLOUR_NAMES.index(thing.colour or "")
        labels["extent"][here] = _extent(thing.box, scene.image.size, h, w)
        for key, value in _thing_labels(thing, scene.objects, names).items():
            labels[key][here] = value
        row, column = _cell_of(thing.box, scene.image.size, h, w)
        labels["centre"][row, column] = 1
    for i, thing in enumerate(scene.objects):  # after all things: a detail lies on top of its host
        if thing.detail_kind is None:
            continue
        here = _shares(scene.things_map == DETAIL_CODE + i + 1, h, w) > MIN_DETAIL_SHARE
        carried = _thing_labels(thing, scene.objects, names) | _detail_labels(thing)
        for key, value in carried.items():
            labels[key][here] = value
    flat = {key: value.reshape(-1) for key, value in labels.items()}
    return flat | {"characters": _characters(scene, h, w)}


def thing_classes(thing: Thing, scene: Scene, h: int, w: int) -> dict[str, int]:
    """What is true of a thing, by attribute, where its picture is seen in `h * w` tokens."""
    classes = _thing_labels(thing, scene.objects, [other.name for other in scene.objects])
    classes["extent"] = _extent(thing.box, scene.image.size, h, w)
    if thing.colour:
        classes["colour"] = COLOUR_NAMES.index(thing.colour)
    written = _detail_labels(thing) if thing.detail_kind not in (None, "emblem") else {}
    return classes | {key: written[key] for key in ("tens", "units", "word") if key in written}


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


def _thing_labels(thing: Thing, things: Sequence[Thing], names: list[str]) -> dict[str, int]:
    """Name, copies and neighbours of a thing; nothing for one without a name (a plate)."""
    if not thing.name:
        return {}
    neighbours = [neighbour(thing, things, axis) for axis in (0, 1)]
    left, above = (_class_of(other.name) if other else 0 for other in neighbours)
    copies = min(names.count(thing.name), ATTRIBUTES["copies"] - 1)
    return {"name": _class_of(thing.name), "copies": copies, "left": left, "above": above}


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


def _shares(mask: np.ndarray, h: int, w: int) -> np.ndarray:
    """Share of each token, `(h, w)` in [0, 1], that the mask covers."""
    return np.asarray(Image.fromarray(mask.astype(np.float32)).resize((w, h), Image.BOX))


def _cell_of(box: Sequence[float], size: tuple[int, int], h: int, w: int) -> tuple[int, int]:
    """Row and column of the token where a box of a picture of `size` has its middle."""
    x, y = (box[0] + box[2]) / 2 / size[0], (box[1] + box[3]) / 2 / size[1]
    return min(h - 1, int(y * h)), min(w - 1, int(x * w))
