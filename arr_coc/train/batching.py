"""Batching: an order in which the pictures of a batch have one grid, so that they go through together."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np
from torch.utils.data import Sampler


class ByGrid(Sampler[int]):
    """Every sample once an epoch, shuffled; batches are of one grid as far as the numbers allow.

    What is left of each grid is put together in batches of neighbouring grids. The order depends on the
    seed and the epoch alone, so that a resumed run and other processes meet the same.
    """

    def __init__(self, grids: Sequence[tuple[int, int]], batch: int, seed: int) -> None:
        """`grids` is that of each sample's picture, `batch` the samples of one process and step."""
        self.grids, self.batch, self.seed, self.epoch = list(grids), batch, seed, 0

    def set_epoch(self, epoch: int) -> None:
        """The epoch whose order is given next."""
        self.epoch = epoch

    def __len__(self) -> int:
        return len(self.grids)

    def __iter__(self) -> Iterator[int]:
        rng = np.random.default_rng((self.seed, self.epoch))
        of_grid: dict[tuple[int, int], list[int]] = defaultdict(list)
        for index in rng.permutation(len(self.grids)).tolist():
            of_grid[self.grids[index]].append(index)
        batches, left = [], []
        for grid in sorted(of_grid):
            members = of_grid[grid]
            whole = len(members) - len(members) % self.batch
            batches += [members[i : i + self.batch] for i in range(0, whole, self.batch)]
            left += members[whole:]
        batches += [left[i : i + self.batch] for i in range(0, len(left), self.batch)]
        # A batch that is not full comes last: the order is cut into equal batches.
        last = [batches.pop()] if batches and len(batches[-1]) < self.batch else []
        for batch in [*(batches[place] for place in rng.permutation(len(batches))), *last]:
            yield from batch
