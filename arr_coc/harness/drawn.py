"""Drawn: scenes as a folder that `evaluate --folder`, training and the writers for harnesses read."""

import json
from collections import Counter
from pathlib import Path

from tqdm import tqdm

from arr_coc.scenes.questions import KINDS
from arr_coc.scenes.scene import make_scene

LIST = "questions.json"
TRIED = 60  # scenes for each that is wanted, after which there are too few


def write_scenes(
    out: Path, n: int, seed: int, size: tuple[int, int], kinds: tuple[str, ...] = tuple(KINDS)
) -> dict[str, int]:
    """Draw scenes, each asked the question whose kind was asked least so far.

    Args:
        out: an empty or new folder, for `questions.json` and a PNG of each scene.
        n: scenes and questions.
        seed: of the first scene; those that hold no question of the kinds are left out.
        size: of a picture, width and height in pixels.
        kinds: of question.

    Returns:
        How often each kind is asked.

    Raises:
        ValueError: for a folder that holds a list, fewer than one scene, an unknown kind.
    """
    if n < 1:
        raise ValueError(f"n is {n}, expected at least one scene")
    if unknown := sorted(set(kinds) - set(KINDS)):
        raise ValueError(f"unknown kinds {unknown}; known: {', '.join(KINDS)}")
    if (out / LIST).exists():
        raise ValueError(f"{out} holds {LIST} already, expected a new folder")
    out.mkdir(parents=True, exist_ok=True)
    first, rows, asked_for = seed, [], Counter(dict.fromkeys(kinds, 0))
    with tqdm(total=n, desc="scenes") as bar:
        while len(rows) < n:
            scene = make_scene(seed, size=size)
            open_to = [one for one in scene.questions if one.kind in asked_for]
            if open_to:
                question = min(open_to, key=lambda one: asked_for[one.kind])
                asked_for[question.kind] += 1
                scene.image.save(out / f"{seed}.png")
                row = {"image": f"{seed}.png", "question": question.text}
                row |= {"answers": [question.answer], "kind": question.kind}
                rows.append(row | {"boxes": [list(box) for box in question.boxes]})
                bar.update()
            elif seed - first >= TRIED * n:
                raise ValueError(
                    f"{len(rows)} of {n} scenes of {size[0]} x {size[1]} pixels ask for "
                    f"{', '.join(kinds)} among {seed - first}: expected other kinds or a larger --size"
                )
            seed += 1
    (out / LIST).write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return dict(asked_for)
