"""What the trained parts learn from: pictures with questions, answers, and boxes where known.

Drawn scenes, a set of real pictures that lies here, or one on the Hub, streamed. Sample i of scenes is a
pure function of the first seed and i, so a run can resume and several processes share one order.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset, get_worker_info

from arr_coc.evaluate.questions import Box, Item
from arr_coc.evaluate.vqa import Hub, Local
from arr_coc.scenes.questions import Question
from arr_coc.scenes.scene import DEV_SEED, make_scene

# Where to look, of questions that nobody boxed: where the base looks, or from which crops it answers.
LABELS = ("attention", "crops")
# The first pictures of a run are plain scenes: this share of them, at most so many. Then hard cases
# come in.
PLAIN_SHARE, MOST_PLAIN = 0.3, 400
BLOCK = 8  # neighbouring samples have pictures of one size, so that a batch does
# This share of the pictures after the plain ones are hard: small print, many searches.
HARD_SHARE = 0.6
SMALL_DETAIL = (0.6, 1.0)
# This share of them is low in contrast: blended with the mean colour, by a factor from FAINTEST to 1.
FAINT_SHARE, FAINTEST = 1 / 3, 0.35
SIZES = (((512, 512), 0.7), ((384, 256), 0.15), ((256, 256), 0.15))
HARD_KINDS = (
    ("number", "word", "price", "emblem_colour"),
    ("count", "beside", "cheapest", "leftmost"),
    ("where", "exists", "colour"),
    ("chart_value", "chart_highest", "form"),
    ("count", "setting"),
)
# What is plentiful in a scene is asked less, so that kinds come about evenly.
KEPT = {"colour": 0.35, "where": 0.3, "exists": 0.5, "beside": 0.5}
SEEDS_TRIED = 8


@dataclass(frozen=True)
class TrainingQuestion:
    """One question and its answer, as `evaluate.questions.Item`.

    `boxes` hold the evidence in pixels (left, top, right, bottom), and are empty where nobody knows, or
    where there is nothing to look at: `is_located` says that they are all there is. The base is asked
    `text`; whatever decides reads `question`, which has no instruction.
    """

    question: str
    answer: str
    kind: str
    boxes: tuple[Box, ...] = ()
    instruction: str = ""
    is_located: bool = False

    @property
    def text(self) -> str:
        """The question with its instruction."""
        return self.question + self.instruction


@dataclass(frozen=True)
class Sample:
    """A picture with its questions; `number` keys the noise of every decision about it.

    `stage` names one of `stages.STAGES`, "mixed" where a run has none.
    """

    number: int
    image: Image.Image
    questions: tuple[TrainingQuestion, ...]
    stage: str = "mixed"


class SceneSamples(Dataset):
    """Scenes with `questions` questions each: plain ones first, then hard and faint ones among them."""

    def __init__(self, first_seed: int, count: int, questions: int) -> None:
        """Raises ValueError for seeds that are for evaluation."""
        if first_seed + count * SEEDS_TRIED > DEV_SEED:
            raise ValueError(
                f"{count} samples from seed {first_seed} reach {DEV_SEED}, where the seeds "
                "for evaluation begin"
            )
        self.first_seed, self.count, self.questions_each = first_seed, count, questions

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, i: int) -> Sample:
        rng = np.random.default_rng((self.first_seed, i))
        size = self._size(i // BLOCK)
        kinds, detail = None, 1.0
        is_plain = i < min(MOST_PLAIN, PLAIN_SHARE * self.count)
        if not is_plain and rng.random() < HARD_SHARE:
            kinds = HARD_KINDS[rng.integers(len(HARD_KINDS))]
            if rng.random() < 0.5:
                detail = float(rng.uniform(*SMALL_DETAIL))
        pool: list[Question] = []
        for attempt in range(SEEDS_TRIED):
            seed = self.first_seed + i * SEEDS_TRIED + attempt
            scene = make_scene(seed, size=size, kinds=kinds, detail=detail)
            pool = [q for q in scene.questions if rng.random() < KEPT.get(q.kind, 1)]
            if pool:
                break
        pool = pool or list(scene.questions) or [Question("?", "no", "exists")]
        order = rng.permutation(len(pool))
        chosen = [pool[order[n % len(pool)]] for n in range(self.questions_each)]
        # A scene has boxes wherever there is a place to look at.
        questions = tuple(
            TrainingQuestion(q.text, q.answer, q.kind, q.boxes, is_located=True) for q in chosen
        )
        return Sample(i, scene.image if is_plain else self._faint(i, scene.image), questions)

    def _faint(self, i: int, image: Image.Image) -> Image.Image:
        """A third of the pictures low in contrast; the others as they are."""
        draw, factor = np.random.default_rng((self.first_seed, i, 3)).random(2)
        if draw >= FAINT_SHARE:
            return image
        mean = Image.new(
            "RGB", image.size, tuple(np.asarray(image).mean((0, 1)).round().astype(int))
        )
        return Image.blend(mean, image, FAINTEST + (1 - FAINTEST) * factor)

    def _size(self, block: int) -> tuple[int, int]:
        sizes, shares = zip(*SIZES)
        return sizes[
            np.random.default_rng((self.first_seed, block, 1)).choice(len(sizes), p=shares)
        ]


class LocalSamples(Dataset):
    """Questions of a set that can be had in any order; one question a sample."""

    def __init__(self, source: Local) -> None:
        self.source = source
        self.refs = [ref for block in source.blocks() for ref in block]

    @property
    def sizes(self) -> list[tuple[int, int]]:
        """Width and height in pixels of each sample's picture."""
        return [one.size for one in self.source.listed]

    def __len__(self) -> int:
        return len(self.refs)

    def __getitem__(self, i: int) -> Sample:
        return _sample(i, self.source.load([self.refs[i]])[0])


