"""Page wording: questions in one form, and what to say of those that the model does not know."""

import json
import re
import unicodedata
from functools import cache
from pathlib import Path

TOKENIZER = Path(__file__).parent.parent / "bundled" / "base" / "tokenizer.json"
WORD_START = "Ġ"  # in a byte-level tokenizer's vocabulary: a space before the token
TELLING = {
    "count",
    "describe",
    "give",
    "name",
    "please",
    "read",
    "show",
    "tell",
}  # no question mark
ASKING = TELLING | {
    "are", "can", "do", "does", "has", "have", "how", "is", "what", "where", "which", "who",
}  # fmt: skip
SHORTENED = re.compile(r"\b(how|what|where|which|who)['’]s\b", re.I)
ENOUGH = 1 / 3  # share of known words, above which a question is taken to be English
OTHER_SCRIPT = (
    "The small model here knows English only and cannot read this script: its answers are guesses."
)
OTHER_WORDS = (
    "The small model here learned a few hundred English words, and hardly any of this question is "
    "among them: its answers are guesses."
)

OTHER_FORM = (
    "The small model here learned whole questions, such as “What is the number on the blue door?”: to "
    "other forms its answers are guesses."
)


def tidy(question: str) -> str:
    """A question of ours as it is shown and asked: sentence case, "colour", a mark at its end."""
    text = re.sub(r"\b([Cc])olor(s?)\b", r"\1olour\2", question.strip())
    text = text[:1].upper() + text[1:]
    asks = text.split(" ")[0].lower() not in TELLING
    return text if "?" in text else text.rstrip(". ") + ("?" if asks else ".")


def unlike_learned(question: str) -> str:
    """What to say where the bundled model cannot know a question's language or form; "" where it can."""
    letters = [letter for letter in question if letter.isalpha()]
    if any(not unicodedata.name(letter, "").startswith("LATIN") for letter in letters):
        return OTHER_SCRIPT
    words = re.findall(r"[^\W\d_]+", question.lower())
    known = sum(word in learned_words() for word in words)
    if words and known <= ENOUGH * len(words):
        return OTHER_WORDS
    return OTHER_FORM if SHORTENED.search(question) or not ASKING & set(words) else ""


@cache
def learned_words() -> frozenset[str]:
    """Words that the bundled tokenizer holds whole: those of the questions it was made from."""
    vocabulary = json.loads(TOKENIZER.read_text(encoding="utf-8"))["model"]["vocab"]
    return frozenset(
        token[1:].lower()
        for token in vocabulary
        if token.startswith(WORD_START) and (len(token) > 2 or token[1:] in ("a", "A"))
    )
