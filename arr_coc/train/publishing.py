"""Publishing: what a run trained, as ARR-COC weights with the record of every run that went into them."""

import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from arr_coc.components import Components
from arr_coc.qwen import weights
from arr_coc.qwen.model import ARRCOCQwen
from arr_coc.train.settings import work_of
from arr_coc.train.trainer import last_checkpoint

log = logging.getLogger(__name__)

Record = dict[str, Any]


def check_out(out: Path, *, init: Path | None, resume: bool) -> None:
    """ValueError where OUT holds a run that this one would replace; a resume of nothing is told of."""
    work = work_of(out)
    has_checkpoint = last_checkpoint(work) is not None
    if resume:
        if not has_checkpoint:
            log.warning("%s holds no checkpoint: the run starts anew", work)
    elif has_checkpoint or ((out / weights.WEIGHTS).is_file() and out != init):
        raise ValueError(
            f"{out} holds an earlier run; --resume goes on with it, else name another --out"
        )


def runs_of(init: Path | None) -> list[Record]:
    """The records of the runs that a folder's weights came from."""
    if init is None or not (init / weights.TRAINING).is_file():
        return []
    return json.loads((init / weights.TRAINING).read_text())["runs"]


def initial(host: ARRCOCQwen, init: Path, *, base_moved: bool = False) -> Components:
    """Weights to train on: made for the host or, with `base_moved`, for an earlier state of its base.

    Raises:
        WeightsError: as `weights.load_components`.
    """
    identity = host.identity()
    if base_moved:
        identity["fingerprint"] = None
    return weights.load_components(init, None, base=host.name, **identity)


def publish(
    parts: Components, host: ARRCOCQwen, record: Record, *, out: Path, earlier: Sequence[Record]
) -> None:
    """Write the weights to `out`, and the record after those of `runs_of` what they came from."""
    weights.save_components(parts, out, base=host.name, **host.identity())
    _write_runs(out, [*earlier, record])


def _write_runs(out: Path, runs: Sequence[Record]) -> None:
    (out / weights.TRAINING).write_text(json.dumps({"runs": runs}, indent=1) + "\n")


def host_with_weights(base: str | None, name: str | None, what: str) -> ARRCOCQwen:
    """A base with its ARR-COC weights, for `publish_numbers`; ValueError where there are none.

    Args:
        base, name: folders or Hub ids, as `ARRCOCQwen.from_pretrained` takes them.
        what: is to be written into the weights.
    """
    host = ARRCOCQwen.from_pretrained(base, name)
    if not host.policies:
        raise ValueError(
            f"there are no ARR-COC weights to write {what} into; name some by --weights"
        )
    return host


def publish_numbers(
    host: ARRCOCQwen,
    out: Path,
    name: str,
    about: dict[str, Any],
    *,
    of: str | None,
    **numbers: Any,
) -> None:
    """Write the weights of a host with other numbers, and the report of how they came about.

    Args:
        host: its first weights are written, for the base that they name.
        out: a folder.
        of: the folder of these weights, whose record of runs goes with them, a Hub id, which has none
            here, or None for those that the host takes by itself.
        name, about: the report, as `name`.json.
        numbers: those of `Components.with_numbers`.
    """
    parts = next(iter(host.policies.values()))
    base = parts.origin.base if parts.origin and parts.origin.base else host.name
    weights.save_components(parts.with_numbers(**numbers), out, base=base, **host.identity())
    source = of or weights.default_weights(host.is_bundled)
    if runs := runs_of(Path(source) if source else None):
        _write_runs(out, runs)
    (out / f"{name}.json").write_text(json.dumps(about, indent=1) + "\n")
