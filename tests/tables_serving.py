"""The tables of docs/serving.md: answers beside transformers', and requests a second."""

import json
from pathlib import Path

from tests.tables_shared import base_of

RESULTS = Path(__file__).parent.parent / "results"
PROOF, LOAD = RESULTS / "serving.json", RESULTS / "serving-load.json"
# By the look's name in the report.
WORDS = {
    "vLLM": "vLLM without the plugin",
    "stock": "with it, a request that does not name it",
    "focused 100 %": "focused, 100 %",
    "focused 20 %": "**focused, 20 %**",
    "focused 10 %": "**focused, 10 %**",
    "shrunk to 20 %": "picture shrunk to 20 %",
    "shrunk to 10 %": "picture shrunk to 10 %",
}


def proof_block() -> str:
    """Of how many questions vLLM gives transformers' words, look by look."""
    report = json.loads(PROOF.read_text())
    lines = [
        "| look | same words | largest distance of a log-probability | tokens of the prompt |",
        "|---|---|---|---|",
    ]
    for look, one in report["looks"].items():
        distance = f"{one['largest_distance_of_log_probabilities']:.1g}"
        lines.append(
            f"| {look} | {one['equal']} of {one['of']} | {distance} | {one['prompt_tokens']:.0f} |"
        )
    alike = report["stock_tokens_equal_without_the_plugin"]
    text = (
        f"Development questions, {base_of(report)}, float32, CPU; the first token's likeliest "
        f"log-probabilities are compared. Without the plugin vLLM's own answers have the same tokens for "
        f"{alike['equal']} of {alike['of']}. Made with `{report['command']}`."
    )
    return f"{text}\n\n" + "\n".join(lines) + "\n"


def load_block() -> str:
    """Requests a second and the first word at every concurrency; the ratio is to vLLM alone."""
    report = json.loads(LOAD.read_text())
    rows = {(row["look"], row["concurrency"]): row for row in report["rows"]}
    clients = sorted({concurrency for _, concurrency in rows})
    heads = " | ".join(f"{number} at once" for number in clients)
    lines = [f"| look | tokens | {heads} |", "|---" * (len(clients) + 2) + "|"]
    for look, words in WORDS.items():
        cells = [_cell(rows[look, number], rows["vLLM", number]) for number in clients]
        tokens = rows[look, clients[0]]["visual_tokens"]
        lines.append(f"| {words} | {tokens} | {' | '.join(cells)} |")
    machine = report["machine"]
    text = (
        "Requests a second, how many times those of vLLM without the plugin, and seconds to the first "
        f"word (median / 95th percentile), the queue included. On {base_of(report)}, one picture of "
        f"{rows['vLLM', clients[0]]['visual_tokens']} tokens a request, no picture twice, no cache, "
        f"{machine['cores']} cores of an {machine['processor']} server CPU. Made with "
        f"`{report['command']}` ([all of it](../results/{LOAD.name}))."
    )
    return f"{text}\n\n" + "\n".join(lines) + "\n"


def _cell(row: dict, alone: dict) -> str:
    ratio = row["requests_per_second"] / alone["requests_per_second"]
    first = f"{row['first_word_p50_s']:.2f} / {row['first_word_p95_s']:.2f} s"
    return f"{row['requests_per_second']:.1f}, {ratio:.1f}x; {first}"
