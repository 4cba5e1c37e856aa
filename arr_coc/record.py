"""Record: every example of a base compared beforehand, so that the page opens on a finished one.

    python -m arr_coc.record --base bundled --out examples/bundled

Asks each example of `examples/<base>/examples.json` in full, focused and shrunk, a few times, at
several budgets, and writes `recorded.json` beside the pictures: answers, maps, cells, tensions, which
places mattered, every time and its median, with commit, date and machine. `service.recordings` reads it
back; it trusts only recordings whose picture and question are still the example's.
"""

import argparse
import json
import os
import statistics
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from arr_coc import digests
from arr_coc.commands import add_dtype, run_command
from arr_coc.config import Config
from arr_coc.pictures import unreadable
from arr_coc.scoring import score_exact
from arr_coc.service import comparing, intake
from arr_coc.service.looks import ComparisonResult, LookResult, is_cut
from arr_coc.service.mattering import Mattered, describe_mattering
from arr_coc.service.recordings import (
    FILE,
    About,
    AtBudget,
    Recording,
    dump,
    examples_for,
    made_with,
)

LOOKS = ("full", "focused", "shrunk")
SHARES = (0.05, 0.1, 0.4, 1.0)  # of the tokens, besides the usual share: stops of a card's budget
DIGITS = 4  # of seconds and rates


def compare_often(
    model: Any, picture: Path, question: str, repetitions: int, share: float = Config.share
) -> dict[str, Any]:
    """The comparison's `result` and `times`, as `together` makes them."""
    runs = [
        comparing.compare(model, str(picture), question, share, shrunk=True)
        for _ in range(repetitions)
    ]
    return together(runs, LOOKS, picture.name)


def together(runs: Sequence[dict[str, Any]], looks: Sequence[str], file: str) -> dict[str, Any]:
    """Runs of a comparison as one `result` with median times, and each one's `times` to the first token.

    Its ratio is that of the median times, which stand beside it.

    Raises:
        RuntimeError: where one of `looks` failed, naming it and the file.
    """
    for run in runs:
        for look in looks:
            if run[look] is None or run[look]["error"]:
                raise RuntimeError(f"{file}: the {look} look failed: {run[look]}")
    times = {
        look: [round(run[look]["time_to_first_token_s"], DIGITS) for run in runs] for look in looks
    }
    medians = {look: median_look([run[look] for run in runs]) for look in looks}
    full, focused = (medians[look]["time_to_first_token_s"] for look in ("full", "focused"))
    return {"result": {**runs[0], **medians, "ratio": round(full / focused, 3)}, "times": times}


def at_budgets(
    model: Any,
    picture: Path,
    question: str,
    repetitions: int,
    usual: ComparisonResult,
    shares: Sequence[float],
) -> list[AtBudget]:
    """The comparison at each of `shares`; of its decision what is not as in the `usual` one."""
    found = []
    for share in shares:
        compared = compare_often(model, picture, question, repetitions, share)
        where = compared["result"]["where"]
        differs = {name: value for name, value in where.items() if value != usual["where"][name]}
        result = {**compared["result"], "where": None}
        found.append(AtBudget(share=share, result=result, differs=differs, times=compared["times"]))
    return found


def mattered(model: Any, picture: Path, question: str, usual: ComparisonResult) -> Mattered | None:
    """Which kept places the `usual` focused answer hangs on; None where nothing was decided."""
    where = usual["where"]
    if where is None or where["fallback"]:
        return None
    return describe_mattering(model, comparing.check(str(picture), question).image, question)


def median_look(looks: list[LookResult]) -> LookResult:
    """The first look with the median of each measured time and rate, and of the peak memory."""

    def median(values: Iterable[float]) -> float:
        return round(statistics.median(values), DIGITS)

    first = looks[0]
    return {
        **first,
        "time_to_first_token_s": median(look["time_to_first_token_s"] for look in looks),
        "decode_tokens_per_second": median(look["decode_tokens_per_second"] for look in looks),
        "peak_memory_bytes": int(statistics.median(look["peak_memory_bytes"] for look in looks)),
        "stages_s": {
            name: median(look["stages_s"][name] for look in looks) for name in first["stages_s"]
        },
    }


