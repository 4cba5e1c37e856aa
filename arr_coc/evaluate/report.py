"""Report: what an evaluation writes beside its rows: summary, identity, figures, worst misses.

Rows and answers are made elsewhere (`work`, `store`); everything here can be made again from them.
"""

import argparse
import hashlib
import json
import sys
import time
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load

from arr_coc import components, provenance
from arr_coc.evaluate import plots, store, summary
from arr_coc.evaluate import rows as evaluate_rows
from arr_coc.evaluate.questions import Source
from arr_coc.evaluate.store import FULL
from arr_coc.evaluate.timing import CostCurve, measure_time, summarise_time
from arr_coc.evaluate.work import load_host
from arr_coc.peers.methods import EVERY
from arr_coc.peers.ours import parts_used
from arr_coc.qwen.model import ARRCOCQwen

MODULE = "arr_coc.evaluate"
MISSES = 12  # on the failure sheet
WEIGHTS = ("weights", "weights_sha256")  # of an identity: what ARR-COC alone depends on


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
        **provenance.header(MODULE, args.words, host.device),
        "curve": curve and curve.source,
        "summary": summarise_time(rows),
        "rows": rows,
    }
    (args.out / "time.json").write_text(json.dumps(report) + "\n")


# ------------------------------------------------------------------------------------- reporting


def report(args: argparse.Namespace, origin: Source, started: float) -> dict[str, Any]:
    """Merge the rows; write the summary and the figures; return the summary."""
    table = store.merge_parts(args.out)
    timed = args.out / "time.json"
    device = torch.device(args.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    head = provenance.header(MODULE, args.words, device)
    found = {
        "what": f"{origin.name} on {identity(args)['base']}",
        **head,
        "machine": head["machine"] | {"workers": args.workers},
        "commands": [*earlier_commands(args), head["command"]],
        "minutes": round((time.time() - started) / 60, 1),
        "identity": identity(args),
        "data": origin.about,
        "bootstrap_seed": 0,
        "floor": args.floor,
        **summary.summarise(table, args.floor),
        "time": json.loads(timed.read_text())["summary"] if timed.exists() else [],
    }
    order = list(EVERY)
    for key, method in (("methods", "method"), ("pairs", "against"), ("time", "method")):
        found[key].sort(key=lambda e: (e.get("detail"), order.index(e[method]), e["budget"]))
    (args.out / "summary.json").write_text(json.dumps(found, indent=1) + "\n")
    plots.draw(args.out, found)
    if misses := worst_misses(args, origin, table):
        plots.failure_sheet(args.out, misses)
    return found


def worst_misses(args: argparse.Namespace, origin: Source, table) -> list[dict[str, Any]]:
    """Questions that stock gets right and ARR-COC wrong at about 20 %, the surest errors first."""
    budgets = [b for m, b in store.present_pairs(table) if m == "arr-coc"]
    if not budgets or hasattr(origin, "held"):
        return []
    budget = min(budgets, key=lambda b: abs(b - 0.2))
    stock = store.rows_of(table, FULL)
    ours = store.rows_of(table, ("arr-coc", budget))
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


def earlier_commands(args: argparse.Namespace) -> list[str]:
    """The other commands whose rows are in OUT, the first one first."""
    path = args.out / "summary.json"
    if not args.resume or not path.exists():
        return []
    before = json.loads(path.read_text())
    known = before.get("commands") or [before["command"]]
    return [one for one in known if one != provenance.command(MODULE, args.words)]


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
            store.forget(args.out, [name for name in EVERY if parts_used(name) & parts])
    path.write_text(json.dumps(own) + "\n")
    store.merge_parts(args.out)  # what an interrupted run had measured


def changed(before: dict[str, str] | None, now: dict[str, str] | None) -> set[str]:
    """The parts that two weights, by their digests, have not in common; all where one is unknown."""
    if before is None or now is None:
        return set(components.PARTS)
    return {part for part in components.PARTS if before.get(part) != now.get(part)}
