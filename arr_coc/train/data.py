"""What the learned relevance is trained on: pictures with questions, answers, and boxes where known.

Drawn scenes, a local folder in VQA form, or a data set on the Hub, streamed. Sample i of scenes is a
pure function of the first seed and i, so a run can resume and several processes share one order.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset, get_worker_info

from arr_coc.evaluate import questions as evaluate_questions
from arr_coc.scenes import questions as scenes_questions
from arr_coc.scenes import scene as scenes_scene

PLAIN_SHARE, MOST_PLAIN = 0.3, 400  # pictures of plain scenes; then hard cases come in
BLOCK = 8  # neighbouring samples have pictures of one size, so that a batch does
# Of the samples after the plain ones: small print, many searches, plain again.
HARD_SHARE = 0.6
SMALL_DETAIL = (0.6, 1.0)
# Of the samples after the plain ones, drawn back towards their mean colour by a factor from here to 1.
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
class Asked:
    """One question, as `evaluate.questions.Item`: `boxes` hold the evidence in pixels, empty where
    nobody knows; the base is asked `text`, whatever decides reads `question`.
    """

    question: str
    answer: str
    kind: str
    boxes: tuple[evaluate_questions.Box, ...] = ()
    instruction: str = ""

    @property
    def text(self) -> str:
        """The question with its instruction."""
        return self.question + self.instruction


@dataclass(frozen=True)
class Sample:
    """A picture with its questions; `number` keys the noise of whatever is drawn for it."""

    number: int
    image: Image.Image
    asked: tuple[Asked, ...]


class SceneSamples(Dataset):
    """Scenes with `questions` questions each: plain ones first, then hard and faint ones among them."""

    def __init__(self, first_seed: int, count: int, questions: int) -> None:
        """Raises ValueError for seeds that are for evaluation."""
        if first_seed + count * SEEDS_TRIED > scenes_scene.DEV_SEED:
            raise ValueError(
                f"{count} samples from seed {first_seed} reach {scenes_scene.DEV_SEED}, where the seeds "
                "for evaluation begin"
            )
        self.first_seed, self.count, self.questions = first_seed, count, questions

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
        found: list[scenes_questions.Question] = []
        for attempt in range(SEEDS_TRIED):
            seed = self.first_seed + i * SEEDS_TRIED + attempt
            scene = scenes_scene.make_scene(seed, size=size, kinds=kinds, detail=detail)
            found = [q for q in scene.questions if rng.random() < KEPT.get(q.kind, 1)]
            if found:
                break
        found = found or list(scene.questions) or [scenes_questions.Question("?", "no", "exists")]
        order = rng.permutation(len(found))
        chosen = [found[order[n % len(found)]] for n in range(self.questions)]
        asked = tuple(Asked(q.text, q.answer, q.kind, q.boxes) for q in chosen)
        return Sample(i, scene.image if is_plain else self._faint(i, scene.image), asked)

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


class FolderSamples(Dataset):
    """A folder in VQA form, as `evaluate.questions.Folder` reads it; one question a sample."""

    def __init__(self, folder: Path, n: int | None = None) -> None:
        self.source = evaluate_questions.Folder(folder, n)
        self.refs = [ref for block in self.source.blocks() for ref in block]

    def __len__(self) -> int:
        return len(self.refs)

    def __getitem__(self, i: int) -> Sample:
        return _sample(i, self.source.load([self.refs[i]])[0])


class HubSamples(IterableDataset):
    """A data set on the Hub in VQA form, streamed; one question a sample.

    Each worker of a data loader yields its own questions. Between processes accelerate shares them
    out, batch by batch: so all have as many.
    """

    def __init__(self, dataset: str, split: str, subset: str | None, n: int | None) -> None:
        self.source = evaluate_questions.Hub(dataset, split, subset, n)

    def __iter__(self) -> Iterator[Sample]:
        worker = get_worker_info()
        place, count = (worker.id, worker.num_workers) if worker else (0, 1)
        # A stream of `datasets` gives each worker files of its own, and numbers them anew.
        is_split = isinstance(self.source.rows, IterableDataset)
        for block in self.source.blocks():
            for ref in block:
                if is_split:
                    yield _sample(ref.index * count + place, self.source.load([ref])[0])
                elif ref.index % count == place:
                    yield _sample(ref.index, self.source.load([ref])[0])


def _sample(number: int, item: evaluate_questions.Item) -> Sample:
    """The answer that most people gave is the one to learn."""
    answer = max(item.truths, key=item.truths.count)
    asked = Asked(item.question, answer, item.kind, item.boxes, item.instruction)
    return Sample(number, item.image, (asked,))


def collate(samples: Sequence[Sample]) -> dict[str, list[Sample]]:
    """A batch as the trained module takes it."""
    return {"samples": list(samples)}


def evidence(asked: Asked, size: tuple[int, int], grid: tuple[int, int]) -> Tensor:
    """`(h, w)` in [0, 1]: the share of each cell that the boxes of a picture of `size` cover."""
    h, w = grid
    rows, columns = torch.arange(h), torch.arange(w)
    cover = torch.zeros(h, w)
    for left, top, right, bottom in asked.boxes:
        ys = _overlap(rows, top * h / size[1], bottom * h / size[1])
        xs = _overlap(columns, left * w / size[0], right * w / size[0])
        cover = torch.maximum(cover, ys[:, None] * xs)
    return cover


def _overlap(cells: Tensor, start: float, end: float) -> Tensor:
    return ((cells + 1).clamp(max=end) - cells.clamp(min=start)).clamp(0, 1)
