"""Scenes: deterministic, honest boxes, answers that the question alone does not give away."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from arr_coc.evaluate import question_only
from arr_coc.scenes import __main__ as scenes
from arr_coc.scenes import drawing, questions, writing
from arr_coc.scenes.scene import DEV_SEED, MAP_STRIDE, make_scene

RESULTS = Path(__file__).parent.parent / "results"

SIZES = ((512, 512), (256, 256), (512, 320))


@pytest.fixture(scope="module")
def many():
    return [make_scene(DEV_SEED + i) for i in range(300)]


def test_a_seed_is_a_scene():
    for size in SIZES:
        first, again = (make_scene(7, size=size) for _ in range(2))
        assert first.questions == again.questions
        assert first.objects == again.objects
        assert np.array_equal(np.asarray(first.image), np.asarray(again.image))
        assert first.image.size == size and first.image.mode == "RGB"
    other = make_scene(8)
    assert not np.array_equal(np.asarray(other.image), np.asarray(make_scene(7).image))


def test_a_hand_of_few_things_fills_a_large_picture_of_the_small_world():
    scene = make_scene(DEV_SEED + 26, size=(1024, 1024), hand="any")
    assert len(scene.objects) > 10


def test_questions_are_well_formed(many):
    for scene in many:
        for question in scene.questions:
            assert question.kind in questions.KINDS
            assert question.answer == question.answer.lower() and len(question.answer.split()) <= 2
            assert len(question.text) < 80


@pytest.mark.parametrize("size", SIZES)
def test_boxes_lie_inside_and_things_do_not_overlap(size):
    for seed in range(20):
        scene = make_scene(seed, size=size)
        for question in scene.questions:
            for x0, y0, x1, y1 in question.boxes:
                assert 0 <= x0 < x1 <= size[0] and 0 <= y0 < y1 <= size[1]
        boxes = [thing.box for thing in scene.objects]
        for i, a in enumerate(boxes):
            for b in boxes[:i]:
                assert a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1]


def _holds(scene, box, colour: str) -> bool:
    """Whether some of the box's pixels are about as coloured as the name says."""
    pixels = np.asarray(scene.image.crop(tuple(round(v) for v in box)), float).reshape(-1, 3)
    away = np.abs(pixels - drawing.COLOURS[colour]).max(1)
    return (away < 20).sum() >= 4


@pytest.mark.parametrize("kind", ["colour", "emblem_colour"])
def test_the_colour_is_in_the_box(many, kind):
    pairs = [(s, q) for s in many for q in s.questions if q.kind == kind]
    assert len(pairs) > 100
    assert all(_holds(scene, q.boxes[0], q.answer) for scene, q in pairs)


def test_nobody_asks_for_what_the_background_shows_as_well():
    asked = [
        (scene.setting, question)
        for scene in (make_scene(DEV_SEED + i, kinds=["exists", "count"]) for i in range(120))
        for question in scene.questions
    ]
    streets = [question.text for setting, question in asked if setting == "street"]
    assert len(streets) > 20
    negative = [q.text for setting, q in asked if setting == "street" and q.answer == "no"]
    assert negative and not any("house" in text for text in negative)
    assert "star" not in drawing.EMBLEM_SHAPES  # a thing that is asked for


def test_emblems_are_small_and_grow_with_detail():
    for detail, low, high in ((1.0, 20, 28), (0.5, 10, 14), (2.0, 30, 56)):
        sides = []
        for seed in range(20):
            scene = make_scene(seed, kinds=["emblem_colour"], detail=detail)
            assert all(thing.detail_kind in ("emblem", "price", None) for thing in scene.objects)
            sides += [q.boxes[0][2] - q.boxes[0][0] for q in scene.questions]
        assert sides and low <= min(sides) and max(sides) <= high


def test_the_map_agrees_with_the_things(many):
    for scene in many[:40]:
        for i, thing in enumerate(scene.objects):
            rows, columns = np.nonzero(scene.things_map == i + 1)
            assert len(rows) > 0
            x0, y0, x1, y1 = (v / MAP_STRIDE for v in thing.box)
            assert columns.min() >= x0 - 1 and columns.max() <= x1 + 1
            assert rows.min() >= y0 - 1 and rows.max() <= y1 + 1


