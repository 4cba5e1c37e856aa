"""Places that somebody else chose: the answer is that of a decision with exactly those cells."""

import pytest
import torch
from test_mattering import one_by_one

from arr_coc.config import Config, Tensions
from arr_coc.qwen import choosing
from arr_coc.qwen.batch import answer_batch
from arr_coc.realizing import Realizer
from arr_coc.scenes.scene import make_scene

BUDGET = 12
OTHER = Tensions(compress=0.1, exploit=0.9, focus=0.2)


@pytest.fixture(scope="module")
def asked(bundled):
    """A picture with a small number in it, and its question: one that few tokens suffice for."""
    config = Config(budget=BUDGET, glance="separate")
    scenes = (make_scene(seed, size=(512, 512)) for seed in range(950_000_000, 950_000_100))
    scene, question = next(
        (s, q)
        for s in scenes
        for q in s.questions
        if q.kind == "number" and bundled.generate(s.image, q.text, config=config).text == q.answer
    )
    return scene.image, question.text, question.answer


def places_of(allocation):
    return allocation.cells[:, 1:].tolist()


def test_given_places_answer_as_a_decision_with_exactly_those_cells(bundled, asked):
    """Places that other tensions decide on, against the streamed answer under these tensions."""
    image, question, _ = asked
    config = Config(budget=BUDGET, glance="separate", tensions=OTHER)
    decided = bundled.generate(image, question, config=config)
    places = places_of(decided.realization.allocation)
    found = choosing.contest(bundled, image, question, places[::-1], BUDGET)
    assert found.given.text == decided.text
    assert found.given.places.tolist() == places[::-1]
    own = bundled.generate(image, question, config=Config(budget=BUDGET, glance="separate"))
    assert found.own.text == own.text and found.own.text != ""
    assert sorted(found.own.places.tolist()) == places_of(own.realization.allocation)
    assert sorted(places) != sorted(found.own.places.tolist())
    assert found.full == bundled.generate(image, question, use_arr_coc=False).text
    assert found.realization.glance.state is None


def test_the_tokens_do_not_know_what_the_decision_would_have_kept(bundled, asked):
    """Bit for bit: given places have the features that the deciding config's own cells have."""
    image, question, _ = asked
    with torch.inference_mode():
        ask = bundled.prepare(image, question)
        for_them, for_others = (
            Realizer(bundled, bundled.policy(config)).realize(ask, question, config)
            for config in (
                Config(budget=BUDGET, glance="separate", tensions=OTHER),
                Config(budget=BUDGET, glance="separate"),
            )
        )
        index = for_them.allocation.native_index()
        given = choosing.tokens_at(bundled, ask, for_others, index.flip(0))
        own = bundled.encode(ask.picture, for_them)
    assert torch.equal(given.features, own.features) and torch.equal(given.places, own.places)
    assert len(given.deepstack) == len(own.deepstack)
    assert all(map(torch.equal, given.deepstack, own.deepstack))


@pytest.mark.slow
def test_needed_is_the_shortest_beginning_that_says_what_the_full_look_says(bundled, asked):
    image, question, answer = asked
    found = choosing.contest(bundled, image, question, [[0, 0], [15, 15]], BUDGET)
    assert found.full == answer
    own = found.own
    assert own.text == answer and own.needed and found.nothing != answer
    assert found.given.needed is None and found.given.text != answer  # two corners
    with torch.inference_mode():
        ask = bundled.prepare(image, question)
        config = Config(budget=BUDGET, glance="separate")
        decision = Realizer(bundled, bundled.policy(config)).realize(ask, question, config)
        index = choosing.by_relevance(decision)
        tokens = choosing.tokens_at(bundled, ask, decision, index)
        whole = bundled.encode(ask.picture, None)
        (full,) = answer_batch(bundled, [ask.prompt], [whole], 32)
        order = choosing.spent_order(index)
        gives = {
            count: one_by_one(bundled, ask, tokens.at(order[:count].sort().values), full.ids)[1]
            for count in (0, own.needed - 1, own.needed)
        }
    assert gives == {0: False, own.needed - 1: False, own.needed: True}


def test_the_own_places_are_in_the_order_of_their_relevance(tiny, picture):
    found = choosing.contest(tiny, picture, "what is it?", [[0, 0]], 7, max_new_tokens=4)
    relevance = found.realization.relevance[0]
    values = [float(relevance[row, column]) for row, column in found.own.places.tolist()]
    assert len(values) == 7 and values == sorted(values, reverse=True)
    assert [tuple(place) for place in found.given.places.tolist()] == [(0, 0)]


@pytest.mark.parametrize(
    "places, said",
    [
        ([], "0 places were given, allowed are 1 to 2"),
        ([[0, 0], [0, 1], [0, 2]], "3 places were given, allowed are 1 to 2"),
        ([[0, 0], [8, 0]], r"place \(8, 0\) lies outside the 8x10 grid"),
        ([[0, -1]], r"place \(0, -1\) lies outside"),
        ([[3, 4], [3, 4]], r"place \(3, 4\) was given twice"),
    ],
)
def test_places_that_are_not_allowed_are_refused(tiny, picture, places, said):
    with pytest.raises(ValueError, match=said):
        choosing.contest(tiny, picture, "what is it?", places, 2)
