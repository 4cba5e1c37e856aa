"""What leaves has no folder of this machine in it; digests cover shards and are read in blocks."""

import hashlib
import json

import pytest

from arr_coc import digests, naming, provenance
from arr_coc.qwen.weights import BUNDLED_WEIGHTS

SHA = "0123456789abcdef0123456789abcdef01234567"


def test_a_folder_goes_by_its_name_and_an_id_by_itself(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cached = f"/x/hub/models--Qwen--Qwen3-VL-2B-Instruct/snapshots/{SHA}"
    for given, shown in {
        "/home/me/private/qwen": "qwen",
        str(tmp_path / "runs" / "w"): "runs/w",
        "runs/w": "runs/w",
        "Qwen/Qwen3-VL-2B-Instruct": "Qwen/Qwen3-VL-2B-Instruct",
        cached: "Qwen/Qwen3-VL-2B-Instruct",
    }.items():
        assert naming.public(given) == shown, given
    assert naming.in_cache(cached) == ("Qwen/Qwen3-VL-2B-Instruct", SHA)
    assert naming.in_cache("/x/qwen") is None


@pytest.mark.parametrize(
    ("said", "left"),
    [
        ("base '/home/me/my models/qwen' cannot be read", "base 'qwen' cannot be read"),
        ("no file /home/me/x/model.safetensors, none", "no file model.safetensors, none"),
        ("base 'Qwen/Qwen3-VL-2B-Instruct' and/or 3/4", "base 'Qwen/Qwen3-VL-2B-Instruct' and/or 3/4"),
        ("see https://huggingface.co/Qwen/x for it", "see https://huggingface.co/Qwen/x for it"),
        ("--out=/home/me/x", "--out=x"),
        ("in ~/models/w.", "in w"),
    ],
)  # fmt: skip
def test_paths_leave_sentences(said, left):
    assert naming.without_folders(said).rstrip(".") == left.rstrip(".")


def test_a_command_is_told_without_folders_of_this_machine():
    words = ["--base", "/home/me/a b/qwen", "--out", "runs/x", "--init=/srv/w"]
    told = provenance.command("arr_coc.train", words)
    assert told == "python -m arr_coc.train --base qwen --out runs/x --init=w"


def test_variables_are_told_as_a_shell_needs_them(monkeypatch):
    for name in provenance.VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ARR_COC_REVISIONS", "v2, v1")
    told = provenance.command("arr_coc.evaluate", [])
    assert told == "ARR_COC_REVISIONS='v2, v1' python -m arr_coc.evaluate"


def test_one_file_s_digest_is_the_file_s(tmp_path):
    assert digests.of_weights(tmp_path) == "" and digests.weights_bytes(tmp_path) == 0
    (tmp_path / digests.WEIGHTS).write_bytes(b"x" * (digests.BLOCK + 5))
    assert digests.of_weights(tmp_path) == hashlib.sha256(b"x" * (digests.BLOCK + 5)).hexdigest()


def sharded(folder, shards):
    for name, data in shards.items():
        (folder / name).write_bytes(data)
    index = {"weight_map": {f"t{i}": name for i, name in enumerate(shards)}}
    (folder / digests.INDEX).write_text(json.dumps(index))


def test_every_shard_counts(tmp_path):
    sharded(tmp_path, {"b.safetensors": b"two", "a.safetensors": b"one"})
    before = digests.of_weights(tmp_path)
    assert digests.weights_bytes(tmp_path) == 6 and len(before) == 64
    (tmp_path / "b.safetensors").write_bytes(b"too")
    assert digests.of_weights(tmp_path) not in ("", before)
    (tmp_path / "b.safetensors").unlink()
    with pytest.raises(ValueError, match=r"lacks 'b.safetensors', which its model.safetensors"):
        digests.of_weights(tmp_path)
    (tmp_path / digests.INDEX).write_text("[]")
    with pytest.raises(ValueError, match="is damaged"):
        digests.of_weights(tmp_path)


def test_what_weights_say_beside_their_tensors_has_a_digest(tmp_path):
    own = digests.of_settings(BUNDLED_WEIGHTS)
    said = json.loads((BUNDLED_WEIGHTS / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**said, "base_model": "another word"}))
    assert digests.of_settings(tmp_path) == own
    (tmp_path / "config.json").write_text(json.dumps({**said, "pace": None}))
    assert digests.of_settings(tmp_path) != own
    of_parts = [digests.of_settings(folder, ["parts"]) for folder in (tmp_path, BUNDLED_WEIGHTS)]
    assert of_parts[0] == of_parts[1]
    for damaged in ("{", "[]"):
        (tmp_path / "config.json").write_text(damaged)
        assert digests.of_settings(tmp_path) != own
    assert digests.of_settings(tmp_path / "nowhere") == ""
