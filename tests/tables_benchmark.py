"""Times at the 2B shapes: a table, a figure, and how much of them is ARR-COC's own work."""

import json
from pathlib import Path

from matplotlib.figure import Figure

from arr_coc.config import SHARE
from arr_coc.evaluate.plots import save, style
from arr_coc.page.chart import plain
from arr_coc.page.times import at_usual_share
from arr_coc.peers.names import OURS, STOCK
from tests.tables_shared import Aim, aims_table, times_sooner

RESULTS = Path(__file__).parent.parent / "results"
BENCHMARK = RESULTS / "benchmark-2b-cpu.json"
FLOAT32 = RESULTS / "benchmark-2b-cpu-float32.json"  # on another processor
BUNDLED = RESULTS / "benchmark-bundled-cpu.json"
LOOKS = {
    STOCK: "full look (stock)",
    "before + separate glance": "focused, halo and coarse cells as context",
    "glance as context": "focused, the glance as context",
    "scan alone": "focused by the scan alone, no glance",
    "after": "by the maps alone, without glance or weights, cut after the encoder",
    "downsample": "the picture shrunk",
    "pixelprune": "PixelPrune",
    "fastv": "FastV",
}
STAGES = (
    "preprocess_s",
    "glance_s",
    "relevance_s",
    "encode_s",
    "prefill_s",
    "time_to_first_token_s",
)
# Of a picture, kept, and how many times sooner than stock the first word should come.
SOONER = ((1024, 205, 5.8), (1024, 102, 8.0), (300, 60, 2.8))
LARGE = (4096, 819), (1024, 205)  # the first should be more times sooner than the second
OVERHEAD = {
    300: 0.12,
    1024: 0.05,
    2048: 0.05,
    4096: 0.05,
}  # of stock's time, at a fifth of the tokens
FIRST_WORD = {"first-word": (1024, 3.5), "first-word-512": (256, 1.2)}  # tokens; times sooner
MAPS = 0.015  # seconds for the maps of 1,024 tokens on the bundled base: a tenth of what they took