def test_answers_are_true(many):
    for scene in many:
        names = Counter(thing.name for thing in scene.objects)
        for question in scene.questions:
            if question.kind == "exists":
                assert (question.answer == "yes") == bool(question.boxes)
            elif question.kind == "count":
                assert question.answer == str(len(question.boxes))
            elif question.kind == "leftmost":
                assert names[question.answer] >= 1
            elif question.kind == "setting":
                assert question.answer == scene.setting and not question.boxes


def test_what_is_beside_is_really_there(many):
    pairs = [(s, q) for s in many for q in s.questions if q.kind == "beside"]
    assert len(pairs) > 100
    for scene, question in pairs:
        thing, neighbour = question.boxes
        axis = 1 if any(word in question.text.lower() for word in ("above", "over")) else 0
        assert neighbour[axis] + neighbour[axis + 2] < thing[axis] + thing[axis + 2]
        assert any(t.box == neighbour and t.name == question.answer for t in scene.objects)
        rivals = [t for t in scene.objects if t.box not in (thing, neighbour)]
        for rival in rivals:  # nobody stands between them
            between = neighbour[axis + 2] <= rival.box[axis] and rival.box[axis + 2] <= thing[axis]
            across = 1 - axis
            inside = rival.box[across] < min(thing[across + 2], neighbour[across + 2])
            inside &= rival.box[across + 2] > max(thing[across], neighbour[across])
            assert not (between and inside)


def test_where_names_the_quarter(many):
    for scene in many:
        for question in scene.questions:
            if question.kind == "where":
                x0, y0, x1, y1 = question.boxes[0]
                vertical, horizontal = question.answer.split()
                assert (horizontal == "right") == ((x0 + x1) / 2 > scene.image.width / 2)
                assert (vertical == "bottom") == ((y0 + y1) / 2 > scene.image.height / 2)


def _contrast(image, box) -> float:
    pixels = np.asarray(image.convert("L").crop(tuple(round(v) for v in box)), float)
    return float(pixels.max() - pixels.min())


@pytest.mark.parametrize("kind", ["number", "word", "price", "chart_value", "form"])
def test_writing_is_in_its_box_and_stands_out(kind):
    pairs = [
        (scene, question)
        for scene in (make_scene(seed, kinds=[kind]) for seed in range(20))
        for question in scene.questions
    ]
    assert len(pairs) >= 10
    for scene, question in pairs:
        box = question.boxes[-1]
        assert _contrast(scene.image, box) > 100
        thing = next(t for t in scene.objects if t.detail_box == box)
        assert thing.detail == question.answer
        whole = thing.box
        assert whole[0] - 3 <= box[0] < box[2] <= whole[2] + 3
        assert question.boxes[:-1] == {
            "price": (thing.box,), "chart_value": (thing.label_box,), "form": (thing.label_box,)
        }.get(kind, ())  # fmt: skip
        if thing.label_box:  # whose value it is, written elsewhere
            assert _contrast(scene.image, thing.label_box) > 100
            assert thing.label_box[3] <= whole[3] + 3 and box[1] <= thing.label_box[3]
    answers = {question.answer for _, question in pairs}
    if kind == "word":
        assert answers <= set(writing.WORDS)
    if kind == "price":
        assert all(answer.startswith("$") for answer in answers)


def test_writing_grows_with_detail():
    def heights(detail):
        drawn = [make_scene(s, kinds=["number"], detail=detail) for s in range(12)]
        return np.mean([q.boxes[0][3] - q.boxes[0][1] for s in drawn for q in s.questions])

    assert heights(0.5) < 0.65 * heights(1.0) < 0.65 * heights(1.5)


