"""The tables of README.md, docs/evaluation.md and docs/page.md, and the bundled base's card, from what was
measured.

    python -m tests.tables      # writes them anew; test_readme.py holds them to it
"""

import json
import re
from functools import partial
from pathlib import Path

from arr_coc.evaluate.summary import comparable
from arr_coc.peers.names import WORDS
from arr_coc.pretrain.card import card
from arr_coc.pretrain.model import max_tokens_of
from arr_coc.qwen import ARRCOCQwen
from tests.tables_aims import CONTROLS, EVALUATION, aims_block
from tests.tables_base import curve_block, kinds_block, manners_block
from tests.tables_benchmark import benchmark_block, draw_times, time_aims_block
from tests.tables_clips import (
    BOOST,
    DECAY,
    PACE,
    answers_block,
    boost_block,
    clips_block,
    decay_block,
    fresh_block,
    pace_block,
)
from tests.tables_gpu import gpu_block, gpu_ratio
from tests.tables_harness import harness_block
from tests.tables_page import page_block
from tests.tables_serving import load_block, proof_block
from tests.tables_shared import BUDGET, at_a_fifth, before, made_by, percent, times_sooner
from tests.tables_training import (
    UNSURE,
    evidence_block,
    labels_block,
    memory_block,
    tensions_block,
    unsure_block,
)
from tests.tables_worlds import (
    control_block,
    first_word_block,
    lost_block,
    world_aims_block,
    worlds_block,
)

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
DETAILS = ROOT / "docs" / "evaluation.md"
RESULTS = ROOT / "results"
BENCHMARK = RESULTS / "benchmark-2b-cpu.json"
TIMED = ("glance as context", 1024, 205)  # its case, and the visual tokens it has and keeps
BASE = ROOT / "arr_coc" / "bundled" / "base"
BLOCK = r"(<!-- {name}:start -->\n)(.*?)(<!-- {name}:end -->)"
# In the README, where nobody knows yet what ARR-COC is.
NEWCOMERS_WORDS = {"arr-coc": "what the question points to, before the encoder"}


def base_card() -> str:
    """The model card of the bundled base, from its weights, its scores and its training."""
    facts, scores = (json.loads((BASE / f"{n}.json").read_text()) for n in ("training", "scores"))
    model = ARRCOCQwen.from_pretrained(BASE).model
    parameters = sum(p.numel() for p in model.parameters())
    return card(parameters, facts, scores, max_tokens=max_tokens_of(BASE))


