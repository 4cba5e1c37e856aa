"""A whole run of lmms-eval without a network, held to `arr_coc.evaluate` question by question.

    python -m arr_coc.harness.environment --at runs/lmms
    python -m tests.harness_proof --lmms runs/lmms --work runs/harness --out results/harness.json

Draws development scenes as a folder, has `evaluate --folder` answer them here and lmms-eval in its own
environment, and counts the questions on which the two agree. What is done already in the work folder is not
done again.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from arr_coc import provenance
from arr_coc.evaluate import store
from arr_coc.harness.__main__ import TASK
from arr_coc.harness.__main__ import main as harness
from arr_coc.harness.drawn import LIST
from arr_coc.scenes.scene import DEV_SEED

ROOT = Path(__file__).parent.parent
WEIGHTS = "arr_coc/bundled/arr-coc"
SHARE = 0.2
# How lmms-eval is told to look, and the rows of evaluate that it is held to.
LOOKS = {"stock": ("stock", 1.0), "focused": ("arr-coc", SHARE), "shrunk": ("downsample", SHARE)}
WHAT = "lmms-eval beside `evaluate --folder` on drawn development scenes, bundled base, CPU"
OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "WANDB_MODE": "disabled"}
SAMPLES, REPORT = "*_samples_*.jsonl", "*_results.json"


def evaluated(folder: Path, out: Path) -> None:
    """Have `evaluate` answer the folder, all looks."""
    methods = [method for method, _ in LOOKS.values()]
    words = ["--out", out, "--folder", folder, "--weights", WEIGHTS, "--instruction", ""]
    words += ["--methods", *methods, "--budgets", str(SHARE), "--resume"]
    subprocess.run([sys.executable, "-m", "arr_coc.evaluate", *words], cwd=ROOT, check=True)


def harnessed(python: Path, tasks: Path, look: str, out: Path) -> None:
    """Have lmms-eval answer the task with one look."""
    told = f"pretrained=bundled,weights={WEIGHTS},look={look},share={SHARE},device=cpu"
    words = ["--model", "arr_coc", "--model_args", told, "--tasks", TASK, "--include_path", tasks]
    words += ["--output_path", out, "--log_samples", "--batch_size", "1"]
    env = os.environ | OFFLINE | {"HF_HOME": str(out / "cache")}
    subprocess.run([python, "-m", "lmms_eval", *words], cwd=ROOT, env=env, check=True)


def found(folder: Path, pattern: str) -> Path | None:
    """The newest file of a pattern below a folder."""
    return max(folder.rglob(pattern), key=lambda path: path.stat().st_mtime, default=None)


def lines(path: Path) -> list[dict[str, Any]]:
    """The objects of a file that has one a line."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def compared(tasks: Path, out: Path, rows: dict[Any, dict[str, Any]]) -> dict[str, Any]:
    """One look's answers beside those of evaluate."""
    told, docs = json.loads(found(out, REPORT).read_text()), lines(tasks / f"{TASK}.jsonl")
    samples = {sample["doc_id"]: sample for sample in lines(found(out, SAMPLES))}
    theirs = {(docs[n]["picture"], docs[n]["index"]): sample for n, sample in samples.items()}
    own = {(ref.picture, ref.index): row for ref, row in rows.items()}
    if set(theirs) != set(own):
        raise ValueError(
            f"{len(theirs)} questions there and {len(own)} here, expected the same ones"
        )
    apart = [
        {"picture": key[0], "here": own[key]["answer"], "there": one["filtered_resps"]}
        for key, one in theirs.items()
        if one["right"] != own[key]["right"]
    ]
    return {
        "n": len(own),
        "right_here": round(fmean(row["right"] for row in own.values()), 4),
        "right_there": told["results"][TASK]["right,none"],
        "exact_match_there": told["results"][TASK]["exact_match,none"],
        "correct_alike": len(own) - len(apart),
        "same_words": sum(
            one["filtered_resps"] == own[key]["answer"] for key, one in theirs.items()
        ),
        "apart": apart,
        "throughput": told.get("throughput"),
    }


def main(argv: Sequence[str] | None = None) -> None:
    """Run what is missing; write the report; the last line is JSON."""
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--lmms", type=Path, required=True, help="lmms-eval's environment")
    p.add_argument("--work", type=Path, required=True, help="folder for everything in between")
    p.add_argument("--out", type=Path, required=True, help="JSON to write")
    p.add_argument("--n", type=int, default=64, help="questions, one a scene")
    args = p.parse_args(argv)
    work = args.work.resolve()
    folder, tasks = work / "scenes", work / "tasks"
    if not (folder / LIST).exists():
        harness(["scenes", "--out", str(folder), "--n", str(args.n), "--seed", str(DEV_SEED)])
    harness(["task", "--folder", str(folder), "--out", str(tasks), "--instruction", ""])
    evaluated(folder, work / "evaluate")
    python, table = (args.lmms / "bin" / "python").absolute(), store.read_rows(work / "evaluate")
    looks = {}
    for look, pair in LOOKS.items():
        out = work / look
        if not found(out, REPORT):
            harnessed(python, tasks, look, out)
        looks[look] = compared(tasks, out, store.rows_of(table, pair))
    code = "from importlib.metadata import version; print(version('lmms-eval'))"
    version = subprocess.check_output([python, "-c", code], text=True).strip()
    head = provenance.header("tests.harness_proof", provenance.typed(argv), torch.device("cpu"))
    report = {"what": WHAT, **head, "n": args.n, "lmms_eval": version, "looks": looks}
    args.out.write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps({name: (one["correct_alike"], one["n"]) for name, one in looks.items()}))


if __name__ == "__main__":
    main()
