"""Scores: how well a base answers drawn scenes and easy-VQA, and how fast it answers."""

import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from accelerate import Accelerator

from arr_coc.evaluate.stats import wilson
from arr_coc.pretrain.data import Batch, clips_batch, collate, draw_clips
from arr_coc.pretrain.easy_pictures import easy_vqa_pictures, easy_vqa_split
from arr_coc.pretrain.lesson import lesson_of
from arr_coc.pretrain.model import CELL
from arr_coc.pretrain.run import Run
from arr_coc.pretrain.stages import answer_logits, encode_pictures, questions_right
from arr_coc.pretrain.views import View
from arr_coc.qwen.model import ARRCOCQwen
from arr_coc.scenes.hands import HOME
from arr_coc.scenes.moments import CLIP_KINDS
from arr_coc.scenes.questions import Question
from arr_coc.scenes.scene import DEV_SEED, KINDS_OF, WORLDS, make_scene

# Width and height at which scenes drawn at 512 x 512 are shown: all of their 256 visual tokens, about
# a fifth of them (49), and as many as a glance has there (16).
SIZES = {
    "native": (16 * CELL, 16 * CELL),
    "fifth": (7 * CELL, 7 * CELL),
    "glance": (4 * CELL, 4 * CELL),
}
EASY_VQA_SIZE = SIZES["glance"]
CLIP_SIZE, CLIP_GROUPS = (256, 256), 8
LARGE_SIZE = (1024, 1024)  # at which scenes of the large world are drawn and shown


@torch.no_grad()
def evaluate(
    run: Run,
    accelerator: Accelerator,
    *,
    first_seed: int,
    n: int,
    size: tuple[int, int],
    canvas: tuple[int, int] = SIZES["native"],
    world: str = WORLDS[0],
    hand: str = HOME,
    batch: int = 8,
) -> dict:
    """Exact match per kind on `n` questions, scenes drawn on `canvas` and shown at `size`."""

    def answered(kind: str, seeds: range) -> list[bool]:
        drawn = [make_scene(s, size=canvas, kinds=[kind], world=world, hand=hand) for s in seeds]
        asked = [scene for scene in drawn if scene.questions]
        return right_of(run, collate(asked, size)) if asked else []

    run.model.eval()
    with accelerator.autocast():
        kinds = {kind: _scored(answered, kind, first_seed, n, batch) for kind in KINDS_OF[world]}
    return {"size": list(size), "first_seed": first_seed, "kinds": kinds}


def _scored(
    answered: Callable[[str, range], list[bool]], kind: str, first_seed: int, n: int, batch: int
) -> dict:
    """How many of the first `n` answers are right, `batch` seeds after another being asked."""
    right: list[bool] = []
    seed = first_seed
    while len(right) < n:
        right += answered(kind, range(seed, seed + batch))
        seed += batch
    return {"n": n, "right": sum(right[:n]), "interval": wilson(sum(right[:n]), n)}


@torch.no_grad()
def evaluate_clips(
    run: Run,
    accelerator: Accelerator,
    *,
    first_seed: int,
    n: int,
    groups: int = CLIP_GROUPS,
    size: tuple[int, int] = CLIP_SIZE,
    batch: int = 8,
) -> dict:
    """Exact match per kind on `n` questions about drawn clips of `groups` moments, frames of `size`."""

    def answered(kind: str, seeds: range) -> list[bool]:
        view = View(1.0, size, size, "clips", kinds=(kind,), blocks=groups)
        asked = [clip for clip in draw_clips(seeds, view) if clip.questions]
        rng = np.random.default_rng(seeds.stop)
        return right_of(run, clips_batch(rng, asked, view)) if asked else []

    run.model.eval()
    with accelerator.autocast():
        kinds = {kind: _scored(answered, kind, first_seed, n, batch) for kind in CLIP_KINDS}
    return {"size": list(size), "groups": groups, "first_seed": first_seed, "kinds": kinds}


@torch.no_grad()
def evaluate_easy_vqa(
    run: Run,
    accelerator: Accelerator,
    *,
    size: tuple[int, int] = EASY_VQA_SIZE,
    batch: int = 50,
) -> dict:
    """Exact match on the official test split of easy-VQA, pictures enlarged to `size`."""
    run.model.eval()
    right: list[bool] = []
    numbers = sorted(easy_vqa_split("test")[1])
    for start in range(0, len(numbers), batch):
        images, questions = easy_vqa_pictures("test", numbers[start : start + batch], size)
        with accelerator.autocast():
            right += answered_exactly(run, images, questions)
    interval = wilson(sum(right), len(right))
    return {"size": list(size), "n": len(right), "right": sum(right), "interval": interval}


def answered_exactly(
    run: Run, images: torch.Tensor, questions: Sequence[Sequence[Question]]
) -> list[bool]:
    """Whether each question about `images`, `(n, H, W, 3)` uint8, is answered exactly.

    Nothing is generated: one pass is given the true answer and predicts each of its tokens, and its
    end, from those before. Where all of them are the likeliest, greedy decoding gives just this
    answer; where one is not, it departs there. So this agrees with `scoring.score_exact` of a greedy
    answer, save for one that is right in another spelling, which counts as wrong here.
    """
    return right_of(run, Batch(images, {}, questions))


def right_of(run: Run, batch: Batch) -> list[bool]:
    """As `answered_exactly`, of a batch, which may be one of clips."""
    packed = lesson_of(run.packer, batch).packed
    planes = encode_pictures(run, batch.images)
    logits = answer_logits(run, packed.to(run.device), planes, batch.modality)
    tokens_right = logits.argmax(-1).cpu() == packed.labels
    return questions_right(tokens_right, packed.question_of).tolist()


def clock(folder: Path, *, threads: int, n: int = 5, large: bool = False) -> dict:
    """Median wall seconds, on the CPU, of loading a published folder and of one full answer.

    With `large` of one about a picture of `LARGE_SIZE` too.
    """
    loading = []
    for _ in range(n):
        start = time.perf_counter()
        host = ARRCOCQwen.from_pretrained(folder, "", device="cpu")
        loading.append(time.perf_counter() - start)
    seconds = {"load_s": loading, "answer_s": _answering(host, SIZES["native"], n)}
    if large:
        seconds["answer_large_s"] = _answering(host, LARGE_SIZE, n)
    medians = {name: round(statistics.median(all_of), 3) for name, all_of in seconds.items()}
    return medians | {"threads": threads, "n": n}


def _answering(host: ARRCOCQwen, size: tuple[int, int], n: int) -> list[float]:
    """Seconds of `n` full answers about a scene of a size; one before them warms up."""
    picture, seconds = make_scene(DEV_SEED, size=size).image, []
    for _ in range(n + 1):
        start = time.perf_counter()
        host.generate(picture, "what colour is the sign?", use_arr_coc=False)
        seconds.append(time.perf_counter() - start)
    return seconds[1:]
