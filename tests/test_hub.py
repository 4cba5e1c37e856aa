"""Publishing and loading through the real client, against a stand-in for the Hub on loopback."""

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hub_server import SWITCH_POLLS, TOKEN, USER, Hub
from huggingface_hub import HfApi, constants, metadata_load

from arr_coc.balancing import TensionPolicy
from arr_coc.components import Components
from arr_coc.digests import weights_files
from arr_coc.evaluate import __main__ as evaluate
from arr_coc.evaluate import store
from arr_coc.evaluate import summary as evaluate_summary
from arr_coc.hub import __main__ as hub
from arr_coc.hub import cards, check
from arr_coc.hub import files as hub_files
from arr_coc.hub import settings as hub_settings
from arr_coc.qwen import loading
from arr_coc.qwen import weights as qwen_weights
from arr_coc.qwen.model import ARRCOCQwen
from arr_coc.service import loader as service_loader
from arr_coc.tensions import __main__ as tensions
from arr_coc.train import __main__ as train
from arr_coc.train import scan

ROOT = Path(__file__).parent.parent
SIZE = json.loads((loading.BUNDLED_BASE / "config.json").read_text())["text_config"]["hidden_size"]
WEIGHTS, SPACE, RESULTS = f"{USER}/weights", f"{USER}/space", f"{USER}/results"


@pytest.fixture
def there(monkeypatch, tmp_path):
    """The stand-in, with this process's client pointed at it and an empty cache."""
    with Hub() as server:
        monkeypatch.setattr(constants, "ENDPOINT", server.url)
        template = server.url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_PROGRESS_BARS", True)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        for name in ("ARR_COC_BASE", "ARR_COC_WEIGHTS", "ARR_COC_REVISIONS"):
            monkeypatch.delenv(name, raising=False)
        yield server


def save(bundled, folder: Path, base: str) -> Path:
    """Weights for the bundled base, in a folder."""
    parts = Components({"policy": TensionPolicy(SIZE)})
    qwen_weights.save_components(parts, folder, base=base, **bundled.identity())
    return folder


@pytest.fixture
def weights(tmp_path, bundled):
    return save(bundled, tmp_path / "arr-coc", f"{USER}/base")


@pytest.fixture
def files_of(weights):
    return {
        name: (weights / name).read_bytes() for name in (qwen_weights.CONFIG, qwen_weights.WEIGHTS)
    }


def evaluation(folder: Path, used: str = "") -> Path:
    """A folder as `arr_coc.evaluate` leaves it, over invented answers."""
    rng, rows = np.random.default_rng(0), []
    chances = {("stock", 1.0): 0.9, ("arr-coc", 0.2): 0.6, ("random", 0.2): 0.3}
    for picture in range(40):
        for (method, budget), chance in chances.items():
            row = dict.fromkeys(store.SCHEMA.names)
            row |= {"dataset": "scenes", "picture": str(picture), "index": 0, "detail": 1.0}
            row |= {"kind": ["colour", "price"][picture % 2], "question": "?", "truth": "a"}
            row |= {"method": method, "budget": budget, "answer": "a", "native": 256}
            row |= {"right": float(rng.random() < chance), "entropy": 0.1}
            rows.append(row | {"tokens": round(256 * budget)})
    table = pa.Table.from_pylist(rows, store.SCHEMA)
    folder.mkdir(parents=True)
    pq.write_table(table, folder / cards.ROWS)
    about = {"what": "scenes on base", "command": "python -m arr_coc.evaluate", "commit": "abc1234"}
    about |= {
        "date": "2026-01-01",
        "machine": {"processor": "a CPU"},
        "identity": {"weights": used},
    }
    summary = about | evaluate_summary.summarise(table, 0.0)
    (folder / cards.SUMMARY).write_text(json.dumps(summary))
    return folder


def run(capsys, *words: str) -> tuple[dict, str]:
    """The command in this process: its last line, and all of it."""
    hub.main([str(word) for word in words])
    out = capsys.readouterr().out
    return json.loads(out.splitlines()[-1]), out


def listed(out: str) -> dict[str, int]:
    """The files and sizes that a command printed."""
    rows = re.findall(r"^ *([\d,]+)  (?!in \d)(\S.*)$", out, re.M)
    return {name: int(size.replace(",", "")) for size, name in rows}


# ------------------------------------------------------------------------------------- pushing


