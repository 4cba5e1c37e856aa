"""Qwen: stock Qwen3-VL as ARR-COC's host, and its answers; `ARRCOCQwen` is the way in.

Imported at first use, so that its settings and shapes can be read without torch.
"""

from typing import Any

__all__ = ["ARRCOCQwen", "Answer", "Measures"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from arr_coc.qwen import answer, model

        return getattr(model, name, None) or getattr(answer, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
