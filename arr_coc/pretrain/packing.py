"""Packing: all questions about a picture in one sequence, so that the picture is computed once.

Every question sees the picture and itself, at the positions it would have alone: the packed pass
gives each question the logits of the single-question chat (a test holds this). Several pictures, or the
moments of a clip, stand before the questions as one picture does.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from transformers import PreTrainedTokenizerFast

from arr_coc.pretrain.packed_attention import Layout, layout_of
from arr_coc.scenes.questions import Question

# Texts whose ids are remembered, some tens of megabytes: the small world asks fewer different ones, the
# large one never stops asking new ones.
MOST_KNOWN = 40_000


class Packed(NamedTuple):
    """Several questions per picture in one sequence of length L.

    `input_ids` (B, L); `position_ids` (3, B, L); `layout`: which tokens see each other; `rows`,
    `columns`, `labels` (A,): predict `labels[a]` at `[rows[a], columns[a]]`; `question_of` (A,): running
    number of the question that label a belongs to.
    """

    input_ids: torch.Tensor
    position_ids: torch.Tensor
    layout: Layout
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
        ids = tokenizer.convert_tokens_to_ids
        self.pads = {"image": ids("<|image_pad|>"), "video": ids("<|video_pad|>")}

    def ids(self, text: str) -> list[int]:
        """Token ids of a piece of the chat."""
        if text not in self.known:
            if len(self.known) >= MOST_KNOWN:
                self.known.clear()
            self.known[text] = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return self.known[text]

    def pack(
        self,
        questions: Sequence[Sequence[Question]],
        h: int,
        w: int,
        *,
        blocks: int = 1,
        seconds: Sequence[float] | None = None,
    ) -> Packed:
        """Pack per picture the questions about it, with the true answers.

        Args:
            questions: for each of B pictures, those about it; one at least in all.
            h: rows of visual tokens of every picture.
            w: columns.
            blocks: how many pictures, or moments of a clip, stand before the questions.
            seconds: of each moment of a clip; None where they are pictures.
        """
        prefix, prefix_positions = self._prefix(h, w, blocks, seconds)
        first = int(prefix_positions[0, -1]) + 1  # position of the first token after the prefix
        sequences, targets, count = [], [], 0
        for row, about in enumerate(questions):
            ids, lengths, positions = list(prefix), [], []
            for question in about:
                prompt = self.ids(prompt_of(question))
                answer = self.ids(f"{question.answer}<|im_end|>")
                # A token's logits predict the next one: the first of the answer is predicted at
                # the last of the prompt.
                start = len(ids) + len(prompt) - 1
                targets += [(row, start + i, token, count) for i, token in enumerate(answer)]
                length = len(prompt) + len(answer)
                ids += prompt + answer
                lengths.append(length)
                # Every question starts where it would start as the only one, whatever stands before
                # it in the sequence.
                positions += range(first, first + length)
                count += 1
            sequences.append((ids, lengths, positions))
        rows, columns, labels, question_of = torch.tensor(targets).unbind(1)
        padded = self._pad(sequences, prefix_positions)
        return Packed(*padded, rows, columns, labels, question_of)

    def _prefix(
        self, h: int, w: int, blocks: int, seconds: Sequence[float] | None
    ) -> tuple[list[int], torch.Tensor]:
        """Ids of what stands before the questions, and its M-RoPE positions (time, row, column), `(3, P)`.

        Text counts up alike in all three. A block's start where the text before it ended and add each
        token's row and column, at one time; the text goes on after the block's longer side.
        """
        rows, columns = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
        block = torch.stack([torch.zeros_like(rows), rows, columns]).reshape(3, -1)
        pad = self.pads["image" if seconds is None else "video"]
        ids, positions, at = [], [], 0
        texts = texts_around(blocks, seconds)
        for number, text in enumerate(texts):
            written = self.ids(text)
            ids += written
            positions.append(torch.arange(at, at + len(written)).expand(3, -1))
            at += len(written)
            if number < blocks:
                ids += [pad] * (h * w)
                positions.append(block + at)
                at += max(h, w)
        return ids, torch.cat(positions, 1)

    def _pad(
        self, sequences: list[tuple[list[int], list[int], list[int]]], prefix: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, Layout]:
        """Ids, positions and layout of `sequences`, all as long as the longest.

        Each is ids, the lengths of its questions, and the positions of what follows the prefix, whose own
        positions are `prefix`.
        """
        batch, length = len(sequences), max(len(ids) for ids, _, _ in sequences)
        input_ids = torch.full((batch, length), self.pad)
        position_ids = torch.zeros((3, batch, length), dtype=torch.long)
        for row, (ids, _, positions) in enumerate(sequences):
            input_ids[row, : len(ids)] = torch.tensor(ids)
            position_ids[:, row, : prefix.shape[1]] = prefix
            position_ids[:, row, prefix.shape[1] : len(ids)] = torch.tensor(positions)
        layout = layout_of(prefix.shape[1], [lengths for _, lengths, _ in sequences], length)
        return input_ids, position_ids, layout


def prompt_of(question: Question) -> str:
    """What the chat has from the question up to the answer."""
    return f"{question.text}<|im_end|>\n<|im_start|>assistant\n"


def texts_around(blocks: int, seconds: Sequence[float] | None) -> list[str]:
    """What the chat has before, between and after blocks of visual tokens, up to the question.

    As `qwen.prompts` writes it: around a clip the template's own marks, and in it each moment's seconds.
    """
    start, end = "<|vision_start|>", "<|vision_end|>"
    head = f"<|im_start|>user\n{start}"
    if seconds is None:
        return [head, *[end + start] * (blocks - 1), end]
    stamps = [f"<{at:.1f} seconds>{start}" for at in seconds]
    return [head + stamps[0], *(end + stamp for stamp in stamps[1:]), end + end]
