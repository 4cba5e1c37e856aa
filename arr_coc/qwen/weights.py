"""Weights: ARR-COC components by folder or Hub id: read, checked against their base, written.

Safetensors only. Whatever is wrong with weights is a WeightsError of one sentence; a page goes on without
them and shows the sentence (`load_policies`). Empty `components` make no network call.
"""

import json
import logging
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from huggingface_hub import snapshot_download
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from arr_coc import components as trained
from arr_coc import naming
from arr_coc.components import Components
from arr_coc.config import CONTEXTS, Config, Pace
from arr_coc.qwen.loading import Base, first_line, looks_like_path, why_not_fetched

log = logging.getLogger(__name__)

BUNDLED_WEIGHTS = Path(__file__).parent.parent / "bundled" / "arr-coc"
CONFIG, WEIGHTS = "config.json", "model.safetensors"
TRAINING = "training.json"  # what went into the weights; never needed to load them
NEVER_READ = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")  # pickles run code when read
FORMAT_VERSION = 3  # since 3 the square of focus is a share of the tokens; before, focus itself
NARROW = ("scan",)  # parts that are stored in bfloat16
LFS_POINTER = b"version https://git-lfs"
INSTEAD = "The bundled model's own weights are used in their place."
OnBadWeights = Literal["raise", "notice"]


class WeightsError(ValueError):
    """ARR-COC weights that cannot be used, in one sentence."""


class ForAnotherBase(WeightsError):
    """Sound weights that were made for another base."""


def default_weights(is_bundled: bool) -> str | None:
    """ARR-COC weights where none are named: `ARR_COC_WEIGHTS`, else the bundled base's own.

    An empty `ARR_COC_WEIGHTS` is training-free, as is any other base.
    """
    named = naming.weights()
    if named is None and is_bundled and BUNDLED_WEIGHTS.is_dir():
        return str(BUNDLED_WEIGHTS)
    return named


def default_revision() -> str | None:
    """The revision of weights where none is named; None is the latest."""
    return naming.first_revision()


def load_policies(
    base: Base,
    components: str | Path | None,
    revisions: Sequence[str | None],
    on_bad_weights: OnBadWeights = "raise",
    instead: Path | None = None,
) -> tuple[dict[str, Components], list[str]]:
    """The trained components for a loaded base, by revision, and a sentence for each that is left out.

    Args:
        base: which the weights must match; they are put on its device.
        components: folder or Hub id of ARR-COC weights; empty for none.
        revisions: to load, the first being the default; None among them is the latest, kept as
            "default".
        on_bad_weights: "raise", or "notice" to leave out what cannot be used.
        instead: weights to load where all of `components` were made for another base.

    Raises:
        WeightsError: as `load_components`, unless it is to be a notice.
    """
    policies, notices, foreign = {}, [], 0
    for name in revisions:
        try:
            policy = load_components(components, name, base=base.name, **identity(base.model))
        except WeightsError as error:
            if on_bad_weights == "raise":
                raise
            log.warning("going on without these weights: %s", error)
            notices.append(str(error))
            foreign += isinstance(error, ForAnotherBase)
            continue
        if policy is not None:
            policies[name or "default"] = policy.to(base.model.device)
    if instead and foreign and foreign == len(revisions):
        policies, more = load_policies(base, instead, [None], on_bad_weights)
        notices += more or [INSTEAD]
    return policies, notices


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
    folder = folder_of(str(components), revision)
    config = _weights_config(folder, name)
    if config["embedding_size"] != embedding_size:
        raise ForAnotherBase(
            f"{name} were made for {config.get('base_model')!r} "
            f"(hidden size {config['embedding_size']}), the base is {base!r} "
            f"(hidden size {embedding_size})"
        )
    if fingerprint is not None and config.get("fingerprint") != fingerprint:
        raise ForAnotherBase(
            f"{name} were made for {config.get('base_model')!r} "
            f"(fingerprint {config.get('fingerprint')}), the base is {base!r}, "
            f"of the same size but other weights (fingerprint {fingerprint})"
        )
    try:
        context, unsure = config.get("context", "cells"), config.get("unsure")
        loaded = trained.build(config["parts"], context, unsure, _pace(config, name))
        loaded.load_state_dict(_tensors(folder, name))
    except (KeyError, ValueError, RuntimeError) as error:
        if isinstance(error, WeightsError):
            raise
        raise WeightsError(f"{name} do not fit their config.json: {first_line(error)}") from error
    loaded.origin = _origin(str(components), revision, folder, config.get("base_model"))
    return loaded.eval().requires_grad_(False)


