"""Hints: what the words of a question name in its picture, and where its evidence lies.

What takes several steps to answer was hardly learned from answers alone. So the text side is asked on its
way through the layers as well: where the thing is that a word names, then what is true of it, then where
the evidence of the question lies, then where the thing is that is the answer. The read-outs are thrown away
with the others (`codes.Heads`).
"""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

from arr_coc.pretrain.labels import ATTRIBUTES, COLOUR_NAMES, RELATED, thing_classes
from arr_coc.pretrain.packing import Packed, Packer, prompt_of
from arr_coc.scenes.canvas import Scene
from arr_coc.scenes.drawing import Box
from arr_coc.scenes.moments import ClipQuestion, Evidence, Told
from arr_coc.scenes.questions import Question, Thing

# What is asked of a thing where it is named, among the attributes that visual tokens carry.
ASKED = ("colour", "tens", "units", "word", "extent", "copies", "left", "above")
ASKED += RELATED
NOTHING_ASKED = -100  # the class that cross-entropy leaves out
POINTER_WIDTH = 96
NAMES = ("word", "evidence", "answer")  # what a hint is of
WORD, EVIDENCE, ANSWER = range(len(NAMES))
# After so many layers each is read, where there are as many; `WHAT_AFTER`: what is true of a word's thing
# by itself; `RELATED_AFTER`: what belongs to it and how it stands to others, for which the first layers
# have no room. The rest of the layers is left for what is made of it.
READ_AFTER, WHAT_AFTER, RELATED_AFTER = {WORD: 2, EVIDENCE: 5, ANSWER: 6}, 3, 5


class Hint(NamedTuple):
    """One word of a question, its evidence, or the thing that answers it.

    `of`: `WORD`, `EVIDENCE` or `ANSWER`; `end`: the character after the word in the question's text, its
    length for the others; `boxes`: where it is, in shares of the picture's width and height; `classes`:
    what is true of the thing that the word names; `blocks`: of each box which of the pictures that stand
    together it is in, or which moment of a clip, all of them being one place; empty for a single picture,
    where every box has to be seen.
    """

    of: int
    end: int
    boxes: tuple[Box, ...]
    classes: dict[str, int]
    blocks: tuple[int, ...] = ()


class Named:
    """The things of a scene that go by a name, or by what is written, that nothing else there has."""

    def __init__(self, scene: Scene, h: int, w: int) -> None:
        self.scene, self.grid = scene, (h, w)
        charts = scene.facts.charts if scene.facts else ()
        titles = [Thing("", "", c.title_box, "cell", c.title, c.title_box) for c in charts]
        named = [(_called(thing), thing) for thing in (*scene.objects, *titles)]
        names = [name for name, _ in named]
        self.things = {name: thing for name, thing in named if name and names.count(name) == 1}
        self.pattern = _any_of(self.things)
        self.classes: dict[str, dict[str, int]] = {}

    def hints(self, question: Question) -> list[Hint]:
        """For every thing that the question names, for its evidence, and for the thing that answers it.

        None where no evidence is in the picture.
        """
        if not question.boxes:
            return []
        found = []
        for match in self.pattern.finditer(question.text.lower()):
            name = match.group()
            if name not in self.classes:
                self.classes[name] = thing_classes(self.things[name], self.scene, *self.grid)
            boxes = (self._shares(self.things[name].box),)
            found.append(Hint(WORD, match.end(), boxes, self.classes[name]))
        end = len(question.text)
        found.append(Hint(EVIDENCE, end, tuple(map(self._shares, question.boxes)), {}))
        if (box := self._answer(question)) is not None:
            found.append(Hint(ANSWER, end, (self._shares(box),), {}))
        return found

    def _answer(self, question: Question) -> Box | None:
        """Where the thing is, or the writing, that answers; None where no such thing is evidence."""
        answer = question.answer.lower()
        for thing in self.scene.objects:
            if thing.box in question.boxes and _called(thing) == answer:
                return thing.box
            if thing.detail_box in question.boxes and thing.detail == answer:
                return thing.detail_box
        return None

    def _shares(self, box: Box) -> Box:
        return _in_shares(box, self.scene.image.size)


