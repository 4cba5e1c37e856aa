"""Page measured: what the evaluations in `results/` found, as escaped HTML; nothing typed by hand.

Reads each `results/NAME/summary.json` that `arr_coc.evaluate` wrote; its figures stand in
docs/evaluation.md. Several scales of detail make a sweep; a single one is a table of accuracy against
tokens and time.
"""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from arr_coc.config import SHARE
from arr_coc.page import idea
from arr_coc.page.chart import chart, usual_budget
from arr_coc.page.frame import escaped
from arr_coc.page.results import ENOUGH_RUNS, ratio_words, seconds
from arr_coc.page.times import at_usual_share, times
from arr_coc.peers.names import OURS, STOCK, WORDS
from arr_coc.service.recordings import Identity

MORE = "/docs/evaluation.md"
NONE = "No evaluation was published with this version yet, so there is nothing to show here."
OTHER = "Nothing was measured with this base yet, so there is nothing to show here."
FIGURES = "Figures of all this stand in docs/evaluation.md."
NAMES = {OURS: "ARR-COC (focused look)", STOCK: "Stock (full look)"}
# In this order; others follow by name.
TITLES = {
    "scenes": "Against other ways to spend fewer tokens",
    "scenes-fresh": "On scenes of which nothing had been seen",
    "scenes-512": "On pictures of 256 tokens",
    "hand-1024": "Drawn by a hand that nothing was trained on",
    "hand-1024-instruction": "By that hand, with the usual instruction after the question",
    "hand-512": "By that hand, pictures of 256 tokens",
    "hand-512-instruction": "By that hand, pictures of 256 tokens, with the usual instruction",
    "easy-vqa": "On easy-VQA, large shapes on tiny pictures",
    "clips": "On clips",
    "clips-fresh": "On clips of which nothing had been seen",
    "pictures": "On three pictures, one of which holds the answer",
    "parts": "What each part is worth",
    "glance": "What the glance is worth",
    "context": "What the encoder should see of the rest",
    "control": "With the answer's places painted black",
}
DRAWN = {"scenes": "drawn scenes", "clips": "drawn clips", "pictures": "drawn pictures"}
BUNDLED = "base"  # the folder of the bundled one
BENCHMARK = "benchmark-2b-cpu.json"
SHORT = 12  # digits of a hash
WORST = 3  # kinds named as failures


def load(folder: Path, identity: Identity | None = None) -> dict[str, dict[str, Any]]:
    """The summaries by the name of their folder; those that cannot be read are left out.

    With an `identity`, also those of another base or other weights.
    """
    summaries = {}
    order = list(TITLES)
    for path in sorted(
        folder.glob("*/summary.json"),
        key=lambda p: (order.index(p.parent.name) if p.parent.name in TITLES else len(order), p),
    ):
        try:
            summary = json.loads(path.read_text(encoding="utf-8"))
            summary["methods"], summary["what"], summary["date"]
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if identity is None or _made_by(summary.get("identity", {}), identity):
            summaries[path.parent.name] = summary
    return summaries


def _made_by(measured: dict[str, Any], identity: Identity) -> bool:
    """Whether a summary's identity is that base's; its weights count where it used any."""
    base, weights = measured.get("sha256"), measured.get("weights_sha256", "")
    ours = identity.base_sha256 or ""
    same = ours.startswith(base) and bool(ours) if base else measured.get("base") == identity.base
    return same and (identity.weights_sha256 or "").startswith(weights)


def at_2b(folder: Path, brief: bool = False) -> str:
    """What the focused look costs at the shapes of Qwen3-VL-2B, in a sentence; a short one where `brief`.

    Of the largest picture that was measured in as many runs as make a verdict; "" where none was.
    """
    try:
        report = benchmark(folder)
        by_size = at_usual_share(report["summary"], report["shipped"])
        largest, entry = [one for one in by_size.items() if one[1]["n"] >= ENOUGH_RUNS][-1]
        machine = report["machine"]
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return ""
    soon = ratio_words(entry["speedup"]["median"])
    if brief:
        return _sentence(
            f"At the shapes of Qwen3-VL-2B, with random weights, it was measured {soon}."
        )
    where = machine.get("gpu") or f"{machine['cores']} cores of an {machine['processor']} CPU"
    return _sentence(
        f"At the shapes of Qwen3-VL-2B (random weights, "
        f"{largest} visual tokens in full, {entry['budget']} focused, {where}) the focused look's first "
        f"word came {soon}, median of {entry['n']} runs."
    )


