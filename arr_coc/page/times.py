"""Page times: seconds to the first word by the picture's tokens, as a chart and a table, escaped HTML.

Everything is of a report that `arr_coc.benchmark` wrote, at the budget nearest to the usual share.
"""

import math
from typing import Any

from arr_coc.config import SHARE
from arr_coc.page.chart import plain
from arr_coc.page.frame import escaped
from arr_coc.page.plot import Axis, Point, key, plot
from arr_coc.page.results import ratio_words, seconds
from arr_coc.peers.names import OURS, STOCK

# In this order, under the benchmark's names; the shipped case comes second.
OTHERS = ("downsample", "pixelprune", "fastv")
LINES = 4  # across the chart, about


def times(report: dict[str, Any]) -> str:
    """Chart and table of a report; "" where it has fewer than two sizes, which make no curve."""
    cases = {STOCK: STOCK, report["shipped"]: OURS} | {name: name for name in OTHERS}
    curves: dict[str, list[Point]] = {}
    for case, name in cases.items():
        for tokens, entry in at_usual_share(report["summary"], case).items():
            point = Point(tokens, entry["time_to_first_token_s"]["median"])
            curves.setdefault(name, []).append(point)
    if len(curves.get(STOCK, ())) < 2 or OURS not in curves:
        return ""
    machine = report["machine"]
    where = machine.get("gpu") or f"{machine['cores']} cores of an {machine['processor']} CPU"
    n = " or ".join(map(str, sorted({entry["n"] for entry in report["summary"]})))
    made_of = (
        f"{report['what']}, {where}: what the weights say does not change the time. Everything is counted; "
        f"medians of {n} runs in turns, measured {report['date']}, commit {report['commit'] or 'unknown'}."
    )
    return (
        f'<div class="arr-chart-both arr-times"><figure class="arr-chart">{_drawn(curves)}'
        f"<figcaption>Seconds to the first word against the picture's visual tokens, at {SHARE:.0%} of "
        "them.</figcaption></figure>"
        '<div class="arr-scroll" tabindex="0" role="region" aria-label="Times compared">'
        f"{_rows(curves, report)}</div></div>"
        f'<p class="arr-about">{escaped(made_of)}</p>'
    )


def at_usual_share(summary: list[dict[str, Any]], case: str) -> dict[int, dict[str, Any]]:
    """By the tokens of a picture, the smallest first, a case's entry nearest to the usual share of them."""
    by_size: dict[int, list[dict[str, Any]]] = {}
    for entry in summary:
        if entry["case"] == case:
            by_size.setdefault(entry["image_tokens"], []).append(entry)
    return {
        size: min(by_size[size], key=lambda e: abs(e["budget"] / size - SHARE))
        for size in sorted(by_size)
    }


def _rows(curves: dict[str, list[Point]], report: dict[str, Any]) -> str:
    """A row for each way, a column for each size: seconds, and how much sooner ours is in the median."""
    sizes = [int(point.x) for point in curves[STOCK]]
    body = ""
    for number, (name, points) in enumerate(curves.items()):
        known = {int(point.x): point.y for point in points}
        cells = [f"<td>{seconds(known[s]) if s in known else ''}</td>" for s in sizes]
        head = f'<th scope="row">{key(number)}{escaped(plain(name))}</th>'
        body += f"<tr>{head}{''.join(cells)}</tr>"
    ours = at_usual_share(report["summary"], report["shipped"])
    ratios = [ratio_words(ours[s]["speedup"]["median"]) if s in ours else "" for s in sizes]
    cells = "".join(f"<td>{words}</td>" for words in ratios)
    body += f'<tr><th scope="row">Focused look against the full one</th>{cells}</tr>'
    head = "".join(f'<th scope="col">{size:,} tokens</th>' for size in sizes)
    return (
        '<table class="arr-table arr-chart-rows"><thead><tr><th scope="col">Way</th>'
        f"{head}</tr></thead><tbody>{body}</tbody></table>"
    )


def _drawn(curves: dict[str, list[Point]]) -> str:
    sizes = [point.x for point in curves[STOCK]]
    longest = max(point.y for curve in curves.values() for point in curve)
    step = nice(longest / LINES)
    last = step * math.ceil(longest / step)
    up = Axis(0, last, [(n * step, f"{n * step:g} s") for n in range(round(last / step) + 1)])
    across = Axis(0, max(sizes), [(size, f"{size:,.0f}") for size in sizes], "visual tokens")
    label = f"Seconds to the first word against visual tokens: {', '.join(map(plain, curves))}"
    return plot(list(curves.values()), across, up, label)


def nice(value: float) -> float:
    """The nearest step above that is read easily: 1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= value)
