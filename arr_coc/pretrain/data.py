"""Batches for pretraining: pictures at many sizes, what each visual token shows, packed questions.

One batch holds pictures of one size. `pack` puts all questions about a picture into one sequence:
every question sees the picture and itself, at the positions it would have alone, so the packed pass
gives each question the logits of the single-question chat (a test holds this).
"""

from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from PIL import Image
from torch.utils.data import Dataset

from arr_coc.pretrain.model import CELL, MERGE, PATCH, TEMPORAL
from arr_coc.scenes import drawing, writing
from arr_coc.scenes import questions as scenes_questions
from arr_coc.scenes import scene as scenes_scene
from arr_coc.scenes.questions import neighbour

# What a visual token can carry, 0 being "nothing" everywhere.
THING_NAMES = ("", *drawing.glyph_names(), *drawing.HOSTS)
THING_NAMES += (*writing.QUARTERS, *writing.FIELDS)
COLOUR_NAMES = ("", *drawing.COLOURS)
WRITTEN_WORDS = ("", *writing.WORDS, *writing.MONTHS)
ATTRIBUTES = {  # name -> number of classes
    "name": len(THING_NAMES),
    "colour": len(COLOUR_NAMES),
    "detail": 3,  # 1: an emblem, 2: writing
    "centre": 2,  # 1: a thing's centre is here
    "tens": 11,  # 1 + first digit of what is written here
    "units": 11,  # 1 + second digit
    "word": len(WRITTEN_WORDS),
    "copies": 5,  # how many things of this name there are
    "left": len(THING_NAMES),  # what is left of the thing here
    "above": len(THING_NAMES),
}
CHARACTERS = "0123456789abcdefghijklmnopqrstuvwxyz$="  # also read one by one, where they stand
UNKNOWN = -1  # in `name`: a picture whose tokens nobody labelled
MIN_SHARE = 0.2  # of a visual token's area that a thing covers, for the token to carry its name
MIN_DETAIL_SHARE = 0.07
QUESTIONS_PER_TOKEN = 0.16  # of the batch, shared by its pictures: the text side is what they cost
MOST_QUESTIONS = 10  # per picture
# Share of the questions of a kind that are asked at all: what is plentiful and easy is asked less.
KIND_SHARES = {"colour": 0.25, "exists": 0.35, "where": 0.4, "leftmost": 0.8, "setting": 0.3}


@dataclass(frozen=True)
class View:
    """A share of the batches: scenes drawn on `canvas`, shown at `size` (width, height, pixels).

    `source` is "scenes", "plates" (reading practice for the vision side: many plates, no questions)
    or "easy-vqa" (the pictures of its train split, 64 x 64, enlarged to `size`). `kinds` limits what
    scenes are asked.
    """

    share: float
    canvas: tuple[int, int]
    size: tuple[int, int]
    source: str = "scenes"
    kinds: tuple[str, ...] | None = None


SMALL, WIDE, TALL, FULL = (256, 256), (384, 256), (256, 384), (512, 512)
SMALL_PRINT = ("number", "word", "price", "emblem_colour")
PANELS = ("form", "chart_value", "chart_highest")
SEARCHES = ("price", "number", "word", "count", "beside")  # find the right one among many
VIEWS = (
    View(0.10, SMALL, SMALL),
    View(0.03, WIDE, WIDE),
    View(0.03, TALL, TALL),
    View(0.05, (384, 384), (384, 384)),
    View(0.10, FULL, FULL),
    View(0.04, FULL, (256, 256)),
    View(0.03, FULL, (384, 384)),
    View(0.03, FULL, (224, 224)),
    View(0.02, (512, 384), (256, 192)),
    View(0.01, SMALL, (128, 128)),
    View(0.01, FULL, (128, 128)),
    View(0.04, (64, 64), (128, 128), "easy-vqa"),
    View(0.04, SMALL, SMALL, "plates"),
    View(0.08, SMALL, SMALL, kinds=SMALL_PRINT),
    View(0.08, FULL, FULL, kinds=SMALL_PRINT),
    View(0.10, FULL, FULL, kinds=SEARCHES),
    View(0.06, FULL, FULL, kinds=PANELS),
    View(0.09, (384, 384), (384, 384), kinds=("count",)),
    View(0.12, FULL, FULL, kinds=("count",)),
)
QUICK_VIEWS = (  # for the stage that never looks at pixels: pictures that are cheap to draw
    View(0.6, SMALL, SMALL),
    View(0.1, WIDE, WIDE),
    View(0.1, TALL, TALL),
    View(0.2, FULL, (384, 384)),
)


