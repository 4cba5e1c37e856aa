"""Playing: new pictures with known truth, and signs with the visitor's own writing."""

import json

import pytest
from PIL import ImageChops

from arr_coc.page import drawn as page_drawn
from arr_coc.page import frame
from arr_coc.scenes import questions
from arr_coc.scenes import scene as scenes_scene
from arr_coc.service import intake


def test_kinds_come_from_the_published_scores(tmp_path):
    scores = {
        "native": {"kinds": {"colour": {"n": 10, "right": 8}, "count": {"n": 10, "right": 7}}}
    }
    path = tmp_path / "scores.json"
    path.write_text(json.dumps(scores))
    assert page_drawn.good_kinds(path) == ("colour",) and page_drawn.weak_kinds(path) == ("count",)
    scores["native"]["kinds"]["colour"]["right"] = 1
    path.write_text(json.dumps(scores))
    assert page_drawn.good_kinds(path) == ("count", "colour")  # never nothing at all
    assert set(page_drawn.good_kinds()) <= set(questions.KINDS) and page_drawn.good_kinds()
    assert page_drawn.can_read(("word", "colour")) and not page_drawn.can_read(("colour",))
    assert page_drawn.all_kinds() == tuple(questions.KINDS)


def test_every_kind_has_plain_words():
    assert set(frame.ABILITIES) == set(questions.KINDS)
    said = frame.about(True, page_drawn.good_kinds(), page_drawn.weak_kinds())
    assert frame.ABILITIES[page_drawn.good_kinds()[0]] in said and "deleted within the hour" in said


def test_three_questions_of_those_kinds_with_their_truth():
    for seed in (3, 50, 700):
        made = page_drawn.new_picture(("colour", "exists"), seed)
        scene = scenes_scene.make_scene(made.seed, kinds=("colour", "exists"))
        known = {question.text: question.answer for question in scene.questions}
        assert len(made.questions) == 3 and made.seed < scenes_scene.TEST_SEED
        assert all(known[question] == answer for question, answer in made.questions)
        kinds = {q.kind for q in scene.questions if (q.text, q.answer) in made.questions}
        assert kinds == {"colour", "exists"}
    assert page_drawn.new_picture(("colour",)).seed < scenes_scene.TEST_SEED


@pytest.mark.parametrize("text", ["47", "hello", "E=mc2", "x"])
def test_the_visitors_own_word_is_on_the_sign(text):
    made = page_drawn.sign_with(text, seed=100)
    ((question, answer),) = made.questions
    assert answer == text.lower() and question
    kind = "number" if text.isdigit() else "word"
    drawn = scenes_scene.make_scene(made.seed, kinds=(kind,)).image
    left, top, right, bottom = ImageChops.difference(made.image, drawn).getbbox()
    assert (right - left) * (bottom - top) < 0.1 * 512 * 512  # nothing but the sign changed


@pytest.mark.parametrize("text", ["", "   ", "much too long", "<b>", "${7*6}", "ü", None, 47])
def test_what_may_not_be_written_is_a_sentence(text):
    with pytest.raises(intake.IntakeError):
        page_drawn.sign_with(text)
