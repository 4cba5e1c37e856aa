"""Tables about the bundled base: what it is asked, how it grew in training, whether manners matter."""

import json
from pathlib import Path
from typing import Any

from arr_coc.evaluate import store
from arr_coc.evaluate.stats import wilson
from arr_coc.scenes.questions import KINDS
from arr_coc.scenes.richer import RICHER_KINDS
from tests.tables_shared import WEIGHTS, Aim

RESULTS = Path(__file__).parent.parent / "results"
CURVE = RESULTS / "curve.json"
SCORES = WEIGHTS.parent / "base" / "scores.json"
# What is asked in the curve's rows, by words of their commands.
COLUMNS = {
    "large world, 512": ("--world large --size 512 512 --hand any",),
    "large world, 1024": ("--world large --size 1024 1024 --hand any",),
    "a hand held out, 512": ("--size 512 512 --hand twemoji",),
    "small world, home hand": ("-home",),
    "clips": ("--world clips",),
}
WEAK = 0.6  # of right answers, below which a kind is named
# Of 300 questions of each kind, the test seeds at 512 x 512: the bundled base before this one (0854ee4).
BEFORE = {
    "colour": 299, "exists": 294, "where": 297, "leftmost": 296, "beside": 290, "count": 216,
    "setting": 299, "emblem_colour": 294, "number": 269, "word": 244, "price": 259, "cheapest": 89,
    "chart_value": 290, "chart_highest": 108, "form": 220,
}  # fmt: skip
N_BEFORE = 300
MANNERS = {
    "lower": "in lower case",
    "bare": "without the question mark",
    "please": "politely",
    "please-after": "politely, at the end",
    "instructed": "with the usual instruction",
}


def kinds_block() -> str:
    """What each kind of question asks."""
    lines = ["| kind | asks |", "|---|---|"]
    lines += [f"| {kind} | {words} |" for kind, words in (KINDS | RICHER_KINDS).items()]
    text = f"The last {len(RICHER_KINDS)} are of the large world alone, the others of both."
    return "\n".join(lines) + f"\n\n{text}\n"


def curve_block() -> str:
    """Right answers on development scenes by the minutes of training, and what is weakest at the end."""
    report = json.loads(CURVE.read_text())
    by_minutes: dict[int, dict[str, dict[str, Any]]] = {}
    for row in report["rows"]:
        name = next(n for n, words in COLUMNS.items() if all(w in row["command"] for w in words))
        by_minutes.setdefault(row["minutes"], {})[name] = row
    lines = [f"| hours | pictures | {' | '.join(COLUMNS)} |", "|---" * (2 + len(COLUMNS)) + "|"]
    for minutes, own in sorted(by_minutes.items()):
        found = (own.get(name) for name in COLUMNS)
        cells = [f"{100 * one['right']:.0f} ({one['n']})" if one else "" for one in found]
        pictures = next(iter(own.values()))["pictures"]
        lines.append(f"| {minutes / 60:.1f} | {pictures:,} | {' | '.join(cells)} |")
    name = "large world, 1024"
    last = [own[name] for _, own in sorted(by_minutes.items()) if name in own]
    kinds = sorted(last[-1]["kinds"].items(), key=lambda pair: pair[1])
    weak = ", ".join(f"{kind} {100 * right:.0f}" for kind, right in kinds if right < WEAK)
    text = (
        "Percent right of questions about development scenes, every kind alike, in brackets how many. "
        f"Below {WEAK:.0%} at the end, at 1,024 tokens: {weak}. Commands, commits and kinds: "
        f"[curve.json](../results/{CURVE.name})."
    )
    return "\n".join(lines) + f"\n\n{text}\n"


def before_aim() -> Aim:
    """The kinds of the small world that the base before answered better, with certainty."""
    own = json.loads(SCORES.read_text())["native"]["kinds"]
    lost = []
    for kind, right in BEFORE.items():
        low, _ = wilson(right, N_BEFORE)
        if own[kind]["interval"][1] < low:
            now = own[kind]["right"] / own[kind]["n"]
            lost.append(f"{kind} {100 * right / N_BEFORE:.0f} -> {100 * now:.0f}")
    n = sum(one["n"] for one in own.values())
    what = "kinds of the small world, home hand, 256 tokens, below the base before, intervals apart"
    return Aim(what, "none", ", ".join(lost) or "none", not lost, n)


def manners_block() -> str:
    """How often a question put in another manner is answered as the plain one."""
    plain = _answers("manner-plain")
    lines = [f"| the question | same answer | right, plain: {_right(plain):.1f} |", "|---|---|---|"]
    for name, words in MANNERS.items():
        own = _answers(f"manner-{name}")
        if own.keys() != plain.keys():
            raise ValueError(f"manner-{name} asks other questions than manner-plain")
        same = sum(own[key][0] == plain[key][0] for key in plain)
        low, high = wilson(same, len(plain))
        share = f"{100 * same / len(plain):.1f} [{100 * low:.1f}, {100 * high:.1f}]"
        lines.append(f"| {words} | {share} | {_right(own):.1f} |")
    summary = json.loads((RESULTS / "manner-plain" / "summary.json").read_text())
    text = f"Percent of {len(plain)} questions. Made with `{summary['commands'][0]}` and its like."
    return "\n".join(lines) + f"\n\n{text}\n"


def _answers(name: str) -> dict[tuple[str, int], tuple[str, bool]]:
    rows = store.read_rows(RESULTS / name).to_pylist()
    return {
        (r["picture"], r["index"]): (r["answer"], r["right"])
        for r in rows
        if r["method"] == "stock"
    }


def _right(answers: dict[tuple[str, int], tuple[str, bool]]) -> float:
    return 100 * sum(right for _, right in answers.values()) / len(answers)
