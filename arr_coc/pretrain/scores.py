"""Scores: how well a base answers drawn scenes and easy-VQA, and how fast it answers."""

import statistics
import time
from pathlib import Path

import torch
from accelerate import Accelerator

from arr_coc.evaluate.stats import wilson
from arr_coc.pretrain.data import Packer, collate, easy_vqa_pictures, easy_vqa_split
from arr_coc.pretrain.model import CELL
from arr_coc.pretrain.stages import Run, all_right, answer_logits, look
from arr_coc.qwen.model import ARRCOCQwen
from arr_coc.scenes import questions as scenes_questions
from arr_coc.scenes import scene as scenes_scene

# -------------------------------------------------------------------------------- evaluation


@torch.no_grad()
def evaluate(
    run: Run, accelerator: Accelerator, first_seed: int, n: int, *, size=(512, 512), batch: int = 8
) -> dict:
    """Exact match per kind on `n` questions, scenes drawn at 512 x 512 and shown at `size`."""
    run.model.eval()
    packer, rows = Packer(run.tokenizer), {}
    for kind in scenes_questions.KINDS:
        right: list[bool] = []
        seed = first_seed
        while len(right) < n:
            drawn = [scenes_scene.make_scene(seed + i, kinds=[kind]) for i in range(batch)]
            seed += batch
            if asked := [scene for scene in drawn if scene.questions]:
                images, _, questions = collate(asked, size)
                right += _right(run, packer, images, questions, accelerator)
        rows[kind] = {"n": n, "right": sum(right[:n]), "interval": wilson(sum(right[:n]), n)}
    return {"size": list(size), "first_seed": first_seed, "kinds": rows}


@torch.no_grad()
def evaluate_easy_vqa(run: Run, accelerator: Accelerator, size=(128, 128), batch: int = 50) -> dict:
    """Exact match on the official test split of easy-VQA, pictures enlarged to `size`."""
    run.model.eval()
    packer, right = Packer(run.tokenizer), []
    numbers = sorted(easy_vqa_split("test")[1])
    for start in range(0, len(numbers), batch):
        images, asked = easy_vqa_pictures("test", numbers[start : start + batch], size)
        right += _right(run, packer, images, asked, accelerator)
    score = wilson(sum(right), len(right))
    return {"size": list(size), "n": len(right), "right": sum(right), "interval": score}


def clock(folder: Path, threads: int, n: int = 5) -> dict:
    """Median wall seconds, on the CPU, of loading a published folder and of one full answer."""
    picture = scenes_scene.make_scene(scenes_scene.DEV_SEED).image
    loading, answering = [], []
    for _ in range(n):
        start = time.perf_counter()
        host = ARRCOCQwen.from_pretrained(folder, "", device="cpu")
        loading.append(time.perf_counter() - start)
    for _ in range(n + 1):  # the first one warms up
        start = time.perf_counter()
        host.generate(picture, "what colour is the sign?", use_arr_coc=False)
        answering.append(time.perf_counter() - start)
    medians = statistics.median(loading), statistics.median(answering[1:])
    load, answer = (round(value, 3) for value in medians)
    return {"load_s": load, "answer_s": answer, "threads": threads, "n": n}


def _right(run: Run, packer: Packer, images, questions, accelerator) -> list[bool]:
    """Whether each question is answered exactly."""
    packed = packer.pack(questions, images.shape[1] // CELL, images.shape[2] // CELL)
    device = accelerator.device
    with accelerator.autocast():
        logits = answer_logits(run, packed, look(run, images.to(device)), device)
    ok = logits.argmax(-1).cpu() == packed.labels
    return all_right(ok, packed.question_of).tolist()
