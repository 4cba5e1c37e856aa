"""Memory: what an answer takes of it, on a GPU or in this process."""

import contextlib
import os
import platform
import re
from pathlib import Path
from typing import Any

import torch

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
RESET_PEAK = "5"  # proc(5): resets the peak resident set size
CUDA_KIND = "CUDA peak allocated during the call, weights included"
CPU_KIND = "peak resident memory of the process during the call, weights included"
CPU_KIND_SINCE_START = "peak resident memory of the process since its start"


def kv_bytes_per_token(model: Any) -> int:
    """Bytes of one token's keys and values over all text layers of a `Qwen3VLForConditionalGeneration`."""
    text = model.config.get_text_config()
    width = text.num_key_value_heads * text.head_dim
    # Of the text model: a vision tower that overflowed may be in a wider dtype.
    dtype = model.get_input_embeddings().weight.dtype
    return 2 * text.num_hidden_layers * width * dtype.itemsize


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
        peak = re.search(r"VmHWM:\s+(\d+) kB", STATUS.read_text())
        if peak:
            kind = CPU_KIND if os.access(CLEAR, os.W_OK) else CPU_KIND_SINCE_START
            return int(peak[1]) * 1024, kind
    import resource

    factor = 1 if platform.system() == "Darwin" else 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * factor
    return peak, CPU_KIND_SINCE_START
