"""The dress rehearsal: middle-sized here; full-sized where its vocabulary is at hand."""

import base64
import json
import os
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from tests import rehearsal, rehearsal_folder

pytestmark = pytest.mark.slow

# The file of ranks that `rehearsal_folder` speaks of.
VOCABULARY = os.environ.get("ARR_COC_TEST_VOCABULARY")


def rehearsed(capsys, *words: str) -> tuple[int, list[str], dict]:
    """Its status, its lines, and its JSON."""
    with pytest.raises(SystemExit) as ended:
        rehearsal.main([*words, "--seconds", "0.1"])
    *lines, last = capsys.readouterr().out.splitlines()
    return ended.value.code, lines, json.loads(last)


@pytest.mark.thorough
@pytest.mark.slow
def test_every_step_holds_on_a_middle_sized_base(capsys, tmp_path):
    status, lines, report = rehearsed(capsys, str(tmp_path / "out"))
    assert status == 0, lines
    assert list(report["seconds"]) == ["base", *rehearsal.STEPS_IN_ORDER]
    assert len(lines) == len(report["seconds"])
    assert all(line.split()[0] == "ok" and line.split()[2] == "s" for line in lines)


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.skipif(not VOCABULARY, reason="ARR_COC_TEST_VOCABULARY names no file of ranks")
def test_every_step_holds_at_full_size(capsys, tmp_path):
    words = ("--size", "full", "--vocabulary", VOCABULARY, "--dtype", "bfloat16")
    status, lines, _ = rehearsed(capsys, str(tmp_path / "out"), *words)
    assert status == 0, lines


def test_a_step_that_fails_is_told_and_the_others_still_run(capsys, tmp_path, monkeypatch):
    def fails(stage):
        raise rehearsal.Failed("the look is blind")

    def breaks(stage):
        raise KeyError("inside")

    steps = {"first": fails, "second": breaks, "third": lambda stage: "well"}
    monkeypatch.setattr(rehearsal, "STEPS_IN_ORDER", steps)
    status, lines, report = rehearsed(capsys, str(tmp_path / "out"))
    assert status == 1 and [line.split()[0] for line in lines] == ["ok", "FAILED", "FAILED", "ok"]
    assert "the look is blind" in lines[1] and "inside" in lines[2]
    assert report["seconds"]["first"] is None and report["seconds"]["third"] is not None


def test_a_base_that_is_broken_fails_its_rehearsal(capsys, tmp_path, monkeypatch):
    written = rehearsal_folder.write

    def without_a_preprocessor(folder, *rest):
        (written(folder, *rest) / "preprocessor_config.json").unlink()
        return folder

    monkeypatch.setattr(rehearsal_folder, "write", without_a_preprocessor)
    kept = {name: rehearsal.STEPS_IN_ORDER[name] for name in ("doctor", "record")}
    monkeypatch.setattr(rehearsal, "STEPS_IN_ORDER", kept)
    status, lines, _ = rehearsed(capsys, str(tmp_path / "out"))
    assert status == 1 and all("preprocessor_config.json" in line for line in lines[1:])


def test_what_does_not_go_together_is_refused(capsys, tmp_path):
    (tmp_path / "there").write_text("")
    with pytest.raises(SystemExit):
        rehearsal.main([str(tmp_path)])
    assert "is not empty" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        rehearsal.main([str(tmp_path / "out"), "--size", "full"])
    with pytest.raises(ValueError, match="needs the file of its vocabulary"):
        rehearsal_folder.write(tmp_path / "out", "full")
    with pytest.raises(ValueError, match="expected one of middle, full"):
        rehearsal_folder.write(tmp_path / "out", "small")


def ranks(path: Path, *tokens: bytes) -> Path:
    """A file of ranks: every byte, then these tokens."""
    every = [bytes([byte]) for byte in range(256)] + list(tokens)
    lines = (base64.b64encode(token) + b" %d" % rank for rank, token in enumerate(every))
    path.write_bytes(b"\n".join(lines) + b"\n")
    return path


def test_a_file_of_ranks_becomes_a_tokenizer(tmp_path):
    path = ranks(tmp_path / "ranks", b"re", b"ead", b"ad", b"read", b" read", "ü".encode())
    vocab, merges = rehearsal_folder.of_ranks(path)
    # "ead" comes before "ad", so no merge makes it; "read" is made of what does.
    assert merges == [("r", "e"), ("a", "d"), ("re", "ad"), ("Ġ", "read"), ("Ã", "¼")]
    assert len(vocab) == 262 and vocab["Ġread"] == 260
    ids = rehearsal_folder.write_tokenizer(tmp_path, vocab, merges)
    assert (ids["<|endoftext|>"], ids["<|image_pad|>"], ids["</think>"]) == (262, 274, 287)
    (tmp_path / "config.json").write_text('{"model_type": "qwen3_vl"}')
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    assert tokenizer("ü read<|image_pad|>").input_ids == [261, 260, 274]
    assert tokenizer.decode([261, 260]) == "ü read"
