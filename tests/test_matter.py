"""What mattered, on demand: asked of the very comparison that is shown, and refused in a sentence else."""

from types import SimpleNamespace

import pytest
from PIL import Image
from test_viewer import result, shown  # noqa: F401  (fixtures)

from arr_coc.page import matter_handlers
from arr_coc.page.changes import Weighed
from arr_coc.page.matter_handlers import MatterHandlers, check
from arr_coc.page.stamps import Turn, stamp_of
from arr_coc.page.visit import Visit
from arr_coc.service.intake import IntakeError

ASKED = {"picture": Image.new("RGB", (64, 64), "red"), "question": "what?", "key": "k"}


class Model:
    """Stands for the handlers that run the model: gives the record it was made with."""

    def __init__(self, *record):
        self.record, self.asked = record, []
        self.local = SimpleNamespace(visited=lambda inputs: Visit(**inputs))  # no cards

    def run(self, request):
        self.asked.append(request)
        yield self.record

    def on_waiting(self):
        return ""


@pytest.fixture
def compared(shown):  # noqa: F811
    return {**shown, "stamp": stamp_of(Visit(**ASKED), "3")}


def places(compared):
    return [[row, column] for _, row, column in compared["where"]["cells"]]


def found(compared):
    kept = places(compared)
    loss = [0.1] * len(kept)
    return {"answer": "a", "probability": 0.9, "places": kept, "loss": loss, "smallest": [0]}


def test_it_is_asked_of_the_comparison_and_shown_with_it(compared):
    model = Model("mattered", found(compared))
    handlers = MatterHandlers(model)
    asked = handlers.on_matters(Turn(3), "3", compared, **ASKED)
    assert model.asked[0].matters and model.asked[0].question == "what?"
    weighed = handlers.on_weighed(compared, asked.weighed)
    assert weighed.shown["mattered"] == found(compared)
    assert "arr-view-mattered" in weighed.look and 'data-picture="k"' in weighed.look


def test_what_comes_too_late_changes_nothing(compared):
    handlers = MatterHandlers(Model("mattered", found(compared)))
    assert handlers.on_matters(Turn(4), "3", compared, **ASKED).weighed is None
    weighed = handlers.on_matters(Turn(3), "3", compared, **ASKED).weighed
    # Meanwhile another budget's recording came, or a tension was dragged: both leave the turn as it was.
    other = {**compared, "stamp": stamp_of(Visit(**ASKED, percent=10), "3")}
    dragged = {**compared, "where": {**compared["where"], "focus": 0.1}}
    for shown_by_now in (None, other, dragged):
        assert handlers.on_weighed(shown_by_now, weighed) == Weighed()
    assert handlers.on_weighed(compared, None) == Weighed()


@pytest.mark.parametrize(
    "changes, said",
    [
        ({"question": "another?"}, matter_handlers.CHANGED),
        ({"key": "other"}, matter_handlers.CHANGED),
        ({"percent": 40}, matter_handlers.CHANGED),
        ({"tensions": [0.1, 0.2, 0.3]}, matter_handlers.CHANGED),
    ],
)
def test_what_is_another_by_now_is_refused_before_anything_runs(compared, changes, said):
    model = Model("mattered", found(compared))
    weighed = MatterHandlers(model).on_matters(Turn(), "", compared, **ASKED | changes)
    assert said in weighed.said_matter and weighed.weighed is None and not model.asked


def test_what_has_no_places_to_leave_out_is_refused(compared, monkeypatch):
    visit = Visit(**ASKED)
    assert check(compared, visit) == places(compared)
    answered = compared["result"]["where"]
    coarse = {**answered, "cells": [[1, 0, 0]]}
    for where, said in (
        (None, matter_handlers.UNDECIDED),
        ({**answered, "fallback": "none"}, matter_handlers.UNDECIDED),
        (coarse, matter_handlers.UNDECIDED),
    ):
        with pytest.raises(IntakeError, match=said):
            check({**compared, "result": {**compared["result"], "where": where}}, visit)
    dragged = {**compared, "where": {**answered, "cells": answered["cells"][1:]}}
    with pytest.raises(IntakeError, match=matter_handlers.NOT_ASKED):
        check(dragged, visit)
    with pytest.raises(IntakeError, match="not kept any more"):
        check(None, visit)
    in_rounds = {**compared, "stamp": stamp_of(Visit(**ASKED, tier="auto"), "3")}
    with pytest.raises(IntakeError, match="came in rounds"):
        check(in_rounds, Visit(**ASKED, tier="auto"))
    finer = Visit(**ASKED, native_tokens=64)
    with pytest.raises(IntakeError, match="cut into another grid"):
        check({**compared, "stamp": stamp_of(finer)}, finer)
    monkeypatch.setattr(matter_handlers, "MOST", 1)
    with pytest.raises(
        IntakeError, match=f"{len(answered['cells'])} places were kept; .* at most 1"
    ):
        check(compared, visit)


@pytest.mark.parametrize("record", [("error", "no <memory>"), ("mattered", None)])
def test_what_fails_is_a_sentence(compared, record):
    if record[1] is None:
        record = ("mattered", {**found(compared), "places": [[0, 0]]})
    weighed = MatterHandlers(Model(*record)).on_matters(Turn(), "", compared, **ASKED)
    assert 'role="status"' in weighed.said_matter and weighed.weighed is None
    assert "<memory>" not in weighed.said_matter