@pytest.mark.parametrize("kind", ["cheapest", "chart_highest"])
def test_the_extreme_is_read_off_the_numbers(kind):
    seen = set()
    for seed in range(30):
        scene = make_scene(seed, kinds=[kind])
        for question in scene.questions:
            values = {
                t.name: int(t.detail.lstrip("$"))
                for t in scene.objects
                if t.detail_kind in ("price", "value")
            }
            low = any(w in question.text.lower() for w in ("cheapest", "least", "lowest", "worst"))
            seen.add(low)
            best = min(values, key=values.get) if low else max(values, key=values.get)
            read = {t.detail_box for t in scene.objects if t.name in values}
            (named,) = {*question.boxes} - read
            winner = next(t for t in scene.objects if t.name == best)
            assert question.answer == best and len(question.boxes) == len(values) + 1
            assert named == (winner.label_box or winner.box)
    assert seen == {True, False}


def test_panels_come_where_they_are_asked_for(many):
    for seed in range(8):
        assert make_scene(seed, kinds=["chart_value"]).setting == "chart"
        assert make_scene(seed, kinds=["form"]).setting == "form"
        assert make_scene(seed, kinds=["colour"]).setting in drawing.SETTINGS
    assert {scene.setting for scene in many} == {*drawing.SETTINGS, "chart", "form"}


def test_the_ladder_names_every_kind_once():
    steps = [kind for step in questions.LADDER.values() for kind in step]
    assert sorted(steps) == sorted(questions.KINDS)


def test_no_guess_from_the_question_alone(many):
    """Naive Bayes over the words, learned on one half, gains little on the other half."""
    for kind in questions.KINDS:
        answered = [
            (question_only.normalised(q.text), q.answer)
            for scene in many
            for q in scene.questions
            if q.kind == kind
        ]
        if len(answered) < 60:  # the kinds of the charts and forms come less often
            continue
        half = len(answered) // 2
        assert question_only.guess(kind, answered[:half], answered[half:])["gain"] < 0.12, kind


def test_a_question_that_gives_its_answer_away_is_noticed():
    answered = [
        (f"is the {thing} there", answer) for thing, answer in (("cup", "yes"), ("fish", "no"))
    ]
    guesses = question_only.guess("exists", answered * 20, answered * 20)
    assert guesses["question_only"]["value"] == 1 and guesses["majority"]["value"] == 0.5
    assert guesses["gain"] == 0.5


def test_the_committed_question_only_figures_stay_within_five_points():
    report = json.loads((RESULTS / "question-only.json").read_text())
    assert {row["kind"] for row in report["kinds"]} == set(questions.KINDS)
    assert max(row["gain"] for row in report["kinds"]) <= 0.05


def test_yes_and_no_are_balanced(many):
    answers = [q.answer for s in many for q in s.questions if q.kind == "exists"]
    assert 0.44 < answers.count("yes") / len(answers) < 0.56


def test_counts_are_balanced():
    answers = Counter(
        q.answer for i in range(150) for q in make_scene(i, kinds=["count"]).questions
    )
    assert set(answers) == set("1234")
    assert max(answers.values()) < 0.38 * answers.total()


def test_kinds_can_be_chosen():
    for kind in questions.KINDS:
        drawn = [q for i in range(12) for q in make_scene(i, kinds=[kind]).questions]
        assert drawn and {q.kind for q in drawn} == {kind}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"kinds": ["smell"]}, "smell"),
        ({"kinds": []}, "known"),
        ({"size": (512, 40)}, "40"),
        ({"detail": 9.0}, "9.0"),
    ],
)
def test_bad_arguments_are_named(arguments, words):
    with pytest.raises(ValueError, match=words):
        make_scene(0, **arguments)


def test_contact_sheet(tmp_path, capsys):
    path = tmp_path / "sheet.png"
    scenes.main(["--show", str(path), "--n", "3"])
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["n"] == 3
    with Image.open(path) as sheet:
        assert sheet.width > 1000


def test_glyphs_carry_their_licence():
    assert "MIT License" in (drawing.GLYPH_DIR / "LICENSE").read_text()
    assert "Fluent Emoji" in (drawing.GLYPH_DIR / "NOTICE").read_text()
    assert len(drawing.glyph_names()) >= 32
