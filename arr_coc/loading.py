"""Loading: a Qwen3-VL checkpoint and its ARR-COC weights, by Hub id or folder.

Refuses what is not Qwen3-VL before any weights are read, takes the PIL image processor by name (so
that pixels are the same on every machine, and torchvision is not needed), safetensors only, and no
remote code. Without `components` no network call is made for ARR-COC weights.
"""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import snapshot_download
from safetensors.torch import load_file, save_file

from arr_coc.balancing import TensionPolicy

BUNDLED_BASE = Path(__file__).parent / "bundled" / "base"
QWEN = "Qwen/Qwen3-VL-2B-Instruct"
MODEL_TYPE = "qwen3_vl"
FORMAT_VERSION = 1
BFLOAT16_CAPABILITY = 8


@dataclass(frozen=True)
class Base:
    """A loaded checkpoint and where it came from."""

    model: Any
    tokenizer: Any
    image_processor: Any
    name: str
    is_bundled: bool


def default_base() -> str:
    """`ARR_COC_BASE` if set; on a Space with a GPU Qwen3-VL-2B; else the bundled base's folder."""
    if base := os.environ.get("ARR_COC_BASE"):
        return base
    on_gpu_space = "SPACE_ID" in os.environ and (
        torch.cuda.is_available() or os.environ.get("SPACES_ZERO_GPU")
    )
    return QWEN if on_gpu_space else str(BUNDLED_BASE)


def revisions() -> list[str]:
    """The weights' revisions to load at start, from `ARR_COC_REVISIONS` (separated by commas)."""
    listed = os.environ.get("ARR_COC_REVISIONS", "").split(",")
    return [name.strip() for name in listed if name.strip()]


def load_base(
    base: str | Path | None = None,
    *,
    device: str | torch.device | None = None,
    dtype: torch.dtype | None = None,
) -> Base:
    """Load model, tokenizer and image processor of a Qwen3-VL checkpoint.

    Raises:
        ValueError: for a missing folder, an id the Hub does not give, or another architecture.
    """
    from transformers import (
        AutoTokenizer,
        Qwen2VLImageProcessorPil,
        Qwen3VLForConditionalGeneration,
    )

    base = str(base or default_base())
    check_base(base)
    device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    options: dict[str, Any] = {"dtype": dtype or default_dtype(device)}
    if device.type == "cuda":
        # On some pairs of torch and GPU the Conv3d patch embedding is very slow; the fused form is
        # exact. Process-wide and sticky, so it is set before any load and never changed.
        options["fusion_config"] = {"patch_embeddings": True}
    model = Qwen3VLForConditionalGeneration.from_pretrained(
        base, attn_implementation="sdpa", use_safetensors=True, **options
    )
    is_bundled = Path(base).resolve() == BUNDLED_BASE.resolve()
    return Base(
        model.to(device),
        AutoTokenizer.from_pretrained(base),
        Qwen2VLImageProcessorPil.from_pretrained(base),
        "bundled base" if is_bundled else base,
        is_bundled,
    )


def default_dtype(device: torch.device) -> torch.dtype:
    """bfloat16 where the GPU has it natively, float16 on older ones, float32 elsewhere."""
    if device.type != "cuda":
        return torch.float32
    native = torch.cuda.get_device_capability(device)[0] >= BFLOAT16_CAPABILITY
    return torch.bfloat16 if native else torch.float16


def check_base(base: str) -> None:
    """Raise ValueError, naming what was given and what is allowed, unless `base` is Qwen3-VL."""
    config = _read_config(base, "base")
    found = config.get("model_type")
    if found != MODEL_TYPE:
        raise ValueError(
            f"base {base!r} is a {found or 'model of unknown type'}, "
            f"expected a Qwen3-VL checkpoint (model_type {MODEL_TYPE!r})"
        )


def load_policy(
    components: str | Path | None, revision: str | None, *, base: str, embedding_size: int
) -> TensionPolicy | None:
    """Load ARR-COC weights made for a base; None where `components` is empty.

    Args:
        components: folder or Hub id with `config.json` and `model.safetensors`.
        revision: of the Hub repo.
        base: name of the base, for the message.
        embedding_size: the base's text hidden size, which the weights must match.

    Raises:
        ValueError: for a missing folder, another format, or weights for another base.
    """
    if not components:
        return None
    folder = _folder(str(components), revision)
    config = _read_config(str(folder), "ARR-COC weights")
    if config.get("format_version") != FORMAT_VERSION:
        raise ValueError(
            f"ARR-COC weights {str(components)!r} have format_version "
            f"{config.get('format_version')!r}, expected {FORMAT_VERSION}"
        )
    if config["embedding_size"] != embedding_size:
        raise ValueError(
            f"ARR-COC weights {str(components)!r} were made for {config.get('base_model')!r} "
            f"(hidden size {config['embedding_size']}), the base is {base!r} "
            f"(hidden size {embedding_size})"
        )
    policy = TensionPolicy(embedding_size, config["hidden_size"])
    policy.load_state_dict(load_file(folder / "model.safetensors"))
    return policy.eval()


def save_policy(policy: TensionPolicy, folder: Path, base: str) -> None:
    """Write ARR-COC weights as `load_policy` reads them."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "format_version": FORMAT_VERSION,
        "base_model": base,
        "embedding_size": policy.embedding_size,
        "hidden_size": policy.hidden_size,
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    save_file(policy.state_dict(), folder / "model.safetensors")


def _folder(name: str, revision: str | None) -> Path:
    if Path(name).is_dir():
        return Path(name)
    if _looks_like_path(name):
        raise ValueError(f"folder {name!r} does not exist, expected a folder or a Hub id")
    try:
        return Path(snapshot_download(name, revision=revision))
    except Exception as error:
        raise ValueError(f"cannot fetch {name!r} at revision {revision!r}: {error}") from error


def _looks_like_path(name: str) -> bool:
    """Hub ids are `name` or `owner/name`; everything else is a path."""
    return name.startswith((".", "/", "~", "\\")) or name.count("/") > 1 or name.count("\\") > 0


def _read_config(name: str, what: str) -> dict[str, Any]:
    from huggingface_hub import hf_hub_download

    if not Path(name).is_dir() and _looks_like_path(name):
        raise ValueError(f"{what} folder {name!r} does not exist, expected a folder or a Hub id")
    if Path(name).is_dir():
        path = Path(name) / "config.json"
        if not path.exists():
            raise ValueError(f"{what} folder {name!r} has no config.json")
    else:
        try:
            path = Path(hf_hub_download(name, "config.json"))
        except Exception as error:
            raise ValueError(
                f"{what} {name!r} is neither a local folder nor a model the Hub gives: {error}"
            ) from error
    return json.loads(path.read_text())
