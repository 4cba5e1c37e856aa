"""What can be guessed from a scene's question without its picture.

    python -m arr_coc.evaluate.question_only --out results/question-only.json

Two guessers learn from scenes and are scored on others: the most frequent answer of the kind, and
naive Bayes over the question's words. Where the second gains nothing over the first, the question
gives nothing away. Where a question names what to choose from, a third one takes any of it, and the
second has to gain over that one as well. The last stdout line is JSON.
"""

import argparse
import json
import math
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from arr_coc import provenance
from arr_coc.evaluate.stats import wilson
from arr_coc.scenes.richer import CHOICE_KINDS
from arr_coc.scenes.scene import DEV_SEED, KINDS_OF, WORLDS, make_scene

LEARNED_BEFORE = (
    50_000_000  # seeds between the first scene that is learned from and the first scored on
)
LEARNED_PER_SCORED = 2
_NOT_OFFERED = ("two",)  # "which of the two is larger, the cat or the dog"

Answered = tuple[str, str]  # a question's words, normalised, and its answer


@dataclass(frozen=True)
class Settings:
    """What one run of the command does.

    Attributes:
        out: JSON to write.
        n: questions per kind to be scored on.
        seed: first seed scored on.
        world: one of `scene.WORLDS`.
        words: the arguments as typed.
    """

    out: Path
    n: int
    seed: int
    world: str
    words: tuple[str, ...]


class Bayes:
    """Naive Bayes: the answer whose questions used these words most often."""

    def __init__(self, questions: Sequence[Answered]) -> None:
        self.answers = Counter(answer for _, answer in questions)
        self.words: dict[str, Counter[str]] = defaultdict(Counter)
        for text, answer in questions:
            self.words[answer].update(set(text.split()))

    def __call__(self, text: str) -> str:
        """The likeliest answer to a question; ties go to the more frequent, then the earlier seen."""
        return max(
            self.answers, key=lambda answer: (self._score(answer, text), self.answers[answer])
        )

    def _score(self, answer: str, text: str) -> float:
        """Logarithm of the answer's probability, but for a constant."""
        count, total = self.answers[answer], self.answers.total()
        # Counted as if one question in two more held each word, so that an unseen word forbids nothing.
        words = dict.fromkeys(text.split())  # in their order: a sum of floats depends on it
        likelihoods = (math.log((self.words[answer][w] + 1) / (count + 2)) for w in words)
        return math.log(count / total) + sum(likelihoods)


def questions_of(kind: str, first_seed: int, n: int, world: str = WORLDS[0]) -> list[Answered]:
    """`n` questions of a kind with their answers, from scenes of a world from `first_seed` on."""
    questions: list[Answered] = []
    while len(questions) < n:
        scene = make_scene(first_seed, kinds=[kind], world=world)
        questions += [(normalised(q.text), q.answer) for q in scene.questions]
        first_seed += 1
    return questions[:n]


def normalised(text: str) -> str:
    """A question in lower case without its mark."""
    return " ".join(text.lower().rstrip("?.").split())


def offered(text: str) -> list[str]:
    """The things that a question, as `normalised` gives it, names to choose from."""
    return [name for name in re.findall(r"\bthe (\w+)", text) if name not in _NOT_OFFERED]


def guess(kind: str, learn: Iterable[Answered], test: Sequence[Answered]) -> dict[str, Any]:
    """How often the guessers are right on `test` after `learn`, with 95 % intervals.

    `offered`, for `CHOICE_KINDS` alone, is how often one of the things named is right by chance.
    """
    bayes = Bayes(list(learn))
    frequent = bayes.answers.most_common(1)[0][0]
    right = {
        "majority": sum(answer == frequent for _, answer in test),
        "question_only": sum(bayes(text) == answer for text, answer in test),
    }
    if kind in CHOICE_KINDS:
        right["offered"] = round(sum(1 / len(offered(text)) for text, _ in test))
    shares = {
        name: {"value": round(k / len(test), 4), "interval": wilson(k, len(test))}
        for name, k in right.items()
    }
    blind = max(right["majority"], right.get("offered", 0))
    gain = (right["question_only"] - blind) / len(test)
    return {"kind": kind, "n": len(test), **shares, "gain": round(gain, 4)}


def parse(argv: Sequence[str] | None) -> Settings:
    """The settings that the arguments of `main`, or of the process, name."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="json to write")
    parser.add_argument("--n", type=int, default=600, help="questions per kind to be scored on")
    parser.add_argument("--seed", type=int, default=DEV_SEED, help="first seed scored on")
    parser.add_argument("--world", choices=WORLDS, default=WORLDS[0], help="default %(default)s")
    return Settings(**vars(parser.parse_args(argv)), words=tuple(provenance.typed(argv)))


def main(argv: Sequence[str] | None = None) -> None:
    settings, rows = parse(argv), []
    learned_on = LEARNED_PER_SCORED * settings.n
    for kind in KINDS_OF[settings.world]:
        learn = questions_of(kind, settings.seed - LEARNED_BEFORE, learned_on, settings.world)
        test = questions_of(kind, settings.seed, settings.n, settings.world)
        rows.append(guess(kind, learn, test))
        print(f"{kind}: gain {rows[-1]['gain']:+.3f}", file=sys.stderr, flush=True)
    report = {
        "what": "what the question alone gives away, without the picture",
        **provenance.header("arr_coc.evaluate.question_only", settings.words, torch.device("cpu")),
        "seed": settings.seed,
        "world": settings.world,
        "learned_on": learned_on,
        "kinds": rows,
    }
    settings.out.parent.mkdir(parents=True, exist_ok=True)
    settings.out.write_text(json.dumps(report, indent=1) + "\n")
    largest = max(row["gain"] for row in rows)
    print(json.dumps({"out": str(settings.out), "largest_gain": largest}))


if __name__ == "__main__":
    main()
