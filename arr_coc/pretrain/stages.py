"""What pretraining optimises: the run's modules, the codes, the read-outs, one loss per stage.

A stage is a function `(run, packer, batch, device) -> (loss, scores)`; `pretrain.py` drives them.
"""

import math
from collections import defaultdict
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import nn
from transformers.models.qwen3_vl.modeling_qwen3_vl import BaseModelOutputWithDeepstackFeatures

from arr_coc.pretrain.data import (
    ATTRIBUTES,
    CHARACTERS,
    COLOUR_NAMES,
    THING_NAMES,
    WRITTEN_WORDS,
    patchify,
)
from arr_coc.pretrain.model import CELL

STAGES = ("symbolic", "dense", "align", "joint")
MODULES = ("model", "codes", "heads")  # of a run, in its checkpoint
COUNTERS = ("stage", "step", "seconds", "pictures")
DENSE_WEIGHT_IN_JOINT = 0.25
READING = ("tens", "units", "word", "characters")  # what practice with plates reports
# Against 1 for a token that carries something: most tokens carry nothing.
BACKGROUND_WEIGHT = {"name": 0.5, "colour": 0.5, "centre": 0.5}
OTHER_BACKGROUND_WEIGHT = 0.1
RARE_WEIGHT = 8.0  # of a character that is there, against one that is not
CHARACTERS_WEIGHT = 8.0  # their loss is a mean over many classes that are mostly absent
PLACE_STD = 0.2  # of the code's place features: weaker ones were not read in a long run


@dataclass
class Run:
    """Where a training run stands: the modules, the counters, and what it began with.

    `command` is the one that runs now, `commands` are those whose checkpoints it goes on from.
    `state_dict` is what accelerate keeps in a checkpoint.
    """

    model: nn.Module
    tokenizer: object
    codes: nn.Module
    heads: nn.Module
    stage: str = STAGES[0]
    step: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    pictures: dict[str, int] = field(default_factory=dict)
    command: str = ""
    commands: list[str] = field(default_factory=list)
    before: dict = field(default_factory=dict)  # the same, of the published weights it began with

    def all_commands(self) -> list[str]:
        return [*self.commands, *([self.command] if self.command else [])]

    def state_dict(self) -> dict:
        state = {name: getattr(self, name).state_dict() for name in MODULES}
        state |= {name: getattr(self, name) for name in COUNTERS}
        return state | {"commands": self.all_commands()}

    def load_state_dict(self, state: dict) -> None:
        for name in MODULES:
            getattr(self, name).load_state_dict(state[name])
        for name in (*COUNTERS, "commands"):
            setattr(self, name, state[name])


class Codes(nn.Module):
    """What a visual token means, as vectors the text side can read: words, place, centre.

    `forward(cells, h, w)` -> the main plane and one per DeepStack layer, each `(n * h * w, D)`.
    """

    def __init__(self, embedding: nn.Embedding, tokenizer, planes: int):
        super().__init__()
        width = embedding.embedding_dim
        self.embed = [embedding]  # in a list: shared with the model, not owned
        self.words = {
            "name": [self._word(tokenizer, name) for name in THING_NAMES],
            "colour": [self._word(tokenizer, name) for name in COLOUR_NAMES],
            "word": [self._word(tokenizer, name) for name in WRITTEN_WORDS],
        }
        self.tables = nn.ModuleList(
            nn.ModuleDict({key: nn.Embedding(size, width) for key, size in ATTRIBUTES.items()})
            for _ in range(1 + planes)
        )
        for table in self.tables.parameters():
            nn.init.normal_(table, std=0.02)
        self.place = nn.Linear(8, width)
        nn.init.normal_(self.place.weight, std=PLACE_STD)

    @staticmethod
    def _word(tokenizer, name: str) -> int:
        ids = tokenizer(f" {name}" if name else "<|vision_pad|>", add_special_tokens=False)
        return ids["input_ids"][0]

    def forward(self, cells, h: int, w: int) -> list[torch.Tensor]:
        n = cells["name"].shape[0]
        planes = [sum(t[key](cells[key]) for key in t) for t in self.tables]
        for key, words in self.words.items():
            index = torch.tensor(words, device=cells[key].device)[cells[key]]
            planes[0] = planes[0] + self.embed[0](index)
        planes[0] = planes[0] + self.place(_places(h, w).to(planes[0].device))
        return [plane.reshape(n * h * w, -1) for plane in planes]


def _places(h: int, w: int) -> torch.Tensor:
    """Features of where each token is: `(h * w, 8)`, x and y in [-1, 1] and two waves of each."""
    y = (torch.arange(h).float() + 0.5).div(h).mul(2).sub(1)[:, None].expand(h, w)
    x = (torch.arange(w).float() + 0.5).div(w).mul(2).sub(1)[None, :].expand(h, w)
    base = torch.stack([x, y], -1).reshape(h * w, 2)
    waves = [torch.sin(math.pi * base), torch.cos(math.pi * base), torch.sin(2 * math.pi * base)]
    return torch.cat([base, *waves], 1)


