"""What a drawn scene is, and the canvas on which it comes about: a picture, its things, a map of them."""

from dataclasses import dataclass, field

import numpy as np
from PIL import Image

from arr_coc.scenes.drawing import Box, glyph_names
from arr_coc.scenes.facts import Facts
from arr_coc.scenes.hands import Style
from arr_coc.scenes.questions import Question, Thing

MAP_STRIDE = 4  # pixels per cell of Scene.things_map
DETAIL_CODE = 128  # added to a thing's code where its emblem or writing is drawn
MOST_THINGS = DETAIL_CODE - 1  # on one canvas: the map's codes are bytes


@dataclass(frozen=True)
class Scene:
    """A picture (RGB) with its things and questions.

    `setting` names what the whole picture shows: one of `drawing.SETTINGS`, `scene.PANELS` or what
    the layouts of the large world show, or `grounds.PLAIN` where nobody could say. `things_map` is
    `(ceil(H / MAP_STRIDE), ceil(W / MAP_STRIDE))` uint8: 0 background, `1 + i` thing i,
    `DETAIL_CODE + 1 + i` the small detail of thing i. `facts` are what a layout of the large world knows
    besides; None for others.
    """

    seed: int
    image: Image.Image
    questions: tuple[Question, ...]
    objects: tuple[Thing, ...]
    setting: str
    things_map: np.ndarray = field(repr=False, compare=False)
    facts: Facts | None = field(default=None, repr=False, compare=False)


class Canvas:
    """A picture being drawn, with the things on it and the map of where they are."""

    def __init__(self, size: tuple[int, int], detail: float, hand: Style | None = None) -> None:
        """`size` is (width, height); `detail` scales emblems and writing; None is the home hand."""
        self.size, self.detail, self.hand = size, detail, hand
        self.picture: Image.Image | None = None
        self.things: list[Thing] = []
        self.things_map = np.zeros((-(-size[1] // MAP_STRIDE), -(-size[0] // MAP_STRIDE)), np.uint8)

    def names(self) -> tuple[str, ...]:
        """The glyphs that may appear: those that the hand draws."""
        return self.hand.names() if self.hand else glyph_names()

    def glyph_colour(self, colour: str) -> str | None:
        """The colour of a glyph that is dealt this one: None where the hand keeps things as they are."""
        return None if self.hand and self.hand.own_colours else colour

    def finished(self) -> Image.Image:
        """The picture as the hand hands it over."""
        return self.hand.finish(self.picture) if self.hand else self.picture

    def add(self, thing: Thing, mask: Image.Image | None = None) -> None:
        """Note a thing that was drawn: where `mask` (of its box) covers it, or all of its box.

        Raises ValueError for more than `MOST_THINGS`: the map could not tell them apart.
        """
        code = len(self.things) + 1
        if code > MOST_THINGS:
            raise ValueError(f"thing {code} has no code: a canvas holds at most {MOST_THINGS}")
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
