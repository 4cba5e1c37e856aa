"""A base and weights say where they are from; a long download is waited for; no folder leaves."""

import json
import shutil
from types import SimpleNamespace

import pytest
import test_hub
import torch
from hub_server import USER
from test_hub import WEIGHTS, save

from arr_coc import record
from arr_coc.evaluate import settings as evaluate_settings
from arr_coc.page.model_handlers import ModelHandlers
from arr_coc.qwen import loading
from arr_coc.qwen.loading import BUNDLED_BASE
from arr_coc.qwen.model import ARRCOCQwen
from arr_coc.service import comparing, intake
from arr_coc.service.loader import Loader
from arr_coc.tensions import __main__ as tensions
from arr_coc.train import settings as train_settings

there = test_hub.there
BASE = f"{USER}/base"


@pytest.fixture
def folder(tmp_path):
    return shutil.copytree(BUNDLED_BASE, tmp_path / "my models" / "qwen")


def test_a_base_from_the_hub_says_its_commit_and_how_far_it_is(there, bundled, tmp_path, picture):
    files = {path.name: path.read_bytes() for path in BUNDLED_BASE.iterdir()}
    repo = there.add(BASE, files | {"onnx/model.json": b"{}", "old.bin": b"pickled"})
    weights = save(bundled, tmp_path / "w", BASE)
    own = there.add(WEIGHTS, {path.name: path.read_bytes() for path in weights.iterdir()})
    own.tags["v1.0"] = own.main
    told = []
    host = ARRCOCQwen.from_pretrained(
        BASE, WEIGHTS, "v1.0", on_progress=lambda *bytes_: told.append(bytes_)
    )
    assert (host.name, host.revision) == (BASE, repo.main)
    origin = host.policies["v1.0"].origin
    assert origin == (WEIGHTS, "v1.0", own.main, BASE)
    assert told and told == sorted(told) and told[-1][0] == told[-1][1] > 7e6
    fetched = {path for _, path in there.requests if path.startswith(f"/{BASE}/resolve/")}
    assert fetched and not any(path.endswith((".bin", "onnx/model.json")) for path in fetched)
    result = comparing.compare(host, picture, "what?", max_new_tokens=1)
    assert result["base"] == {"name": BASE, "revision": "", "commit": repo.main}
    assert result["weights"] == {"name": WEIGHTS, "revision": "v1.0", "commit": own.main}
    loader = Loader(warm=False)
    loader.model = host
    loader.ready.set()
    header = ModelHandlers(SimpleNamespace(examples=[]), loader, None).on_ready().header
    assert f"{BASE} at {repo.main[:7]}" in header
    assert f"ARR-COC weights: {WEIGHTS} at v1.0 ({own.main[:7]})." in header


def test_a_folder_is_known_by_name_variable_or_fingerprint(folder, bundled, tmp_path, monkeypatch):
    assert ARRCOCQwen.from_pretrained(folder, components="").name == "qwen"
    # Weights of its very fingerprint name the id under which others have it.
    weights = save(bundled, tmp_path / "w", BASE)
    assert ARRCOCQwen.from_pretrained(folder, components=weights).name == BASE
    monkeypatch.setenv(loading.BASE_ID, "Qwen/Qwen3-VL-2B-Instruct")
    assert loading.public_name(str(folder)) == "Qwen/Qwen3-VL-2B-Instruct"
    monkeypatch.setenv(loading.BASE_ID, "/a/b")
    with pytest.raises(ValueError, match="ARR_COC_BASE_ID is '/a/b', expected ORG/NAME"):
        loading.public_name(str(folder))


