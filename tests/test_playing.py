"""Playing: new pictures with known truth, and signs with the visitor's own writing."""

import json

import pytest
from PIL import ImageChops

from arr_coc.page import drawn, frame
from arr_coc.page.wording import tidy
from arr_coc.scenes import questions
from arr_coc.scenes.scene import KINDS_OF, TEST_SEED, make_scene
from arr_coc.service import intake


def test_kinds_come_from_the_published_scores(tmp_path):
    scores = {
        "native": {"kinds": {"colour": {"n": 10, "right": 8}, "count": {"n": 10, "right": 7}}}
    }
    path = tmp_path / "scores.json"
    path.write_text(json.dumps(scores))
    assert drawn.good_kinds(path) == ("colour",) and drawn.weak_kinds(path) == ("count",)
    scores["large"] = {"kinds": {"bar": {"n": 10, "right": 1}, "colour": {"n": 10, "right": 5}}}
    path.write_text(json.dumps(scores))
    assert drawn.good_kinds(path) == ("colour",), "of what a new picture is asked"
    assert drawn.weak_kinds(path) == ("bar", "colour"), "of what large pictures are"
    scores["native"]["kinds"]["colour"]["right"] = 1
    path.write_text(json.dumps(scores))
    assert drawn.good_kinds(path) == ("count", "colour")  # never nothing at all
    assert set(drawn.good_kinds()) <= set(questions.KINDS) and drawn.good_kinds()
    assert drawn.can_read(("word", "colour")) and not drawn.can_read(("colour",))
    assert drawn.all_kinds() == tuple(questions.KINDS)


def test_every_kind_has_plain_words():
    assert set(frame.ABILITIES) == set(KINDS_OF["large"]) > set(questions.KINDS)
    said = frame.about(True, drawn.good_kinds(), drawn.weak_kinds())
    assert frame.ABILITIES[drawn.good_kinds()[0]] in said and "deleted within the hour" in said
    assert f"often wrong at: {frame.ABILITIES[drawn.weak_kinds()[0]]}, " in said
    assert "wrong at" not in frame.about(True, ("colour",))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("what color is the hat", "What colour is the hat?"),
        ("tell me the color of the umbrella", "Tell me the colour of the umbrella."),
        ("Tell me what is largest, cup or tree.", "Tell me what is largest, cup or tree."),
        ("is there a hat?", "Is there a hat?"),
    ],
)
def test_a_question_of_ours_is_shown_in_one_form(text, shown):
    assert tidy(text) == shown


def test_three_questions_of_those_kinds_with_their_truth():
    for seed in (3, 50, 700):
        made = drawn.new_picture(("colour", "exists"), seed)
        scene = make_scene(made.seed, kinds=("colour", "exists"))
        known = {tidy(question.text): question.answer for question in scene.questions}
        assert len(made.questions) == 3 and made.seed < TEST_SEED
        assert all(known[question] == answer for question, answer in made.questions)
        kinds = {q.kind for q in scene.questions if (tidy(q.text), q.answer) in made.questions}
        assert kinds == {"colour", "exists"}
    assert drawn.new_picture(("colour",)).seed < TEST_SEED


@pytest.mark.parametrize("text", ["47", "hello", "E=mc2", "x"])
def test_the_visitors_own_word_is_on_the_sign(text):
    made = drawn.sign_with(text, seed=100)
    ((question, answer),) = made.questions
    assert answer == text.lower() and question
    kind = "number" if text.isdigit() else "word"
    scene = make_scene(made.seed, kinds=(kind,)).image
    left, top, right, bottom = ImageChops.difference(made.image, scene).getbbox()
    assert (right - left) * (bottom - top) < 0.1 * 512 * 512  # nothing but the sign changed


@pytest.mark.parametrize("text", ["", "   ", "much too long", "<b>", "${7*6}", "ü", None, 47])
def test_what_may_not_be_written_is_a_sentence(text):
    with pytest.raises(intake.IntakeError):
        drawn.sign_with(text)
