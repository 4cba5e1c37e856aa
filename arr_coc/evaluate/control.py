"""Control: does the answer need what the boxes hold, and is what they hold enough for it?

The stock model is asked every question that has boxes three times: about the picture as it is, with the
boxes painted black, and with everything but the boxes black. Where black boxes cost nothing, the question
can be answered without looking where its boxes say, and coverage of them means little.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from tqdm import tqdm

from arr_coc.evaluate.questions import Item, Ref, Source
from arr_coc.evaluate.rows import measure_items
from arr_coc.evaluate.settings import Settings
from arr_coc.evaluate.stats import Bootstrap, estimate, wilson
from arr_coc.evaluate.store import FULL
from arr_coc.peers.methods import EVERY
from arr_coc.peers.names import STOCK
from arr_coc.qwen.model import ARRCOCQwen
from arr_coc.sets.asked import Box

FILE = "control.jsonl"
LOOKS = ("whole", "boxes_black", "boxes_alone")


def blackened(image: Image.Image, boxes: Sequence[Box], *, inside: bool) -> Image.Image:
    """The picture with the pixels inside its boxes black, or else with all others black."""
    pixels = np.asarray(image)
    held = np.zeros(pixels.shape[:2], bool)
    for left, top, right, bottom in boxes:
        rows = slice(int(np.floor(top)), int(np.ceil(bottom)))
        held[rows, int(np.floor(left)) : int(np.ceil(right))] = True
    black = held if inside else ~held
    return Image.fromarray(np.where(black[:, :, None], 0, pixels).astype(np.uint8))


def looks_of(item: Item) -> dict[str, Item]:
    """A question with boxes as it is asked, by the name of the look."""
    black = blackened(item.image, item.boxes, inside=True)
    alone = blackened(item.image, item.boxes, inside=False)
    pictures = dict(zip(LOOKS, (item.image, black, alone)))
    return {look: replace(item, image=image) for look, image in pictures.items()}


def write_control(settings: Settings, source: Source, host: ARRCOCQwen) -> None:
    """Ask what is not yet in OUT's `control.jsonl`, and add it there, a block at a time.

    Raises:
        ValueError: where no question has boxes.
    """
    path = settings.out / FILE
    rows = read(settings.out)
    known = {_key(**row) for row in rows}
    # Anew: a line that was left unfinished would swallow the next one.
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = False
    for items in tqdm(_boxed(source), desc="control", unit="block"):
        found = found or bool(items)
        items = [item for item in items if _key(**asdict(item.ref)) not in known]
        rows = _asked(settings, source, host, items)
        with path.open("a") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
    if not found:
        raise ValueError(f"--control needs boxes, and no question of {source.about} has any")


def _key(picture: str, index: int, detail: float = 1.0, **_: Any) -> Ref:
    """What a row is of."""
    return Ref(picture, index, detail)


def _boxed(source: Source) -> Iterator[list[Item]]:
    """The questions with boxes, block by block."""
    for block in source.blocks():
        yield [item for item in source.load(block) if item.boxes]


def _asked(
    settings: Settings, source: Source, host: ARRCOCQwen, items: Sequence[Item]
) -> list[dict[str, Any]]:
    """A row for each of the items: its name and kind, and by look whether the answer is right."""
    looks = [looks_of(item) for item in items]
    right: dict[str, list[float]] = {}
    for look in LOOKS:
        measured = measure_items(
            host, {STOCK: EVERY[STOCK]()}, [each[look] for each in looks],
            [frozenset({FULL})] * len(items), dataset=source.name, scoring=source.scoring,
            batch=settings.batch, max_new_tokens=settings.max_new_tokens,
        )  # fmt: skip
        right[look] = [row["right"] for row in measured]
    return [
        asdict(item.ref) | {"kind": item.kind} | {look: right[look][place] for look in LOOKS}
        for place, item in enumerate(items)
    ]


def read(out: Path) -> list[dict[str, Any]]:
    """The rows so far; a line that a killed run left unfinished is no row."""
    path = out / FILE
    rows = []
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            rows.append(json.loads(line))
        except ValueError:
            continue
    return rows


def summarise_control(rows: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """Accuracy of each look and its difference to the whole picture, with 95 % intervals over pictures.

    `guessed` says of the answers that are right about the whole picture how many remain so with the boxes
    black, in all and by kind.
    """
    if not rows:
        return None
    bootstrap = Bootstrap.of([row["picture"] for row in rows], [""] * len(rows))
    right = {look: np.array([row[look] for row in rows], float) for look in LOOKS}

    def mean(values: np.ndarray) -> dict[str, Any] | None:
        return estimate(bootstrap.means(values, pooled=True)[:, 0])

    minus = {f"{look}_minus_whole": mean(right[look] - right["whole"]) for look in LOOKS[1:]}
    kinds = sorted({row["kind"] for row in rows if "kind" in row})
    guessed = {"all": _guessed(rows)}
    guessed |= {kind: _guessed([row for row in rows if row.get("kind") == kind]) for kind in kinds}
    means = {look: mean(right[look]) for look in LOOKS}
    return {"n": len(rows)} | means | minus | {"guessed": guessed}


def _guessed(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Of `n` answers that are right, in full, about the whole picture, those that need no boxes."""
    right = [row for row in rows if row["whole"] >= 1]
    remain = sum(row["boxes_black"] >= 1 for row in right)
    return {
        "n": len(right),
        "remain": remain,
        "interval": wilson(remain, len(right)) if right else None,
    }
