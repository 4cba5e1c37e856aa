"""The house: which way imports point, who owns a heavy library, and that nothing drifts."""

import ast
import importlib.util
import json
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "arr_coc"
FILES = sorted(
    path for path in PACKAGE.rglob("*.py") if path.parent != PACKAGE or path.stem != "__init__"
)
MODULES = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for path in FILES
]
COMMANDS = [
    module.removesuffix(".__main__")
    for module, path in zip(MODULES, FILES)
    if "\ndef main(" in path.read_text()
]
# The idea, in the order in which data flows, and what stands beside it: tensors only.
IDEA = {
    "texture",
    "knowing",
    "balancing",
    "attending",
    "allocators",
    "adapting",
    "lora",
    "components",
    "likeness",
    "scanning",
    "words",
}
IDEA |= {"config", "motion", "realizing", "temporal"}
# Rooms of `arr_coc`, and the rooms that each may import besides itself: one direction, no circle.
BELOW = {
    "texture": set(),
    "clips": {"config", "pictures"},
    "commands": {"config"},
    "config": set(),
    "digests": set(),
    "environments": set(),
    "naming": set(),
    "adapting": set(),
    "lora": set(),
    "pictures": set(),
    "provenance": {"naming"},
    "scoring": set(),
    "knowing": {"texture"},
    "balancing": {"config"},
    "attending": {"config"},
    "allocators": {"attending", "config"},
    "words": set(),
    "likeness": set(),
    "scanning": {"knowing", "likeness", "words"},
    "components": {
        "config",
        "adapting",
        "balancing",
        "knowing",
        "lora",
        "motion",
        "scanning",
        "words",
    },
    "motion": {"texture"},
    "realizing": IDEA - {"motion", "temporal"},
    "temporal": IDEA,
    "ranking": set(),
    "homunculus": {"attending", "config", "ranking"},
    "qwen": IDEA | {"clips", "homunculus", "naming", "pictures"},
    "benchmark": {
        "check",
        "clips",
        "commands",
        "components",
        "attending",
        "config",
        "peers",
        "provenance",
        "qwen",
        "serving",
    },
    "check": IDEA | {"commands", "naming", "provenance", "qwen"},
    "scenes": {"commands"},
    "sets": {"pictures"},
    "peers": IDEA | {"clips", "qwen"},
    "service": IDEA
    | {"check", "clips", "commands", "digests", "naming", "pictures", "qwen", "serving"},
    "evaluate": {
        "clips",
        "commands",
        "components",
        "config",
        "digests",
        "naming",
        "peers",
        "pictures",
        "provenance",
        "qwen",
        "scenes",
        "scoring",
        "sets",
    },
    "train": IDEA
    | {"clips", "commands", "evaluate", "peers", "provenance", "qwen", "scenes", "scoring", "sets"},
    "pretrain": {"commands", "digests", "evaluate", "provenance", "qwen", "scenes"},
    "tensions": {
        "commands",
        "balancing",
        "config",
        "evaluate",
        "peers",
        "provenance",
        "qwen",
        "scenes",
    },
    "hub": {"config", "digests", "evaluate", "naming", "qwen", "service"},
    "serving": IDEA | {"commands", "environments", "qwen"},
    "harness": {
        "commands",
        "config",
        "environments",
        "evaluate",
        "pictures",
        "qwen",
        "scenes",
        "scoring",
        "sets",
    },
    "record": {
        "commands",
        "config",
        "digests",
        "naming",
        "pictures",
        "provenance",
        "qwen",
        "scoring",
        "service",
    },
    "record_clips": {
        "commands",
        "config",
        "digests",
        "naming",
        "page",
        "provenance",
        "qwen",
        "record",
        "scenes",
        "scoring",
        "service",
    },
    "page": {"config", "homunculus", "peers", "ranking", "scenes", "scoring", "service"},
}
# Rooms and files that may import each heavy library.
OWNERS = {
    "av": {"clips", "record_clips"},
    "kornia": {"texture"},
    "matplotlib": {"homunculus", "evaluate.plots"},
    "pyarrow": {"evaluate.store", "evaluate.summary", "hub.questions"},
    "datasets": {"sets"},
    "transformers": {"qwen", "provenance", "pretrain", "train", "serving.processor"},
    "vllm": {"serving.plugin", "serving.processor", "serving.model"},
    "lmms_eval": {"harness.lmms", "harness.plugin", "harness.task"},
    "vlmeval": {"harness.vlmeval"},
    "gradio": {
        "page.api",
        "page.below",
        "page.changes",
        "page.clip_cards",
        "page.local_handlers",
        "page.tuning",
        "page.model_handlers",
        "page.parts",
        "page.sense",
        "page.refusals",
        "page.taken",
        "page.several_handlers",
        "page.you_handlers",
    },
    "spaces": set(),
}
# What has an environment of its own (docs/serving.md, docs/benchmarks.md), by the library that is there.
NEEDS = {
    "arr_coc.serving.processor": "vllm",
    "arr_coc.serving.model": "vllm",
    "arr_coc.harness.lmms": "lmms_eval",
    "arr_coc.harness.vlmeval": "vlmeval",
}
LONGEST_FILE, LONGEST_FUNCTION, LONGEST_CLASS = 350, 80, 200


