"""Figures of an evaluation, from its summary: colours safe for colour-blind eyes.

Drawings are SVG, sharp at any size, and the same bytes from the same numbers; what holds pictures is PNG.

The stock model is black, ARR-COC blue and thick; peers differ by marker as well as by colour.
"""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image

from arr_coc.evaluate.summary import comparable, same_questions
from arr_coc.peers.names import OURS, OURS_AFTER, STOCK
from arr_coc.scenes.drawing import Box

# Okabe and Ito's colours; the two darkest are kept for stock and ours.
BLACK, BLUE = "#000000", "#0072B2"
OTHERS = ("#E69F00", "#56B4E9", "#009E73", "#CC79A7", "#D55E00", "#999933", "#888888")
MARKERS = "osv^D<>PX*hp"
DPI = 110
PALETTE = 128  # colours of a stored PNG
NOT_KEPT = 0.28  # brightness of what was not kept at native resolution

SHOWN_BUDGET = 0.2  # what is shown at one budget alone is at the one nearest to it

Estimate = dict[str, Any]  # `value` and `interval`, as `stats.estimate` gives them


@dataclass(frozen=True)
class Miss:
    """A question that stock answers rightly and ARR-COC wrongly.

    `kept` is `(h, w)`, the share of each native place shown at native resolution; `boxes` hold the
    evidence in pixels (left, top, right, bottom); `stock` and `ours` are the two answers.
    """

    image: Image.Image
    kept: np.ndarray
    boxes: Sequence[Box]
    question: str
    truth: str
    stock: str
    ours: str


def style(method: str, methods: Sequence[str]) -> dict[str, Any]:
    """Line style of a method, the same in every figure of a run."""
    if method == STOCK:
        return {"color": BLACK, "marker": "_", "linestyle": "--", "linewidth": 1.5}
    if method in (OURS, OURS_AFTER):
        ours = {"color": BLUE, "marker": "o", "linewidth": 2.6, "zorder": 5}
        return ours | {"linestyle": ":" if method == OURS_AFTER else "-"}
    peers = [m for m in methods if m not in (STOCK, OURS, OURS_AFTER)]
    at = peers.index(method)
    return {
        "color": OTHERS[at % len(OTHERS)],
        "marker": MARKERS[at % len(MARKERS)],
        "linewidth": 1.0,
        "markersize": 5,
    }


def draw(out: Path, report: dict[str, Any]) -> list[Path]:
    """Every figure the report has numbers for; returns the files. Kinds are shown at `SHOWN_BUDGET`."""
    details = sorted({entry["detail"] for entry in report["methods"]})
    figures = {}
    if len(details) > 1:
        figures["sweep"] = sweep(report)
    else:
        figures["accuracy-tokens"] = accuracy_against_tokens(report)
        budgets = _budgets(report)
        if budgets:
            nearest = min(budgets, key=lambda b: abs(b - SHOWN_BUDGET))
            figures["kinds"] = by_kind(same_questions(report, nearest), nearest)
        if report.get("time"):
            figures["accuracy-time"] = accuracy_against_time(report)
    files = []
    for name, figure in figures.items():
        files.append(out / f"{name}.svg")
        save(figure, files[-1])
    return files


def save(figure: Figure, path: Path) -> None:
    """Store a figure; as PNG with a small palette: a third of the bytes, and no visible difference."""
    if path.suffix == ".svg":
        with rc_context({"svg.fonttype": "none", "svg.hashsalt": path.stem}):
            figure.savefig(path, metadata={"Date": None})
        return
    figure.savefig(path, dpi=DPI)
    with Image.open(path) as image:
        small = image.convert("RGB").quantize(PALETTE, dither=Image.Dither.NONE)
    small.save(path, optimize=True)


def _methods(report: dict[str, Any]) -> list[str]:
    return list(dict.fromkeys(entry["method"] for entry in report["methods"]))


def _budgets(report: dict[str, Any]) -> list[float]:
    """Budgets of the reducing methods, rising."""
    return sorted({e["budget"] for e in report["methods"] if e["method"] != STOCK})


