"""Environment: lmms-eval and this package in a virtual environment of their own, by one command.

    python -m arr_coc.harness.environment --at runs/lmms               # on a machine without a GPU
    python -m arr_coc.harness.environment --at runs/lmms --device gpu  # with CUDA's build of torch

lmms-eval needs torchvision, one version of wandb and an av older than requirements.txt wants (which reads
clips alone), so it gets an environment apart; running the command again mends what is there. For the CPU a
build of torch without CUDA has to be where pip looks:
`pip config set global.extra-index-url https://download.pytorch.org/whl/cpu` is one way.
"""

import json
import re
from collections.abc import Sequence

from arr_coc import environments
from arr_coc.commands import run_command

GROUP = "lmms_eval.models"
NAMES = ("torch", "torchvision", "transformers", "lmms-eval", "av")
TOOL = "lmms-eval>=0.7,<0.8"
OF_THE_TOOL = ("av",)  # packages in the version that lmms-eval asks for


def steps(pip: list[str], device: str) -> list[list[str]]:
    """The pip commands, one after the other, for how `pip` is called."""
    torch = [environments.TORCH] if device == "cpu" else []
    lines = (environments.ROOT / "requirements.txt").read_text().splitlines()
    needs = [line for line in lines if re.match(r"\w", line) and _name(line) not in OF_THE_TOOL]
    return [
        [*pip, "install", *needs, TOOL, *torch],
        [*pip, "install", "--no-deps", "-e", str(environments.ROOT)],
    ]


def _name(requirement: str) -> str:
    return re.split(r"[^\w-]", requirement)[0]


def main(argv: Sequence[str] | None = None) -> None:
    """Make the environment; the last line is JSON."""
    args = environments.parse(__doc__.splitlines()[0], argv)
    found = environments.set_up(args.at, args.device, steps, group=GROUP, names=NAMES)
    print(json.dumps(found))


if __name__ == "__main__":
    run_command("arr_coc.harness.environment", main)
