"""Prompts: the chat around blocks of visual tokens, in ids and native positions.

A picture is one block. A clip has one for each of its moments, after the time at which it was; several
pictures have one each. Every block counts rows and columns from a position of its own, as the stock
model's `get_rope_index` has it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from arr_coc.qwen import checks

# The stock model's name of what a block shows, and its number among `mm_token_type_ids`.
IMAGE, VIDEO = "image", "video"
TYPES = {IMAGE: 1, VIDEO: 2}
Grid = tuple[int, int]


@dataclass(frozen=True)
class Prompt:
    """A chat prompt with blocks of visual tokens, and native M-RoPE positions.

    Attributes:
        texts: `(1, L)` ids before, between and after the blocks, one more than there are of these; the
            marks of a block's start and end belong to them.
        grids: `(h, w)` native visual tokens of each block.
        positions: `(3, 1, L)` int64 native positions of the stock model, N placeholders in each block.
        image_token: id of the visual placeholder, an image's or a video's.
        modality: which of these.
    """

    texts: tuple[Tensor, ...]
    grids: tuple[Grid, ...]
    positions: Tensor
    image_token: int
    modality: str = IMAGE

    @property
    def prefix(self) -> Tensor:
        """`(1, A)` ids before the first visual token, `<|vision_start|>` included."""
        return self.texts[0]

    @property
    def suffix(self) -> Tensor:
        """`(1, Z)` ids after the last one, from `<|vision_end|>` on."""
        return self.texts[-1]

    @property
    def sizes(self) -> list[int]:
        """N, the native visual tokens of each block."""
        return [h * w for h, w in self.grids]

    @property
    def origins(self) -> list[int]:
        """Position of each block's first token, from which its rows and columns count."""
        return [int(self.positions[0, 0, start]) for start in self.starts(self.sizes)]

    def starts(self, counts: int | Sequence[int]) -> list[int]:
        """Column of the first of each block's visual tokens, with so many of them."""
        starts, column = [], 0
        for text, count in zip(self.texts, self._each(counts)):
            column += text.shape[1]
            starts.append(column)
            column += count
        return starts

    def ids(self, counts: int | Sequence[int]) -> Tensor:
        """`(1, L)` ids with so many placeholders in each block; a number where there is one block."""
        parts = [self.texts[0]]
        for text, count in zip(self.texts[1:], self._each(counts)):
            parts += [text.new_full((1, count), self.image_token), text]
        return torch.cat(parts, 1)

    def position_ids(self, places: Tensor | Sequence[Tensor]) -> Tensor:
        """`(4, 1, L)` for the visual tokens at `places`, `(K, 2)` in native tokens for each block.

        A contiguous text row on top of the native positions of what is kept. int64 where every place
        is whole, so that the stock values are met; float32 otherwise (bfloat16 cannot hold 257.5).
        """
        places = [places] if isinstance(places, Tensor) else list(places)
        self._each([len(own) for own in places])
        # M-RoPE counts time, row and column from a block's first token; a block has one time. The
        # rotary embedding computes in float32, so a coarse cell may stand between two rows.
        blocks = [_standing(own, origin) for own, origin in zip(places, self.origins)]
        if all(bool((block == block.round()).all()) for block in blocks):
            blocks = [block.long() for block in blocks]
        kept, column, dtype = [], 0, blocks[0].dtype
        for text, block, size in zip(self.texts, [*blocks, None], [*self.sizes, 0]):
            # What stands around a block keeps its native positions, however few of its tokens are left.
            end = column + text.shape[1]
            kept += [
                self.positions[:, :, column:end].to(dtype),
                *([] if block is None else [block]),
            ]
            column = end + size
        at = torch.cat(kept, 2)
        # The fourth row is for masks alone: gaps in it would be read as packed sequences.
        row = torch.arange(at.shape[2], device=at.device, dtype=at.dtype)
        return torch.cat([row[None, None], at], 0)

    def _each(self, counts: int | Sequence[int]) -> list[int]:
        counts = [counts] if isinstance(counts, int) else list(counts)
        if len(counts) != len(self.grids):
            raise ValueError(
                f"{len(counts)} blocks of visual tokens for a prompt with {len(self.grids)}"
            )
        return counts


