"""Loading: a Qwen3-VL checkpoint and its ARR-COC weights, by Hub id or folder.

Refuses what is not Qwen3-VL before any weights are read, takes the PIL image processor by name (so
that pixels are the same on every machine, and torchvision is not needed), safetensors only, and no
remote code. Without `components` no network call is made for ARR-COC weights. Whatever is wrong with
weights is a WeightsError of one sentence, so that a page can go on without them (`policies_for`).
"""

import json
import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import errors, snapshot_download
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from arr_coc import components as trained
from arr_coc.components import Components

BUNDLED_BASE = Path(__file__).parent / "bundled" / "base"
BUNDLED_WEIGHTS = Path(__file__).parent / "bundled" / "arr-coc"
QWEN = "Qwen/Qwen3-VL-2B-Instruct"
MODEL_TYPE = "qwen3_vl"
FORMAT_VERSION = 3  # since 3 the square of focus is a share of the tokens; before, focus itself
BFLOAT16_CAPABILITY = 8
CONFIG, WEIGHTS = "config.json", "model.safetensors"
TRAINING = "training.json"  # what went into the weights; never needed to load them
NEVER_READ = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")  # pickles run code when read
LFS_POINTER = b"version https://git-lfs"
# The errors of the HTTP library under the Hub's client; which one it is changes with its version.
HTTP_ERROR = errors.HfHubHTTPError.__bases__[0]

log = logging.getLogger(__name__)


class WeightsError(ValueError):
    """ARR-COC weights that cannot be used, in one sentence."""


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


def default_weights(is_bundled: bool) -> str | None:
    """ARR-COC weights where none are named: `ARR_COC_WEIGHTS`, else the bundled base's own.

    An empty `ARR_COC_WEIGHTS` is training-free, as is any other base.
    """
    named = os.environ.get("ARR_COC_WEIGHTS")
    if named is None and is_bundled and BUNDLED_WEIGHTS.is_dir():
        return str(BUNDLED_WEIGHTS)
    return named


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
        ValueError: for a missing folder, an id the Hub does not give, another architecture, or
            weights that are damaged or not safetensors.
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
    try:
        model = Qwen3VLForConditionalGeneration.from_pretrained(
            base, attn_implementation="sdpa", use_safetensors=True, **options
        )
    except (OSError, SafetensorError) as error:
        raise ValueError(f"base {base!r} cannot be read: {first_line(error)}") from error
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


def check_base(base: str) -> dict[str, Any]:
    """The config of `base`; ValueError, naming what was given and allowed, unless it is Qwen3-VL."""
    config = _read_config(base, "base")
    found = config.get("model_type")
    if found != MODEL_TYPE:
        raise ValueError(
            f"base {base!r} is a {found or 'model of unknown type'}, "
            f"expected a Qwen3-VL checkpoint (model_type {MODEL_TYPE!r})"
        )
    return config


def policies_for(
    base: Any, components: str | None, revisions: list[str]
) -> tuple[dict[str, Components], list[str]]:
    """The weights for a loaded base that can be had, and a sentence for each that cannot.

    Args:
        base: with `name`, `model.config` and `device`, as `ARRCOCQwen`.
        components: folder or Hub id of ARR-COC weights; empty for none.
        revisions: to load, the first being the default; empty for the latest.
    """
    policies, reasons = {}, []
    for name in revisions or [None]:
        try:
            policy = load_components(components, name, base=base.name, **identity(base.model))
        except WeightsError as error:
            log.warning("going on without these weights: %s", error)
            reasons.append(str(error))
            continue
        if policy is not None:
            policies[name or "default"] = policy.to(base.device)
    return policies, reasons


def identity(model: Any) -> dict[str, Any]:
    """What weights for a loaded base must match: its hidden size and its fingerprint."""
    size = model.config.get_text_config().hidden_size
    return {"embedding_size": size, "fingerprint": trained.fingerprint(model)}


def load_components(
    components: str | Path | None,
    revision: str | None,
    *,
    base: str,
    embedding_size: int,
    fingerprint: str | None = None,
) -> Components | None:
    """Load ARR-COC weights made for a base; None where `components` is empty.

    Args:
        components: folder or Hub id with `config.json` and `model.safetensors`; nothing else is
            fetched.
        revision: of the Hub repo.
        base: name of the base, for the message.
        embedding_size: the base's text hidden size, which the weights must match.
        fingerprint: the base's (`components.fingerprint`), which they must match as well; None where
            the base itself is not loaded.

    Raises:
        WeightsError: for a missing folder, repo, revision or file, no network, a pickle, a damaged
            file, another format, or weights for another base.
    """
    if not components:
        return None
    name = f"ARR-COC weights {str(components)!r}"
    if revision and not Path(components).is_dir():
        name += f" at revision {revision!r}"
    folder = _folder(str(components), revision)
    config = _weights_config(folder, name)
    if config["embedding_size"] != embedding_size:
        raise WeightsError(
            f"{name} were made for {config.get('base_model')!r} "
            f"(hidden size {config['embedding_size']}), the base is {base!r} "
            f"(hidden size {embedding_size})"
        )
    if fingerprint is not None and config.get("fingerprint") != fingerprint:
        raise WeightsError(
            f"{name} were made for {config.get('base_model')!r} "
            f"(fingerprint {config.get('fingerprint')}), the base is {base!r}, "
            f"of the same size but other weights (fingerprint {fingerprint})"
        )
    try:
        found = trained.build(config["parts"])
        found.load_state_dict(_tensors(folder, name))
    except (KeyError, ValueError, RuntimeError) as error:
        if isinstance(error, WeightsError):
            raise
        raise WeightsError(f"{name} do not fit their config.json: {first_line(error)}") from error
    return found.eval().requires_grad_(False)


