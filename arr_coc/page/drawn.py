"""Page drawn: a new picture whose truth is known, and a sign with the visitor's own word on it.

Drawn by `scenes` from seeds below its test seeds. Questions are of the kinds that the base can
answer, read from the scores it was published with.
"""

import json
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from arr_coc.page.wording import tidy
from arr_coc.service import intake

SCORES = Path(__file__).parent.parent / "bundled" / "base" / "scores.json"
GOOD = 0.8  # share of right answers at the native size from which a kind is offered
QUESTIONS = 3  # of a new picture
TRIES = 40
LONGEST = 8
SIGN_KINDS = ("number", "word")


@dataclass(frozen=True)
class NewPicture:
    """A drawn picture (RGB) and up to three `(question, answer)`."""

    image: Image.Image
    questions: tuple[tuple[str, str], ...]
    seed: int


def good_kinds(scores: Path = SCORES) -> tuple[str, ...]:
    """Kinds of question of which the base answers at least `GOOD` at the native size.

    Best first; the two best where none reaches it.
    """
    share = _right(scores, "native")
    ranked = sorted(share, key=lambda kind: -share[kind])
    return tuple(kind for kind in ranked if share[kind] >= GOOD) or tuple(ranked[:2])


def weak_kinds(scores: Path = SCORES) -> tuple[str, ...]:
    """Kinds of question of which the base answers less than `GOOD` in large pictures, weakest first.

    Of a base that was not scored on those, at the native size.
    """
    share = _right(scores, "large") or _right(scores, "native")
    return tuple(kind for kind in sorted(share, key=share.__getitem__) if share[kind] < GOOD)


def _right(scores: Path, at: str) -> dict[str, float]:
    """The share of right answers by kind, at one of the sizes that a base was scored at."""
    kinds = json.loads(scores.read_text(encoding="utf-8")).get(at, {}).get("kinds", {})
    return {kind: score["right"] / score["n"] for kind, score in kinds.items()}


def all_kinds() -> tuple[str, ...]:
    """Every kind of question that scenes know, for a base that was not trained on them."""
    from arr_coc.scenes.questions import KINDS

    return tuple(KINDS)


def can_read(kinds: Sequence[str]) -> bool:
    """Whether something may be written on a sign for a base that is good at `kinds`."""
    return bool(set(kinds) & set(SIGN_KINDS))


def new_picture(kinds: Sequence[str], seed: int | None = None) -> NewPicture:
    """A scene of a random seed with three questions, of different kinds where it can be.

    Args:
        kinds: of question, at least one.
        seed: the first to try, below `scene.TEST_SEED`; None takes a random one.

    Raises:
        IntakeError: where no scene of these kinds could be drawn.
    """
    from arr_coc.scenes.scene import TEST_SEED, make_scene

    first = random.randrange(TEST_SEED - TRIES) if seed is None else seed
    for tried in range(first, first + TRIES):
        scene = make_scene(tried, kinds=tuple(kinds))
        by_kind: dict[str, list[tuple[str, str]]] = {}
        for question in scene.questions:
            by_kind.setdefault(question.kind, []).append((tidy(question.text), question.answer))
        questions = list(_one_of_each(by_kind))[:QUESTIONS]
        if len(questions) == QUESTIONS or (questions and tried == first + TRIES - 1):
            return NewPicture(scene.image, tuple(questions), tried)
    raise intake.IntakeError("No picture of that kind could be drawn; try again.")


def _one_of_each(by_kind: dict[str, list[tuple[str, str]]]) -> Iterator[tuple[str, str]]:
    """Questions in rounds: one of each kind, then the second of each, ..."""
    for turn in range(max(map(len, by_kind.values()), default=0)):
        for questions in by_kind.values():
            if turn < len(questions):
                yield questions[turn]


def clean_writing(text: str) -> str:
    """What may stand on a sign: 1 to 8 letters or digits, `$` and `=` among them; IntakeError otherwise."""
    cleaned = intake.clean_question(text) if str(text or "").strip() else ""
    if len(cleaned) > LONGEST:
        raise intake.IntakeError(
            f"A sign holds at most {LONGEST} letters; this has {len(cleaned)}."
        )
    if not re.fullmatch(rf"(?=.*[A-Za-z0-9])[A-Za-z0-9$=]{{1,{LONGEST}}}", cleaned):
        raise intake.IntakeError(
            f"A sign has room for 1 to {LONGEST} letters or digits (A to Z, 0 to 9, $, =)."
        )
    return cleaned


def was_learned(text: str) -> bool:
    """Whether the bundled base met such writing on signs: its words, and numbers of two digits."""
    from arr_coc.scenes import writing

    text = str(text).strip().lower()
    return text in writing.WORDS or bool(re.fullmatch(r"\d{2}", text))


def sign_with(text: str, seed: int | None = None) -> NewPicture:
    """A street with the visitor's own word or number on a small plate, and the question for it.

    Raises:
        IntakeError: for a text that does not fit on a sign.
    """
    import numpy as np

    from arr_coc.scenes import writing
    from arr_coc.scenes.scene import TEST_SEED, make_scene

    text = clean_writing(text)
    kind = "number" if text.isdigit() else "word"
    first = random.randrange(TEST_SEED - TRIES) if seed is None else seed
    for tried in range(first, first + TRIES):
        scene = make_scene(tried, kinds=(kind,))
        for question in scene.questions:
            thing = next((t for t in scene.objects if t.detail == question.answer), None)
            if thing is None or not thing.detail_box:
                continue
            picture = scene.image.copy()
            _wipe(picture, thing.detail_box)
            area = _around(thing.detail_box, thing.box)
            rng = np.random.default_rng(tried)
            writing.plate(rng, picture, text, area, 1.0, at="anywhere")
            return NewPicture(picture, ((tidy(question.text), text.lower()),), tried)
    raise intake.IntakeError("No sign could be drawn; try again.")


def _wipe(picture: Image.Image, box: Sequence[float]) -> None:
    """Paint over a small plate with the colour just beside it."""
    left, top, right, bottom = (int(v) for v in box)
    column = (max(0, left - 2), top, max(1, left - 1), bottom + 1)
    beside = picture.crop(column).resize((1, 1), Image.Resampling.BOX).getpixel((0, 0))
    picture.paste(beside, (left - 1, top - 1, right + 2, bottom + 2))


def _around(box: Sequence[float], limit: Sequence[float]) -> tuple[float, float, float, float]:
    """`box` widened to a third more on each side, within `limit`."""
    across, down = (box[2] - box[0]) / 3, (box[3] - box[1]) / 6
    inset = 0.12 * (limit[2] - limit[0])
    return (
        max(limit[0] + inset, box[0] - across),
        max(limit[1], box[1] - down),
        min(limit[2] - inset, box[2] + across),
        min(limit[3], box[3] + down),
    )
