"""How people put a question: the words stay, the manner changes, the instruction is the benchmarks'."""

from collections import Counter

import numpy as np
import pytest

from arr_coc.scenes.asking import ENDINGS, INSTRUCTION, MANNERS, put, put_somehow

QUESTION = "What is the Q3 revenue?"


@pytest.mark.parametrize(
    ("manner", "expected"),
    [
        ("plain", QUESTION),
        ("lower", "what is the q3 revenue?"),
        ("bare", "What is the Q3 revenue"),
        ("please", "please tell me: what is the Q3 revenue?"),
        ("please after", "What is the Q3 revenue, please?"),
    ],
)
def test_manners(manner, expected):
    assert put(QUESTION, manner) == expected


def test_a_command_takes_its_please_at_once():
    assert put("Count the cats.", "please") == "please count the cats."
    assert put("tell me the date", "please after") == "tell me the date, please"


def test_the_instruction_comes_behind_a_space_or_on_a_line_of_its_own():
    assert put(QUESTION, ending="instructed") == f"{QUESTION} {INSTRUCTION}"
    assert put(QUESTION, ending="instructed below") == f"{QUESTION}\n{INSTRUCTION}"
    assert INSTRUCTION == "Answer the question using a single word or phrase."


def test_a_generator_decides_and_every_way_comes():
    again = [[put_somehow(np.random.default_rng(i), QUESTION) for i in range(400)] for _ in "ab"]
    assert again[0] == again[1]
    ways = Counter(again[0])
    assert set(ways) == {put(QUESTION, manner, ending) for manner in MANNERS for ending in ENDINGS}
    assert 0.4 < sum(INSTRUCTION in text for text in again[0]) / 400 < 0.6


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((QUESTION, "rude"), "rude.*plain"),
        ((QUESTION, "plain", "loud"), "loud.*none"),
        ((" ",), "empty"),
    ],
)
def test_bad_arguments_are_named(arguments, words):
    with pytest.raises(ValueError, match=words):
        put(*arguments)
