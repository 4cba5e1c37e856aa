"""Measuring: bytes of a KV cache, peak memory, and the machine a number was taken on."""

import os
import platform
import re
import subprocess
from pathlib import Path
from typing import Any

import torch


def machine(device: torch.device) -> dict[str, Any]:
    """What a result must name: processor or GPU, cores, threads, memory, versions."""
    import transformers

    report = {
        "device": device.type,
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }
    if device.type == "cuda":
        report["gpu"] = torch.cuda.get_device_name(device)
    return report


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
