"""Page cost: where each look's time went, as a chart that can be replayed, and what it held.

Escaped HTML from a finished `ComparisonResult`; `SCRIPT` (race.js) plays it in the browser.
"""

import json
from functools import partial
from typing import Any

from arr_coc.page.frame import escaped, source
from arr_coc.page.results import (
    ENOUGH_RUNS,
    LOOKS,
    megabytes,
    ratio_words,
    seconds,
    shown_ratio,
    sure_words,
)
from arr_coc.service.looks import ComparisonResult, LookResult

SOURCE = source("race.js")
SCRIPT = f"{SOURCE}\narrRace(element);\n"
STAGES = {
    "preprocess": ("prepare", "preprocess: cut the picture into patches"),
    "glance": ("quick look", "glance: a low-resolution look through the whole model"),
    "relevance": ("decide", "relevance: maps, tensions and the choice of places"),
    "encode": ("look", "encode: the vision encoder"),
    "prefill": (
        "read",
        "prefill: the language model reads picture and question, to the first word",
    ),
}
HOW = (
    "Every look runs alone, one after the other, on the same weights in memory, after a warm-up. "
    "The clock starts when the picture is handed over and stops at the first token; every stage is "
    "counted, the choosing too, and on a GPU the device is waited for at each border. The KV cache "
    "is what the model keeps of picture and question while it writes, counted over all layers. "
    "“How sure” is the entropy of the first token's distribution: 0 nats is certain."
)


def cost(result: ComparisonResult | None, runs: int = 1) -> str:
    """The chart of stages with its replay, the table, and how it was measured.

    "" before a result, or where the full or the focused look failed or came from a server, which does
    not tell its stages; a failed shrunk one is left out. `runs`: how many the times are medians of;
    `ENOUGH_RUNS` make a verdict.
    """
    if result is None:
        return ""
    looks = {key: result[key] for key in LOOKS if _finished(result[key])}
    if not {"full", "focused"} <= set(looks) or not looks["full"]["stages_s"]:
        return ""
    longest = max(sum(_spent(look).values()) for look in looks.values())
    race = [_run(look) for look in looks.values()]
    rows = "".join(_row(key, look, longest) for key, look in looks.items())
    legend = "".join(
        f'<span title="{escaped(title)}"><i class="arr-s-{key}"></i>{name}</span>'
        for key, (name, title) in STAGES.items()
    )
    measured = "One run each" if runs < 2 else f"Medians of {runs} runs"
    lead = f"{measured}: {_firsts(looks)} to the first word. Times vary from run to run."
    if runs >= ENOUGH_RUNS:
        when = "in the median of the recorded runs"
        lead = f"The first word of the focused look came {_words(result)} {when}."
    whole = " arr-whole" * (result["tokens_kept"] >= result["tokens_total"])  # there are no more
    return (
        f'<section class="arr-cost{whole}"><h2 class="arr-h2">What it cost</h2>'
        f'<p class="arr-lead">{lead}</p>'
        f'<div class="arr-race" data-race="{escaped(json.dumps(race))}">{rows}'
        f'<p class="arr-stages-legend">{legend}<span><i class="arr-s-decode"></i>write</span></p>'
        '<p class="arr-race-foot"><button type="button" class="arr-button arr-race-play">Replay the '
        'race</button><span class="arr-race-speed" role="status"></span></p></div>'
        f'{_table(looks)}<details class="arr-how"><summary>How this is measured</summary>'
        f"<p>{HOW} Peak memory here: {escaped(result['focused']['peak_memory_kind'])}.</p></details>"
        "</section>"
    )


def _finished(look: LookResult | None) -> bool:
    return look is not None and look["done"] and not look["error"]


def _firsts(looks: dict[str, LookResult]) -> str:
    """Each look's time to the first word."""
    return ", ".join(
        f"{LOOKS[key].name.lower()} {seconds(look['time_to_first_token_s'])}"
        for key, look in looks.items()
    )


