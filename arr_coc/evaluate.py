"""Evaluate: does a method keep the answers at a fraction of the visual tokens, and where does it look.

    python -m arr_coc.evaluate --out results/dev --n 200                    # every method, on scenes
    python -m arr_coc.evaluate --out results/dev --n 1000 --resume          # go on, or add to it
    python -m arr_coc.evaluate --out results/dev --resume --new-weights --weights runs/arr-coc
    python -m arr_coc.evaluate --out results/sweep --sweep detail 0.5 0.75 1 1.5 2
    python -m arr_coc.evaluate --out results/easy-vqa --easy-vqa
    accelerate launch -m arr_coc.evaluate --out results/docs --folder DIR --base Qwen/Qwen3-VL-2B-Instruct

Writes into OUT: `rows.parquet` (one row per question, method and budget), `summary.json`, figures,
and with `--time` `time.json`. Nothing is trained or tuned here. Scenes are asked from the development
seeds unless `--seed` says otherwise. Needs requirements-dev.txt. The last stdout line is JSON.
"""

import argparse
import hashlib
import json
import multiprocessing
import os
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load
from tqdm import tqdm

from arr_coc import components, evaluate_args, evaluate_plots, evaluate_rows, evaluate_summary
from arr_coc.evaluate_data import EasyVQA, Folder, Hub, Ref, Scenes, Source
from arr_coc.evaluate_rows import FULL, Pair, RememberingHost
from arr_coc.evaluate_time import CostCurve, measure_time, summarise_time
from arr_coc.measuring import commit, machine
from arr_coc.peers import EVERY, parts_used
from arr_coc.qwen import ARRCOCQwen

N_SCENES = 1000
MISSES = 12  # on the failure sheet
LONGEST_RUN = timedelta(days=2)  # how long one process may wait for the others
WEIGHTS = ("weights", "weights_sha256")  # of an identity: what ARR-COC alone depends on
Block = tuple[int, list[tuple[Ref, frozenset[Pair]]]]  # its number; what is pending per question


# --------------------------------------------------------------------------- what is asked of whom


def source(args: argparse.Namespace) -> Source:
    """The questions that the arguments name."""
    if args.easy_vqa:
        return EasyVQA(args.n, args.block)
    if args.folder:
        return Folder(args.folder, args.n, args.instruction, args.block)
    if args.dataset:
        return Hub(args.dataset, args.split, args.subset, args.n, args.instruction, args.block)
    return Scenes(args.seed, args.n or N_SCENES, args.kinds, args.details, tuple(args.size))


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
        evaluate_rows.write_part(self.args.out, number, self.rank, rows)
        return len(rows)


_worker: Worker | None = None  # of a pool's process


def _start_worker(args: argparse.Namespace, origin: Source) -> None:
    global _worker
    _worker = Worker(args, origin, 0)


def _work(block: Block) -> int:
    return _worker(block)


def measure(args: argparse.Namespace, origin: Source, rank: int, world: int) -> None:
    """Measure all that is pending, in this process's share of the blocks."""
    done = evaluate_rows.done_pairs(evaluate_rows.read_rows(args.out))
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


def time_methods(args: argparse.Namespace, origin: Source) -> None:
    """Measure times on the first questions of each kind in turn, and write `time.json`."""
    torch.set_num_threads(args.time_threads)
    host = load_host(ARRCOCQwen, args)
    curve = CostCurve.load(args.curve) if args.curve.exists() else None
    refs = (ref for block in origin.blocks() for ref in origin.load(block))
    items = [item for item, _ in zip(refs, range(args.time))]
    methods = {name: EVERY[name]() for name in args.methods}
    rows = measure_time(host, methods, args.time_budgets, items, curve)
    report = {
        "command": command(args),
        "commit": commit(),
        "date": time.strftime("%Y-%m-%d"),
        "machine": machine(host.device),
        "curve": curve and curve.source,
        "summary": summarise_time(rows),
        "rows": rows,
    }
    (args.out / "time.json").write_text(json.dumps(report) + "\n")


# ------------------------------------------------------------------------------------- reporting


