"""Publishing: what a run trained, as ARR-COC weights with the record of every run that went into them."""

import json
from pathlib import Path
from typing import Any

from arr_coc.components import Components
from arr_coc.qwen import weights
from arr_coc.qwen.model import ARRCOCQwen


def publish(
    parts: Components, host: ARRCOCQwen, record: dict[str, Any], *, out: Path, init: Path | None
) -> None:
    """Write the weights to `out`, and the record after those of the runs that `init` came from."""
    weights.save_components(parts, out, base=host.name, **host.identity())
    earlier = []
    if init and (init / weights.TRAINING).is_file():
        earlier = json.loads((init / weights.TRAINING).read_text())["runs"]
    runs = json.dumps({"runs": [*earlier, record]}, indent=1)
    (out / weights.TRAINING).write_text(runs + "\n")
