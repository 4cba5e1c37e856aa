"""README, docs, CONTRIBUTING and CHANGELOG say what is true: commands are CI's, snippets run, tables are
`results/`, links, files, modules and tests exist.

`python -m tests.tables` writes the tables anew from what was measured.
"""

import importlib.util
import json
import pkgutil
import re
import subprocess
import sys

import pytest
import yaml

from arr_coc.hub.files import space_files
from tests.tables import BASE, BLOCK, BLOCKS, README, ROOT, base_card
from tests.tables_shared import percent

STRUCTURE = ROOT / "docs" / "structure.md"
CONTRIBUTING, CHANGELOG = ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"
CARDS = [ROOT / "arr_coc" / "bundled" / name / "README.md" for name in ("base", "arr-coc")]
PAGES = [README, CONTRIBUTING, CHANGELOG, *sorted((ROOT / "docs").glob("*.md")), *CARDS]
LONGEST_README, FIRST_TABLE = 200, 45
every_page = pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))


def block(name: str) -> str:
    return re.search(BLOCK.format(name=name), BLOCKS[name][0].read_text(), re.S)[2]


@pytest.mark.parametrize("name", BLOCKS)
def test_tables_are_what_was_measured(name):
    assert block(name) == BLOCKS[name][1]()


def test_the_card_of_the_bundled_base_is_what_was_measured():
    assert (BASE / "README.md").read_text() == base_card()


def commands() -> list[str]:
    blocks = re.findall(r"```bash\n(.*?)\n```", README.read_text(), re.S)
    assert len(blocks) == 2
    return blocks


def test_ci_runs_the_second_command_to_the_letter():
    steps = commands()[1].split(" && ")
    assert steps[2].startswith("pip install")
    assert steps[3:] == ["python -m tests.setup", "python -m pytest"]
    # Within `bash -c '...'`, so that a failure anywhere in the line ends CI.
    assert f"\nbash -c '\n{commands()[1]}\n'\n" in (ROOT / ".ci" / "run").read_text()


def test_the_first_command_installs_what_the_space_needs_and_starts_the_app():
    steps = commands()[0].split(" && ")
    assert steps[2:] == [
        "pip install --no-compile torch==2.13.0 -r requirements.txt",
        "python app.py",
    ]


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


def test_the_readme_stays_short_and_shows_its_results_early():
    lines = README.read_text().splitlines()
    assert len(lines) <= LONGEST_README
    tables = [n for n, line in enumerate(lines, start=1) if re.match(r"\|[-|]+\|$", line)]
    assert tables[0] - 1 <= FIRST_TABLE  # the row of dashes stands under the heads
    assert len(tables) == 2  # results and settings
    assert sum("![" in line for line in lines) == 2  # the page, and time against tokens


def anchors(text: str) -> set[str]:
    """The names that GitHub gives a page's headings."""
    heads = re.findall(r"^#+ (.*)$", re.sub(r"```.*?```", "", text, flags=re.S), re.M)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@every_page
def test_links_exist(page):
    for target in re.findall(r"\]\(([^)]+)\)", page.read_text()):
        if not target.startswith("http"):
            name, _, anchor = target.partition("#")
            file = page.parent / name if name else page
            assert file.exists(), target
            assert not anchor or anchor in anchors(file.read_text()), target


def test_a_space_holds_what_the_readme_links_to():
    held = space_files("cpu")
    for target in re.findall(r"\]\(([^)#]+)", README.read_text()):
        assert target.startswith("http") or target in held


@every_page
def test_files_and_commands_exist(page):
    text = page.read_text()
    for name in re.findall(r"`((?:arr_coc|tests|docs|results|examples)/[\w./-]+\.\w+)\b", text):
        assert (ROOT / name).exists(), name
    for module in re.findall(r"-m ((?:arr_coc|tests)(?:\.\w+)+)", text):
        assert importlib.util.find_spec(module), module


def test_the_tree_names_every_room_and_no_other():
    tree = re.search(r"```\n(app\.py.*?)```", README.read_text(), re.S)[1]
    package = ROOT / "arr_coc"
    rooms = {f"{p.name}/" for p in package.iterdir() if p.is_dir() and p.name != "__pycache__"}
    rooms |= {p.name for p in package.glob("*.py")} - {"__init__.py"} | {"app.py"}
    rooms |= {"arr_coc/", "docs/", "examples/", "results/", "tests/"}
    assert set(re.findall(r"[\w]+(?:/|\.py\b)(?!\w)", tree)) - {"test_layout.py"} == rooms


