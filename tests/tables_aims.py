"""What ARR-COC should reach on drawn scenes, and what it reaches."""

import json
from pathlib import Path

import numpy as np

from arr_coc.evaluate.summary import comparable, same_questions
from arr_coc.peers.before import Control
from arr_coc.peers.methods import EVERY
from arr_coc.peers.names import STOCK
from tests.tables_shared import AUTO_LOSS, AUTO_TOKENS, BUDGET, Aim, aims_table, percent

EVALUATION = Path(__file__).parent.parent / "results" / "scenes" / "summary.json"
KEPT = {0.2: 0.99, 0.1: 0.98, 0.05: 0.95}  # of stock's right answers, at these shares of the tokens
WORST = 0.03  # that a kind may lose
OURS = {name for name, make in EVERY.items() if make().is_ours}
# They choose without looking.
CONTROLS = {name for name, make in EVERY.items() if isinstance(make(), Control)}

Leads = dict[tuple[str, float], dict]


def aims_block() -> str:
    """What ARR-COC should reach at a fifth of the tokens, and what it reaches."""
    summary = json.loads(EVALUATION.read_text())
    entries = {(e["method"], e["budget"]): e for e in summary["methods"]}
    ours = entries["arr-coc", BUDGET]
    stock = ours["against_stock"]
    leads = {
        (e["against"], b): e["overall"]
        for b in sorted({e["budget"] for e in summary["pairs"]})
        for e in same_questions(summary, b)["pairs"]
        if e["budget"] == b
    }
    asked_both = {(e["against"], e["budget"]): e["overall"] for e in summary["pairs"]}
    kept = {b: entries["arr-coc", b]["against_stock"]["kept"] for b in KEPT}
    worse = [k for k, one in stock["kinds"].items() if one["interval"][1] < -WORST]
    shrunk = {b: lead for (m, b), lead in leads.items() if m == "downsample"}
    after = leads["arr-coc-after", BUDGET]
    free = next(
        e for e in summary["pairs"] if e["against"] == "arr-coc-free" and e["budget"] == BUDGET
    )
    quick = {
        key: at_equal_time(summary, key) for key in ("modelled_2b_s", "modelled_2b_same_shares_s")
    }
    own = next(
        e["overall"]["value"] for e in comparable(summary)
        if (e["method"], e["budget"]) == ("arr-coc", BUDGET)
    )  # fmt: skip
    worst, lost = min(free["kinds"].items(), key=lambda pair: pair[1]["value"])
    counted = {kind["kind"]: kind["n"] for kind in summary["kinds"]}
    asked, shared = ours["overall"]["n"], after["n"]
    rows = [
        *(
            Aim(f"share of stock accuracy kept, at {budget:.0%}", f"{100 * bar:g}", percent(kept[budget]),
                kept[budget]["value"] >= bar, entries["arr-coc", budget]["overall"]["n"])
            for budget, bar in KEPT.items()
        ),
        Aim("minus stock, points", "lower end above -2", percent(stock["overall"], "+"),
            stock["overall"]["interval"][0] > -0.02, asked),
        Aim(f"kinds wholly below -{100 * WORST:g} points", "none", ", ".join(worse) or "none",
            not worse, asked),
        Aim("other methods it is above, interval excluding zero, by all that both were asked", "all",
            _above(asked_both, BUDGET), not _level(asked_both, BUDGET), shared),
        Aim("above or level with the others that were asked at 5, 10, 40 %", "all",
            *_nowhere_below(leads), shared),
        Aim("minus cutting after the full encoder", "-2 or more",
            percent(after, "+"), after["value"] >= -0.02, shared),
        _by_need(asked_both, entries),
        Aim("minus the picture shrunk, at 5, 10, 20, 40 %", "-1 or more",
            "; ".join(f"{100 * lead['value']:+.1f}" for _, lead in sorted(shrunk.items())),
            all(lead["value"] >= -0.01 for lead in shrunk.values()), shared),
        *(
            Aim(f"best in its time by the 2B stage times, {words}", "ARR-COC",
                f"{100 * own:.1f}; next {next_best(quick[key])}; {', '.join(untimed(summary, key))} were "
                "not asked with as many tokens", own > quick[key][0][1], shared)
            for key, words in (("modelled_2b_s", "1024 tokens"),
                               ("modelled_2b_same_shares_s", "a glance as large as here"))
        ),
        Aim("share of the answer's place kept", "90", percent(ours["coverage"]),
            ours["coverage"]["value"] >= 0.9, ours["coverage"]["n"]),
        Aim("AUC of relevance, own target against the other's", "90", percent(ours["own_auc"]),
            ours["own_auc"]["value"] >= 0.9, ours["own_auc"]["n"]),
        Aim("AUC of the first token's entropy against errors, within a kind", "",
            percent(ours["entropy_auc"]), None, asked),
        Aim("learned minus fixed rules, points", "above 0", percent(free["overall"], "+"),
            free["overall"]["interval"][0] > 0, shared),
        Aim("the same, share of the answer's place kept", "above 0", percent(free["coverage"], "+"),
            free["coverage"]["interval"][0] > 0, shared),
        Aim("the same, worst kind", "-1 or more", f"{worst} {percent(lost, '+')}",
            lost["value"] >= -0.01, min(counted[worst], lost.get("n", counted[worst]))),
    ]  # fmt: skip
    return "\n".join(aims_table(rows)) + "\n"


