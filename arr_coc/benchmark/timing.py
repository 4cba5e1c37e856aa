"""Timing: every case once a repetition, in turns, each row kept as it comes."""

import json
import os
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from tqdm import tqdm

from arr_coc.benchmark.cases import BY_CONTEXT, QUESTION, Case
from arr_coc.peers.clock import OneEncode, timed
from arr_coc.peers.names import STOCK
from arr_coc.qwen.context import is_installed
from arr_coc.qwen.memory import kv_bytes_per_token, peak_memory, reset_peak_memory
from arr_coc.qwen.model import ARRCOCQwen

WAY = ("dtype", "attention", "threads")  # in which a model runs
STAGES = ("preprocess", "glance", "relevance", "select", "encode", "prefill")
Row = dict[str, Any]


def run_case(host: ARRCOCQwen, case: Case, encodes: OneEncode | None = None) -> Row:
    """From the image or clip to the first word, as a flat row; `overhead_s` is all but encode and prefill.

    Args:
        host: the model.
        case: what is timed.
        encodes: the whole encode that this case shares with others of its size; not of a clip.

    Raises:
        RuntimeError: where ARR-COC fell back, or its encoder takes no context where the case is about one:
            that would be the time of something else.
        ValueError: where the base sees the picture in fewer visual tokens than the case says, or more.
    """
    if case.name == BY_CONTEXT["glance"] and not is_installed(host.model.model.visual):
        name = host.model.config.vision_config._attn_implementation
        raise RuntimeError(f"{case.name}: the encoder's attention, {name!r}, takes no context")
    given = case.given(host.geometry.unit_pixels)
    reset_peak_memory(host.device)
    load = os.getloadavg()[0]
    found = timed(host, case.method, given, QUESTION, QUESTION, lambda _: case.budget, encodes)
    reduced = found.reduced
    if reduced.realization is not None and reduced.realization.fallback:
        raise RuntimeError(f"{case.name} fell back: {reduced.realization.fallback}")
    if case.name == STOCK and reduced.visual_tokens != case.tokens:
        raise ValueError(
            f"a picture of {case.tokens} visual tokens is seen in {reduced.visual_tokens} by this base, "
            "allowed is what its image processor leaves as it is"
        )
    text = sum(own.shape[1] for own in reduced.prompt.texts)
    stages = dict.fromkeys(STAGES, 0.0) | found.stages
    row = {"case": case.name, "image_tokens": case.tokens, "budget": case.budget}
    if case.moments:
        row["moments"] = case.moments
    row |= {f"{name}_s": seconds for name, seconds in stages.items()}
    return row | {
        "time_to_first_token_s": found.seconds,
        "overhead_s": found.seconds - stages["encode"] - stages["prefill"],
        "visual_tokens": reduced.visual_tokens,
        "kv_cache_bytes": kv_bytes_per_token(host.model) * (text + reduced.visual_tokens),
        # Of an encode that another case made this case knows no peak.
        "peak_memory_bytes": None if encodes and encodes.saved else peak_memory(host.device)[0],
        "load_average": load,
    }


def rows_of(kept: Path) -> list[Row]:
    """The rows that an interrupted run left; a last line that it did not finish is none."""
    text = kept.read_text() if kept.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def measure(
    host: ARRCOCQwen, todo: Sequence[Case], repetitions: int, kept: Path, about: Row
) -> list[Row]:
    """All cases, `repetitions` times, in an order that rotates within each size.

    What is compared runs side by side: the cases of one size follow each other in each repetition, and a
    picture is encoded whole once for all of them. Where some are missing there, all are measured.

    Args:
        host: the model.
        todo: the cases.
        repetitions: of each.
        kept: file of the rows there are, one JSON object a line; those are not measured again.
        about: dtype of the model, its attention and threads, and commit of the code, noted in every row.

    Raises:
        ValueError: where those were made in another way: ratios hold within one.
    """
    rows = rows_of(kept)
    for name in WAY:
        if other := sorted({str(row[name]) for row in rows if row.get(name) != about.get(name)}):
            given = f"{kept.name} holds rows in {', '.join(other)}"
            raise ValueError(f"{given}, these would be in {about.get(name)}")
    order = _missing(rows, todo, repetitions)
    again = {(repetition, case.tokens) for repetition, case in order}
    rows = [row for row in rows if (row["repetition"], row["image_tokens"]) not in again]
    kept.write_text("".join(json.dumps(row) + "\n" for row in rows))
    # Stock and the last case once beforehand: what is set up lazily is not timed.
    for case in (todo[0], todo[-1]):
        run_case(host, case)
    now = encodes = None
    with kept.open("a") as file, tqdm(order, desc="benchmark", unit="run") as progress:
        for repetition, case in progress:
            progress.set_postfix_str(f"{case.name}, {case.budget} of {case.tokens}")
            if (repetition, case.tokens) != now:
                now, encodes = (repetition, case.tokens), OneEncode()
            own = run_case(host, case, None if case.moments else encodes)
            row = {"repetition": repetition, **about, **own}
            file.write(json.dumps(row) + "\n")
            file.flush()
            rows.append(row)
    return rows


def _missing(rows: Sequence[Row], todo: Sequence[Case], repetitions: int) -> list[tuple[int, Case]]:
    """Of every size in every repetition the cases, in their order; none where there are rows of all."""
    done = {(row["repetition"], case_of(row)) for row in rows}
    order = []
    for repetition in range(repetitions):
        for _, same in groupby(todo, key=lambda case: case.tokens):
            own = rotated([*same], repetition * 3)
            if any((repetition, case) not in done for case in own):
                order += [(repetition, case) for case in own]
    return order


def case_of(row: Row) -> Case:
    """What a row is of."""
    return Case(row["case"], row["image_tokens"], row["budget"], row.get("moments", 0))


def rotated(todo: Sequence[Case], by: int) -> list[Case]:
    """The cases, beginning elsewhere."""
    start = by % len(todo)
    return [*todo[start:], *todo[:start]]
