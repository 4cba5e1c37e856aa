"""docs/publishing.md walked from its first command to its last, against a stand-in for the Hub on loopback.

Everything plays in a copy of what git tracks: drawn questions, a base and weights, the page's cards, the
Space, and the data sets. Then what was published is used as a stranger would: the card's snippet, the
Space's page, the query.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import app_server
import duckdb
import httpx
import pytest
from hub_server import TOKEN, USER, Hub

from arr_coc.qwen.loading import BUNDLED_BASE

pytestmark = [pytest.mark.slow, pytest.mark.thorough]

ROOT = Path(__file__).parent.parent
QUESTIONS = 4
# What an owner's names and sizes are here, in the commands of the page.
HERE = {
    "torchrun --nproc_per_node 8 -m": "python -m",
    "Qwen/Qwen3-VL-2B-Instruct": f"{USER}/base",
    "ORG/": f"{USER}/",
    "FOLDER": str(BUNDLED_BASE),
    "--folder DIR": "--folder questions",
    "--hardware t4": f"--hardware cpu --base {USER}/base",
    " --bf16": " --device cpu --steps 2 --batch 1 --questions 1 --eval-n 2",
}
# Smaller than a person would want them, and no less the command.
FURTHER = {
    "arr_coc.evaluate": "--methods stock arr-coc --budgets 0.2 --max-new-tokens 4",
    "arr_coc.record": "--repetitions 1 --shares",
}


def commands() -> list[str]:
    """The lines of the first part of the page that are run, as they are run here."""
    text = (ROOT / "docs" / "publishing.md").read_text().split("\n## Duplicate it")[0]
    lines = []
    for block in re.findall(r"```bash\n(.*?)```", text, re.S):
        for line in block.strip().splitlines():
            for theirs, ours in HERE.items():
                line = line.replace(theirs, ours)
            more = [words for module, words in FURTHER.items() if f"-m {module} " in line]
            lines.append(" ".join([line, *more]))
    return lines


def environment(hub: Hub, home: Path) -> dict[str, str]:
    """Of every command: the stand-in for the Hub, nothing of this machine's settings."""
    kept = {
        key: value for key, value in os.environ.items() if not key.startswith(("ARR_COC", "HF_"))
    }
    git = {f"GIT_{who}_{what}": "owner@example.org" for who in ("AUTHOR", "COMMITTER")
           for what in ("NAME", "EMAIL")}  # fmt: skip
    return kept | git | {
        "HF_ENDPOINT": hub.url,
        "HF_TOKEN": TOKEN,
        "HF_HOME": str(home),
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_OFFLINE": "0",
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }  # fmt: skip


def run(line: str, where: Path, env: dict[str, str]) -> str:
    """What a command printed; it must succeed."""
    done = subprocess.run(["bash", "-c", line], cwd=where, env=env, capture_output=True, text=True)
    assert done.returncode == 0, f"{line}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """The stand-in after the whole page, and the environment of a stranger with an empty cache."""
    folder = tmp_path_factory.mktemp("empty")
    copy = folder / "repository"
    files = subprocess.check_output(["git", "ls-files", "-z"], cwd=ROOT, text=True).split("\0")
    for name in filter(None, files):
        if (ROOT / name).exists():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, copy / name)
    cards = copy / "examples" / "qwen" / "examples.json"
    cards.write_text(json.dumps(json.loads(cards.read_text())[:1]))
    with Hub() as hub:
        env = environment(hub, folder / "home")
        run("git init -q && git add -A && git commit -qm all", copy, env)
        run(f"python -m arr_coc.harness scenes --out questions --n {QUESTIONS}", copy, env)
        said = {line: run(line, copy, env) for line in commands()}
        yield hub, environment(hub, folder / "stranger"), said


def held(hub: Hub, kind: str, name: str) -> dict[str, bytes]:
    """The files of a repo on its main branch."""
    repo = hub.repos[kind, f"{USER}/{name}"]
    return repo.commits[repo.main]


def test_every_repository_of_the_page_is_there_and_the_check_finds_nothing_wrong(published):
    hub, _, said = published
    assert set(hub.repos) == {
        ("models", f"{USER}/base"), ("models", f"{USER}/arr-coc"), ("spaces", f"{USER}/arr-coc-vis"),
        ("datasets", f"{USER}/questions"), ("datasets", f"{USER}/arr-coc-results"),
    }  # fmt: skip
    assert set(hub.repos["models", f"{USER}/arr-coc"].tags) == {"v1.0"}
    (checked,) = [out for line, out in said.items() if " check " in line]
    assert json.loads(checked.splitlines()[-1])["wrong"] == {}


def test_the_card_of_the_weights_says_what_went_in_and_its_snippet_runs(published, tmp_path):
    hub, env, _ = published
    card = held(hub, "models", "arr-coc")["README.md"].decode()
    assert f"base_model: {USER}/base" in card and "| 1 | a folder of pictures | 2 |" in card
    assert "arr-coc | 20% |" in card and "training-free" in card
    (snippet,) = re.findall(r"```python\n(.*?)```", card, re.S)
    (tmp_path / "snippet.py").write_text(snippet)
    # The package is installed for whoever followed the card; here it is the one under test.
    out = run("python snippet.py", tmp_path, env | {"PYTHONPATH": str(ROOT)})
    question, full, focused = out.strip().splitlines()[-3:]
    assert question and int(full.split()[-1]) > int(focused.split()[-1]) > 0


def test_the_page_that_the_space_holds_starts_on_its_recorded_card(published, tmp_path):
    hub, env, _ = published
    files = held(hub, "spaces", "arr-coc-vis")
    for name, data in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(data)
    recorded = json.loads(files["examples/qwen/recorded.json"])
    assert recorded["about"]["base"] == f"{USER}/base"
    assert not [name for name in files if name.startswith(("results/learned", "results/free"))]
    variables = hub.repos["spaces", f"{USER}/arr-coc-vis"].variables
    assert variables["ARR_COC_WEIGHTS"] == f"{USER}/arr-coc"
    server = app_server.start(
        env | variables, program=(str(tmp_path / "app.py"),), log=(tmp_path / "log").open("w")
    )
    try:
        page = httpx.get(server.url, timeout=60).text
    finally:
        server.process.terminate()
        server.process.wait()
    example = json.loads(files["examples/qwen/examples.json"])[0]
    assert example["question"].split("?")[0] in page
    assert f"Recorded {recorded['about']['date']} with" in page


def test_the_query_of_the_data_sets_card_answers_from_pictures_and_rows(published, tmp_path):
    hub, _, _ = published
    files = held(hub, "datasets", "questions")
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    (query,) = re.findall(r"```sql\n(.*?)```", files["README.md"].decode(), re.S)
    here = query.replace(f"hf://datasets/{USER}/questions/", f"{tmp_path}/")
    found = {row[0]: row[1:] for row in duckdb.sql(here).fetchall()}
    assert set(found) == {"stock", "arr-coc"}
    (budget, n, accuracy, tokens), focused = found["stock"], found["arr-coc"]
    assert budget == 1.0 and 0 < n <= QUESTIONS and 0 <= accuracy <= 1 and focused[3] < tokens