class Batches(Dataset):
    """Batch number i of a run: a function of `first_seed` and i alone, so a run can resume.

    Each item is `(images (n, H, W, 3) uint8, cells dict of (n, h * w) tensors, questions)`. Process
    `rank` of `world` gets every `world`-th batch.
    """

    def __init__(self, views, tokens: int, steps: int, first_seed: int, rank=0, world=1):
        self.views, self.tokens, self.steps, self.first_seed = views, tokens, steps, first_seed
        self.rank, self.world = rank, world

    def __len__(self) -> int:
        return self.steps

    def __getitem__(self, step: int):
        # All processes draw the same view, so that none waits for a slower batch.
        views = np.random.default_rng((self.first_seed, step))
        shares = np.asarray([view.share for view in self.views])
        view = self.views[views.choice(len(self.views), p=shares / shares.sum())]
        count = max(1, self.tokens * CELL * CELL // (view.size[0] * view.size[1]))
        number = step * self.world + self.rank
        rng = np.random.default_rng((self.first_seed, number, 1))
        if view.source == "easy-vqa":
            images, cells, questions = easy_vqa_batch(rng, count, view.size)
        elif view.source == "plates":
            images, cells, questions = collate(
                [plates(rng, view.canvas) for _ in range(count)], view.size
            )
        else:
            start = self.first_seed + number * 1024
            details = _details(rng, count)
            drawn = [
                scenes_scene.make_scene(
                    start + i, size=view.canvas, detail=details[i], kinds=view.kinds
                )
                for i in range(count)
            ]
            images, cells, questions = collate(drawn, view.size)
        most = max(2, min(MOST_QUESTIONS, int(QUESTIONS_PER_TOKEN * self.tokens) // count))
        return images, cells, [_some(asked, rng, most) for asked in questions]


def _details(rng, count: int) -> np.ndarray:
    """How large small things are drawn: half of the scenes as they will be asked, half otherwise."""
    return np.where(rng.random(count) < 0.5, 1.0, rng.uniform(0.7, 2.0, count))


def plates(rng, size: tuple[int, int]) -> scenes_scene.Scene:
    """A background full of plates with numbers, words and prices; nobody asks about it."""
    canvas = scenes_scene.Canvas(size, 1.0)
    canvas.picture, setting = drawing.background(rng, size)
    taken = []
    for _ in range(size[0] * size[1] // 4000):
        x, y = rng.uniform(0, size[0] - 100), rng.uniform(0, size[1] - 60)
        area = (x, y, x + 100, y + 60)
        if any(x < b[2] + 4 and b[0] < x + 104 and y < b[3] + 4 and b[1] < y + 64 for b in taken):
            continue
        kind = ("number", "word", "price")[rng.integers(3)]
        text = writing.word(rng) if kind == "word" else writing.number(rng)
        text = f"${text}" if kind == "price" else text
        if kind == "word" and rng.random() < 0.2:
            text = str(rng.choice(writing.MONTHS))
        box = writing.plate(rng, canvas.picture, text, area, rng.uniform(0.8, 2.2), at="anywhere")
        taken.append(box)
        canvas.add(scenes_questions.Thing("", "", box, kind, text, box))
    return scenes_scene.Scene(
        0, canvas.picture, (), tuple(canvas.things), setting, canvas.things_map
    )


def _some(questions, rng, most: int) -> list[scenes_questions.Question]:
    """At most `most` of the questions, in any order, the plentiful kinds thinned out."""
    kept = [q for q in questions if rng.random() < KIND_SHARES.get(q.kind, 1)]
    return [kept[i] for i in rng.permutation(len(kept))[:most]]


@cache
def easy_vqa_split(split: str) -> tuple[dict[int, str], dict[int, list[scenes_questions.Question]]]:
    """Picture paths and questions by picture of easy-VQA's "train" or official "test" split."""
    import easy_vqa

    by_picture: dict[int, list[scenes_questions.Question]] = {}
    rows = getattr(easy_vqa, f"get_{split}_questions")()
    for text, answer, picture in zip(*rows, strict=True):
        by_picture.setdefault(picture, []).append(
            scenes_questions.Question(text, answer, "easy_vqa")
        )
    return dict(getattr(easy_vqa, f"get_{split}_image_paths")()), by_picture


def easy_vqa_pictures(split: str, numbers, size: tuple[int, int]) -> tuple[torch.Tensor, list]:
    """Pictures `numbers` of a split: `(n, H, W, 3)` uint8 enlarged to `size`, and their questions."""
    paths, asked = easy_vqa_split(split)
    pictures = []
    for number in numbers:
        with Image.open(paths[number]) as image:
            pictures.append(np.asarray(image.convert("RGB").resize(size, Image.BICUBIC)))
    return torch.from_numpy(np.stack(pictures)), [asked[number] for number in numbers]


def easy_vqa_batch(rng, count: int, size: tuple[int, int]):
    """`count` pictures of easy-VQA's train split at `size`, as `collate` gives scenes."""
    chosen = rng.choice(sorted(easy_vqa_split("train")[1]), count)
    images, questions = easy_vqa_pictures("train", chosen, size)
    tokens = size[0] * size[1] // CELL**2
    cells = {key: torch.full((count, tokens), UNKNOWN) for key in ATTRIBUTES}
    cells["characters"] = torch.zeros(count, tokens, 2 * len(CHARACTERS))
    return images, cells, questions


def collate(drawn: list[scenes_scene.Scene], size: tuple[int, int]):
    """Scenes shown at `size` (width, height; multiples of 32): images, cells, questions."""
    pictures = [
        s.image if s.image.size == size else s.image.resize(size, Image.BICUBIC) for s in drawn
    ]
    images = torch.from_numpy(np.stack([np.asarray(p) for p in pictures]))
    rows = [cell_labels(s, size[1] // CELL, size[0] // CELL) for s in drawn]
    cells = {key: torch.from_numpy(np.stack([row[key] for row in rows])) for key in rows[0]}
    return images, cells, [s.questions for s in drawn]


def cell_labels(scene: scenes_scene.Scene, h: int, w: int) -> dict[str, np.ndarray]:
    """What each of the `h * w` visual tokens shows, raster order: int64 classes per attribute.

    `characters` is `(h * w, 2 * len(CHARACTERS))` float32, 1 where a character's middle lies in the
    token's left half, then the same for its right half.
    """
    labels = {key: np.zeros((h, w), np.int64) for key in ATTRIBUTES}
    names = [thing.name for thing in scene.objects]
    best = np.full((h, w), MIN_SHARE)
    for i, thing in enumerate(scene.objects):
        share = _share(scene.things_map == i + 1, h, w)
        here = share > best
        best[here] = share[here]
        labels["colour"][here] = COLOUR_NAMES.index(thing.colour)
        for key, value in _thing_labels(thing, scene.objects, names).items():
            labels[key][here] = value
        row, column = _cell_of(thing.box, scene.image.size, h, w)
        labels["centre"][row, column] = 1
    for i, thing in enumerate(scene.objects):
        if thing.detail_kind is None:
            continue
        here = _share(scene.things_map == scenes_scene.DETAIL_CODE + i + 1, h, w) > MIN_DETAIL_SHARE
        labelled = _thing_labels(thing, scene.objects, names) | _detail_labels(thing)
        for key, value in labelled.items():
            labels[key][here] = value
    flat = {key: value.reshape(-1) for key, value in labels.items()}
    return flat | {"characters": _characters(scene, h, w)}


def _characters(scene, h: int, w: int) -> np.ndarray:
    """Where each written character stands, taking the characters of a line to be equally wide."""
    found = np.zeros((h, 2 * w, len(CHARACTERS)), np.float32)
    for thing in scene.objects:
        if thing.detail_kind in (None, "emblem"):
            continue
        x0, y0, x1, y1 = thing.detail_box
        wide = (x1 - x0 - 6) / len(thing.detail)
        for i, character in enumerate(thing.detail):
            if character in CHARACTERS:
                x = x0 + 3 + (i + 0.5) * wide
                row, column = _cell_of((x, y0, x, y1), scene.image.size, h, 2 * w)
                found[row, column, CHARACTERS.index(character)] = 1
    return found.reshape(h * w, -1)


def _thing_labels(thing, things, names) -> dict[str, int]:
    if not thing.name:
        return {}
    beside = [neighbour(thing, things, axis) for axis in (0, 1)]
    left, above = (THING_NAMES.index(other.name) if other else 0 for other in beside)
    copies = min(names.count(thing.name), ATTRIBUTES["copies"] - 1)
    name = THING_NAMES.index(thing.name)
    return {"name": name, "copies": copies, "left": left, "above": above}


def _detail_labels(thing) -> dict[str, int]:
    if thing.detail_kind == "emblem":
        return {"detail": 1, "colour": COLOUR_NAMES.index(thing.detail)}
    digits = [int(c) + 1 for c in thing.detail if c.isdigit() and "=" not in thing.detail]
    words = [WRITTEN_WORDS.index(word) for word in thing.detail.split() if word in WRITTEN_WORDS]
    labels = dict(zip(("tens", "units"), digits, strict=False)) | {"detail": 2, "colour": 0}
    return labels | ({"word": words[0]} if words else {})


def _share(mask: np.ndarray, h: int, w: int) -> np.ndarray:
    return np.asarray(Image.fromarray(mask.astype(np.float32)).resize((w, h), Image.BOX))


def _cell_of(box, size, h, w) -> tuple[int, int]:
    x, y = (box[0] + box[2]) / 2 / size[0], (box[1] + box[3]) / 2 / size[1]
    return min(h - 1, int(y * h)), min(w - 1, int(x * w))


def patchify(images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """`(n, H, W, 3)` uint8 -> what the stock image processor gives when it need not resize.

    Returns pixels `(n * H/16 * W/16, 1536)` float32 and `image_grid_thw` `(n, 3)`.
    """
    n, height, width, _ = images.shape
    gh, gw = height // PATCH, width // PATCH
    x = images.float().mul(1 / 127.5).sub(1)
    x = x.view(n, gh // MERGE, MERGE, PATCH, gw // MERGE, MERGE, PATCH, 3)
    x = x.permute(0, 1, 4, 2, 5, 7, 3, 6)  # (n, h, w, MERGE, MERGE, 3, PATCH, PATCH)
    x = x.reshape(n * gh * gw, 3, 1, PATCH * PATCH).expand(-1, -1, TEMPORAL, -1)
    grid = torch.tensor([[1, gh, gw]]).expand(n, 3)
    return x.reshape(n * gh * gw, -1), grid


# -------------------------------------------------------------------------------- questions


@dataclass(frozen=True)
class Packed:
    """Several questions per picture in one sequence of length L.

    `input_ids` (B, L); `position_ids` (3, B, L); `mask` (B, 1, L, L) bool, True where attention is
    allowed; `rows`, `columns`, `labels` (A,): predict `labels[a]` at `[rows[a], columns[a]]`;
    `question_of` (A,): running number of the question that label a belongs to.
    """

    input_ids: torch.Tensor
    position_ids: torch.Tensor
    mask: torch.Tensor
    rows: torch.Tensor
    columns: torch.Tensor
    labels: torch.Tensor
    question_of: torch.Tensor


class Packer:
    """Turns lists of questions into `Packed` sequences; remembers what each text encodes to."""

    def __init__(self, tokenizer):
        self.tokenizer = tokenizer
        self.known: dict[str, list[int]] = {}
        self.pad = tokenizer.pad_token_id
        self.image_pad = tokenizer.convert_tokens_to_ids("<|image_pad|>")

    def ids(self, text: str) -> list[int]:
        if text not in self.known:
            self.known[text] = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return self.known[text]

    def pack(self, questions, h: int, w: int) -> Packed:
        """`questions`: per picture, the questions about it; `h`, `w`: its visual tokens."""
        head = self.ids("<|im_start|>user\n<|vision_start|>")
        prefix = [*head, *[self.image_pad] * (h * w), *self.ids("<|vision_end|>")]
        first = len(head) + max(h, w) + 1  # position of the first token after the prefix
        sequences, answers = [], []
        for row, asked in enumerate(questions):
            ids, blocks, places = list(prefix), [0] * len(prefix), []
            for number, question in enumerate(asked, start=1):
                ask = self.ids(f"{question.text}<|im_end|>\n<|im_start|>assistant\n")
                reply = self.ids(f"{question.answer}<|im_end|>")
                start = len(ids) + len(ask) - 1
                answers += [(row, start + i, t, (row, number)) for i, t in enumerate(reply)]
                ids += ask + reply
                blocks += [number] * (len(ask) + len(reply))
                places += range(first, first + len(ask) + len(reply))
            sequences.append((ids, blocks, places))
        return self._tensors(sequences, answers, self._prefix_positions(len(head), h, w))

    @staticmethod
    def _prefix_positions(head: int, h: int, w: int) -> torch.Tensor:
        """Qwen3-VL's positions of the prefix: text counts up, the picture spans (t, h, w)."""
        text = torch.arange(head).expand(3, head)
        rows, columns = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
        picture = torch.stack([torch.zeros_like(rows), rows, columns]).reshape(3, -1) + head
        end = torch.full((3, 1), head + max(h, w))
        return torch.cat([text, picture, end], 1)  # (3, head + h * w + 1)

    def _tensors(self, sequences, answers, prefix) -> Packed:
        length = max(len(ids) for ids, _, _ in sequences)
        batch = len(sequences)
        input_ids = torch.full((batch, length), self.pad)
        block = torch.full((batch, length), -1)
        positions = torch.zeros((3, batch, length), dtype=torch.long)
        for row, (ids, blocks, places) in enumerate(sequences):
            input_ids[row, : len(ids)] = torch.tensor(ids)
            block[row, : len(ids)] = torch.tensor(blocks)
            positions[:, row, : prefix.shape[1]] = prefix
            positions[:, row, prefix.shape[1] : len(ids)] = torch.tensor(places)
        causal = torch.ones(length, length, dtype=torch.bool).tril()
        own = (block[:, None, :] == block[:, :, None]) | (block == 0)[:, None, :]  # (B, L, L)
        number = {key: i for i, key in enumerate(dict.fromkeys(a[3] for a in answers))}
        rows, columns, labels = (torch.tensor([a[i] for a in answers]) for i in range(3))
        question_of = torch.tensor([number[a[3]] for a in answers])
        mask = (causal & own)[:, None]
        return Packed(input_ids, positions, mask, rows, columns, labels, question_of)
