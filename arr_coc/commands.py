"""Commands: what every command does with an error that a person can mend: one line, no traceback."""

import os
import sys
from collections.abc import Callable

# Set to anything, it shows where an error came from.
TRACEBACK = "ARR_COC_TRACEBACK"


def run_command(module: str, main: Callable[[], object]) -> None:
    """Run a command's `main`.

    A ValueError or OSError, which say what was given and what is allowed, or a FloatingPointError, which
    says what overflowed, ends it with status 1 and one line on stderr; everything else is our mistake and
    keeps its traceback.

    Args:
        module: as it is called, `python -m MODULE`.
        main: takes its arguments from the command line.
    """
    try:
        main()
    except (ValueError, OSError, FloatingPointError) as error:
        if os.environ.get(TRACEBACK):
            raise
        said = " ".join(str(error).split()) or type(error).__name__
        sys.exit(f"{module}: {said}")
