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


def count(text: str) -> int:
    """A whole number from 1 up, as argparse's `type`."""
    return _at_least(1, int(text))


def natural(text: str) -> int:
    """A whole number from 0 up, as argparse's `type`."""
    return _at_least(0, int(text))


def above_zero(text: str) -> float:
    """A number above 0, as argparse's `type`."""
    number = float(text)
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is given, expected a number above 0")
    return number


def _at_least(least: int, number: int) -> int:
    if number < least:
        raise argparse.ArgumentTypeError(
            f"{number} is given, expected a whole number from {least} up"
        )
    return number


def check_device(parser: argparse.ArgumentParser, device: str | None) -> None:
    """End the command where this machine has no such `--device`; None leaves the choice to it."""
    if device is None or device == "cpu":
        return
    import torch

    if device.partition(":")[0] != "cuda":
        parser.error(f"--device {device}: expected cpu, cuda or cuda:N")
    if not torch.cuda.is_available():
        parser.error(
            f"--device {device}: this machine has no CUDA device, expected one (or --device cpu)"
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
