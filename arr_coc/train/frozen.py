"""What training asks of the frozen base, for many questions at once.

Every pass goes through public arguments of the stock model, as `qwen` does for one question; tests
hold that both give the same. Nothing here is trained; gradients pass through `answer_logits`, and to
`lora` through `encode_kept`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from arr_coc import knowing
from arr_coc.attending import native_allocation
from arr_coc.config import HALO, glance_tokens
from arr_coc.lora import EncoderLoRA
from arr_coc.qwen import encoding, finite
from arr_coc.qwen.batch import padded
from arr_coc.qwen.context import EncoderContext
from arr_coc.qwen.encoding import TokenSet
from arr_coc.qwen.glance import Readings, encode_glances
from arr_coc.qwen.inputs import Picture, Prompt, glance_grid
from arr_coc.qwen.model import ARRCOCQwen
from arr_coc.qwen.together import read_rows
from arr_coc.scanning import FINE
from arr_coc.texture import SAMPLES, texture
from arr_coc.train.data import Sample, TrainingQuestion, evidence_of_each
from arr_coc.words import Words


def encode_full(host: ARRCOCQwen, pictures: Sequence[Picture]) -> list[TokenSet]:
    """The stock encoder on whole pictures, in one call."""
    return encoding.encode_pictures(host.model.model.visual, pictures)


def encode_kept(
    host: ARRCOCQwen,
    pictures: Sequence[Picture],
    kept: Sequence[Tensor],
    contexts: Sequence[EncoderContext | None] | None = None,
    lora: EncoderLoRA | None = None,
) -> list[TokenSet]:
    """The encoder on the native tokens at raster indices `kept` and what is around them, in one call.

    As `ARRCOCQwen.encode` of each picture: with `contexts` beside their glances' keys and values, which
    `lora` corrects, else with a halo and coarse cells. Gradients pass to `lora` alone.
    """
    allocations = [
        native_allocation(index.cpu(), picture.grid, torch.zeros(len(index)))
        for picture, index in zip(pictures, kept, strict=True)
    ]
    visual = host.model.model.visual
    if contexts is not None:
        nothing = [0] * len(pictures)
        return encoding.encode_kept(visual, pictures, allocations, nothing, 0.0, contexts, lora)
    around = [glance_tokens(picture.grid) for picture in pictures]
    return encoding.encode_kept(visual, pictures, allocations, around, HALO)


def glance_pictures(
    host: ARRCOCQwen, pictures: Sequence[Picture], context: str = "cells"
) -> list[tuple[TokenSet, EncoderContext | None]]:
    """What each picture's glance shows, standing at native places, and its context, as
    `ARRCOCQwen.glance` of that size (`config.glance_tokens`)."""
    return encode_glances(host, pictures, [_glance_grid(p, context) for p in pictures])


def _glance_grid(picture: Picture, context: str) -> tuple[int, int]:
    """The grid that `ARRCOCQwen.glance` shrinks a picture to."""
    return glance_grid(picture.grid, glance_tokens(picture.grid, context))


def answer_logits(
    host: ARRCOCQwen,
    prompts: Sequence[Prompt],
    tokens: Sequence[TokenSet],
    answers: Sequence[list[int]],
    shares: Sequence[Tensor | None],
) -> Tensor:
    """Logits of each answer's tokens, teacher-forced.

    Args:
        prompts: B of them.
        tokens: the visual tokens of each row; gradients reach their features and DeepStack planes.
        answers: token ids, the end token last.
        shares: `(K,)` in (0, 1] by which each visual token is there, see `relaxation`; None for 1.

    Returns:
        `(sum of the answers' lengths, vocabulary)` float32, row after row.

    Raises:
        FloatingPointError: where the model's numbers overflowed.
    """
    batch = padded(host, prompts, tokens, answers)
    length = batch.ids.shape[1]
    causal = torch.ones(length, length, dtype=torch.bool, device=batch.ids.device).tril()
    allowed = causal[None] & batch.mask[:, None].bool()  # (B, L, L)
    dtype = host.model.dtype
    bias = torch.zeros(allowed.shape, device=batch.ids.device)
    bias = bias.masked_fill(~allowed, torch.finfo(dtype).min)
    # A share adds its logarithm to every score of its column: the softmax then weighs the token by it.
    columns = []
    for prompt, visual, share in zip(prompts, tokens, shares):
        start = prompt.prefix.shape[1]
        weight = torch.zeros(len(visual)) if share is None else share.clamp(min=1e-6).log()
        end = length - start - len(visual)
        columns.append(F.pad(weight.to(bias), (start, end)))  # (L,)
    # The diagonal stays: a token always sees itself.
    others = 1 - torch.eye(length, device=bias.device)
    bias = bias + torch.stack(columns)[:, None] * others  # (B, L, L)
    inputs = batch.inputs() | {"attention_mask": bias[:, None].to(dtype)}
    hidden = host.model.model(**inputs, use_cache=False).last_hidden_state
    # The logits of a token stand at the one before it.
    picked = [
        row[n - len(a) - 1 : n - 1] for row, n, a in zip(hidden, batch.lengths.tolist(), answers)
    ]
    logits = host.model.lm_head(torch.cat(picked)).float()
    finite.check_logits(logits)
    return logits


def answer_ids(host: ARRCOCQwen, answer: str) -> list[int]:
    """An answer's token ids with the end token that the base's generation stops at."""
    ends = host.model.generation_config.eos_token_id
    end = ends[0] if isinstance(ends, list) else ends
    if end is None:
        end = host.tokenizer.eos_token_id
    return [*host.tokenizer(answer, add_special_tokens=False).input_ids, end]


@dataclass
class Group:
    """B questions about P pictures of one grid, with what the frozen base and texture say of them."""

    samples: list[Sample]  # P
    questions: list[TrainingQuestion]  # B
    picture_of: list[int]  # B, index of each question's picture
    pictures: list[Picture]  # P
    full_tokens: list[TokenSet]  # P, the full encoder's; none where nothing asks for them
    glance_tokens: list[TokenSet]  # P, the low-resolution pass's
    contexts: list[EncoderContext | None]  # P, the keys and values of the low-resolution pass
    prompts: list[Prompt]  # B
    answers: list[list[int]]  # B, token ids with the end token
    glances: Readings  # B
    textures: Tensor  # (B, channels of texture, h, w)
    fine: Tensor  # (P, 3, FINE * h, FINE * w) samples
    propositional: Tensor  # (B, h, w)
    words: Words  # B
    places: list[Tensor]  # B, (M, N) in [0, 1] of each of M boxes, or else attention (1, N)
    unboxed: list[bool]  # B, no boxes, and not because there is nothing to look at

    @property
    def grid(self) -> tuple[int, int]:
        """`(h, w)` of every picture."""
        return self.pictures[0].grid

    def full_of(self, row: int) -> TokenSet:
        """The full encoder's tokens of a question's picture."""
        return self.full_tokens[self.picture_of[row]]

    def key(self, row: int) -> tuple[int, int]:
        """A question's sample and its place there: the same whatever else is in the batch."""
        picture = self.picture_of[row]
        return self.samples[picture].number, row - self.picture_of.index(picture)


