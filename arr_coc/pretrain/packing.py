"""Packing: all questions about a picture in one sequence, so that the picture is computed once.

Every question sees the picture and itself, at the positions it would have alone: the packed pass
gives each question the logits of the single-question chat (a test holds this).
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from transformers import PreTrainedTokenizerFast

from arr_coc.scenes.questions import Question

# Texts whose ids are remembered, some tens of megabytes: the small world asks fewer different ones, the
# large one never stops asking new ones.
MOST_KNOWN = 40_000
PREFIX, PADDING = 0, -1  # in place of the number of the question that a token belongs to


class Packed(NamedTuple):
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

    def to(self, device: torch.device) -> "Packed":
        """The same on `device`."""
        return Packed(*(value.to(device) for value in self))


class Packer:
    """Turns lists of questions into `Packed` sequences; remembers what each text encodes to."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast) -> None:
        self.tokenizer = tokenizer
        self.known: dict[str, list[int]] = {}
        self.pad = tokenizer.pad_token_id
        self.image_pad = tokenizer.convert_tokens_to_ids("<|image_pad|>")

    def ids(self, text: str) -> list[int]:
        """Token ids of a piece of the chat."""
        if text not in self.known:
            if len(self.known) >= MOST_KNOWN:
                self.known.clear()
            self.known[text] = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return self.known[text]

    def pack(self, questions: Sequence[Sequence[Question]], h: int, w: int) -> Packed:
        """Pack per picture the questions about it, with the true answers.

        Args:
            questions: for each of B pictures, those about it; one at least in all.
            h: rows of visual tokens of every picture.
            w: columns.
        """
        head = self.ids("<|im_start|>user\n<|vision_start|>")
        prefix = [*head, *[self.image_pad] * (h * w), *self.ids("<|vision_end|>")]
        first = len(head) + max(h, w) + 1  # position of the first token after the prefix
        sequences, targets, count = [], [], 0
        for row, about in enumerate(questions):
            ids, owners, positions = list(prefix), [PREFIX] * len(prefix), []
            for number, question in enumerate(about, start=1):
                prompt = self.ids(f"{question.text}<|im_end|>\n<|im_start|>assistant\n")
                answer = self.ids(f"{question.answer}<|im_end|>")
                # A token's logits predict the next one: the first of the answer is predicted at
                # the last of the prompt.
                start = len(ids) + len(prompt) - 1
                targets += [(row, start + i, token, count) for i, token in enumerate(answer)]
                length = len(prompt) + len(answer)
                ids += prompt + answer
                owners += [number] * length
                # Every question starts where it would start as the only one, whatever stands before
                # it in the sequence.
                positions += range(first, first + length)
                count += 1
            sequences.append((ids, owners, positions))
        rows, columns, labels, question_of = torch.tensor(targets).unbind(1)
        padded = self._pad(sequences, _prefix_positions(len(head), h, w))
        return Packed(*padded, rows, columns, labels, question_of)

    def _pad(
        self, sequences: list[tuple[list[int], list[int], list[int]]], prefix: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Ids, positions and mask of `sequences`, all as long as the longest.

        Each is ids, owners (the question that each token belongs to), and the positions of what
        follows the prefix, whose own positions are `prefix`.
        """
        batch, length = len(sequences), max(len(ids) for ids, _, _ in sequences)
        input_ids = torch.full((batch, length), self.pad)
        owner = torch.full((batch, length), PADDING)
        position_ids = torch.zeros((3, batch, length), dtype=torch.long)
        for row, (ids, owners, positions) in enumerate(sequences):
            input_ids[row, : len(ids)] = torch.tensor(ids)
            owner[row, : len(ids)] = torch.tensor(owners)
            position_ids[:, row, : prefix.shape[1]] = prefix
            position_ids[:, row, prefix.shape[1] : len(ids)] = torch.tensor(positions)
        # A token sees the prefix and the earlier tokens of its own question. Padding sees padding,
        # which keeps every row of the softmax from being empty; nothing is read off there.
        causal = torch.ones(length, length, dtype=torch.bool).tril()
        own = owner[:, None, :] == owner[:, :, None]  # (B, L, L), queries before keys
        mask = causal & (own | (owner == PREFIX)[:, None, :])
        return input_ids, position_ids, mask[:, None]


def _prefix_positions(head: int, h: int, w: int) -> torch.Tensor:
    """M-RoPE positions (time, row, column) of the prefix: `(3, head + h * w + 1)`.

    The `head` text tokens count up alike in all three. The picture's start there and add each
    token's row and column, at one time. The text goes on after the picture's longer side.
    """
    text = torch.arange(head).expand(3, head)
    rows, columns = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
    picture = torch.stack([torch.zeros_like(rows), rows, columns]).reshape(3, -1) + head
    end = torch.full((3, 1), head + max(h, w))
    return torch.cat([text, picture, end], 1)