def _words(result: ComparisonResult) -> str:
    words = ratio_words(shown_ratio(result))
    if words == "about the same":
        return "about as soon as the full look's"
    return words if words == "not measured" else f"{words} than the full look's"


def _write_s(look: LookResult) -> float:
    """Seconds of writing after the first word."""
    rate = look["decode_tokens_per_second"]
    return max(0, look["new_tokens"] - 1) / rate if rate > 0 else 0.0


def _spent(look: LookResult) -> dict[str, float]:
    """Seconds by stage, writing after the first word included."""
    return {name: look["stages_s"].get(name, 0.0) for name in STAGES} | {"decode": _write_s(look)}


def _run(look: LookResult) -> dict[str, Any]:
    stages = [[STAGES[name][0], look["stages_s"].get(name, 0.0)] for name in STAGES]
    first = look["time_to_first_token_s"]
    return {"stages": stages, "first": first, "write": _write_s(look), "text": look["text"]}


def _name(stage: str) -> str:
    return STAGES[stage][0] if stage in STAGES else "write"


def _row(key: str, look: LookResult, longest: float) -> str:
    spent = {stage: value for stage, value in _spent(look).items() if value > 0}
    total = max(sum(spent.values()), 1e-9)
    lanes = "".join(
        f'<b class="arr-s-{stage}" style="width:{100 * value / total:.2f}%" '
        f'title="{_name(stage)}: {seconds(value)}"></b>'
        for stage, value in spent.items()
    )
    first = seconds(look["time_to_first_token_s"])
    stages = ", ".join(f"{_name(stage)} {seconds(value)}" for stage, value in spent.items())
    return (
        f'<div class="arr-race-row arr-look-{key}"><span>{LOOKS[key].name}</span>'
        f'<i><span class="arr-lane" style="width:{100 * total / longest:.1f}%" role="img" '
        f'aria-label="{LOOKS[key].name}: first word after {first}; {stages}">{lanes}</span></i>'
        f'<em>{first}</em><p class="arr-race-text">{escaped(look["text"])}</p></div>'
    )


def _table(looks: dict[str, LookResult]) -> str:
    used = [stage for stage in STAGES if any(_spent(look)[stage] > 0 for look in looks.values())]
    parts = {_name(stage): partial(_stage, stage) for stage in used}
    lines = {
        "Visual tokens": lambda look: f"{look['visual_tokens']:,}",
        "First word after": lambda look: seconds(look["time_to_first_token_s"]),
        **parts,
        "Writing after it": partial(_stage, "decode"),
        "Tokens per second after it": lambda look: _rate(look),
        "KV cache": lambda look: megabytes(look["kv_cache_bytes"]),
        "Peak memory": lambda look: megabytes(look["peak_memory_bytes"]),
        "How sure": lambda look: _sure(look["first_token_entropy"]),
    }
    head = "".join(f'<th scope="col">{LOOKS[key].name}</th>' for key in looks)
    part = ' class="arr-part"'
    rows = "".join(
        f'<tr{part * (name in parts)}><th scope="row">{name}</th>'
        + "".join(f"<td>{form(look)}</td>" for look in looks.values())
        + "</tr>"
        for name, form in lines.items()
    )
    return (
        '<div class="arr-scroll" tabindex="0" role="region" aria-label="Numbers of each look"><table '
        f'class="arr-table"><thead><tr><td></td>{head}</tr></thead><tbody>{rows}</tbody></table></div>'
    )


def _stage(stage: str, look: LookResult) -> str:
    spent = _spent(look)[stage]
    return seconds(spent) if spent > 0 else "–"


def _rate(look: LookResult) -> str:
    rate = look["decode_tokens_per_second"]
    return f"{rate:.0f}" if rate else "–"


def _sure(nats: float | None) -> str:
    return "–" if nats is None else f"{sure_words(nats)} ({nats:.2f} nats)"
