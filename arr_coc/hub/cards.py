"""What the cards of `arr_coc.hub` say of measured results, and the results' own card.

No number is written here by hand: without results a card says that nothing was measured. The card of
weights is in `model_card`, that of a data set with pictures in `questions`.
"""

import json
from pathlib import Path
from typing import Any

from huggingface_hub import DatasetCardData

from arr_coc import digests, naming

OURS = "arr-coc"  # ARR-COC's name in a summary
FREE = "training-free"
ROWS, SUMMARY = "rows.parquet", "summary.json"
NAMED = ("what", "command", "commit", "date", "machine")  # keys without which it cannot be repeated
CAPTION = (
    "Accuracy is the mean over kinds of question; 95 % bootstrap intervals in brackets; the difference "
    "to stock is paired, question by question."
)


def read_summary(folder: Path) -> dict[str, Any]:
    """The `summary.json` of an evaluation, without folders of this machine.

    Raises:
        ValueError: where there is none, or it does not say how it was made.
    """
    path = Path(folder) / SUMMARY
    if not path.is_file():
        raise ValueError(f"{path} does not exist, expected what `python -m arr_coc.evaluate` wrote")
    summary = naming.cleaned(json.loads(path.read_text(encoding="utf-8")))
    if missing := [key for key in (*NAMED, "identity", "methods") if not summary.get(key)]:
        raise ValueError(f"{path} has no {', '.join(missing)}: it cannot be measured again")
    return summary


def measured_weights(summary: dict[str, Any], folder: Path, repo_id: str) -> str:
    """What a result was measured with: the weights' name, or "training-free".

    Raises:
        ValueError: where it was measured with other weights than those in `folder`.
    """
    used = summary["identity"].get("weights") or ""
    if not used:
        return FREE
    folder, digest = Path(folder), summary["identity"].get("weights_sha256")
    held = digests.of_weights(folder)
    if digest and held.startswith(digest):
        return repo_id
    named = Path(used).resolve() == folder.resolve() or naming.public(folder.resolve()) == used
    if used != repo_id and not named:
        raise ValueError(
            f"{summary['what']} was measured with weights {used!r}, not {str(folder)!r}"
        )
    if digest and held:
        raise ValueError(
            f"{summary['what']} was measured with other weights than {folder} now holds "
            f"(sha256 {digest}...)"
        )
    return repo_id


def measured(summary: dict[str, Any], used: str) -> str:
    """A result's section of a model card; `used` names the weights."""
    lines = [f"### {summary['what']}, {used}", "", method_table(summary), "", CAPTION, ""]
    return "\n".join([*lines, made_by(summary), ""])


def method_table(summary: dict[str, Any]) -> str:
    """Markdown: a row per scale of detail, method and budget."""
    several = len({e.get("detail") for e in summary["methods"]}) > 1
    lines = [
        "| method | budget | tokens | n | accuracy | against stock |",
        "|---|---|---|---|---|---|",
    ]
    for e in summary["methods"]:
        name = e["method"] + (f", detail {e['detail']:g}" if several else "")
        n = (e["overall"] or {}).get("n", 0)
        against = share((e.get("against_stock") or {}).get("overall"), signed=True)
        lines.append(
            f"| {name} | {e['budget']:.0%} | {e['tokens']:g} | {n} | {share(e['overall'])} | {against} |"
        )
    return "\n".join(lines)


def share(estimate: dict[str, Any] | None, *, signed: bool = False) -> str:
    """A value in [0, 1], or a difference, with its interval; empty where there is none."""
    if not estimate:
        return ""
    sign = "+" if signed else ""
    low, high = estimate["interval"]
    return f"{estimate['value']:{sign}.3f} [{low:{sign}.3f}, {high:{sign}.3f}]"


def made_by(report: dict[str, Any]) -> str:
    """How to make a report's numbers again, and on what they were made."""
    machine = report["machine"]
    parts = [machine.get(key) for key in ("processor", "gpu", "device")]
    where = ", ".join(dict.fromkeys(str(part) for part in parts if part))
    return f"`{report['command'].strip()}` at {report['commit']}, {report['date']}, on {where}."


def limits(measured: list[tuple[dict[str, Any], str]], repo_id: str) -> str:
    """What the results say against the weights, and what they do not say."""
    lines = ["## Limits", ""]
    if not measured:
        lines.append(
            "- Nothing was measured when this was published: whether it helps is not known."
        )
    ours = [summary for summary, used in measured if used == repo_id]
    for summary in ours:
        lines.append(f"- Measured on {summary['what']} and on nothing else.")
        lines += [f"- {line}" for line in worse_kinds(summary)]
        uncounted = [k["kind"] for k in summary.get("kinds", []) if not k["counts"]]
        if uncounted:
            lines.append(
                "- Not in the overall accuracy, the stock model being too weak there: "
                f"{', '.join(uncounted)}."
            )
    if ours and len(ours) == len(measured):
        lines.append("- Not compared here with the same method without trained weights.")
    lines.append(
        "- For this base only: every other one refuses them, one of the same size too. Safetensors only."
    )
    return "\n".join(lines) + "\n"


def worse_kinds(summary: dict[str, Any]) -> list[str]:
    """Per budget of ARR-COC, the kinds on which it answers measurably less than the full look."""
    lines = []
    for entry in summary["methods"]:
        if entry["method"] != OURS or "against_stock" not in entry:
            continue
        kinds = entry["against_stock"]["kinds"]
        worse = [
            f"{kind} {share(one, signed=True)}"
            for kind, one in kinds.items()
            if one["interval"][1] < 0
        ]
        if worse:
            lines.append(
                f"At {entry['budget']:.0%} of the tokens less right than the full look: {', '.join(worse)}."
            )
    return lines


def dataset_card(runs: dict[str, dict[str, Any]], reports: dict[str, dict[str, Any]]) -> str:
    """Markdown with metadata for the results: one config per evaluation's rows.

    Args:
        runs: the summary of each folder that holds `rows.parquet`.
        reports: the JSON reports beside the folders (benchmarks), by file name.
    """
    configs = [
        {
            "config_name": name.replace("/", "-"),
            "data_files": [{"split": "test", "path": f"{name}/{ROWS}"}],
        }
        for name in runs
    ]
    if configs:
        configs[0]["default"] = True
    data = DatasetCardData(
        license="apache-2.0",
        pretty_name="ARR-COC-VIS results",
        task_categories=["visual-question-answering"],
        **({"configs": configs} if configs else {}),
    )
    lines = ["# ARR-COC-VIS results", "", _DATASET]
    for name, summary in runs.items():
        lines += [f"## {name}", "", f"{summary['what']}, weights: {_weights(summary)}.", ""]
        lines += [method_table(summary), "", CAPTION, "", made_by(summary), ""]
    if reports:
        lines += ["## Reports without rows", ""]
        lines += [
            f"- `{name}`: {report['what']}. {made_by(report)}" for name, report in reports.items()
        ]
    return f"---\n{data.to_yaml().strip()}\n---\n" + "\n".join(lines).strip() + "\n"


def _weights(summary: dict[str, Any]) -> str:
    """What a result was measured with, without folders of this machine."""
    used = summary["identity"].get("weights") or FREE
    return used if naming.is_hub_id(used) else Path(used).name


_DATASET = """\
What `python -m arr_coc.evaluate` and `python -m arr_coc.benchmark` wrote. Of each evaluation:
`rows.parquet` (one row per question, method and budget: the answer, whether it is right, the tokens
spent, where was looked), `summary.json` and figures.
"""