def _origin(
    components: str, revision: str | None, folder: Path, base: str | None
) -> trained.Origin:
    cached = naming.in_cache(folder)
    is_bundled = folder.resolve() == BUNDLED_WEIGHTS.resolve()
    name = "bundled" if is_bundled else naming.public(components)
    return trained.Origin(name, revision, cached[1] if cached else None, base)


def known_name(base: str, policies: dict[str, Components]) -> str:
    """A base's name: its own, or the Hub id by which weights of its fingerprint know it.

    Args:
        base: as `Base.name`.
        policies: weights that were loaded for it, which is to say that their fingerprint is its own.
    """
    ids = (policy.origin.base for policy in policies.values() if policy.origin)
    known = [name for name in ids if naming.is_hub_id(name)]
    return base if naming.is_hub_id(base) or not known else known[0]


def _weights_config(folder: Path, name: str) -> dict[str, Any]:
    if not (folder / CONFIG).is_file():
        raise WeightsError(f"{name} have no {CONFIG}")
    try:
        config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    except ValueError as error:
        raise WeightsError(f"{name} have a {CONFIG} that is not JSON: {error}") from error
    version = config.get("format_version") if isinstance(config, dict) else None
    if version != FORMAT_VERSION:
        raise WeightsError(f"{name} have format_version {version!r}, expected {FORMAT_VERSION}")
    context = config.get("context", "cells")  # what weights of before were trained for
    if context not in CONTEXTS:
        raise WeightsError(
            f"{name} have context {context!r}, expected one of {', '.join(CONTEXTS)}"
        )
    unsure = config.get("unsure", 0.0)
    if not isinstance(unsure, int | float) or not unsure >= 0:
        raise WeightsError(f"{name} have unsure {unsure!r}, expected nats, 0 or more")
    size = config.get("embedding_size")
    if not isinstance(size, int) or size < 1:
        raise WeightsError(f"{name} have embedding_size {size!r}, expected a positive integer")
    return config


def _pace(config: dict[str, Any], name: str) -> Pace | None:
    """What the weights bring for clips; None where they were not trained on any."""
    given = config.get("pace")
    if given is None:
        return None
    numbers = isinstance(given, dict) and [given.get(field) for field in Pace._fields]
    if not numbers or not all(map(_is_finite, numbers)):
        raise WeightsError(f"{name} have pace {given!r}, expected {', '.join(Pace._fields)}")
    try:
        Config(decay=given["decay"], boost=given["boost"])
    except ValueError as error:
        raise WeightsError(f"{name}: {error}") from error
    return Pace(*map(float, numbers))


def _is_finite(number: Any) -> bool:
    return isinstance(number, int | float) and math.isfinite(number)


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
    parts: Components, folder: Path, *, base: str, embedding_size: int, fingerprint: str
) -> None:
    """Write ARR-COC weights as `load_components` reads them; the last three say for which base.

    Numbers are float32; the matrices of `NARROW` parts, which learn and work in bfloat16, are that. The
    tensors come first, aside and then renamed: a folder with a configuration holds whole ones.
    """
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "format_version": FORMAT_VERSION,
        "base_model": base,
        "embedding_size": embedding_size,
        "fingerprint": fingerprint,
        "context": parts.context,
        **({} if parts.unsure is None else {"unsure": parts.unsure}),
        **({} if parts.pace is None else {"pace": parts.pace._asdict()}),
        "parts": parts.sizes(),
    }
    tensors = {
        key: tensor.detach().to("cpu", _stored_dtype(key, tensor)).contiguous()
        for key, tensor in parts.state_dict().items()
    }
    aside = folder / f"{WEIGHTS}.writing"
    save_file(tensors, aside)
    aside.chmod(0o644)  # safetensors leaves it to its owner alone
    aside.replace(folder / WEIGHTS)
    (folder / CONFIG).write_text(json.dumps(config, indent=2) + "\n")


def _stored_dtype(key: str, tensor: torch.Tensor) -> torch.dtype:
    is_narrow = tensor.ndim > 1 and key.split(".")[0] in NARROW
    return torch.bfloat16 if is_narrow else torch.float32


def folder_of(name: str, revision: str | None) -> Path:
    """Where the weights lie, fetched where `name` is a Hub id; a cached copy serves without network."""
    if Path(name).is_dir():
        return Path(name)
    if looks_like_path(name):
        raise WeightsError(
            f"ARR-COC weights folder {name!r} does not exist, expected a folder or a Hub id"
        )
    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=[CONFIG, WEIGHTS]))
    except Exception as error:
        raise WeightsError(
            f"cannot fetch ARR-COC weights {name!r} at revision {revision or 'main'!r}: "
            f"{why_not_fetched(error)}"
        ) from error