def test_ten_questions_have_one_file_each():
    rows = re.findall(r"^\| (Where .*\?) \| `(.*?)` \| (.*) \|$", STRUCTURE.read_text(), re.M)
    assert len(rows) == 10 and len({file for _, file, _ in rows}) == 10
    for _, file, names in rows:
        for name in re.findall(r"`(.*?)`", names):
            assert name in (ROOT / file).read_text(), f"{name} in {file}"


def test_laws_name_their_tests():
    laws = re.findall(r"`(tests/\w+\.py)::(\w+)`", CONTRIBUTING.read_text())
    assert len(laws) > 10
    for file, name in laws:
        assert f"\ndef {name}(" in (ROOT / file).read_text(), name


def test_the_changelog_names_modules_that_exist():
    rows = re.findall(r"^\| `.*` \| (.*) \|$", CHANGELOG.read_text(), re.M)
    assert len(rows) > 10
    for name in re.findall(r"`(arr_coc[\w.]*)`", "".join(rows)):
        assert pkgutil.resolve_name(name), name


def test_the_opening_says_what_was_measured():
    opening = " ".join(README.read_text().split("\n# ")[1].split("![")[0].split())
    scenes = json.loads((ROOT / "results" / "scenes" / "summary.json").read_text())
    fifth = {e["method"]: e for e in scenes["methods"] if e["budget"] == 0.2}
    kept = fifth["arr-coc"]["against_stock"]["kept"]["value"]
    published = ("pixelprune", "fastv", "visionzip", "divprune", "cdpruner", "dart", "vicrop")
    said = f"keeps {100 * kept:.0f} % of the full look's accuracy, more than any of seven published"
    assert said in opening and len(published) == 7
    leads = {e["against"]: e["overall"] for e in scenes["pairs"] if e["budget"] == 0.2}
    assert all(leads[name]["interval"][0] > 0 for name in published), "a lead may be chance"
    next_best = max(published, key=lambda name: fifth[name]["overall"]["value"])
    assert next_best == "divprune" and "DivPrune comes next" in README.read_text()
    times = json.loads((ROOT / "results" / "first-word.json").read_text())  # of the same model
    sooner = times["summary"]["ratio"]["lower"]  # the quartile that is not flattering
    assert f"on a CPU its first word comes {sooner:.1f} times sooner" in opening


def test_what_is_lost_most_is_named():
    scenes = json.loads((ROOT / "results" / "scenes" / "summary.json").read_text())
    ours = next(e for e in scenes["methods"] if (e["method"], e["budget"]) == ("arr-coc", 0.2))
    lost = sorted(ours["against_stock"]["kinds"].items(), key=lambda pair: pair[1]["value"])
    text = " ".join(README.read_text().split())
    said = re.search(r"\[loses most\]\([^)]*\) in (\w+), (\w+) and (\w+)\.", text)
    assert set(said.groups()) == {kind for kind, _ in lost[:3]}
    assert lost[2][1]["value"] < lost[3][1]["value"], "the fourth is as bad"
    parts = json.loads((ROOT / "results" / "parts" / "summary.json").read_text())
    clear = {e["against"] for e in parts["pairs"] if e["overall"]["interval"][0] > 0}
    assert clear - {"arr-coc-free", "stock"} == {"arr-coc-no-scan"}
    glance = json.loads((ROOT / "results" / "glance" / "summary.json").read_text())
    lost = {(e["against"], e["budget"]): e["overall"] for e in glance["pairs"]}
    alone, cells = "arr-coc-alone", "arr-coc-no-glance"
    said = [
        f"lose {percent(lost[alone, 0.05])} points at a twentieth",
        f"and {percent(lost[alone, 0.2])} at a fifth",
        f"in its place lose {percent(lost[cells, 0.05])} and {percent(lost[cells, 0.2])}.",
    ]
    evaluation = " ".join((ROOT / "docs" / "evaluation.md").read_text().split())
    assert "only the scan is shown to matter here" in evaluation
    assert all(words in evaluation for words in said)
