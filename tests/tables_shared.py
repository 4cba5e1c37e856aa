"""What several of the tables share."""

from pathlib import Path
from typing import NamedTuple

from arr_coc import digests

WEIGHTS = Path(__file__).parent.parent / "arr_coc" / "bundled" / "arr-coc"

BASE_SINCE = "2026-11-27"  # from which day on results are of the base that is bundled now
BUDGET = 0.2  # the share of the tokens that most tables speak of
# Of all tokens, and of the answers, that share "auto" may take.
AUTO_TOKENS, AUTO_LOSS = 0.12, 0.005


def base_of(report: dict) -> str:
    """Which bundled base a report was taken on."""
    date = report["date"]
    return "the bundled base" if date >= BASE_SINCE else f"a bundled base before this one ({date})"


def before(report: dict) -> str:
    """Said of a report whose ARR-COC weights are not those that are bundled now."""
    measured = report.get("weights_sha256") or "unknown"
    if digests.of_weights(WEIGHTS).startswith(measured):
        return ""
    return " By the weights before these, whose scan has no likeness."


def at_a_fifth(summary: dict) -> dict[str, dict]:
    """The entry of each method at a fifth of the tokens; stock's is at all of them."""
    return {e["method"]: e for e in summary["methods"] if e["budget"] in (1.0, BUDGET)}


class Aim(NamedTuple):
    """What is asked, how much of it, what was found, whether that is enough, and on how many questions.

    `met` is None where there is no bar, `n` where questions are not what was counted.
    """

    what: str
    aim: str
    found: str
    met: bool | None
    n: int | None = None


def aim_of(what: str, found: dict, bar: float, n: int | None = None) -> Aim:
    """An estimate that should be `bar` or more, on its own n or else on `n` questions."""
    return Aim(what, f"{100 * bar:g}", percent(found), found["value"] >= bar, found.get("n", n))


def aims_table(rows: list[Aim]) -> list[str]:
    """Lines of a table of aims."""
    lines = ["| in percent | aim | found | n | |", "|---|---|---|---|---|"]
    for one in rows:
        n = "" if one.n is None else f"{one.n:,}"
        met = "" if one.met is None else marked(one.met)
        lines.append(f"| {one.what} | {one.aim} | {one.found} | {n} | {met} |")
    return lines


def marked(met: bool) -> str:
    """Whether an aim is met, in words."""
    return "reached" if met else "not reached"


def percent(measure: dict | None, sign: str = "") -> str:
    """A share and its interval in percent, where it has one; empty where there is no share."""
    if not measure:
        return ""
    if "interval" not in measure:
        return f"{100 * measure['value']:{sign}.1f}"
    low, high = measure["interval"]
    value, low, high = (f"{100 * x:{sign}.1f}" for x in (measure["value"], low, high))
    return f"{value} [{low}, {high}]"


def made_by(summary: dict) -> str:
    """Which questions were asked, and by which commands."""
    counts: dict[str, list[int]] = {}
    for kind in summary["kinds"]:
        counts.setdefault(kind["kind"], []).append(kind["n"])
    kinds = ", ".join(f"{kind} {min(ns)}" for kind, ns in counts.items())
    made = ", then ".join(f"`{command}`" for command in summary["commands"])
    note = f" ({summary['note']})" if "note" in summary else ""
    learned = any(e["method"].startswith("arr-coc") for e in summary["methods"])
    of = before(summary["identity"]) if learned and "weights_sha256" in summary["identity"] else ""
    return f"Questions: {kinds}. Made with {made}{note}.{of}"


def times_sooner(ratio: dict, value: str = "median", digits: int = 1) -> str:
    """How many times sooner, with the range of its repetitions; `value` names what stands first."""
    first, least, most = (f"{ratio[key]:.{digits}f}" for key in (value, "min", "max"))
    return f"{first}x ({least}-{most})"
