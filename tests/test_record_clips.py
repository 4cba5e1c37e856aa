"""Recorded clips: drawn and asked by the command, trusted of the same base and files, shown at once."""

import json
import shutil

import pytest
from app_server import recorded_clips

from arr_coc import record_clips
from arr_coc.page.changes import Several
from arr_coc.page.clip_cards import ClipCards
from arr_coc.page.stamps import Turn
from arr_coc.scoring import score_exact
from arr_coc.service.loader import identity_to_come
from arr_coc.service.recordings import CLIPS, ClipRecording, load_clips
from arr_coc.service.several import SeveralResult


@pytest.fixture(scope="module")
def folder():
    return recorded_clips()


def test_the_command_writes_what_the_page_needs(folder):
    about, recordings = load_clips(folder, identity_to_come())
    assert about["base"] == "bundled" and about["repetitions"] == 1
    for recording in recordings:
        assert set(recording) == set(ClipRecording.__annotations__)
        result = recording["result"]
        assert set(result) == set(SeveralResult.__annotations__)
        assert score_exact(result["full"]["text"], recording["answer"])  # as clips were chosen
        assert len(result["decided"]["moments"]) == 8
        assert result["fewer"]["visual_tokens"] <= result["focused"]["visual_tokens"]
        assert set(recording["times"]) == set(record_clips.LOOKS)


def test_another_clip_or_another_base_is_not_shown(folder, tmp_path):
    copy = shutil.copytree(folder, tmp_path / "copy")
    report = json.loads((copy / CLIPS).read_text())
    first, *others = report["recordings"]
    (copy / first["file"]).write_bytes(b"another")
    assert load_clips(copy, identity_to_come())[1] == others
    report["about"]["base_sha256"] = "0" * 64
    (copy / CLIPS).write_text(json.dumps(report))
    assert load_clips(copy, identity_to_come()) == (None, [])
    assert ClipCards(tmp_path).questions == []


def test_a_card_shows_what_was_recorded_and_can_be_asked_again(folder):
    cards = ClipCards(folder)
    recording = cards.recorded[1][1]
    turn = Turn()
    picked = cards.on_pick(1, turn, "5")
    assert picked.several_question == recording["question"] == cards.questions[1]
    assert picked.several_files["value"] == [str(folder / recording["file"])]
    for said in (recording["answer"], "Recorded 20", "asks the model again", "Fewer frames"):
        assert said in picked.several
    assert cards.on_pick(1, turn, "4") == Several(), "another was picked since"


def test_a_kind_that_the_model_never_gets_right_is_an_error(tmp_path, monkeypatch, bundled):
    monkeypatch.setattr(record_clips, "TRIES", 2)
    monkeypatch.setattr(record_clips, "score_exact", lambda text, answer: False)
    path = tmp_path / "a.mp4"
    with pytest.raises(ValueError, match="no clip of kind colour right from seed 900000000 to"):
        record_clips.record_kind(bundled, "colour", 900_000_000, path, 1)
    assert not path.exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--repetitions", "0"], "--repetitions is 0, expected 1 or more"),
        (["--seed", "1000000000"], "--seed 1000000000, expected 0 to 999,999,700"),
        (["--kinds", "price"], "invalid choice: 'price'"),
    ],
)
def test_bad_arguments_are_named(words, said, capsys):
    with pytest.raises(SystemExit):
        record_clips.main(words)
    assert said in capsys.readouterr().err
