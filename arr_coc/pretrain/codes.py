"""Codes: what a visual token means, written for the text side and read from the vision side.

`Codes` makes vectors of labels, for the text side to learn to read before there is a vision side;
`Heads` are read-outs that teach the vision side to name what it sees. Neither is published.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn
from transformers import PreTrainedTokenizerFast

from arr_coc.pretrain.changes import ChangeHeads
from arr_coc.pretrain.hints import HintHeads
from arr_coc.pretrain.labels import (
    ATTRIBUTES,
    CHARACTERS,
    COLOUR_NAMES,
    HALVES,
    RELATED,
    THING_NAMES,
    UNKNOWN,
    WRITTEN_WORDS,
)

# Weight of the class "nothing" in an attribute's cross-entropy, against 1 for each other class: most
# tokens carry nothing, which would drown what the others carry.
BACKGROUND_WEIGHT = {"name": 0.5, "colour": 0.5, "centre": 0.5}
OTHER_BACKGROUND_WEIGHT = 0.1
# Of the losses of what a token does not show by itself: they are many, and must not outweigh reading.
RELATED_WEIGHT = 0.2
# Weight of a character that is there, against one that is not, and of the characters' loss against
# the other losses: it is a mean over many classes that are mostly absent.
RARE_WEIGHT, CHARACTERS_WEIGHT = 8.0, 8.0
PLACE_FEATURES = 8
PLACE_STD = 0.2  # initial weights of the codes' place: smaller ones were not read in a long run
TABLE_STD = 0.02  # initial vectors of the codes' attributes


class Codes(nn.Module):
    """What a visual token means, as vectors the text side can read: words, attributes, place.

    A code is the sum of the word embeddings of what the token shows, a learned vector per attribute
    and one of its place; the DeepStack planes have the learned vectors only.
    """

    def __init__(
        self, embedding: nn.Embedding, tokenizer: PreTrainedTokenizerFast, planes: int
    ) -> None:
        super().__init__()
        width = embedding.embedding_dim
        self.embed = [embedding]  # in a list: it stays the model's, and no parameter of the codes
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
            nn.init.normal_(table, std=TABLE_STD)
        self.place = nn.Linear(PLACE_FEATURES, width)
        nn.init.normal_(self.place.weight, std=PLACE_STD)

    @staticmethod
    def _word(tokenizer: PreTrainedTokenizerFast, name: str) -> int:
        """The first token of a name, nearly always its only one; an unused token for no name."""
        ids = tokenizer(f" {name}" if name else "<|vision_pad|>", add_special_tokens=False)
        return ids["input_ids"][0]

    def forward(self, cells: dict[str, torch.Tensor], h: int, w: int) -> list[torch.Tensor]:
        """The main plane and one per DeepStack layer, each `(n * h * w, D)`.

        `cells`: classes per attribute, each `(n, h * w)`.
        """
        n = cells["name"].shape[0]
        planes = [sum(t[key](cells[key]) for key in t) for t in self.tables]
        for key, words in self.words.items():
            index = torch.tensor(words, device=cells[key].device)[cells[key]]
            planes[0] = planes[0] + self.embed[0](index)
        planes[0] = planes[0] + self.place(_places(h, w).to(planes[0].device))
        return [plane.reshape(n * h * w, -1) for plane in planes]


def _places(h: int, w: int) -> torch.Tensor:
    """Where each token is: `(h * w, PLACE_FEATURES)`, x and y in [-1, 1] and three waves of each."""
    y = (torch.arange(h).float() + 0.5).div(h).mul(2).sub(1)[:, None].expand(h, w)
    x = (torch.arange(w).float() + 0.5).div(w).mul(2).sub(1)[None, :].expand(h, w)
    base = torch.stack([x, y], -1).reshape(h * w, 2)
    waves = [torch.sin(math.pi * base), torch.cos(math.pi * base), torch.sin(2 * math.pi * base)]
    return torch.cat([base, *waves], 1)


class Heads(nn.Module):
    """Linear read-outs of what a visual token shows; they help training and are thrown away.

    `hints` and `changes` are those of the text side.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.read = nn.ModuleDict({key: nn.Linear(width, n) for key, n in ATTRIBUTES.items()})
        self.place = nn.Linear(width, 2)
        self.characters = nn.Linear(width, HALVES * len(CHARACTERS))
        self.hints = HintHeads(width)
        self.changes = ChangeHeads(width)

    def losses(
        self, features: torch.Tensor, cells: dict[str, torch.Tensor], h: int, w: int
    ) -> dict[str, torch.Tensor]:
        """Cross-entropy per attribute, of the characters, and the squared error of the place.

        Args:
            features: `(n * h * w, D)`.
            cells: labels as `cell_labels` gives them, each `(n, h * w)`.
            h: rows of visual tokens.
            w: columns.

        Returns:
            A loss by name; none where nobody labelled the pictures.
        """
        if (cells["name"] == UNKNOWN).all():
            return {}
        x = self.norm(features)
        losses = {}
        for key, read in self.read.items():
            logits = read(x).float()
            weight = torch.ones(logits.shape[1], device=logits.device)
            weight[0] = BACKGROUND_WEIGHT.get(key, OTHER_BACKGROUND_WEIGHT)
            loss = F.cross_entropy(logits, cells[key].reshape(-1), weight)
            losses[key] = RELATED_WEIGHT * loss if key in RELATED else loss
        written = cells["characters"].flatten(0, 1)  # (n * h * w, HALVES * len(CHARACTERS))
        losses["characters"] = CHARACTERS_WEIGHT * F.binary_cross_entropy_with_logits(
            self.characters(x).float(), written, pos_weight=written.new_tensor(RARE_WEIGHT)
        )
        places = _places(h, w)[:, :2].to(x.device).repeat(len(x) // (h * w), 1)
        losses["place"] = F.mse_loss(self.place(x).float(), places)
        return losses
