"""Remeasure: all in `results/` that depends on the bundled base and its weights, one after the other.

    python -m tests.remeasure --list
    python -m tests.remeasure                                   # all of it, some hours on two cores
    python -m tests.remeasure --only "a fifth" control          # some of it

After another base or other weights: first move the folders in `results/` that hold the old ones' rows
away, and record the cards (`arr_coc.record`, `arr_coc.record_clips`); afterwards `tests.tables`. Every step
is one of the project's own commands and goes on where it stopped; what fails is named, and the others
still run. What runs at other shapes, on other machines or on pictures from elsewhere is not here: those
reports name their commands.
"""

import argparse
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence

PYTHON = [sys.executable, "-m"]
WEIGHTS = "--weights arr_coc/bundled/arr-coc"
EVALUATE = "arr_coc.evaluate --workers {workers} --resume --new-weights"
LARGE = "--world large --seed 1000000000 --floor 0 --size 1024 1024"
DEVELOPMENT = "--world large --hand any --size 1024 1024"
ANY = f"{LARGE} --hand any"
FOUR = "--methods stock downsample divprune arr-coc"
CONTROLS = "random uniform centre random-around uniform-around random-after uniform-after"
PEERS = "pixelprune fastv visionzip cdpruner dart vicrop"
EVERY = f"{FOUR} {CONTROLS} {PEERS} arr-coc-after arr-coc-free"
OF_PICTURES = "stock smaller-frames divprune arr-coc arr-coc-each-alone"
HELD_OUT = "--hand fxemoji --kinds colour exists where leftmost number"
USUAL = "Answer the question using a single word or phrase."
TURNED_OFF = (
    "no-policy no-combiner no-heads no-states no-texture no-scan no-adapter no-lora neutral alone cells"
    " no-entropy no-edges no-glance no-spread compress-half exploit-half focus-half"
)
MANNERS = {"plain": "plain", "lower": "lower", "bare": "bare", "please": "please",
           "please-after": "please after"}  # fmt: skip


def scenes_steps(many: int, few: int) -> dict[str, str]:
    """`results/scenes`: `many` questions a kind of five methods at a fifth, `few` of most else.

    As many of ARR-COC at the other budgets, whose aims are near stock; half as many of share "auto".
    """
    base = f"{EVALUATE} {WEIGHTS} {ANY} --out results/scenes"
    return {
        "every method": f"{base} --block 4 --n {few} --budgets 0.2 {EVERY}",
        "budgets": f"{base} --n {few} --budgets 0.05 0.1 0.4 {FOUR} arr-coc-after",
        "budgets, ARR-COC": f"{base} --n {many} --budgets 0.05 0.1 0.4 --methods stock arr-coc",
        "budgets, nothing trained": f"{base} --n {few} --budgets 0.05 0.1 0.4 --methods arr-coc-free",
        "by need": f"{base} --n {many // 2} --budgets 0.2 --methods stock arr-coc arr-coc-auto",
        "a fifth": f"{base} --n {many} --budgets 0.2 {FOUR} cdpruner",
    }


def time_step(few: int) -> dict[str, str]:
    """Seconds to the first word of every method, one question at a time: on an idle machine, alone."""
    clock = "--time 3 --time-budgets 0.05 0.1 0.2 0.4 --time-threads 2"
    alone = EVALUATE.replace("--workers {workers} ", "")
    asked = f"{ANY} --n {few} --budgets 0.2 {EVERY} {clock}"
    return {"time": f"{alone} {WEIGHTS} {asked} --out results/scenes"}


