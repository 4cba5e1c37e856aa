"""What the learned relevance is trained on: pictures with questions, answers, and boxes where known.

Drawn scenes, a local folder in VQA form, or a data set on the Hub, streamed. Sample i of scenes is a
pure function of the first seed and i, so a run can resume and several processes share one order.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset, get_worker_info

from arr_coc import evaluate_data, scenes
from arr_coc.balancing import LEXICON, Tensions, mean_tensions, word_kinds

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

# Of a phrase, in place of the lexicon's: what is learned of other wordings stays short of it.
TAUGHT = {"target": Tensions(compress=0.25, exploit=0.65, focus=0.8)}
# One place and what touches it; on development scenes more focus answered more of these.
NEXT_TO = Tensions(compress=0.25, exploit=0.65, focus=0.92)
NEXT_TO_WORDS = re.compile(r"\b(?:left of|right of|above|over|below|under|beside|next to)\b", re.I)

# Questions without a picture, for the tensions alone: people ask in more ways than scenes do.
PHRASES = {
    "fine": (
        "what is written on the sign?", "can you read the text?", "what number is on the bus?",
        "what does the label say?", "read the small print.", "which letter is on the door?",
        "what is the date on the form?", "what digits are on the plate?", "what word is that?",
        "read the price tag.", "what is the number of the house?", "what does the board say?",
        "please read the sign.", "which number can you see?", "what letters are on the flag?",
    ),
    "target": (
        "where is the dog?", "where can I find the cup?", "where do you see the car?",
        "what colour is the bag?", "which thing is on the left?", "locate the key.",
        "find the ball in the picture.", "is there a cat?", "where is the red flag?",
        "in which corner is the tree?", "where are the scissors?", "what color is her hat?",
        "where is the horse here?", "where is the bird in the picture?", "find the green bottle.",
        "where in the picture is the boy?", "locate the bus in this image.", "show where the lamp is.",
        "where do I find the shoe in this scene?", "whereabouts is the chair?", "find a dog.",
    ),
    "many": (
        "how many people are there?", "count the cups.", "how many cars do you see?",
        "how many birds are in the sky?", "count all the chairs.", "how many windows are there?",
        "please count the boats.", "how many dogs does the image show?", "you can count the trees here.",
    ),
    "whole": (
        "describe the picture.", "describe the scene.", "what is happening here?",
        "what kind of place is this?", "summarize the image.", "what is this a picture of?",
        "what does the picture show?", "what is the mood of the scene?", "give a caption.",
        "describe what you see.", "what is the weather like?", "where was this picture taken?",
        "describe the photo.", "describe this image in a few words.", "what does this image show?",
        "please describe what the image shows.", "what is in the image?", "what is in this picture?",
        "what can you see in this image?", "describe all that you see in the scene.",
        "what do you see here?", "tell me what the picture is of.", "what is this scene of?",
        "summarize what the image shows.", "describe the image as a whole.",
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Asked:
    """One question, as `evaluate_data.Item`: `boxes` hold the evidence in pixels, empty where
    nobody knows; the base is asked `text`, whatever decides reads `question`.
    """

    question: str
    answer: str
    kind: str
    boxes: tuple[evaluate_data.Box, ...] = ()
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
        if first_seed + count * SEEDS_TRIED > scenes.DEV_SEED:
            raise ValueError(
                f"{count} samples from seed {first_seed} reach {scenes.DEV_SEED}, where the seeds "
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
        found: list[scenes.Question] = []
        for attempt in range(SEEDS_TRIED):
            seed = self.first_seed + i * SEEDS_TRIED + attempt
            scene = scenes.make_scene(seed, size=size, kinds=kinds, detail=detail)
            found = [q for q in scene.questions if rng.random() < KEPT.get(q.kind, 1)]
            if found:
                break
        found = found or list(scene.questions) or [scenes.Question("?", "no", "exists")]
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
    """A folder in VQA form, as `evaluate_data.Folder` reads it; one question a sample."""

    def __init__(self, folder: Path, n: int | None = None) -> None:
        self.source = evaluate_data.Folder(folder, n)
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
        self.source = evaluate_data.Hub(dataset, split, subset, n)

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


def _sample(number: int, item: evaluate_data.Item) -> Sample:
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


def phrase(number: int, place: int) -> tuple[str, Tensions]:
    """A question for the tensions alone, and the tensions that belong to its kind."""
    rng = np.random.default_rng((number, place, 2))
    kind = list(PHRASES)[rng.integers(len(PHRASES))]
    return str(rng.choice(PHRASES[kind])), TAUGHT.get(kind, Tensions(*LEXICON[kind][1]))


def prior(asked: Asked) -> Tensions:
    """The tensions that the words of a question suggest: a guide for the policy.

    The lexicon's, but for what lies next to a thing, for which it has no word; and a question that
    asks for one thing "in the picture" does not ask for the whole.
    """
    if NEXT_TO_WORDS.search(asked.question):
        return NEXT_TO
    kinds = word_kinds(asked.question)
    return mean_tensions([kind for kind in kinds if kind != "whole"] or kinds)
