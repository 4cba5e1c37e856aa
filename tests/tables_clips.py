"""The table of docs/clips.md: the time to first token of clips at the 2B shapes."""

import json
from pathlib import Path

REPORT = Path(__file__).parent.parent / "results" / "benchmark-clips-2b-cpu.json"
LOOKS = {
    "stock": "full look (stock)",
    "before + separate glance": "focused, halo and surroundings as context (the default)",
    "glance as context": '**focused, `Config(context="glance")`**',
    "fewer-frames": "fewer frames",
}
STAGES = ("encode_s", "prefill_s", "overhead_s", "time_to_first_token_s")


def clips_block() -> str:
    """Every look's stages, and how many times sooner than stock its first token comes."""
    report = json.loads(REPORT.read_text())
    machine, moments = report["machine"], _typed(report["command"], "--moments")
    lines = [
        "| look | tokens | encode | prefill | everything else | to first token "
        "| sooner than stock, lower quartile |",
        "|---|---|---|---|---|---|---|",
    ]
    for one in report["summary"]:
        seconds = [f"{one[stage]['median']:.2f} s" for stage in STAGES]
        tokens = one["visual_tokens"]["median"]
        ratio = "1" if one["case"] == "stock" else f"{one['speedup']['lower_quartile']:.1f}x"
        lines.append(f"| {LOOKS[one['case']]} | {tokens} | {' | '.join(seconds)} | {ratio} |")
    text = (
        f"Qwen3-VL-2B shapes, random weights, {report['what'].split(', ')[-1]}, a clip of {moments} "
        f"moments of {_typed(report['command'], '--image-tokens')} visual tokens, {machine['cores']} "
        f"cores of an {machine['processor']} server CPU, {report['summary'][0]['n']} interleaved "
        f"repetitions. Everything is counted. Made with `{report['command']}` "
        f"([all stages](../results/{REPORT.name}))."
    )
    return f"{text}\n\n" + "\n".join(lines) + "\n"


def _typed(command: str, flag: str) -> str:
    """What was typed after a flag."""
    words = command.split()
    return words[words.index(flag) + 1]