def _weights_config(folder: Path, name: str) -> dict[str, Any]:
    if not (folder / CONFIG).is_file():
        raise WeightsError(f"{name} have no {CONFIG}")
    try:
        config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    except ValueError as error:
        raise WeightsError(f"{name} have a {CONFIG} that is not JSON: {error}") from error
    found = config.get("format_version") if isinstance(config, dict) else None
    if found != FORMAT_VERSION:
        raise WeightsError(f"{name} have format_version {found!r}, expected {FORMAT_VERSION}")
    size = config.get("embedding_size")
    if not isinstance(size, int) or size < 1:
        raise WeightsError(f"{name} have embedding_size {size!r}, expected a positive integer")
    return config


def _tensors(folder: Path, name: str) -> dict[str, torch.Tensor]:
    """The safetensors file of a folder; says what is wrong with it."""
    path = folder / WEIGHTS
    if not path.is_file():
        pickles = sorted(p.name for p in folder.iterdir() if p.suffix in NEVER_READ)
        beside = f", only {', '.join(pickles)}" if pickles else ""
        raise WeightsError(f"{name} have no {WEIGHTS}{beside}; pickled weights are never read")
    size = path.stat().st_size
    with path.open("rb") as file:
        start = file.read(len(LFS_POINTER))
    if start == LFS_POINTER:
        raise WeightsError(f"{name}: {WEIGHTS} is a Git LFS pointer, the file was not fetched")
    try:
        tensors = load_file(path)
    except SafetensorError as error:
        raise WeightsError(
            f"{name}: {WEIGHTS} ({size} bytes) is truncated or not safetensors: {first_line(error)}"
        ) from error
    if bad := [key for key, tensor in tensors.items() if not tensor.isfinite().all()]:
        raise WeightsError(f"{name}: {bad[0]} holds values that are not finite")
    return tensors


def save_components(
    found: Components, folder: Path, *, base: str, embedding_size: int, fingerprint: str
) -> None:
    """Write ARR-COC weights as `load_components` reads them; the last three say for which base."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "format_version": FORMAT_VERSION,
        "base_model": base,
        "embedding_size": embedding_size,
        "fingerprint": fingerprint,
        "parts": found.sizes(),
    }
    (folder / CONFIG).write_text(json.dumps(config, indent=2) + "\n")
    tensors = {key: t.detach().float().cpu().contiguous() for key, t in found.state_dict().items()}
    save_file(tensors, folder / WEIGHTS)


def _folder(name: str, revision: str | None) -> Path:
    """Where the weights lie, fetched where `name` is a Hub id; a cached copy serves without network."""
    if Path(name).is_dir():
        return Path(name)
    if _looks_like_path(name):
        raise WeightsError(f"folder {name!r} does not exist, expected a folder or a Hub id")
    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=[CONFIG, WEIGHTS]))
    except Exception as error:
        raise WeightsError(
            f"cannot fetch ARR-COC weights {name!r} at revision {revision or 'main'!r}: "
            f"{why_not_fetched(error)}"
        ) from error


def why_not_fetched(error: Exception) -> str:
    """What a failure of the Hub's client means, in words."""
    if isinstance(error, errors.RevisionNotFoundError):
        return "the repo has no such revision"
    if isinstance(error, errors.GatedRepoError):
        return "the repo is gated; ask for access and set HF_TOKEN"
    if isinstance(error, errors.RepositoryNotFoundError):
        return "there is no such repo, or it is private and HF_TOKEN does not open it"
    if isinstance(error, errors.HfHubHTTPError) and error.response.status_code in (401, 403):
        return "HF_TOKEN is not accepted"
    if isinstance(error, errors.LocalEntryNotFoundError):
        return "no network, and no copy in the cache"
    if isinstance(error, (ConnectionError, HTTP_ERROR)) and not hasattr(error, "server_message"):
        return "the Hub cannot be reached"
    return f"{type(error).__name__}: {first_line(error)}"


def first_line(error: Exception) -> str:
    """The first line of a message that may have many."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


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
                f"{what} {name!r} is neither a local folder nor a model the Hub gives: "
                f"{why_not_fetched(error)}"
            ) from error
    return json.loads(path.read_text())
