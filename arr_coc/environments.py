"""Environments: a tool and this package in a virtual environment of their own, made by one command.

For what pins packages that clash with those of the tests: vLLM (`serving.environment`) and lmms-eval
(`harness.environment`). Running such a command again mends what is there.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
DEVICES = ("cpu", "gpu")
# A build for the CPU has no CUDA libraries to bring; pip takes the one that is named or that lies here.
TORCH = "torch==2.13.0"
STUB = "arr_coc_torchvision"
# Import lines of a .pth file are run at every start of the environment's Python. The finder waits for the
# first import of torchvision, so that processes which need neither stay quick.
STUB_SOURCE = '''"""Declares two operators that torchvision looks for, where its binary needs CUDA."""

import importlib.abc
import sys


class Before(importlib.abc.MetaPathFinder):
    """Declares them just before torchvision is imported for the first time."""

    def find_spec(self, name, path=None, target=None):
        if name == "torchvision":
            sys.meta_path.remove(self)
            import torch

            library = torch.library.Library("torchvision", "FRAGMENT")
            KEPT.append(library)  # it declares for as long as it lives
            for name in ("nms", "qnms"):
                library.define(
                    name + "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
                )
        return None


KEPT = []
sys.meta_path.insert(0, Before())
'''
INSTALLED = """
import json
from importlib.metadata import entry_points, version
plugins = [one.name for one in entry_points(group={group!r})]
print(json.dumps({{name: version(name) for name in {names!r}}} | {{"plugins": plugins}}))
"""

Steps = Callable[
    [list[str], str], list[list[str]]
]  # pip commands, from how pip is called and a device


def set_up(
    at: Path, device: str, steps: Steps, *, group: str, names: Sequence[str]
) -> dict[str, Any]:
    """Make the environment at a folder, or mend it.

    Args:
        at: its folder.
        device: one of `DEVICES`.
        steps: what to install, one command after the other.
        group: of entry points, by which the tool finds this package.
        names: packages whose versions are told.

    Returns:
        The versions by name, and `plugins`, the names in the group.

    Raises:
        ValueError: for a step that fails.
    """
    at = at.absolute()  # the last command runs in it
    python = at / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(at)], check=True)
    for step in steps([str(python), "-m", "pip"], device):
        if subprocess.run(step).returncode:
            raise ValueError(f"this failed, its last lines say why: {' '.join(step)}")
    if device == "cpu":
        write_stub(python)
    code = INSTALLED.format(group=group, names=list(names))
    return json.loads(subprocess.check_output([str(python), "-c", code], cwd=at))


def write_stub(python: Path) -> None:
    """Let torchvision be imported beside a build of torch for the CPU."""
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    packages = Path(subprocess.check_output([str(python), "-c", code], text=True).strip())
    (packages / f"{STUB}.py").write_text(STUB_SOURCE)
    (packages / f"{STUB}.pth").write_text(f"import {STUB}\n")


def parse(about: str, argv: Sequence[str] | None) -> argparse.Namespace:
    """`--at` and `--device`, of `argv` or of the process; `about` is for --help."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--at", type=Path, required=True, help="folder of the environment")
    parser.add_argument("--device", choices=DEVICES, default="cpu", help="default %(default)s")
    return parser.parse_args(argv)
