"""What can be known before anything is published: header, files, token, weights, the Space.

Nothing is changed by what is in here. `python -m arr_coc.hub check` runs it all.
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import HfApi, errors, get_token, metadata_load

from arr_coc.hub import files
from arr_coc.hub.files import FLAVOR, ROOT
from arr_coc.qwen import loading, weights

FAILED = {"BUILD_ERROR", "RUNTIME_ERROR", "CONFIG_ERROR", "PAUSED", "STOPPED", "DELETING"}
MAX_DESCRIPTION = 60


class Refused(Exception):
    """What stops a command, in a sentence."""


def said(error: Exception) -> str:
    """One sentence for what went wrong."""
    if not isinstance(error, errors.HfHubHTTPError):
        ours = isinstance(error, Refused | ValueError)
        return loading.first_line(error) if ours else loading.why_not_fetched(error)
    status = error.response.status_code
    told = f": {error.server_message.strip()}" if error.server_message else ""
    known = isinstance(error, errors.RepositoryNotFoundError | errors.RevisionNotFoundError)
    if status == 401 and "Invalid" in told:
        return f"HF_TOKEN is not accepted{told}"
    if known or status == 401:
        return loading.why_not_fetched(error)
    return f"the Hub answered {status}{told}"


def account(api: HfApi) -> str:
    """Who the token belongs to."""
    if not get_token():
        raise Refused("no token: set HF_TOKEN, or run `hf auth login`")
    return api.whoami()["name"]


def check_header(root: Path = ROOT) -> str:
    """The Space header in README.md, as the Hub wants it.

    Raises:
        Refused: with what is wrong.
    """
    header = metadata_load(root / "README.md") or {}
    asked = (root / "requirements.txt").read_text(encoding="utf-8")
    short = str(header.get("short_description", ""))
    wrong = []
    if header.get("sdk") != "gradio":
        wrong.append(f"sdk is {header.get('sdk')!r}, expected 'gradio'")
    if f"gradio=={header.get('sdk_version')}\n" not in asked:
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
    found = [files.sizes(files.space_files(hardware)) for hardware in FLAVOR]
    return f"{len(found[0])} files, {sum(found[0].values()):,} bytes, for {', '.join(FLAVOR)}"


def check_weights(args: argparse.Namespace, revision: str | None) -> str:
    """These weights load, for this base; one that is only on the Hub is told by its size alone."""
    base = args.base or loading.default_base()
    size = loading.check_base(base)["text_config"]["hidden_size"]
    identity, checked = {"embedding_size": size}, "only the size was checked, not the fingerprint"
    if Path(base).is_dir():
        model = loading.load_base(base, device="cpu", dtype=torch.bfloat16).model
        identity, checked = weights.identity(model), "and fingerprint"
    weights.load_components(args.weights, revision, base=base, **identity)
    return f"{args.weights} loads for {Path(base).name} (hidden size {size}, {checked})"


def check_space(repo: str) -> str:
    """What the Space says of itself."""
    runtime, there = HfApi().get_space_runtime(repo), HfApi().get_space_variables(repo)
    stage = getattr(runtime.stage, "value", runtime.stage)
    if stage in FAILED:
        raise Refused(f"stands at {stage}: {runtime.raw.get('errorMessage') or 'see its logs'}")
    held = ", ".join(f"{name}={one.value}" for name, one in sorted(there.items()))
    return f"{stage} on {runtime.hardware}; {held or 'no variables'}"


def check(args: argparse.Namespace) -> dict[str, Any]:
    """Try what publishing needs, without changing anything; a line each."""
    tries: dict[str, Callable[[], str]] = {
        "header": check_header,
        "files": check_space_files,
        "token": lambda: f"belongs to {account(HfApi())}",
    }
    if args.weights:
        revisions = [r.strip() for r in (args.revisions or "").split(",") if r.strip()]
        for revision in revisions or [None]:
            name = f"weights {revision or 'main'}"
            tries[name] = lambda revision=revision: check_weights(args, revision)
    if args.space:
        tries["space"] = lambda: check_space(args.space)
    wrong = {}
    for name, attempt in tries.items():
        try:
            print(f"ok     {name}: {attempt()}")
        except Exception as error:
            wrong[name] = said(error)
            print(f"wrong  {name}: {wrong[name]}")
    return {"checked": list(tries), "wrong": wrong}
