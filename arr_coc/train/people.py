"""People: what visitors said of maps, as a prior on the tensions.

A file of lines, one JSON object each, as the page writes it where its owner has turned that on:

    {"question": "How many cups are there?", "makes_sense": true, "tensions": [0.3, 0.6, 0.5]}

`tensions` are those with which the shown map was made: compress, exploit, focus, each in [0, 1]. Other
keys are let be, but for `label`: of several rows with one label the last counts, as somebody changed
their mind. Pictures are not kept, and nothing about who asked.
"""

import json
import math
import re
from collections import defaultdict
from pathlib import Path

import numpy as np

from arr_coc.config import Tensions

KEYS = ("question", "makes_sense", "tensions")
INSIDE = 0.02  # a target keeps this far from 0 and 1, where its cross-entropy has no bound


class People:
    """Tensions that people found sensible, by question."""

    def __init__(self, targets: dict[str, Tensions], asked: dict[str, str]) -> None:
        """`targets` by the question as `normalised`, and as somebody `asked` it."""
        self.targets = targets
        self.questions = [asked[question] for question in sorted(targets)]

    @classmethod
    def read(cls, path: Path) -> "People":
        """The rows of a file, of which those that made sense count, as a mean for each question.

        A question whose maps made no sense to more people than they did is left to its words.

        Raises:
            ValueError: for a line that is no such row, or a file in which no map made sense.
        """
        rows: dict[str | int, tuple[str, bool, tuple[float, ...]]] = {}
        for number, line in enumerate(path.read_text("utf-8-sig").split("\n"), 1):
            if line.strip():
                label, row = _row(line, f"line {number} of {path}")
                rows[label or number] = row
        asked: dict[str, str] = {}
        sensible: dict[str, list[tuple[float, ...]]] = defaultdict(list)
        senseless: dict[str, int] = defaultdict(int)
        for words, makes_sense, tensions in rows.values():
            question = normalised(words)
            asked.setdefault(question, words)
            if makes_sense:
                sensible[question].append(tensions)
            else:
                senseless[question] += 1
        targets = {
            question: Tensions(*np.clip(np.mean(own, 0), INSIDE, 1 - INSIDE).tolist())
            for question, own in sensible.items()
            if len(own) >= senseless[question]
        }
        if not targets:
            raise ValueError(f"{path} has no map that made sense to people, expected at least one")
        return cls(targets, asked)

    def target(self, question: str) -> Tensions | None:
        """What people found sensible for a question in these words; None where nobody said."""
        return self.targets.get(normalised(question))

    def phrase(self, number: int, place: int) -> tuple[str, Tensions]:
        """One of the questions that people judged, for the tensions alone."""
        rng = np.random.default_rng((number, place, 4))
        question = self.questions[rng.integers(len(self.questions))]
        return question, self.targets[normalised(question)]


def normalised(question: str) -> str:
    """A question without case, marks and spare blanks."""
    return " ".join(re.findall(r"\w+", question.lower()))


def _row(line: str, where: str) -> tuple[str, tuple[str, bool, tuple[float, ...]]]:
    """One row's label, "" where it has none; and its question, verdict and tensions."""
    try:
        row = json.loads(line)
    except ValueError as error:
        raise ValueError(f"{where} is no JSON: {error}") from error
    if not isinstance(row, dict) or (missing := [key for key in KEYS if key not in row]):
        lacking = missing if isinstance(row, dict) else list(KEYS)
        raise ValueError(f"{where} lacks {lacking}")
    question, makes_sense, tensions = (row[key] for key in KEYS)
    if not isinstance(makes_sense, bool):
        raise ValueError(f"{where}: makes_sense is {makes_sense!r}, expected true or false")
    right = isinstance(tensions, list) and len(tensions) == 3
    right = right and all(isinstance(t, int | float) and math.isfinite(t) for t in tensions)
    if not right or not all(0 <= t <= 1 for t in tensions):
        raise ValueError(f"{where}: tensions are {tensions!r}, expected three numbers in [0, 1]")
    if not normalised(str(question)):
        raise ValueError(f"{where}: the question is {question!r}, expected words")
    told = (str(question), makes_sense, tuple(float(t) for t in tensions))
    return str(row.get("label") or ""), told
