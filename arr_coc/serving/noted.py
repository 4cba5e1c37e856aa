"""Noted: which places the model decided, for requests that have a name; no vLLM, no torch.

    llm = LLM(..., worker_extension_cls="arr_coc.serving.noted.Notes")
    llm.chat(messages, mm_processor_kwargs={"arr_coc": {"share": 0.2, "name": "first"}})
    decided(llm, ["first"])        # {"first": [[3, 17, 18, ...]]}, raster indices for each picture

A name is for one request. A worker keeps the last `MOST`. It is asked by the name of
a method, which vLLM allows between processes without trusting pickled code.
"""

from collections.abc import Sequence
from typing import Any

from arr_coc.serving.request import request_of

MOST = 4096  # requests


class Noted:
    """The decisions of one worker, the latest ones by name."""

    def __init__(self, most: int = MOST) -> None:
        """Keeps so many."""
        self.most = most
        self.kept: dict[str, dict[int, list[int]]] = {}

    def note(self, picture: str, index: list[int]) -> None:
        """Keep the raster indices that were decided for a picture, called as `request.noted_as` does.

        Of too many requests the oldest go first.
        """
        name, number = request_of(picture)
        own = self.kept.pop(name, {})
        self.kept[name] = own | {number: index}
        if len(self.kept) > self.most:
            del self.kept[next(iter(self.kept))]

    def of(self, name: str) -> list[list[int]]:
        """What was decided for a request's pictures, in their order; empty for a name not known."""
        return [index for _, index in sorted(self.kept.get(name, {}).items())]


class Notes:
    """What vLLM's worker learns to answer, given as `worker_extension_cls`."""

    def arr_coc_decided(self, names: Sequence[str]) -> dict[str, list[list[int]]]:
        """For each name, the places that this worker's model decided, as `Noted.of`."""
        noted = self.get_model().decider.noted
        return {name: noted.of(name) for name in names}


def decided(llm: Any, names: Sequence[str]) -> dict[str, list[list[int]]]:
    """For each name, the places decided for the pictures of that request, as raster indices, rising.

    Args:
        llm: a `vllm.LLM` with `Notes` as its `worker_extension_cls`, after its requests have run.
        names: of requests.

    Raises:
        ValueError: for a name under which nothing is noted (any more).
    """
    # Under tensor parallelism every rank decides the same.
    found = llm.collective_rpc("arr_coc_decided", args=(list(names),))[0]
    if missing := [name for name in names if not found[name]]:
        raise ValueError(
            f"nothing is noted of {', '.join(missing)}: a worker notes the decisions of requests with a "
            f"name, and keeps the last {MOST} of them"
        )
    return found