class NamedTogether:
    """What is asked of several pictures, or of a clip: where its evidence lies, and a clip's things.

    `size` is (width, height) of each picture, in pixels; `told` what is known of a clip.
    """

    def __init__(self, size: tuple[int, int], told: Told | None) -> None:
        self.size = size
        seen = zip(told.actors, told.visible, strict=True) if told else ()
        self.things = {actor.name: (actor, places) for actor, places in seen if places}
        self.pattern = _any_of(self.things)

    def hints(self, question: ClipQuestion) -> list[Hint]:
        """As of `Named`, all moments of a thing being one place."""
        found = []
        for match in self.pattern.finditer(question.text.lower()):
            actor, places = self.things[match.group()]
            one_colour = actor.colours[0] and len(set(actor.colours)) == 1
            classes = {"colour": COLOUR_NAMES.index(actor.colours[0])} if one_colour else {}
            found.append(self._hint(WORD, match.end(), places, classes))
        end = len(question.text)
        if question.evidence:
            found.append(self._hint(EVIDENCE, end, question.evidence, {}))
        if question.answer in self.things:
            found.append(self._hint(ANSWER, end, self.things[question.answer][1], {}))
        return found

    def _hint(self, of: int, end: int, places: Evidence, classes: dict[str, int]) -> Hint:
        boxes = tuple(_in_shares(box, self.size) for _, box in places)
        return Hint(of, end, boxes, classes, tuple(block for block, _ in places))


def _any_of(names: Iterable[str]) -> re.Pattern[str]:
    """Matches any of the names as a whole word, the longest first; nothing where there are none."""
    longest_first = sorted(names, key=len, reverse=True)
    return re.compile(rf"\b(?:{'|'.join(map(re.escape, longest_first)) or '$.'})(?!\w)")


def _in_shares(box: Box, size: tuple[int, int]) -> Box:
    return box[0] / size[0], box[1] / size[1], box[2] / size[0], box[3] / size[1]


def _called(thing: Thing) -> str:
    """What a question calls a thing: its name; a cell of a board, what is written in it."""
    return (thing.detail if thing.detail_kind == "cell" else thing.name).lower()


class HintHeads(nn.Module):
    """Read-outs of the text side: pointers to visual tokens, and the attributes of what is named."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.pointers = nn.ModuleList(Pointer(width) for _ in READ_AFTER)
        self.norm = nn.LayerNorm(width)
        self.read = nn.ModuleDict({key: nn.Linear(width, ATTRIBUTES[key]) for key in ASKED})

    def losses(
        self, layers: Sequence[torch.Tensor], asked: "Pointed", prefix: slice | torch.Tensor
    ) -> dict[str, torch.Tensor]:
        """Losses by name: where each hint points, and what is true of what is named.

        Args:
            layers: hidden states `(B, L, D)` before the first and after every layer.
            asked: of the hints of all questions.
            prefix: where the visual tokens stand in each sequence, as a slice or as indices.
        """
        last, losses = len(layers) - 1, {}
        for of, pointer in enumerate(self.pointers):
            if (chosen := asked.of == of).any():
                hidden = layers[min(READ_AFTER[of], last)]
                losses[f"hint_{NAMES[of]}"] = pointer(hidden, asked.only(chosen), prefix)
        if (named := asked.of == WORD).any():
            classes = dict(zip(self.read, asked.classes[named].unbind(1), strict=True))
            related = {key: classes.pop(key) for key in RELATED}
            for name, after, its in (
                ("what", WHAT_AFTER, classes),
                ("related", RELATED_AFTER, related),
            ):
                hidden = layers[min(after, last)]
                words = (field[named].to(hidden.device) for field in (asked.rows, asked.columns))
                losses[f"hint_{name}"] = self._what(self.norm(hidden[tuple(words)]), its)
        return losses

    def _what(self, x: torch.Tensor, classes: dict[str, torch.Tensor]) -> torch.Tensor:
        """Mean over the attributes of their cross-entropy; `x` (n, D), `classes` (n,) of each."""
        losses = [
            F.cross_entropy(self.read[key](x).float(), of.to(x.device))
            for key, of in classes.items()
            if (of != NOTHING_ASKED).any()
        ]
        return torch.stack(losses).mean() if losses else x.new_zeros(())


class Pointed(NamedTuple):
    """The hints of a batch of n: where they stand, where they point, what they say. All on the CPU.

    `rows`, `columns` (n,): a hint's token; `of` (n,): what it is of; `classes` (n, len(ASKED)); `cells`
    (boxes, blocks * h * w): the visual tokens of each box, `hint_of` (boxes,) whose it is.
    """

    rows: torch.Tensor
    columns: torch.Tensor
    of: torch.Tensor
    classes: torch.Tensor
    cells: torch.Tensor
    hint_of: torch.Tensor

    def only(self, chosen: torch.Tensor) -> "Pointed":
        """Those hints that are `chosen` (n,), with their boxes."""
        boxes = chosen[self.hint_of]
        number = chosen.cumsum(0) - 1
        kept = (field[chosen] for field in self[:4])
        return Pointed(*kept, self.cells[boxes], number[self.hint_of[boxes]])


def pointed(
    packer: Packer,
    packed: Packed,
    questions: Sequence[Sequence[Question | ClipQuestion]],
    hints: Sequence[Sequence[Sequence[Hint]]],
    grid: tuple[int, int],
    blocks: int = 1,
) -> Pointed | None:
    """The hints of all questions that `packed` was made of; None where there is none.

    `grid` is of each of the `blocks` that stand together.
    """
    firsts = _first_of_each(packed.question_of)
    asked = [(question, its) for about, of in zip(questions, hints, strict=True)
             for question, its in zip(about, of, strict=True)]  # fmt: skip
    rows, columns, kinds, classes = [], [], [], []
    hint_of: list[int] = []  # of each place
    boxes, place_of, block_of = [], [], []  # of each box
    for (question, its), label in zip(asked, firsts, strict=True):
        last = int(packed.columns[label])  # the prompt's last token predicts the answer's first
        start = last + 1 - len(packer.ids(prompt_of(question)))
        for hint in its:
            before = len(packer.ids(question.text[: hint.end]))  # tokens up to where the word ends
            for number, box in enumerate(hint.boxes):
                if number == 0 or not hint.blocks:  # else all of its moments are one place
                    hint_of.append(len(rows))
                boxes.append(box)
                place_of.append(len(hint_of) - 1)
            block_of += hint.blocks or (0,) * len(hint.boxes)
            rows.append(int(packed.rows[label]))
            columns.append(start + before - 1 if hint.of == WORD else last)
            kinds.append(hint.of)
            classes.append([hint.classes.get(key, NOTHING_ASKED) for key in ASKED])
    if not rows:
        return None
    cells = torch.zeros(len(hint_of), blocks, grid[0] * grid[1], dtype=torch.bool)
    cells.index_put_(
        (torch.tensor(place_of), torch.tensor(block_of)), _cells(boxes, *grid), accumulate=True
    )
    numbers = (torch.tensor(values) for values in (rows, columns, kinds, classes))
    return Pointed(*numbers, cells.flatten(1), torch.tensor(hint_of))


def _first_of_each(question_of: torch.Tensor) -> list[int]:
    """Where each question's labels begin."""
    counts = torch.bincount(question_of)
    return (counts.cumsum(0) - counts).tolist()


