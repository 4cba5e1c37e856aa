"""Deciding: a decision as plain numbers comes back, and is taken again without a model."""

import json
import statistics
import time
from dataclasses import replace

import pytest
from PIL import Image

from arr_coc import balancing
from arr_coc.config import Config, Tensions
from arr_coc.page import board
from arr_coc.service import comparing, decision


@pytest.fixture(scope="module")
def compared(bundled, picture):
    return comparing.compare(bundled, picture, "what number is on the sign?", max_new_tokens=2)


@pytest.fixture
def shown(compared, picture):
    return board.live(picture, compared, None, "")


def tensions(where):
    return [where["compress"], where["exploit"], where["focus"]]


def test_it_survives_json_and_comes_back(compared):
    where = json.loads(json.dumps(compared["where"]))
    realization = decision.realization_of(where)
    assert realization.grid == tuple(where["grid"]) and realization.tokens == where["budget"]
    assert decision.describe_where(realization)["cells"] == where["cells"]


def test_the_same_tensions_decide_the_same(compared):
    where = compared["where"]
    again = decision.decide_again(where, *tensions(where))
    assert where["scalars"] != list(balancing.FIXED)  # the trained combiner's
    kept, was = map(set, (map(tuple, again["cells"]), map(tuple, where["cells"])))
    assert len(kept) == len(was) and len(kept & was) >= 0.98 * len(was)  # maps are rounded
    assert again["tension_source"] == "imposed"


@pytest.mark.parametrize("glance", ["auto", "separate", "periphery"])
def test_what_rounds_came_to_is_decided_again_under_the_same_tensions(bundled, glance):
    """They end after few cells: of so small a budget a glance would not be kept anew."""
    image = Image.new("RGB", (512, 512), "grey")
    image.paste("red", (200, 200, 260, 260))
    config = Config(share="auto", glance=glance, tensions=Tensions(0.52, 0.9, 1.0))
    question = "What colour is the square?"
    answer = bundled.generate(image, question, config=config, max_new_tokens=2)
    where = decision.describe_where(answer.realization)
    again = decision.decide_again(where, *tensions(where))
    assert where["rounds"] and again["glance_grid"] == where["glance_grid"]
    assert (where["glance_grid"] is None) == (glance == "separate")
    assert len(again["cells"]) == len(where["cells"])


def test_other_tensions_look_elsewhere_within_the_same_budget(compared):
    where = compared["where"]
    gist = decision.decide_again(where, 1.0, 0.0, 0.0)
    rows, columns = gist["glance_grid"] or (0, 0)
    assert gist["cells"] != where["cells"]
    assert len(gist["cells"]) + rows * columns == where["budget"]
    assert gist["propositional"] == where["propositional"]
    with pytest.raises(ValueError, match="compress"):
        decision.decide_again(where, 2.0, 0.0, 0.0)
    with pytest.raises(ValueError, match="no maps"):
        decision.decide_again({**where, "fallback": "broken"}, 0.5, 0.5, 0.5)


def test_dragging_needs_no_model_and_under_100_ms(shown, bundled, monkeypatch):
    def never(*_, **__):
        raise AssertionError("the model was asked")

    for name in ("stream", "glance", "encode", "picture", "embed", "realize"):
        monkeypatch.setattr(bundled, name, never)
    board.under(shown, [0.5, 0.5, 0.5])
    spent = []
    for value in (0.1, 0.3, 0.5, 0.7, 0.9):
        start = time.process_time()
        tuned, pieces = board.under(shown, [value, 1 - value, value])
        spent.append(time.process_time() - start)
        assert tensions(tuned["where"]) == [value, round(1 - value, 4), value]
        assert "data-look" in pieces["look"] and "set by hand" in pieces["gauges"]
    assert statistics.median(spent) < 0.1, spent


def test_reset_gives_back_what_the_look_had_chosen(shown, compared):
    tuned, _ = board.under(shown, [1.0, 1.0, 1.0])
    back, _ = board.under(tuned, None)
    assert tuned["where"] != compared["where"] and back["where"] == compared["where"]


def test_reset_after_a_comparison_under_imposed_tensions_goes_back_to_the_questions_own(
    bundled, picture, compared
):
    question, own = "what number is on the sign?", compared["where"]
    imposed = comparing.compare(bundled, picture, question, tensions=[1, 0, 0], max_new_tokens=2)
    assert imposed["where"]["tension_source"] == "imposed"
    assert imposed["where"]["own_tensions"] == tensions(own) == own["own_tensions"]
    shown, pieces = board.under(board.live(picture, imposed, None, ""), None)
    assert tensions(shown["where"]) == tensions(own)
    assert shown["where"]["tension_source"] == own["tension_source"] == "learned"
    assert (
        shown["where"]["cells"] != imposed["where"]["cells"]
        and "set by hand" not in pieces["gauges"]
    )


def test_what_is_kept_per_visitor_is_small(shown):
    assert len(json.dumps(shown)) < 300_000


def test_where_alone_for_up_to_three_questions(bundled, picture):
    request = comparing.check(picture, "a?", questions=("what is red?", "how many?", "b?", "c?"))
    records = list(comparing.compare_stream(bundled, request))
    assert [kind for kind, _ in records] == ["where"] * 3
    assert set(records[0][1]) == set(decision.Where.__required_keys__)
    too_many = replace(request, config=Config(budget=10_000))
    assert list(comparing.compare_stream(bundled, too_many))[0][0] == "error"
