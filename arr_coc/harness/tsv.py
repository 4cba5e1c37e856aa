"""TSV: a folder of questions as VLMEvalKit reads them: index, image (base64), question, answer, category.

Where rows have `choices`, the columns A, B, ... hold them and the answer is a letter. A picture that comes
again is named by the index of the row that holds it, as VLMEvalKit has it.
"""

import base64
import csv
import io
import string
from collections.abc import Sequence
from pathlib import Path

from PIL import Image

from arr_coc.evaluate.vqa import Folder, Listed

COLUMNS = ("index", "image", "question", "answer", "category")


def write_tsv(source: Folder, out: Path) -> int:
    """Write the file; returns the number of its rows.

    Raises:
        ValueError: for choices of which none is the answer, more than the alphabet has, or none in a row
            where others have some.
    """
    choices = [choices_of(source, one) for one in source.listed]
    most = max(map(len, choices))
    if most and not all(choices):
        raise ValueError(f"question {choices.index(())} has no choices, others have some")
    if most > len(string.ascii_uppercase):
        raise ValueError(
            f"a question has {most} choices, allowed are {len(string.ascii_uppercase)}"
        )
    letters = string.ascii_uppercase[:most]
    holders: dict[str, int] = {}
    out.parent.mkdir(parents=True, exist_ok=True)
    with out.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file, delimiter="\t", lineterminator="\n")
        rows.writerow((*COLUMNS, *letters))
        for index, (one, own) in enumerate(zip(source.listed, choices)):
            if one.key in holders:
                held = str(holders[one.key])
            else:
                holders[one.key] = index
                held = encoded(source.rows.picture(one.row, one.asked.page))
            answer = letter_of(one, own) if own else one.asked.answers[0]
            row = (index, held, one.asked.question, answer, one.asked.kind)
            rows.writerow((*row, *own, *[""] * (most - len(own))))
    return len(source.listed)


def choices_of(source: Folder, one: Listed) -> tuple[str, ...]:
    """The choices of a question; empty where its row has none."""
    return tuple(map(str, source.rows.texts[one.row].get("choices") or ()))


def letter_of(one: Listed, choices: Sequence[str]) -> str:
    """The letter of the choice that is an answer."""
    for letter, choice in zip(string.ascii_uppercase, choices):
        if choice in one.asked.answers:
            return letter
    raise ValueError(
        f"the answers {list(one.asked.answers)} are none of the choices {list(choices)} of "
        f"{one.asked.question!r}"
    )


def encoded(image: Image.Image) -> str:
    """A picture as base64 of a PNG."""
    held = io.BytesIO()
    image.save(held, "PNG")
    return base64.b64encode(held.getvalue()).decode("ascii")
