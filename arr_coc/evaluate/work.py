"""Work: blocks of questions, dealt to processes that each load the base once.

A block that is done is on disk before the next one starts, so that a killed run goes on where it was.
"""

import multiprocessing
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial

import torch
from tqdm import tqdm

from arr_coc.evaluate import rows as evaluate_rows
from arr_coc.evaluate import store
from arr_coc.evaluate.questions import Item, Ref, Source
from arr_coc.evaluate.rows import columns_of
from arr_coc.evaluate.settings import Settings, methods_of
from arr_coc.evaluate.store import FULL, Pair
from arr_coc.evaluate.views import VIEWS_WORLDS, ViewsItem
from arr_coc.evaluate.views_rows import measure_views
from arr_coc.qwen.model import ARRCOCQwen

Block = tuple[int, list[tuple[Ref, frozenset[Pair]]]]  # its number; what is pending per question


def measure(settings: Settings, source: Source, rank: int, world: int) -> None:
    """Measure all that is pending, in this process's share of the blocks; rows go to disk.

    Args:
        settings: of the command.
        source: of the questions.
        rank: of this process, from 0.
        world: processes that were started together, each with a share of the blocks.
    """
    done = store.done_pairs(store.read_rows(settings.out))
    wanted = wanted_pairs(settings.methods, settings.budgets)
    with ExitStack() as stack:
        pool, parallel = None, map
        if settings.workers > 1:
            context = multiprocessing.get_context("spawn")
            start = (settings.workers, _start_worker, (settings, source))
            pool = stack.enter_context(context.Pool(*start))
            parallel = pool.map
        blocks: Iterable[Block] = pending_blocks(source.blocks(parallel), wanted, done)
        if world > 1:
            blocks = (block for block in blocks if block[0] % world == rank)
        if not source.is_streamed:  # a stream's blocks must be met one by one
            blocks = list(blocks)
        total = len(blocks) if isinstance(blocks, list) else None
        if total == 0:
            return
        if pool is None:
            counts: Iterable[int] = map(Worker(settings, source, rank), blocks)
        else:
            counts = pool.imap_unordered(_work, blocks)
        _show_progress(counts, total, hidden=rank > 0)
        if pool is not None:
            pool.close()
            pool.join()


def wanted_pairs(methods: Sequence[str], budgets: Sequence[float]) -> frozenset[Pair]:
    """Every method at every budget; the stock model once."""
    return frozenset(
        FULL if method == FULL[0] else (method, budget) for method in methods for budget in budgets
    )


def pending_blocks(
    blocks: Iterable[list[Ref]], wanted: frozenset[Pair], done: dict[Ref, set[Pair]]
) -> Iterator[Block]:
    """The blocks with what is still to be measured; finished ones are left out."""
    for number, refs in enumerate(blocks):
        missing = [(ref, wanted - done.get(ref, set())) for ref in refs]
        if pending := [(ref, pairs) for ref, pairs in missing if pairs]:
            yield number, pending


def load_host(settings: Settings) -> ARRCOCQwen:
    """The base with its ARR-COC weights, on this process's device."""
    device = settings.device
    if device is None and torch.cuda.is_available():
        device = f"cuda:{os.environ.get('LOCAL_RANK', 0)}"
    options = {"device": device, "dtype": settings.dtype}
    return ARRCOCQwen.from_pretrained(settings.base, settings.weights, **options)


class Worker:
    """One process's host and methods; measures blocks and writes them."""

    def __init__(self, settings: Settings, source: Source, rank: int) -> None:
        torch.set_num_threads(settings.threads)
        self.settings, self.source, self.rank = settings, source, rank
        self.host = load_host(settings)
        known = methods_of(settings.world)
        self.methods = {name: known[name]() for name in settings.methods}
        self.asked = store.asked_of(store.read_rows(settings.out))

    def __call__(self, block: Block) -> int:
        """Measure one block; returns the number of its rows."""
        number, pending = block
        items = self.source.load([ref for ref, _ in pending])
        self._check_same(items)
        of_one = partial(evaluate_rows.measure_items, batch=self.settings.batch)
        measure = measure_views if self.settings.world in VIEWS_WORLDS else of_one
        rows = measure(
            self.host,
            self.methods,
            items,
            [pairs for _, pairs in pending],
            dataset=self.source.name,
            scoring=self.source.scoring,
            max_new_tokens=self.settings.max_new_tokens,
        )
        store.write_part(self.settings.out, number, self.rank, rows)
        return len(rows)

    def _check_same(self, items: Sequence[Item | ViewsItem]) -> None:
        """ValueError where a question that has rows is another one by now: they would be paired."""
        for item in items:
            own = columns_of(item)
            now, before = (own["question"], own["truth"]), self.asked.get(item.ref)
            if before not in (None, now):
                where = f"question {item.ref.index} about {item.ref.picture}"
                given = f"{self.settings.out} holds rows of {where} as {before}, it is {now} now"
                raise ValueError(f"{given}: measure anew, into another folder")


_worker: Worker | None = None  # in each process of a pool


def _start_worker(settings: Settings, source: Source) -> None:
    global _worker
    _worker = Worker(settings, source, 0)


def _work(block: Block) -> int:
    return _worker(block)


def _show_progress(counts: Iterable[int], total: int | None, *, hidden: bool) -> None:
    """Take the numbers of rows as they come, a block each, and show how many there are."""
    rows = 0
    with tqdm(total=total, desc="evaluate", unit="block", disable=hidden) as bar:
        for count in counts:
            rows += count
            bar.set_postfix_str(f"{rows} rows")
            bar.update()
