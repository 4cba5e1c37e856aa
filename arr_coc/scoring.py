"""Scoring: when an answer counts as right; one rule for page, evaluation, training and pretraining.

`score_exact` compares with one true answer, `vqa_accuracy` and `anls` with those of several people.
Plain Python, so that the page can mark an answer before the model is loaded.
"""

import re
from collections.abc import Sequence
from statistics import fmean

ANLS_FLOOR = 0.5  # answers further away than half their length score nothing
VQA_ENOUGH = 3  # people who must agree for a full score

ARTICLES = {"a", "an", "the"}
NUMBER_WORDS = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
]
NUMBERS = {word: str(value) for value, word in enumerate(NUMBER_WORDS)} | {"none": "0"}


def normalise_answer(text: str) -> str:
    """An answer as the VQA evaluation compares it: lower case, digits, no articles or punctuation.

    What is an article alone is kept: a bar may be called "a". Its table of contractions ("dont" to
    "don't") is replaced by dropping apostrophes on both sides. Signs before a digit stay.
    """
    text = re.sub(r"(?<=\d),(?=\d)", "", re.sub("['\u2019]", "", text.lower()))
    text = re.sub(r"\.(?!\d)", "", text)  # points stay before a digit only: ".5"
    text = re.sub(r"[+-](?!\d)|[^\w\s.:$%+-]|_", " ", text)
    words = [NUMBERS.get(word, word) for word in text.split()]
    return " ".join([word for word in words if word not in ARTICLES] or words)


def score_exact(answer: str, truth: str) -> bool:
    """Whether an answer is the truth, spelling aside (`normalise_answer`); nothing is never right."""
    return normalise_answer(answer) == normalise_answer(truth) != ""


def vqa_accuracy(answer: str, truths: Sequence[str]) -> float:
    """VQA accuracy in [0, 1]: min(matches / 3, 1), averaged over leaving out each person once.

    With fewer than four truths nobody can be left out, and any match is right.
    Source: Antol et al., VQA, 2015, and its evaluation code's description.
    """
    return agreement(normalise_answer(answer), [normalise_answer(truth) for truth in truths])


def agreement(given: str, truths: Sequence[str]) -> float:
    """VQA accuracy of an answer that is in order already, as the truths are; nothing is never right."""
    same = [truth == given != "" for truth in truths]
    if len(truths) <= VQA_ENOUGH:
        return float(any(same))
    return fmean(min((sum(same) - own) / VQA_ENOUGH, 1) for own in same)


def anls(answer: str, truths: Sequence[str]) -> float:
    """Average normalised Levenshtein similarity of one answer in [0, 1] (Biten et al., 2019)."""
    return max((_similarity(answer, truth) for truth in truths), default=0.0)


def _similarity(answer: str, truth: str) -> float:
    a, b = (" ".join(text.lower().split()) for text in (answer, truth))
    if not a and not b:
        return 1.0
    distance = _edits(a, b) / max(len(a), len(b))
    return 1 - distance if distance < ANLS_FLOOR else 0.0


def _edits(a: str, b: str) -> int:
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, start=1):
        left = [i]
        for j, y in enumerate(b, start=1):
            left.append(min(row[j] + 1, left[-1] + 1, row[j - 1] + (x != y)))
        row = left
    return row[-1]
