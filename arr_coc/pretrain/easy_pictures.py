"""easy-VQA: its pictures, enlarged, and its questions."""

from collections.abc import Sequence
from functools import cache

import numpy as np
import torch
from PIL import Image

from arr_coc.scenes.questions import Question


@cache
def easy_vqa_split(split: str) -> tuple[dict[int, str], dict[int, list[Question]]]:
    """Picture paths and questions by picture of easy-VQA's "train" or official "test" split."""
    import easy_vqa

    by_picture: dict[int, list[Question]] = {}
    rows = getattr(easy_vqa, f"get_{split}_questions")()
    for text, answer, picture in zip(*rows, strict=True):
        by_picture.setdefault(picture, []).append(Question(text, answer, "easy_vqa"))
    return dict(getattr(easy_vqa, f"get_{split}_image_paths")()), by_picture


def easy_vqa_pictures(
    split: str, numbers: Sequence[int], size: tuple[int, int]
) -> tuple[torch.Tensor, list[list[Question]]]:
    """Pictures `numbers` of a split: `(n, H, W, 3)` uint8 enlarged to `size`, and their questions."""
    paths, by_picture = easy_vqa_split(split)
    pictures = []
    for number in numbers:
        with Image.open(paths[number]) as image:
            pictures.append(np.asarray(image.convert("RGB").resize(size, Image.BICUBIC)))
    return torch.from_numpy(np.stack(pictures)), [by_picture[number] for number in numbers]