def benchmark_block() -> str:
    """Time to first token of every look at every size, with the machine under it.

    The shipped look at every budget, the others at the usual one.
    """
    report = json.loads(BENCHMARK.read_text())
    machine, shipped = report["machine"], report["shipped"]
    rows = [
        "| picture | look | tokens | preprocess | glance | maps | encode | prefill | to first token "
        "| sooner than stock | lower quartile |",
        "|---" * 11 + "|",
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
        if e["case"] == STOCK:
            seconds = e["time_to_first_token_s"]
            cells[-1] += f" ({seconds['min']:.2f}-{seconds['max']:.2f})"
            cells += ["", ""]
        else:
            cells += [times_sooner(e["speedup"]), f"{e['speedup']['lower_quartile']:.1f}x"]
        rows.append(f"| {' | '.join(cells)} |")
    text = (
        f"Qwen3-VL-2B shapes, random weights, {report['what'].split(', ')[-1]}, {machine['cores']} cores "
        f"of an {machine['processor']} server CPU; pictures in their visual tokens. Medians of "
        f"{_repetitions(entries)} interleaved repetitions; ratios are taken within a repetition "
        "(range in brackets, then the lower quartile, of few values the one next below). *Maps* are the "
        "three maps, the scan and the decision. In bold what the shipped weights do, every part of such "
        "weights at work, at every budget; the others at a fifth. Stock's seconds at "
        f"{_against_fastest(report)}. Made with `{report['command'].strip()}` "
        f"([all stages](../results/{BENCHMARK.name}))."
    )
    return f"{text}\n\n" + "\n".join(rows) + f"\n\n{_in_float32()}\n"


def _in_float32() -> str:
    """The same in float32 on another processor, in a sentence."""
    report = json.loads(FLOAT32.read_text())
    machine, entries = report["machine"], {}
    for entry in report["summary"]:
        entries.setdefault((entry["image_tokens"], entry["case"]), []).append(entry)
    said = []
    for size in sorted({size for size, _ in entries}):
        (stock,) = entries[size, STOCK]
        looks = "; ".join(
            f"{LOOKS[case]} "
            + ", ".join(
                f"{times_sooner(e['speedup'])} at {e['visual_tokens']['median']:.0f}"
                for e in entries[size, case]
            )
            for case in (report["shipped"], "downsample", "pixelprune")
        )
        seconds = stock["time_to_first_token_s"]["median"]
        said.append(f"Of {size:,} tokens the full look took {seconds:.1f} s; {looks}")
    return (
        f"In float32 on {machine['cores']} cores of an {machine['processor']}, medians of "
        f"{_repetitions(report['summary'])} interleaved repetitions, and how much sooner than stock at so "
        f"many tokens. {'. '.join(said)}. Made with "
        f"`{report['command'].strip()}` ([all stages](../results/{FLOAT32.name}))."
    )


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
    cores = report["machine"]["cores"]
    figure = Figure(figsize=(8.4, 3.6), layout="constrained")
    axes = figure.subplots()
    for name, by_size in curves.items():
        seconds = [entry["time_to_first_token_s"]["median"] for entry in by_size.values()]
        axes.plot(list(by_size), seconds, label=plain(name), **style(name, list(curves)))
    axes.set(
        title=f"Qwen3-VL-2B's shapes, random weights, {cores} CPU cores, {SHARE:.0%} of the tokens kept",
        xlabel="visual tokens of the picture",
        ylabel="seconds",
        xticks=list(curves[STOCK]),
    )
    axes.set_ylim(0)
    axes.grid(alpha=0.25, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    save(figure, out)


def _repetitions(entries: list[dict]) -> str:
    """How many there were, where sizes differ by size."""
    by_size = {e["image_tokens"]: e["n"] for e in entries}
    if len(set(by_size.values())) == 1:
        return str(next(iter(by_size.values())))
    said = {n: [f"{size:,}" for size, own in by_size.items() if own == n] for n in by_size.values()}
    return " or ".join(f"{n} ({', '.join(sizes)} tokens)" for n, sizes in said.items())


def _against_fastest(report: dict) -> str:
    """Stock's fastest committed median at each size, and how far this run's was above it."""
    slower = report["stock_against_its_fastest"]
    said = ", ".join(
        f"{int(size):,} tokens were {seconds:.1f}, the least median of any report"
        + (f" (here {slower[size] - 1:.0%} slower)" if slower.get(size, 1.0) > 1 else "")
        for size, seconds in report["fastest_stock_s"].items()
    )
    return said + ("; slower ones are to be made again" if report["to_be_made_again"] else "")


def time_aims_block() -> str:
    """How much sooner the first word should come, and what the rest may cost."""
    report = json.loads(BENCHMARK.read_text())
    ours = {
        (e["image_tokens"], e["budget"]): e
        for e in report["summary"]
        if e["case"] == report["shipped"]
    }
    rows = [
        _sooner(f"2B shapes, {size:,} to {kept} tokens", ours[size, kept], aim)
        for size, kept, aim in SOONER
        if (size, kept) in ours
    ]
    if all(case in ours for case in LARGE):
        large, small = (ours[case]["speedup"]["lower_quartile"] for case in LARGE)
        what = "2B shapes, {:,} to {} tokens, against {:,} to {}".format(*LARGE[0], *LARGE[1])
        rows.append(
            Aim(what, "more", f"{large:.2f}x, {small:.2f}x", large > small, ours[LARGE[0]]["n"])
        )
    fifth = at_usual_share(report["summary"], report["shipped"])
    for size, bar in OVERHEAD.items():
        if size in fifth:
            share = {k: 100 * v for k, v in fifth[size]["overhead_share_of_stock"].items()}
            what = f"2B shapes, {size:,} tokens, glance, maps and preprocessing, % of stock's time"
            found = "{median:.1f} ({min:.1f}-{max:.1f})".format(**share)
            rows.append(
                Aim(what, f"{100 * bar:g}", found, share["median"] <= 100 * bar, fifth[size]["n"])
            )
    for name, (tokens, aim) in FIRST_WORD.items():
        file = RESULTS / f"{name}.json"
        if file.is_file():
            found = json.loads(file.read_text())["summary"]
            ratio = {"lower_quartile": found["ratio"]["lower"], "median": found["ratio"]["median"]}
            entry = {"speedup": ratio, "n": found["repetitions"]}
            rows.append(_sooner(f"bundled base, {tokens:,} tokens", entry, aim))
    if BUNDLED.is_file():
        report = json.loads(BUNDLED.read_text())
        entry = at_usual_share(report["summary"], report["shipped"])[1024]
        seconds = entry["relevance_s"]["median"]
        what = "bundled base, 1,024 tokens, the maps, milliseconds"
        rows.append(
            Aim(what, f"{1000 * MAPS:g}", f"{1000 * seconds:.0f}", seconds <= MAPS, entry["n"])
        )
    lines = aims_table(rows)
    lines[0] = (
        "| first word, times sooner than stock, lower quartile | aim | found | repetitions | |"
    )
    return "\n".join(lines) + "\n"


def _sooner(what: str, entry: dict, aim: float) -> Aim:
    ratio = entry["speedup"]
    found = f"{ratio['lower_quartile']:.2f}x (median {ratio['median']:.2f})"
    return Aim(what, f"{aim:g}x", found, ratio["lower_quartile"] >= aim, entry["n"])
