"""Work: blocks of questions, dealt to processes that each load the base once.

A block that is done is on disk before the next one starts, so that a killed run goes on where it was.
"""

import argparse
import multiprocessing
import os
from collections.abc import Callable, Iterable
from contextlib import ExitStack

import torch
from tqdm import tqdm

from arr_coc.evaluate import rows as evaluate_rows
from arr_coc.evaluate import store
from arr_coc.evaluate.questions import Ref, Source
from arr_coc.evaluate.rows import RememberingHost
from arr_coc.evaluate.store import FULL, Pair
from arr_coc.peers.methods import EVERY
from arr_coc.qwen.model import ARRCOCQwen

Block = tuple[int, list[tuple[Ref, frozenset[Pair]]]]  # its number; what is pending per question


def pairs(args: argparse.Namespace) -> frozenset[Pair]:
    """Every method at every budget; the stock model once."""
    return frozenset(
        FULL if method == FULL[0] else (method, budget)
        for method in args.methods
        for budget in args.budgets
    )


def pending_blocks(
    blocks: Iterable[list[Ref]], wanted: frozenset[Pair], done: dict[Ref, set[Pair]]
) -> Iterable[Block]:
    """The blocks with what is still to be measured; finished ones are left out."""
    for number, refs in enumerate(blocks):
        left = [(ref, wanted - done.get(ref, set())) for ref in refs]
        if left := [(ref, missing) for ref, missing in left if missing]:
            yield number, left


# -------------------------------------------------------------------------------------- the work


def load_host(cls: type[ARRCOCQwen], args: argparse.Namespace) -> ARRCOCQwen:
    """The base with its ARR-COC weights, on this process's device."""
    device = args.device
    if device is None and torch.cuda.is_available():
        device = f"cuda:{os.environ.get('LOCAL_RANK', 0)}"
    dtype = getattr(torch, args.dtype) if args.dtype else None
    return cls.from_pretrained(args.base, args.weights, device=device, dtype=dtype)


class Worker:
    """One process's host and methods; measures blocks and writes them."""

    def __init__(self, args: argparse.Namespace, origin: Source, rank: int) -> None:
        torch.set_num_threads(args.threads)
        self.args, self.origin, self.rank = args, origin, rank
        self.host = load_host(RememberingHost, args)
        self.methods = {name: EVERY[name]() for name in args.methods}

    def __call__(self, block: Block) -> int:
        """Measure one block; returns its rows."""
        number, left = block
        rows = evaluate_rows.measure_items(
            self.host,
            self.methods,
            self.origin.load([ref for ref, _ in left]),
            [missing for _, missing in left],
            dataset=self.origin.name,
            scoring=self.origin.scoring,
            batch=self.args.batch,
            max_new_tokens=self.args.max_new_tokens,
        )
        store.write_part(self.args.out, number, self.rank, rows)
        return len(rows)


_worker: Worker | None = None  # of a pool's process


def _start_worker(args: argparse.Namespace, origin: Source) -> None:
    global _worker
    _worker = Worker(args, origin, 0)


def _work(block: Block) -> int:
    return _worker(block)


def measure(args: argparse.Namespace, origin: Source, rank: int, world: int) -> None:
    """Measure all that is pending, in this process's share of the blocks."""
    done = store.done_pairs(store.read_rows(args.out))
    with ExitStack() as stack:
        spread: Callable = map
        if args.workers > 1:
            context = multiprocessing.get_context("spawn")
            pool = stack.enter_context(context.Pool(args.workers, _start_worker, (args, origin)))
            spread = pool.map
        blocks: Iterable[Block] = pending_blocks(origin.blocks(spread), pairs(args), done)
        if world > 1:
            blocks = (block for block in blocks if block[0] % world == rank)
        if not hasattr(origin, "held"):  # a stream's blocks must be met one by one
            blocks = list(blocks)
        total = len(blocks) if isinstance(blocks, list) else None
        if total == 0:
            return
        answers = (
            pool.imap_unordered(_work, blocks)
            if args.workers > 1
            else map(Worker(args, origin, rank), blocks)
        )
        hidden = rank > 0
        with tqdm(total=total, desc="evaluate", unit="block", disable=hidden) as bar:
            rows = 0
            for count in answers:
                rows += count
                bar.set_postfix_str(f"{rows} rows")
                bar.update()
        if args.workers > 1:
            pool.close()
            pool.join()