@cache
def imports(path: Path) -> set[str]:
    """Whatever a file imports, by its full name; `from a import b` counts as `a.b`."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def room(module: str) -> str:
    return module.split(".")[1]


def test_every_room_has_its_place():
    assert {room(module) for module in MODULES} == set(BELOW)


@pytest.mark.parametrize("name", sorted(BELOW))
def test_arrows_point_one_way(name):
    own = [path for module, path in zip(MODULES, FILES) if room(module) == name]
    met = {room(i) for path in own for i in imports(path) if i.startswith("arr_coc.")}
    assert met - {name, "__version__"} <= BELOW[name]


def test_no_room_stands_above_itself():
    left = dict(BELOW)
    while ground := [name for name, below in left.items() if not below & set(left) - {name}]:
        for name in ground:
            del left[name]
    assert not left


def test_no_circle_among_the_files():
    names = set(MODULES)

    def target(name: str) -> str | None:
        return name if name in names else name.rpartition(".")[0]

    left = {
        module: {t for i in imports(path) if (t := target(i)) in names and t != module}
        for module, path in zip(MODULES, FILES)
    }
    while ground := [module for module, below in left.items() if not below & set(left)]:
        for module in ground:
            del left[module]
    assert not left


@pytest.mark.parametrize("library", sorted(OWNERS))
def test_each_heavy_library_has_its_owner(library):
    users = {
        module.removeprefix("arr_coc.")
        for module, path in zip(MODULES, FILES)
        if library in {i.split(".")[0] for i in imports(path)}
    }
    assert not {user for user in users if not {user, user.split(".")[0]} & OWNERS[library]}


@pytest.mark.parametrize("name", sorted(IDEA))
def test_the_idea_knows_tensors_only(name):
    libraries = {i.split(".")[0] for i in imports(PACKAGE / f"{name}.py")}
    assert not libraries & {"transformers", "PIL", "gradio", "matplotlib", "pathlib", "os"}


@pytest.mark.parametrize("module", ["arr_coc", "arr_coc.config", "arr_coc.qwen", "arr_coc.scoring"])
def test_settings_are_known_without_torch(module):
    code = f"import sys, {module}; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize("path", [*FILES, ROOT / "app.py"], ids=lambda p: str(p.relative_to(ROOT)))
def test_files_functions_and_classes_are_short(path):
    text = path.read_text()
    assert text.count("\n") <= LONGEST_FILE
    for node in ast.walk(ast.parse(text)):
        length = (getattr(node, "end_lineno", 0) or 0) - getattr(node, "lineno", 0) + 1
        if isinstance(node, ast.FunctionDef):
            assert length <= LONGEST_FUNCTION, node.name
        if isinstance(node, ast.ClassDef):
            assert length <= LONGEST_CLASS, node.name


def test_app_imports_spaces_first():
    tree = ast.parse((ROOT / "app.py").read_text())
    first = next(n for n in tree.body if isinstance(n, ast.Import | ast.ImportFrom))
    assert isinstance(first, ast.Import) and first.names[0].name == "spaces"


@pytest.mark.parametrize("module", MODULES)
def test_every_module_imports_and_says_what_it_is(module):
    if module in NEEDS and importlib.util.find_spec(NEEDS[module]) is None:
        path = FILES[MODULES.index(module)]
        # Imported by tests.serving_proof, tests.harness_proof and, on a stub, tests/test_harness.py.
        assert ast.get_docstring(ast.parse(path.read_text()))
        return
    assert importlib.import_module(module).__doc__


# One process for all: each of its own would import torch anew.
HELP_OF_EACH = """
import contextlib, io, json, runpy, sys

said = {}
for name in sys.argv[1:]:
    sys.argv, code, out = [name, "--help"], "none", io.StringIO()
    with contextlib.redirect_stdout(out):
        try:
            runpy.run_module(name, run_name="__main__", alter_sys=True)
        except SystemExit as end:
            code = end.code or 0
    said[name] = [code, out.getvalue()]
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def helps():
    """Of every command, how its --help ended and what it said."""
    done = subprocess.run(
        [sys.executable, "-c", HELP_OF_EACH, *COMMANDS], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command, helps):
    code, said = helps[command]
    assert code == 0 and "usage" in said


def test_there_are_commands():
    names = {
        "benchmark",
        "check",
        "evaluate",
        "harness",
        "hub",
        "pretrain",
        "record",
        "scenes",
        "tensions",
        "train",
    }
    assert {f"arr_coc.{name}" for name in names} <= set(COMMANDS)


def tracked() -> list[Path]:
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True)
    if done.returncode:
        pytest.skip("not a git checkout")
    return [ROOT / name for name in done.stdout.decode().split("\0") if name]


def test_the_repository_is_small_and_names_no_machine():
    files = [p for p in tracked() if p.exists()]
    assert sum(p.stat().st_size for p in files) < 60e6
    marks = "|".join(("/wo" + "rk/", "/ro" + "ot/", "/tm" + "p/"))
    for path in files:
        if path.suffix in {".py", ".md", ".toml", ".txt", ".json", ".css", ".html", ""}:
            assert not re.search(marks, path.read_text(errors="ignore")), path


def test_results_name_their_command_and_machine():
    reports = sorted((ROOT / "results").glob("*.json"))
    assert reports
    for path in reports:
        report = json.loads(path.read_text())
        assert {"command", "commit", "date", "machine"} <= set(report)
        assert report["commit"], path
