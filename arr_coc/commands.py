"""Commands: what all of them share: an error that a person can mend is one line, a base has a dtype."""

import argparse
import os
import sys
from collections.abc import Callable

from arr_coc.config import DTYPES

# Set to anything, it shows where an error came from.
TRACEBACK = "ARR_COC_TRACEBACK"


def add_dtype(parser: argparse._ActionsContainer) -> None:
    """`--dtype`, of the base that a command loads; None, where it is not given, leaves the choice to
    `ARR_COC_DTYPE`."""
    parser.add_argument(
        "--dtype",
        choices=DTYPES,
        help="of the base's numbers; auto is what suits the device (default: ARR_COC_DTYPE, else auto)",
    )


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
