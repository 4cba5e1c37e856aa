"""The tables of docs/data.md: what a training step takes in memory, and what labels are worth."""

import json
from pathlib import Path

RESULTS = Path(__file__).parent.parent / "results"
MEMORY, LABELS = RESULTS / "training-memory.json", RESULTS / "labels.json"


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
        f"label from crops and the others kept attention; bundled base. Made with `{report['command']}` "
        f"([all of it](../results/{LABELS.name}))."
    )
    return f"{text}\n\n" + "\n".join(lines) + "\n"
