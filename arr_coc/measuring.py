"""Measuring: bytes of a KV cache, peak memory, and the machine a number was taken on."""

import contextlib
import os
import platform
import re
import subprocess
from pathlib import Path
from typing import Any

import torch

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
RESET_PEAK = "5"  # proc(5): resets the peak resident set size
CUDA_KIND = "CUDA peak allocated during the call, weights included"
CPU_KIND = "peak resident memory of the process during the call, weights included"
CPU_KIND_SINCE_START = "peak resident memory of the process since its start"


def kv_cache_bytes(cache: Any, tokens: int) -> int:
    """Bytes of keys and values that `tokens` tokens take in a transformers cache, over all layers."""
    return sum(
        tokens * kept.shape[1] * kept.shape[3] * kept.element_size()
        for layer in cache.layers
        for kept in (layer.keys, layer.values)
    )


def reset_peak_memory(device: torch.device) -> None:
    """Start a new peak on the device, or of the process where Linux allows it."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return
    # Where it cannot be reset, peak_memory says that the peak counts from the process's start.
    with contextlib.suppress(OSError):
        CLEAR.write_text(RESET_PEAK)


def peak_memory(device: torch.device) -> tuple[int, str]:
    """Bytes at the peak since the last reset, and in words what was measured."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device), CUDA_KIND
    if STATUS.exists():
        found = re.search(r"VmHWM:\s+(\d+) kB", STATUS.read_text())
        if found:
            kind = CPU_KIND if os.access(CLEAR, os.W_OK) else CPU_KIND_SINCE_START
            return int(found[1]) * 1024, kind
    import resource

    factor = 1 if platform.system() == "Darwin" else 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * factor
    return peak, CPU_KIND_SINCE_START


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
