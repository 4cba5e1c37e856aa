"""Token grid: into how many visual tokens a picture is cut before any is dropped, and what that costs.

The choice under Advanced. Tokens and cost are said before anything runs: counted by the processor's
own rule, and timed by the curve that `arr_coc.benchmark` measured. No model runs here.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any

from arr_coc.config import small_grid
from arr_coc.service import intake

AS_IS = 0
OUTSIDE = " This small model never saw so many in training: expect wrong answers."
SIZES = (64, 256, 1024, 4096)  # visual tokens
MOST_ON_CPU = 1024
BENCHMARK = Path(__file__).parent.parent.parent / "results" / "benchmark-2b-cpu.json"
CURVE_CASES = ("stock", "before")  # encoder and prefill alone, at so many tokens


def sizes(model: Any) -> tuple[int, ...]:
    """Those the model's device can do in reasonable time."""
    on_cpu = str(getattr(model, "placed", model.device)).startswith("cpu")
    return tuple(size for size in SIZES if not on_cpu or size <= MOST_ON_CPU)


def choices(model: Any) -> list[tuple[str, int]]:
    """`(label, size)` for the page, larger than the bundled base learned being labelled so."""
    outside = ", outside its training"
    named = [(f"{size:,}{outside * is_outside(model, size)}", size) for size in sizes(model)]
    return [("As it is", AS_IS), *named]


def is_outside(model: Any, size: int | None) -> bool:
    """Whether the small bundled model never saw pictures cut into so many tokens."""
    return model.is_bundled and (size or AS_IS) > largest(model)


def check(size: Any, allowed: tuple[int, ...] = SIZES) -> int | None:
    """The size, or None for as it is; IntakeError for one that is not allowed."""
    if size in (None, AS_IS):
        return None
    if type(size) is not int or size not in allowed:
        wide = ", the largest on a GPU alone" if allowed == SIZES else ""
        raise intake.IntakeError(
            f"A picture cannot be cut into {intake.shown(size)} visual tokens here; allowed are "
            f"{', '.join(f'{size:,}' for size in allowed)}{wide}."
        )
    return size


def largest(model: Any) -> int:
    """Visual tokens of the largest picture that the model takes as it is."""
    pixels = min(model.image_processor.size["longest_edge"], model.max_pixels)
    return pixels // model.geometry.unit_pixels**2


def grid_of(size: tuple[int, int], tokens: int) -> tuple[int, int]:
    """Rows and columns, at most `tokens`, for a picture of `size` (width, height), aspect kept."""
    return small_grid((size[1], size[0]), tokens)


def tokens_of(model: Any, size: tuple[int, int], chosen: int | None) -> int:
    """Visual tokens of a picture of `size` (width, height), about, when cut as chosen."""
    if chosen:
        rows, columns = grid_of(size, chosen)
        return rows * columns
    unit = model.geometry.unit_pixels
    rows, columns = (max(1, round(side / unit)) for side in (size[1], size[0]))
    if rows * columns <= largest(model):
        return rows * columns
    scale = (largest(model) / (size[0] * size[1])) ** 0.5
    return max(1, int(size[1] * scale)) * max(1, int(size[0] * scale))


@cache
def curve(path: Path = BENCHMARK) -> tuple[float, float] | None:
    """`(a, b)` of seconds = a n + b n^2 for n visual tokens, fitted to the benchmark; None without."""
    import numpy as np

    if not path.is_file():
        return None
    rows = [
        (row["budget"], row["encode_s"] + row["prefill_s"])
        for row in json.loads(path.read_text(encoding="utf-8"))["rows"]
        if row["case"] in CURVE_CASES
    ]
    if len({n for n, _ in rows}) < 2:
        return None
    n, spent = np.array(rows, float).T
    terms = np.stack([n, n * n], 1) / spent[:, None]  # relative errors count alike
    a, b = np.linalg.lstsq(terms, np.ones(len(n)), rcond=None)[0]
    return float(a), float(b)


def times(tokens: int, before: int, fitted: tuple[float, float]) -> float:
    """How many times as long a full look at `tokens` takes as one at `before`."""
    a, b = fitted
    return (a * tokens + b * tokens**2) / (a * before + b * before**2)


def cost_words(full: int, kept: int, before: int) -> str:
    """What a choice costs, before it is run: tokens, and the time against the picture as it is."""
    held = f"Full look: about {full:,} visual tokens; focused look: at most {kept:,}."
    fitted = curve()
    if full == before or fitted is None:
        return held
    factor = times(full, before, fitted)
    ratio = f"{factor:.1f} times" if factor < 10 else f"{factor:.0f} times"
    return (
        f"{held} The full look takes about {ratio} as long as with the picture as it is "
        f"({before:,} tokens), by the cost measured on Qwen3-VL-2B's shapes."
    )