def _standing(places: Tensor, origin: int) -> Tensor:
    """`(K, 2)` rows and columns -> `(3, 1, K)` positions of a block that begins at `origin`."""
    spatial = places.t() + origin  # (2, K)
    return torch.cat([torch.full_like(spatial[:1], origin), spatial])[:, None]


class Chat:
    """Writes prompts with a checkpoint's own tokenizer and chat template."""

    def __init__(self, model: Any, tokenizer: Any) -> None:
        self.model, self.tokenizer = model, tokenizer
        config = model.config
        self.tokens = {IMAGE: config.image_token_id, VIDEO: config.video_token_id}
        self.borders = config.vision_start_token_id, config.vision_end_token_id

    def ids(self, text: str) -> Tensor:
        """`(1, L)` token ids of a text, without special tokens around it."""
        ids = self.tokenizer(text, add_special_tokens=False, return_tensors="pt").input_ids
        return ids.to(self.model.device)

    def about_pictures(self, grids: Sequence[Grid], question: str) -> Prompt:
        """The prompt around pictures of so many rows and columns of visual tokens, in their order."""
        parts = self._asked(IMAGE, len(grids), question)
        return self._prompt(parts, grids, IMAGE)

    def about_clip(self, grid: Grid, times: Sequence[float], question: str) -> Prompt:
        """The prompt around the moments of a clip, each after the seconds at which it was.

        As the stock processor writes it, which keeps the template's own marks around the whole clip.

        Raises:
            ValueError: where the checkpoint has no token or no template for clips.
        """
        checks.clip(self.tokenizer, self.tokens[VIDEO])
        before, after = self._asked(VIDEO, 1, question)
        start, end = self.tokenizer.convert_ids_to_tokens(list(self.borders))
        stamps = [f"<{seconds:.1f} seconds>{start}" for seconds in times]
        parts = [before + stamps[0], *(end + stamp for stamp in stamps[1:]), end + after]
        return self._prompt(parts, [grid] * len(times), VIDEO)

    def _asked(self, modality: str, count: int, question: str) -> list[str]:
        """The template's text before, between and after the placeholders."""
        content = [*({"type": modality} for _ in range(count)), {"type": "text", "text": question}]
        text = self.tokenizer.apply_chat_template(
            [{"role": "user", "content": content}], tokenize=False, add_generation_prompt=True
        )
        pad = self.tokenizer.decode([self.tokens[modality]])
        parts = text.split(pad)
        if len(parts) != count + 1:
            raise ValueError(
                f"the prompt holds {pad!r} {len(parts) - 1} times, expected {count}, once for each "
                "picture: it stands for one, and may not stand in the question"
            )
        return parts

    def _prompt(self, parts: Sequence[str], grids: Sequence[Grid], modality: str) -> Prompt:
        texts, token = tuple(self.ids(part) for part in parts), self.tokens[modality]
        unplaced = Prompt(texts, tuple(grids), texts[0].new_zeros(3, 1, 0), token, modality)
        ids = unplaced.ids(unplaced.sizes)
        merge = self.model.config.vision_config.spatial_merge_size
        rows = [[1, h * merge, w * merge] for h, w in grids]
        # The stock model takes a clip as one row of grids, and the pictures as one each.
        if modality == VIDEO:
            rows = [[len(rows), *rows[0][1:]]]
        positions, _ = self.model.model.get_rope_index(
            ids,
            (ids == token).int() * TYPES[modality],
            **{f"{modality}_grid_thw": torch.tensor(rows, device=ids.device)},
        )
        return Prompt(texts, tuple(grids), positions, token, modality)
