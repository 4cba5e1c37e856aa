"""Check: whether a base, with or without ARR-COC weights, runs on this machine as it should.

    python -m arr_coc.check Qwen/Qwen3-VL-2B-Instruct --weights ORG/arr-coc
    python -m arr_coc.check FOLDER --dtype float16 --markdown      # a report to paste into an issue

The first thing to run with a base of one's own. It loads it, asks both looks about a drawn picture, and
tries what must hold: that all tokens kept are the stock model, that numbers are finite, that template,
tokenizer and positions are right; it measures memory and stages. Exit status 0 is green, 1 red; each red
line says what to do. Nothing is sent anywhere.
"""

import argparse
import contextlib
import json
import logging
import sys
import warnings
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch

from arr_coc import __version__, naming, provenance
from arr_coc.check import timing, trials
from arr_coc.check.lines import Line, tried, without_places
from arr_coc.check.report import Report, as_json, markdown, table
from arr_coc.commands import above_zero, add_dtype
from arr_coc.qwen.loading import BUNDLED, folder_of, is_bundled
from arr_coc.qwen.model import ARRCOCQwen
from arr_coc.qwen.weights import WeightsError, default_weights

SECONDS = 60.0
FETCH = "Fetch {} of this base again: `hf download ID --local-dir FOLDER`."
# What to do where a base does not load, by what the sentence speaks of; the first that it does.
LOADING = (
    ("does not exist", "Name a folder that exists, or an id such as Qwen/Qwen3-VL-2B-Instruct."),
    ("neither a local folder", "Name a folder, or an id; without a network, a folder."),
    ("expected a Qwen3-VL checkpoint", "ARR-COC runs on Qwen3-VL only: name one of those."),
    ("preprocessor_config.json", FETCH.format("preprocessor_config.json")),
    ("chat_template.jinja", FETCH.format("chat_template.jinja")),
    ("a chat template", FETCH.format("chat_template.jinja")),
    ("no token", FETCH.format("config.json and tokenizer.json")),
    ("tokenizer.json", FETCH.format("tokenizer.json and tokenizer_config.json")),
    ("config.json that can be read", FETCH.format("config.json")),
    ("of other shapes", FETCH.format("config.json and the weights")),
    ("tensors", FETCH.format("the weights (*.safetensors)")),
    ("cannot be read", FETCH.format("the weights (*.safetensors)")),
    ("ARR_COC_DTYPE", "Set it to one of those, or to nothing."),
)
OTHERWISE = (
    "Try --device cpu; if that is red too, please open an issue with this report (--markdown)."
)
OTHER_WEIGHTS = "Name weights made for this base, or run training-free: --weights ''."


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command; it ends with status 0 where all is green."""
    args = parser().parse_args(argv)
    logging.disable(logging.ERROR)  # what is wrong is said in the lines, once
    try:
        # What libraries say besides is none of the report.
        with warnings.catch_warnings(action="ignore"), contextlib.redirect_stdout(sys.stderr):
            report = examined(args)
    except KeyboardInterrupt:
        sys.exit("arr_coc.check: stopped")
    finally:
        logging.disable(logging.NOTSET)
    if args.json:
        print(json.dumps(as_json(report)))
    else:
        print(markdown(report) if args.markdown else table(report))
    sys.exit(0 if report.green else 1)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    p = argparse.ArgumentParser(prog="python -m arr_coc.check", description=__doc__.splitlines()[0])
    p.add_argument("base", metavar="BASE", help=f'Hub id or folder of a Qwen3-VL, or "{BUNDLED}"')
    p.add_argument(
        "--weights",
        help="Hub id or folder of ARR-COC weights; '' for none (default: as the page would take)",
    )
    p.add_argument("--device", help="default: CUDA where there is one")
    add_dtype(p)
    p.add_argument(
        "--seconds",
        type=above_zero,
        default=SECONDS,
        help="for timing, about (default %(default)g)",
    )
    how = p.add_mutually_exclusive_group()
    how.add_argument("--json", action="store_true", help="the report for machines")
    how.add_argument("--markdown", action="store_true", help="the report for an issue")
    return p


def examined(args: argparse.Namespace) -> Report:
    """Every check on the base and weights that the arguments name."""
    base = folder_of(args.base)
    weights = default_weights(is_bundled(base)) if args.weights is None else args.weights
    host, lines = loaded(base, weights or "", args)
    report = Report(
        base="bundled base" if is_bundled(base) else naming.public(base),
        weights=naming.public(weights or ""),
        about=about(host, args),
        lines=lines,
    )
    if host is not None:
        examine(host, report, args.seconds)
    report.lines = [without_places(line) for line in report.lines]
    return report


def loaded(base: str, weights: str, args: argparse.Namespace) -> tuple[Any, list[Line]]:
    """The host, or None, and the lines about loading; weights that do not load leave the base."""
    options = {"device": args.device, "dtype": args.dtype}
    hosts, refused = [], []

    def load() -> str:
        try:
            hosts.append(ARRCOCQwen.from_pretrained(base, weights, **options))
        except WeightsError as error:
            refused.append(str(error))
        if refused:  # not above: the error holds on to the base that was loaded for it
            hosts.append(ARRCOCQwen.from_pretrained(base, "", **options))
        host = hosts[0]
        where = f"on {host.device}, in {trials.dtype_name(host.model.dtype)}"
        return "; ".join([f"loaded {where}", *host.notices])

    line = tried("loading", load, OTHERWISE)
    if not line.ok:
        known = [todo for mark, todo in LOADING if mark in line.said]
        return None, [Line(line.name, False, line.said, (known or [line.todo])[0])]
    if refused:
        said = Line("weights", False, refused[0], OTHER_WEIGHTS)
    else:
        learned = [f"{name}: {', '.join(own.names)}" for name, own in hosts[0].policies.items()]
        learned = "; ".join(learned) or "none, fixed rules decide"
        said = Line("weights", True, learned)
    return hosts[0], [line, said]


def examine(host: Any, report: Report, seconds: float) -> None:
    """Try everything on a loaded base, and add the lines and the times to the report."""
    lines, answers = report.lines, []

    def looks() -> str:
        said, answer = trials.looks(host)
        answers.append(answer)
        return said

    def times() -> str:
        report.sizes = timing.timed(host, seconds)
        return "; ".join(
            f"{size.tokens:,} tokens: full {size.first['full']:.2g} s, "
            f"focused {size.first['focused']:.2g} s"
            for size in report.sizes
        )

    for trial in (trials.tokenizer, trials.template, trials.image_token, trials.preprocessor):
        lines.append(tried(trial.__name__.replace("_", " "), lambda trial=trial: trial(host)))
    if not all(line.ok for line in lines[2:]):
        return  # the rest would fail for the same reason, and say it less well
    ask = cache(lambda: host.prepare(trials.drawn(), trials.QUESTION))
    with host.lock, torch.inference_mode():
        for trial in (trials.finite, trials.identity, trials.positions):
            lines.append(tried(trial.__name__, lambda trial=trial: trial(host, ask())))
    lines.append(tried("both looks", looks))
    if not lines[-1].ok:
        return
    lines.append(tried("memory", lambda: trials.memory(host, answers[0])))
    lines.append(tried("times", times))
    if lines[-1].ok:
        lines.append(tried("paying", lambda: timing.pays(host, report.sizes)))


def about(host: Any, args: argparse.Namespace) -> dict[str, Any]:
    """Versions, device and dtype; of what did not load what was asked for."""
    device = torch.device("cpu") if host is None else host.device
    machine = provenance.machine(device)
    if host is None:
        machine["device"] = args.device or "default device"
    dtype = (args.dtype or "default dtype") if host is None else trials.dtype_name(host.model.dtype)
    return {"arr_coc": __version__, "commit": provenance.commit(), "dtype": dtype, **machine}


if __name__ == "__main__":
    main()