class StreamSamples(IterableDataset):
    """Questions of a data set on the Hub, streamed; one question a sample.

    Each worker of a data loader yields its own questions. Between processes accelerate shares them
    out, batch by batch: so all have as many. A shuffled stream has another order in each epoch.
    """

    def __init__(self, source: Hub) -> None:
        self.source = source

    def set_epoch(self, epoch: int) -> None:
        """The epoch that is read next, as accelerate tells it."""
        if hasattr(self.source.rows, "set_epoch"):
            self.source.rows.set_epoch(epoch)

    def __iter__(self) -> Iterator[Sample]:
        worker = get_worker_info()
        place, count = (worker.id, worker.num_workers) if worker else (0, 1)
        # A stream of `datasets` gives each worker files of its own, and numbers them anew.
        is_split = isinstance(self.source.rows, IterableDataset)
        for question in self.source.questions():
            index = question[0].index
            if is_split:
                yield _sample(index * count + place, self.source.item(question))
            elif index % count == place:
                yield _sample(index, self.source.item(question))


def _sample(number: int, item: Item) -> Sample:
    """The answer that most people gave is the one to learn."""
    answer = max(item.truths, key=item.truths.count)
    question = TrainingQuestion(item.question, answer, item.kind, item.boxes, item.instruction)
    return Sample(number, item.image, (question,))


def collate(samples: Sequence[Sample]) -> dict[str, list[Sample]]:
    """A batch as the trained module takes it."""
    return {"samples": list(samples)}


def evidence(boxes: Sequence[Box], size: tuple[int, int], grid: tuple[int, int]) -> Tensor:
    """The share of each cell of a grid that boxes cover.

    Args:
        boxes: in pixels: left, top, right, bottom.
        size: width and height of the picture in pixels.
        grid: `(h, w)` tokens.

    Returns:
        `(h, w)` in [0, 1].
    """
    h, w = grid
    rows, columns = torch.arange(h), torch.arange(w)
    cover = torch.zeros(h, w)
    for left, top, right, bottom in boxes:
        ys = _overlap(rows, top * h / size[1], bottom * h / size[1])
        xs = _overlap(columns, left * w / size[0], right * w / size[0])
        cover = torch.maximum(cover, ys[:, None] * xs)
    return cover


def _overlap(cells: Tensor, start: float, end: float) -> Tensor:
    """How much of each unit cell `[n, n + 1]` lies between `start` and `end`, in [0, 1]."""
    return ((cells + 1).clamp(max=end) - cells.clamp(min=start)).clamp(0, 1)