def record(
    base: str,
    examples: Path,
    repetitions: int,
    words: Sequence[str],
    *,
    shares: Sequence[float] = SHARES,
    dtype: str | None = None,
    skip_bad: bool = False,
) -> dict[str, Any]:
    """Compare every example in the folder `examples`; the whole report, as it is written.

    Args:
        base: "bundled", a Hub id or a folder.
        examples: folder with `examples.json`.
        repetitions: of each comparison, 1 or more.
        words: the command's arguments as typed, for the report.
        shares: of the tokens, that each is compared at besides the usual one.
        dtype: of the base, one of `config.DTYPES`; None as `ARR_COC_DTYPE`.
        skip_bad: whether examples whose pictures cannot be read are left out.

    Raises:
        ValueError: for pictures that cannot be read, before the base is loaded.
    """
    from tqdm import tqdm

    from arr_coc import provenance
    from arr_coc.qwen.loading import folder_of
    from arr_coc.qwen.model import ARRCOCQwen
    from arr_coc.qwen.weights import default_weights

    entries = json.loads((examples / "examples.json").read_text(encoding="utf-8"))
    bad = unreadable([examples], [entry["file"] for entry in entries], skip=skip_bad)
    entries = [entry for entry in entries if entry["file"] not in bad]
    folder = folder_of(base)
    model = ARRCOCQwen.from_pretrained(folder, dtype=dtype)
    own = made_with(base, folder, default_weights(model.is_bundled))
    recordings = []
    # The first comparison pays for what is set up once, so one is made that is not recorded.
    for entry in entries[:1]:
        compare_often(model, examples / entry["file"], entry["question"], 2)
    for entry in tqdm(entries, unit="example"):
        picture = examples / entry["file"]
        compared = compare_often(model, picture, entry["question"], repetitions)
        recordings.append(
            Recording(
                file=entry["file"],
                sha256=digests.of_file(picture),
                question=entry["question"],
                answer=str(entry.get("answer", "")),
                **compared,
                budgets=at_budgets(
                    model, picture, entry["question"], repetitions, compared["result"], shares
                ),
                mattered=mattered(model, picture, entry["question"], compared["result"]),
            )
        )
    about = About(
        **provenance.header("arr_coc.record", words, model.device),
        **own,
        repetitions=repetitions,
        load_average=os.getloadavg()[0],
    )
    return {"about": about, "recordings": recordings}


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Compare every example beforehand.")
    parser.add_argument(
        "--base", default="bundled", help='"bundled", a Hub id or a folder (default %(default)s)'
    )
    parser.add_argument(
        "--examples",
        type=Path,
        help="folder with examples.json (default examples/<base's name>, or else examples/qwen)",
    )
    parser.add_argument(
        "--out", type=Path, help=f"where {FILE} goes (default: beside the examples)"
    )
    parser.add_argument(
        "--repetitions", type=int, default=5, help="of each comparison (default %(default)s)"
    )
    parser.add_argument(
        "--shares", type=float, nargs="*", default=SHARES,
        help="of the tokens, besides the usual one (default %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--skip-bad", action="store_true", help="go on without pictures that cannot be read"
    )
    add_dtype(parser)
    args = parser.parse_args(argv)
    words = list(sys.argv[1:] if argv is None else argv)
    if args.repetitions < 1:
        parser.error(f"--repetitions is {args.repetitions}, expected 1 or more")
    low, high = intake.SHARE_RANGE
    if wrong := [share for share in args.shares if not low <= share <= high]:
        parser.error(f"--shares {wrong[0]:g}, expected {low} to {high:g}")
    examples = args.examples or examples_for(args.base)
    if not (examples / "examples.json").is_file():
        parser.error(f"there is no examples.json in {examples}")
    options = {"shares": args.shares, "dtype": args.dtype, "skip_bad": args.skip_bad}
    report = record(args.base, examples, args.repetitions, words, **options)
    out = args.out or examples
    out.mkdir(parents=True, exist_ok=True)
    dump(report, out / FILE)
    right = {look: sum(_is_right(r, look) for r in report["recordings"]) for look in LOOKS}
    print(json.dumps({"file": str(out / FILE), "n": len(report["recordings"]), "right": right}))


def _is_right(recording: Recording, look: str) -> bool:
    result = recording["result"][look]
    return not is_cut(result) and score_exact(result["text"], recording["answer"])


if __name__ == "__main__":
    run_command("arr_coc.record", main)
