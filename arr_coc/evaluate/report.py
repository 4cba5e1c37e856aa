"""Report: what an evaluation writes beside its rows: times, summary, figures, worst misses.

Rows and answers are made elsewhere (`work`, `store`); everything here but the times can be made again
from them.
"""

import json
import time
from typing import Any

import torch

from arr_coc import provenance
from arr_coc.evaluate import plots, store, summary
from arr_coc.evaluate.control import read, summarise_control, write_control
from arr_coc.evaluate.identity import MODULE, TIMES, device_of, identity, known_commands
from arr_coc.evaluate.questions import Source
from arr_coc.evaluate.rows import budget_tokens
from arr_coc.evaluate.settings import Settings, methods_of
from arr_coc.evaluate.store import FULL
from arr_coc.evaluate.timing import CostCurve, measure_time, summarise_time
from arr_coc.evaluate.views import VIEWS_WORLDS
from arr_coc.evaluate.vqa import Local
from arr_coc.evaluate.work import load_host
from arr_coc.peers.methods import EVERY
from arr_coc.peers.names import OURS

MISSES = 12  # on the failure sheet


def write_times(settings: Settings, source: Source) -> None:
    """Measure times on the first questions of the source, and write `time.json`."""
    torch.set_num_threads(settings.time_threads)
    host = load_host(settings)
    curve = CostCurve.load(settings.curve) if settings.curve.exists() else None
    loaded = (item for block in source.blocks() for item in source.load(block))
    items = [item for item, _ in zip(loaded, range(settings.time))]
    methods = {name: EVERY[name]() for name in settings.methods}
    rows = measure_time(host, methods, settings.time_budgets, items, curve)
    report = {
        **provenance.header(MODULE, settings.words, host.device),
        "weights_sha256": identity(settings).get("weights_sha256", ""),
        "curve": curve and curve.source,
        "summary": summarise_time(rows),
        "rows": rows,
    }
    (settings.out / TIMES).write_text(json.dumps(report) + "\n")


def write_controls(settings: Settings, source: Source) -> None:
    """Ask the stock model the questions that have boxes with a part of the picture black."""
    torch.set_num_threads(settings.threads)
    write_control(settings, source, load_host(settings))


def write_report(settings: Settings, source: Source, started: float) -> dict[str, Any]:
    """Merge the rows; write the summary and the figures; return the summary.

    `started` is when the command began, in seconds of `time.time`.
    """
    out = settings.out
    table = store.merge_parts(out)
    timed = out / TIMES
    header, own = provenance.header(MODULE, settings.words, device_of(settings)), identity(settings)
    report = {
        "what": f"{source.name} on {own['base']}",
        **header,
        "machine": header["machine"] | {"workers": settings.workers},
        "commands": known_commands(out),
        "minutes": round((time.time() - started) / 60, 1),
        "identity": own,
        "data": source.about,
        "bootstrap_seed": 0,
        "floor": settings.floor,
        **summary.summarise(table, settings.floor),
        "control": summarise_control(read(out)),
        "time": json.loads(timed.read_text())["summary"] if timed.exists() else [],
    }
    order = list(methods_of(settings.world))
    for part in (report, *report["shared"]):
        for key, method in (("methods", "method"), ("pairs", "against"), ("time", "method")):
            if key in part:
                part[key].sort(key=lambda e: (e.get("detail"), order.index(e[method]), e["budget"]))
    (out / "summary.json").write_text(json.dumps(report, indent=1) + "\n")
    if settings.world in VIEWS_WORLDS:  # the figures are of one picture
        return report
    plots.draw(out, report)
    if misses := worst_misses(settings, source, table):
        plots.failure_sheet(out, misses)
    return report


def worst_misses(settings: Settings, source: Source, table: store.Table) -> list[plots.Miss]:
    """Questions that stock gets right and ARR-COC wrong at `plots.SHOWN_BUDGET`, the surest errors first.

    None for a streamed source, whose pictures cannot be had again.
    """
    budgets = [budget for method, budget in store.present_pairs(table) if method == OURS]
    if not budgets or source.is_streamed:
        return []
    budget = min(budgets, key=lambda b: abs(b - plots.SHOWN_BUDGET))
    stock, ours = store.rows_of(table, FULL), store.rows_of(table, (OURS, budget))
    missed = [ref for ref, row in ours.items() if row["right"] < stock.get(ref, row)["right"]]
    if isinstance(source, Local):  # fewer may be asked than there are rows of
        missed = [ref for ref in missed if ref.index in source.by_index]
    missed = sorted(missed, key=lambda ref: ours[ref]["entropy"])[:MISSES]
    if not missed:
        return []
    host, method = load_host(settings), EVERY[OURS]()
    misses = []
    for item in source.load(missed):
        ask = host.prepare(item.image, item.text)
        reduced = method(host, ask, item.question, budget_tokens(budget, ask.picture.tokens))
        row = ours[item.ref]
        misses.append(
            plots.Miss(
                image=item.image,
                kept=reduced.kept.numpy(),
                boxes=item.boxes,
                question=row["question"],
                truth=row["truth"],
                stock=stock[item.ref]["answer"],
                ours=row["answer"],
            )
        )
    return misses
