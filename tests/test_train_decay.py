"""How long relevance lasts in a clip: chosen by what is answered, and written beside the weights."""

import json

import pytest
import torch

from arr_coc.components import for_base
from arr_coc.config import Config, Pace
from arr_coc.qwen.loading import BUNDLED_BASE
from arr_coc.qwen.model import ARRCOCQwen
from arr_coc.qwen.weights import BUNDLED_WEIGHTS, CONFIG, TRAINING, save_components
from arr_coc.train import decay
from arr_coc.train.publishing import runs_of

OWN = Pace(0.5, 1.25, 0.0)


def test_the_longest_decay_that_loses_little_is_chosen():
    found = {
        own: {"right": {"value": right}}
        for own, right in {0.0: 0.70, 0.1: 0.71, 0.3: 0.706, 0.7: 0.69}.items()
    }
    assert decay.chosen(found, 0.005) == 0.3
    assert decay.chosen(found, 0.0) == 0.1
    assert decay.chosen(found, 0.02) == 0.7
    assert decay.chosen(found, 0.005, "boost") == 0.1


def test_a_decay_is_paired_with_the_weights_own_by_kind():
    def row(picture, kind, right, cosine):
        return {
            "picture": picture,
            "kind": kind,
            "right": right,
            "covered_area": None if kind == "b" else 0.5,
            "cosine": cosine,
        }

    before = [row("1", "a", 1, 0.9), row("2", "a", 1, 0.9), row("3", "b", 1, 0.9)]
    rows = [row("1", "a", 1, 0.8), row("2", "a", 0, None), row("3", "b", 1, 0.6)]
    found = decay.compared(before, rows)
    assert found["n"] == 3 and found["kinds"] == {"a": 0.5, "b": 1.0}
    assert found["right"]["value"] == 0.75 and found["minus_own"]["value"] == -0.25  # kinds alike
    assert found["covered_area"] == 0.5 and found["cosine"] == pytest.approx(0.7)


def test_the_command_writes_the_same_weights_with_the_decay(tmp_path, bundled, capsys):
    torch.manual_seed(0)
    parts = for_base(bundled.model.config, bundled.attention_layers, ["policy"])
    parts = parts.with_numbers(pace=OWN)
    save_components(parts, tmp_path / "before", base="b", **bundled.identity())
    (tmp_path / "before" / TRAINING).write_text('{"runs": [{"steps": 3}]}')
    out = tmp_path / "after"
    words = ["--weights", str(tmp_path / "before"), "--out", str(out), "--n", "1", "--threads", "1"]
    words += ["--kinds", "colour", "--groups", "4", "--loss", "1"]
    decay.main([*words, "--decays", "0.9"])
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    report = json.loads((out / "decay.json").read_text())
    assert report["decays"].keys() == {"0.5", "0.9"} and report["own"] == 0.5
    assert told["decay"] == report["decay"] == 0.9
    assert runs_of(out) == [{"steps": 3}], "of the weights, whatever their numbers became"
    loaded = ARRCOCQwen.from_pretrained(BUNDLED_BASE, str(out)).policy(Config())
    assert loaded.pace == OWN._replace(decay=0.9)
    for one, other in zip(loaded.parameters(), parts.parameters(), strict=True):
        assert torch.equal(one, other)
    decay.main([*words, "--boosts", "3"])
    report = json.loads((out / "boost.json").read_text())
    assert report["boosts"].keys() == {"1.25", "3"} and report["own"] == report["boost"] == 1.25


def test_the_bundled_weights_hold_what_was_chosen_for_them():
    told = json.loads((BUNDLED_WEIGHTS / "decay.json").read_text())
    config = json.loads((BUNDLED_WEIGHTS / CONFIG).read_text())
    assert config["pace"]["decay"] == told["decay"]
    found = {float(name): own for name, own in told["decays"].items()}
    assert decay.chosen(found, decay.LOSS) == told["decay"]
    told = json.loads((BUNDLED_WEIGHTS / "boost.json").read_text())
    assert config["pace"]["boost"] == told["boost"]
    found = {float(name): own for name, own in told["boosts"].items()}
    assert decay.chosen(found, decay.LOSS, "boost") == told["boost"]


def test_without_weights_there_is_nothing_to_write_into(tmp_path):
    with pytest.raises(ValueError, match="name some by --weights"):
        decay.main(["--weights", "", "--out", str(tmp_path)])
