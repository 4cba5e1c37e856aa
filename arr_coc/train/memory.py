"""Memory: what one training step takes at the shapes of Qwen3-VL-2B, by visual tokens and batch.

    python -m arr_coc.train.memory --out results/training-memory.json                 # on a CPU: accounted
    python -m arr_coc.train.memory --out results/training-memory.json --device cuda   # on a GPU: measured

Random weights, no download. On a GPU whole steps run, and the allocator's own peak is reported. On a
CPU the two passes that decide the peak run with a few layers: the encoder on the batch's pictures, and
the answers with their way back, a chunk of questions at a time. Every tensor that is alive is counted
after each operation. What a layer and what a question add is taken from differences, for as many as there
are. Not counted there: what a kernel uses inside, the allocator's gaps, and CUDA itself. The last line on
stdout is JSON.
"""

import argparse
import gc
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from arr_coc import provenance
from arr_coc.commands import run_command
from arr_coc.components import PARTS, for_base
from arr_coc.qwen import shapes
from arr_coc.qwen.encoding import TokenSet
from arr_coc.qwen.inputs import raster_places
from arr_coc.qwen.model import ARRCOCQwen
from arr_coc.train.chunks import ROWS, Passes, recomputing
from arr_coc.train.data import Sample, TrainingQuestion
from arr_coc.train.frozen import answer_ids, answer_logits, encode_full
from arr_coc.train.learner import Learner

MODULE = "arr_coc.train.memory"
TOKENS = (256, 1024)
BATCHES = (1, 8)
CHUNKS = (1, ROWS)
DEPTHS = (3, 5)  # text layers that are run on a CPU; the first three take DeepStack planes
VISION_DEPTH = 3  # layers of the encoder that are: without gradients none adds to the peak
SHOWN = 0.6  # share of a picture's tokens that a soft question with the largest budget is shown
SMALLEST = 4096  # bytes of a tensor that is counted
CARDS_GB = (16, 24, 80)
SPARE_GB = 1.5  # of a card: CUDA's own, and gaps of the allocator
GB = 1e9
QUESTION = TrainingQuestion("What is written on the sign beside the door?", "no parking", "all")


@dataclass(frozen=True)
class Case:
    """One step: visual tokens of each picture, pictures with one question each, how the base is asked."""

    tokens: int
    batch: int
    passes: Passes


class Alive(TorchDispatchMode):
    """Counts the bytes of all tensors that operations made and that are still alive.

    `peak` is the most there were after an operation. The weights of `model` are left out: an operation
    makes views of them, too.
    """

    def __init__(self, model: torch.nn.Module | None = None) -> None:
        super().__init__()
        held = [*model.parameters(), *model.buffers()] if model else []
        self.weights = {tensor.untyped_storage()._cdata for tensor in held}
        self.storages: dict[int, tuple[StorageWeakRef, int]] = {}
        self.now, self.peak = 0, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(out):
            if isinstance(tensor, torch.Tensor):
                storage = tensor.untyped_storage()
                if storage.nbytes() >= SMALLEST and storage._cdata not in self.weights:
                    reference = StorageWeakRef(storage)
                    self.storages.setdefault(reference.cdata, (reference, storage.nbytes()))
        self.storages = {k: own for k, own in self.storages.items() if not own[0].expired()}
        self.now = sum(size for _, size in self.storages.values())
        self.peak = max(self.peak, self.now)
        return out


