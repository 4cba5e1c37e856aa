"""Settings: what a program or the page may set by name, checked; no model.

Part of the door of `comparing.check`: what is refused names what was given and what is allowed.
"""

from typing import Any

from arr_coc.config import NO_REVISION
from arr_coc.service import intake

MOST_LETTERS = 200  # of a revision's name
# What a program may set by name.
SETTINGS = (
    "share", "budget", "tier", "allocator", "glance", "prune", "context", "when", "tensions",
    "revision", "shrunk", "native_tokens", "max_new_tokens",
)  # fmt: skip


def named(settings: Any) -> dict[str, Any]:
    """Settings of `check` by their names, as a program gives them; their values are checked there.

    Raises:
        IntakeError: for anything but names that `check` knows.
    """
    if not isinstance(settings, dict):
        raise intake.IntakeError(
            f"The settings are {intake.shown(settings)}; an object is expected, and in it "
            f"allowed are {', '.join(SETTINGS)}."
        )
    if unknown := [str(name)[:40] for name in settings if name not in SETTINGS]:
        raise intake.IntakeError(
            f"The setting {unknown[0]!r} is not known; allowed are {', '.join(SETTINGS)}."
        )
    return settings


def check_tensions(values: Any) -> list[float]:
    """Three numbers in [0, 1], or IntakeError."""
    good = isinstance(values, list | tuple) and len(values) == 3
    if not good or not all(type(v) in (int, float) and 0 <= v <= 1 for v in values):
        parts = map(intake.shown, values[:4]) if isinstance(values, list | tuple) else []
        given = ", ".join(parts) or intake.shown(values)
        raise intake.IntakeError(
            f"The tensions are {given}; allowed are three numbers, each from 0 to 1."
        )
    return [float(value) for value in values]


def named_revision(value: Any) -> str | None:
    """A revision's name, None for the default; which are loaded is known to the model alone."""
    if value is None or value == "":
        return None
    if not isinstance(value, str) or len(value) > MOST_LETTERS:
        raise intake.IntakeError(
            f"The revision is {intake.shown(value)}; allowed is the name of one that is loaded, of at "
            f"most {MOST_LETTERS} characters."
        )
    return intake.clean_question(value)


def check_revision(model: Any, revision: str | None) -> None:
    """Raise IntakeError, which names those that are, unless a revision of the weights is loaded."""
    loaded = getattr(model, "policies", None)
    if revision is None or loaded is None or revision in (NO_REVISION, *loaded):
        return
    allowed = ", ".join([*loaded, f"{NO_REVISION} for fixed rules"])
    raise intake.IntakeError(f"The revision is {revision!r}; allowed are {allowed}.")


def check_yes(value: Any, what: str) -> bool:
    """Whether something is wanted; IntakeError for anything but true, false or nothing."""
    if value is not None and not isinstance(value, bool):
        raise intake.IntakeError(f"The {what} is {intake.shown(value)}; allowed is true or false.")
    return bool(value)
