"""The bound of share "auto": chosen by what it loses and spends, and written beside the weights."""

import json

import pytest
import torch

from arr_coc.components import for_base
from arr_coc.config import Config
from arr_coc.qwen import rounds
from arr_coc.qwen.loading import BUNDLED_BASE
from arr_coc.qwen.model import ARRCOCQwen
from arr_coc.qwen.weights import save_components
from arr_coc.train import unsure


def entry(minus, share):
    return {"minus_usual": {"value": minus}, "share": {"all": {"mean": share}}}


def test_the_bound_that_reads_least_and_loses_little_is_chosen():
    found = {0.1: entry(0.0, 0.18), 0.5: entry(-0.004, 0.11), 1.0: entry(-0.02, 0.06)}
    assert unsure.chosen(found, 0.005) == 0.5
    assert unsure.chosen(found, 0.03) == 1.0
    assert unsure.chosen({0.1: entry(-0.1, 0.18), 0.5: entry(-0.2, 0.1)}, 0.005) == 0.1


def test_where_all_bounds_lose_much_the_one_that_loses_least_and_reads_least_is_chosen():
    found = {
        0.1: entry(-0.1, 0.18),
        0.5: entry(-0.05, 0.15),
        0.8: entry(-0.05, 0.1),
        1.0: entry(-0.2, 0.05),
    }
    assert unsure.chosen(found, 0.005) == 0.8


def test_what_rounds_came_to_is_paired_with_the_usual_share_by_kind():
    def row(picture, kind, right, tokens):
        return {"picture": picture, "kind": kind, "right": right, "tokens": tokens, "native": 100}

    usual = [row("1", "a", 1, 20), row("2", "a", 1, 20), row("3", "b", 1, 20)]
    few = [row("1", "a", 1, 5), row("2", "a", 0, 15), row("3", "b", 1, 10)]
    found = unsure.compared(usual, few)
    assert found["minus_usual"]["value"] == -0.25 and found["right"]["value"] == 0.75  # kinds alike
    assert found["share"]["all"]["mean"] == 0.1 and found["share"]["a"]["mean"] == 0.1
    assert found["share"]["b"] == {"mean": 0.1, "p95": 0.1}


def test_the_command_writes_the_same_weights_with_the_bound(tmp_path, bundled, capsys, monkeypatch):
    monkeypatch.setattr(rounds, "AUTO_MASS", 1e-6)  # weights that know nothing ask for everything
    torch.manual_seed(0)
    parts = for_base(bundled.model.config, bundled.attention_layers, ["policy"])
    save_components(parts, tmp_path / "before", base="b", **bundled.identity())
    out = tmp_path / "after"
    words = ["--weights", str(tmp_path / "before"), "--out", str(out), "--n", "1", "--threads", "1"]
    unsure.main([*words, "--kinds", "colour", "number", "--bounds", "0.2", "9"])
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    report = json.loads((out / "unsure.json").read_text())
    assert report["bounds"].keys() == {"0.2", "9"} and told["unsure"] == report["unsure"]
    assert report["bounds"]["9"]["share"]["all"]["mean"] <= 0.1  # sure at once: the first round
    loaded = ARRCOCQwen.from_pretrained(BUNDLED_BASE, str(out)).policy(Config())
    assert loaded.unsure == report["unsure"]
    for one, other in zip(loaded.parameters(), parts.parameters(), strict=True):
        assert torch.equal(one, other)


def test_without_weights_there_is_nothing_to_write_into(tmp_path):
    with pytest.raises(ValueError, match="name some by --weights"):
        unsure.main(["--weights", "", "--out", str(tmp_path)])
