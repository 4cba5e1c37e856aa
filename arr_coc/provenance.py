"""Provenance: what every report carries: the command as typed, commit, date and machine."""

import os
import platform
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from arr_coc import naming

# What else decides which model a command runs; told before the command where they are set.
VARIABLES = tuple(
    f"ARR_COC_{name}" for name in ("BASE", "BASE_REVISION", "WEIGHTS", "REVISIONS", "DTYPE")
)


def header(module: str, words: Sequence[str], device: torch.device) -> dict[str, Any]:
    """The head of a report.

    Args:
        module: what `python -m` ran.
        words: its arguments as typed; quoted where a shell would need it.
        device: the numbers were taken on.
    """
    return {
        "command": command(module, words),
        "commit": commit(),
        "date": time.strftime("%Y-%m-%d"),
        "machine": machine(device),
    }


def command(module: str, words: Sequence[str]) -> str:
    """How to make a result again: arguments as a shell needs them, folders of this machine by name."""
    named = [
        f"{name}={shlex.quote(naming.public(os.environ[name]))}"
        for name in VARIABLES
        if name in os.environ
    ]
    together = "TORCHELASTIC_RUN_ID" in os.environ
    launcher = ["torchrun", "--nproc_per_node", str(processes())] if together else ["python"]
    return " ".join([*named, shlex.join([*launcher, "-m", module, *map(_public, words)])])


def processes() -> int:
    """How many run the command together."""
    return int(os.environ.get("WORLD_SIZE", 1))


def _public(word: str) -> str:
    flag, equals, value = word.partition("=") if word.startswith("-") else ("", "", word)
    return flag + equals + naming.public(value)


def typed(argv: Sequence[str] | None) -> list[str]:
    """The arguments a command was given: those of `main`, or of the process."""
    return list(sys.argv[1:] if argv is None else argv)


def machine(device: torch.device) -> dict[str, Any]:
    """What a result must name: processor or GPU, cores, threads, memory, versions."""
    import transformers

    report = {
        "device": device.type,
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "memory_gb": round(memory_bytes() / 1e9, 1),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }
    if device.type == "cuda":
        report["gpu"] = torch.cuda.get_device_name(device)
    return report


def same_machine(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two reports' machines are alike enough to compare seconds, whatever is installed on them."""
    return all(one.get(key) == other.get(key) for key in ("device", "gpu", "processor", "cores"))


def memory_bytes() -> int:
    """Of the machine; 0 where the platform does not say it."""
    if not hasattr(os, "sysconf"):
        return 0
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def commit() -> str | None:
    """The commit the numbers were taken at, with a mark where files had changed; None without git."""
    try:
        where = dict(cwd=Path(__file__).parent, capture_output=True, text=True, check=True)
        head = subprocess.run(["git", "rev-parse", "--short", "HEAD"], **where).stdout.strip()
        dirty = subprocess.run(["git", "status", "--porcelain", "--", "*.py"], **where).stdout
        return head + ("+changes" if dirty.strip() else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    found = re.search(r"model name\s*:\s*(.+)", info.read_text()) if info.exists() else None
    return found[1].strip() if found else platform.processor() or platform.machine()
