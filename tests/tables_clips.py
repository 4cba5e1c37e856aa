"""The tables of docs/clips.md: time to first token at the 2B shapes; answers on clips, and on pictures."""

import json
from pathlib import Path

from arr_coc.peers import names
from arr_coc.peers.views_methods import VIEWS_METHODS
from tests.tables_shared import (
    WEIGHTS,
    Aim,
    aim_of,
    aims_table,
    made_by,
    marked,
    percent,
    times_sooner,
)

RESULTS = Path(__file__).parent.parent / "results"
REPORT = RESULTS / "benchmark-clips-2b-cpu.json"
LOOKS = {
    "stock": "full look (stock)",
    "before + separate glance": "focused, halo and surroundings as context (without weights)",
    "glance as context": "**focused, the glance as context (as shipped)**",
    "fewer-frames": "fewer frames",
}
STAGES = ("encode_s", "prefill_s", "overhead_s", "time_to_first_token_s")


def clips_block() -> str:
    """Every look's stages, and how many times sooner than stock its first token comes."""
    report = json.loads(REPORT.read_text())
    machine, moments = report["machine"], _typed(report["command"], "--moments")
    lines = [
        "| look | tokens | encode | prefill | everything else | to first token "
        "| sooner than stock, lower quartile (range) |",
        "|---|---|---|---|---|---|---|",
    ]
    for one in report["summary"]:
        seconds = [f"{one[stage]['median']:.2f} s" for stage in STAGES]
        tokens = round(one["visual_tokens"]["median"])
        ratio = "" if one["case"] == names.STOCK else times_sooner(one["speedup"], "lower_quartile")
        lines.append(f"| {LOOKS[one['case']]} | {tokens} | {' | '.join(seconds)} | {ratio} |")
    text = (
        f"Qwen3-VL-2B shapes, random weights, {report['what'].split(', ')[-1]}, a clip of {moments} "
        f"moments of {_typed(report['command'], '--image-tokens')} visual tokens, {machine['cores']} "
        f"cores of an {machine['processor']} server CPU, {report['summary'][0]['n']} interleaved "
        f"repetitions. Everything is counted. Made with `{report['command']}` "
        f"([all stages](../results/{REPORT.name}))."
    )
    ours = next(e for e in report["summary"] if e["case"] == report["shipped"])
    found = f"{ours['speedup']['lower_quartile']:.2f}x (median {ours['speedup']['median']:.2f})"
    met = marked(ours["speedup"]["lower_quartile"] >= SOONER)
    lines += ["", f"Aim: {SOONER:g}x by the lower quartile. Found: {found}, {met}."]
    return f"{text}\n\n" + "\n".join(lines) + "\n"


def _typed(command: str, flag: str) -> str:
    """What was typed after a flag."""
    words = command.split()
    return words[words.index(flag) + 1]


# --- the numbers that clips have of their own ---

PACE = WEIGHTS / "pace.json"
PACES = {
    "none": "none of them",
    "light": "less than the specification's",
    "start": "the specification's, where training began",
    "learned": "learned",
    "start and motion": "the specification's, with the part for motion",
    "learned and motion": "learned, with the part for motion",
}


def pace_block() -> str:
    """What decay, boost and lean became, what each kept of the evidence, and how often it was right."""
    report = json.loads(PACE.read_text())
    lines = ["| | decay | boost | lean, nats | evidence kept, % | right, % |", "|---" * 6 + "|"]
    for name, words in PACES.items():
        if name not in report["numbers"]:
            continue
        row = report["numbers"][name]
        numbers = " | ".join(f"{row[key]:.2f}" for key in ("decay", "boost", "lean"))
        kept = percent({"value": row["kept"] / row["n"], "interval": row["interval"]})
        right = {"value": row["right"] / row["asked"], "interval": row["right_interval"]}
        shown = f"**{words}**" if name == report["published"] else words
        lines.append(f"| {shown} | {numbers} | {kept} | {percent(right)} |")
    told = report["numbers"]["learned"]
    text = (
        f"Learned from {report['questions_learned_from']:,} questions about drawn clips; what is kept was "
        f"compared on {told['n']:,} others, answers on {told['asked']:,}: development clips of 8 moments "
        "at a fifth of the tokens. In bold what was chosen: the specification's, unless others answer "
        f"more than its interval allows. Made with `{report['command']}`."
    )
    return "\n".join(lines) + f"\n\n{text}\n"