@pytest.mark.parametrize(
    "words",
    [
        ("push-model", WEIGHTS, "--weights", "{weights}"),
        ("push-space", SPACE, "--hardware", "t4"),
        ("push-results", RESULTS),
    ],
)
def test_without_yes_nothing_is_sent(there, capsys, weights, words):
    report, out = run(capsys, *(word.format(weights=weights) for word in words))
    assert there.requests == [] and report["pushed"] is False and "dry run" in out
    files = listed(out)
    assert len(files) == report["files"] and sum(files.values()) == report["bytes"]


def test_a_model_is_pushed_as_listed_and_tagged_and_loads_again(there, capsys, weights):
    words = ("push-model", WEIGHTS, "--weights", weights, "--tag", "v1.0", "--yes")
    report, out = run(capsys, *words)
    assert (
        set(there.sent())
        == set(listed(out))
        == {"README.md", "config.json", "model.safetensors", "handler.py", "requirements.txt"}
    )
    assert there.sent()["model.safetensors"] == "lfsFile"
    repo = there.repos["models", WEIGHTS]
    assert repo.tags == {"v1.0": report["commit"]} and repo.at("main") == report["commit"]
    assert {n: len(data) for n, data in repo.commits[repo.main].items()} == listed(out)
    policy = qwen_weights.load_components(WEIGHTS, "v1.0", base="b", embedding_size=SIZE)
    sent = qwen_weights.load_components(weights, None, base="b", embedding_size=SIZE)
    for key, value in sent.state_dict().items():
        assert torch.equal(value, policy.state_dict()[key])
    assert 'revision="v1.0"' in repo.commits[repo.main]["README.md"].decode()
    host = ARRCOCQwen.from_pretrained(components=WEIGHTS, revision="v1.0")
    assert list(host.policies) == ["v1.0"]


def test_a_version_is_never_moved(there, capsys, weights):
    words = ("push-model", WEIGHTS, "--weights", weights, "--tag", "v1.0", "--yes")
    run(capsys, *words)
    with pytest.raises(SystemExit, match=r"already has a version v1\.0; versions are not moved"):
        run(capsys, *words)
    assert len(there.commits) == 1


def test_what_is_no_longer_in_the_list_is_removed(there, capsys, weights):
    there.add(WEIGHTS, {"old.bin": b"x", ".gitattributes": b"y"})
    run(capsys, "push-model", WEIGHTS, "--weights", weights, "--yes")
    assert there.sent()["old.bin"] == "deletedFile" and ".gitattributes" not in there.sent()


@pytest.mark.parametrize(
    ("token", "repo", "said"),
    [
        ("hf_wrong", WEIGHTS, "HF_TOKEN is not accepted"),
        ("", WEIGHTS, "no token: set HF_TOKEN"),
        (TOKEN, "stranger/weights", "the Hub answered 403: You don't have the rights"),
    ],
)
def test_who_may_not_is_told(there, capsys, monkeypatch, weights, token, repo, said):
    monkeypatch.setenv("HF_TOKEN", token)
    with pytest.raises(SystemExit, match=said):
        run(capsys, "push-model", repo, "--weights", weights, "--yes")
    assert there.commits == []


def test_without_network_pushing_says_so(there, capsys, monkeypatch, weights):
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(SystemExit, match="hub: the Hub cannot be reached"):
        run(capsys, "push-model", WEIGHTS, "--weights", weights, "--yes")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(SystemExit, match="hub: the Hub cannot be reached"):
        run(capsys, "push-model", WEIGHTS, "--weights", weights, "--yes")


def test_weights_that_do_not_load_are_not_pushed(capsys, weights):
    (weights / "model.safetensors").write_bytes(b"no")
    with pytest.raises(SystemExit, match="truncated or not safetensors"):
        run(capsys, "push-model", WEIGHTS, "--weights", weights, "--yes")


