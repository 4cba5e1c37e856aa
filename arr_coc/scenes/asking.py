"""How people put a question: plain, in lower case, without its mark, politely, with the instruction
that benchmarks add. The answer stays the same.
"""

from collections.abc import Callable

import numpy as np

INSTRUCTION = "Answer the question using a single word or phrase."
COMMANDS = (
    "count",
    "read",
    "tell",
    "name",
    "find",
    "give",
    "show",
)  # first words that ask no question


def _bare(text: str) -> str:
    """Without its mark."""
    return text.rstrip("?.! ")


def _small(text: str) -> str:
    """With a small first letter, for a place after other words."""
    return text[:1].lower() + text[1:]


def _politely(text: str) -> str:
    """With a please before it: a question after a colon, a command at once."""
    small = _small(text)
    return f"please {small}" if small.split(" ")[0] in COMMANDS else f"please tell me: {small}"


def _please_after(text: str) -> str:
    """With a please behind it, before the mark."""
    mark = text[len(_bare(text)) :]
    return f"{_bare(text)}, please{mark}"


MANNERS: dict[str, Callable[[str], str]] = {
    "plain": lambda text: text,
    "lower": str.lower,
    "bare": _bare,
    "please": _politely,
    "please after": _please_after,
}
ENDINGS = {"none": "", "instructed": f" {INSTRUCTION}", "instructed below": f"\n{INSTRUCTION}"}
# How often each comes; half of all questions carry the instruction.
MANNER_SHARES = {"plain": 0.4, "lower": 0.2, "bare": 0.15, "please": 0.15, "please after": 0.1}
ENDING_SHARES = {"none": 0.5, "instructed": 0.25, "instructed below": 0.25}


def put(text: str, manner: str = "plain", ending: str = "none") -> str:
    """The question in one of `MANNERS`, with one of `ENDINGS`.

    Raises ValueError for a manner or an ending that is not there, or an empty question.
    """
    if manner not in MANNERS:
        raise ValueError(f"unknown manner {manner!r}; known: {', '.join(MANNERS)}")
    if ending not in ENDINGS:
        raise ValueError(f"unknown ending {ending!r}; known: {', '.join(ENDINGS)}")
    if not text.strip():
        raise ValueError(f"the question {text!r} is empty")
    return MANNERS[manner](text) + ENDINGS[ending]


def put_somehow(rng: np.random.Generator, text: str) -> str:
    """The question as somebody may put it: a function of the generator, which is asked twice."""
    return put(text, *somehow(rng))


def somehow(rng: np.random.Generator) -> tuple[str, str]:
    """One of `MANNERS` and one of `ENDINGS`, as often as people use them."""
    manner, ending = (
        list(shares)[rng.choice(len(shares), p=list(shares.values()))]
        for shares in (MANNER_SHARES, ENDING_SHARES)
    )
    return manner, ending