def _cells(boxes: Sequence[Box], h: int, w: int) -> torch.Tensor:
    """`(boxes, h * w)`: which visual tokens have their middle in a box, or hold the box's middle."""
    edges = torch.tensor(boxes, dtype=torch.float64) * torch.tensor([w, h, w, h])
    left, top, right, bottom = edges.round().T[..., None]
    column, row = torch.arange(w), torch.arange(h)
    across = (left <= column) & (column < right)
    down = (top <= row) & (row < bottom)
    inside = down[:, :, None] & across[:, None]
    middle = ((edges[:, :2] + edges[:, 2:]) / 2).long().clamp(min=0)
    x, y = middle[:, 0].clamp(max=w - 1), middle[:, 1].clamp(max=h - 1)
    inside[torch.arange(len(boxes)), y, x] = True
    return inside.flatten(1)


class Pointer(nn.Module):
    """Scores of a picture's visual tokens, by a text token of the same layer."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.query, self.key = nn.Linear(width, POINTER_WIDTH), nn.Linear(width, POINTER_WIDTH)

    def forward(
        self, hidden: torch.Tensor, asked: Pointed, prefix: slice | torch.Tensor
    ) -> torch.Tensor:
        """Mean over boxes of minus the log of the probability that falls into the box.

        `hidden` is `(B, L, D)`.
        """
        rows, columns, hint_of, cells = (
            field.to(hidden.device)
            for field in (asked.rows, asked.columns, asked.hint_of, asked.cells)
        )
        query = self.query(self.norm(hidden[rows, columns]))
        keys = self.key(self.norm(hidden[:, prefix]))  # (B, N, POINTER_WIDTH)
        # The hints are in the order of the pictures.
        of_each = torch.bincount(asked.rows, minlength=len(keys)).tolist()
        scores = torch.cat([of @ its.T for of, its in zip(query.split(of_each), keys, strict=True)])
        log = (scores.float() / POINTER_WIDTH**0.5).log_softmax(-1)[hint_of]  # (boxes, N)
        return -log.masked_fill(~cells, -torch.inf).logsumexp(-1).mean()
