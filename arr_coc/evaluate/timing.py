"""Time to first token of every method: measured here, and modelled at the shapes of a 2B model.

Measured at batch 1, nothing shared between methods: preparing the image and the prompt, everything
the method does, and the prefill up to the first token. Methods take turns in a shuffled order, so
that a machine's drift meets all of them; ratios to stock are taken within a question.

Modelled: how many tokens go through how many blocks of the vision tower and the text model is counted
twice: on the same pictures enlarged to the benchmark's size (a glance and the like do not grow with a
picture), and on the pictures as they are, whose tokens are then scaled ("same shares": the operating
point at which the accuracy was measured). That work is priced by the stage times that
`arr_coc.benchmark` took at the shapes of Qwen3-VL-2B. A peer's own arithmetic (similarities, sorting)
is priced at nothing, ARR-COC's maps at what the benchmark saw.
"""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from arr_coc.evaluate.questions import Item
from arr_coc.evaluate.rows import budget_tokens, check_fallback, question_for
from arr_coc.evaluate.stats import LEVELS
from arr_coc.evaluate.store import FULL
from arr_coc.peers.base import Method
from arr_coc.peers.clock import read_first, timed
from arr_coc.peers.methods import METHODS
from arr_coc.qwen.model import ARRCOCQwen

CURVE = Path("results") / "benchmark-2b-cpu.json"
IMAGE_TOKENS = 1024  # of the picture whose stage times stand for every other
RESAMPLES = 1000
LEAST = 6  # of fewer values the range holds the median less often than in 95 % of all cases
COUNTED = 4  # questions on which work is counted: it hardly depends on the question
TEXT_LAYERS = 28  # of Qwen3-VL-2B: a pass through the first K layers costs K of these

Points = tuple[tuple[float, ...], tuple[float, ...]]  # tokens, rising, and seconds


@dataclass
class Work:
    """What went through the model.

    Attributes:
        vision: passes through one block of the vision tower, by the visual tokens in the pass.
        text: passes through one text layer, by all tokens of the sequence.
        vision_depth, text_depth: the blocks and layers that the model has.
    """

    vision: Counter[int]
    text: Counter[int]
    vision_depth: int
    text_depth: int


