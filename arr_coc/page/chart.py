"""Page chart: one evaluation as one chart and five rows in plain names, as escaped HTML.

Right answers against the time to the first word, as shares of the full look's; where no time was measured,
against the tokens that were kept. Everything is of a summary that `arr_coc.evaluate` wrote.
"""

from typing import Any, NamedTuple

from arr_coc.config import SHARE
from arr_coc.page.frame import escaped
from arr_coc.page.results import ratio_words
from arr_coc.peers.names import OURS, STOCK, WORDS

SHRUNK = "downsample"
PLAIN = {STOCK: "Full look: every token", OURS: "Focused look (ARR-COC)", SHRUNK: "Picture shrunk"}
# Controls show what choosing well is worth; nobody would use them.
CONTROLS = ("random", "uniform", "centre")
ROWS = 5
WIDTH, HEIGHT = 440, 290  # of the drawing, in its own units
LEFT, RIGHT, TOP, BOTTOM = 42, 22, 12, 40  # of its margins
STEP = 0.1  # between two lines of the scale of accuracy
MODELLED = "modelled_2b_ratio"
MARKS = (  # a shape for each row, around (0, 0)
    "M-5-5H5V5H-5Z",
    "M-6 0A6 6 0 1 0 6 0A6 6 0 1 0-6 0Z",
    "M0-6.5L6.5 5H-6.5Z",
    "M0-7L7 0L0 7L-7 0Z",
    "M-6.5-5H6.5L0 6.5Z",
)


class Point(NamedTuple):
    """A method at a budget: both values are shares, `x` of the full look's time or tokens."""

    x: float
    y: float


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
        mark = f'<svg viewBox="-9 -9 18 18" aria-hidden="true">{_mark(number)}</svg>'
        title = escaped(WORDS.get(name, ""))
        body += (
            f'<tr><th scope="row" title="{title}">{mark}{escaped(plain(name))}</th><td>{right}</td>'
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
    """The chart as SVG; its label says what is in it, and the rows beside it the numbers."""
    low = STEP * int(min(p.y for curve in curves for p in curve) / STEP)
    last = max(1.0, *(p.x for curve in curves for p in curve))

    def at(point: Point) -> tuple[float, float]:
        across = LEFT + point.x / last * (WIDTH - LEFT - RIGHT)
        return across, TOP + (1 - point.y) / (1 - low) * (HEIGHT - TOP - BOTTOM)

    parts = ""
    for line in range(round((1 - low) / STEP) + 1):
        share = 1 - line * STEP
        _, y = at(Point(0, share))
        parts += f'<path class="arr-chart-grid" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>'
        parts += f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{share:.0%}</text>'
    for tick in (0, 0.25, 0.5, 0.75, 1):
        x, _ = at(Point(tick, low))
        parts += (
            f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{tick:.0%}</text>'
        )
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts += (
        f'<text x="{middle}" y="{HEIGHT - 5}" text-anchor="middle">{what} (full look: 100%)</text>'
    )
    for number in reversed(range(len(curves))):  # ours over the others
        points = [at(point) for point in curves[number]]
        line = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        parts += f'<path class="arr-chart-line arr-chart-{number}" d="M{line}"/>'
        for x, y in points:
            parts += f'<g transform="translate({x:.1f} {y:.1f})">{_mark(number)}</g>'
    label = f"Right answers against {what}: {', '.join(map(plain, names))}"
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escaped(label)}">{parts}</svg>'


def _mark(number: int) -> str:
    return f'<path class="arr-chart-{number}" d="{MARKS[number]}"/>'
