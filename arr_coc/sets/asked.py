"""Asked: one question about a real picture, its boxes in pixels, and how what is wrong is counted."""

import logging
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

log = logging.getLogger(__name__)

Box = tuple[float, float, float, float]  # left, top, right, bottom

# A box may stick out by so many of its own units: people's corners are rounded.
EDGE = 1.0
NO_ANSWERS = "without answers"
OUTSIDE = "with a box outside the picture"
# Words without which hardly an English question is asked. Without any of them it counts as one in
# another language, for which the words' prior on the tensions knows nothing.
_ENGLISH = frozenset(
    re.findall(
        r"\w+",
        """
        a an and are at can color colour did do does find for from has have how in is it kind many
        much number of on or read say says shown text that the there this to type was what whats
        where which who whose why with year
        """,
    )
)


# What a chat template marks turns and pictures with: within a question the model would take it for those.
_MARK = re.compile(r"<\|\w+\|>")


class BadRow(ValueError):
    """A row that cannot be asked. `reason` is what many such rows have in common, for counting."""

    def __init__(self, reason: str, said: str) -> None:
        super().__init__(said)
        self.reason = reason


@dataclass(frozen=True)
class Asked:
    """One question of a row.

    Attributes:
        question: without any instruction how to answer.
        answers: what people answered, at least one.
        boxes: where the evidence is; empty where nobody knows.
        frame: width and height that the boxes are measured in; None for the picture's own pixels.
        kind: of question; accuracies are means over kinds.
        page: which of the row's pictures it is about.
    """

    question: str
    answers: tuple[str, ...]
    boxes: tuple[Box, ...] = ()
    frame: tuple[float, float] | None = None
    kind: str = "all"
    page: int = 0

    def __post_init__(self) -> None:
        """Raises BadRow for a question that holds a mark of the chat template."""
        if mark := _MARK.search(self.question):
            raise BadRow(
                "with a mark of the chat template",
                f"its question holds {mark[0]!r}, which is the chat template's",
            )


def pixel_boxes(asked: Asked, size: tuple[int, int]) -> tuple[Box, ...]:
    """The boxes of a question in pixels of its picture, whose `size` is width and height.

    Raises:
        BadRow: for a box that lies outside, has no area, or has its corners in a wrong order.
    """
    frame = asked.frame or size
    scale = (size[0] / frame[0], size[1] / frame[1])
    return tuple(_pixel_box(box, frame, scale) for box in asked.boxes)


def _pixel_box(box: Box, frame: tuple[float, float], scale: tuple[float, float]) -> Box:
    left, top, right, bottom = box
    said = f"box {[round(side, 2) for side in box]} of a picture of {frame[0]:g} x {frame[1]:g}"
    if not all(math.isfinite(side) for side in box):
        raise BadRow("with a box that is no numbers", f"{said}, expected numbers")
    if left > right or top > bottom:
        raise BadRow(
            "with a box whose corners are in a wrong order",
            f"{said}, expected left, top, right, bottom",
        )
    if left == right or top == bottom:
        raise BadRow("with a box of no area", f"{said} has no area")
    inside = left >= -EDGE and top >= -EDGE
    inside = inside and right <= frame[0] + EDGE and bottom <= frame[1] + EDGE
    clipped = (max(left, 0), max(top, 0), min(right, frame[0]), min(bottom, frame[1]))
    if not inside or clipped[0] >= clipped[2] or clipped[1] >= clipped[3]:
        raise BadRow(OUTSIDE, f"{said} lies outside it")
    return tuple(side * scale[axis % 2] for axis, side in enumerate(clipped))


def is_english(question: str) -> bool:
    """Whether any of the words that English questions are made of is in it."""
    return not _ENGLISH.isdisjoint(re.findall(r"[a-z]+", question.lower()))


class Counts:
    """What was read of a set and what was left out, by reason; one of them says it all in a line."""

    def __init__(self, name: str, skip_bad: bool) -> None:
        """`skip_bad`: bad rows are counted and left out; otherwise the first one is an error."""
        self.name, self.skip_bad = name, skip_bad
        self.read, self.foreign = 0, 0
        self.left_out: Counter[str] = Counter()

    def take(self, question: str) -> None:
        """Count a question that will be asked."""
        self.read += 1
        self.foreign += not is_english(question)

    def leave_out(self, error: BadRow, row: object) -> None:
        """Count a row that will not be; raise ValueError where it is bad and is not to be skipped.

        A row without answers is never an error: test splits come without.
        """
        if error.reason != NO_ANSWERS and not self.skip_bad:
            raise ValueError(
                f"row {row} of {self.name}: {error}; --skip-bad counts such rows and leaves them out"
            ) from error
        self.left_out[error.reason] += 1

    @property
    def about(self) -> dict[str, object]:
        """For a report."""
        own: dict[str, object] = {"questions": self.read}
        if self.left_out:
            own["left_out"] = dict(self.left_out)
        if self.foreign:
            own["not_english"] = self.foreign
        return own

    def say(self) -> None:
        """Log what is worth knowing; ValueError where no question is left."""
        parts = [f"{count} {reason}" for reason, count in self.left_out.most_common()]
        if not self.read:
            found = f"only questions {', '.join(parts)}" if parts else "no questions"
            raise ValueError(f"{self.name} has {found}, expected at least one with an answer")
        if parts:
            log.warning("%s: %d questions; left out: %s", self.name, self.read, ", ".join(parts))
        if self.foreign:
            log.warning(
                "%s: %d of %d questions are not in English; their words say nothing to the prior on "
                "the tensions",
                self.name, self.foreign, self.read,
            )  # fmt: skip


def truths_of(answers: object) -> tuple[str, ...]:
    """Answers as sets give them: one string or number, several, or records with an `answer`.

    Of columns, as a record of lists has them, `answer` or `text`.

    Raises:
        BadRow: where there are none.
    """
    if isinstance(answers, Mapping):
        answers = answers.get("answer", answers.get("text"))
    is_one = isinstance(answers, str | int | float)
    several = [answers] if is_one else list(answers) if isinstance(answers, Iterable) else []
    truths = (each.get("answer") if isinstance(each, Mapping) else each for each in several)
    truths = tuple(str(truth).strip() for truth in truths if truth is not None)
    truths = tuple(truth for truth in truths if truth)
    if not truths:
        raise BadRow(NO_ANSWERS, "it has no answers, expected at least one")
    return truths


def boxes_of(given: object) -> tuple[Box, ...]:
    """Boxes as sets give them: one or several, each four numbers or a string of them; None for none.

    Raises:
        BadRow: for what are no boxes.
    """
    if given is None:
        return ()
    several: Sequence = [given] if _is_one(given) else list(given)
    return tuple(_four(box) for box in several if box is not None)


def _is_one(given: object) -> bool:
    """Whether it is one box and no list of them."""
    if isinstance(given, str):
        return True
    return all(isinstance(side, int | float) for side in given) and len(given) > 0


def _four(box: object) -> Box:
    numbers = re.findall(r"-?\d+(?:\.\d+)?", box) if isinstance(box, str) else list(box)
    try:
        sides = tuple(float(side) for side in numbers)
    except (TypeError, ValueError):
        sides = ()
    if len(sides) != 4:
        raise BadRow("with a box that is no numbers", f"box {box!r}, expected four numbers")
    return sides