def test_the_command_runs_against_the_endpoint_of_its_environment(there, weights, tmp_path):
    env = os.environ | {
        "HF_ENDPOINT": there.url,
        "HF_HUB_OFFLINE": "0",
        "HF_HUB_DISABLE_XET": "1",
        "HF_HOME": str(tmp_path / "home"),
    }
    words = ["push-model", WEIGHTS, "--weights", str(weights), "--yes"]
    done = subprocess.run(
        [sys.executable, "-m", "arr_coc.hub", *words],
        cwd=ROOT, env=env, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["url"] == f"{there.url}/{WEIGHTS}"
    assert len(there.commits) == 1


# --------------------------------------------------------------------------------------- cards


def front(text: str, folder: Path) -> dict:
    (folder / "CARD.md").write_text(text)
    return metadata_load(folder / "CARD.md")


def test_the_model_card_holds_what_was_measured_and_what_speaks_against_it(tmp_path, weights):
    ours = evaluation(tmp_path / "learned", str(weights))
    free = evaluation(tmp_path / "free")
    card = hub_files.model_files(weights, WEIGHTS, [ours, free])["README.md"]
    data = front(card, tmp_path)
    assert data["base_model"] == f"{USER}/base" and data["base_model_relation"] == "adapter"
    assert data["library_name"] == "arr-coc" and data["pipeline_tag"] == "image-text-to-text"
    summary = cards.read_summary(ours)
    for entry in summary["methods"]:
        assert cards.share(entry["overall"]) in card
    assert f"scenes on base, {WEIGHTS}" in card and "scenes on base, training-free" in card
    assert "at abc1234, 2026-01-01, on a CPU" in card
    worse = summary["methods"][1]["against_stock"]["kinds"]
    assert any(one["interval"][1] < 0 for one in worse.values())
    for kind, one in worse.items():
        assert (f"{kind} {cards.share(one, signed=True)}" in card) is (one["interval"][1] < 0)
    assert "Not compared here" not in card


def test_what_went_into_weights_goes_with_them_where_it_is_known(weights):
    assert qwen_weights.TRAINING not in hub_files.model_files(weights, WEIGHTS, [])
    (weights / qwen_weights.TRAINING).write_text('{"runs": []}')
    (weights / "optimizer.pt").write_bytes(b"no")
    files = hub_files.model_files(weights, WEIGHTS, [])
    assert set(files) == {
        "README.md",
        qwen_weights.CONFIG,
        qwen_weights.WEIGHTS,
        qwen_weights.TRAINING,
        hub_files.HANDLER,
        hub_files.NEEDS,
    }
    assert files[qwen_weights.TRAINING] == weights / qwen_weights.TRAINING


def test_without_results_a_card_has_no_number(weights):
    card = hub_files.model_files(weights, WEIGHTS, [])["README.md"]
    assert "Nothing was measured when this was published" in card
    assert not re.search(r"\d\.\d{2}|\d+ ?%", card)


def test_results_of_other_weights_are_refused(tmp_path, weights):
    other = evaluation(tmp_path / "other", "org/others")
    with pytest.raises(ValueError, match="measured with weights 'org/others', not"):
        hub_files.model_files(weights, WEIGHTS, [other])
    summary = json.loads((evaluation(tmp_path / "same", WEIGHTS) / cards.SUMMARY).read_text())
    summary["identity"]["weights_sha256"] = "0" * 16  # trained again since
    with pytest.raises(ValueError, match="other weights than .* now holds"):
        cards.measured_weights(summary, weights, WEIGHTS)
    free = evaluation(tmp_path / "free")
    with pytest.raises(ValueError, match="none of the results was measured with"):
        hub_files.model_files(weights, WEIGHTS, [free])


def test_a_base_without_an_id_gets_no_link(tmp_path, bundled):
    save(bundled, tmp_path / "w", "bundled base")
    card = hub_files.model_files(tmp_path / "w", WEIGHTS, [])["README.md"]
    assert "base_model" not in front(card, tmp_path)


def test_results_are_pushed_with_a_config_for_each_and_earlier_ones_stay(there, capsys, tmp_path):
    results = tmp_path / "results"
    for name in ("dev", "easy"):
        evaluation(results / name, str(tmp_path / "arr-coc"))
    (results / "dev" / "parts").mkdir()
    (results / "dev" / "parts" / "0-0.parquet").write_bytes(b"unfinished")
    there.add(RESULTS, {"old/rows.parquet": b"x"}, kind="datasets")
    words = ("push-results", RESULTS, "--results", results, "--yes")
    report, out = run(capsys, *words)
    names = {
        f"{run}/{file}" for run in ("dev", "easy") for file in ("rows.parquet", "summary.json")
    }
    assert set(there.sent()) == set(listed(out)) == names | {"README.md"}
    repo = there.repos["datasets", RESULTS]
    assert "old/rows.parquet" in repo.commits[repo.main]
    data = front(repo.commits[repo.main]["README.md"].decode(), tmp_path)
    card = repo.commits[repo.main]["README.md"].decode()
    assert "weights: arr-coc." in card and str(tmp_path) not in card
    for config in data["configs"]:
        (file,) = config["data_files"]
        rows = pa.BufferReader(repo.commits[repo.main][file["path"]])
        assert pq.read_table(rows).num_rows == 120
    assert [config["config_name"] for config in data["configs"]] == ["dev", "easy"]
    assert data["configs"][0]["default"] is True and report["url"].endswith(f"datasets/{RESULTS}")


def test_the_repositorys_own_results_can_be_published():
    files = hub_files.results_files(ROOT / "results")
    assert "benchmark-2b-cpu.json" in files and "benchmark-2b-cpu.json" in files["README.md"]


def test_results_that_do_not_say_how_they_were_made_are_refused(tmp_path):
    with pytest.raises(ValueError, match="holds no results"):
        hub_files.results_files(tmp_path)
    summary = evaluation(tmp_path / "dev") / cards.SUMMARY
    summary.write_text(json.dumps(json.loads(summary.read_text()) | {"commit": None}))
    with pytest.raises(ValueError, match="has no commit: it cannot be measured again"):
        hub_files.results_files(tmp_path)


# ----------------------------------------------------------------------------------- the Space


@pytest.mark.parametrize("hardware", list(hub_files.TORCH))
def test_a_space_gets_the_torch_of_its_hardware_and_nothing_it_does_not_need(hardware):
    files = hub_files.space_files(hardware)
    lines = files["requirements.txt"].splitlines()
    assert f"torch=={hub_files.TORCH[hardware]}" in lines
    ours = (ROOT / "requirements.txt").read_text().splitlines()
    assert [line for line in ours if line not in lines] == ["torch>=2.8,<2.14"]
    major, minor, _ = map(int, hub_files.TORCH[hardware].split("."))
    assert (2, 8) <= (major, minor) < (2, 14)
    weights = [f"arr_coc/bundled/base/{file.name}" for file in weights_files(loading.BUNDLED_BASE)]
    for name in ("README.md", "app.py", *weights, "docs/page.webp"):
        assert name in files
    for name in files:
        assert not re.search(r"(^|/)(\.|__pycache__|tests/)|\.py[ci]$|rows\.parquet$", name), name


def test_a_space_s_header_names_the_picture_that_links_show():
    readme = hub_files.space_files("cpu", repo_id="me/my-space")["README.md"]
    _, header, body = readme.split("---\n", 2)
    _, own, unchanged = (ROOT / "README.md").read_text().split("---\n", 2)
    address = "https://huggingface.co/spaces/me/my-space/resolve/main/docs/page.webp"
    assert header == f"{own}thumbnail: {address}\n" and body == unchanged


def test_what_git_does_not_track_is_never_published(tmp_path):
    for name in (
        "README.md",
        "app.py",
        "requirements.txt",
        "examples/mine.jpg",
        "examples/ours.jpg",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("torch>=2\n")
    with pytest.raises(ValueError, match="not a git checkout .*only what git tracks is published"):
        hub_files.space_files("cpu", tmp_path)
    for words in (["init", "-q"], ["add", "README.md", "app.py", "requirements.txt"]):
        subprocess.run(["git", "-C", tmp_path, *words], check=True)
    subprocess.run(["git", "-C", tmp_path, "add", "examples/ours.jpg"], check=True)
    files = hub_files.space_files("cpu", tmp_path)
    assert "examples/ours.jpg" in files and "examples/mine.jpg" not in files


@pytest.mark.parametrize("flag", ["--base", "--weights"])
def test_a_space_is_never_told_of_a_folder_of_this_machine(there, tmp_path, flag):
    with pytest.raises(SystemExit, match="is a folder of this machine, expected a Hub id"):
        hub.main(["push-space", SPACE, "--hardware", "cpu", flag, str(tmp_path)])


def test_a_finished_evaluation_may_be_called_parts(tmp_path):
    running, finished = tmp_path / "dev" / "parts", tmp_path / "parts"
    for folder in (running, finished):
        folder.mkdir(parents=True)
        (folder / cards.ROWS).write_bytes(b"rows")
    (finished / cards.SUMMARY).write_text("{}")
    assert set(hub_files.under(tmp_path, tmp_path)) == {
        f"parts/{cards.ROWS}", f"parts/{cards.SUMMARY}"
    }  # fmt: skip


def test_zero_gpu_is_given_a_torch_that_it_takes():
    assert hub_files.TORCH["zero-gpu"] in {"2.8.0", "2.9.1", "2.10.0", "2.11.0"}


def test_requirements_without_one_line_for_torch_are_refused():
    with pytest.raises(ValueError, match="0 lines for torch, expected 1"):
        hub_files.pinned("torchmetrics>=1\n", "cpu")


def test_many_files_are_one_commit_however_the_client_sends_large_ones(there, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", False)
    repo = there.add(SPACE, {"old.py": b"1", ".gitattributes": b"*.bin"}, "spaces")
    settings = hub_settings.parse(["push-space", SPACE, "--hardware", "cpu", "--yes"], "")
    files = {f"some/{number}.py": str(number) for number in range(600)}
    before = len(there.commits)
    commit = hub.upload(HfApi(endpoint=there.url), settings, "space", files, mirror=True)
    assert len(there.commits) == before + 1 and commit == repo.main
    assert set(repo.commits[repo.main]) == {".gitattributes", *files}


def test_weights_that_are_read_with_a_token_alone_are_said_before_a_space_runs_without(
    there, capsys, monkeypatch
):
    monkeypatch.setattr(hub.time, "sleep", lambda _: None)
    there.add(WEIGHTS, {}, private=True)
    words = ("push-space", SPACE, "--hardware", "cpu", "--yes", "--weights", WEIGHTS)
    _, out = run(capsys, *words)
    assert "unless the Space has one as its secret HF_TOKEN" in out


def test_a_space_is_made_filled_and_waited_for(there, capsys, monkeypatch):
    monkeypatch.setattr(hub.time, "sleep", lambda _: None)
    repo = there.add(WEIGHTS, {})
    repo.tags["v1.0"] = repo.main
    there.add("Qwen/Qwen3-VL-2B-Instruct", {})
    words = ("push-space", SPACE, "--hardware", "zero-gpu", "--yes")
    words += ("--base", "Qwen/Qwen3-VL-2B-Instruct", "--weights", WEIGHTS, "--revisions", "v1.0")
    report, out = run(capsys, *words)
    repo = there.repos["spaces", SPACE]
    assert set(there.sent()) == set(listed(out)) == set(repo.commits[repo.main])
    assert b"torch==2.10.0\n" in repo.commits[repo.main]["requirements.txt"]
    readme = hub_files.with_thumbnail((ROOT / "README.md").read_text(), SPACE)
    assert repo.commits[repo.main]["README.md"] == readme.encode()
    assert repo.variables == {
        "ARR_COC_BASE": "Qwen/Qwen3-VL-2B-Instruct",
        "ARR_COC_WEIGHTS": WEIGHTS,
        "ARR_COC_REVISIONS": "v1.0",
        "GRADIO_SSR_MODE": "false",
    }
    assert (repo.hardware, report["stage"]) == ("zero-a10g", "RUNNING")


def test_a_space_that_is_there_changes_hardware_and_loses_a_variable(there, capsys):
    repo = there.add(SPACE, {"app.py": b"old"}, kind="spaces")
    repo.hardware, repo.variables = "cpu-basic", {"ARR_COC_WEIGHTS": "org/w", "OTHER": "kept"}
    words = ("push-space", SPACE, "--hardware", "t4", "--weights", "", "--no-wait", "--yes")
    report, _ = run(capsys, *words)
    assert repo.variables == {"OTHER": "kept", "GRADIO_SSR_MODE": "false"}
    assert (repo.hardware, report["stage"]) == ("t4-small", "not waited for")


def test_a_space_that_changes_hardware_is_waited_for_until_it_runs_there(
    there, capsys, monkeypatch
):
    waits = []
    monkeypatch.setattr(hub.time, "sleep", waits.append)
    there.add(SPACE, {"app.py": b"old"}, kind="spaces").hardware = "cpu-basic"
    report, _ = run(capsys, "push-space", SPACE, "--hardware", "t4", "--yes")
    assert report["stage"] == "RUNNING" and len(waits) == SWITCH_POLLS


def test_a_space_is_not_pushed_for_a_version_that_does_not_exist(there, capsys):
    there.add(WEIGHTS, {})
    words = ("push-space", SPACE, "--hardware", "cpu", "--yes", "--weights", WEIGHTS)
    with pytest.raises(SystemExit, match=r"at revision 'v9': the repo has no such revision"):
        run(capsys, *words, "--revisions", "v9")
    assert ("spaces", SPACE) not in there.repos


def test_a_version_that_the_space_holds_is_looked_for_as_well(there, capsys):
    repo = there.add(WEIGHTS, {})
    space = there.add(SPACE, {"app.py": b"old"}, kind="spaces")
    space.variables = {"ARR_COC_REVISIONS": "v0.9"}
    words = ("push-space", SPACE, "--hardware", "cpu", "--yes", "--no-wait", "--weights", WEIGHTS)
    with pytest.raises(SystemExit, match=r"at revision 'v0.9': the repo has no such revision"):
        run(capsys, *words)
    assert "ARR_COC_WEIGHTS" not in space.variables
    repo.tags["v0.9"] = repo.main
    run(capsys, *words)
    assert space.variables["ARR_COC_WEIGHTS"] == WEIGHTS
    space.variables["ARR_COC_REVISIONS"] = "v0.8"
    run(capsys, *words, "--revisions", "v0.9")
    assert space.variables["ARR_COC_REVISIONS"] == "v0.9"


class Clock:
    """Seconds that pass while nobody waits."""

    def __init__(self, monkeypatch):
        self.now = 0.0
        monkeypatch.setattr(hub.time, "sleep", self.sleep)

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def __call__(self) -> float:
        return self.now


def test_waiting_sees_through_the_version_before(there, monkeypatch):
    repo, clock = there.add(SPACE, {}, kind="spaces"), Clock(monkeypatch)
    before = {"stage": "RUNNING", "sha": "0" * 40}
    repo.stages = [before, before, "BUILDING", "APP_STARTING", "RUNNING"]
    assert hub.wait_until_running(HfApi(), SPACE, repo.main, clock=clock) == "RUNNING"
    assert clock.now == 4 * hub.POLL_S
    repo.stages = [{"stage": "RUNNING"}]  # without a commit a minute must pass
    hub.wait_until_running(HfApi(), SPACE, repo.main, clock=clock)
    assert clock.now >= 4 * hub.POLL_S + hub.GRACE_S


def test_waiting_ends_with_the_reason(there, monkeypatch):
    repo, clock = there.add(SPACE, {}, kind="spaces"), Clock(monkeypatch)
    repo.stages = ["BUILDING", {"stage": "BUILD_ERROR", "errorMessage": "no such torch"}]
    with pytest.raises(check.Refused, match="stands at BUILD_ERROR: no such torch"):
        hub.wait_until_running(HfApi(), SPACE, repo.main, clock=clock)
    repo.stages = ["BUILDING"]
    with pytest.raises(check.Refused, match="still at BUILDING after 100 s"):
        hub.wait_until_running(HfApi(), SPACE, repo.main, timeout=100, clock=clock)
    repo.stages, repo.hardware = ["RUNNING"], "cpu-basic"
    options = dict(timeout=100, clock=clock, hardware="t4-small")
    with pytest.raises(check.Refused, match="RUNNING on cpu-basic, not t4-small, after 100 s"):
        hub.wait_until_running(HfApi(), SPACE, repo.main, **options)


# ------------------------------------------------------------------------------------ checking


def test_check_says_what_is_ready_and_what_is_not(there, capsys, files_of):
    there.add(WEIGHTS, files_of)
    report, out = run(capsys, "check", "--weights", WEIGHTS)
    assert report == {"checked": ["header", "files", "token", "weights main"], "wrong": {}}
    assert f"token: belongs to {USER}" in out and f"(hidden size {SIZE}, and fingerprint)" in out
    with pytest.raises(SystemExit):
        hub.main(["check", "--weights", WEIGHTS, "--revisions", "v9", "--space", SPACE])
    wrong = json.loads(capsys.readouterr().out.splitlines()[-1])["wrong"]
    assert set(wrong) == {"weights v9", "space"} and "no such revision" in wrong["weights v9"]
    assert there.commits == []


def test_check_refuses_weights_for_another_base_of_the_same_size(weights):
    config = json.loads((weights / qwen_weights.CONFIG).read_text()) | {"fingerprint": "0" * 16}
    (weights / qwen_weights.CONFIG).write_text(json.dumps(config))
    with pytest.raises(qwen_weights.WeightsError, match="of the same size but other weights"):
        check.check_weights(str(weights), None)


def test_check_says_where_it_saw_the_size_of_a_base_alone(there, weights):
    there.add(f"{USER}/base", {"config.json": (loading.BUNDLED_BASE / "config.json").read_bytes()})
    said = check.check_weights(str(weights), None, base=f"{USER}/base")
    assert "only the size was checked, not the fingerprint" in said


def test_check_sees_a_space_that_does_not_run(there):
    repo = there.add(SPACE, {}, kind="spaces")
    assert check.check_space(SPACE) == "RUNNING on None; no variables"
    repo.stages = [{"stage": "RUNTIME_ERROR", "errorMessage": "out of memory"}]
    with pytest.raises(check.Refused, match="RUNTIME_ERROR: out of memory"):
        check.check_space(SPACE)


def test_a_header_that_the_hub_would_refuse_is_refused_here(tmp_path):
    (tmp_path / "requirements.txt").write_text("gradio==6.0.0\n")
    header = f"sdk: gradio\nsdk_version: 5.0.0\npython_version: 3.12\nshort_description: {'x' * 61}"
    (tmp_path / "README.md").write_text(f"---\n{header}\napp_file: app.py\n---\n")
    with pytest.raises(check.Refused) as refused:
        check.check_header(tmp_path)
    for part in ("sdk_version 5.0.0", "not quoted", "'app.py' does not exist", "61 characters"):
        assert part in str(refused.value)


@pytest.mark.parametrize("name", ["weights", "a/b/c", "./here", "/a/b", "~/b"])
def test_what_is_no_id_is_refused(name, capsys):
    with pytest.raises(SystemExit):
        hub.main(["push-results", name])
    assert "is no ORG/NAME" in capsys.readouterr().err
    with pytest.raises(argparse.ArgumentTypeError):
        hub_settings.repo_id(name)


def test_the_commands_of_the_documentation_are_commands(tmp_path, monkeypatch):
    """Where they are given, `runs/scan` holds what the command before it has made."""
    (tmp_path / "runs" / "scan").mkdir(parents=True)
    (tmp_path / "runs" / "scan" / "config.json").write_text(json.dumps({"parts": ["scan"]}))
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / "publishing.md").read_text()
    both = f"{text}\n{(ROOT / 'docs' / 'training.md').read_text()}".replace("\\\n", " ")
    both = re.sub(r"^(?:[A-Z_]+=\S+ )+", "", both, flags=re.M)  # settings before a command
    matches = re.findall(r"^(?:python|torchrun) .*-m arr_coc\.([\w.]+) (.*)$", both, re.M)
    assert len(matches) == len(re.findall(r"^(?:python|torchrun) ", both, re.M))
    by_module = {module: [] for module, _ in matches}
    for module, words in matches:
        by_module[module].append(shlex.split(words))
    parsers = {
        "hub": hub_settings.parse,
        "record": lambda words: None,  # its own tests parse it; tests/test_publishing.py runs it
        "evaluate": lambda words: evaluate.parse(words, ""),
        "train": train.parse,
        "train.scan": scan.parser().parse_args,
        "tensions": tensions.parse,
    }
    assert set(by_module) == set(parsers) and len(by_module["train"]) == 6
    commands = {words[0] for words in by_module["hub"]}
    assert commands == {*hub_settings.COMMANDS}
    for module, lines in by_module.items():
        for words in lines:
            parsers[module](words)
    for hardware, version in hub_files.TORCH.items():
        assert f"| {hardware} | `{hub_files.FLAVOR[hardware]}` | {version} |" in text


# ------------------------------------------------------------------------------------- loading


def without(files: dict[str, bytes], name: str) -> dict[str, bytes]:
    return {key: data for key, data in files.items() if key != name}


def broken(files: dict[str, bytes], case: str) -> dict[str, bytes]:
    """The files of a weights repo, with something wrong."""
    model = files[qwen_weights.WEIGHTS]
    return {
        "pickle": without(files, qwen_weights.WEIGHTS) | {"pytorch_model.bin": b"\x80\x04"},
        "renamed pickle": files | {qwen_weights.WEIGHTS: b"\x80\x04K\x01." * 9},
        "truncated": files | {qwen_weights.WEIGHTS: model[: len(model) // 2]},
        "pointer": files | {qwen_weights.WEIGHTS: b"version https://git-lfs.github.com/spec/v1\n"},
        "no config": without(files, qwen_weights.CONFIG),
        "not json": files | {qwen_weights.CONFIG: b"{"},
        "empty": {"README.md": b"#"},
    }[case]


REASONS = {
    "pickle": "no model.safetensors; pickled weights are never read",
    "renamed pickle": "truncated or not safetensors",
    "truncated": "truncated or not safetensors",
    "pointer": "is a Git LFS pointer",
    "no config": "have no config.json",
    "not json": "config.json that is not JSON",
    "empty": "have no config.json",
}


@pytest.mark.parametrize("case", list(REASONS))
def test_a_repo_with_something_wrong_is_said_plainly(there, files_of, case):
    there.add(WEIGHTS, broken(files_of, case))
    with pytest.raises(qwen_weights.WeightsError, match=re.escape(REASONS[case])) as raised:
        qwen_weights.load_components(WEIGHTS, None, base="b", embedding_size=SIZE)
    assert WEIGHTS in str(raised.value) and "\n" not in str(raised.value)
    fetched = {path for method, path in there.requests if "/resolve/" in path}
    assert not any(path.endswith(".bin") for path in fetched)


@pytest.mark.parametrize(
    ("token", "name", "revision", "said"),
    [
        (TOKEN, WEIGHTS, "v9", "at revision 'v9': the repo has no such revision"),
        (TOKEN, f"{USER}/nothing", None, "there is no such repo"),
        ("", f"{USER}/private", None, "it is private and HF_TOKEN does not open it"),
        ("hf_wrong", f"{USER}/private", None, "HF_TOKEN is not accepted"),
    ],
)
def test_what_the_hub_refuses_is_said_plainly(
    there, monkeypatch, files_of, token, name, revision, said
):
    monkeypatch.setenv("HF_TOKEN", token)
    there.add(WEIGHTS, files_of)
    there.add(f"{USER}/private", files_of, private=True)
    with pytest.raises(qwen_weights.WeightsError, match=said):
        qwen_weights.load_components(name, revision, base="b", embedding_size=SIZE)


def test_without_network_the_cache_serves_and_without_a_cache_it_is_said(
    there, monkeypatch, files_of
):
    there.add(WEIGHTS, files_of)
    assert qwen_weights.load_components(WEIGHTS, None, base="b", embedding_size=SIZE)
    there.server.server_close()
    nowhere = "http://127.0.0.1:9"  # the discard port: nothing listens
    monkeypatch.setattr(constants, "ENDPOINT", nowhere)
    assert qwen_weights.load_components(WEIGHTS, None, base="b", embedding_size=SIZE)
    with pytest.raises(qwen_weights.WeightsError, match="no network, and no copy in the cache"):
        qwen_weights.load_components(f"{USER}/other", None, base="b", embedding_size=SIZE)


def test_the_app_goes_on_with_what_can_be_had(there, monkeypatch, files_of):
    repo = there.add(WEIGHTS, broken(files_of, "truncated"))
    repo.tags["v2"] = repo.main
    repo.tags["v1"] = repo.commit(files_of)
    monkeypatch.setenv("ARR_COC_WEIGHTS", WEIGHTS)
    monkeypatch.setenv("ARR_COC_REVISIONS", "v2,v1,v0")
    loader = service_loader.Loader(warm=False)
    loader.load("cpu")
    assert loader.error is None and list(loader.get().policies) == ["v1"]
    assert len(loader.notices) == 2
    assert "truncated" in loader.notices[0] and "'v0'" in loader.notices[1]


@pytest.mark.parametrize("case", ["pickle", "truncated"])
def test_the_app_goes_on_training_free(there, monkeypatch, files_of, picture, case):
    there.add(WEIGHTS, broken(files_of, case))
    monkeypatch.setenv("ARR_COC_WEIGHTS", WEIGHTS)
    loader = service_loader.Loader(warm=False)
    loader.load("cpu")
    model = loader.get()
    assert model.policies == {} and REASONS[case] in loader.notices[0]
    assert model.realize(picture, "is there a car?").tension_source != "learned"
