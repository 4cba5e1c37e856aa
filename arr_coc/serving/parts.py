"""Parts: ARR-COC's trained weights for the checkpoint that vLLM serves; no vLLM.

`ARR_COC_WEIGHTS` names them, as for the page; the bundled base takes its own, any other base none.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from arr_coc.components import Components, fingerprint
from arr_coc.qwen import weights
from arr_coc.qwen.loading import BUNDLED_BASE


@cache
def parts_for(base: str, embedding_size: int, mark: str | None = None) -> Components | None:
    """The weights for a base; None where none are named.

    Args:
        base: Hub id or folder, as vLLM was given it.
        embedding_size: the text model's hidden size.
        mark: the base's fingerprint, which the weights must match; None where it is not loaded.

    Raises:
        WeightsError: for weights that cannot be read, or were made for another base.
    """
    is_bundled = Path(base).resolve() == BUNDLED_BASE.resolve()
    named = weights.default_weights(is_bundled)
    revision = weights.default_revision()
    with _as_elsewhere():
        return weights.load_components(
            named, revision, base=base, embedding_size=embedding_size, fingerprint=mark
        )


def fingerprint_of(text_config: Any, table: Tensor) -> str:
    """`components.fingerprint` of a text model's config and its whole embedding table."""
    holder = SimpleNamespace(
        config=SimpleNamespace(get_text_config=lambda: text_config),
        get_input_embeddings=lambda: SimpleNamespace(weight=table),
    )
    with _as_elsewhere():
        return fingerprint(holder)


@contextmanager
def _as_elsewhere() -> Iterator[None]:
    """With float32 as torch's default, which vLLM sets to the model's dtype while it loads.

    In bfloat16 the trained parts would be rounded, and the rows of a fingerprint would be others.
    """
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
