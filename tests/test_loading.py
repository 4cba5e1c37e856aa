"""Loading: real folders of another kind, missing ones, weights for another base, the environment."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file
from transformers import BertConfig, BertModel

from arr_coc import components, digests
from arr_coc.balancing import Combiner, TensionPolicy
from arr_coc.config import Config
from arr_coc.qwen import loading
from arr_coc.qwen import weights as qwen_weights
from arr_coc.qwen.model import ARRCOCQwen

# The bundled base's text hidden size, which weights for it must match.
CONFIG = json.loads((loading.BUNDLED_BASE / "config.json").read_text())
SIZE = CONFIG["text_config"]["hidden_size"]
MARK = "0" * 16  # a fingerprint, where none is compared


def save(folder, *, size=SIZE, base="a base", mark=MARK, policy=None):
    """Weights that hold a tension policy alone."""
    found = components.Components({"policy": policy or TensionPolicy(size)})
    qwen_weights.save_components(found, folder, base=base, embedding_size=size, fingerprint=mark)
    return found


@pytest.fixture
def another_architecture(tmp_path):
    config = BertConfig(
        vocab_size=20,
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=1,
        intermediate_size=8,
    )
    BertModel(config).save_pretrained(tmp_path / "bert")
    return tmp_path / "bert"


def test_a_base_that_is_not_qwen3_vl_is_named(another_architecture):
    with pytest.raises(ValueError, match=r"is a bert, expected a Qwen3-VL checkpoint"):
        ARRCOCQwen.from_pretrained(another_architecture)


def test_the_bundled_base_has_a_name():
    assert loading.load_base("bundled").is_bundled


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(ValueError, match="does not exist, expected a folder or a Hub id"):
        ARRCOCQwen.from_pretrained(tmp_path / "nothing")
    with pytest.raises(ValueError, match=r"has no config\.json"):
        ARRCOCQwen.from_pretrained(tmp_path)


def test_an_id_the_hub_does_not_give_is_named():
    with pytest.raises(ValueError, match="'nobody/nothing' is neither a local folder nor a model"):
        ARRCOCQwen.from_pretrained("nobody/nothing")


def test_weights_make_a_round_trip_and_are_used(tmp_path, picture, bundled):
    parts = components.for_base(bundled.model.config, [1], list(components.PARTS))
    with torch.no_grad():
        parts.adapter.gates.fill_(0.5)
    qwen_weights.save_components(parts, tmp_path / "weights", base="a base", **bundled.identity())
    host = ARRCOCQwen.from_pretrained(components=tmp_path / "weights")
    loaded = host.policies["default"]
    assert loaded.names == list(components.PARTS)
    stored = load_file(tmp_path / "weights" / qwen_weights.WEIGHTS)
    narrow = {key for key, tensor in stored.items() if tensor.dtype == torch.bfloat16}
    assert {key.split(".")[0] for key in narrow} == {"scan"}
    for key, tensor in parts.state_dict().items():
        kept = tensor.bfloat16().float() if key in narrow else tensor
        assert torch.equal(kept, loaded.state_dict()[key]), key
    realization = host.realize(picture, "is there a car?")
    assert realization.fallback is None
    assert realization.tension_source == "learned"
    assert realization.participatory_source == "glance and texture and scan"
    ask = host.prepare(picture, "is there a car?")
    with torch.inference_mode():
        adapted = host.encode(ask.picture, realization)
        host.policies["default"].adapter.gates.zero_()
        plain = host.encode(ask.picture, realization)
    assert not torch.equal(adapted.features, plain.features)
    assert not torch.equal(adapted.deepstack[-1], plain.deepstack[-1])


def test_weights_that_cannot_be_used_are_refused_or_left_out_with_a_notice(
    tmp_path, monkeypatch, bundled
):
    save(tmp_path, size=12)
    with pytest.raises(qwen_weights.WeightsError, match="hidden size 12"):
        ARRCOCQwen.from_pretrained(components=tmp_path)
    host = ARRCOCQwen.from_pretrained(components=tmp_path, on_bad_weights="notice")
    assert host.policies == {} and len(host.notices) == 1 and "hidden size 12" in host.notices[0]
    assert bundled.notices == []


def test_a_model_loaded_in_inference_mode_can_be_trained_through():
    with torch.inference_mode():
        host = ARRCOCQwen.from_pretrained()
    tensors = [*host.model.parameters(), *host.model.buffers()]
    tensors += [p for policy in host.policies.values() for p in policy.parameters()]
    assert host.policies and not any(tensor.is_inference() for tensor in tensors)


def test_training_free_can_be_chosen_beside_weights(tmp_path, picture, bundled):
    free = bundled.realize(picture, "is there a car?", Config(revision="none"))
    save(tmp_path, mark=bundled.identity()["fingerprint"])
    host = ARRCOCQwen.from_pretrained(components=tmp_path)
    found = host.realize(picture, "is there a car?", Config(revision="none"))
    assert found.tensions == free.tensions and found.tension_source == "lexical prior"
    assert torch.equal(found.relevance, free.relevance)


def test_weights_for_another_base_of_the_same_size_name_both(tmp_path):
    save(tmp_path, base="some/sibling")
    with pytest.raises(
        ValueError,
        match=r"made for 'some/sibling' \(fingerprint 0{16}\), the base is 'bundled base'",
    ):
        ARRCOCQwen.from_pretrained(components=tmp_path)


def test_a_fingerprint_outlives_rounding_and_not_training(tiny):
    model, before = tiny.model, components.fingerprint(tiny.model)
    table = model.get_input_embeddings().weight
    original = table.data
    try:
        for dtype in (torch.bfloat16, torch.float16):
            table.data = original.to(dtype)
            assert components.fingerprint(model) == before
        table.data = original + 0.02 * torch.randn_like(original)
        assert components.fingerprint(model) != before
    finally:
        table.data = original


def test_revisions_of_the_environment_are_loaded_and_chosen_by_name(
    tmp_path, monkeypatch, picture, bundled
):
    save(tmp_path / "weights", mark=bundled.identity()["fingerprint"])
    monkeypatch.setenv("ARR_COC_WEIGHTS", str(tmp_path / "weights"))
    monkeypatch.setenv("ARR_COC_REVISIONS", "v2, v1")
    host = ARRCOCQwen.from_pretrained()
    assert list(host.policies) == ["v2", "v1"]
    assert host.policy(Config()) is host.policies["v2"]
    assert host.policy(Config(revision="v1")) is host.policies["v1"]
    with pytest.raises(ValueError, match="revision is 'v3', loaded: v2, v1"):
        host.generate(picture, "is there a car?", config=Config(revision="v3"))


def test_weights_of_another_base_leave_the_bundled_one_its_own_where_it_came_by_itself(
    tmp_path, monkeypatch
):
    save(tmp_path, base="Qwen/another")
    monkeypatch.delenv("ARR_COC_BASE", raising=False)
    monkeypatch.setenv("ARR_COC_WEIGHTS", str(tmp_path))
    host = ARRCOCQwen.from_pretrained(on_bad_weights="notice")
    assert host.policies["default"].scan is not None
    assert "made for 'Qwen/another'" in host.notices[0] and "own weights" in host.notices[1]
    monkeypatch.setenv("ARR_COC_BASE", str(loading.BUNDLED_BASE))
    assert not ARRCOCQwen.from_pretrained(on_bad_weights="notice").policies


@pytest.mark.parametrize(
    ("device", "said"),
    [
        ("gpu", "device is 'gpu', expected cpu, cuda or cuda:N"),
        ("cuda:7", "device is cuda:7, but this machine has .*'cpu' is allowed"),
    ],
)
def test_a_device_that_is_none_is_said_before_weights_are_read(device, said, monkeypatch):
    monkeypatch.setattr(loading.fetching, "fetched", lambda *_: 1 / 0)
    with pytest.raises(ValueError, match=said):
        loading.load_base(loading.BUNDLED_BASE, device=device)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert loading.device_of("cuda:1").index == 1
    with pytest.raises(ValueError, match="2 CUDA devices: 'cpu' is allowed, or cuda:0 to cuda:1"):
        loading.device_of("cuda:2")


def test_a_gpu_that_torch_cannot_use_is_said_on_a_space(monkeypatch, tmp_path):
    monkeypatch.setattr(loading, "GPU_FILE", tmp_path)
    assert not loading.load_base(loading.BUNDLED_BASE, device="cpu").notices
    monkeypatch.setenv("SPACE_ID", "someone/space")
    (said,) = loading.load_base(loading.BUNDLED_BASE, device="cpu").notices
    assert "GPU that torch cannot use" in said


def test_the_base_that_runs_may_be_pinned(monkeypatch):
    asked = []

    def never(base, *_, revision, **__):
        asked.append(revision)
        raise ConnectionError

    monkeypatch.setattr("huggingface_hub.hf_hub_download", never)
    monkeypatch.setenv("ARR_COC_BASE", "some/base")
    monkeypatch.setenv("ARR_COC_BASE_REVISION", "v1")
    for base in (None, "some/other"):
        with pytest.raises(loading.NotFetched, match="the Hub cannot be reached"):
            loading.load_base(base, device="cpu")
    assert asked == ["v1", None]


def test_without_weights_nothing_is_fetched(monkeypatch):
    monkeypatch.setattr(qwen_weights, "snapshot_download", lambda *_, **__: pytest.fail("network"))
    assert ARRCOCQwen.from_pretrained(components="").policies == {}


def test_the_bundled_base_has_weights_of_its_own_which_an_empty_name_leaves_out(
    monkeypatch, tmp_path
):
    monkeypatch.delenv("ARR_COC_WEIGHTS", raising=False)
    monkeypatch.setattr(qwen_weights, "BUNDLED_WEIGHTS", tmp_path)
    assert qwen_weights.default_weights(is_bundled=True) == str(tmp_path)
    assert qwen_weights.default_weights(is_bundled=False) is None
    monkeypatch.setenv("ARR_COC_WEIGHTS", "")
    assert qwen_weights.default_weights(is_bundled=True) == ""
    monkeypatch.setenv("ARR_COC_WEIGHTS", "org/weights")
    assert qwen_weights.default_weights(is_bundled=True) == "org/weights"
    monkeypatch.delenv("ARR_COC_WEIGHTS")
    monkeypatch.setattr(qwen_weights, "BUNDLED_WEIGHTS", tmp_path / "gone")
    assert qwen_weights.default_weights(is_bundled=True) is None


def test_weights_for_another_base_name_both(tmp_path):
    save(tmp_path, size=12, base="some/other-base")
    with pytest.raises(ValueError, match=rf"made for 'some/other-base' \(hidden size 12\).*{SIZE}"):
        ARRCOCQwen.from_pretrained(components=tmp_path)


def test_weights_of_another_format_are_refused(tmp_path):
    save(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"format_version": 99}))
    with pytest.raises(ValueError, match="format_version 99, expected 3"):
        ARRCOCQwen.from_pretrained(components=tmp_path)


# Its width cannot be divided among heads.
ODD_ADAPTER = {"feature_size": SIZE, "planes": 3, "width": 97, "attends": True}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"embedding_size": None}, "embedding_size None, expected a positive integer"),
        ({"parts": {"policy": {"embedding_size": SIZE, "hidden_size": 7}}}, "do not fit their"),
        ({"context": "halo"}, "context 'halo', expected one of auto, glance, cells, none"),
        ({"parts": {"policy": {"width": 7}}}, r"do not fit their config\.json: parts have sizes"),
        ({"parts": {"brain": {}}}, "expected some of policy, combiner"),
        ({"parts": None}, "do not fit their config.json: parts are None"),
        ({"parts": {"adapter": ODD_ADAPTER}}, "do not fit their config.json: parts have sizes"),
        ({"pace": {"decay": 0.5, "boost": 1.5, "lean": float("nan")}}, "have pace .*, expected"),
    ],
)
def test_weights_whose_config_is_wrong_are_refused(tmp_path, change, said):
    save(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | change))
    with pytest.raises(qwen_weights.WeightsError, match=said):
        qwen_weights.load_components(tmp_path, None, base="b", embedding_size=SIZE)


def test_weights_that_are_not_finite_are_refused(tmp_path):
    policy = TensionPolicy(SIZE)
    policy.layers[0].bias.data[3] = torch.nan
    save(tmp_path, policy=policy)
    with pytest.raises(
        qwen_weights.WeightsError, match=r"policy\.layers\.0\.bias holds values that are not finite"
    ):
        qwen_weights.load_components(tmp_path, None, base="b", embedding_size=SIZE)


def test_a_pickle_beside_the_config_is_named_and_not_read(tmp_path):
    save(tmp_path)
    (tmp_path / "model.safetensors").rename(tmp_path / "pytorch_model.bin")
    with pytest.raises(
        qwen_weights.WeightsError, match=r"only pytorch_model\.bin; pickled weights are"
    ):
        qwen_weights.load_components(tmp_path, None, base="b", embedding_size=SIZE)


@pytest.mark.parametrize("case", ["truncated", "pickle"])
def test_a_base_that_cannot_be_read_is_said_plainly(tmp_path, case):
    folder = tmp_path / "base"
    shutil.copytree(loading.BUNDLED_BASE, folder)
    for file in digests.weights_files(folder):
        if case == "truncated":
            file.write_bytes(file.read_bytes()[:100_000])
        else:
            file.rename(folder / "pytorch_model.bin")
    if case == "pickle":
        (folder / digests.INDEX).unlink(missing_ok=True)
    with pytest.raises(ValueError, match=r"base '.*base' cannot be read: \S") as raised:
        loading.load_base(folder)
    assert "\n" not in str(raised.value)


def test_missing_weights_are_named(tmp_path):
    with pytest.raises(ValueError, match="does not exist"):
        ARRCOCQwen.from_pretrained(components=tmp_path / "nothing")


def test_the_default_base_follows_the_environment(monkeypatch):
    for name in ("ARR_COC_BASE", "SPACE_ID", "SPACES_ZERO_GPU"):
        monkeypatch.delenv(name, raising=False)
    assert loading.default_base() == str(loading.BUNDLED_BASE)
    monkeypatch.setenv("SPACE_ID", "someone/space")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert loading.default_base() == str(loading.BUNDLED_BASE)
    monkeypatch.setenv("SPACES_ZERO_GPU", "true")
    assert loading.default_base() == loading.QWEN
    monkeypatch.setenv("ARR_COC_BASE", "elsewhere/model")
    assert loading.default_base() == "elsewhere/model"


@pytest.mark.parametrize(
    ("name", "is_path"),
    [
        ("Qwen/Qwen3-VL-2B-Instruct", False),
        ("gpt2", False),
        ("./here", True),
        ("/a/b", True),
        ("a/b/c", True),
    ],
)
def test_ids_and_paths_are_told_apart(name, is_path):
    assert loading.looks_like_path(name) is is_path


def test_the_bundled_base_is_small_real_and_loads():
    host = ARRCOCQwen.from_pretrained()
    config = host.model.config
    assert type(host.model).__name__ == "Qwen3VLForConditionalGeneration"
    assert config.vision_config.deepstack_visual_indexes
    assert config.text_config.rope_parameters["mrope_interleaved"] is True
    assert sum(f.stat().st_size for f in loading.BUNDLED_BASE.iterdir()) < 20e6
    assert host.is_bundled and host.name == "bundled base"


def test_weights_say_what_the_kept_cells_were_encoded_with(bundled, tmp_path):
    assert bundled.policy(Config()).context == "glance"
    assert components.Components({"combiner": Combiner()}).context == "cells"  # where nobody chose
    parts = components.Components({"policy": TensionPolicy(SIZE)}, "glance")
    qwen_weights.save_components(parts, tmp_path, base=bundled.name, **bundled.identity())
    loaded = qwen_weights.load_components(tmp_path, None, base=bundled.name, **bundled.identity())
    assert loaded.context == "glance"
