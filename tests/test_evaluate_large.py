"""The evaluation of the large world and of other hands; what a guess among the named is worth."""

import pytest

from arr_coc.evaluate import __main__ as evaluate
from arr_coc.evaluate import identity, question_only, questions
from arr_coc.evaluate.questions import Scenes
from arr_coc.scenes import hands, large
from arr_coc.scenes.questions import KINDS
from arr_coc.scenes.richer import CHOICE_KINDS
from arr_coc.scenes.scene import DEV_SEED, TEST_SEED, make_scene


def settings_of(*words: str):
    return evaluate.parse(["--out", "unused", *words], "")


def test_nothing_changes_where_no_world_and_no_hand_are_named():
    settings = settings_of()
    assert settings.kinds == tuple(KINDS) and settings.size == (512, 512)
    source = evaluate.source_of(settings)
    assert set(source.about) == {"first_seed", "n_per_kind", "size"}
    assert not {"world", "hand"} & set(identity.identity(settings))


@pytest.mark.parametrize("hand", ["noto", hands.DEVELOPMENT_HAND])
def test_the_large_world_is_asked_by_a_hand(hand, monkeypatch):
    monkeypatch.setattr(questions, "SCENES_PER_BLOCK", 6)
    monkeypatch.setattr(questions, "BLOCKS_AT_A_TIME", 1)
    words = ["--world", "large", "--hand", hand, "--size", "640", "512", "--n", "2"]
    settings = settings_of(*words, "--kinds", "relation", "price")
    source = evaluate.source_of(settings)
    items = [item for block in source.blocks() for item in source.load(block)]
    assert sorted(item.kind for item in items) == ["price"] * 2 + ["relation"] * 2
    for item in items:
        seed = int(item.ref.picture)
        scene = make_scene(seed, size=(640, 512), world="large", hand=hand)
        assert DEV_SEED <= seed < TEST_SEED and item.image.tobytes() == scene.image.tobytes()
        assert item.question == scene.questions[item.ref.index].text
    told = {"world": "large", "hand": hand}
    assert (
        told.items() <= source.about.items() and told.items() <= identity.identity(settings).items()
    )


def test_kinds_are_those_of_the_world():
    assert settings_of("--world", "large").kinds == large.ALL_KINDS
    fine = settings_of("--world", "large", "--sweep", "detail", "1", "2").kinds
    assert {"board_row", "cheaper", "number"} <= set(fine) and "larger" not in fine
    with pytest.raises(ValueError, match="relation.*small world"):
        Scenes(DEV_SEED, 1, ("relation",))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--hand", "twemoji", "--seed", "5"], "held out of training"),
        (["--hand", "left"], "invalid choice"),
        (["--world", "large", "--easy-vqa"], "drawn scenes"),
        (["--world", "large", "--size", "256", "256"], "384 to 1280"),
    ],
)
def test_what_does_not_go_together_is_refused(words, told, capsys):
    with pytest.raises(SystemExit):
        settings_of(*words)
    assert told in capsys.readouterr().err


@pytest.mark.parametrize("kind", CHOICE_KINDS)
def test_the_named_are_counted_and_the_answer_is_among_them(kind):
    seen = 0
    for seed in range(DEV_SEED, DEV_SEED + 14):
        for question in make_scene(seed, world="large", kinds=[kind]).questions:
            names = question_only.offered(question_only.normalised(question.text))
            assert question.answer in names and 2 <= len(names) <= large.MOST, question.text
            each = 2 if kind == "cheaper" else 1  # boxes of a thing: a price may be beside it
            assert len(names) <= len(question.boxes) <= each * len(names)
            seen += 1
    assert seen > 20


def test_a_guess_among_the_named_is_no_gain():
    """Words that are choices carry the answer: chance among them is what has to be beaten."""
    pairs = [("cat", "dog"), ("dog", "hat"), ("hat", "cat")]
    answered = [
        (f"which of the two is larger, the {a} or the {b}", (a, b)[i % 2])
        for i in range(20)
        for a, b in pairs
    ]
    row = question_only.guess("larger", answered, answered)
    assert row["offered"]["value"] == 0.5 and row["majority"]["value"] < 0.4
    assert abs(row["gain"] - (row["question_only"]["value"] - 0.5)) < 1e-9
    assert "offered" not in question_only.guess("colour", answered, answered)


def test_a_picture_with_many_questions_is_not_torn_apart_and_blocks_stay_small():
    asked = {"a": 3, "b": 2, "c": 7, "d": 1, "e": 4}
    refs = [questions.Ref(name, i, 1.0) for name, n in asked.items() for i in range(n)]
    blocks = list(questions.by_picture(refs, 5))
    assert [ref for block in blocks for ref in block] == refs
    assert [{ref.picture for ref in block} for block in blocks] == [
        {"a", "b"},
        {"c"},
        {"d", "e"},
    ]
    assert list(questions.by_picture([], 5)) == []
