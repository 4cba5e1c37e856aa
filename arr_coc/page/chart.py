"""Page chart: one evaluation as one chart and five rows in plain names, as escaped HTML.

Right answers against the time to the first word, as shares of the full look's; where no time was measured,
against the tokens that were kept. Everything is of a summary that `arr_coc.evaluate` wrote.
"""

from typing import Any

from arr_coc.config import SHARE
from arr_coc.page.frame import escaped
from arr_coc.page.plot import Axis, Point, key, plot
from arr_coc.page.results import ratio_words
from arr_coc.peers.names import OURS, STOCK, WORDS

SHRUNK = "downsample"
PLAIN = {STOCK: "Full look: every token", OURS: "Focused look (ARR-COC)", SHRUNK: "Picture shrunk"}
# Controls show what choosing well is worth; nobody would use them.
CONTROLS = ("random", "uniform", "centre")
ROWS = 5
STEP = 0.1  # between two lines of the scale of accuracy
MODELLED = "modelled_2b_ratio"


def chart(summary: dict[str, Any], made_of: str) -> str:
    """Chart and rows of a summary; "" where it has nothing to compare the full look with.

    Args:
        summary: of one scale of detail.
        made_of: which model and weights were measured, in words.
    """
    entries = {(e["method"], e["budget"]): e for e in summary["methods"] if e.get("overall")}
    names = chosen(entries)
    if STOCK not in names or len(names) < 2:
        return ""
    ratios = {(t["method"], t["budget"]): t.get(MODELLED) for t in summary.get("time") or []}
    timed = all(ratios.get(key) for key in entries if key[0] in names)
    curves = [
        [
            Point(ratios[key] if timed else key[1], entry["overall"]["value"])
            for key, entry in sorted(entries.items(), key=lambda item: item[0][1])
            if key[0] == name
        ]
        for name in names
    ]
    usual = usual_budget(entries)
    budgets = ", ".join(f"{100 * b:g}" for b in sorted({b for n, b in entries if n == OURS}))
    what = "time to the first word" if timed else "visual tokens"
    source = (
        "Times are put together of stages measured at the shapes of Qwen3-VL-2B with random weights. "
        if timed
        else ""
    )
    return (
        f'<div class="arr-chart-both"><figure class="arr-chart">{_drawn(curves, names, what)}'
        f"<figcaption>Right answers against the {what}; a point for each budget, {budgets}% of the "
        "tokens.</figcaption></figure>"
        '<div class="arr-scroll" tabindex="0" role="region" aria-label="Five ways compared">'
        f"{_rows(entries, ratios, names, usual, timed)}</div></div>"
        f'<p class="arr-about">{escaped(source + made_of)}</p>'
    )


def chosen(entries: dict[tuple[str, float], dict[str, Any]]) -> list[str]:
    """The methods that are shown: full, focused, shrunk, and the best others at the usual budget."""
    known = {name for name, _ in entries}
    usual = usual_budget(entries)
    others = [
        (-entry["overall"]["value"], name)
        for (name, budget), entry in entries.items()
        if budget == usual and name not in PLAIN and not name.startswith((OURS, *CONTROLS))
    ]
    named = [name for name in PLAIN if name in known]
    return named + [name for _, name in sorted(others)][: ROWS - len(named)]


def usual_budget(entries: dict[tuple[str, float], dict[str, Any]]) -> float | None:
    """The share of the tokens nearest to the one that is used; None where nothing was reduced."""
    budgets = {budget for name, budget in entries if name != STOCK}
    return min(budgets, key=lambda budget: abs(budget - SHARE), default=None)


def plain(name: str) -> str:
    """A method's name as a person would say it: a published one by its own."""
    words = WORDS.get(name, name)
    return PLAIN.get(name) or words.partition(":")[0]


def _rows(
    entries: dict[tuple[str, float], dict[str, Any]],
    ratios: dict[tuple[str, float], float | None],
    names: list[str],
    usual: float | None,
    timed: bool,
) -> str:
    body = ""
    for number, name in enumerate(names):
        budget = 1.0 if name == STOCK else usual
        entry, ratio = entries.get((name, budget)), ratios.get((name, budget))
        right = "" if entry is None else f"{entry['overall']['value']:.1%}"
        sooner = ratio_words(1 / ratio) if ratio and name != STOCK else ""
        title = escaped(WORDS.get(name, ""))
        body += (
            f'<tr><th scope="row" title="{title}">{key(number)}{escaped(plain(name))}</th><td>{right}</td>'
            f"{f'<td>{sooner}</td>' * timed}</tr>"
        )
    at = f"Right at {usual:.0%} of the tokens" if usual else "Right"
    head = f'<th scope="col">Way</th><th scope="col">{at}</th>'
    head += '<th scope="col">First word</th>' * timed
    return (
        '<table class="arr-table arr-chart-rows"><thead>'
        f"<tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    )


def _drawn(curves: list[list[Point]], names: list[str], what: str) -> str:
    """The curves on their axes; the rows beside them have the numbers."""
    low = STEP * int(min(p.y for curve in curves for p in curve) / STEP)
    last = max(1.0, *(p.x for curve in curves for p in curve))
    shares = [1 - line * STEP for line in range(round((1 - low) / STEP) + 1)]
    up = Axis(low, 1, [(share, f"{share:.0%}") for share in shares])
    ticks = [(tick, f"{tick:.0%}") for tick in (0, 0.25, 0.5, 0.75, 1)]
    across = Axis(0, last, ticks, f"{what} (full look: 100%)")
    return plot(curves, across, up, f"Right answers against {what}: {', '.join(map(plain, names))}")
