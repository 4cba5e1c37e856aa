"""Growing: the scan that a training run begins with, new or with new parts beside what it knows."""

from pathlib import Path

import torch

from arr_coc.components import Components
from arr_coc.qwen.model import ARRCOCQwen
from arr_coc.scanning import HOPS, ScanMatch, with_hops, with_likeness
from arr_coc.train.publishing import initial

# The beginnings of the names of their parameters.
NEW_HOPS = ("scan.hops.", "scan.again.")
NEW_LIKENESS = ("scan.likeness.",)


def parts_for(
    host: ARRCOCQwen,
    init: Path | None,
    hops: int | None = None,
    *,
    likeness: bool = False,
    only_new: bool = False,
    base_moved: bool = False,
) -> tuple[Components, tuple[str, ...]]:
    """A new `scan` for a base, or weights made for it, of which the scan alone is to be trained.

    Args:
        host: the base.
        init: weights made for it; None begins anew.
        hops: see `ScanMatch`; new ones are added to an `init` without. None for what `init` has, or `HOPS`.
        likeness: whether the scan has one; a new one is added to an `init` without.
        only_new: whether what `init` knows stays as it is.
        base_moved: whether the base was trained further since `init`.

    Returns:
        The parts; and the beginnings of the names of what is new beside what was trained before, which
        learns faster: none where all of it is new.

    Raises:
        ValueError: for hops below 0, for weights without a scan, or with other hops than are asked for, and
            where only what is new is to be trained and nothing is.
    """
    if hops is not None and hops < 0:
        raise ValueError(f"--hops is {hops}, allowed is 0 or more")
    torch.manual_seed(0)
    new: tuple[str, ...] = ()
    if init is None:
        size = host.model.config.text_config.hidden_size
        scan = ScanMatch(size, hops=HOPS if hops is None else hops, likeness=likeness)
        parts = Components({"scan": scan})
    else:
        parts = initial(host, init, base_moved=base_moved)
        if parts.scan is None:
            raise ValueError(f"{init} has {', '.join(parts.names)}, expected a scan to train on")
        own = parts.scan.sizes.get("hops", 0)
        if hops and not own:
            parts.scan, new = with_hops(parts.scan, hops), NEW_HOPS
        elif hops not in (None, own):
            raise ValueError(f"the scan of {init} has {own} hops, not {hops}")
        if likeness and parts.scan.likeness is None:
            parts.scan, new = with_likeness(parts.scan), (*new, *NEW_LIKENESS)
    if only_new and not new:
        raise ValueError("--only-new, and nothing is added: --likeness or --hops adds to --init")
    trained = new if only_new else ("scan.",)
    for name, parameter in parts.named_parameters():
        parameter.requires_grad_(name.startswith(trained))
    return parts, new
