"""Nothing private leaves: own data only when asked for, and no folder of this machine in what is sent."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
import test_hub
from hub_server import USER
from PIL import Image
from test_hub import RESULTS, ROOT, SPACE, WEIGHTS, evaluation, run, save

from arr_coc.evaluate import vqa
from arr_coc.hub import cards, private
from arr_coc.hub import files as hub_files
from arr_coc.qwen import weights as qwen_weights

there = test_hub.there
OTHERS = [str(Path.home()) + "/", str(ROOT) + "/"]


def everything_sent(hub):
    """Path -> bytes of every repo's last commit."""
    return {
        f"{name}/{path}": data
        for (_, name), repo in hub.repos.items()
        for path, data in repo.commits[repo.main].items()
    }


def own(folder, **changes):
    """An evaluation that asked about a folder of pictures."""
    path = evaluation(folder) / cards.SUMMARY
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    (folder / "failures.png").write_bytes(b"a picture of mine")
    return folder


def test_nothing_that_is_pushed_names_a_folder_of_this_machine(
    there, capsys, tmp_path, bundled, monkeypatch
):
    private = tmp_path / "my things"
    weights = save(bundled, private / "w", str(private / "qwen"))
    (weights / qwen_weights.TRAINING).write_text(
        json.dumps({"runs": [{"command": f"x --init '{private}/a'", "base": f"{private}/qwen"}]})
    )
    results = private / "results"
    about = {"command": f"python -m arr_coc.evaluate --base {tmp_path}/qwen"}
    about |= {"identity": {"weights": str(weights), "base": str(private / "qwen")}}
    own(results / "dev", **about)
    (results / "dev" / "identity.json").write_text(json.dumps(about["identity"]))
    run(capsys, "push-model", WEIGHTS, "--weights", weights, "--results", results / "dev", "--yes")
    run(capsys, "push-results", RESULTS, "--results", results, "--yes")
    run(capsys, "push-space", SPACE, "--hardware", "cpu", "--yes")
    sent = everything_sent(there)
    assert {f"{WEIGHTS}/config.json", f"{WEIGHTS}/training.json", f"{SPACE}/app.py"} <= set(sent)
    assert f"{RESULTS}/dev/summary.json" in sent
    for name, data in sent.items():
        for folder in (str(tmp_path), *OTHERS):
            assert folder.encode() not in data, (name, folder)
    config = json.loads(sent[f"{WEIGHTS}/config.json"])
    assert config["base_model"] == "qwen"
    assert json.loads(sent[f"{RESULTS}/dev/summary.json"])["command"].endswith("--base qwen")


def test_a_card_names_a_base_that_others_can_load(there, capsys, tmp_path, bundled):
    weights = save(bundled, tmp_path / "w", str(tmp_path / "qwen"))
    words = ("push-model", WEIGHTS, "--weights", weights, "--yes")
    run(capsys, *words, "--base-id", f"{USER}/base")
    sent = everything_sent(there)
    card = sent[f"{WEIGHTS}/README.md"].decode()
    assert f"base_model: {USER}/base" in card and f'from_pretrained("{USER}/base", ' in card
    assert json.loads(sent[f"{WEIGHTS}/config.json"])["base_model"] == f"{USER}/base"
    run(capsys, *words)
    card = everything_sent(there)[f"{WEIGHTS}/README.md"].decode()
    assert "base_model:" not in card and 'from_pretrained(components="' in card


def test_results_of_one_s_own_pictures_go_only_when_asked_for(there, capsys, tmp_path):
    results = tmp_path / "results"
    own(results / "mine", data={"folder": "holiday", "n": 40})
    with pytest.raises(SystemExit, match="no results but of your own pictures .--own-data"):
        run(capsys, "push-results", RESULTS, "--results", results)
    evaluation(results / "dev")
    files = hub_files.results_files(results)
    assert set(files) == {"README.md", "dev/rows.parquet", "dev/summary.json"}
    assert "mine" not in files["README.md"]
    run(capsys, "push-results", RESULTS, "--results", results, "--own-data", "--yes")
    assert f"{RESULTS}/mine/failures.png" in everything_sent(there)


def test_a_folder_that_was_asked_about_is_one_s_own(tmp_path):
    """By what an evaluation itself says of it; a set that everybody can have is not."""
    Image.new("RGB", (64, 64)).save(tmp_path / "a.png")
    record = {"image": "a.png", "question": "what is \u2028it?", "answers": ["red"]}
    lines = [record, {"question": "and this?", "answers": ["red"]}]
    written = "\n".join(json.dumps(line, ensure_ascii=False) for line in lines)
    (tmp_path / "questions.jsonl").write_text(written, encoding="utf-8")
    with pytest.raises(ValueError, match="lacks"):
        vqa.Folder(tmp_path)
    (tmp_path / "questions.jsonl").write_text(written.split("\n")[0], encoding="utf-8")
    assert private.is_own({"data": vqa.Folder(tmp_path).about})
    assert not private.is_own({"data": {"dataset": "org/set", "split": "test"}})


@pytest.fixture
def checkout(tmp_path):
    """A repository with cards and results of its own and of its owner's, all of them tracked."""
    root = tmp_path / "checkout"
    for name in ("README.md", "app.py", "requirements.txt"):
        root.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, root / name)
    for name in ("bundled", "mine"):
        (root / "examples" / name).mkdir(parents=True)
        (root / "examples" / name / "recorded.json").write_text("{}")
    own(root / "results" / "mine", data={"folder": "holiday", "n": 40})
    evaluation(root / "results" / "dev")
    for words in (["init", "-q"], ["add", "."]):
        subprocess.run(["git", "-C", root, *words], check=True)
    return root


def test_a_space_gets_own_cards_and_results_only_when_asked_for(checkout):
    without = set(hub_files.space_files("cpu", checkout))
    asked = set(hub_files.space_files("cpu", checkout, own_data=True))
    assert {"examples/bundled/recorded.json", "results/dev/summary.json"} <= without
    assert asked - without == {
        "examples/mine/recorded.json",
        "results/mine/failures.png",
        "results/mine/summary.json",
    }
