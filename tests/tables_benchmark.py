"""Times at the 2B shapes: a table, a figure, and how much of them is ARR-COC's own work."""

import json
from pathlib import Path

from matplotlib.figure import Figure

from arr_coc.config import SHARE
from arr_coc.evaluate.plots import save, style
from arr_coc.page.chart import plain
from arr_coc.page.times import at_usual_share
from arr_coc.peers.names import OURS, STOCK
from tests.tables_shared import times_sooner

BENCHMARK = Path(__file__).parent.parent / "results" / "benchmark-2b-cpu.json"
LOOKS = {
    STOCK: "full look (stock)",
    "before + separate glance": "focused, halo and coarse cells as context",
    "glance as context": "focused, the glance as context",
    "after": "decided the same way, cut after the encoder",
    "downsample": "the picture shrunk",
    "pixelprune": "PixelPrune",
    "fastv": "FastV",
}
STAGES = ("encode_s", "prefill_s", "overhead_s", "time_to_first_token_s")
TOKENS = 1024  # of the picture at which overheads are told


def benchmark_block() -> str:
    """Time to first token of every look at every size, with the machine under it.

    The shipped look at every budget, the others at the usual one.
    """
    report = json.loads(BENCHMARK.read_text())
    machine, shipped = report["machine"], report["shipped"]
    rows = [
        "| picture | look | tokens | encode | prefill | everything else | to first token "
        "| sooner than stock |",
        "|---|---|---|---|---|---|---|---|",
    ]
    order = list(LOOKS)
    usual = {c: at_usual_share(report["summary"], c) for c in LOOKS}
    entries = [
        e
        for e in report["summary"]
        if e["case"] in LOOKS and (e["case"] == shipped or e is usual[e["case"]][e["image_tokens"]])
    ]
    for e in sorted(
        entries, key=lambda e: (e["image_tokens"], order.index(e["case"]), e["budget"])
    ):
        name = LOOKS[e["case"]]
        cells = [f"{e['image_tokens']:,}", f"**{name}**" if e["case"] == shipped else name]
        cells += [f"{e['visual_tokens']['median']:.0f}"]
        cells += [f"{e[stage]['median']:.2f} s" for stage in STAGES]
        cells.append("" if e["case"] == STOCK else times_sooner(e["speedup"]))
        rows.append(f"| {' | '.join(cells)} |")
    text = (
        f"Qwen3-VL-2B shapes, random weights, {report['what'].split(', ')[-1]}, {machine['cores']} cores "
        f"of an {machine['processor']} server CPU; pictures in their visual tokens. Medians of "
        f"{min(e['n'] for e in entries)} interleaved repetitions; ratios are taken within a repetition "
        "(range in brackets). *Everything else* is preprocessing, the three maps, the decision, and the "
        "glance's own encode and prefill. In bold what the shipped weights do, every part of such weights "
        f"at work, at every budget; the others at a fifth. Made with `{report['command'].strip()}` "
        f"([all stages](../results/{BENCHMARK.name}))."
    )
    return f"{text}\n\n" + "\n".join(rows) + "\n"


def draw_times(out: Path) -> None:
    """Store a figure of seconds to the first word against a picture's visual tokens, at the usual share.

    Of one size there is nothing to draw.
    """
    report = json.loads(BENCHMARK.read_text())
    cases = {STOCK: STOCK, report["shipped"]: OURS}
    cases |= {name: name for name in ("downsample", "pixelprune", "fastv")}
    curves = {name: at_usual_share(report["summary"], case) for case, name in cases.items()}
    if len(curves[STOCK]) < 2:
        return
    figure = Figure(figsize=(8.4, 3.6), layout="constrained")
    axes = figure.subplots()
    for name, by_size in curves.items():
        seconds = [entry["time_to_first_token_s"]["median"] for entry in by_size.values()]
        axes.plot(list(by_size), seconds, label=plain(name), **style(name, list(curves)))
    axes.set(
        title=f"Time to the first word at the shapes of Qwen3-VL-2B, {SHARE:.0%} of the tokens kept",
        xlabel="visual tokens of the picture",
        ylabel="seconds",
        xticks=list(curves[STOCK]),
    )
    axes.set_ylim(0)
    axes.grid(alpha=0.25, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    save(figure, out)


def overhead() -> dict[str, float]:
    """Glance, maps and preprocessing as a share of the full look's time, at a fifth of 1,024 tokens.

    `median`, `min` and `max` over repetitions, each share of one.
    """
    report = json.loads(BENCHMARK.read_text())
    return at_usual_share(report["summary"], report["shipped"])[TOKENS]["overhead_share_of_stock"]
