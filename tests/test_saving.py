"""A base that is written over an earlier one is never met as half of each, in one file or in shards."""

import json
from pathlib import Path

import pytest
import torch
from conftest import tiny_host
from safetensors.torch import load_file

from arr_coc import digests
from arr_coc.pretrain import saving
from arr_coc.qwen.model import ARRCOCQwen

SMALL = 2_500_000  # bytes: the tiny model then has some shards


@pytest.fixture(scope="module")
def hosts():
    """Two models of one shape, the second all zeros."""
    first, second = tiny_host(), tiny_host()
    with torch.no_grad():
        for parameter in second.model.parameters():
            parameter.zero_()
    return first, second


def write(folder, host, most_bytes=SMALL):
    saving.save(folder, host.model, host.tokenizer, "a card", most_bytes=most_bytes)


def largest(folder):
    return max(path.stat().st_size for path in digests.weights_files(folder))


def is_zero(folder):
    """Whether what a reader meets there is the second model; None for a model of both."""
    zero = set()
    for file in digests.weights_files(folder):
        tensors = load_file(file).items()
        zero |= {not bool(value.any()) for key, value in tensors if key.endswith("proj.weight")}
    return zero.pop() if len(zero) == 1 else None


def test_large_weights_go_into_shards_that_load(tmp_path, hosts, picture):
    write(tmp_path / "base", hosts[0])
    files = digests.weights_files(tmp_path / "base")
    assert len(files) > 2 and not (tmp_path / "base" / digests.WEIGHTS).exists()
    host = ARRCOCQwen.from_pretrained(tmp_path / "base", components="")
    assert host.generate(picture, "what?", max_new_tokens=2).done and host.name == "base"
    # No file is larger than was asked for, but for tensors that are so alone.
    tensors = [value.numel() * 2 for value in hosts[0].model.state_dict().values()]
    assert largest(tmp_path / "base") < max(SMALL, *tensors) + 10_000
    assert not (tmp_path / "base.writing").exists()


def test_a_small_base_stays_one_file(tmp_path, hosts):
    write(tmp_path / "base", hosts[0], saving.MOST_BYTES)
    assert digests.weights_files(tmp_path / "base") == [tmp_path / "base" / digests.WEIGHTS]


@pytest.mark.parametrize("before", [SMALL, saving.MOST_BYTES])
@pytest.mark.parametrize("after", [SMALL, saving.MOST_BYTES])
def test_whoever_reads_meanwhile_meets_one_model(tmp_path, hosts, monkeypatch, before, after):
    first, second = hosts
    folder, met = tmp_path / "base", []
    write(folder, first, before)

    def watched(real):
        def step(*args, **kwargs):
            done = real(*args, **kwargs)
            touched = Path(args[-1] if real is replace else args[0])
            if touched.parent == folder and "model" in touched.name:
                met.append(is_zero(folder))
            return done

        return step

    replace, unlink = saving.os.replace, Path.unlink
    monkeypatch.setattr(saving.os, "replace", watched(replace))
    monkeypatch.setattr(Path, "unlink", watched(unlink))
    write(folder, second, after)
    monkeypatch.undo()
    assert None not in met and met == sorted(met) and met[-1] is True
    index = folder / digests.INDEX
    named = set(json.loads(index.read_text())["weight_map"].values()) if index.exists() else set()
    left = {path.name for path in folder.glob("*.safetensors*")} - {digests.INDEX}
    assert left == (named or {digests.WEIGHTS}), "nothing of the earlier save is left"
