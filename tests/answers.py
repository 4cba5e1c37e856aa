"""What the bundled model answers and keeps on development questions, to hold two commits together.

    python -m tests.answers --out before.json                      # on one commit
    python -m tests.answers --out after.json --against before.json   # on another

Every question is asked of the full look, of the focused look at 10 and 20 %, and with the tokens cut after
the encoder; texts, kept cells and token counts are written. `--against` fails where any of them differs.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tqdm import tqdm

from arr_coc.qwen import ARRCOCQwen
from arr_coc.scenes.scene import make_scene

FIRST_SEED = 987_000_000
LOOKS = {
    "full": None,
    "20 %": {},
    "10 %": {"share": 0.10},
    "20 %, after the encoder": {"prune": "after"},
}


def answers(n: int, seed: int) -> list[dict]:
    """One row per question: what each look answered, which cells it kept, how many tokens it held."""
    host, rows = ARRCOCQwen.from_pretrained(), []
    with tqdm(total=n, unit="question") as bar:
        while len(rows) < n:
            scene = make_scene(seed)
            for question in scene.questions[: n - len(rows)]:
                rows.append({"seed": seed, "question": question.text})
                default = host.realize(scene.image, question.text).config
                for name, changes in LOOKS.items():
                    config = None if changes is None else replace(default, **changes)
                    answer = host.generate(
                        scene.image, question.text, config is not None, config=config
                    )
                    kept = answer.realization and answer.realization.allocation.cells.tolist()
                    tokens = answer.measures.visual_tokens
                    rows[-1][name] = {"text": answer.text, "tokens": tokens, "kept": kept}
                bar.update()
            seed += 1
    return rows


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=200, help="questions (default %(default)s)")
    parser.add_argument("--seed", type=int, default=FIRST_SEED, help="first scene")
    parser.add_argument("--out", type=Path, required=True, help="json to write")
    parser.add_argument("--against", type=Path, help="json of another commit to compare with")
    args = parser.parse_args(argv)
    rows = answers(args.n, args.seed)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(rows) + "\n")
    apart = []
    if args.against:
        before = json.loads(args.against.read_text())
        apart = [(a, b) for a, b in zip(before, rows, strict=True) if a != b]
        for a, b in apart[:9]:
            print(json.dumps([a, b]), file=sys.stderr)
    print(json.dumps({"n": len(rows), "apart": len(apart) if args.against else None}))
    sys.exit(1 if apart else 0)


if __name__ == "__main__":
    main()
