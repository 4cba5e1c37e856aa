"""Environment: lmms-eval and this package in a virtual environment of their own, by one command.

    python -m arr_coc.harness.environment --at runs/lmms               # on a machine without a GPU
    python -m arr_coc.harness.environment --at runs/lmms --device gpu  # with CUDA's build of torch

lmms-eval needs torchvision, an older av and one version of wandb, so it gets an environment apart; running
the command again mends what is there. For the CPU a build of torch without CUDA has to be where pip looks:
`pip config set global.extra-index-url https://download.pytorch.org/whl/cpu` is one way.
"""

import json
from collections.abc import Sequence

from arr_coc import environments
from arr_coc.commands import run_command

GROUP = "lmms_eval.models"
NAMES = ("torch", "torchvision", "transformers", "lmms-eval")


def steps(pip: list[str], device: str) -> list[list[str]]:
    """The pip commands, one after the other, for how `pip` is called."""
    torch = [environments.TORCH] if device == "cpu" else []
    return [[*pip, "install", "-e", f"{environments.ROOT}[lmms-eval]", *torch]]


def main(argv: Sequence[str] | None = None) -> None:
    """Make the environment; the last line is JSON."""
    args = environments.parse(__doc__.splitlines()[0], argv)
    found = environments.set_up(args.at, args.device, steps, group=GROUP, names=NAMES)
    print(json.dumps(found))


if __name__ == "__main__":
    run_command("arr_coc.harness.environment", main)