def sample_of(tokens: int, number: int, unit: int) -> Sample:
    """A picture of `tokens` visual tokens, square or nearly so, with one question."""
    rows = int(tokens**0.5)
    size = (tokens // rows * unit, rows * unit)
    noise = np.random.default_rng(number).integers(0, 255, (size[1] // 8, size[0] // 8, 3))
    image = Image.fromarray(noise.astype(np.uint8)).resize(size)
    return Sample(number, image, (QUESTION,))


def shallow_host(name: str, dtype: torch.dtype, text_layers: int) -> ARRCOCQwen:
    """Random weights of the named shapes with so many text layers and few of the encoder's, on the CPU."""
    text, vision = shapes.SHAPES[name]
    few = {"depth": VISION_DEPTH, "deepstack_visual_indexes": list(range(VISION_DEPTH))}
    own = (text | {"num_hidden_layers": text_layers}, vision | few)
    host = shapes.host_of(own, f"random {name}", torch.device("cpu"), dtype)
    host.model.requires_grad_(False)  # as `Learner` has it: what weights would need is not kept
    return host


def answer_bytes(host: ARRCOCQwen, tokens: int, passes: Passes) -> int:
    """The peak of one chunk of answers and its way back, in bytes: every tensor that it made."""
    sample = sample_of(tokens, 0, host.geometry.unit_pixels)
    picture = host.picture(sample.image)
    prompt, places = host.prompt(picture, QUESTION.text), raster_places(picture.grid)
    count = int(SHOWN * picture.tokens)
    vision, dtype = host.model.config.vision_config, host.model.dtype
    planes = [
        torch.zeros(passes.rows, count, vision.out_hidden_size, dtype=dtype, requires_grad=True)
        for _ in range(1 + len(vision.deepstack_visual_indexes))
    ]
    answers = [answer_ids(host, QUESTION.answer)] * passes.rows
    with Alive(host.model) as alive:
        sets = [
            TokenSet(rows[0], tuple(rows[1:]), places[:count])
            for rows in zip(*(plane.unbind(0) for plane in planes))
        ]
        shares = [torch.full((count,), 0.5, requires_grad=True) for _ in sets]
        with recomputing(host, passes.recompute):
            logits = answer_logits(host, [prompt] * len(sets), sets, answers, shares)
            torch.autograd.grad(logits.sum(), [*planes, *shares], allow_unused=True)
    return alive.peak


def encoder_bytes(host: ARRCOCQwen, tokens: int, batch: int) -> tuple[int, int]:
    """The peak of the encoder on `batch` pictures, and what stays of it: their tokens. In bytes."""
    unit = host.geometry.unit_pixels
    pictures = [host.picture(sample_of(tokens, number, unit).image) for number in range(batch)]
    with Alive(host.model) as alive, torch.no_grad():
        kept = encode_full(host, pictures)
        del pictures
    return alive.peak, sum(
        plane.nbytes for each in kept for plane in (each.features, *each.deepstack)
    )


def step_bytes(learner: Learner, case: Case) -> int:
    """On a GPU: the peak of one whole step in bytes, without the weights."""
    unit, device = learner.host.geometry.unit_pixels, learner.host.device
    samples = [sample_of(case.tokens, number, unit) for number in range(case.batch)]
    learner.asking = case.passes
    learner.zero_grad()
    gc.collect()
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    learner(samples)["loss"].backward()
    return torch.cuda.max_memory_allocated(device) - before


def weight_bytes(name: str, dtype: torch.dtype) -> int:
    """Of the whole model in `dtype`, from its shapes."""
    from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration

    text, vision = shapes.SHAPES[name]
    config = Qwen3VLConfig(text_config=text, vision_config=vision, tie_word_embeddings=True)
    with torch.device("meta"):
        model = Qwen3VLForConditionalGeneration(config)
    model.tie_weights()
    return sum(p.numel() for p in model.parameters()) * dtype.itemsize


def measured(
    name: str, device: torch.device, dtype: torch.dtype, cases: Sequence[Case]
) -> list[int]:
    """The peak of each case in bytes, without the weights, for all the layers of the shapes."""
    if device.type == "cuda":
        host = shapes.build_host(name, device, dtype)
        parts = for_base(host.model.config, host.attention_layers, list(PARTS), glances=True)
        learner = Learner(host, parts.to(device))
        return [step_bytes(learner, case) for case in cases]
    layers = shapes.SHAPES[name][0]["num_hidden_layers"]
    answers = _answer_tables(name, dtype, cases, layers)
    host = shallow_host(name, dtype, DEPTHS[0])
    found = []
    for case in cases:
        # One picture's pass, as often as there are pictures: they go through side by side.
        peak, kept = (case.batch * own for own in encoder_bytes(host, case.tokens, 1))
        one, two = answers[case.tokens, case.passes.recompute]
        found.append(int(max(peak, kept + one + (case.passes.rows - 1) * (two - one))))
    return found


def _answer_tables(
    name: str, dtype: torch.dtype, cases: Sequence[Case], layers: int
) -> dict[tuple[int, bool], tuple[float, float]]:
    """By visual tokens and recomputing: the peak of one question's answer and of two, at full depth."""
    wanted = sorted({(case.tokens, case.passes.recompute) for case in cases})
    by_depth = []
    for depth in DEPTHS:
        host = shallow_host(name, dtype, depth)
        by_depth.append(
            {
                (tokens, again): [answer_bytes(host, tokens, Passes(n, again)) for n in (1, 2)]
                for tokens, again in wanted
            }
        )
    few, more = by_depth
    step, beyond = DEPTHS[1] - DEPTHS[0], layers - DEPTHS[0]
    return {
        key: tuple(a + beyond * (b - a) / step for a, b in zip(few[key], more[key]))
        for key in wanted
    }


def row_of(case: Case, activations: int, weights: int) -> dict[str, Any]:
    """One line of the table."""
    total = (activations + weights) / GB
    return {
        "tokens": case.tokens,
        "batch": case.batch,
        "chunk": case.passes.rows,
        "recompute": case.passes.recompute,
        "activations_gb": round(activations / GB, 2),
        "total_gb": round(total, 2),
        "fits_gb": [card for card in CARDS_GB if total + SPARE_GB <= card],
    }


def parser() -> argparse.ArgumentParser:
    """The command line."""
    p = argparse.ArgumentParser(prog=f"python -m {MODULE}", description=__doc__.splitlines()[0])
    p.add_argument("--out", type=Path, required=True, help="json to write")
    p.add_argument("--shapes", choices=list(shapes.SHAPES), default="2b")
    p.add_argument("--tokens", type=int, nargs="+", default=TOKENS, help="of a picture")
    p.add_argument(
        "--batch", type=int, nargs="+", default=BATCHES, help="pictures, a question each"
    )
    p.add_argument("--chunk", type=int, nargs="+", default=CHUNKS, help="questions at a time")
    p.add_argument("--device", default="cpu")
    p.add_argument("--threads", type=int, default=1)
    return p


def main(argv: Sequence[str] | None = None) -> None:
    """Measure every case and write the table."""
    args = parser().parse_args(argv)
    torch.set_num_threads(args.threads)
    device, dtype = torch.device(args.device), torch.bfloat16
    cases = [
        Case(tokens, batch, Passes(chunk, recompute))
        for tokens in args.tokens
        for batch in args.batch
        for chunk in sorted({min(chunk, batch) for chunk in args.chunk})
        for recompute in (False, True)
    ]
    weights = weight_bytes(args.shapes, dtype)
    found = measured(args.shapes, device, dtype, cases)
    is_gpu = device.type == "cuda"
    report = {
        "what": f"memory of a training step at the {args.shapes} shapes in bfloat16",
        **provenance.header(MODULE, provenance.typed(argv), device),
        "how": "the allocator's peak" if is_gpu else f"tensors alive, from {DEPTHS} text layers",
        "weights_gb": round(weights / GB, 2),
        "spare_gb": SPARE_GB,
        "rows": [row_of(case, own, weights) for case, own in zip(cases, found)],
    }
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(report, indent=1) + "\n")
    most = max(row["total_gb"] for row in report["rows"])
    print(json.dumps({"out": str(args.out), "most_gb": most}))


if __name__ == "__main__":
    run_command(MODULE, main)
