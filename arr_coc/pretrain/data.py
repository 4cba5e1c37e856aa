"""Data: batches for pretraining, pictures of many sizes with labels and questions.

A batch holds pictures of one size, drawn or from easy-VQA; which, is a matter of its number alone.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image
from torch.utils.data import Dataset

from arr_coc.pretrain.changes import changes_of
from arr_coc.pretrain.clip_lessons import clip_lessons
from arr_coc.pretrain.drills import drill
from arr_coc.pretrain.easy_pictures import easy_vqa_pictures, easy_vqa_split
from arr_coc.pretrain.hints import Hint, Named, NamedTogether, Pointed
from arr_coc.pretrain.labels import (
    ATTRIBUTES,
    CHARACTERS,
    HALVES,
    LARGE_TEXTS,
    UNKNOWN,
    cell_labels,
)
from arr_coc.pretrain.lessons import lessons
from arr_coc.pretrain.model import CELL
from arr_coc.pretrain.packing import Packed
from arr_coc.pretrain.views import View
from arr_coc.scenes import asking, drawing, large, moving, several, writing
from arr_coc.scenes.hands import Style, style_of
from arr_coc.scenes.moments import ClipQuestion
from arr_coc.scenes.moving import ClipScene
from arr_coc.scenes.questions import Question, Thing
from arr_coc.scenes.scene import DEV_SEED, Canvas, Scene, make_scene

# A batch's pictures share so many questions per visual token, which keeps the text side's cost alike
# in all batches; each has between the fewest and the most of its view, where it has as many.
QUESTIONS_PER_TOKEN, FEWEST_QUESTIONS = 0.22, 2
# The share of a kind's questions that is used in the small world, and where the large one is drawn for
# other kinds: what is plentiful and easy is asked less.
KIND_SHARES = {"colour": 0.25, "exists": 0.3, "where": 0.25, "leftmost": 0.8, "setting": 0.15}
KIND_SHARES |= {"attribute": 0.6, "beside": 0.6, "board_row": 0.7, "chart_value": 0.5}
KIND_SHARES |= {"count_colour": 0.4, "bar": 0.7}
Asked = Question | ClipQuestion
SEEDS_PER_BATCH = 1024  # the most pictures of a batch: batches share no scene
# In this share of the scenes small things are as large as in evaluation, in the others they are drawn
# at a factor from the range.
PLAIN_DETAIL_SHARE, DETAIL_RANGE = 0.5, (0.7, 2.0)
PLATE_KINDS = ("number", "word", "price")
PLATE_AREA, PLATE_MARGIN = (100, 60), 4  # pixels that a plate may take, and between two plates
PLATE_DETAIL_RANGE = (0.8, 2.2)
PIXELS_PER_PLATE = 4000  # one attempt at a plate for so many pixels of a picture
MONTH_SHARE = 0.2  # so many of the plates with a word show a month
# For the large world, so many of the plates show what else is written there, or a time.
LARGE_TEXT_SHARE, TIME_SHARE = 0.5, 0.3


class Batch(NamedTuple):
    """Pictures of one size, what their visual tokens show, and the questions about each.

    `images` (n, H, W, 3) uint8, of a batch of clips (n, 2, H, W, 3), a row a moment; `cells` as
    `cell_labels` gives them, each (n, h * w, ...). Where several pictures, or the moments of a clip, are
    asked together, `blocks` of them follow each other and share an entry of `questions`; `seconds` are
    those of a clip's moments, None of pictures. `hints` of every question, where something was drawn.
    `changes` (n, blocks * h * w, 2) of clips, as `changes_of` gives them. With `only_read` the vision side
    learns nothing. `packed` and `asked` are what `lesson_of` makes of questions and hints.
    """

    images: torch.Tensor
    cells: dict[str, torch.Tensor]
    questions: Sequence[Sequence[Asked]]
    blocks: int = 1
    seconds: tuple[float, ...] | None = None
    hints: Sequence[Sequence[Sequence[Hint]]] | None = None
    changes: torch.Tensor | None = None
    only_read: bool = False
    packed: Packed | None = None
    asked: Pointed | None = None

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of visual tokens, of every picture."""
        return self.images.shape[-3] // CELL, self.images.shape[-2] // CELL

    @property
    def modality(self) -> str:
        """What the prompt calls the pictures: "video" where they are moments of clips, else "image"."""
        return "image" if self.seconds is None else "video"

    def cells_on(self, device: torch.device) -> dict[str, torch.Tensor]:
        """The labels on `device`."""
        return {key: value.to(device) for key, value in self.cells.items()}


