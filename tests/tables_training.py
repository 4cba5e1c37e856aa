"""The tables of docs/data.md and docs/idea.md: memory of a step, what labels and tensions are worth."""

import json
from pathlib import Path

from tests.tables_shared import AUTO_LOSS, AUTO_TOKENS, WEIGHTS, base_of, marked, percent

RESULTS = Path(__file__).parent.parent / "results"
MEMORY, LABELS = RESULTS / "training-memory.json", RESULTS / "labels.json"
TENSIONS = RESULTS / "tensions.json"
UNSURE = WEIGHTS / "unsure.json"
# What the tensions should do, as `arr_coc.tensions` calls it, in words.
BARS = {
    "compress, whole less fine": "compress, asked for the whole less asked to read: at least",
    "exploit, whole": "exploit, asked for the whole: at most",
    "focus, where": "focus, asked to find something: at least",
}
# Variants of ARR-COC, and what they go without.
WITHOUT = {
    "arr-coc-neutral": "all tensions held neutral",
    "arr-coc-no-policy": "tensions by the list of words instead of the trained network",
    "arr-coc-no-entropy": "without the map of detail",
    "arr-coc-no-edges": "without the map of what stands out",
    "arr-coc-no-glance": "without the glance: the scan alone reads the question",
}


def memory_block() -> str:
    """Gigabytes of a step by visual tokens, batch, chunk and recomputing, and the cards that hold it."""
    report = json.loads(MEMORY.read_text())
    lines = [
        "| visual tokens | pictures | `--chunk` | `--recompute` | beside the weights, GB | in all, GB "
        "| fits, GB |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in report["rows"]:
        again = "yes" if row["recompute"] else "no"
        cards = ", ".join(map(str, row["fits_gb"])) or "none of them"
        lines.append(
            f"| {row['tokens']} | {row['batch']} | {row['chunk']} | {again} | "
            f"{row['activations_gb']:.1f} | {row['total_gb']:.1f} | {cards} |"
        )
    text = (
        f"Of cards of 16, 24 and 80 GB, with {report['spare_gb']:g} GB to spare; weights in bfloat16 are "
        f"{report['weights_gb']:.1f} GB. Not measured on a GPU yet: {report['how']}. Made with "
        f"`{report['command']}` ([all of it](../results/{MEMORY.name}))."
    )
    return f"{text}\n\n" + "\n".join(lines) + "\n"


def labels_block() -> str:
    """AUC of each label against boxes, and the difference."""
    report = json.loads(LABELS.read_text())
    names = {"attention": "attention", "crops": "crops", "gained": "crops minus attention"}
    lines = ["| label | AUC, cells in the boxes against others |", "|---|---|"]
    for key, name in names.items():
        found = report["auc"][key]
        low, high = found["interval"]
        lines.append(f"| {name} | {found['value']:.3f} [{low:.3f}, {high:.3f}] |")
    text = (
        f"On {report['n']} questions about development scenes, of which {report['from_crops']} got a "
        f"label from crops and the others kept attention; {base_of(report)}. Made "
        f"with `{report['command']}` ([all of it](../results/{LABELS.name}))."
    )
    return f"{text}\n\n" + "\n".join(lines) + "\n"


def evidence_block() -> str:
    """How much of the evidence the scan's best places hold, after each run that was measured."""
    runs = json.loads((WEIGHTS / "training.json").read_text())["runs"]
    measured = [run for run in runs if "evidence_kept" in run]
    scenes = [f"{run['samples']:,} scenes" for run in measured]
    heads = [scenes[0], *(f"then {n}" for n in scenes[1:])]
    heads[1] += ", two hops"
    heads[3] += ", a likeness alone"
    lines = [f"| tokens | {' | '.join(heads)} |", "|---" * (len(heads) + 1) + "|"]
    for share in ("0.05", "0.1", "0.2"):
        cells = [_of_evidence(run["evidence_kept"][share]) for run in measured]
        lines.append(f"| {float(share):.0%} | {' | '.join(cells)} |")
    about = measured[-1]["evidence_kept"]["questions"]
    text = (
        f"In percent, by the scan alone, on development scenes of {' x '.join(map(str, about['size']))} "
        f"pixels by any hand, {about['n_per_kind']} questions a kind, with 95 % bootstrap intervals. The "
        "first was for the base before. Commands and kinds are in "
        "[training.json](../arr_coc/bundled/arr-coc/training.json); the last was measured with "
        f"`{measured[-1].get('evidence_command', measured[-1]['command'])}`."
    )
    return "\n".join(lines) + f"\n\n{text}\n"


def _of_evidence(found: dict) -> str:
    return percent({"value": found["mean"], "interval": found["interval"]})


def tensions_block() -> str:
    """Whether tensions follow unseen sentences; what is lost with others, or without one of the maps."""
    report = json.loads(TENSIONS.read_text())
    lines = ["| asked for | sentences of known words | with a new word |", "|---|---|---|"]
    known, new = (report[words]["learned"]["bars"] for words in ("known words", "new words"))
    for key, words in BARS.items():
        cells = [
            f"{_within(one)}{', not met' * (not one['met'])}" for one in (known[key], new[key])
        ]
        lines.append(f"| {words} {known[key]['bar']:g} | {' | '.join(cells)} |")
    lines += ["", "| | points of accuracy lost |", "|---|---|"]
    for one in report["imposed"]:
        words = f"another kind's tensions imposed, at {one['budget']:.0%} of the tokens"
        lines.append(f"| {words} (n = {one['n']:,}) | {_within(one['cost'], 100)} |")
        asked = one["n"] - one["groups"]["whole"]["n"]
        for key, of in (
            ("cost_of_whole", "those of the whole scene imposed on all other questions"),
            ("cost_among_others", "those of reading, finding and counting on each other"),
        ):
            lines.append(f"| of this, {of} (n = {asked:,}) | {_within(one[key], 100)} |")
    parts = json.loads((RESULTS / "parts" / "summary.json").read_text())
    n = sum(kind["n"] for kind in parts["kinds"] if kind["counts"])
    for pair in parts["pairs"]:
        if pair["against"] in WITHOUT:
            words = f"{WITHOUT[pair['against']]}, at {pair['budget']:.0%} of the tokens"
            lines.append(f"| {words} (n = {n:,}) | {_within(pair['overall'], 100)} |")
    text = (
        f"Development scenes, {base_of(report)}, 95 % bootstrap intervals, from "
        f"[{TENSIONS.name}](../results/{TENSIONS.name}) and [parts](../results/parts/summary.json). Where "
        "an interval holds 0 nothing was found."
    )
    return "\n".join(lines) + f"\n\n{text}\n"


def unsure_block() -> str:
    """What share "auto" spends and loses under each bound of the first word's entropy."""
    report = json.loads(UNSURE.read_text())
    lines = [
        "| bound, nats | tokens, mean | 95th percentile | minus the usual share |",
        "|---" * 4 + "|",
    ]
    for bound, own in report["bounds"].items():
        spent = own["share"]["all"]
        name = f"**{bound}**" if float(bound) == report["unsure"] else bound
        lost = percent(own["minus_usual"], "+")
        lines.append(f"| {name} | {spent['mean']:.1%} | {spent['p95']:.1%} | {lost} |")
    n = next(iter(report["bounds"].values()))["n"]
    held = report["bounds"][f"{report['unsure']:g}"]
    few, lost = held["share"]["all"]["mean"], held["minus_usual"]["value"]
    met = marked(few <= AUTO_TOKENS and lost >= -AUTO_LOSS)
    text = (
        f"On {n:,} questions about development scenes of {' x '.join(map(str, report['size']))} pixels; in "
        f"bold what the weights hold. Aim: at most {AUTO_TOKENS:.0%} of the tokens on average, within "
        f"{100 * AUTO_LOSS:g} points: {met} on these questions, which chose the bound. "
        f"Made with `{report['command']}`."
    )
    return "\n".join(lines) + f"\n\n{text}\n"


def _within(measure: dict, times: float = 1) -> str:
    """A measure with its interval; a half is rounded up."""
    digits = 1 if times > 1 else 2
    value, low, high = (
        f"{times * x + 1e-9:.{digits}f}" for x in (measure["value"], *measure["interval"])
    )
    return f"{value} [{low}, {high}]"
