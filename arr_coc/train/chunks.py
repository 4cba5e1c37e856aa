"""Chunks: the answers' losses and their gradients, a few questions at a time.

What the frozen language model keeps for a backward pass is most of a step's memory. Here every chunk of
questions goes back as soon as it went forward, as far as the visual tokens and shares that it was shown,
and its activations are gone before the next one comes. Each question's loss depends on its own tokens
alone, so the gradients that were found are scaled by whatever comes back later, and go on to the parts.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from arr_coc.qwen.encoding import TokenSet
from arr_coc.qwen.model import ARRCOCQwen

ROWS = 8  # questions that go through the base together with their answers


@dataclass(frozen=True)
class Passes:
    """How the base is asked in training.

    Attributes:
        rows: questions that go through it together, and back.
        recompute: whether each of its layers keeps only what it was given, and is run again on the way
            back (gradient checkpointing): less memory, and about a third more time.
    """

    rows: int = ROWS
    recompute: bool = False


# Tokens and shares of some questions, by their places in the whole -> a loss each, `(len(places),)`.
Losses = Callable[[Sequence[int], Sequence[TokenSet], Sequence[Tensor | None]], Tensor]


def chunked(
    host: ARRCOCQwen,
    passes: Passes,
    losses: Losses,
    tokens: Sequence[TokenSet],
    shares: Sequence[Tensor | None],
) -> Tensor:
    """`(R,)` losses of R questions, chunk by chunk.

    Args:
        host: the frozen base.
        passes: the size of a chunk.
        losses: of some of the questions.
        tokens: the visual tokens of each question.
        shares: by which each token is there, None for 1 everywhere.
    """
    by_place: dict[int, Tensor] = {}
    for places in by_length(tokens, passes.rows):
        own = [tokens[place] for place in places]
        found = _chunk(host, passes, losses, places, own, [shares[place] for place in places])
        by_place |= dict(zip(places, found))
    return torch.stack([by_place[place] for place in range(len(tokens))])


def by_length(tokens: Sequence[TokenSet], rows: int) -> Iterator[list[int]]:
    """Places of token sets, `rows` at a time; those of like length together, so that few are padded."""
    order = sorted(range(len(tokens)), key=lambda place: len(tokens[place]))
    for start in range(0, len(order), rows):
        yield order[start : start + rows]


def _chunk(
    host: ARRCOCQwen,
    passes: Passes,
    losses: Losses,
    places: Sequence[int],
    tokens: Sequence[TokenSet],
    shares: Sequence[Tensor | None],
) -> Tensor:
    """The losses of one chunk, whose backward pass is done already where there is to be one."""
    given = [[each.features, *each.deepstack, share] for each, share in zip(tokens, shares)]
    flat = [
        (row, slot, tensor)
        for row, slots in enumerate(given)
        for slot, tensor in enumerate(slots)
        if tensor is not None and tensor.requires_grad
    ]
    if not torch.is_grad_enabled() or not flat:
        return losses(places, tokens, shares)

    def run(leaves: Sequence[Tensor]) -> Tensor:
        slots_of = [list(slots) for slots in given]
        for (row, slot, _), leaf in zip(flat, leaves):
            slots_of[row][slot] = leaf
        own = [
            TokenSet(slots[0], tuple(slots[1:-1]), each.places)
            for slots, each in zip(slots_of, tokens)
        ]
        with recomputing(host, passes.recompute):
            return losses(places, own, [slots[-1] for slots in slots_of])

    return _Backward.apply(run, [row for row, _, _ in flat], *(tensor for *_, tensor in flat))


class _Backward(torch.autograd.Function):
    """Losses of a chunk, forward and back in one go; the gradients wait for those of the losses."""

    @staticmethod
    def forward(
        ctx: Any, run: Callable[[Sequence[Tensor]], Tensor], rows: list[int], *tensors: Tensor
    ) -> Tensor:
        leaves = [tensor.detach().requires_grad_() for tensor in tensors]
        with torch.enable_grad():
            losses = run(leaves)
            found = torch.autograd.grad(losses.sum(), leaves, allow_unused=True)
        ctx.rows = rows
        ctx.save_for_backward(
            *(torch.zeros_like(leaf) if g is None else g for leaf, g in zip(leaves, found))
        )
        return losses.detach()

    @staticmethod
    def backward(ctx: Any, of_losses: Tensor) -> tuple[Any, ...]:
        scaled = (
            (grad * of_losses[row]).to(grad.dtype) for row, grad in zip(ctx.rows, ctx.saved_tensors)
        )
        return None, None, *scaled


@contextmanager
def recomputing(host: ARRCOCQwen, wanted: bool) -> Iterator[None]:
    """The language model with gradient checkpointing, for one pass; nothing where it is not wanted.

    It stands in training mode meanwhile, without which transformers does not checkpoint: Qwen3-VL has
    no dropout, so it computes the same.
    """
    text = host.model.model.language_model
    if not wanted:
        yield
        return
    if text.config.attention_dropout:
        raise ValueError(
            f"the base has attention dropout {text.config.attention_dropout}; gradient checkpointing "
            "needs one without"
        )
    text.gradient_checkpointing_enable({"use_reentrant": False})
    text.train()
    try:
        yield
    finally:
        text.eval()
        text.gradient_checkpointing_disable()