class Heads(nn.Module):
    """Linear read-outs of what a visual token shows; they help training and are thrown away."""

    def __init__(self, width: int):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.read = nn.ModuleDict({key: nn.Linear(width, n) for key, n in ATTRIBUTES.items()})
        self.place = nn.Linear(width, 2)
        self.characters = nn.Linear(width, 2 * len(CHARACTERS))

    def losses(self, features, cells, h: int, w: int) -> dict[str, torch.Tensor]:
        """Cross-entropy per attribute, nothing weighing less than something, and the place's error.

        `features` `(n * h * w, D)`; empty where nobody labelled the pictures.
        """
        if (cells["name"] < 0).all():
            return {}
        x = self.norm(features)
        losses = {}
        for key, read in self.read.items():
            logits = read(x).float()
            weight = torch.ones(logits.shape[1], device=logits.device)
            weight[0] = BACKGROUND_WEIGHT.get(key, OTHER_BACKGROUND_WEIGHT)
            losses[key] = F.cross_entropy(logits, cells[key].reshape(-1), weight)
        places = _places(h, w)[:, :2].to(x.device).repeat(len(x) // (h * w), 1)
        written = cells["characters"].flatten(0, 1)
        losses["characters"] = CHARACTERS_WEIGHT * F.binary_cross_entropy_with_logits(
            self.characters(x).float(), written, pos_weight=written.new_tensor(RARE_WEIGHT)
        )
        losses["place"] = F.mse_loss(self.place(x).float(), places)
        return losses


# ------------------------------------------------------------------------------------ stages


def symbolic_loss(run: Run, packer, batch, device) -> tuple[torch.Tensor, dict]:
    """Questions about codes: no pixel is looked at."""
    images, cells, questions = batch
    h, w = images.shape[1] // CELL, images.shape[2] // CELL
    keep = torch.rand_like(cells["name"], dtype=torch.float) > 0.06  # the vision side will err too
    cells = {key: (cells[key] * keep).to(device) for key in ATTRIBUTES}
    planes = run.codes(cells, h, w)
    return question_loss(run, packer, questions, planes, h, w, device)


def dense_loss(run: Run, packer, batch, device) -> tuple[torch.Tensor, dict]:
    """The vision side names what each token shows."""
    images, cells, _ = batch
    h, w = images.shape[1] // CELL, images.shape[2] // CELL
    cells = {key: value.to(device) for key, value in cells.items()}
    named = run.heads.losses(look(run, images.to(device))[0], cells, h, w)
    return sum(named.values()), {key: value.item() for key, value in named.items()}


def align_loss(run: Run, packer, batch, device) -> tuple[torch.Tensor, dict]:
    """The vision side produces the codes that the text side reads, and goes on naming."""
    images, cells, _ = batch
    h, w = images.shape[1] // CELL, images.shape[2] // CELL
    cells = {key: value.to(device) for key, value in cells.items()}
    planes = look(run, images.to(device))
    with torch.no_grad():
        targets = [t.float() for t in run.codes(cells, h, w)]
    named = sum(run.heads.losses(planes[0], cells, h, w).values())
    pairs = zip(planes, targets, strict=True)
    code = sum(F.mse_loss(plane.float(), t) / t.var(0).mean() for plane, t in pairs)
    return named + code, {"named": named.item(), "code": code.item()}


def joint_loss(run: Run, packer, batch, device) -> tuple[torch.Tensor, dict]:
    """Pictures and questions through the whole model, naming kept up on the side."""
    images, cells, questions = batch
    h, w = images.shape[1] // CELL, images.shape[2] // CELL
    cells = {key: value.to(device) for key, value in cells.items()}
    planes = look(run, images.to(device))
    named = run.heads.losses(planes[0], cells, h, w)
    shown = {key: value.item() for key, value in named.items()}
    if not any(questions):
        return sum(named.values()), {f"plates_{key}": shown[key] for key in READING}
    loss, scores = question_loss(run, packer, questions, planes, h, w, device)
    if not named:
        return loss, scores
    return loss + DENSE_WEIGHT_IN_JOINT * sum(named.values()), scores | {
        f"see_{key}": value for key, value in shown.items()
    }


LOSSES = {
    "symbolic": symbolic_loss,
    "dense": dense_loss,
    "align": align_loss,
    "joint": joint_loss,
}


def look(run: Run, images) -> list[torch.Tensor]:
    """`(n, H, W, 3)` uint8 -> the encoder's main plane and DeepStack planes, `(n * h * w, D)`."""
    pixels, grid = patchify(images)
    seen = run.model.model.visual(pixels, grid_thw=grid.to(pixels.device), return_dict=True)
    return [seen.pooler_output, *seen.deepstack_features]


def answer_logits(run: Run, packed, planes, device) -> torch.Tensor:
    """Logits `(A, vocabulary)` at every place that has a label."""
    seen = BaseModelOutputWithDeepstackFeatures(
        pooler_output=(planes[0],), deepstack_features=[(plane,) for plane in planes[1:]]
    )
    hidden = run.model.model(
        input_ids=packed.input_ids.to(device),
        position_ids=packed.position_ids.to(device),
        attention_mask=packed.mask.to(device),
        mm_encoder_outputs={"image": seen},
        use_cache=False,
    ).last_hidden_state
    picked = hidden[packed.rows.to(device), packed.columns.to(device)]
    return run.model.lm_head(picked).float()


def question_loss(run, packer, questions, planes, h, w, device):
    packed = packer.pack(questions, h, w)
    logits = answer_logits(run, packed, planes, device)
    labels = packed.labels.to(device)
    loss = F.cross_entropy(logits, labels)
    right = all_right(logits.argmax(-1) == labels, packed.question_of.to(device))
    kinds = [q.kind for asked in questions for q in asked]
    by_kind = defaultdict(list)
    for kind, ok in zip(kinds, right.tolist(), strict=True):
        by_kind[kind].append(ok)
    return loss, {k: round(sum(v) / len(v), 2) for k, v in by_kind.items()}


def all_right(right, question_of) -> torch.Tensor:
    """`(A,)` right or wrong per token -> `(questions,)` bool, all of its tokens right."""
    wrong = torch.zeros(int(question_of.max()) + 1, device=right.device)
    return wrong.index_add(0, question_of, (~right).float()) == 0
