"""The tables of docs/evaluation.md on other sizes and hands, the control, the first word, and the aims."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from arr_coc.evaluate import store
from arr_coc.evaluate.summary import summarise
from tests.tables_base import before_aim
from tests.tables_shared import (
    BUDGET,
    Aim,
    aim_of,
    aims_table,
    at_a_fifth,
    before,
    made_by,
    percent,
)

RESULTS = Path(__file__).parent.parent / "results"
CONTROL = RESULTS / "control" / "control.jsonl"
FIRST_WORD, FIRST_WORD_512 = RESULTS / "first-word.json", RESULTS / "first-word-512.json"
METHODS = ("stock", "downsample", "divprune", "arr-coc")
ASKED = {
    "scenes": "1,024 tokens",
    "scenes-fresh": "1,024 tokens, other seeds, asked once",
    "scenes-512": "256 tokens",
    "hand-512": "256 tokens, held-out hand",
    "hand-512-instruction": "256 tokens, held-out hand, usual instruction",
    "hand-1024": "1,024 tokens, held-out hand",
    "hand-1024-instruction": "1,024 tokens, held-out hand, usual instruction",
}
BY_HAND = [name for name in ASKED if name.startswith("hand")]  # the one held out
COMPARED = ("scenes", "scenes-512")  # with it
# Aims in stock's right answers, over all kinds of a folder or of one kind.
OVERALL = {"scenes": 0.9, "scenes-512": 0.88} | dict.fromkeys(BY_HAND, 0.75)
KINDS_512 = {"count": 0.85, "form": 0.85, "word": 0.85, "cheapest": 0.7, "chart_highest": 0.7}
KEPT_OF_A_HAND = 0.97  # of stock's right answers, at a fifth of the tokens
SHRUNK_LOSES, PLACE, EASY = 0.25, 0.92, 0.99


def worlds_block() -> str:
    """What the methods answer at each size and hand, at a fifth of the tokens."""
    lines = [f"| | kinds | n | {' | '.join(METHODS)} | share of stock kept |", "|---" * 8 + "|"]
    made = []
    of_a_hand = [kind["kind"] for kind in _summary("hand-512")["kinds"]]
    for name, words in ASKED.items():
        summary = _summary(name)
        lines.append(_world_row(words, summary))
        if name in COMPARED:  # what the held-out hand is asked, by all hands
            lines.append(_world_row(words, _of_kinds(name, of_a_hand)))
        made.append(f"[{name}](../results/{name}/summary.json)")
    text = (
        "In percent, all kinds alike, with 95 % bootstrap intervals over pictures where rows are kept. The "
        f"held-out hand is asked {', '.join(of_a_hand)}: compare it with the row of those five. "
        "Other seeds are those that no weights had been asked about: nothing was chosen after their "
        f"answers were seen. The commands are in {', '.join(made)}."
    )
    return "\n".join(lines) + f"\n\n{text}\n"


def _world_row(words: str, summary: dict[str, Any]) -> str:
    found = at_a_fifth(summary)
    cells = [percent(found[m]["overall"]) if m in found else "" for m in METHODS]
    kept = percent(found["arr-coc"]["against_stock"]["kept"])
    n = sum(kind["n"] for kind in summary["kinds"])
    return f"| {words} | {len(summary['kinds'])} | {n:,} | {' | '.join(cells)} | {kept} |"


def _of_kinds(name: str, kinds: list[str]) -> dict[str, Any]:
    """The summary of some kinds of a folder's rows; where none are kept, their means alone."""
    table = store.read_rows(RESULTS / name)
    if not table.num_rows:
        return _means_of_kinds(_summary(name), kinds)
    some = table.filter(pc.is_in(table["kind"], pa.array(kinds)))
    return summarise(some.filter(pc.is_in(some["budget"], pa.array([BUDGET, 1.0]))), 0.0)


def _means_of_kinds(summary: dict[str, Any], kinds: list[str]) -> dict[str, Any]:
    found = at_a_fifth(summary)
    right = {
        name: sum(entry["kinds"][kind]["value"] for kind in kinds) / len(kinds)
        for name, entry in found.items()
    }
    methods = [
        entry
        | {"overall": {"value": right[name]}}
        | {"against_stock": {"kept": {"value": right[name] / right["stock"]}}}
        for name, entry in found.items()
    ]
    return {"methods": methods, "kinds": [k for k in summary["kinds"] if k["kind"] in kinds]}


def lost_block() -> str:
    """What stock, ARR-COC and the next best answer of each kind, what is lost most first."""
    summary = _summary("scenes")
    found = at_a_fifth(summary)
    lost = found["arr-coc"]["against_stock"]["kinds"]
    lines = ["| kind | stock | arr-coc | minus stock | divprune |", "|---|---|---|---|---|"]
    for kind, minus in sorted(lost.items(), key=lambda pair: pair[1]["value"]):
        stock, ours, other = (
            percent(found[m]["kinds"][kind]) for m in ("stock", "arr-coc", "divprune")
        )
        lines.append(f"| {kind} | {stock} | {ours} | {percent(minus, '+')} | {other} |")
    each = sorted({minus["n"] for minus in lost.values()})
    text = (
        f"In percent, {' to '.join(map(str, each))} questions of a kind at {BUDGET:.0%} of the tokens, "
        "with 95 % bootstrap intervals over pictures ([the command](../results/scenes/summary.json))."
    )
    return "\n".join(lines) + f"\n\n{text}\n"


