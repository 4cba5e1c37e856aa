"""Loading: a Qwen3-VL checkpoint, by Hub id or folder.

Refuses what is not Qwen3-VL before any weights are read, takes the PIL image processor by name (so
that pixels are the same on every machine, and torchvision is not needed), safetensors only, and no
remote code. ARR-COC's own weights are read by `qwen.weights`.
"""

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import errors
from safetensors import SafetensorError

from arr_coc import naming
from arr_coc.config import DTYPES, QWEN, one_of
from arr_coc.qwen import checks, fetching

BUNDLED = "bundled"
BUNDLED_BASE = Path(__file__).parent.parent / "bundled" / "base"
MODEL_TYPE = "qwen3_vl"
GPU_FILE = Path("/dev/nvidia0")
BASE_ID = "ARR_COC_BASE_ID"  # how others load a base that is a folder here
BFLOAT16_CAPABILITY = 8
# The errors of the HTTP library under the Hub's client; which one it is changes with its version.
HTTP_ERROR = errors.HfHubHTTPError.__bases__[0]


@dataclass(frozen=True)
class Base:
    """A loaded checkpoint and where it came from.

    Attributes:
        name: its Hub id, where one is known; else its folder as `naming.public`, or "bundled base".
        revision: commit of the Hub repo that it was loaded from; None of a folder.
    """

    model: Any
    tokenizer: Any
    image_processor: Any
    name: str
    is_bundled: bool
    notices: list[str] = field(default_factory=list)
    revision: str | None = None


class NotFetched(ValueError):
    """A base that the Hub did not give, which may be different a minute later."""


def default_base() -> str:
    """`ARR_COC_BASE` if set; on a Space with a GPU Qwen3-VL-2B; else the bundled base's folder."""
    if base := naming.set_to("ARR_COC_BASE"):
        return base
    on_gpu_space = "SPACE_ID" in os.environ and (torch.cuda.is_available() or naming.on_zerogpu())
    return QWEN if on_gpu_space else str(BUNDLED_BASE)


