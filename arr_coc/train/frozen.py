"""What training asks of the frozen base, for many questions at once.

Every pass goes through public arguments of the stock model, as `qwen` does for one question; tests
hold that both give the same. Nothing here is trained; gradients pass through `answer_logits` only.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers.models.qwen3_vl.modeling_qwen3_vl import apply_rotary_pos_emb, repeat_kv

from arr_coc import knowing
from arr_coc.attending import native_allocation
from arr_coc.config import HALO, glance_tokens
from arr_coc.qwen.batch import Padded, padded
from arr_coc.qwen.encoding import (
    TokenSet,
    cell_patch_positions,
    cell_patches,
    cell_places,
    interpolation_taps,
    with_halo,
    with_surroundings,
)
from arr_coc.qwen.inputs import Picture, Prompt
from arr_coc.qwen.model import ARRCOCQwen
from arr_coc.scenes.questions import KINDS
from arr_coc.texture import texture
from arr_coc.train.data import Sample, TrainingQuestion, evidence


@dataclass(frozen=True)
class Readings:
    """As `realizing.Glance`, for B questions on one grid: what trained parts read of a glance."""

    attention: Tensor  # (B, gh, gw)
    heads: Tensor  # (B, heads, gh, gw)
    states: Tensor  # (B, gh, gw, D)
    answering: Tensor  # (B, D)


def encode_full(host: ARRCOCQwen, pictures: Sequence[Picture]) -> list[TokenSet]:
    """The stock encoder on whole pictures, in one call."""
    visual = host.model.model.visual
    patches = torch.cat([p.patches for p in pictures]).to(visual.dtype)
    output = visual(patches, grid_thw=torch.cat([p.grid_thw for p in pictures]), return_dict=True)
    counts = [p.tokens for p in pictures]
    places = [_raster_places(p) for p in pictures]
    return _token_sets(output, counts, places)


def encode_kept(
    host: ARRCOCQwen, pictures: Sequence[Picture], kept: Sequence[Tensor]
) -> list[TokenSet]:
    """The encoder on the native tokens at raster indices `kept` and what is around them, in one call.

    As `ARRCOCQwen.encode` of each picture.
    """
    visual, patches, taps, positions, bounds = host.model.model.visual, [], [], [], []
    for picture, index in zip(pictures, kept):
        allocation = native_allocation(index.cpu(), picture.grid, torch.zeros(len(index)))
        seen = with_surroundings(with_halo(allocation, HALO), glance_tokens(picture.grid))
        patches.append(cell_patches(picture, seen))
        bounds.append(seen.bounds().to(picture.patches.device))
        at = cell_patch_positions(bounds[-1], picture.geometry.merge)
        positions.append(at)
        patch_grid = tuple(picture.grid_thw[0, 1:].tolist())
        taps.append(interpolation_taps(at, patch_grid, visual.num_grid_per_side))
    lengths = torch.tensor([0, *(len(p) for p in patches)], device=patches[0].device)
    output = visual(
        torch.cat(patches).to(visual.dtype),
        grid_thw=torch.tensor([[1, 1, int(n)] for n in lengths[1:]], device=patches[0].device),
        interp_indices=torch.cat([index for index, _ in taps]),
        interp_weights=torch.cat([weight for _, weight in taps]),
        position_ids=torch.cat(positions),
        cu_seqlens=lengths.cumsum(0).int(),
        return_dict=True,
    )
    whole = _token_sets(output, [len(at) for at in bounds], [cell_places(at) for at in bounds])
    return [tokens.at(slice(len(index))) for tokens, index in zip(whole, kept)]


def _raster_places(picture: Picture) -> Tensor:
    index = torch.arange(picture.tokens, device=picture.patches.device)
    w = picture.grid[1]
    return torch.stack([index // w, index % w], 1).float()


def _token_sets(output: Any, counts: list[int], places: list[Tensor]) -> list[TokenSet]:
    planes = [output.pooler_output, *output.deepstack_features]
    rows = zip(*(plane.split(counts) for plane in planes))
    return [TokenSet(row[0], tuple(row[1:]), at) for row, at in zip(rows, places)]


def glance_pictures(host: ARRCOCQwen, pictures: Sequence[Picture]) -> list[TokenSet]:
    """The low-resolution look of each picture, standing at native places, as `ARRCOCQwen.glance`."""
    small = [host.small_picture(p.source, p.grid, glance_tokens(p.grid)) for p in pictures]
    placed = []
    for picture, one, tokens in zip(pictures, small, encode_full(host, small)):
        ratio = torch.tensor(picture.grid) / torch.tensor(one.grid)
        places = (tokens.places + 0.5) * ratio.to(tokens.places) - 0.5
        placed.append(replace(tokens, places=places))
    return placed


def readings(
    host: ARRCOCQwen, prompts: Sequence[Prompt], tokens: Sequence[TokenSet], grid: tuple[int, int]
) -> Readings:
    """What is read of one prefill of every prompt: the attention of the token about to answer, and more.

    `grid` is that of the visual tokens, the same in every row.
    """
    batch = padded(host, prompts, tokens, [[] for _ in prompts])
    cache = host.new_cache()
    output = host.model.model(
        input_ids=batch.ids,
        attention_mask=batch.mask,
        position_ids=batch.positions,
        past_key_values=cache,
        mm_encoder_outputs=_joined(tokens).encoder_outputs(),
        use_cache=True,
        output_hidden_states=True,
    )
    start = prompts[0].prefix.shape[1]
    columns = slice(start, start + grid[0] * grid[1])
    last, rows = batch.lengths - 1, torch.arange(len(prompts), device=batch.ids.device)
    heads = last_attention(host, output.hidden_states, cache, batch, last)[..., columns]
    half = output.hidden_states[len(host.all_layers) // 2]
    return Readings(
        attention=heads[:, host.attention_layers].mean((1, 2)).view(-1, *grid),
        heads=heads.flatten(1, 2).view(len(rows), -1, *grid),
        states=half[:, columns].view(len(rows), *grid, -1),
        answering=half[rows, last],
    )


def last_attention(host, hidden_states, cache, batch: "Padded", last: Tensor) -> Tensor:
    """`(B, layers, heads, L)` attention of row `last[b]`, as `attention.question_attention`."""
    model = host.model.model.language_model
    rows = torch.arange(len(last), device=last.device)
    cos, sin = model.rotary_emb(hidden_states[0], batch.positions[1:])
    cos, sin = cos[rows, last][:, None], sin[rows, last][:, None]  # (B, 1, head_dim)
    hidden = torch.arange(batch.ids.shape[1], device=last.device)[None] > last[:, None]  # (B, L)
    found = []
    for index, layer in enumerate(model.layers):
        module, keys = layer.self_attn, cache.layers[index].keys
        states = layer.input_layernorm(hidden_states[index][rows, last][:, None])
        query = module.q_proj(states).view(len(rows), 1, -1, module.head_dim)
        query = module.q_norm(query).transpose(1, 2)  # (B, heads, 1, head_dim)
        query, _ = apply_rotary_pos_emb(query, query, cos, sin)
        scores = query @ repeat_kv(keys, module.num_key_value_groups).transpose(2, 3)
        scores = (scores * module.scaling).float().masked_fill(hidden[:, None, None], -torch.inf)
        found.append(scores.softmax(-1)[:, :, 0])
    return torch.stack(found, 1)


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
    """
    batch = padded(host, prompts, tokens, answers)
    length = batch.ids.shape[1]
    causal = torch.ones(length, length, dtype=torch.bool, device=batch.ids.device).tril()
    allowed = causal[None] & batch.mask[:, None].bool()  # (B, L, L)
    dtype = host.model.dtype
    bias = torch.zeros(allowed.shape, device=batch.ids.device)
    bias = bias.masked_fill(~allowed, torch.finfo(dtype).min)
    columns = []
    for prompt, visual, share in zip(prompts, tokens, shares):
        start = prompt.prefix.shape[1]
        weight = torch.zeros(len(visual)) if share is None else share.clamp(min=1e-6).log()
        end = length - start - len(visual)
        columns.append(F.pad(weight.to(bias), (start, end)))
    # The diagonal stays: a token always sees itself.
    apart = 1 - torch.eye(length, device=bias.device)
    bias = bias + torch.stack(columns)[:, None] * apart
    hidden = host.model.model(
        input_ids=batch.ids,
        attention_mask=bias[:, None].to(dtype),
        position_ids=batch.positions,
        mm_encoder_outputs=_joined(tokens).encoder_outputs(),
        use_cache=False,
    ).last_hidden_state
    picked = [
        row[n - len(a) - 1 : n - 1] for row, n, a in zip(hidden, batch.lengths.tolist(), answers)
    ]
    return host.model.lm_head(torch.cat(picked)).float()