def method_rows(summary: dict, controls: bool) -> list[str]:
    """Every method at a fifth of the tokens: accuracy, ARR-COC's lead, where it looked, time.

    `controls`: those that choose without looking are in it.
    """
    leads, times = _leads(summary), _times(summary)
    rows = [
        "| method | n | right | ARR-COC minus it | answer's place kept | encoder sees | first word, 2B |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, entry in at_a_fifth(summary).items():
        if controls or name not in CONTROLS:
            cells = [_asked(entry), percent(entry["overall"]), percent(leads.get(name), "+")]
            cells += [percent(entry["coverage"]), *_clock_cells(times.get(name))]
            rows.append(f"| {_bold(name)} | {' | '.join(cells)} |")
    return rows


def _asked(entry: dict) -> str:
    return f"{entry['overall']['n']:,}"


def _bold(name: str) -> str:
    return f"**{name}**" if name == "arr-coc" else name


def _leads(summary: dict) -> dict[str, dict]:
    """How far ARR-COC is above each method at a fifth of the tokens."""
    leads = {e["against"]: e["overall"] for e in summary["pairs"] if e["budget"] == BUDGET}
    return leads | {"stock": at_a_fifth(summary)["arr-coc"]["against_stock"]["overall"]}


def _times(summary: dict) -> dict[str, dict]:
    return {e["method"]: e for e in summary["time"] if e["budget"] in (1.0, BUDGET)}


def _clock_cells(clock: dict | None) -> list[str]:
    """What the encoder sees of the picture, and how much sooner than stock the first word comes."""
    if clock is None:
        return ["", ""]
    return [f"{clock['encoder_share']:.0%}", f"{1 / clock['modelled_2b_ratio']:.1f}x"]


def evaluation_block() -> str:
    """The README's table: the methods that choose, in words, and what the columns mean."""
    summary = json.loads(EVALUATION.read_text())
    counted = [kind for kind in summary["kinds"] if kind["counts"]]
    leads, times, fifth = _leads(summary), _times(summary), at_a_fifth(summary)
    kept, native = (round(fifth[name]["tokens"]) for name in ("arr-coc", "stock"))
    rows = [
        "| method | what it keeps | n | right | ARR-COC minus it | encoder sees | first word |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, entry in fifth.items():
        # What reads fewer tokens than the others was not timed beside them.
        if name not in CONTROLS and name in times:
            cells = [NEWCOMERS_WORDS.get(name, WORDS[name]), _asked(entry)]
            cells += [percent(entry["overall"]), percent(leads.get(name), "+")]
            cells += _clock_cells(times.get(name))
            rows.append(f"| {_bold(name)} | {' | '.join(cells)} |")
    floor = f" that the bundled model answers to {summary['floor']:.0%} or more in full"
    answered = floor * (summary["floor"] > 0)
    text = (
        "In percent, with 95 % bootstrap intervals; differences are paired, on the questions that both "
        f"were asked. *n* questions, as many of each of {len(counted)} "
        f"[kinds](docs/evaluation.md#what-is-asked){answered}, on drawn scenes of seeds that nothing was "
        f"trained on, at {BUDGET:.0%} of the visual tokens ({kept} of {native:,}). "
        "ARR-COC's parts were trained on other scenes of the same generator; the other methods are "
        "training-free, and *arr-coc-free* is the row like theirs. With artwork held out of all training, "
        f"asked five of the easier kinds, ARR-COC kept {_held_out()}. "
        "*Encoder sees*: the share of a picture of 1024 tokens that goes "
        f"through the vision encoder, glances included. *First word*: {_first_words()} "
        "Made with `python -m arr_coc.evaluate` "
        f"([the commands and everything]({EVALUATION.relative_to(ROOT)}))."
    )
    return "\n".join(rows) + f"\n\n{text}\n"


def _first_words() -> str:
    """What the README's last column means, and what stands against it."""
    report = json.loads(BENCHMARK.read_text())
    ends = next(
        e for e in report["summary"] if (e["case"], e["image_tokens"], e["budget"]) == TIMED
    )
    cores = report["machine"]["cores"]
    return (
        f"how many times sooner than stock it comes on {cores} CPU cores, by stage times measured at the "
        "shapes of Qwen3-VL-2B with random weights; other methods' own arithmetic is not counted. ARR-COC "
        f"timed end to end there: {times_sooner(ends['speedup'])}. On a large GPU it is slower than stock "
        f"at this size: {gpu_ratio(TIMED[1]):.2f}x ([time](docs/evaluation.md#time))."
    )


def _held_out() -> str:
    """What share of stock's right answers ARR-COC kept on the hand that was held out, and of how many;
    and how far it was above the next best.
    """
    said = []
    for name, how in (
        ("hand-1024", "plain"),
        ("hand-1024-instruction", "with the usual instruction"),
    ):
        summary = json.loads((RESULTS / name / "summary.json").read_text())
        ours = at_a_fifth(summary)["arr-coc"]
        kept, n = ours["against_stock"]["kept"], ours["overall"]["n"]
        (lead,) = [e["overall"] for e in summary["pairs"] if e["against"] == "divprune"]
        said.append(
            f"{100 * kept['value']:.0f} % of stock's accuracy {how} (n = {n}; {percent(lead, '+')} to "
            "DivPrune)"
        )
    return ", ".join(said)


def budgets_block() -> str:
    """Accuracy by the share of the tokens that is kept."""
    times = json.loads((EVALUATION.parent / "time.json").read_text())
    n = max(entry["n"] for entry in times["summary"])
    said = (
        f"Seconds, in the figure of times, are medians of {n} questions on the bundled model, of "
        f"{times['date']}.{before(times)}"
    )
    return "\n".join(by_budget(json.loads(EVALUATION.read_text()))) + f"\n\n{said}\n"


def methods_block() -> str:
    """Every method with its controls."""
    rows = method_rows(json.loads(EVALUATION.read_text()), controls=True)
    said = "Differences are paired, on the questions that both were asked."
    return "\n".join(rows) + f"\n\n{said}\n"


def by_budget(summary: dict) -> list[str]:
    """Accuracy of the methods that were measured at every budget."""
    right = {(e["method"], e["budget"]): e["overall"] for e in comparable(summary)}
    budgets = sorted({b for _, b in right if b < 1})
    n = min(entry["n"] for (_, b), entry in right.items() if b < 1)
    rows = [f"| right at (n = {n:,} or more) | {' | '.join(f'{b:.0%}' for b in budgets)} |"]
    rows.append("|---" * (len(budgets) + 1) + "|")
    for name in dict.fromkeys(m for m, _ in right):
        if all((name, b) in right for b in budgets):
            cells = [percent(right[name, b]) for b in budgets]
            rows.append(f"| {name} | {' | '.join(cells)} |")
    return rows


def variants_block(name: str) -> str:
    """What each part or choice of ARR-COC is worth: its accuracy, and how far ARR-COC is above it."""
    summary = json.loads((RESULTS / name / "summary.json").read_text())
    leads = {(e["against"], e["budget"]): e["overall"] for e in summary["pairs"]}
    many = len({e["budget"] for e in summary["methods"] if e["method"] != "stock"}) > 1
    heads = ["ARR-COC", "", *["share"] * many, "right"]
    heads += [*["ARR-COC minus it"] * bool(leads), "place kept"]
    rows = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for e in summary["methods"]:
        short, budget = e["method"].removeprefix("arr-coc-"), e["budget"]
        lead = percent(leads.get((e["method"], budget)), "+")
        cells = [short, WORDS[e["method"]], *[f"{budget:.0%}"] * many, percent(e["overall"])]
        cells += [lead] * bool(leads)
        rows.append(f"| {' | '.join([*cells, percent(e['coverage'])])} |")
    return f"{made_by(summary)}\n\n" + "\n".join(rows) + "\n"


def easy_block() -> str:
    """Accuracy on easy-VQA: each method at each budget, and how far ARR-COC is above it."""
    summary = json.loads((RESULTS / "easy-vqa" / "summary.json").read_text())
    leads = {(e["against"], e["budget"]): e["overall"] for e in summary["pairs"]}
    rows = ["| method | tokens of 16 | right | ARR-COC minus it |", "|---|---|---|---|"]
    for e in summary["methods"]:
        lead = percent(leads.get((e["method"], e["budget"])), "+")
        rows.append(f"| {e['method']} | {e['tokens']:.0f} | {percent(e['overall'])} | {lead} |")
    return f"{made_by(summary)}\n\n" + "\n".join(rows) + "\n"


BLOCKS = {
    "benchmark": (DETAILS, benchmark_block),
    "time aims": (DETAILS, time_aims_block),
    "kinds": (DETAILS, kinds_block),
    "curve": (ROOT / "docs" / "training.md", curve_block),
    "gpu": (DETAILS, gpu_block),
    "evaluation": (README, evaluation_block),
    "budgets": (DETAILS, budgets_block),
    "aims": (DETAILS, aims_block),
    "methods": (DETAILS, methods_block),
    "parts": (DETAILS, lambda: variants_block("parts")),
    "glance": (DETAILS, lambda: variants_block("glance")),
    "easy": (DETAILS, easy_block),
    "page": (ROOT / "docs" / "page.md", page_block),
    "memory": (ROOT / "docs" / "data.md", memory_block),
    "labels": (ROOT / "docs" / "data.md", labels_block),
    "evidence": (ROOT / "docs" / "training.md", evidence_block),
    "tensions": (ROOT / "docs" / "idea.md", tensions_block),
    "clips": (ROOT / "docs" / "clips.md", clips_block),
    "harness": (ROOT / "docs" / "benchmarks.md", harness_block),
    "serving": (ROOT / "docs" / "serving.md", proof_block),
    "load": (ROOT / "docs" / "serving.md", load_block),
}

for world in ("clips", "pictures"):
    if (RESULTS / world).is_dir():
        BLOCKS[f"answers on {world}"] = (ROOT / "docs" / "clips.md", partial(answers_block, world))
if (RESULTS / "clips-fresh" / "summary.json").is_file():
    BLOCKS["fresh"] = (ROOT / "docs" / "clips.md", fresh_block)
if PACE.is_file():
    BLOCKS["pace"] = (ROOT / "docs" / "clips.md", pace_block)
if DECAY.is_file():
    BLOCKS["decay"] = (ROOT / "docs" / "clips.md", decay_block)
if BOOST.is_file():
    BLOCKS["boost"] = (ROOT / "docs" / "clips.md", boost_block)
if (RESULTS / "manner-plain").is_dir():
    BLOCKS["manners"] = (DETAILS, manners_block)
if (RESULTS / "context").is_dir():
    BLOCKS["context"] = (ROOT / "docs" / "owners.md", lambda: variants_block("context"))
if UNSURE.is_file():
    BLOCKS["unsure"] = (ROOT / "docs" / "training.md", unsure_block)
if (RESULTS / "scenes-512").is_dir():
    BLOCKS |= {
        "worlds": (DETAILS, worlds_block),
        "world aims": (DETAILS, world_aims_block),
        "lost": (DETAILS, lost_block),
        "first word": (DETAILS, first_word_block),
        "control": (DETAILS, control_block),
    }


def write() -> None:
    """Put the measured tables into the pages."""
    for name, (page, make) in BLOCKS.items():
        table = make()
        pattern = re.compile(BLOCK.format(name=name), re.S)
        page.write_text(pattern.sub(lambda m, t=table: m[1] + t + m[3], page.read_text()))
    (BASE / "README.md").write_text(base_card())
    draw_times(ROOT / "docs" / "times.png")


if __name__ == "__main__":
    write()