def _axes(
    title: str, x: str, y: str, *, size: tuple[float, float] = (8.4, 5.0)
) -> tuple[Figure, Axes]:
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots()
    axes.set(title=title, xlabel=x, ylabel=y)
    axes.grid(alpha=0.25, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _errors(estimates: Sequence[Estimate]) -> np.ndarray:
    """`(2, n)` lengths in percent below and above the values."""
    return np.array(
        [
            [100 * (e["value"] - e["interval"][0]) for e in estimates],
            [100 * (e["interval"][1] - e["value"]) for e in estimates],
        ]
    ).clip(0)


def _line(
    axes: Axes,
    x: Sequence[float],
    estimates: Sequence[Estimate],
    method: str,
    methods: Sequence[str],
) -> None:
    y = [100 * e["value"] for e in estimates]
    axes.errorbar(
        x, y, _errors(estimates), label=method, elinewidth=0.7, capsize=2, **style(method, methods)
    )


def _legend(figure: Figure, axes: Axes) -> None:
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", frameon=False, fontsize=9)


def _stock_line(axes: Axes, report: dict[str, Any]) -> None:
    for entry in comparable(report):
        if entry["method"] == STOCK and entry["overall"]:
            axes.axhline(100 * entry["overall"]["value"], color=BLACK, ls="--", lw=1)


def accuracy_against_tokens(report: dict[str, Any]) -> Figure:
    """Overall accuracy of every method against the share of visual tokens it held."""
    figure, axes = _axes(
        f"Accuracy against visual tokens ({_least(report)})",
        "visual tokens held, % of the image's own",
        "right, % (95 % interval)",
    )
    methods, compared = _methods(report), comparable(report)
    for method in methods:
        entries = [e for e in compared if e["method"] == method and e["overall"]]
        entries.sort(key=lambda e: e["share"])
        if entries:
            x = [100 * e["share"] for e in entries]
            _line(axes, x, [e["overall"] for e in entries], method, methods)
    axes.set_xscale("log")
    ticks = sorted({round(100 * e["budget"]) for e in compared})
    axes.set_xticks(ticks, [f"{t} %" for t in ticks])
    axes.minorticks_off()
    _stock_line(axes, report)
    _legend(figure, axes)
    return figure


def accuracy_against_time(report: dict[str, Any]) -> Figure:
    """Overall accuracy against time to first token: measured here, and modelled at 2B shapes."""
    figure = Figure(figsize=(11, 4.8), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    overall = {(e["method"], e["budget"]): e["overall"] for e in comparable(report)}
    methods = _methods(report)
    titles = ("measured on this base", "modelled at the shapes of Qwen3-VL-2B")
    for axes, key, title in zip(panels, ("p50_s", "modelled_2b_s"), titles):
        axes.set(title=title, xlabel="time to first token, seconds")
        axes.grid(alpha=0.25, linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
        for method in methods:
            points = [
                (t[key], overall[method, t["budget"]])
                for t in report["time"]
                if t["method"] == method and key in t and overall.get((method, t["budget"]))
            ]
            if points:
                points.sort(key=lambda point: point[0])
                _line(axes, [p[0] for p in points], [p[1] for p in points], method, methods)
        _stock_line(axes, report)
        axes.set_xlim(left=0)
    panels[0].set_ylabel("right, % (95 % interval)")
    _legend(figure, panels[0])
    return figure


def by_kind(report: dict[str, Any], budget: float) -> Figure:
    """Accuracy of every method on every kind, at one budget; kinds that do not count are marked."""
    kinds = {k["kind"]: k["counts"] for k in report["kinds"]}
    figure, axes = _axes(
        f"Accuracy by kind at {100 * budget:.0f} % of the visual tokens ({_what(report)})",
        "right, % (95 % interval)",
        "",
        size=(8.4, 1.6 + 0.62 * len(kinds)),
    )
    methods = _methods(report)
    for number, method in enumerate(methods):
        shown = 1.0 if method == STOCK else budget
        entries = [e for e in report["methods"] if (e["method"], e["budget"]) == (method, shown)]
        measured = entries[0]["kinds"] if entries else {}
        rows = [(i, measured[k]) for i, k in enumerate(kinds) if k in measured]
        if rows:
            offset = 0.72 * (number / max(1, len(methods) - 1) - 0.5)
            drawn = style(method, methods) | {"linestyle": "none", "linewidth": 0}
            if method == STOCK:
                drawn["marker"] = "|"
            axes.errorbar(
                [100 * e["value"] for _, e in rows],
                [i + offset for i, _ in rows],
                xerr=_errors([e for _, e in rows]),
                label=method,
                elinewidth=0.7,
                **drawn,
            )
    names = [kind if counts else f"{kind} (not counted)" for kind, counts in kinds.items()]
    axes.set_yticks(range(len(kinds)), names)
    for border in range(1, len(kinds)):
        axes.axhline(border - 0.5, color="#cccccc", lw=0.6)
    axes.set_ylim(len(kinds) - 0.5, -0.5)
    _legend(figure, axes)
    return figure


def sweep(report: dict[str, Any]) -> Figure:
    """Overall accuracy against the scale of the detail, one line per method and budget."""
    figure, axes = _axes(
        f"Accuracy against the size of the detail ({_what(report)})",
        "scale of emblems and writing (1: as trained)",
        "right, % (95 % interval)",
    )
    methods = _methods(report)
    budgets = _budgets(report)
    for method in methods:
        for number, budget in enumerate([1.0] if method == STOCK else budgets):
            entries = [
                e for e in report["methods"]
                if e["method"] == method and e["budget"] == budget and e["overall"]
            ]  # fmt: skip
            if not entries:
                continue
            entries.sort(key=lambda e: e["detail"])
            name = method if method == STOCK else f"{method}, {100 * budget:.0f} %"
            drawn = style(method, methods) | {"alpha": 1 - 0.5 * number / len(budgets)}
            axes.errorbar(
                [e["detail"] for e in entries],
                [100 * e["overall"]["value"] for e in entries],
                _errors([e["overall"] for e in entries]),
                label=name,
                elinewidth=0.7,
                capsize=2,
                **drawn,
            )
    _legend(figure, axes)
    return figure


def failure_sheet(out: Path, misses: Sequence[Miss]) -> Path:
    """`failures.png` in `out`: misses side by side, dark where nothing was kept at native resolution."""
    columns = min(4, len(misses))
    rows = -(-len(misses) // columns)
    figure = Figure(figsize=(2.9 * columns, 3.9 * rows), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False)
    for axes in grid.flat:
        axes.set_axis_off()
    for axes, miss in zip(grid.flat, misses):
        mask = Image.fromarray((255 * miss.kept).astype(np.uint8)).resize(
            miss.image.size, Image.Resampling.NEAREST
        )
        light = NOT_KEPT + (1 - NOT_KEPT) * np.asarray(mask)[:, :, None] / 255  # (H, W, 1)
        axes.imshow((np.asarray(miss.image) * light).astype(np.uint8))
        for x0, y0, x1, y1 in miss.boxes:
            axes.plot([x0, x1, x1, x0, x0], [y0, y0, y1, y1, y0], color=OTHERS[0], lw=1.4)
        question = textwrap.fill(miss.question, 34)
        axes.set_title(
            f"{question}\n{miss.truth}: stock {miss.stock!r}, ARR-COC {miss.ours!r}", fontsize=7.5
        )
    save(figure, out / "failures.png")
    return out / "failures.png"


def _least(report: dict[str, Any]) -> str:
    """How much was asked of every method, at the budget where that was least."""
    parts = [same_questions(report, budget) for budget in _budgets(report)] or [report]
    least = min(parts, key=lambda part: sum(kind["n"] for kind in part["kinds"]))
    return f"{_what(least)}, or more"


def _what(report: dict[str, Any]) -> str:
    """How much was asked, for a figure's title."""
    counted = [k for k in report["kinds"] if k["counts"]]
    ns = sorted(k["n"] for k in counted) or [0]
    each = f"{ns[0]}" if ns[0] == ns[-1] else f"{ns[0]} to {ns[-1]}"
    return f"{len(counted)} kinds, n = {each} each"
