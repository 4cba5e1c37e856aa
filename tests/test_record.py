"""Recordings: made by the command, found only where picture and question are still the same."""

import json
import shutil

import pytest
from app_server import BUNDLED_EXAMPLES, OTHER_SHARE, recorded_examples

from arr_coc import digests, record
from arr_coc.page import board, frame, results
from arr_coc.scoring import score_exact
from arr_coc.service.looks import ComparisonResult, empty_look
from arr_coc.service.recordings import FILE, ROOT, About, Recording, at_share, dump, find, load


@pytest.fixture(scope="module")
def folder():
    return recorded_examples()


def test_the_command_writes_what_the_page_needs(folder):
    about, recordings = load(folder)
    assert set(about) == set(About.__annotations__)
    assert about["base"] == "bundled" and about["machine"]["cores"] >= 1
    assert "host" not in json.dumps(about["machine"]).lower()
    entries = json.loads((folder / "examples.json").read_text())
    assert [r["question"] for r in recordings] == [entry["question"] for entry in entries]
    for recording in recordings:
        assert set(recording) == set(Recording.__annotations__)
        result = recording["result"]
        assert set(result) == set(ComparisonResult.__annotations__)
        assert result["shrunk"]["visual_tokens"] <= result["focused"]["visual_tokens"]
        assert result["shrunk"]["visual_tokens"] > 0.8 * result["focused"]["visual_tokens"]
        assert all(len(times) == about["repetitions"] for times in recording["times"].values())
    assert "/" not in recordings[0]["result"]["model"]


def test_a_recording_is_found_for_that_very_picture_and_question(folder, tmp_path):
    _, recordings = load(folder)
    first = recordings[0]
    picture = folder / first["file"]
    assert find(recordings, picture, first["question"]) is first
    assert find(recordings, picture, "another?") is None
    changed = tmp_path / first["file"]
    shutil.copy(folder / recordings[-1]["file"], changed)
    assert find(recordings, changed, first["question"]) is None
    assert load(tmp_path) == (None, [])


def test_the_same_picture_at_another_budget(folder):
    about, (first, *_) = load(folder)
    (other,) = first["budgets"]
    assert other["share"] == OTHER_SHARE and other["result"]["where"] is None
    assert all(len(times) == about["repetitions"] for times in other["times"].values())
    few, usual = at_share(first, OTHER_SHARE), at_share(first, 0.2)
    assert usual is first["result"] and at_share(first, 0.33) is None
    assert few["tokens_kept"] == 12 < usual["tokens_kept"] == 51
    assert len(few["where"]["cells"]) == 12
    for name in ("relevance", "propositional", "perspectival", "participatory"):
        assert few["where"][name] == usual["where"][name] and name not in other["differs"]
    assert set(few["where"]) == set(usual["where"])


def test_what_is_written_small_is_read_as_it_was(folder, tmp_path):
    about, recordings = load(folder)
    where = recordings[0]["result"]["where"]
    where["participatory"] = [[1 / 3] * len(row) for row in where["participatory"]]
    coarse = recordings[1]["result"]["where"]
    coarse["cells"][0][0], coarse["cell_budgets"][0] = 1, 256.0
    dump({"about": about, "recordings": recordings}, tmp_path / FILE)
    kept = json.loads((tmp_path / FILE).read_text())["recordings"]
    cells = [recording["result"]["where"]["cells"] for recording in kept]
    assert isinstance(cells[0], str) and cells[1] == coarse["cells"]
    again = load(tmp_path)[1]
    where["participatory"] = [[0.333] * len(row) for row in where["participatory"]]
    assert again == recordings


def test_which_places_mattered_is_recorded(folder):
    _, (first, *_) = load(folder)
    mattered, kept = first["mattered"], first["result"]["where"]["cells"]
    assert mattered["answer"] == first["result"]["focused"]["text"]
    assert mattered["places"] == [cell[1:] for cell in kept]
    assert len(mattered["loss"]) == len(kept) and 0 < mattered["probability"] <= 1


@pytest.mark.parametrize("where", [None, {"fallback": "nothing was decided"}])
def test_what_was_not_decided_is_not_asked_what_mattered(where, tmp_path):
    assert record.mattered(None, tmp_path / "unread.png", "a number?", {"where": where}) is None


def test_the_page_shows_it_with_no_click(folder):
    cards = frame.load_examples(folder)
    shown = board.recorded(folder, cards[0], load(folder))
    pieces = board.board(shown)
    assert pieces.answers.count("arr-mark") == 3
    assert "Recorded " in pieces.strip and "Medians of 2 runs" in pieces.strip
    assert "data-look" in pieces.look and "arr-race-play" in pieces.cost
    assert pieces.why.count("data-part=") == 5 and pieces.gauges.count('type="range"') == 3


def look(seconds, rate=10.0, memory=1):
    return {
        **empty_look(),
        "time_to_first_token_s": seconds,
        "decode_tokens_per_second": rate,
        "peak_memory_bytes": memory,
        "stages_s": {"encode": seconds / 2},
    }


def test_medians():
    median = record.median_look([look(3.0), look(1.0, memory=5), look(2.0)])
    assert median["time_to_first_token_s"] == 2.0 and median["stages_s"] == {"encode": 1.0}
    assert median["peak_memory_bytes"] == 1


def test_what_is_committed_is_current():
    """Where recordings are committed, they are of the committed pictures and weights."""
    about, recordings = load(BUNDLED_EXAMPLES)
    if about is None:
        return
    for key, name in (("base_sha256", "base"), ("weights_sha256", "arr-coc")):
        weights = digests.of_weights(ROOT / "arr_coc" / "bundled" / name)
        assert about[key] == weights, f"run {about['command']}"
    for card in frame.load_examples(BUNDLED_EXAMPLES):
        assert find(recordings, card.path, card.question), card.path.name


def test_cards_show_what_their_group_says():
    """Details, the first of which shrinking loses, whole scenes that it keeps, and what focusing loses."""
    _, recordings = load(BUNDLED_EXAMPLES)
    cards = [card for card in frame.load_examples(BUNDLED_EXAMPLES) if not card.is_sibling]
    right = {"detail": (True, True), "whole": (True, True, True), "fails": (True, False)}
    shown = {}
    for card in cards:
        result = find(recordings, card.path, card.question)["result"]
        said = [score_exact(result[look]["text"], card.answer) for look in record.LOOKS]
        if card.expected_failure:
            assert not all(said[:2]), card.path.name
        else:
            wanted = right[card.group]
            assert tuple(map(bool, said[: len(wanted)])) == wanted, card.path.name
            shown.setdefault(card.group, said)
    assert set(shown) == set(right) and not shown["detail"][record.LOOKS.index("shrunk")]


def test_arguments_are_checked(tmp_path, capsys):
    for arguments in (["--repetitions", "0"], ["--examples", "nowhere"]):
        with pytest.raises(SystemExit):
            record.main(arguments)
    assert "examples.json" in capsys.readouterr().err


def test_faster_needs_a_median_ratio_above_one_of_three_runs(folder):
    _, recordings = load(folder)
    for ratio, words in ((0.8, "slower"), (1.0, "same"), (1.4, "faster")):
        full, focused = (recordings[0]["result"][key] for key in ("full", "focused"))
        focused = {**focused, "time_to_first_token_s": full["time_to_first_token_s"] / ratio}
        result = {**recordings[0]["result"], "ratio": ratio, "focused": focused}
        shown = results.strip(result, recorded="Recorded", runs=3)
        assert words in shown and (words == "faster") == ("faster" in shown)
        assert "no verdict" in results.strip(result, recorded="Recorded", runs=2)
