"""What can be known before anything is published: header, files, token, weights, the Space.

Nothing is changed by what is in here. `python -m arr_coc.hub check` runs it all.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import HfApi, errors, get_token, metadata_load

from arr_coc.hub import files
from arr_coc.hub.files import FLAVOR, ROOT
from arr_coc.hub.settings import Check, separate
from arr_coc.qwen import loading, weights

FAILED = {"BUILD_ERROR", "RUNTIME_ERROR", "CONFIG_ERROR", "PAUSED", "STOPPED", "DELETING"}
MAX_DESCRIPTION = 60


class Refused(Exception):
    """What stops a command, in a sentence."""


def sentence(error: Exception) -> str:
    """One sentence that says what went wrong."""
    if not isinstance(error, errors.HfHubHTTPError):
        ours = isinstance(error, Refused | ValueError)
        return loading.first_line(error) if ours else loading.why_not_fetched(error)
    status = error.response.status_code
    reason = f": {error.server_message.strip()}" if error.server_message else ""
    is_missing = isinstance(error, errors.RepositoryNotFoundError | errors.RevisionNotFoundError)
    if status == 401 and "Invalid" in reason:
        return f"HF_TOKEN is not accepted{reason}"
    if is_missing or status == 401:
        return loading.why_not_fetched(error)
    return f"the Hub answered {status}{reason}"


def account(api: HfApi) -> str:
    """Who the token belongs to; raises Refused where there is none."""
    if not get_token():
        raise Refused("no token: set HF_TOKEN, or run `hf auth login`")
    return api.whoami()["name"]


def check_header(root: Path = ROOT) -> str:
    """The Space header in README.md, as the Hub wants it.

    Raises:
        Refused: with what is wrong.
    """
    header = metadata_load(root / "README.md") or {}
    requirements = (root / "requirements.txt").read_text(encoding="utf-8")
    short = str(header.get("short_description", ""))
    wrong = []
    if header.get("sdk") != "gradio":
        wrong.append(f"sdk is {header.get('sdk')!r}, expected 'gradio'")
    if f"gradio=={header.get('sdk_version')}\n" not in requirements:
        wrong.append(f"sdk_version {header.get('sdk_version')} is not requirements.txt's gradio")
    if not isinstance(header.get("python_version"), str):
        wrong.append("python_version is not quoted")
    if not (root / str(header.get("app_file"))).is_file():
        wrong.append(f"app_file {header.get('app_file')!r} does not exist")
    if len(short) > MAX_DESCRIPTION:
        wrong.append(f"short_description has {len(short)} characters, allowed {MAX_DESCRIPTION}")
    if wrong:
        raise Refused("README.md: " + "; ".join(wrong))
    return f"gradio {header['sdk_version']}, Python {header['python_version']}"


def check_space_files() -> str:
    """Each hardware's list can be made."""
    sizes, *_ = [files.sizes(files.space_files(hardware)) for hardware in FLAVOR]
    return f"{len(sizes)} files, {sum(sizes.values()):,} bytes, for {', '.join(FLAVOR)}"


def check_weights(name: str, revision: str | None, *, base: str | None = None) -> str:
    """These weights load for this base, None for the default one.

    A base that is only on the Hub is known by its hidden size alone, not by its fingerprint.
    """
    base = loading.folder_of(base or loading.default_base())
    size = loading.check_base(base)["text_config"]["hidden_size"]
    identity, checked = {"embedding_size": size}, "only the size was checked, not the fingerprint"
    if Path(base).is_dir():
        model = loading.load_base(base, device="cpu", dtype=torch.bfloat16).model
        identity, checked = weights.identity(model), "and fingerprint"
    weights.load_components(name, revision, base=base, **identity)
    return f"{name} loads for {Path(base).name} (hidden size {size}, {checked})"


def check_base(base: str) -> str:
    """What a base says of itself is that of a Qwen3-VL."""
    size = loading.check_base(loading.folder_of(base))["text_config"]["hidden_size"]
    return f"{Path(base).name} is a Qwen3-VL (hidden size {size})"


def check_space(repo: str) -> str:
    """What the Space says of itself; raises Refused where it has failed."""
    runtime, variables = HfApi().get_space_runtime(repo), HfApi().get_space_variables(repo)
    stage = getattr(runtime.stage, "value", runtime.stage)
    if stage in FAILED:
        raise Refused(f"stands at {stage}: {runtime.raw.get('errorMessage') or 'see its logs'}")
    pairs = ", ".join(f"{name}={one.value}" for name, one in sorted(variables.items()))
    return f"{stage} on {runtime.hardware}; {pairs or 'no variables'}"


def check(settings: Check) -> dict[str, Any]:
    """Try what publishing needs, without changing anything; a line each."""
    tries: dict[str, Callable[[], str]] = {
        "header": check_header,
        "files": check_space_files,
        "token": lambda: f"belongs to {account(HfApi())}",
    }
    for revision in separate(settings.revisions) if settings.weights else ():
        tries[f"weights {revision or 'main'}"] = partial(
            check_weights, settings.weights, revision, base=settings.base
        )
    if settings.base and not settings.weights:
        tries["base"] = partial(check_base, settings.base)
    if settings.space:
        tries["space"] = partial(check_space, settings.space)
    wrong = {}
    for name, attempt in tries.items():
        try:
            print(f"ok     {name}: {attempt()}")
        except Exception as error:
            wrong[name] = sentence(error)
            print(f"wrong  {name}: {wrong[name]}")
    return {"checked": list(tries), "wrong": wrong}