def other_steps(many: int, few: int) -> dict[str, str]:
    """Other sizes, hands, data, clips and pictures; what the parts are worth; the tensions."""
    start, small = f"{EVALUATE} {WEIGHTS}", ANY.replace("1024 1024", "512 512")
    steps = {"512": f"{start} {small} --n {many} --budgets 0.2 {FOUR} --out results/scenes-512"}
    fresh = ANY.replace("1000000000", "1500000000")
    steps["fresh"] = (
        f"{start} {fresh} --n 60 --budgets 0.05 0.2 --methods stock arr-coc"
        " --out results/scenes-fresh"
    )
    for side in (512, 1024):
        world = LARGE.replace("1024 1024", f"{side} {side}")
        asked = f"{start} {world} {HELD_OUT} --n 300 --budgets 0.2 {FOUR}"
        name = f"hand-{side}"
        steps[name] = f"{asked} --out results/{name}"
        steps[f"{name}-instruction"] = (
            f"{asked} --instruction {shlex.quote(USUAL)} --out results/{name}-instruction"
        )
    # In pictures nothing blends or moves: no variants of that.
    views = {
        "clips": "--groups 8 --n 60",
        "pictures": f"--groups 3 --n 300 --methods {OF_PICTURES}",
    }
    for name, how in views.items():
        asked = f"--world {name} {how} --share 0.2 --seed 1000000000 --floor 0"
        steps[name] = f"{start} --block 4 {asked} --out results/{name}"
    methods = " ".join(f"arr-coc-{name}" for name in ("after", "free", *TURNED_OFF.split()))
    every = "stock downsample divprune fastv arr-coc arr-coc-after arr-coc-free"
    return steps | {
        "control": f"{start} {ANY} --n {few} --budgets 0.2 --methods stock --control --out results/control",
        "easy-vqa": f"{start} --easy-vqa --n 100 --budgets 0.2 0.4 --methods {every}"
                    " --out results/easy-vqa",
        "parts": f"{start} --block 4 {DEVELOPMENT} --floor 0 --n {few} --budgets 0.2"
                 f" --methods stock arr-coc {methods} --out results/parts",
        "glance": f"{start} --block 4 {DEVELOPMENT} --floor 0 --seed 931000000 --n 20 --budgets 0.05 0.2"
                  " --methods stock arr-coc arr-coc-no-glance arr-coc-alone arr-coc-scan-alone"
                  " --out results/glance",
        "tensions": f"arr_coc.tensions {WEIGHTS} {DEVELOPMENT} --scenes 4 --n {few} --budgets 0.1"
                    " --threads 2 --out results/tensions.json",
    }  # fmt: skip


def base_steps(few: int) -> dict[str, str]:
    """What the base does by itself: in other manners, with other contexts, from the question alone."""
    stock = f"{EVALUATE} {DEVELOPMENT.replace('1024 1024', '512 512')} --n {few} --methods stock"
    steps = {
        f"manner-{name}": f"{stock} --manner {manner!r} --out results/manner-{name}"
        for name, manner in MANNERS.items()
    }
    steps["manner-instructed"] = (
        f"{stock} --instruction {shlex.quote(USUAL)} --out results/manner-instructed"
    )
    contexts = "--methods stock arr-coc-cells arr-coc-context arr-coc-alone"
    return steps | {
        "context": f"{EVALUATE} {DEVELOPMENT} --n {few} --budgets 0.2 {contexts} --out results/context",
        "question only": "arr_coc.evaluate.question_only --out results/question-only.json",
    }


def first_word_steps() -> dict[str, str]:
    """How much sooner the first word comes: on an idle machine, alone."""
    start = (
        f"arr_coc.evaluate.first_word {WEIGHTS} --world large --hand any --seed 1000000000 --n 60"
    )
    return {
        name: f"{start} --size {side} {side} --repetitions 3 --out results/{name}.json"
        for name, side in (("first-word", 1024), ("first-word-512", 512))
    } | {"bundled times": "arr_coc.benchmark --shapes bundled --image-tokens 256 1024 --resume"}


def steps(many: int, few: int) -> dict[str, str]:
    """Every step by its name, those that must have the machine for themselves last."""
    return {
        **scenes_steps(many, few), **other_steps(many, few), **base_steps(few), **time_step(few),
        **first_word_steps(),
    }  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    """Run the steps; the number of those that failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--list", action="store_true", help="print the commands, run none")
    parser.add_argument("--only", nargs="+", metavar="STEP", help="some of the steps")
    parser.add_argument("--many", type=int, default=300,
                        help="questions a kind of ARR-COC and its peers (default %(default)s)")  # fmt: skip
    parser.add_argument("--few", type=int, default=8,
                        help="questions a kind of most else (default %(default)s)")  # fmt: skip
    parser.add_argument("--workers", type=int, default=2, help="(default %(default)s)")
    args = parser.parse_args(argv)
    every = steps(args.many, args.few)
    if unknown := [name for name in args.only or () if name not in every]:
        parser.error(f"--only {', '.join(unknown)}: expected some of {', '.join(every)}")
    failed = 0
    for name in args.only or every:
        command = every[name].format(workers=args.workers)
        print(f"{name}: python -m {command}", flush=True)
        if args.list:
            continue
        begin = time.monotonic()
        code = subprocess.run([*PYTHON, *shlex.split(command)], check=False).returncode
        failed += code != 0
        minutes = (time.monotonic() - begin) / 60
        print(f"{name}: {minutes:.1f} minutes" + f", failed with {code}" * (code != 0), flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