def section(folder: Path, identity: Identity | None = None) -> str:
    """The first results as a chart with its rows; a sentence where there are none."""
    charts = (chart(s, made_of(s, identity)) for s in load(folder, identity).values())
    body = next(filter(None, charts), "") or _sentence(OTHER if identity and load(folder) else NONE)
    return f'<section class="arr-results"><h2 class="arr-h2">Results</h2>{body}</section>'


def benchmark(folder: Path) -> dict[str, Any]:
    """What `arr_coc.benchmark` wrote of the shapes of Qwen3-VL-2B.

    Raises:
        OSError: where there is nothing.
        ValueError: where it is no JSON.
    """
    return json.loads((folder / BENCHMARK).read_text(encoding="utf-8"))


def tables(folder: Path, identity: Identity | None = None) -> str:
    """Times by size and all results as tables, each folded, and where figures are; "" without any."""
    by_size = "Seconds to the first word, by the picture's tokens"
    parts = {by_size: ""}
    # Never measured, or a report of another form: the page says nothing of it.
    with suppress(OSError, ValueError, KeyError, TypeError):
        parts[by_size] = times(benchmark(folder))
    found = load(folder, identity).items()
    several = [(name, s) for name, s in found if len({m["method"] for m in s["methods"]}) > 1]
    parts |= {TITLES.get(name, name): _evaluation(summary) for name, summary in several}
    folded = "".join(
        f'<details class="arr-how"><summary>{escaped(title)}</summary>{part}</details>'
        for title, part in parts.items()
        if part
    )
    return folded and f'{folded}<p class="arr-about">{_figures()}</p>'


def made_of(summary: dict[str, Any], identity: Identity | None) -> str:
    """Which model and weights a summary is of, when it was measured and with which commit."""
    measured = summary.get("identity", {})
    bundled = identity is not None and identity.base == "bundled"
    base = "the small bundled model" if bundled else str(measured.get("base") or "a base")
    hashes = [measured.get(name, "")[:SHORT] for name in ("sha256", "weights_sha256")]
    base += f" ({hashes[0]})" if hashes[0] else ""
    with_weights = f"with its ARR-COC weights ({hashes[1]})" if hashes[1] else "without weights"
    commit = summary.get("commit") or "unknown"
    n = sum(kind["n"] for kind in summary.get("kinds", []) if kind.get("counts"))
    return (
        f"The answers are those of {base} {with_weights} to {n:,} questions ({_what(summary)}), "
        f"measured {summary['date']}, commit {commit}."
    )


def _figures() -> str:
    """Where the figures are; a link to them among a Space's files."""
    link = idea.among_files(MORE)
    if not link:
        return escaped(FIGURES)
    named = f'<a href="{escaped(link)}" target="_blank" rel="noopener">docs/evaluation.md</a>'
    return FIGURES.replace("docs/evaluation.md", named)


def _sentence(text: str) -> str:
    return f'<p class="arr-about">{escaped(text)}</p>' if text else ""


def _evaluation(summary: dict[str, Any]) -> str:
    details = sorted({entry["detail"] for entry in summary["methods"]})
    table = _sweep(summary, details) if len(details) > 1 else _table(summary)
    return (
        f'<p class="arr-lead">{escaped(_lead(summary, len(details) > 1))}</p>{table}'
        f"{_sentence(_failures(summary)) if len(details) == 1 else ''}"
        f'<p class="arr-about">Measured {escaped(summary["date"])}, commit '
        f"{escaped(summary.get('commit') or 'unknown')}; brackets are 95% intervals.</p>"
    )


def _lead(summary: dict[str, Any], sweep: bool) -> str:
    counted = [kind for kind in summary.get("kinds", []) if kind.get("counts")]
    n = sum(kind["n"] for kind in counted)
    kinds = len({kind["kind"] for kind in counted})
    what = "Right answers by the size of the detail" if sweep else "Right answers by visual tokens"
    asked = [e["overall"]["n"] for e in summary["methods"] if e.get("overall")]
    fewer = "; where n is given, so many of them" if not sweep and min(asked, default=n) < n else ""
    return f"{what}: {_what(summary)}, {n:,} questions of {kinds} kinds{fewer}."