def _by_need(leads: Leads, entries: dict) -> Aim:
    """What share "auto" loses against the usual share, and how many tokens it reads."""
    lead, read = leads["arr-coc-auto", BUDGET], entries["arr-coc-auto", BUDGET]["share"]
    met = lead["value"] <= AUTO_LOSS and read <= AUTO_TOKENS
    what = f'share "auto" minus the usual share, points, at {read:.1%} of the tokens on average'
    aim = f"-{100 * AUTO_LOSS:g} or more, at {AUTO_TOKENS:.0%} or less"
    lost = {"value": -lead["value"], "interval": [-end for end in reversed(lead["interval"])]}
    return Aim(what, aim, percent(lost, "+"), met, lead["n"])


def _peers(leads: Leads, budget: float) -> list[str]:
    """The published methods that were asked at a budget."""
    return [m for m, b in leads if b == budget and m not in OURS | CONTROLS and m != STOCK]


def _level(leads: Leads, budget: float) -> list[str]:
    """Those of them that ARR-COC is not above with certainty."""
    return [m for m in _peers(leads, budget) if leads[m, budget]["interval"][0] <= 0]


def _above(leads: Leads, budget: float) -> str:
    peers, level = _peers(leads, budget), _level(leads, budget)
    return f"{len(peers) - len(level)} of {len(peers)}; not {', '.join(level)}" if level else "all"


def _nowhere_below(leads: Leads) -> tuple[str, bool]:
    """Where ARR-COC is below another method with certainty, and where only by value."""
    budgets = sorted({b for m, b in leads if b != BUDGET and m not in OURS | CONTROLS})
    below = {
        (m, b): leads[m, b] for b in budgets for m in _peers(leads, b) if leads[m, b]["value"] < 0
    }
    said = "; ".join(f"{m} at {b:.0%} {percent(lead, '+')}" for (m, b), lead in below.items())
    return said or "all", all(lead["interval"][1] >= 0 for lead in below.values())


def at_equal_time(summary: dict, key: str) -> list[tuple[str, float]]:
    """Accuracy that each other method has in ARR-COC's modelled time, the best first.

    Linear between measured budgets; methods that were asked at none as quick, or none as slow, are left
    out: what they would have in that time nobody measured.
    """
    seconds = {(e["method"], e["budget"]): e[key] for e in summary["time"]}
    limit = seconds["arr-coc", BUDGET]
    curves: dict[str, list] = {}
    for e in comparable(summary):
        if e["method"] not in OURS and (e["method"], e["budget"]) in seconds:
            at = seconds[e["method"], e["budget"]]
            curves.setdefault(e["method"], []).append((at, e["overall"]["value"]))
    best = {
        method: float(np.interp(limit, *zip(*sorted(points))))
        for method, points in curves.items()
        if min(points)[0] <= limit <= max(points)[0]
    }
    return sorted(best.items(), key=lambda pair: -pair[1])


def untimed(summary: dict, key: str) -> list[str]:
    """Published methods that are quicker at a fifth, and were not asked at a budget that takes as long."""
    seconds = {(e["method"], e["budget"]): e[key] for e in summary["time"]}
    known = {name for name, _ in at_equal_time(summary, key)} | OURS | CONTROLS | {STOCK}
    limit = seconds["arr-coc", BUDGET]
    return [m for (m, b), s in seconds.items() if b == BUDGET and s < limit and m not in known]


def next_best(ranked: list[tuple[str, float]]) -> str:
    """The best of `at_equal_time` in words."""
    if not ranked:
        return "none was asked at budgets on both sides of it"
    (name, right), *_ = ranked
    return f"{name}, {100 * right:.1f} (between its budgets)"
