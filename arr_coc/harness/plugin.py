"""Plugin: how lmms-eval finds ARR-COC: the entry point of pyproject.toml calls `manifest`."""

from typing import Any

NAME = "arr_coc"


def manifest() -> Any:
    """What lmms-eval asks of a plugin; the model itself is imported when it is used."""
    from lmms_eval.models.registry_v2 import ModelManifest

    return ModelManifest(NAME, chat_class_path="arr_coc.harness.lmms.ARRCOC")