def _what(summary: dict[str, Any]) -> str:
    """What was asked about, and of which base but the bundled one."""
    source, _, base = summary["what"].rpartition(" on ")
    source = DRAWN.get(source, source)
    return source if base == BUNDLED else f"{source} on {base}"


def _methods(summary: dict[str, Any]) -> list[str]:
    names = dict.fromkeys(entry["method"] for entry in summary["methods"])
    return sorted(names, key=lambda name: (name != STOCK, not name.startswith(OURS)))


def _table(summary: dict[str, Any]) -> str:
    """A row per method: accuracy at each budget, and the median time nearest to the usual one."""
    entries = {(e["method"], e["budget"]): e for e in summary["methods"]}
    budgets = sorted({budget for method, budget in entries if method != STOCK})
    times = {(e["method"], e["budget"]): e["p50_s"] for e in summary.get("time") or []}
    usual, most = usual_budget(entries), _most(summary)
    head = ["Method", *(f"{budget:.0%} of the tokens" for budget in budgets)]
    head += ["All tokens"] if any(method == STOCK for method, _ in entries) else []
    head += [f"First word, at {usual:.0%}" if usual else "First word"] if times else []
    rows = []
    for method in _methods(summary):
        cells = [_accuracy(entries.get((method, budget)), most) for budget in budgets]
        if "All tokens" in head:
            cells.append(_accuracy(entries.get((method, 1.0)) if method == STOCK else None, most))
        if times:
            spent = times.get((method, 1.0 if method == STOCK else usual))
            cells.append("" if spent is None else seconds(spent))
        rows.append((method, cells))
    return _rows(head, rows)


def _sweep(summary: dict[str, Any], details: list[float]) -> str:
    """A row per method and budget, a column per scale of the detail."""
    entries = {(e["method"], e["budget"], e["detail"]): e for e in summary["methods"]}
    pairs = list(dict.fromkeys((method, budget) for method, budget, _ in entries))
    order = _methods(summary)
    pairs.sort(key=lambda pair: (order.index(pair[0]), pair[1]))
    rows = [
        (
            method if method == STOCK else f"{method}, {budget:.0%}",
            [_accuracy(entries.get((method, budget, detail)), 0) for detail in details],
        )
        for method, budget in pairs
    ]
    return _rows(["Method", *(f"Detail × {detail:g}" for detail in details)], rows)


def _rows(head: list[str], rows: list[tuple[str, list[str]]]) -> str:
    top = "".join(f'<th scope="col">{escaped(name)}</th>' for name in head)
    body = "".join(
        f'<tr><th scope="row"{_titled(name)}>{escaped(NAMES.get(name, name))}</th>'
        + "".join(f"<td>{escaped(cell)}</td>" for cell in cells)
        + "</tr>"
        for name, cells in rows
    )
    return (
        '<div class="arr-scroll" tabindex="0" role="region" aria-label="Table of results">'
        f'<table class="arr-table"><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'
    )


def _titled(name: str) -> str:
    words = WORDS.get(name, "")
    return f' title="{escaped(words)}"' * bool(words)


def _most(summary: dict[str, Any]) -> int:
    """Questions that those methods were asked that were asked most."""
    return max((e["overall"]["n"] for e in summary["methods"] if e.get("overall")), default=0)


def _accuracy(entry: dict[str, Any] | None, most: int) -> str:
    """The share of right answers, and of how many questions where it is fewer than `most`."""
    overall = entry and entry.get("overall")
    if not overall:
        return ""
    low, high = overall["interval"]
    n = f", n = {overall['n']:,}" if overall["n"] < most else ""
    return f"{overall['value']:.1%} [{100 * low:.1f}, {100 * high:.1f}]{n}"


def _failures(summary: dict[str, Any]) -> str:
    """The kinds on which ARR-COC loses most against stock at the usual budget, in a sentence."""
    ours = [e for e in summary["methods"] if e["method"] == OURS and e.get("against_stock")]
    if not ours:
        return ""
    entry = min(ours, key=lambda e: abs(e["budget"] - SHARE))
    lost = [
        (100 * difference["value"], kind)
        for kind, difference in entry["against_stock"]["kinds"].items()
        if difference["interval"][1] < 0
    ]
    at = f"At {entry['budget']:.0%} of the tokens the focused look"
    if not lost:
        return f"{at} is not measurably worse than the full look on any kind of question."
    words = ", ".join(f"{kind} ({points:.0f} points)" for points, kind in sorted(lost)[:WORST])
    return f"{at} loses most on: {words}."
