"""A checkpoint that is not whole is refused in one sentence that names the file."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from arr_coc.config import Config
from arr_coc.qwen import ARRCOCQwen, loading
from arr_coc.qwen.loading import BUNDLED_BASE

WEIGHTS = "model.safetensors"
SHARDS = [path.name for path in BUNDLED_BASE.glob("*.safetensors*")]
MLP = "model.language_model.layers.1.mlp.up_proj.weight"


@pytest.fixture
def folder(tmp_path):
    """The bundled base with its weights in one file, however many it comes in."""
    shutil.copytree(BUNDLED_BASE, tmp_path / "base", ignore=lambda *_: SHARDS)
    shards = BUNDLED_BASE.glob("*.safetensors")
    tensors = {name: tensor for shard in shards for name, tensor in load_file(shard).items()}
    save_file(tensors, tmp_path / "base" / WEIGHTS, metadata={"format": "pt"})
    return tmp_path / "base"


def changed(folder, change):
    """The folder with its tensors changed by a function of their dict."""
    tensors = load_file(folder / WEIGHTS)
    change(tensors)
    save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})


def edited(folder, file, **values):
    known = json.loads((folder / file).read_text())
    (folder / file).write_text(json.dumps({k: v for k, v in (known | values).items() if v != ...}))


def half(tensors):
    tensors[MLP] = tensors[MLP][:7].clone()


BROKEN = {
    "a layer without its MLP": (
        lambda f: changed(f, lambda t: t.pop(MLP)),
        f"lacks 1 of the model's tensors in its safetensors files, the first is '{MLP}'",
    ),
    "a tensor of another shape": (lambda f: changed(f, half), MLP),
    "no tokenizer": (
        lambda f: [(f / n).unlink() for n in ("tokenizer.json", "tokenizer_config.json")],
        "in its tokenizer.json",  # transformers makes an empty one
    ),
    "a damaged tokenizer": (
        lambda f: (f / "tokenizer.json").write_text("{"),
        "has no tokenizer.json that can be read",
    ),
    "no chat template": (
        lambda f: (f / "chat_template.jinja").unlink(),
        "has no chat_template.jinja",
    ),
    "a template without pictures": (
        lambda f: (f / "chat_template.jinja").write_text("{{ messages[0].role }}"),
        "writes '<|image_pad|>' 0 times for one picture, expected once",
    ),
    "another image token": (
        lambda f: edited(f, "config.json", image_token_id=999_999),
        "has no token 999999 in its tokenizer.json",
    ),
    "no preprocessor": (
        lambda f: (f / "preprocessor_config.json").unlink(),
        "has no preprocessor_config.json that can be read",
    ),
    "a damaged config": (
        lambda f: (f / "config.json").write_text("{"),
        "has no config.json that can be read: Expecting",
    ),
    "a config that is a list": (
        lambda f: (f / "config.json").write_text("[]"),
        "has no config.json that can be read: it holds no names",
    ),
    "no weights": (lambda f: (f / WEIGHTS).unlink(), "cannot be read"),
    "another model": (
        lambda f: edited(f, "config.json", model_type="llama"),
        "is a llama, expected a Qwen3-VL checkpoint",
    ),
}


@pytest.mark.parametrize("name", list(BROKEN))
def test_a_broken_folder_is_refused_by_name(folder, name):
    damage, said = BROKEN[name]
    damage(folder)
    with pytest.raises(ValueError) as caught:
        ARRCOCQwen.from_pretrained(folder, components="")
    message = str(caught.value)
    assert said in message and str(folder) in message and "\n" not in message


def test_tensors_beyond_the_model_are_a_notice(folder):
    changed(folder, lambda t: t.update({"mtp.fc.weight": torch.zeros(2)}))
    host = ARRCOCQwen.from_pretrained(folder, components="")
    assert any("1 tensors that Qwen3-VL has no place for" in notice for notice in host.notices)
    assert ARRCOCQwen.from_pretrained(BUNDLED_BASE).notices == []


def test_the_dtype_can_be_named(monkeypatch, picture):
    monkeypatch.setenv("ARR_COC_DTYPE", "bfloat16")
    host = ARRCOCQwen.from_pretrained(BUNDLED_BASE)
    assert host.model.dtype == torch.bfloat16
    answer = host.generate(picture, "what is it?", config=Config(), max_new_tokens=2)
    assert answer.realization.fallback is None
    monkeypatch.setenv("ARR_COC_DTYPE", "int8")
    with pytest.raises(ValueError, match="ARR_COC_DTYPE is 'int8', expected one of auto, float32"):
        loading.default_dtype(torch.device("cpu"))
    # A name that is given comes before the variable, and auto is what suits the device.
    assert loading.default_dtype(torch.device("cpu"), "float16") == torch.float16
    assert loading.default_dtype(torch.device("cpu"), "auto") == torch.float32
    with pytest.raises(ValueError, match="dtype is 'half', expected one of auto"):
        ARRCOCQwen.from_pretrained(BUNDLED_BASE, dtype="half")
