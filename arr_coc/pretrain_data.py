"""Batches for pretraining: pictures at many sizes, what each visual token shows, packed questions.

One batch holds pictures of one size. `pack` puts all questions about a picture into one sequence:
every question sees the picture and itself, at the positions it would have alone, so the packed pass
gives each question the logits of the single-question chat (a test holds this).
"""

from dataclasses import dataclass

import numpy as np
import torch
from PIL import Image
from torch.utils.data import Dataset

from arr_coc import scenes, scenes_draw
from arr_coc.pretrain_model import CELL, MERGE, PATCH, TEMPORAL

THING_NAMES = ("", *scenes_draw.glyph_names(), *scenes_draw.HOSTS)  # 0: background
COLOUR_NAMES = ("", *scenes_draw.COLOURS)
MIN_SHARE = 0.2  # of a visual token's area that a thing covers, for the token to carry its name
MIN_EMBLEM_SHARE = 0.07
MOST_QUESTIONS = 6  # per picture in training: the text side is what they cost


@dataclass(frozen=True)
class View:
    """A share of the batches: scenes drawn on `canvas`, shown at `size` (width, height, pixels)."""

    share: float
    canvas: tuple[int, int]
    size: tuple[int, int]


SMALL, WIDE, TALL, FULL = (256, 256), (384, 256), (256, 384), (512, 512)
VIEWS = (
    View(0.34, SMALL, SMALL),
    View(0.06, WIDE, WIDE),
    View(0.06, TALL, TALL),
    View(0.12, (384, 384), (384, 384)),
    View(0.14, FULL, FULL),
    View(0.10, FULL, (256, 256)),
    View(0.06, FULL, (384, 384)),
    View(0.04, FULL, (224, 224)),
    View(0.03, (512, 384), (256, 192)),
    View(0.03, SMALL, (128, 128)),
    View(0.02, FULL, (128, 128)),
)
QUICK_VIEWS = (  # for the stage that never looks at pixels: pictures that are cheap to draw
    View(0.6, SMALL, SMALL),
    View(0.1, WIDE, WIDE),
    View(0.1, TALL, TALL),
    View(0.2, FULL, (384, 384)),
)


class Batches(Dataset):
    """Batch number i of a run: a function of `first_seed` and i alone, so a run can resume.

    Each item is `(images (n, H, W, 3) uint8, cells dict of (n, h * w) tensors, questions)`.
    """

    def __init__(self, views, tokens: int, steps: int, first_seed: int):
        self.views, self.tokens, self.steps, self.first_seed = views, tokens, steps, first_seed

    def __len__(self) -> int:
        return self.steps

    def __getitem__(self, step: int):
        rng = np.random.default_rng((self.first_seed, step))
        shares = np.asarray([view.share for view in self.views])
        view = self.views[rng.choice(len(self.views), p=shares / shares.sum())]
        count = max(1, self.tokens * CELL * CELL // (view.size[0] * view.size[1]))
        start = self.first_seed + step * 1024
        drawn = [scenes.make_scene(start + i, size=view.canvas) for i in range(min(count, 1024))]
        images, cells, questions = collate(drawn, view.size)
        return images, cells, [_some(asked, rng) for asked in questions]


def _some(questions, rng) -> list[scenes.Question]:
    return [questions[i] for i in rng.permutation(len(questions))[:MOST_QUESTIONS]]


def collate(drawn: list[scenes.Scene], size: tuple[int, int]):
    """Scenes shown at `size` (width, height; multiples of 32): images, cells, questions."""
    pictures = [
        s.image if s.image.size == size else s.image.resize(size, Image.BICUBIC) for s in drawn
    ]
    images = torch.from_numpy(np.stack([np.asarray(p) for p in pictures]))
    rows = [cell_labels(s, size[1] // CELL, size[0] // CELL) for s in drawn]
    cells = {key: torch.from_numpy(np.stack([row[key] for row in rows])) for key in rows[0]}
    return images, cells, [s.questions for s in drawn]


def cell_labels(scene: scenes.Scene, h: int, w: int) -> dict[str, np.ndarray]:
    """What each of the `h * w` visual tokens shows, raster order.

    `name`, `colour`: int64 indices into THING_NAMES and COLOUR_NAMES, 0 for background;
    `emblem`, `centre`: int64 0/1, an emblem is here, a thing's centre is here.
    """
    labels = {key: np.zeros((h, w), np.int64) for key in ("name", "colour", "emblem", "centre")}
    best = np.full((h, w), MIN_SHARE)
    for i, thing in enumerate(scene.objects):
        share = _share(scene.things_map == i + 1, h, w)
        here = share > best
        best[here] = share[here]
        labels["name"][here] = THING_NAMES.index(thing.name)
        labels["colour"][here] = COLOUR_NAMES.index(thing.colour)
        row, column = _cell_of(thing.box, scene.image.size, h, w)
        labels["centre"][row, column] = 1
    for i, thing in enumerate(scene.objects):
        if thing.emblem_colour is None:
            continue
        code = scenes.EMBLEM_CODE + i + 1
        here = _share(scene.things_map == code, h, w) > MIN_EMBLEM_SHARE
        labels["emblem"][here] = 1
        labels["name"][here] = THING_NAMES.index(thing.name)
        labels["colour"][here] = COLOUR_NAMES.index(thing.emblem_colour)
    return {key: value.reshape(-1) for key, value in labels.items()}


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