def world_aims_block() -> str:
    """What base and focused look should reach on large scenes, and what they reach."""
    return "\n".join(aims_table(_aims())) + "\n"


def _aims() -> list[Aim]:
    rows = []
    for name, bar in OVERALL.items():
        stock = at_a_fifth(_summary(name))["stock"]["overall"]
        rows.append(aim_of(f"stock, {ASKED[name]}", stock, bar))
    kinds = _summary("scenes-512")["kinds"]
    of_kind = {kind["kind"]: kind["stock"] | {"n": kind["n"]} for kind in kinds}
    for kind, bar in KINDS_512.items():
        rows.append(aim_of(f"stock, 256 tokens, {kind}", of_kind[kind], bar))
    rows.append(
        aim_of("stock, easy-VQA", at_a_fifth(_summary("easy-vqa"))["stock"]["overall"], EASY)
    )
    for name in BY_HAND:
        ours = at_a_fifth(_summary(name))["arr-coc"]
        kept = ours["against_stock"]["kept"] | {"n": ours["overall"]["n"]}
        rows.append(aim_of(f"share of stock kept, {ASKED[name]}", kept, KEPT_OF_A_HAND))
    large = at_a_fifth(_summary("scenes"))
    lost = -large["downsample"]["against_stock"]["overall"]["value"]
    rows += [
        Aim("points that shrinking loses, 1,024 tokens", f"{100 * SHRUNK_LOSES:g} or more",
            f"{100 * lost:.1f}", lost >= SHRUNK_LOSES, large["downsample"]["overall"]["n"]),
        aim_of("share of the answer's place kept, 1,024 tokens", large["arr-coc"]["coverage"], PLACE),
    ]  # fmt: skip
    return [*rows, before_aim()]


def first_word_block() -> str:
    """How long both looks take to the first word on the bundled model, at each size that was timed."""
    said = [
        _first_word(json.loads(file.read_text()), file.name)
        for file in (FIRST_WORD, FIRST_WORD_512)
        if file.is_file()
    ]
    return "\n\n".join(said) + "\n"


def _first_word(report: dict[str, Any], name: str) -> str:
    found, machine = report["summary"], report["machine"]
    stock, ours, ratio = (found[key] for key in ("stock_s", "focused_s", "ratio"))
    tokens = report["size"][0] * report["size"][1] // 1024
    dtypes = found.get("dtypes", dict.fromkeys(("stock", "arr-coc"), report.get("dtype")))
    within = "".join(
        f", {own['median']:.2f} where both are in {dtype}"
        for dtype, own in found.get("by_dtype", {}).items()
    )
    slow = " Stock was slower than it has been: to be made again." * report.get(
        "to_be_made_again", False
    )
    return (
        f"On the bundled model, {found['pictures']} pictures of {tokens:,} tokens with a question of any "
        f"kind, right or wrong, on {machine['threads']} threads of an {machine['processor']}: "
        f"{stock['median']:.2f} s in full ({dtypes['stock']}), {ours['median']:.2f} s focused "
        f"({dtypes['arr-coc']}), **{ratio['median']:.2f} times sooner** (quartiles {ratio['lower']:.2f} to "
        f"{ratio['upper']:.2f} of {found['repetitions']} interleaved repetitions, everything counted"
        f"{within}).{slow}{before(report)} "
        f"Made with `{report['command']}` ([every second](../results/{name}))."
    )


def control_block() -> str:
    """How many right answers remain when the places that hold the evidence are black."""
    summary = _summary("control")
    control = summary["control"]
    lines = ["| the picture | right |", "|---|---|"]
    for look, words in (
        ("whole", "whole"),
        ("boxes_black", "the answer's places black"),
        ("boxes_alone", "nothing but the answer's places"),
    ):
        lines.append(f"| {words} | {percent(control[look])} |")
    guessed = control["guessed"]
    every, kinds = guessed["all"], {k: v for k, v in guessed.items() if k != "all" and v["n"]}
    most = sorted(kinds.items(), key=lambda pair: -pair[1]["remain"] / pair[1]["n"])[:5]
    often = ", ".join(f"{kind} {one['remain']} of {one['n']}" for kind, one in most)
    low, high = every["interval"]
    asked = Counter(json.loads(line)["kind"] for line in CONTROL.read_text().splitlines())
    text = (
        f"Of {every['n']:,} right answers {every['remain']:,} remain without their evidence: "
        f"{100 * every['remain'] / every['n']:.1f} % [{100 * low:.1f}, {100 * high:.1f}] (Wilson's "
        f"interval, over questions) may be guessed, most often {often}. The places alone are not enough "
        "either: they lack what an answer is compared with. Asked were the "
        f"{sum(asked.values()):,} questions whose evidence is a place, {min(asked.values())} to "
        f"{max(asked.values())} of a kind. {made_by(summary)}"
    )
    return "\n".join(lines) + f"\n\n{text}\n"


def _summary(name: str) -> dict[str, Any]:
    return json.loads((RESULTS / name / "summary.json").read_text())
