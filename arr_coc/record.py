"""Record: every example of a base compared beforehand, so that the page opens on a finished one.

    python -m arr_coc.record --base bundled --out examples/bundled

Asks each example of `examples/<base>/examples.json` in full, focused and shrunk, a few times, and
writes `recorded.json` beside the pictures: answers, maps, cells, tensions, every time and its
median, with commit, date and machine. `load` reads it back; it trusts only recordings whose picture
and question are still the example's.
"""

import argparse
import hashlib
import json
import statistics
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypedDict

from arr_coc import comparing
from arr_coc.comparing import ComparisonResult

FILE = "recorded.json"
ROOT = Path(__file__).parent.parent
LOOKS = ("full", "focused", "shrunk")
DIGITS = 6


class Recording(TypedDict):
    """One example's comparison, its times being medians; `times` has each repetition's, in seconds."""

    file: str
    sha256: str
    question: str
    answer: str
    result: ComparisonResult
    times: dict[str, list[float]]


class About(TypedDict):
    """What the recordings were made with."""

    command: str
    commit: str
    date: str
    base: str
    base_sha256: str
    weights_sha256: str  # of ARR-COC's; empty where it is training-free or not a folder
    repetitions: int
    machine: dict[str, Any]


def examples_for(base: str) -> Path:
    """The folder of a base's examples: its own, or the photographs that suit any Qwen3-VL.

    Args:
        base: "bundled", a Hub id or a folder.
    """
    bundled = Path(__file__).parent / "bundled" / "base"
    name = "bundled" if Path(base).resolve() == bundled.resolve() else Path(base).name
    own = ROOT / "examples" / name
    return own if (own / "examples.json").is_file() else ROOT / "examples" / "qwen"


def load(folder: Path) -> tuple[About | None, list[Recording]]:
    """What was recorded and the recordings; (None, []) where there is no readable file."""
    path = folder / FILE
    if not path.is_file():
        return None, []
    report = json.loads(path.read_text(encoding="utf-8"))
    return report["about"], report["recordings"]


def find(recordings: Iterable[Recording], picture: Path, question: str) -> Recording | None:
    """The recording of that very picture and question, or None."""
    for recording in recordings:
        if recording["file"] == picture.name and recording["question"] == question:
            return recording if recording["sha256"] == digest(picture) else None
    return None


def digest(path: Path) -> str:
    """SHA-256 of a file, in hex."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def compare_often(model: Any, picture: Path, question: str, repetitions: int) -> dict[str, Any]:
    """The comparison's `result` with median times, and the `times` to the first token."""
    runs = [
        comparing.compare(model, str(picture), question, shrunk=True) for _ in range(repetitions)
    ]
    result = runs[0]
    for run in runs:
        for look in LOOKS:
            if run[look] is None or run[look]["error"]:
                raise RuntimeError(f"{picture.name}: the {look} look failed: {run[look]}")
    for look in LOOKS:
        result[look] = median_look([run[look] for run in runs])
    result["ratio"] = round(statistics.median(run["ratio"] for run in runs), 3)
    result["model"] = Path(result["model"]).name
    times = {look: [run[look]["time_to_first_token_s"] for run in runs] for look in LOOKS}
    return {"result": result, "times": times}


def median_look(looks: list[comparing.LookResult]) -> comparing.LookResult:
    """The first look with the median of each measured time and rate, and of the peak memory."""

    def median(values):
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


def record(base: str, examples: Path, repetitions: int) -> dict[str, Any]:
    """Compare every example in the folder `examples`; the whole report, as it is written."""
    from tqdm import tqdm

    from arr_coc import measuring
    from arr_coc.loading import BUNDLED_BASE, default_weights
    from arr_coc.qwen import ARRCOCQwen

    folder = BUNDLED_BASE if base == "bundled" else base
    model = ARRCOCQwen.from_pretrained(folder)
    files = [
        Path(f or "none") / "model.safetensors" for f in (folder, default_weights(model.is_bundled))
    ]
    base_sha256, weights_sha256 = (digest(file) if file.is_file() else "" for file in files)
    entries = json.loads((examples / "examples.json").read_text(encoding="utf-8"))
    recordings = []
    for entry in entries[:1]:  # what comes first pays for what is set up once
        compare_often(model, examples / entry["file"], entry["question"], 2)
    for entry in tqdm(entries, unit="example"):
        picture = examples / entry["file"]
        compared = compare_often(model, picture, entry["question"], repetitions)
        recordings.append(
            Recording(
                file=entry["file"],
                sha256=digest(picture),
                question=entry["question"],
                answer=str(entry.get("answer", "")),
                **compared,
            )
        )
    about = About(
        command=f"python -m arr_coc.record --base {base} --repetitions {repetitions}",
        commit=measuring.commit() or "",
        date=datetime.now(UTC).date().isoformat(),
        base=base,
        base_sha256=base_sha256,
        weights_sha256=weights_sha256,
        repetitions=repetitions,
        machine=measuring.machine(model.device),
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
    args = parser.parse_args(argv)
    if args.repetitions < 1:
        parser.error(f"--repetitions is {args.repetitions}, expected 1 or more")
    examples = args.examples or examples_for(args.base)
    if not (examples / "examples.json").is_file():
        parser.error(f"there is no examples.json in {examples}")
    report = record(args.base, examples, args.repetitions)
    out = args.out or examples
    out.mkdir(parents=True, exist_ok=True)
    (out / FILE).write_text(json.dumps(report, separators=(",", ":")) + "\n", encoding="utf-8")
    right = {look: sum(_is_right(r, look) for r in report["recordings"]) for look in LOOKS}
    print(json.dumps({"file": str(out / FILE), "n": len(report["recordings"]), "right": right}))


def _is_right(recording: Recording, look: str) -> bool:
    from arr_coc.page_results import is_right

    return is_right(recording["result"][look]["text"], recording["answer"])


if __name__ == "__main__":
    main()