def report(args: argparse.Namespace, origin: Source, started: float) -> dict[str, Any]:
    """Merge the rows; write the summary and the figures; return the summary."""
    table = evaluate_rows.merge_parts(args.out)
    timed = args.out / "time.json"
    device = torch.device(args.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    found = {
        "what": f"{origin.name} on {identity(args)['base']}",
        "command": command(args),
        "commands": [*earlier_commands(args), command(args)],
        "commit": commit(),
        "date": time.strftime("%Y-%m-%d"),
        "minutes": round((time.time() - started) / 60, 1),
        "machine": machine(device) | {"workers": args.workers},
        "identity": identity(args),
        "data": origin.about,
        "bootstrap_seed": 0,
        "floor": args.floor,
        **evaluate_summary.summarise(table, args.floor),
        "time": json.loads(timed.read_text())["summary"] if timed.exists() else [],
    }
    order = list(EVERY)
    for key, method in (("methods", "method"), ("pairs", "against"), ("time", "method")):
        found[key].sort(key=lambda e: (e.get("detail"), order.index(e[method]), e["budget"]))
    (args.out / "summary.json").write_text(json.dumps(found, indent=1) + "\n")
    evaluate_plots.draw(args.out, found)
    if misses := worst_misses(args, origin, table):
        evaluate_plots.failure_sheet(args.out, misses)
    return found


def worst_misses(args: argparse.Namespace, origin: Source, table) -> list[dict[str, Any]]:
    """Questions that stock gets right and ARR-COC wrong at about 20 %, the surest errors first."""
    budgets = [b for m, b in evaluate_rows.present_pairs(table) if m == "arr-coc"]
    if not budgets or hasattr(origin, "held"):
        return []
    budget = min(budgets, key=lambda b: abs(b - 0.2))
    stock = evaluate_rows.rows_of(table, FULL)
    ours = evaluate_rows.rows_of(table, ("arr-coc", budget))
    missed = [ref for ref, row in ours.items() if row["right"] < stock.get(ref, row)["right"]]
    missed = sorted(missed, key=lambda ref: ours[ref]["entropy"])[:MISSES]
    if not missed:
        return []
    host, method = load_host(ARRCOCQwen, args), EVERY["arr-coc"]()
    found = []
    for item in origin.load(missed):
        ask = host.prepare(item.image, item.text)
        tokens = evaluate_rows.budget_tokens(budget, ask.picture.tokens)
        found.append(
            {
                "image": item.image,
                "kept": method(host, ask, item.question, tokens).kept.numpy(),
                "boxes": item.boxes,
                "question": ours[item.ref]["question"],
                "truth": ours[item.ref]["truth"],
                "stock": stock[item.ref]["answer"],
                "ours": ours[item.ref]["answer"],
            }
        )
    return found


def command(args: argparse.Namespace) -> str:
    """How to make it again."""
    return shlex.join(["python", "-m", "arr_coc.evaluate", *args.words])


def earlier_commands(args: argparse.Namespace) -> list[str]:
    """The other commands whose rows are in OUT, the first one first."""
    path = args.out / "summary.json"
    if not args.resume or not path.exists():
        return []
    before = json.loads(path.read_text())
    known = before.get("commands") or [before["command"]]
    return [one for one in known if one != command(args)]


def identity(args: argparse.Namespace) -> dict[str, Any]:
    """What rows must share to stand in one file: the weights and the questions' source."""
    base = Path(args.base)
    weights = base / "model.safetensors"
    found = {"base": base.name if base.exists() else str(args.base), "weights": args.weights}
    trained = Path(args.weights or "none") / "model.safetensors"
    if trained.exists():
        file = trained.read_bytes()
        found["weights_sha256"] = hashlib.sha256(file).hexdigest()[:16]
        found["weights_parts"] = components.digests(load(file))
    if weights.exists():
        found["sha256"] = hashlib.sha256(weights.read_bytes()).hexdigest()[:16]
    found["source"] = args.dataset or (args.folder and args.folder.name) or ""
    return found | {"size": "x".join(map(str, args.size))}


def open_out(args: argparse.Namespace) -> None:
    """Make OUT ready; SystemExit where it holds rows that these would not go with."""
    args.out.mkdir(parents=True, exist_ok=True)
    path, own = args.out / "identity.json", identity(args)
    if any((args.out / "parts").glob("*.parquet")) or (args.out / "rows.parquet").exists():
        if not args.resume:
            sys.exit(f"{args.out} holds rows of an earlier run; --resume adds to them")
        known = json.loads(path.read_text()) if path.exists() else {}
        # The parts' digests say what else a new file of weights would change.
        keys = {*known, *own} - {"weights_parts"}
        apart = {key for key in keys if known.get(key) != own.get(key)}
        if not known or apart - {*(WEIGHTS if args.new_weights else ())}:
            sys.exit(f"{args.out} holds rows of {known or None}, this run would add rows of {own}")
        if apart:
            parts = changed(known.get("weights_parts"), own.get("weights_parts"))
            evaluate_rows.forget(args.out, [name for name in EVERY if parts_used(name) & parts])
    path.write_text(json.dumps(own) + "\n")
    evaluate_rows.merge_parts(args.out)  # what an interrupted run had measured


def changed(before: dict[str, str] | None, now: dict[str, str] | None) -> set[str]:
    """The parts that two weights, by their digests, have not in common; all where one is unknown."""
    if before is None or now is None:
        return set(components.PARTS)
    return {part for part in components.PARTS if before.get(part) != now.get(part)}


# --------------------------------------------------------------------------------- the command


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command; with RANK and WORLD_SIZE set (accelerate, torchrun) a share of it."""
    args, started = evaluate_args.parse(argv, __doc__.splitlines()[0]), time.time()
    rank, world = (int(os.environ.get(k, d)) for k, d in (("RANK", 0), ("WORLD_SIZE", 1)))
    if world > 1:
        torch.distributed.init_process_group("gloo", timeout=LONGEST_RUN)
    origin = source(args)
    if rank == 0:
        open_out(args)
    wait_for_all(world)
    measure(args, origin, rank, world)
    wait_for_all(world)
    if rank == 0:
        if args.time:
            time_methods(args, origin)
        found = report(args, origin, started)
        print(json.dumps(last_line(args, found)))
    if world > 1:
        torch.distributed.destroy_process_group()


def wait_for_all(world: int) -> None:
    """Go on when every process has come here."""
    if world > 1:
        torch.distributed.barrier()


def last_line(args: argparse.Namespace, found: dict[str, Any]) -> dict[str, Any]:
    """OUT and the overall accuracies."""
    overall = {
        f"{e['method']} {e['budget']:g} {e['detail']:g}": e["overall"] and e["overall"]["value"]
        for e in found["methods"]
    }
    return {"out": str(args.out), "minutes": found["minutes"], "overall": overall}


if __name__ == "__main__":
    main()
