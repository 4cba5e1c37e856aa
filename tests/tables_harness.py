"""The table of docs/benchmarks.md: lmms-eval beside evaluate, question by question."""

import json
from pathlib import Path

from tests.tables_shared import base_of

PROOF = Path(__file__).parent.parent / "results" / "harness.json"
# What lmms-eval was told, by the look's name in the report.
WORDS = {"stock": "`look=stock`", "focused": "`share=0.2`", "shrunk": "`look=shrunk,share=0.2`"}


def harness_block() -> str:
    """Right answers of both, and on how many questions they agree, look by look."""
    report = json.loads(PROOF.read_text())
    lines = [
        "| `--model_args` | questions | right, lmms-eval | right, `evaluate` | `exact_match` "
        "| alike in being right | same words | first word |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for look, words in WORDS.items():
        one = report["looks"][look]
        scores = [one["right_there"], one["right_here"], one["exact_match_there"]]
        lines.append(
            f"| {words} | {one['n']} | {' | '.join(f'{score:.1%}' for score in scores)} | "
            f"{one['correct_alike']} | {one['same_words']} | "
            f"{one['throughput']['avg_first_word_s']:.2f} s |"
        )
    text = (
        f"lmms-eval {report['lmms_eval']}, {base_of(report)}, CPU beside other work. Made with "
        f"`{report['command']}` ([all of it](../results/{PROOF.name}))."
    )
    return f"{text}\n\n" + "\n".join(lines) + "\n"
