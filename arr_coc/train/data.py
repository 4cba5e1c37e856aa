"""What the trained parts learn from: pictures with questions, answers, and boxes where known.

A set of real pictures that lies here, or one on the Hub, streamed; drawn scenes are in `drawn`.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset, get_worker_info

from arr_coc.evaluate.questions import Box, Item
from arr_coc.evaluate.stats import box_cells
from arr_coc.evaluate.vqa import Hub, Local

# Where to look, of questions that nobody boxed: where the base looks, or from which crops it answers.
LABELS = ("attention", "crops")


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
    out, batch by batch: so all have as many. The stream is read again and again, a shuffled one in
    another order each time; whoever goes on with a run reads all that was read before it.
    """

    def __init__(self, source: Hub) -> None:
        self.source = source

    def __iter__(self) -> Iterator[Sample]:
        worker = get_worker_info()
        place, count = (worker.id, worker.num_workers) if worker else (0, 1)
        # A stream of `datasets` gives each worker files of its own, and numbers them anew.
        is_split = isinstance(self.source.rows, IterableDataset)
        first = 0
        for epoch in itertools.count():
            if hasattr(self.source.rows, "set_epoch"):
                self.source.rows.set_epoch(epoch)
            met = 0
            for question in self.source.questions(may_be_none=is_split and place > 0):
                index, met = first + question[0].index, met + 1
                if is_split:
                    yield _sample(index * count + place, self.source.item(question))
                elif index % count == place:
                    yield _sample(index, self.source.item(question))
            if not met:
                return
            first += met


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
    each = evidence_of_each(boxes, size, grid)
    return each.amax(0) if len(each) else torch.zeros(grid)


def evidence_of_each(boxes: Sequence[Box], size: tuple[int, int], grid: tuple[int, int]) -> Tensor:
    """As `evidence` of every box alone: `(M, h, w)` of the M that lie in the picture."""
    covers = [torch.from_numpy(box_cells([box], size, grid)).float() for box in boxes]
    each = torch.stack(covers) if covers else torch.zeros(0, *grid)
    return each[each.flatten(1).any(1)]