@torch.no_grad()
def gather(
    host: ARRCOCQwen, samples: list[Sample], context: str = "cells", *, in_full: bool = True
) -> Group:
    """Run the frozen passes for samples whose pictures have one grid.

    `context` is what kept cells will be encoded with; the glance and the maps are those that go with it.
    Without `in_full`, pictures all of whose questions have boxes are not encoded in full.
    """
    pictures = [host.picture(s.image) for s in samples]
    grid = pictures[0].grid
    picture_of = [p for p, sample in enumerate(samples) for _ in sample.questions]
    questions = [question for sample in samples for question in sample.questions]
    prompts = [host.prompt(pictures[p], q.text) for p, q in zip(picture_of, questions)]
    unboxed = [not q.boxes and not q.is_located for q in questions]
    full_tokens = encode_full(host, pictures) if in_full or any(unboxed) else []
    small_tokens, contexts = (list(own) for own in zip(*glance_pictures(host, pictures, context)))
    shown = [small_tokens[p] for p in picture_of]
    glances = read_rows(host, prompts, shown, _glance_grid(pictures[0], context)).readings
    places = [
        evidence_of_each(q.boxes, samples[p].image.size, grid).flatten(1).to(host.device)
        for p, q in zip(picture_of, questions)
    ]
    # Where nobody drew boxes, the base's own attention at full resolution says where to look.
    if rows := [row for row, unknown in enumerate(unboxed) if unknown]:
        tokens = [full_tokens[picture_of[row]] for row in rows]
        full = read_rows(host, [prompts[row] for row in rows], tokens, grid).readings
        for row, looked in zip(rows, full.attention.flatten(1).to(host.device, torch.float32)):
            places[row] = looked[None]
    fast = context == "glance"
    pixels = torch.cat([p.samples(SAMPLES) if fast else p.pixels() for p in pictures])
    return Group(
        samples=samples,
        questions=questions,
        picture_of=picture_of,
        pictures=pictures,
        full_tokens=full_tokens,
        glance_tokens=small_tokens,
        contexts=contexts,
        prompts=prompts,
        answers=[answer_ids(host, q.answer) for q in questions],
        glances=glances,
        textures=texture(pixels, grid)[picture_of],
        fine=torch.cat([p.samples(FINE) for p in pictures]),
        propositional=knowing.propositional(pixels, grid)[picture_of],
        words=Words.of_all([host.embed(q.question) for q in questions]),
        places=places,
        unboxed=unboxed,
    )
