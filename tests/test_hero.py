"""The page's first sentence: made of what was answered and measured, whichever way it went."""

import html
import re

import pytest

from arr_coc.page.frame import LINE
from arr_coc.page.hero import hero
from arr_coc.service.looks import empty_look, result_of


class Model:
    name, is_bundled, device = "small", True, "cpu"


def look(text, tokens, seconds, **changes):
    done = {"text": text, "done": True, "visual_tokens": tokens, "ended": "end"}
    return {
        **empty_look(),
        **done,
        "visual_tokens_full": 256,
        "time_to_first_token_s": seconds,
    } | changes


def said(focused="99", full="99", shrunk="26", truth="99", times=(1.0, 0.4), runs=5, **options):
    question = options.pop("question", "What is the number on the shirt?")
    looks = [
        look(full, 256, times[0]),
        look(focused, options.pop("tokens", 51), times[1], **options),
    ]
    third = None if shrunk is None else look(shrunk, 49, 0.1)
    result = result_of(Model, question, *looks, third)
    words = hero(result, truth, runs)
    assert words.startswith('<p class="arr-hero') and words.endswith("</p>")
    assert ("arr-slower" in words) == ("slower on this small model" in words)
    return html.unescape(re.sub("<.*?>", "", words))


@pytest.mark.parametrize(
    "changes, words",
    [
        ({}, "Reads “99” from 51 of 256 tokens, 2.5× faster. "
             "The whole picture shrunk to 49 tokens says “26”."),
        ({"times": (0.4, 1.0)}, "Reads “99” from 51 of 256 tokens, 2.5× slower on this small model."),
        ({"times": (1.0, 1.02)}, "51 of 256 tokens, about as fast."),
        ({"times": (1.0, 0.93)}, "51 of 256 tokens, slightly faster."),
        ({"runs": 1}, "Reads “99” from 51 of 256 tokens. The whole"),
        ({"runs": 2}, "Reads “99” from 51 of 256 tokens. The whole"),
        ({"shrunk": "99"}, "The whole picture shrunk to 49 tokens says the same."),
        ({"shrunk": None}, "2.5× faster."),
        ({"question": "What colour is it?"}, "Answers “99” from"),
        ({"focused": "26"}, "Says “26” from 51 of 256 tokens, 2.5× faster; with all of them it says “99”, "
                            "which is right. The whole picture shrunk to 49 tokens says the same."),
        ({"focused": "26", "full": "26"}, "2.5× faster: wrong, as with all of them."),
        ({"focused": "27", "shrunk": "99"}, "shrunk to 49 tokens says “99”, and is right."),
        ({"full": "11"}, "Reads “99” from 51 of 256 tokens, 2.5× faster."),
        ({"truth": None}, "Reads “99” from 51 of 256 tokens, 2.5× faster. The whole"),
        ({"truth": None, "focused": "26"}, "Says “26” from 51 of 256 tokens, 2.5× faster; with all of them "
                                           "it says “99”. The whole"),
        ({"tokens": 256, "shrunk": "5"}, "With all 256 tokens nothing is left out: it says “99”."),
        ({"focused": "", "truth": None}, "Says nothing from 51"),
        ({"focused": "x" * 50, "full": "x" * 50, "truth": None}, "Reads something longer from 51"),
        ({"focused": "${1}<b>", "full": "${1}<b>", "truth": None}, "Reads “${1}<b>” from"),
    ],
)  # fmt: skip
def test_it_says_what_happened(changes, words):
    assert words in said(**changes)


@pytest.mark.parametrize("changes", [{"error": "It failed."}, {"done": False}, {"ended": "length"}])
def test_what_did_not_come_to_its_end_is_not_told(changes):
    assert said(**changes) == LINE


def test_without_a_comparison_it_says_what_the_page_does():
    assert LINE in hero(None)
    assert "<b>" not in hero(None) and "&lt;b&gt;" in hero(
        result_of(Model, "q?", look("<b>", 256, 1.0), look("<b>", 51, 1.0))
    )
