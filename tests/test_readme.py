"""The README says what is true: its commands are CI's, its snippets run, its tables are `results/`.

`python -m tests.tables` writes the tables anew from what was measured.
"""

import re
import subprocess
import sys

import pytest
import yaml

from tests.tables import BLOCK, BLOCKS, README, ROOT


def block(name: str) -> str:
    return re.search(BLOCK.format(name=name), BLOCKS[name][0].read_text(), re.S)[2]


@pytest.mark.parametrize("name", BLOCKS)
def test_tables_are_what_was_measured(name):
    assert block(name) == BLOCKS[name][1]()


def commands() -> list[str]:
    found = re.findall(r"```bash\n(.*?)\n```", README.read_text(), re.S)
    assert len(found) == 2
    return found


def test_ci_runs_the_second_command_to_the_letter():
    steps = commands()[1].split(" && ")
    assert steps[2].startswith("pip install")
    assert steps[3:] == ["python -m tests.setup", "python -m pytest"]
    # Within `bash -c '...'`, so that a failure anywhere in the line ends CI.
    assert f"\nbash -c '\n{commands()[1]}\n'\n" in (ROOT / ".ci" / "run").read_text()


def test_the_first_command_installs_what_the_space_needs_and_starts_the_app():
    steps = commands()[0].split(" && ")
    assert steps[2:] == ["pip install torch==2.13.0 -r requirements.txt", "python app.py"]


def test_the_snippets_run():
    for snippet in re.findall(r"```python\n(.*?)```", README.read_text(), re.S):
        done = subprocess.run(
            [sys.executable, "-c", snippet], cwd=ROOT, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        assert len(done.stdout.splitlines()) > 3


def test_the_space_header_holds():
    header = yaml.safe_load(README.read_text().split("---\n")[1])
    assert header["sdk"] == "gradio" and (ROOT / header["app_file"]).exists()
    assert len(header["short_description"]) <= 60
    assert isinstance(header["python_version"], str)
    assert f"gradio=={header['sdk_version']}\n" in (ROOT / "requirements.txt").read_text()


def test_links_and_files_exist():
    text = README.read_text()
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        if not target.startswith("http"):
            assert (ROOT / target).exists(), target
    tree = re.search(r"```\n(.*?)```", (ROOT / "docs" / "structure.md").read_text(), re.S)[1]
    for name in re.findall(r"(?:arr_coc/)?\w+\.py", tree):
        assert (ROOT / name).exists() or (ROOT / "arr_coc" / name).exists(), name


def test_it_stays_short_and_current():
    assert len(README.read_text().splitlines()) <= 230
