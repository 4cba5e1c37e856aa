"""Readers: what the columns of each known set mean. The set is told by its columns, or named.

A reader turns one row into its questions, `asked.Asked`. Pictures are not decoded here.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from arr_coc.sets.asked import NO_ANSWERS, Asked, BadRow, boxes_of, truths_of

Row = Mapping[str, Any]
DOCUMENT = (1000.0, 1000.0)  # BoundingDocs measures every page in thousandths
CHOICES = "\nChoices:"  # heads the lettered lines of a turn of The Cauldron


@dataclass(frozen=True)
class Reader:
    """One set's columns.

    Attributes:
        name: as on the command line.
        columns: those that tell the set from others.
        image: column of the picture, or of a list of them.
        keys: columns of which the first that is there names the picture; none of them: its bytes do.
        ask: a row's questions; raises BadRow. Where a row holds several, a BadRow stands in the
            place of one that is bad alone.
        has_pages: whether a row may have several pictures, of which each question names its own.
    """

    name: str
    columns: frozenset[str]
    image: str
    keys: tuple[str, ...]
    ask: Callable[[Row], Iterable[Asked | BadRow]]
    has_pages: bool = False


def _question(row: Row) -> str:
    question = str(row.get("question") or "").strip()
    if not question:
        raise BadRow("without a question", "it has no question")
    return question


def _plain(row: Row) -> list[Asked]:
    """`question`, `answers` or `answer`; `boxes` in pixels and `kind` where there are any."""
    answers = row.get("answers")
    is_none = answers is None or (hasattr(answers, "__len__") and len(answers) == 0)
    truths = truths_of(row.get("answer") if is_none else answers)
    kind = str(row.get("kind") or "all")
    return [Asked(_question(row), truths, boxes_of(row.get("boxes")), kind=kind)]


def _visual_cot(row: Row) -> list[Asked]:
    """`bboxs` in pixels of a picture of `width` and `height`."""
    sides = (row.get("width"), row.get("height"))
    frame = (float(sides[0]), float(sides[1])) if all(sides) else None
    kind = str(row.get("dataset") or "all")
    truths, boxes = truths_of(row.get("answer")), boxes_of(row.get("bboxs"))
    return [Asked(_question(row), truths, boxes, frame, kind)]


def _vqav2(row: Row) -> list[Asked]:
    """Ten people's `answers`; where there are none, the one they mostly gave."""
    truths = truths_of(row.get("answers") or row.get("multiple_choice_answer"))
    return [Asked(_question(row), truths, kind=str(row.get("answer_type") or "all"))]


def _document(row: Row) -> list[Asked]:
    """TextVQA and DocVQA: a question and a list of answers."""
    return [Asked(_question(row), truths_of(row.get("answers")))]


def _each(make: Callable[[Any], Asked], entries: Iterable[Any]) -> Iterator[Asked | BadRow]:
    """What is made of each entry of a row; a BadRow in the place of one that is bad alone."""
    for entry in entries:
        try:
            asked = make(entry)
        except BadRow as bad:
            yield bad
        else:
            yield asked


def _bounding_docs(row: Row) -> Iterator[Asked | BadRow]:
    """`Q&A`, JSON by id: a question, answers with a page from 1 and the boxes of their words.

    A box is width, height, left, top, in thousandths of the page.
    """
    try:
        entries = json.loads(row["Q&A"] or "{}")
    except ValueError as error:
        raise BadRow("with broken JSON", f"its Q&A is no JSON: {error}") from error
    kind = str(row.get("source") or "all")
    several = entries.values() if isinstance(entries, dict) else entries
    return _each(partial(_bounding_doc, kind), several)


def _bounding_doc(kind: str, entry: Row) -> Asked:
    answers = [answer for answer in entry.get("answers") or () if answer.get("value")]
    if not answers:
        raise BadRow(NO_ANSWERS, "it has no answers, expected at least one")
    page = int(answers[0].get("page") or 1)
    here = [answer for answer in answers if int(answer.get("page") or 1) == page]
    located = [box for answer in here for box in answer.get("location") or ()]
    if any(len(box) != 4 for box in located):
        raise BadRow("with a box that is no numbers", f"boxes {located}, expected fours")
    boxes = tuple((x, y, x + w, y + h) for w, h, x, y in located)
    question, truths = _question(entry), truths_of([answer["value"] for answer in answers])
    return Asked(question, truths, boxes, DOCUMENT, kind, page - 1)


def _cauldron(row: Row) -> Iterator[Asked | BadRow]:
    """`texts` of turns between a user and an assistant, about one picture of `images`."""
    return _each(_turn, row.get("texts") or ())


def _turn(turn: Row) -> Asked:
    user, assistant = (str(turn.get(side) or "").strip() for side in ("user", "assistant"))
    if not user:
        raise BadRow("without a question", "it has no question")
    if not assistant:
        raise BadRow(NO_ANSWERS, "it has no answers, expected at least one")
    return Asked(*_short_turn(user, assistant), kind=str(turn.get("source") or "all"))


def _short_turn(user: str, assistant: str) -> tuple[str, tuple[str, ...]]:
    """A turn as question and answer: the first line asks, what follows it says how to answer.

    Where it gives choices, all of it asks: the answer is one of their letters.
    """
    answer = assistant.removeprefix("Answer:").strip().removesuffix(".")
    return user if CHOICES in user else user.splitlines()[0].strip(), (answer,)


# In the order in which they are tried: the fewer sets have the columns, the earlier.
READERS = {
    reader.name: reader
    for reader in (
        Reader("boundingdocs", frozenset({"Q&A", "doc_images"}), "doc_images",
               ("doc_id",), _bounding_docs, has_pages=True),
        Reader("cauldron", frozenset({"images", "texts"}), "images", (), _cauldron),
        Reader("visual-cot", frozenset({"bboxs", "question", "image"}), "image", ("image",), _visual_cot),
        Reader("vqav2", frozenset({"multiple_choice_answer", "question", "image"}), "image",
               ("image_id",), _vqav2),
        Reader("docvqa", frozenset({"ucsf_document_id", "question", "image"}), "image",
               ("docId",), _document),
        Reader("textvqa", frozenset({"ocr_tokens", "question", "image"}), "image",
               ("image_id",), _document),
        Reader("plain", frozenset({"question", "image"}), "image", ("image_id",), _plain),
    )
}  # fmt: skip


def reader_for(columns: Iterable[str], name: str, wanted: str | None = None) -> Reader:
    """The reader of a set with these columns.

    Args:
        columns: of the set.
        name: of the set, for the error.
        wanted: key of `READERS`; None takes the first that fits.

    Raises:
        ValueError: where none fits, or the wanted one does not.
    """
    columns = set(columns)
    if wanted:
        if missing := READERS[wanted].columns - columns:
            raise ValueError(
                f"{name} has the columns {sorted(columns)}; {wanted} also needs {sorted(missing)}"
            )
        return READERS[wanted]
    for reader in READERS.values():
        if reader.columns <= columns:
            return reader
    forms = "; ".join(f"{key}: {', '.join(sorted(r.columns))}" for key, r in READERS.items())
    raise ValueError(f"{name} has the columns {sorted(columns)}, expected those of one of {forms}")
