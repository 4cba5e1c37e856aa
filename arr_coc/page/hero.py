"""Page hero: the comparison on the page in a sentence or two, as escaped HTML.

Made of what was answered and measured, whichever way it went: what the focused look says with how many
tokens, how fast, and what the picture says shrunk to as few.
"""

import re

from arr_coc.page.frame import LINE, escaped
from arr_coc.page.results import ENOUGH_RUNS, LOOKS, SAME, shown_ratio
from arr_coc.scoring import score_exact
from arr_coc.service.looks import ComparisonResult, is_cut

READS = re.compile(
    r"\b(number|word|written|price|cost|how much|say|says|read|letter|sign|value)\b", re.I
)
SLOWER = " on this small model"
LONG = 40  # characters beyond which an answer is not quoted


def hero(result: ComparisonResult | None, truth: str | None = None, runs: int = 1) -> str:
    """The `sentence` as HTML; beside a slower one page.css shows what a large model was measured to."""
    said = sentence(result, truth, runs)
    slower = " arr-slower" * (result is not None and SLOWER in said)
    return f'<p class="arr-hero{slower}">{escaped(said)}</p>'


def sentence(result: ComparisonResult | None, truth: str | None = None, runs: int = 1) -> str:
    """What happened, in words; the page's own line where nothing was compared, or not to its end.

    Args:
        result: of the looks.
        truth: the answer, where it is known.
        runs: that the times are medians of; `ENOUGH_RUNS` make a verdict.
    """
    looks = [look for look in map((result or {}).get, LOOKS) if look is not None]
    whole = len(looks) > 1 and all(look["done"] and not look["error"] for look in looks)
    if not whole or any(map(is_cut, looks)):
        return LINE
    return " ".join(filter(None, (_focused(result, truth, runs), _shrunk(result, truth))))


def _focused(result: ComparisonResult, truth: str | None, runs: int) -> str:
    full, focused = (_quoted(result[key]["text"]) for key in ("full", "focused"))
    kept, all_tokens = result["tokens_kept"], result["tokens_total"]
    if kept >= all_tokens:
        return f"With all {all_tokens:,} tokens nothing is left out: it says {full}."
    spent = f"from {kept:,} of {all_tokens:,} tokens{_soon(result, runs)}"
    texts = [result[key]["text"] for key in ("focused", "full")]
    same = score_exact(*texts) or not any(texts)
    right = truth is not None and score_exact(result["focused"]["text"], truth)
    verb = "Reads" if READS.search(result["question"]) else "Answers"
    if right or (truth is None and same):
        return f"{verb} {focused} {spent}."
    if same:
        return f"{verb} {focused} {spent}: wrong, as with all of them."
    ending = (
        "" if truth is None else ", which is right" * score_exact(result["full"]["text"], truth)
    )
    return f"Says {focused} {spent}; with all of them it says {full}{ending}."


def _shrunk(result: ComparisonResult, truth: str | None) -> str:
    """What shrinking says with as few; nothing where it was not asked, or nothing was left out."""
    if result["shrunk"] is None or result["tokens_kept"] >= result["tokens_total"]:
        return ""
    tokens = result["shrunk"]["visual_tokens"]
    if score_exact(result["shrunk"]["text"], result["focused"]["text"]):
        return f"The whole picture shrunk to {tokens:,} tokens says the same."
    ending = ""
    if truth is not None and score_exact(result["shrunk"]["text"], truth):
        ending = ", and is right"
    says = _quoted(result["shrunk"]["text"])
    return f"The whole picture shrunk to {tokens:,} tokens says {says}{ending}."


def _soon(result: ComparisonResult, runs: int) -> str:
    """How fast its first word was beside the full look's; nothing where too few runs were measured."""
    ratio = shown_ratio(result)
    if runs < ENOUGH_RUNS or not ratio:
        return ""
    if abs(ratio - 1) <= SAME:
        return ", about as fast"
    times, word = (ratio, "faster") if ratio > 1 else (1 / ratio, "slower")
    word += SLOWER * (result["bundled"] and ratio < 1)
    return f", {times:.1f}× {word}" if times >= 1.1 else f", slightly {word}"


def _quoted(text: str) -> str:
    if not text:
        return "nothing"
    return f"“{text}”" if len(text) <= LONG else "something longer"
