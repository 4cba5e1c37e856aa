"""Comparing: one service, plain records, and either look survives the other's failure."""

import pickle
from dataclasses import dataclass, field, replace
from types import SimpleNamespace

import pytest
import torch
from PIL import Image

from arr_coc import config
from arr_coc.attending import TopK
from arr_coc.balancing import FIXED
from arr_coc.config import NEW_TOKENS, Config, Tensions
from arr_coc.page import frame, parts
from arr_coc.service import comparing, errors, intake
from arr_coc.service.decision import Where, allocation_of
from arr_coc.service.looks import ComparisonResult, LookResult


@dataclass(frozen=True)
class Measures:
    stages: dict = field(default_factory=lambda: {"encode": 0.25, "prefill": 0.125})
    time_to_first_token: float = 0.5
    decode_tokens_per_second: float = 20.0
    new_tokens: int = 3
    visual_tokens: int = 48
    visual_tokens_full: int = 48
    kv_cache_bytes: int = 4096
    peak_memory_bytes: int = 10**8
    peak_memory_kind: str = "peak resident memory of the process"
    first_token_entropy: float = 0.5


def decision():
    relevance = torch.linspace(0, 1, 48).reshape(1, 6, 8)
    return SimpleNamespace(
        grid=(6, 8),
        budget=9,
        config=SimpleNamespace(allocator="topk", glance="off", prune="before"),
        glance=None,
        relevance=relevance,
        propositional=relevance,
        perspectival=relevance.flip(1),
        participatory=None,
        participatory_source="none",
        allocation=TopK()(relevance[0], 9),
        kept_glance=None,
        tensions=Tensions(0.2, 0.5, 0.8),
        tension_source="lexical prior",
        policy_tensions=None,
        rounds=(),
        scalars=FIXED,
        fallback=None,
    )


class Fake:
    """Stands in for the model: answers at once, and fails where it is told to."""

    name, is_bundled, device = "fake", True, torch.device("cpu")

    def __init__(self, fail_full=None, fail_focused=None):
        self.failures = {False: fail_full, True: fail_focused}
        self.calls = []

    def stream(
        self, image, question, *, use_arr_coc, config=None, max_new_tokens, deadline_s, grid=None
    ):
        self.calls.append((use_arr_coc, config, question, image.size, max_new_tokens, grid))
        answer = SimpleNamespace(text="", stage="encode", done=False, measures=None)
        answer.realization = None
        yield answer
        if failure := self.failures[use_arr_coc]:
            raise failure
        measures = Measures()
        if use_arr_coc:
            measures = replace(measures, time_to_first_token=0.2, visual_tokens=9)
        yield SimpleNamespace(
            text="red",
            stage="done",
            done=True,
            measures=measures,
            realization=decision() if use_arr_coc else None,
        )


def request(**changes):
    return comparing.check(Image.new("RGB", (256, 192), "red"), " what colour? ", **changes)


def test_records_come_in_order_and_survive_pickling():
    model = Fake()
    records = pickle.loads(pickle.dumps(list(comparing.compare_stream(model, request()))))
    assert [kind for kind, _ in records] == ["full", "full", "focused", "focused", "result"]
    result = records[-1][1]
    assert set(result) == set(ComparisonResult.__annotations__)
    assert set(result["full"]) == set(LookResult.__annotations__)
    assert set(result["where"]) == set(Where.__required_keys__)
    assert (result["tokens_kept"], result["tokens_total"], result["ratio"]) == (9, 48, 2.5)
    assert result["full"]["text"] == result["focused"]["text"] == "red"
    assert [call[0] for call in model.calls] == [False, True]
    assert model.calls[0][2:5] == ("what colour?", (256, 192), NEW_TOKENS)
    allocation = allocation_of(result["where"])
    assert (allocation.cells == decision().allocation.cells).all()


def test_only_plain_values_leave():
    def plain(value):
        if isinstance(value, dict):
            return all(isinstance(key, str) and plain(item) for key, item in value.items())
        if isinstance(value, list):
            return all(plain(item) for item in value)
        return value is None or type(value) in (str, int, float, bool)

    assert plain(comparing.compare(Fake(), Image.new("RGB", (64, 64)), "q?"))


def test_the_stock_answer_stands_when_the_focused_look_fails():
    model = Fake(fail_focused=RuntimeError("secret /home/path"))
    result = comparing.last(comparing.compare_stream(model, request()))
    assert result["full"]["text"] == "red" and result["full"]["error"] is None
    assert "RuntimeError" in result["focused"]["error"]
    assert "secret" not in result["focused"]["error"]
    assert result["ratio"] is None and result["where"] is None


def test_the_focused_answer_stands_when_the_stock_look_fails():
    result = comparing.last(comparing.compare_stream(Fake(fail_full=MemoryError()), request()))
    assert "memory" in result["full"]["error"]
    assert result["focused"]["text"] == "red" and result["where"] is not None


