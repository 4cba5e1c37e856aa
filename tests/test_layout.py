"""The house: which way imports point, who owns a heavy library, and that nothing drifts."""

import ast
import importlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "arr_coc"
MODULES = sorted(p.stem for p in PACKAGE.glob("*.py") if p.stem != "__init__")
STAGES = {"texture", "knowing", "balancing", "attending", "allocators"}
TRAINED = {"adapting", "components", "coupling"}
COMMANDS = [m for m in MODULES if "\ndef main(" in (PACKAGE / f"{m}.py").read_text()]
# Modules of the package that may import each heavy library.
OWNERS = {
    "kornia": {"texture"},
    "matplotlib": {"homunculus", "evaluate_plots"},
    "pyarrow": {"evaluate", "evaluate_rows", "evaluate_summary"},
    "datasets": {"evaluate_data"},
    "transformers": {"qwen*", "loading", "measuring", "benchmark", "pretrain*", "train*"},
    "gradio": {"page_live", "page_parts", "page_steps"},
    "spaces": set(),
}
# What each part of the package may import of it; a name stands for itself and `name_*`.
BELOW = {
    "texture": set(),
    "texture_candidates": {"texture"},
    "knowing": {"texture"},
    "balancing": set(),
    "attending": set(),
    "around": {"attending"},
    "allocators": {"attending"},
    "adapting": set(),
    "coupling": set(),
    "components": {"adapting", "balancing", "coupling", "knowing"},
    "relaxing": set(),
    "spending": {"allocators", "attending", "balancing"},
    "realizing": STAGES | {"components", "spending"},
    "homunculus": STAGES | {"realizing"},
    "measuring": set(),
    "warping": set(),
    "deciding": {"attending", "balancing", "realizing"},
    "loading": {"components"},
    "qwen_encode": {"around", "attending"},
    "qwen_answer": {"realizing", "qwen_encode", "measuring"},
    "qwen_look": {"qwen_encode", "realizing"},
    "qwen": {"components", "realizing", "homunculus", "qwen_encode", "qwen_answer", "loading"}
    | {"qwen_look"},
    "intake": set(),
    "native": {"intake", "peers_select"},
    "qwen_attention": {"qwen_encode"},
    "peers_select": set(),
    "peers_base": {"attending", "realizing", "qwen", "qwen_encode", "spending"},
    "peers_before": {"attending", "peers_base", "peers_select"},
    "peers_after": {"peers_base", "peers_select", "qwen_attention", "qwen_encode"},
    "peers_frames": {"attending", "qwen_encode"},
    "peers_ours": STAGES
    | {"peers_base", "peers_frames", "qwen", "qwen_encode", "realizing", "texture_candidates"},
    "peers_parts": {"components", "peers_base", "peers_ours", "qwen", "realizing"},
    "peers": {"peers_base", "peers_before", "peers_after", "peers_ours", "peers_parts"}
    | {"realizing"},
    "train_base": {"around", "attending", "qwen", "qwen_encode", "spending"},
    "train_data": {"balancing", "evaluate_data", "scenes"},
    "train_group": {"knowing", "qwen", "qwen_encode", "texture", "train_base", "train_data"},
    "train_decide": {"attending", "balancing", "components", "knowing", "realizing", "relaxing"}
    | {"train_data", "train_group"},
    "train_losses": {
        "adapting",
        "components",
        "qwen",
        "qwen_encode",
        "relaxing",
        "train_base",
        "train_data",
    }
    | {"train_decide", "train_group"},
    "train_model": {"components", "qwen", "relaxing", "train_data"}
    | {"train_decide", "train_group", "train_losses"},
    "tensions_phrases": {"scenes", "scenes_draw"},
    "evaluate_stats": set(),
    "evaluate_plots": set(),
    "evaluate_data": {"scenes"},
    "evaluate_answer": {"qwen_encode"},
    "hub_cards": set(),
    "hub_files": {"hub_cards", "loading"},
    "hub_check": {"hub_files", "loading"},
    "hub": {"hub_cards", "hub_check", "hub_files", "loading"},
}


def imports(path: Path) -> set[str]:
    """Top-level libraries, and `arr_coc.<module>` for imports inside the package."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module == "arr_coc":
            found |= {f"arr_coc.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module)
    return found


def inside(path: Path) -> set[str]:
    return {name.split(".")[1] for name in imports(path) if name.startswith("arr_coc.")}


@pytest.mark.parametrize("module", sorted(BELOW))
def test_arrows_point_one_way(module):
    assert inside(PACKAGE / f"{module}.py") <= BELOW[module]


@pytest.mark.parametrize("library", sorted(OWNERS))
def test_each_heavy_library_has_its_owner(library):
    users = {
        m for m in MODULES if library in {i.split(".")[0] for i in imports(PACKAGE / f"{m}.py")}
    }
    allowed = OWNERS[library]
    strangers = {
        u
        for u in users
        if u not in allowed and not any(a.endswith("*") and u.startswith(a[:-1]) for a in allowed)
    }
    assert not strangers


def test_the_lower_stages_know_tensors_only():
    for module in STAGES | TRAINED | {"realizing", "spending", "texture_candidates"}:
        libraries = {i.split(".")[0] for i in imports(PACKAGE / f"{module}.py")}
        assert not libraries & {"transformers", "PIL", "gradio", "matplotlib", "pathlib", "os"}


def test_app_imports_spaces_first():
    tree = ast.parse((ROOT / "app.py").read_text())
    first = next(n for n in tree.body if isinstance(n, ast.Import | ast.ImportFrom))
    assert isinstance(first, ast.Import) and first.names[0].name == "spaces"


@pytest.mark.parametrize("module", MODULES)
def test_every_module_imports_and_says_what_it_is(module):
    assert importlib.import_module(f"arr_coc.{module}").__doc__


def test_the_package_itself_is_light():
    code = "import sys, arr_coc; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command):
    done = subprocess.run(
        [sys.executable, "-m", f"arr_coc.{command}", "--help"],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0 and "usage" in done.stdout


def test_there_are_commands():
    assert {"benchmark", "evaluate", "hub", "pretrain", "scenes", "tensions", "train"} <= set(
        COMMANDS
    )


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