@contextmanager
def counted(host: ARRCOCQwen) -> Iterator[Work]:
    """Count the work done inside the block, by hooks that are removed afterwards."""
    visual, text = host.model.model.visual, host.model.model.language_model
    patches_per_token = host.geometry.merge**2
    work = Work(Counter(), Counter(), len(visual.blocks), len(text.layers))

    def on_vision(_: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        states = args[0] if args else kwargs["hidden_states"]  # (patches, C)
        work.vision[len(states) // patches_per_token] += 1

    def on_text(_: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        states = args[0] if args else kwargs["hidden_states"]  # (1, L, D)
        work.text[states.shape[1]] += 1

    handles = [b.register_forward_pre_hook(on_vision, with_kwargs=True) for b in visual.blocks]
    handles += [b.register_forward_pre_hook(on_text, with_kwargs=True) for b in text.layers]
    try:
        yield work
    finally:
        for handle in handles:
            handle.remove()


@dataclass(frozen=True)
class CostCurve:
    """Seconds of a model's stages against visual tokens, on an image of `image_tokens`.

    `encode` and `prefill` are linear between their points and beyond them. `relevance` are the seconds
    of ARR-COC's maps, `preprocess` those of the image. `source` says where it was measured.
    """

    image_tokens: int
    encode: Points
    prefill: Points
    relevance: float
    preprocess: float
    source: str

    @classmethod
    def load(cls, path: Path = CURVE, image_tokens: int = IMAGE_TOKENS) -> "CostCurve":
        """Read what `arr_coc.benchmark` wrote of an image of this size; case "before" has no glance.

        Raises:
            ValueError: where it has none of that size.
        """
        report = json.loads(path.read_text())
        cases = [e for e in report["summary"] if e["case"] in ("stock", "before")]
        if image_tokens not in (sizes := {e["image_tokens"] for e in cases}):
            raise ValueError(
                f"{path.name} has no times of an image of {image_tokens} visual tokens, but of "
                f"{', '.join(map(str, sorted(sizes)))}"
            )
        cases = sorted(
            (e for e in cases if e["image_tokens"] == image_tokens), key=lambda e: e["budget"]
        )
        tokens = tuple(e["budget"] for e in cases)

        def seconds(stage: str) -> tuple[float, ...]:
            return tuple(e[f"{stage}_s"]["median"] for e in cases)

        before = [e for e in cases if e["case"] == "before"]
        relevance = float(np.median([e["relevance_s"]["median"] for e in before]))
        preprocess = float(np.median(seconds("preprocess")))
        what = f"{report['what']}, {report['machine']['processor']}, {path.name}"
        encode, prefill = (tokens, seconds("encode")), (tokens, seconds("prefill"))
        return cls(image_tokens, encode, prefill, relevance, preprocess, what)

    def seconds(
        self,
        work: Work,
        native_tokens: int,
        prompt_tokens: int,
        *,
        is_ours: bool = False,
        counts_layers: bool = False,
    ) -> float:
        """Modelled seconds to the first token.

        Args:
            work: that was done on an image.
            native_tokens: of that image; its visual tokens are scaled to this curve's image.
            prompt_tokens: of the text around it, which the curve's prefill already holds.
            is_ours: whether ARR-COC's maps are part of it.
            counts_layers: whether some layers of the text are a number, as in a deeper model; else they are
                a share of the depth, as a glance's are.
        """
        scale = self.image_tokens / native_tokens
        total = self.preprocess + (self.relevance if is_ours else 0.0)
        for tokens, passes in work.vision.items():
            total += _line(self.encode, tokens * scale) * passes / work.vision_depth
        depth = TEXT_LAYERS if counts_layers else work.text_depth
        for tokens, passes in work.text.items():
            visual = max(0, tokens - prompt_tokens) * scale
            whole, layers = divmod(passes, work.text_depth)
            total += _line(self.prefill, visual) * (whole + layers / depth)
        return total


def _line(points: Points, at: float) -> float:
    """Linear between points, on along the outer two beyond them, and never below nothing."""
    x, y = (np.asarray(axis, float) for axis in points)
    i = int(np.clip(np.searchsorted(x, at), 1, len(x) - 1))
    slope = (y[i] - y[i - 1]) / (x[i] - x[i - 1])
    return max(0.0, float(y[i - 1] + slope * (at - x[i - 1])))


def measure_time(
    host: ARRCOCQwen,
    methods: dict[str, Method],
    budgets: Sequence[float],
    items: Sequence[Item],
    curve: CostCurve | None,
    *,
    seed: int = 0,
) -> list[dict[str, Any]]:
    """One row per question, method and budget.

    Stock is measured once a question, whether it is among the methods or not. Work is counted on the
    first `COUNTED` questions, which are the warm-up too; their medians stand in every row.

    Args:
        host: the base with its weights.
        methods: by name.
        budgets: shares of an image's visual tokens.
        items: questions.
        curve: prices of the stages; None models nothing.
        seed: of the order in which methods take turns.

    Returns:
        Rows of `question` (its number), `method`, `budget`, `seconds` to the first token, the seconds of
        each stage as `NAME_s`, and what `_modelled` gives.
    """
    stock = FULL[0]
    pairs = [FULL] + [(name, budget) for name in methods if name != stock for budget in budgets]
    methods = {stock: METHODS[stock](), **methods}
    modelled = {pair: _modelled(host, curve, methods[pair[0]], pair[1], items) for pair in pairs}
    rng, rows = np.random.default_rng(seed), []
    for number, item in enumerate(tqdm(items, desc="time", unit="question")):
        for i in rng.permutation(len(pairs)):
            name, share = pairs[i]
            row = {"question": number, "method": name, "budget": share}
            row |= _timed(host, methods[name], share, item)
            rows.append(row | modelled[pairs[i]])
    return rows


def _timed(host: ARRCOCQwen, method: Method, share: float, item: Item) -> dict[str, float]:
    """One question from the image to the first token, as `ARRCOCQwen.stream` would pay for it."""
    found = timed(
        host,
        method,
        item.image,
        item.text,
        question_for(method, item),
        partial(budget_tokens, share),
    )
    check_fallback(method.name, [found.reduced])
    return {"seconds": found.seconds, **{f"{name}_s": s for name, s in found.stages.items()}}


def _modelled(
    host: ARRCOCQwen,
    curve: CostCurve | None,
    method: Method,
    share: float,
    items: Sequence[Item],
) -> dict[str, float]:
    """Medians over the first items, which are the warm-up too; no seconds without a curve.

    `modelled` and `modelled_same_shares` seconds, and `encoder_share` and `encoder_share_same_shares`:
    visual tokens that went through the encoder, as a share of the picture's own.
    """
    values: dict[str, list[float]] = {}
    for item in items[:COUNTED]:
        ask = host.prepare(item.image, item.text)
        grids = {"_same_shares": ask.picture.grid}
        grids[""] = _enlarged(ask.picture.grid, curve.image_tokens) if curve else ask.picture.grid
        for suffix, grid in grids.items():
            with torch.inference_mode(), counted(host) as work:
                ask = host.prepare(item.image, item.text, grid)
                native_tokens = ask.picture.tokens
                budget = budget_tokens(share, native_tokens)
                reduced = method(host, ask, question_for(method, item), budget)
                read_first(host, reduced)
            encoded = sum(tokens * passes for tokens, passes in work.vision.items())
            encoder_share = encoded / work.vision_depth / native_tokens
            values.setdefault(f"encoder_share{suffix}", []).append(encoder_share)
            if curve is not None:
                words = ask.prompt.prefix.shape[1] + ask.prompt.suffix.shape[1]
                seconds = curve.seconds(
                    work,
                    native_tokens,
                    words,
                    is_ours=method.is_ours,
                    counts_layers=method.counts_layers,
                )
                values.setdefault(f"modelled{suffix}", []).append(seconds)
    return {key: float(np.median(each)) for key, each in values.items()}


def _enlarged(grid: tuple[int, int], tokens: int) -> tuple[int, int]:
    """A grid of about so many tokens and of the same aspect."""
    scale = (tokens / (grid[0] * grid[1])) ** 0.5
    rows, columns = (max(1, round(side * scale)) for side in grid)
    return rows, columns


def summarise_time(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Per method and budget: p50, p95, mean stages, ratio to stock (paired) and modelled seconds."""
    stock = {row["question"]: row for row in rows if row["method"] == FULL[0]}
    groups: dict[tuple[str, float], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["method"], row["budget"]), []).append(row)
    summary = []
    for (name, budget), group in groups.items():
        seconds = np.array([row["seconds"] for row in group])
        ratio = np.array([row["seconds"] / stock[row["question"]]["seconds"] for row in group])
        entry = {
            "method": name,
            "budget": budget,
            "n": len(group),
            "p50_s": round(float(np.percentile(seconds, 50)), 5),
            "p95_s": round(float(np.percentile(seconds, 95)), 5),
            "ratio_to_stock": _median_estimate(ratio),
        }
        stages = sorted({key for row in group for key in row if key.endswith("_s") and row[key]})
        entry["stages_s"] = {
            key.removesuffix("_s"): round(float(np.mean([row.get(key) or 0 for row in group])), 5)
            for key in stages
        }
        for suffix in ("", "_same_shares"):
            if (encoded := group[0].get(f"encoder_share{suffix}")) is not None:
                entry[f"encoder_share{suffix}"] = round(encoded, 4)
            if (modelled := group[0].get(f"modelled{suffix}")) is not None:
                whole = stock[group[0]["question"]][f"modelled{suffix}"]
                entry[f"modelled_2b{suffix}_s"] = round(modelled, 3)
                entry[f"modelled_2b{suffix}_ratio"] = round(modelled / whole, 4)
        summary.append(entry)
    return summary


def _median_estimate(values: np.ndarray) -> dict[str, Any]:
    """The median and its 95 % bootstrap interval over questions; none of few, which it cannot hold."""
    if len(values) < LEAST:
        return {"value": round(float(np.median(values)), 4)}
    rng = np.random.default_rng(0)
    draws = np.median(rng.choice(values, (RESAMPLES, len(values))), axis=1)
    low, high = np.percentile(draws, LEVELS)
    interval = [round(float(low), 4), round(float(high), 4)]
    return {"value": round(float(np.median(values)), 4), "interval": interval}