def test_the_shrunk_picture_has_as_many_tokens_and_comes_last():
    model = Fake()
    records = list(comparing.compare_stream(model, request(shrunk=True)))
    kinds = [kind for kind, _ in records]
    assert kinds == ["full"] * 2 + ["focused"] * 2 + ["shrunk"] * 2 + ["result"]
    rows, columns = model.calls[2][-1]
    assert (rows, columns) == (3, 3) and model.calls[0][-1] is None
    result = records[-1][1]
    assert result["shrunk"]["visual_tokens_full"] == 48
    assert comparing.last(comparing.compare_stream(model, request()))["shrunk"] is None


def test_settings_reach_the_config():
    reached = request(tensions=[0.1, 0.2, 0.3], allocator="quadtree", tier="fast").config
    assert (reached.allocator, reached.tier, reached.tensions) == (
        "quadtree",
        "fast",
        Tensions(0.1, 0.2, 0.3),
    )
    assert request().config.tensions is None
    assert request(share="auto").config.is_auto
    for other in ({"prune": "after"}, {"allocator": "quadtree"}):
        with pytest.raises(intake.IntakeError, match='share "auto" spends tokens in rounds'):
            request(share="auto", **other)
    with pytest.raises(intake.IntakeError, match="share of tokens is of type str"):
        request(share="some")


def test_a_request_has_the_package_s_defaults_and_crosses_to_another_process():
    checked = request()
    assert checked.config == Config() and checked.max_new_tokens == NEW_TOKENS
    back = pickle.loads(pickle.dumps(replace(checked, questions=("a?",), native_tokens=64)))
    assert (back.config, back.question, back.questions) == (checked.config, "what colour?", ("a?",))
    assert back.image.tobytes() == checked.image.tobytes()


def test_a_budget_over_the_picture_names_both_numbers():
    result = comparing.last(comparing.compare_stream(Fake(), request(budget=900)))
    assert result["full"]["text"] == "red"
    assert "900" in result["focused"]["error"] and "48" in result["focused"]["error"]


@pytest.mark.parametrize(
    "changes",
    [
        {"share": 20},
        {"budget": 0},
        {"glance": "sideways"},
        {"prune": "during"},
        {"max_new_tokens": 10**6},
        {"allocator": "best"},
        {"tier": "slow"},
        {"tensions": [0.1, 0.2]},
        {"tensions": [0.1, 0.2, float("nan")]},
        {"tensions": "abc"},
    ],
)
def test_the_door(changes):
    with pytest.raises(intake.IntakeError, match="allowed"):
        request(**changes)


def test_sentences_tell_no_paths():
    assert errors.sentence(ValueError("budget 9 exceeds 4")) == "budget 9 exceeds 4"
    assert "/" not in errors.sentence(ValueError("no file /srv/model"))
    assert "OSError" in errors.sentence(OSError("/srv"))
    assert "too long" in errors.sentence(TimeoutError())


def test_warm_up_runs_once_per_model():
    model = Fake()
    calls = []
    model.warm_up = lambda: calls.append(1)
    comparing.warm_up(model)
    comparing.warm_up(model)
    assert calls == [1]


def test_on_the_bundled_base(bundled, picture):
    result = comparing.compare(bundled, picture, "what colour is the ball?", share=0.3)
    assert result["bundled"] and result["model"] and result["device"] == "cpu"
    assert 0 < result["tokens_kept"] <= 0.3 * result["tokens_total"]
    assert result["where"]["fallback"] is None and result["ratio"] > 0
    rows, columns = result["where"]["grid"]
    assert rows * columns == result["tokens_total"]
    assert len(result["where"]["relevance"]) == rows


def test_shrunk_is_the_stock_model_on_the_resized_picture(bundled, picture):
    from arr_coc.peers.before import Downsample

    result = comparing.compare(bundled, picture, "what is this?", shrunk=True, max_new_tokens=2)
    kept = result["tokens_kept"]
    with torch.inference_mode():
        reduced = Downsample()(
            bundled, bundled.prepare(picture, "what is this?"), "what is this?", kept
        )
    assert result["shrunk"]["visual_tokens"] == reduced.visual_tokens <= kept
    assert result["shrunk"]["stages_s"]["glance"] == 0
    looks = [result[look] for look in ("full", "focused", "shrunk")]
    assert all(0 <= look["first_token_entropy"] < 12 for look in looks)


def test_the_choices_offered_are_those_of_the_package():
    offered = [
        parts.ALLOCATOR_CHOICES,
        frame.GLANCE_CHOICES,
        frame.PRUNE_CHOICES,
        parts.TIER_CHOICES,
    ]
    allocators, glances, prunes, tiers = [[value for _, value in pairs] for pairs in offered]
    assert sorted(allocators) == sorted(config.ALLOCATORS)
    assert sorted(glances) == sorted(config.GLANCES) and sorted(prunes) == sorted(config.PRUNES)
    assert sorted(tiers) == sorted(["share", config.AUTO, *config.TIER_NAMES])
