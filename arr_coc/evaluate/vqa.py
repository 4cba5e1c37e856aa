"""VQA: questions that people asked and answered, from a folder or a data set on the Hub."""

import json
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from PIL import Image

from arr_coc.evaluate.questions import QUESTIONS_PER_BLOCK, Item, Ref, in_blocks
from arr_coc.pictures import as_read, unreadable

SHORT = "\nAnswer the question using a single word or phrase."


class Folder:
    """A folder with images and `questions.json` (a list) or `questions.jsonl`.

    Each record has `image` (path inside the folder), `question`, `answers` (a list, or one string)
    and, if there are kinds, `kind`.
    """

    name, scoring, is_streamed = "folder", "vqa", False

    def __init__(
        self,
        folder: Path,
        n: int | None = None,
        instruction: str = SHORT,
        block: int = QUESTIONS_PER_BLOCK,
        skip_bad: bool = False,
    ) -> None:
        """`n` questions in all, None for all of them; `skip_bad` leaves out those about pictures that
        cannot be read.

        Raises:
            ValueError: for a malformed folder, or one with such pictures that are not to be skipped.
        """
        self.folder, self.instruction, self.block = Path(folder), instruction, block
        rows = list(islice(_records(self.folder), n))
        for number, row in enumerate(rows):
            if missing := {"image", "question", "answers"} - set(row):
                raise ValueError(f"record {number} of {self.folder} lacks {sorted(missing)}")
        bad = unreadable(self.folder, [str(row["image"]) for row in rows], skip=skip_bad)
        self.rows = [row for row in rows if str(row["image"]) not in bad]
        self.about = {"folder": self.folder.name, "n": len(self.rows), "instruction": instruction}
        if bad:
            self.about["skipped_pictures"] = bad

    def blocks(self, parallel: Callable = map) -> Iterator[list[Ref]]:
        """As `Source`."""
        refs = [Ref(str(row["image"]), i) for i, row in enumerate(self.rows)]
        return in_blocks(refs, self.block)

    def load(self, refs: Sequence[Ref]) -> list[Item]:
        """As `Source`."""
        rows = [(ref, self.rows[ref.index]) for ref in refs]
        return [
            vqa_item(ref, Image.open(self.folder / row["image"]), row, self.instruction)
            for ref, row in rows
        ]


class Hub:
    """A data set on the Hub in VQA form, streamed: columns `image`, `question`, `answers`.

    `answers` may be strings, or records with an `answer`; `answer` serves where there are none.
    """

    name, scoring, is_streamed = "hub", "vqa", True

    def __init__(
        self,
        dataset: str,
        split: str,
        subset: str | None = None,
        n: int | None = None,
        instruction: str = SHORT,
        block: int = QUESTIONS_PER_BLOCK,
    ) -> None:
        """`n` questions in all, None for the whole split; needs the `datasets` library."""
        try:
            from datasets import load_dataset
        except ImportError as error:
            raise ValueError(
                "--dataset needs the datasets library: pip install datasets"
            ) from error
        rows = load_dataset(dataset, subset, split=split, streaming=True)
        self.rows = rows if n is None else rows.take(n)
        self.listed: dict[int, dict[str, Any]] = {}  # records of the block that was listed last
        self.instruction, self.block = instruction, block
        self.about = {"dataset": dataset, "subset": subset, "split": split, "n": n}
        self.about["instruction"] = instruction

    def blocks(self, parallel: Callable = map) -> Iterator[list[Ref]]:
        """As `Source`, anew each time; a block's records are kept until the next one is listed."""
        rows = enumerate(self.rows)
        while block := list(islice(rows, self.block)):
            self.listed = dict(block)
            yield [Ref(str(index), index) for index in self.listed]

    def load(self, refs: Sequence[Ref]) -> list[Item]:
        """As `Source`, for the block that was listed last."""
        rows = [(ref, self.listed[ref.index]) for ref in refs]
        return [vqa_item(ref, row["image"], row, self.instruction) for ref, row in rows]


def vqa_item(ref: Ref, image: Image.Image, row: dict[str, Any], instruction: str) -> Item:
    """A record in VQA form as an item.

    Raises:
        ValueError: for a record without answers.
    """
    answers = row.get("answers", row.get("answer")) or ()
    answers = [answers] if isinstance(answers, str) else answers
    truths = tuple(str(a["answer"] if isinstance(a, dict) else a) for a in answers)
    if not truths:
        raise ValueError(f"question {ref.index} has no answers, expected at least one")
    question, kind = str(row["question"]), str(row.get("kind", "all"))
    return Item(ref, as_read(image), question, kind, truths, instruction=instruction)


def _records(folder: Path) -> list[dict[str, Any]]:
    """The records of a folder in VQA form, from its list or from its lines."""
    whole, lines = folder / "questions.json", folder / "questions.jsonl"
    if whole.exists():
        return json.loads(whole.read_text())
    if lines.exists():
        return [json.loads(line) for line in lines.read_text().splitlines() if line.strip()]
    raise ValueError(f"{folder} holds neither questions.json nor questions.jsonl")