def answer_ids(host: ARRCOCQwen, answer: str) -> list[int]:
    """An answer's token ids with the end token that the base's generation stops at."""
    ends = host.model.generation_config.eos_token_id
    end = ends[0] if isinstance(ends, list) else ends
    if end is None:
        end = host.tokenizer.eos_token_id
    return [*host.tokenizer(answer, add_special_tokens=False).input_ids, end]


def _joined(tokens: Sequence[TokenSet]) -> TokenSet:
    planes = zip(*(t.deepstack for t in tokens))
    return TokenSet(
        torch.cat([t.features for t in tokens]),
        tuple(torch.cat(plane) for plane in planes),
        torch.cat([t.places for t in tokens]),
    )


@dataclass
class Group:
    """B questions about P pictures of one grid, with what the frozen base and texture say of them."""

    samples: list[Sample]  # P
    questions: list[TrainingQuestion]  # B
    picture_of: list[int]  # B, index of each question's picture
    pictures: list[Picture]  # P
    full_tokens: list[TokenSet]  # P, the full encoder's
    glance_tokens: list[TokenSet]  # P, the low-resolution pass's
    prompts: list[Prompt]  # B
    answers: list[list[int]]  # B, token ids with the end token
    glances: Readings  # B
    textures: Tensor  # (B, 13, h, w)
    propositional: Tensor  # (B, h, w)
    embedding: Tensor  # (B, D)
    evidence: Tensor  # (B, N) in [0, 1] from boxes, or else attention
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
def gather(host: ARRCOCQwen, samples: list[Sample]) -> Group:
    """Run the frozen passes for samples whose pictures have one size."""
    pictures = [host.picture(s.image) for s in samples]
    grid = pictures[0].grid
    picture_of = [p for p, sample in enumerate(samples) for _ in sample.questions]
    questions = [question for sample in samples for question in sample.questions]
    prompts = [host.prompt(pictures[p], q.text) for p, q in zip(picture_of, questions)]
    full_tokens, glance_tokens = encode_full(host, pictures), glance_pictures(host, pictures)
    glance_grid = _grid_of(glance_tokens[0])
    glances = readings(host, prompts, [glance_tokens[p] for p in picture_of], glance_grid)
    covered = [
        evidence(q.boxes, samples[p].image.size, grid) for p, q in zip(picture_of, questions)
    ]
    wanted = torch.stack(covered).flatten(1).to(host.device)  # (B, N)
    # A scene has boxes wherever there is a place to look at.
    unboxed = [not q.boxes and q.kind not in KINDS for q in questions]
    # Where nobody drew boxes, the base's own attention at full resolution says where to look.
    if rows := [row for row, unknown in enumerate(unboxed) if unknown]:
        tokens = [full_tokens[picture_of[row]] for row in rows]
        full = readings(host, [prompts[row] for row in rows], tokens, grid)
        wanted[rows] = full.attention.flatten(1).to(wanted)
    pixels = torch.cat([p.pixels() for p in pictures])
    return Group(
        samples=samples,
        questions=questions,
        picture_of=picture_of,
        pictures=pictures,
        full_tokens=full_tokens,
        glance_tokens=glance_tokens,
        prompts=prompts,
        answers=[answer_ids(host, q.answer) for q in questions],
        glances=glances,
        textures=texture(pixels, grid)[picture_of],
        propositional=knowing.propositional(pixels, grid)[picture_of],
        embedding=torch.cat([host.embed(q.question) for q in questions]),
        evidence=wanted,
        unboxed=unboxed,
    )


def _grid_of(tokens: TokenSet) -> tuple[int, int]:
    """`(rows, columns)` of tokens that stand on a regular grid."""
    rows = len(tokens.places[:, 0].unique())
    return rows, len(tokens) // rows