def check_seeds(first_seed: int, steps: int, world: int) -> None:
    """Raise ValueError where so many steps of so many processes may reach the seeds of evaluation."""
    last = first_seed + steps * world * SEEDS_PER_BATCH + (several.MOST - 1) * several.SEED_STRIDE
    if last > DEV_SEED:
        raise ValueError(
            f"{steps} steps from seed {first_seed} may reach {last}; seeds for evaluation begin at "
            f"{DEV_SEED}"
        )


class Batches(Dataset):
    """Batch number i of a run: a function of `first_seed` and i alone, so a run can resume.

    Process `rank` of `world` gets every `world`-th batch. `most`, the most things that a question of
    the large world counts or compares, goes from its first number to its second during the run.
    """

    def __init__(
        self,
        views: Sequence[View],
        *,
        tokens: int,
        steps: int,
        first_seed: int,
        rank: int = 0,
        world: int = 1,
        most: tuple[int, int] = (large.MOST, large.MOST),
    ) -> None:
        """Raises ValueError for a `most` outside `large.MOST_RANGE`."""
        least, greatest = large.MOST_RANGE
        if not all(least <= number <= greatest for number in most):
            raise ValueError(f"most {most} is outside {large.MOST_RANGE}")
        self.most = most
        self.views, self.tokens, self.steps, self.first_seed = views, tokens, steps, first_seed
        self.rank, self.world = rank, world

    def __len__(self) -> int:
        return self.steps

    def __getitem__(self, step: int) -> Batch:
        view = self._view(step)
        pixels = view.size[0] * view.size[1] * view.blocks
        count = max(1, self.tokens * CELL**2 // pixels)
        count = min(count, SEEDS_PER_BATCH if view.pictures is None else view.pictures)
        number = step * self.world + self.rank
        rng = np.random.default_rng((self.first_seed, number, 1))
        per_picture = int(QUESTIONS_PER_TOKEN * self.tokens) // count
        most = max(FEWEST_QUESTIONS, min(view.most_questions, per_picture))
        at_most = min(view.lessons, most)
        extra: Sequence[list[Question]] = [[]] * count
        named: Sequence[Named | NamedTogether] = ()
        seeds = [self._first_seed_of(number) + i for i in range(count)]
        if view.source == "easy-vqa":
            batch = easy_vqa_batch(rng, count, view.size)
        elif view.source == "clips":
            clips = draw_clips(seeds, view)
            batch = clips_batch(rng, clips, view)
            extra = [clip_lessons(rng, clip, at_most) for clip in clips]
            named = [NamedTogether(view.size, clip.told) for clip in clips]
            changes = [changes_of(clip.told, view.blocks, batch.grid) for clip in clips]
            batch = batch._replace(changes=torch.stack(changes))
        elif view.source == "several":
            batch = several_batch(rng, seeds, view)
            named = [NamedTogether(view.size, None)] * count
        elif view.source == "plates":
            batch = collate(self._plates(view, rng, number, count), view.size)
        else:
            scenes = self._scenes(view, rng, step, count)
            batch = collate(scenes, view.size)
            extra = [lessons(rng, scene, at_most) for scene in scenes]
            named = [Named(scene, *batch.grid) for scene in scenes]
        thinned = view.world == "small" or view.besides
        chosen = [
            _chosen(about, rng, most - len(more), thinned=thinned) + more
            for about, more in zip(batch.questions, extra, strict=True)
        ]
        if view.put_share:
            chosen = [[_put(q, rng, view.put_share) for q in about] for about in chosen]
        batch = batch._replace(questions=chosen, only_read=view.only_read)
        return batch._replace(hints=_hints(named, batch)) if named else batch

    def _view(self, step: int) -> View:
        """The same for all processes, so that none waits for a slower batch."""
        rng = np.random.default_rng((self.first_seed, step))
        shares = np.asarray([view.share for view in self.views])
        return self.views[rng.choice(len(self.views), p=shares / shares.sum())]

    def most_at(self, step: int) -> int:
        """The most things that a question of the large world counts or compares at a step."""
        first, last = self.most
        return round(first + (last - first) * step / max(1, self.steps - 1))

    def _first_seed_of(self, number: int) -> int:
        return self.first_seed + number * SEEDS_PER_BATCH

    def _plates(self, view: View, rng: np.random.Generator, number: int, count: int) -> list[Scene]:
        is_large, hands = view.world == "large", self._hands(view, number, count)
        return [plates(rng, view.canvas, hand, is_large=is_large) for hand in hands]

    def _hands(self, view: View, number: int, count: int) -> list[Style | None]:
        """Who draws each of a batch's pictures."""
        start = self._first_seed_of(number)
        return [style_of(view.hand, start + i, first_held_out_seed=DEV_SEED) for i in range(count)]

    def _scenes(self, view: View, rng: np.random.Generator, step: int, count: int) -> list[Scene]:
        number = step * self.world + self.rank
        if view.source == "drills":
            return [drill(rng, view.canvas, hand) for hand in self._hands(view, number, count)]
        start = self._first_seed_of(number)
        most = self.most_at(step) if view.world == "large" else large.MOST
        details = np.where(
            rng.random(count) < PLAIN_DETAIL_SHARE, 1.0, rng.uniform(*DETAIL_RANGE, count)
        )
        return [
            make_scene(
                start + i,
                size=view.canvas,
                detail=detail,
                kinds=view.kinds,
                hand=view.hand,
                world=view.world,
                most=most,
                besides=view.besides,
            )
            for i, detail in enumerate(details)
        ]


def _chosen(
    questions: Sequence[Asked], rng: np.random.Generator, most: int, *, thinned: bool
) -> list[Asked]:
    """At most `most` of the questions, in any order; `thinned` of plentiful kinds only a share."""
    kept = [q for q in questions if not thinned or rng.random() < KIND_SHARES.get(q.kind, 1)]
    return [kept[i] for i in rng.permutation(len(kept))[:most]]


def _hints(named: Sequence[Named | NamedTogether], batch: Batch) -> list[list[list[Hint]]]:
    """The hints of a batch's questions about what was drawn."""
    return [
        [things.hints(question) for question in about]
        for things, about in zip(named, batch.questions, strict=True)
    ]


def _put(question: Asked, rng: np.random.Generator, share: float) -> Asked:
    """The question, in a share of the cases as somebody may put it."""
    if rng.random() >= share:
        return question
    return replace(question, text=asking.put_somehow(rng, question.text))


def collate(scenes: Sequence[Scene], size: tuple[int, int]) -> Batch:
    """Scenes shown at `size` (width, height in pixels, multiples of `CELL`)."""
    pictures = [
        s.image if s.image.size == size else s.image.resize(size, Image.BICUBIC) for s in scenes
    ]
    images = torch.from_numpy(np.stack([np.asarray(picture) for picture in pictures]))
    rows = [cell_labels(s, size[1] // CELL, size[0] // CELL) for s in scenes]
    cells = {key: torch.from_numpy(np.stack([row[key] for row in rows])) for key in rows[0]}
    return Batch(images, cells, [s.questions for s in scenes])


def plates(
    rng: np.random.Generator,
    size: tuple[int, int],
    hand: Style | None = None,
    *,
    is_large: bool = False,
) -> Scene:
    """A background full of plates with numbers, words and prices; nobody asks about it.

    `hand` is None for the home hand; `is_large` adds what is written in the large world.
    """
    canvas = Canvas(size, 1.0, hand)
    canvas.picture, setting = drawing.background(rng, size, hand)
    width, height = PLATE_AREA
    taken: list[tuple[float, ...]] = []
    for _ in range(size[0] * size[1] // PIXELS_PER_PLATE):
        x, y = rng.uniform(0, size[0] - width), rng.uniform(0, size[1] - height)
        area = (x, y, x + width, y + height)
        if any(_too_close(area, box) for box in taken):
            continue
        kind = PLATE_KINDS[rng.integers(len(PLATE_KINDS))]
        text = writing.word(rng) if kind == "word" else writing.number(rng)
        text = f"${text}" if kind == "price" else text
        if kind == "word" and rng.random() < MONTH_SHARE:
            text = str(rng.choice(writing.MONTHS))
        if is_large and rng.random() < LARGE_TEXT_SHARE:
            kind, text = "cell", _large_text(rng)
        detail = rng.uniform(*PLATE_DETAIL_RANGE)
        box = writing.plate(rng, canvas.picture, text, area, detail, at="anywhere", hand=hand)
        taken.append(box)
        canvas.add(Thing("", "", box, kind, text, box))
    return Scene(0, canvas.finished(), (), tuple(canvas.things), setting, canvas.things_map)


def _large_text(rng: np.random.Generator) -> str:
    """A time, or a word that boards, papers and dashboards show."""
    if rng.random() < TIME_SHARE:
        return f"{rng.integers(24):02d}:{rng.integers(60):02d}"
    return str(rng.choice(LARGE_TEXTS))


def _too_close(a: Sequence[float], b: Sequence[float]) -> bool:
    """Whether two boxes are within `PLATE_MARGIN` of each other, across and down."""
    return all(
        a[axis] < b[axis + 2] + PLATE_MARGIN and b[axis] < a[axis + 2] + PLATE_MARGIN
        for axis in (0, 1)
    )


def easy_vqa_batch(rng: np.random.Generator, count: int, size: tuple[int, int]) -> Batch:
    """`count` pictures of easy-VQA's train split at `size`; nobody labelled their tokens."""
    numbers = rng.choice(sorted(easy_vqa_split("train")[1]), count)
    images, questions = easy_vqa_pictures("train", numbers, size)
    return Batch(images, _unlabelled(count, size), questions)


def draw_clips(seeds: Sequence[int], view: View) -> list[ClipScene]:
    """The clips of some seeds."""
    how = {"groups": view.blocks, "size": view.size, "kinds": view.kinds, "hand": view.hand,
           "eventful": view.eventful}  # fmt: skip
    return [moving.make_clip(seed, **how) for seed in seeds]


def clips_batch(rng: np.random.Generator, clips: Sequence[ClipScene], view: View) -> Batch:
    """Drawn clips, all as fast: what stands before their questions is the same."""
    fps = moving.FPS[rng.integers(len(moving.FPS))]
    frames = torch.from_numpy(np.stack([np.asarray(f) for clip in clips for f in clip.frames]))
    images = frames.unflatten(0, (-1, moving.FRAMES))  # (n * blocks, 2, H, W, 3)
    # A moment's time is the mean of its frames', as the stock processor has it.
    seconds = tuple((moving.FRAMES * i + (moving.FRAMES - 1) / 2) / fps for i in range(view.blocks))
    cells = _unlabelled(len(images), view.size)
    return Batch(images, cells, [clip.questions for clip in clips], view.blocks, seconds)


def several_batch(rng: np.random.Generator, seeds: Sequence[int], view: View) -> Batch:
    """So many pictures at once for each of some seeds."""
    drawn = [
        several.make_several(seed, count=view.blocks, size=view.size, hand=view.hand)
        for seed in seeds
    ]
    images = torch.from_numpy(np.stack([np.asarray(own) for one in drawn for own in one.pictures]))
    cells = _unlabelled(len(images), view.size)
    return Batch(images, cells, [one.questions for one in drawn], view.blocks)


def _unlabelled(count: int, size: tuple[int, int]) -> dict[str, torch.Tensor]:
    """The labels of pictures whose tokens nobody labelled."""
    tokens = size[0] * size[1] // CELL**2
    cells = {key: torch.full((count, tokens), UNKNOWN) for key in ATTRIBUTES}
    return cells | {"characters": torch.zeros(count, tokens, HALVES * len(CHARACTERS))}
