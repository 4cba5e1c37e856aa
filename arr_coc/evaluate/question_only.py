"""What can be guessed from a scene's question without its picture.

    python -m arr_coc.evaluate.question_only --out results/question-only.json

Two guessers learn from scenes and are scored on others: the most frequent answer of the kind, and
naive Bayes over the question's words. Where the second gains nothing over the first, the question
gives nothing away.
"""

import argparse
import json
import math
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch

from arr_coc import provenance
from arr_coc.evaluate.stats import wilson
from arr_coc.scenes import questions
from arr_coc.scenes import scene as scenes_scene

Asked = tuple[str, str]  # a question's words, normalised, and its answer


class Bayes:
    """Naive Bayes: the answer whose questions used these words most often."""

    def __init__(self, asked: Sequence[Asked]) -> None:
        self.answers = Counter(answer for _, answer in asked)
        self.words: dict[str, Counter] = defaultdict(Counter)
        for text, answer in asked:
            self.words[answer].update(set(text.split()))

    def __call__(self, text: str) -> str:
        """The likeliest answer to a question; ties go to the more frequent, then the earlier seen."""
        return max(
            self.answers, key=lambda answer: (self._score(answer, text), self.answers[answer])
        )

    def _score(self, answer: str, text: str) -> float:
        seen, total = self.answers[answer], self.answers.total()
        # One question in two more holds each word, so that an unseen word forbids nothing.
        found = (math.log((self.words[answer][w] + 1) / (seen + 2)) for w in set(text.split()))
        return math.log(seen / total) + sum(found)


def asked_of(kind: str, first_seed: int, n: int) -> list[Asked]:
    """`n` questions of a kind with their answers, from scenes of `first_seed` on."""
    found: list[Asked] = []
    while len(found) < n:
        scene = scenes_scene.make_scene(first_seed, kinds=[kind])
        found += [(normalised(q.text), q.answer) for q in scene.questions]
        first_seed += 1
    return found[:n]


def normalised(text: str) -> str:
    """A question in lower case without its mark."""
    return " ".join(text.lower().rstrip("?.").split())


def guess(kind: str, learn: Iterable[Asked], test: Sequence[Asked]) -> dict[str, Any]:
    """How often both guessers are right on `test` after `learn`, with 95 % intervals."""
    bayes = Bayes(list(learn))
    frequent = bayes.answers.most_common(1)[0][0]
    right = {
        "majority": sum(answer == frequent for _, answer in test),
        "question_only": sum(bayes(text) == answer for text, answer in test),
    }
    shares = {
        name: {"value": round(k / len(test), 4), "interval": wilson(k, len(test))}
        for name, k in right.items()
    }
    gain = (right["question_only"] - right["majority"]) / len(test)
    return {"kind": kind, "n": len(test), **shares, "gain": round(gain, 4)}


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="json to write")
    parser.add_argument("--n", type=int, default=600, help="questions per kind to be scored on")
    parser.add_argument(
        "--seed", type=int, default=scenes_scene.DEV_SEED, help="first seed scored on"
    )
    args = parser.parse_args(argv)
    words = provenance.typed(argv)
    rows = []
    for kind in questions.KINDS:
        learn = asked_of(kind, args.seed - 50_000_000, 2 * args.n)
        rows.append(guess(kind, learn, asked_of(kind, args.seed, args.n)))
        print(f"{kind}: gain {rows[-1]['gain']:+.3f}", file=sys.stderr, flush=True)
    found = {
        "what": "what the question alone gives away, without the picture",
        **provenance.header("arr_coc.evaluate.question_only", words, torch.device("cpu")),
        "seed": args.seed,
        "learned_on": 2 * args.n,
        "kinds": rows,
    }
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps({"out": str(args.out), "largest_gain": max(row["gain"] for row in rows)}))


if __name__ == "__main__":
    main()