DECAY, BOOST = WEIGHTS / "decay.json", WEIGHTS / "boost.json"


def decay_block() -> str:
    """What is answered and kept under each decay, and how alike neighbouring moments are decided."""
    return _swept(DECAY, "longest")


def boost_block() -> str:
    """As `decay_block`, of each boost."""
    return _swept(BOOST, "least")


def _swept(path: Path, which: str) -> str:
    report, number = json.loads(path.read_text()), path.stem
    head = "right, % | minus that of the weights before | evidence kept, % of its area | cosine |"
    lines = [f"| {number} | {head}", "|---" * 5 + "|"]
    for name, own in report[f"{number}s"].items():
        shown = f"**{name}**" if float(name) == report[number] else name
        minus = "" if float(name) == report["own"] else percent(own["minus_own"], "+")
        kept, alike = f"{own['covered_area']:.1%}".rstrip("%"), f"{own['cosine']:.2f}"
        lines.append(f"| {shown} | {percent(own['right'])} | {minus} | {kept} | {alike} |")
    n = next(iter(report[f"{number}s"].values()))["n"]
    text = (
        f"{n:,} questions about development clips of {report['groups']} moments, drawn by all hands for "
        f"training, at a fifth of the tokens. In bold what the weights bring: the {which} that answers at "
        f"most half a point less than the best. Made with `{report['command']}`."
    )
    return "\n".join(lines) + f"\n\n{text}\n"


# --- answers ---

KEPT, STOCK, PLACE = 0.97, 0.85, 0.9  # of stock, of all questions, of the answers' places
ON_IT = 0.7  # of the tokens, those in the picture that holds the answer
ASKED = 300  # of each kind
SOONER = 5  # times, than stock, the first word of a clip
ALIKE, APART = 0.8, 0.5  # cosine of neighbouring moments: of one scene, and where another begins
SHOWN = {
    "pan": "the view moves",
    "moves": "a thing moves",
    "still": "nothing moves",
    "cut": "before and after a cut",
}


def answers_block(world: str) -> str:
    """What each method answers at a fifth of the tokens, the aims, and of clips how steady decisions are.

    `world` is "clips" or "pictures".
    """
    summary, by_name, leads = _measured(world)
    lines = [*_methods(by_name, leads), "", *_aims(by_name, leads, world)]
    if world == "clips":
        lines += ["", *_by_kind(by_name), "", *_steadiness(by_name)]
    return f"{made_by(summary)}\n\n" + "\n".join(lines) + "\n"


def fresh_block() -> str:
    """What the nearest methods answer about clips of other seeds, and the aims."""
    summary, by_name, leads = _measured("clips-fresh")
    said = f"Clips of other seeds. {made_by(summary)}"
    lines = [*_methods(by_name, leads), "", *_aims(by_name, leads, "clips"), "", *_by_kind(by_name)]
    return f"{said}\n\n" + "\n".join(lines) + "\n\nThe clips that had been asked about before:\n"


def _measured(folder: str) -> tuple[dict, dict[str, dict], dict[str, dict]]:
    """A summary, its methods by name, and how far ARR-COC is above each."""
    summary = json.loads((RESULTS / folder / "summary.json").read_text())
    by_name = {e["method"]: e for e in summary["methods"]}
    leads = {e["against"]: e["overall"] for e in summary["pairs"]}
    return summary, by_name, leads | {"stock": by_name["arr-coc"]["against_stock"]["overall"]}