def load_base(
    base: str | Path | None = None,
    *,
    device: str | torch.device | None = None,
    dtype: torch.dtype | str | None = None,
    on_progress: fetching.OnProgress | None = None,
) -> Base:
    """Load model, tokenizer and image processor of a Qwen3-VL checkpoint.

    Args:
        base: Hub id, folder, or "bundled"; None takes `default_base`.
        device: None takes CUDA where there is one.
        dtype: one of `config.DTYPES`; None takes `default_dtype`.
        on_progress: told how far a download is.

    Raises:
        ValueError: for another dtype, a device that is not there, a missing folder, an id the Hub does not
            give, another architecture, weights that are damaged, not complete or not safetensors, or a
            tokenizer, chat template or preprocessor that is not there.
    """
    from transformers import (
        AutoTokenizer,
        Qwen2VLImageProcessorPil,
        Qwen3VLForConditionalGeneration,
    )

    base = folder_of(str(base or default_base()))
    check_base(base)
    device = device_of(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    if dtype is None or isinstance(dtype, str):
        dtype = default_dtype(device, dtype)
    options: dict[str, Any] = {"dtype": dtype}
    if device.type == "cuda":
        # On some pairs of torch and GPU the Conv3d patch embedding is very slow; the fused form is
        # exact. Process-wide and sticky, so it is set before any load and never changed.
        options["fusion_config"] = {"patch_embeddings": True}
    try:
        folder = fetching.fetched(base, on_progress)
    except Exception as error:
        raise NotFetched(f"base {base!r} cannot be fetched: {why_not_fetched(error)}") from error
    # Small parts first: what is missing there is said before gigabytes are read.
    tokenizer = checks.part(base, checks.TOKENIZER, lambda: AutoTokenizer.from_pretrained(folder))
    processor = checks.part(
        base, checks.PREPROCESSOR, lambda: Qwen2VLImageProcessorPil.from_pretrained(folder)
    )
    try:
        model, info = Qwen3VLForConditionalGeneration.from_pretrained(
            folder,
            attn_implementation="sdpa",
            use_safetensors=True,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # `checks.tensors` names them
            **options,
        )
    except (OSError, SafetensorError) as error:
        raise ValueError(f"base {base!r} cannot be read: {first_line(error)}") from error
    notices = checks.tensors(base, info)
    if device.type == "cpu" and GPU_FILE.exists() and "SPACE_ID" in os.environ:
        notices.append(
            "There is a GPU that torch cannot use, so the model runs on the CPU: requirements.txt may "
            "pin a torch that wants a newer driver."
        )
    checks.chat(base, tokenizer, model.config.image_token_id)
    cached = naming.in_cache(folder)
    return Base(
        model=model.to(device),
        tokenizer=tokenizer,
        image_processor=processor,
        name=name_of(base),
        is_bundled=is_bundled(base),
        notices=notices,
        revision=cached[1] if cached else None,
    )


def folder_of(base: str) -> str:
    """The bundled base's folder where "bundled" is named; every other base as it is named."""
    return str(BUNDLED_BASE) if base == BUNDLED else base


def is_bundled(base: str) -> bool:
    """Whether it is the folder of the bundled base."""
    return Path(base).resolve() == BUNDLED_BASE.resolve()


def name_of(base: str) -> str:
    """What a base is called where others read it; raises as `public_name`."""
    return "bundled base" if is_bundled(base) else public_name(base)


def public_name(base: str) -> str:
    """What others may know a base by: its id, `ARR_COC_BASE_ID` of a folder, or else the folder's name.

    Raises:
        ValueError: for an `ARR_COC_BASE_ID` that is no ORG/NAME.
    """
    if not Path(base).is_dir() or not (given := naming.set_to(BASE_ID)):
        return naming.public(base)
    if not naming.is_hub_id(given):
        raise ValueError(f"{BASE_ID} is {given!r}, expected ORG/NAME")
    return given


def default_dtype(device: torch.device, named: str | None = None) -> torch.dtype:
    """A dtype by name, None for that in `ARR_COC_DTYPE`.

    "auto", or none at all, is bfloat16 where the GPU has it natively, float16 on older ones, else float32.

    Raises:
        ValueError: for a name that is not one of `config.DTYPES`.
    """
    what = "ARR_COC_DTYPE" if named is None else "dtype"
    named = named or naming.set_to("ARR_COC_DTYPE") or DTYPES[0]
    one_of(named, what, DTYPES)
    if named != DTYPES[0]:
        return getattr(torch, named)
    if device.type != "cuda":
        return torch.float32
    return torch.bfloat16 if _has_bfloat16(device) else torch.float16


def wider_dtype(device: torch.device) -> torch.dtype:
    """What float16 numbers that overflow go to: bfloat16 where a GPU has it natively, else float32."""
    return torch.bfloat16 if _has_bfloat16(device) else torch.float32


def _has_bfloat16(device: torch.device) -> bool:
    """Whether it is a GPU that has bfloat16 natively."""
    if device.type != "cuda":
        return False
    return torch.cuda.get_device_capability(device)[0] >= BFLOAT16_CAPABILITY


def check_base(base: str) -> dict[str, Any]:
    """The config of `base`; ValueError, naming what was given and allowed, unless it is Qwen3-VL."""
    config = _read_config(base)
    model_type = config.get("model_type")
    if model_type != MODEL_TYPE:
        raise ValueError(
            f"base {base!r} is a {model_type or 'model of unknown type'}, "
            f"expected a Qwen3-VL checkpoint (model_type {MODEL_TYPE!r})"
        )
    return config


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


def looks_like_path(name: str) -> bool:
    """Hub ids are `name` or `owner/name`; everything else is a path."""
    return name.startswith((".", "/", "~", "\\")) or name.count("/") > 1 or name.count("\\") > 0


def commit_of(base: str) -> str | None:
    """The commit at which a base on the Hub is loaded; None of a folder. Errors as `check_base`."""
    cached = naming.in_cache(_config_file(base).parent)
    return cached[1] if cached else None


def device_of(name: str | torch.device) -> torch.device:
    """A device that this machine has; ValueError for any other."""
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ValueError(f"device is {name!r}, expected cpu, cuda or cuda:N") from error
    many = torch.cuda.device_count()
    if device.type == "cuda" and (device.index or 0) >= many:
        has = f"{many} CUDA device{'s' * (many != 1)}" if many else "no CUDA device"
        below = f", or cuda:0 to cuda:{many - 1}" if many else ""
        raise ValueError(f"device is {device}, but this machine has {has}: 'cpu' is allowed{below}")
    return device


def _read_config(base: str) -> dict[str, Any]:
    try:
        config = json.loads(_config_file(base).read_text(encoding="utf-8"))
    except ValueError as error:
        if not isinstance(error, json.JSONDecodeError | UnicodeDecodeError):
            raise
        raise ValueError(f"base {base!r} has no config.json that can be read: {error}") from error
    if not isinstance(config, dict):
        raise ValueError(f"base {base!r} has no config.json that can be read: it holds no names")
    return config


def _config_file(base: str) -> Path:
    from huggingface_hub import hf_hub_download

    if not Path(base).is_dir() and looks_like_path(base):
        raise ValueError(f"base folder {base!r} does not exist, expected a folder or a Hub id")
    if Path(base).is_dir():
        path = Path(base) / "config.json"
        if not path.exists():
            raise ValueError(f"base folder {base!r} has no config.json")
    else:
        try:
            revision = fetching.revision_of(base)
            path = Path(hf_hub_download(base, "config.json", revision=revision))
        except Exception as error:
            raise NotFetched(
                f"base {base!r} is neither a local folder nor a model the Hub gives: "
                f"{why_not_fetched(error)}"
            ) from error
    return path
