"""Candidates for the cards of a base: drawn pictures whose questions make something visible.

    python -m tests.cards --layout street --kinds number --first 900100000 --n 40 --out runs/cards

Draws scenes of development seeds, saves each as a card's picture is saved, and asks that very file: in full
first, then, where that is right, focused at 20 and at 5 % and shrunk to as few tokens. Writes the pictures
that have a question with the wished `--show` and `candidates.json`: entries as `examples.json` has them,
with what each look said. Who puts cards together picks from these by eye.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from PIL import Image

from arr_coc.qwen.loading import BUNDLED_BASE
from arr_coc.qwen.model import ARRCOCQwen
from arr_coc.qwen.weights import default_weights
from arr_coc.scenes.hands import ANY
from arr_coc.scenes.layouts import LAYOUTS
from arr_coc.scenes.questions import Question
from arr_coc.scenes.scene import DEV_SEED, TEST_SEED, Scene, make_scene
from arr_coc.scoring import score_exact
from arr_coc.service import comparing

FEW, USUAL = 0.05, 0.2
QUALITY = 90  # of a card's JPEG
# What a card can make visible, by the looks that are right: full, focused, focused on few, shrunk.
SHOWS = {
    "detail": (True, True, None, False),
    "detail-few": (True, True, True, False),
    "whole": (True, True, None, True),
    "fails": (True, False, None, None),
    "any": (True, None, None, None),
}


def entry_of(scene: Scene, question: Question, file: str) -> dict[str, Any]:
    """A card as `examples.json` lists it, without its note and group."""
    text = question.text[0].upper() + question.text[1:].rstrip("?.! ") + "?"
    boxes = [[round(edge) for edge in box] for box in question.boxes]
    return {
        "file": file,
        "question": text,
        "answer": question.answer,
        "kind": question.kind,
        "seed": scene.seed,
        "size": list(scene.image.size),
        "boxes": boxes,
    }


def said_of(model: ARRCOCQwen, picture: Path, question: str) -> dict[str, str]:
    """What each look says: full, focused, on few tokens, shrunk to as many as focused keeps."""
    usual = comparing.compare(model, str(picture), question, USUAL, shrunk=True)
    few = comparing.compare(model, str(picture), question, FEW)
    looks = {"full": usual["full"], "focused": usual["focused"]}
    looks |= {"few": few["focused"], "shrunk": usual["shrunk"]}
    return {name: look["text"] if look else "" for name, look in looks.items()}


def shows(said: dict[str, str], answer: str, wished: str) -> bool:
    """Whether the looks are right and wrong as `SHOWS[wished]` has it."""
    right = (bool(score_exact(text, answer)) for text in said.values())
    return all(want in (None, is_) for want, is_ in zip(SHOWS[wished], right, strict=True))


def candidates(model: ARRCOCQwen, scene: Scene, picture: Path, wished: str) -> list[dict[str, Any]]:
    """The scene's questions that show what is wished, each as an entry with what was `said`."""
    found = []
    for question in scene.questions:
        entry = entry_of(scene, question, picture.name)
        full = model.generate(Image.open(picture), entry["question"], use_arr_coc=False)
        if not score_exact(full.text, question.answer):
            continue
        said = said_of(model, picture, entry["question"])
        if shows(said, question.answer, wished):
            found.append(entry | {"said": said})
    return found


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--base", default=str(BUNDLED_BASE))
    parser.add_argument("--weights", help="ARR-COC's (default: those of the bundled base)")
    parser.add_argument("--layout", nargs="+", choices=sorted(LAYOUTS), metavar="LAYOUT")
    parser.add_argument("--kinds", nargs="+", metavar="KIND")
    parser.add_argument("--hand", default=ANY)
    parser.add_argument("--size", type=int, nargs=2, default=(1024, 1024))
    parser.add_argument("--first", type=int, required=True, help="seed, of the development scenes")
    parser.add_argument("--n", type=int, default=20, help="scenes")
    parser.add_argument("--show", choices=sorted(SHOWS), default="detail")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args(argv)
    if not DEV_SEED <= args.first <= TEST_SEED - args.n:
        parser.error(f"--first is {args.first}, allowed is {DEV_SEED} to {TEST_SEED - args.n}")
    weights = default_weights(True) if args.weights is None else args.weights
    model = ARRCOCQwen.from_pretrained(args.base, weights)
    args.out.mkdir(parents=True, exist_ok=True)
    listed = args.out / "candidates.json"
    entries = json.loads(listed.read_text()) if listed.is_file() else []
    for seed in range(args.first, args.first + args.n):
        how = {"size": tuple(args.size), "layouts": args.layout, "kinds": args.kinds}
        scene = make_scene(seed, world="large", hand=args.hand, **how)
        picture = args.out / f"{seed}.jpg"
        scene.image.save(picture, quality=QUALITY)
        found = candidates(model, scene, picture, args.show)
        if not found:
            picture.unlink()
        entries = [entry for entry in entries if entry["file"] != picture.name] + found
        listed.write_text(json.dumps(entries, indent=1) + "\n")
        for entry in found:
            print(picture.name, entry["question"], entry["answer"], entry["said"], flush=True)


if __name__ == "__main__":
    main()
