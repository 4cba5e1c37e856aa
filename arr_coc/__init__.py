"""ARR-COC-VIS: spend a vision-language model's visual tokens where the question needs them.

The stages, in order: `texture` -> `knowing` -> `balancing` -> `attending`, run by `realizing` on a
host model; `qwen` is the host on stock Qwen3-VL. Nothing heavy is imported here.
"""

__version__ = "0.1.0"
