"""Naming: which base and weights an owner names, and what they are called where others read it.

Variables of the environment are read here; a folder's path is never shown.
"""

import os
import re
from pathlib import Path
from typing import Any

LONGEST = 1024  # characters of a path
# In quotes a path may hold blanks; elsewhere it ends at one. An id of the Hub begins with neither a
# slash nor a dot.
_QUOTED = re.compile(r"""(['"])~?/[^'"]*\1""")
_BARE = re.compile(r"""(?<![\w.:/~'"-])~?/[^\s'"/,;]+(?:/[^\s'",;]*)?""")
# <owner>--<name> of a model in the Hub's cache, and its commit.
_CACHED = re.compile(r"models--([^/]+?)--([^/]+)/snapshots/([0-9a-f]{40})/?$")


def is_hub_id(name: str | None) -> bool:
    """Whether a name is an id ORG/NAME that others can load by."""
    parts = (name or "").split("/")
    return len(parts) == 2 and all(parts) and " " not in name and parts[0][0] not in "./~\\"


def set_to(variable: str) -> str:
    """What an environment variable is set to, without the space around it; "" where it is not set."""
    return os.environ.get(variable, "").strip()


def on_zerogpu() -> bool:
    """Whether a Space lends its GPU by the call, as the platform says it."""
    return set_to("SPACES_ZERO_GPU").lower() in ("1", "t", "true")


def weights() -> str | None:
    """The weights that `ARR_COC_WEIGHTS` names; "" for none at all, None where it is not set."""
    return set_to("ARR_COC_WEIGHTS") if "ARR_COC_WEIGHTS" in os.environ else None


def revisions() -> list[str]:
    """The weights' revisions to load at start, from `ARR_COC_REVISIONS` (separated by commas)."""
    listed = set_to("ARR_COC_REVISIONS").split(",")
    return [name.strip() for name in listed if name.strip()]


def first_revision() -> str | None:
    """The default of `revisions`; None, the latest, where there is none."""
    return next(iter(revisions()), None)


def in_cache(folder: str | Path) -> tuple[str, str] | None:
    """Id and commit of a folder in the Hub's cache, by its path; None of any other folder."""
    found = _CACHED.search(str(folder))
    return (f"{found[1]}/{found[2]}", found[3]) if found else None


def public(name: str | Path) -> str:
    """A base or weights by what others may know: its id, or the last part of an absolute path.

    A relative path stays: it says where something lies in the repository.
    """
    text = str(name)
    if cached := in_cache(text):
        return cached[0]
    path = Path(text)
    if not path.is_absolute():
        return text
    here = Path.cwd()
    return path.relative_to(here).as_posix() if here in path.parents else path.name


def without_folders(text: str, *, only_here: bool = False) -> str:
    """A sentence or a word in which each absolute path is named as by `public`.

    With `only_here`, paths that begin with no folder of this machine stay, as those of an API do.
    """

    if text.startswith("/") and len(text) < LONGEST and Path(text).exists():
        return public(text)  # one path as a whole, with blanks it may hold

    def short(found: re.Match[str]) -> str:
        quote = found[1] if found.re is _QUOTED else ""
        path = found[0][len(quote) : len(found[0]) - len(quote)].rstrip("/.:")
        parts = Path(path).parts
        if only_here and (len(parts) < 3 or not Path(*parts[:2]).is_dir()):
            return found[0]
        return f"{quote}{public(path.replace('~', '/', 1)) or path}{quote}"

    return _BARE.sub(short, _QUOTED.sub(short, text))


def cleaned(value: Any) -> Any:
    """A value as JSON has it, each of its texts `without_folders` of this machine."""
    if isinstance(value, dict):
        return {key: cleaned(one) for key, one in value.items()}
    if isinstance(value, list):
        return [cleaned(one) for one in value]
    return without_folders(value, only_here=True) if isinstance(value, str) else value
