"""Lesson: a batch as the text side reads it, made by whoever draws.

The questions of a batch are written into one sequence, and each of their hints is looked up there, which
takes as long as a GPU takes for the whole step.
"""

from arr_coc.pretrain.data import Batch
from arr_coc.pretrain.hints import pointed
from arr_coc.pretrain.packing import Packer


def lesson_of(packer: Packer, batch: Batch) -> Batch:
    """The batch with its `packed` and `asked`; as it is where it has them, or has no questions."""
    if batch.packed is not None or not any(batch.questions):
        return batch
    packed = packer.pack(batch.questions, *batch.grid, blocks=batch.blocks, seconds=batch.seconds)
    if batch.hints is None:
        return batch._replace(packed=packed)
    asked = pointed(packer, packed, batch.questions, batch.hints, batch.grid, batch.blocks)
    return batch._replace(packed=packed, asked=asked)
