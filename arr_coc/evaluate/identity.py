"""Identity: what the rows in one folder must share, and what becomes of those that other weights made."""

import json
import sys
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from arr_coc import components, digests, naming, provenance
from arr_coc.evaluate import control, store
from arr_coc.evaluate.questions import other_scenes, other_words
from arr_coc.evaluate.settings import Settings, methods_of
from arr_coc.evaluate.views import CLIPS
from arr_coc.peers.ours import UNSURE
from arr_coc.peers.views_methods import PACE
from arr_coc.qwen import weights
from arr_coc.qwen.loading import commit_of, default_dtype

REVISION, SETUP = "weights_revision", "weights_setup"
# What ARR-COC's rows alone depend on.
WEIGHTS = {"weights", "weights_sha256", REVISION, SETUP, UNSURE, PACE}
# Digests of each trained part, which tell what a new file of weights changes.
WEIGHTS_PARTS = "weights_parts"
DIGITS = 16  # of a digest, in hex
MORE = ("max_new_tokens",)  # settings that change rows as well
OF_A_SET = ("split", "subset", "reader")
COMMANDS, TIMES, MODULE = "commands.json", "time.json", "arr_coc.evaluate"


def open_out(settings: Settings) -> None:
    """Make OUT ready; SystemExit where it holds rows that these would not go with.

    With `new_weights`, rows of methods that use a changed part are dropped.
    """
    out, unknown = settings.out, set()
    out.mkdir(parents=True, exist_ok=True)
    path, own = out / "identity.json", identity(settings)
    others = (out / name for name in ("rows.parquet", control.FILE, TIMES))
    if any((out / "parts").glob("*.parquet")) or any(other.exists() for other in others):
        if not settings.resume:
            sys.exit(f"{out} holds rows of an earlier run; --resume adds to them")
        known = json.loads(path.read_text()) if path.exists() else {}
        keys = {*known, *own} - {WEIGHTS_PARTS}
        unknown = {SETUP} - {*known}  # rows of before did not say it
        apart = {key for key in keys - unknown if known.get(key) != own.get(key)}
        if not known or apart - (WEIGHTS if settings.new_weights else set()):
            held, added = ({key: of.get(key) for key in sorted(apart)} for of in (known, own))
            held = held if known else "a run that did not say what it asked"
            sys.exit(f"{out} holds rows of {held}, this run would add rows of {added}")
        if apart:
            changed = changed_parts(known.get(WEIGHTS_PARTS), own.get(WEIGHTS_PARTS))
            changed |= apart & {UNSURE, PACE} | set(components.PARTS if SETUP in apart else ())
            known = methods_of(settings.world)
            store.forget(out, [name for name, make in known.items() if make().parts & changed])
            (out / TIMES).unlink(missing_ok=True)  # of the weights before
            unknown = set()
    told = {key: value for key, value in own.items() if key not in unknown}
    path.write_text(json.dumps(told) + "\n")
    note_command(settings)
    store.merge_parts(out)  # what an interrupted run had measured


def note_command(settings: Settings) -> None:
    """Write down the command before it measures: one that is cut off has rows here, too."""
    command = provenance.command(MODULE, settings.words)
    known = [own for own in known_commands(settings.out) if settings.resume and own != command]
    (settings.out / COMMANDS).write_text(json.dumps([*known, command], indent=1) + "\n")


def known_commands(out: Path) -> list[str]:
    """The commands whose rows are in OUT, the first one first."""
    for name, key in ((COMMANDS, None), ("summary.json", "commands")):
        if (out / name).exists():
            told = json.loads((out / name).read_text())
            return told if key is None else told.get(key) or [told["command"]]
    return []


def identity(settings: Settings) -> dict[str, Any]:
    """What rows must share to stand in one file: the weights and the questions' source."""
    base = Path(settings.base)
    about: dict[str, Any] = {"base": _name(settings.base)}
    if commit := commit_of(settings.base):
        about["base_commit"] = commit
    about["weights"] = naming.public(settings.weights) if settings.weights else ""
    revision = naming.first_revision()  # as the host is loaded
    trained = weights.folder_of(settings.weights, revision) if settings.weights else Path("none")
    if settings.weights and revision:
        about[REVISION] = revision
    if setup := digests.of_settings(trained, ("context", "parts")):
        about[SETUP] = setup[:DIGITS]
    if digest := digests.of_weights(trained):
        about["weights_sha256"] = digest[:DIGITS]
        about[WEIGHTS_PARTS] = components.digests(load_file(trained / digests.WEIGHTS))
    if unsure := _numbers(trained).get(UNSURE):
        about[UNSURE] = unsure  # rounds end by it, and it is in no file of weights
    if digest := digests.of_weights(base):
        about["sha256"] = digest[:DIGITS]
    source = str(settings.folder or settings.dataset or "")
    about["source"] = Path(source).name if source and Path(source).exists() else source
    if settings.held_out:
        about["held_out"] = settings.held_out
    about |= other_scenes(settings.world, settings.hand)
    about |= other_words(settings.manner, settings.instruction)
    more = (*MORE, *OF_A_SET) if settings.dataset else MORE
    about |= {name: value for name in more if (value := getattr(settings, name))}
    if (dtype := default_dtype(device_of(settings), settings.dtype)) != torch.float32:
        about["dtype"] = str(dtype).removeprefix("torch.")
    if not (source or settings.easy_vqa):
        about["seed"] = settings.seed
    if settings.groups:
        about["groups"] = settings.groups
    if settings.world == CLIPS:
        about[PACE] = _numbers(trained).get(PACE)  # clips are decided by it
    return about | {"size": "x".join(map(str, settings.size))}


def device_of(settings: Settings) -> torch.device:
    """Where answers are made: the device that is named, or else what the machine has."""
    return torch.device(settings.device or ("cuda" if torch.cuda.is_available() else "cpu"))


def _numbers(weights: Path) -> dict[str, Any]:
    """What a folder of weights says beside its parts; nothing where it has no config of its own."""
    config = weights / "config.json"
    return json.loads(config.read_text()) if config.is_file() else {}


def _name(base: str) -> str:
    """A folder by its name, or by its id where it lies in the Hub's cache."""
    cached = naming.in_cache(base)
    return cached[0] if cached else Path(base).name if Path(base).exists() else base


def changed_parts(before: dict[str, str] | None, after: dict[str, str] | None) -> set[str]:
    """The parts in which two weights differ, by their digests; all where one's are unknown."""
    if before is None or after is None:
        return set(components.PARTS)
    return {part for part in components.PARTS if before.get(part) != after.get(part)}
