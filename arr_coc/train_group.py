"""What the frozen base and texture say of a batch, before anything that is trained.

Samples whose pictures have one size go through the base together (`train_base`), without gradients.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from arr_coc import knowing, train_base, train_data
from arr_coc.qwen import ARRCOCQwen
from arr_coc.qwen_encode import TokenSet
from arr_coc.texture import texture
from arr_coc.train_data import Asked, Sample


@dataclass
class Group:
    """B questions about P pictures of one grid, with what the frozen base and texture say."""

    samples: list[Sample]
    asked: list[Asked]
    owner: list[int]  # B, which picture
    pictures: list[Any]
    full: list[TokenSet]
    glances: list[TokenSet]  # P
    prompts: list[Any]
    answers: list[list[int]]
    looks: train_base.Looks
    textures: Tensor  # (B, 13, h, w)
    propositional: Tensor  # (B, h, w)
    embedding: Tensor  # (B, D)
    evidence: Tensor  # (B, N)
    unboxed: list[bool]  # B, no boxes, and not because there is nothing to look at

    @property
    def grid(self) -> tuple[int, int]:
        """`(h, w)` of every picture."""
        return self.pictures[0].grid

    def key(self, row: int) -> tuple[int, int]:
        """A question's sample and its place there: the same whatever else is in the batch."""
        owner = self.owner[row]
        return self.samples[owner].number, row - self.owner.index(owner)


@torch.no_grad()
def gather(host: ARRCOCQwen, samples: list[Sample]) -> Group:
    """Run the frozen passes for samples whose pictures have one size."""
    pictures = [host.picture(s.image) for s in samples]
    grid = pictures[0].grid
    pairs = [(p, a) for p, s in enumerate(samples) for a in s.asked]
    owner, asked = [p for p, _ in pairs], [a for _, a in pairs]
    prompts = [host.prompt(pictures[p], a.text) for p, a in pairs]
    full, glances = (
        train_base.encode_full(host, pictures),
        train_base.glance_pictures(host, pictures),
    )
    small = _grid_of(glances[0], grid)
    pixels = torch.cat([p.pixels() for p in pictures])
    looks = train_base.looks(host, prompts, [glances[p] for p in owner], small)
    evidence = torch.stack(
        [train_data.evidence(a, samples[p].image.size, grid).flatten() for p, a in pairs]
    ).to(host.device)
    # A scene has boxes wherever there is a place to look at.
    unboxed = [not a.boxes and a.kind not in train_data.scenes.KINDS for a in asked]
    if rows := [row for row, unknown in enumerate(unboxed) if unknown]:
        tokens = [full[owner[row]] for row in rows]
        seen = train_base.looks(host, [prompts[row] for row in rows], tokens, grid)
        evidence[rows] = seen.attention.flatten(1).to(evidence)
    return Group(
        samples=samples,
        asked=asked,
        owner=owner,
        pictures=pictures,
        full=full,
        glances=glances,
        prompts=prompts,
        answers=[train_base.answer_ids(host, a.answer) for a in asked],
        looks=looks,
        textures=texture(pixels, grid)[owner],
        propositional=knowing.propositional(pixels, grid)[owner],
        embedding=torch.cat([host.embed(a.question) for a in asked]),
        evidence=evidence,
        unboxed=unboxed,
    )


def _grid_of(tokens: TokenSet, grid: tuple[int, int]) -> tuple[int, int]:
    rows = len(tokens.places[:, 0].unique())
    return rows, len(tokens) // rows