def test_no_folder_leaves_in_an_answer_or_a_badge(folder, bundled, tmp_path, picture, monkeypatch):
    monkeypatch.setenv("ARR_COC_BASE", str(folder))
    monkeypatch.setenv("ARR_COC_WEIGHTS", str(save(bundled, tmp_path / "own weights", "mine")))
    monkeypatch.setenv("ARR_COC_REVISIONS", "")
    loader = Loader(warm=False)
    loader.load("cpu")
    model = loader.get()
    model._notices.append(f"base {str(folder)!r} holds 3 tensors that it has no place for")
    handlers = ModelHandlers(SimpleNamespace(examples=[]), loader, None)
    said = [json.dumps(comparing.compare(model, picture, "what?", max_new_tokens=1))]
    said += [json.dumps(comparing.last(comparing.compare_stream(
        model, comparing.check(picture, "what?", questions=("what?",)))))]  # fmt: skip
    said += [str(handlers.on_ready())]
    said += [json.dumps(comparing.compare(model, picture, "what?", revision=str(tmp_path / "no")))]
    assert "'qwen' holds 3 tensors" in said[0] and "own weights" in said[2]
    shutil.rmtree(folder)
    broken = Loader(warm=False)
    broken.load("cpu")
    said += [broken.error, str(ModelHandlers(None, broken, None).on_ready())]
    assert "'qwen'" in broken.error
    for text in (said[0], said[1], said[2], *said[4:]):
        assert str(tmp_path) not in text and "/my models" not in text


def test_a_download_of_many_minutes_is_waited_for_with_progress():
    loader = Loader(warm=False)
    loader.start = lambda: None
    handlers = ModelHandlers(SimpleNamespace(examples=[1]), loader, None)
    waited = []
    loader.ready.wait = lambda seconds: waited.append(seconds)
    waiting = handlers.on_ready()
    assert waited == [0], "every open tab asks: none of them may hold a thread"
    assert "Waking the model up" in waiting.header and waiting.waking["active"] is True
    loader.on_progress(1_230_000_000, 4_300_000_000)
    waiting = handlers.on_ready()
    assert (
        "Fetching the model: 1.2 of 4.3 GB" in waiting.header and 'arr-bad"' not in waiting.header
    )
    with pytest.raises(intake.IntakeError, match=r"still loading \(1.2 of 4.3 GB are here\)"):
        loader.get()
    loader.error = "the disk is full"
    loader.ready.set()
    failed = handlers.on_ready()
    assert "the disk is full" in failed.header and failed.waking["active"] is False


def test_every_command_that_loads_a_base_takes_a_dtype(monkeypatch, tmp_path, capsys):
    out = ["--out", str(tmp_path / "x")]
    assert evaluate_settings.parse([*out, "--dtype", "auto"], "").dtype == "auto"
    assert tensions.parse([*out, "--weights", "w", "--dtype", "float16"]).dtype == "float16"
    assert train_settings.parse([*out, "--dtype", "bfloat16"]).dtype == "bfloat16"
    assert train_settings.parse(out).dtype is None
    with pytest.raises(SystemExit):
        train_settings.parse([*out, "--bf16", "--dtype", "float16"])
    assert "--dtype float16 with --bf16" in capsys.readouterr().err
    host = ARRCOCQwen.from_pretrained(BUNDLED_BASE, components="", dtype="bfloat16")
    assert host.model.dtype == torch.bfloat16


@pytest.fixture
def cards(tmp_path, picture):
    picture.save(tmp_path / "good.png")
    (tmp_path / "cut.png").write_bytes((tmp_path / "good.png").read_bytes()[:200])
    entries = [{"file": name, "question": "?", "answer": "a"} for name in ("good.png", "cut.png")]
    (tmp_path / "examples.json").write_text(json.dumps(entries))
    return tmp_path


def test_pictures_that_cannot_be_recorded_are_counted_before_the_base_is_read(cards, monkeypatch):
    with pytest.raises(ValueError, match="1 of 2 pictures in .* cannot be read, the first is 'cut"):
        record.record("nowhere", cards, 1, [])
    monkeypatch.setattr(
        record, "compare_often", lambda *_: {"result": {"where": None}, "times": {}}
    )
    monkeypatch.setenv("ARR_COC_DTYPE", "float32")
    words = ["--base", str(BUNDLED_BASE), "--skip-bad"]
    report = record.record("bundled", cards, 1, words, shares=(), skip_bad=True)
    assert [one["file"] for one in report["recordings"]] == ["good.png"]
    command = report["about"]["command"]
    assert command.startswith("ARR_COC_DTYPE=float32 python -m arr_coc.record --base ")
    assert command.endswith("base --skip-bad")