def _methods(by_name: dict[str, dict], leads: dict[str, dict]) -> list[str]:
    """What each method answers, and what it keeps."""
    lines = [
        "| method | tokens | right | ARR-COC minus it | when kept | where kept |",
        "|---|---|---|---|---|---|",
    ]
    for name, e in by_name.items():
        cells = [f"{e['tokens']:.0f}", percent(e["overall"]), percent(leads.get(name), "+")]
        # Of what is shown shrunk the moments were not told, until they were.
        moment, place = e.get("moment"), e.get("place")
        is_told = not VIEWS_METHODS[name]().resizes or (moment and moment["value"])
        cells += [percent(moment if is_told else None), percent(place)]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def _by_kind(by_name: dict[str, dict]) -> list[str]:
    """What ARR-COC loses to stock in each kind, the most first."""
    kinds = by_name["arr-coc"]["against_stock"]["kinds"]
    lines = ["| kind | n | ARR-COC minus stock |", "|---|---|---|"]
    for kind, one in sorted(kinds.items(), key=lambda pair: pair[1]["value"]):
        lines.append(f"| {kind} | {one['n']} | {percent(one, '+')} |")
    return lines


def _aims(by_name: dict[str, dict], leads: dict[str, dict], world: str) -> list[str]:
    """What the focused look should reach, and whether it does."""
    ours, stock = by_name["arr-coc"], by_name["stock"]
    others = {name: lead for name, lead in leads.items() if not name.startswith("arr-coc")}
    level = [name for name, lead in others.items() if name != "stock" and lead["interval"][0] <= 0]
    measures = [
        ("stock, all kinds alike", stock["overall"], STOCK),
        ("share of stock accuracy kept", ours["against_stock"]["kept"], KEPT),
    ]
    if world == "clips":
        measures.append(("answer's place kept", ours["place"], PLACE))
    else:
        measures.append(("tokens in the picture that holds the answer", ours["on_evidence"], ON_IT))
    rows = [aim_of(what, found, aim, stock["overall"]["n"]) for what, found, aim in measures]
    said = f"all but {', '.join(level)}" if level else "all"
    n = stock["overall"]["n"]
    asked = min(one["n"] for one in ours["against_stock"]["kinds"].values())
    rows.append(Aim("questions of a kind", f"{ASKED}", f"{asked}", asked >= ASKED))
    return aims_table([*rows, Aim("other methods it is above", "all", said, not level, n)])


def _steadiness(by_name: dict[str, dict]) -> list[str]:
    """How alike neighbouring moments are decided, by what a clip shows."""
    names = [name for name in by_name if "coherence" in by_name[name] and name != "stock"]
    lines = [
        f"| neighbouring moments, cosine of relevance (overlap of kept cells) | {' | '.join(names)} |"
    ]
    lines.append("|---" * (len(names) + 1) + "|")
    for shows, words in SHOWN.items():
        cells = [_alike(by_name[name]["coherence"].get(shows), "") for name in names]
        lines.append(f"| {words} | {' | '.join(cells)} |")
    at_cuts = [_alike(by_name[name]["coherence"].get("cut"), "_cut") for name in names]
    lines.append(f"| at the cut itself | {' | '.join(at_cuts)} |")
    ours = by_name["arr-coc"]["coherence"]
    steady = all(
        ours[shows]["cosine"]["value"] > ALIKE for shows in ("pan", "moves") if shows in ours
    )
    new = "cut" in ours and ours["cut"]["cosine_cut"]["value"] < APART
    dips = {
        words: ours[shows]["dips"]["value"]
        for shows, words in SHOWN.items()
        if shows in ours and "dips" in ours[shows]
    }
    said = ", ".join(f"{words} {share:.1%}" for words, share in dips.items())
    lines += [
        "",
        f"Above {ALIKE:g} where the view or a thing moves: {marked(steady)}. Below {APART:g} at cuts: "
        f"{marked(new)}; and nowhere else: {marked(not any(dips.values()))} (below it are, of neighbours "
        f"within a scene: {said}). The cosine compares the same cells of two moments: blending raises it "
        "by itself, beside what it does to the answers (arr-coc-unblended is without).",
    ]
    return lines


def _alike(found: dict | None, at: str) -> str:
    overlap = found and found.get(f"overlap{at}")
    if not overlap:
        return ""
    if not (cosine := found.get(f"cosine{at}")):
        return f"({overlap['value']:.2f})"
    low, high = cosine["interval"]
    return f"{cosine['value']:.2f} [{low:.2f}, {high:.2f}] ({overlap['value']:.2f})"
