"""VQA: questions that people asked and answered, from a folder, local parquet, or the Hub.

What the columns of a set mean, and where its rows lie, is known in `sets`; here its questions become a
`Source`. A part of the pictures can be held out: `part` says which side is asked.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from PIL import Image
from tqdm import tqdm

from arr_coc.evaluate.questions import QUESTIONS_PER_BLOCK, Item, Ref, in_blocks
from arr_coc.pictures import found_in, unreadable
from arr_coc.sets import rows as set_rows
from arr_coc.sets.asked import Asked, BadRow, Box, Counts, pixel_boxes
from arr_coc.sets.readers import Reader, reader_for
from arr_coc.sets.rows import LocalRows, is_held_out

SHORT = "\nAnswer the question using a single word or phrase."
SHOWN_FROM = 2000  # rows of a set from which on reading it shows a bar
PARTS = ("all", "train", "held-out")


@dataclass(frozen=True)
class Part:
    """Which of a set's questions are asked: those of all pictures, or of one side of a split.

    Attributes:
        side: one of `PARTS`.
        share: of the pictures that is held out, in [0, 1).
    """

    side: str = "all"
    share: float = 0.0

    def __contains__(self, key: str) -> bool:
        """Whether a picture, by what names it, belongs to this part."""
        return self.side == "all" or is_held_out(key, self.share) == (self.side == "held-out")


@dataclass(frozen=True)
class Listed:
    """One question of a set that is read by row: where it stands, and its checked boxes in pixels."""

    index: int  # among the set's questions, whichever part is asked
    row: int
    asked: Asked
    key: str  # names the picture
    size: tuple[int, int]  # of the picture: width and height in pixels
    boxes: tuple[Box, ...]


class Local:
    """A set whose rows can be had in any order; every row and picture is checked as it is opened."""

    scoring, is_streamed = "vqa", False

    def __init__(
        self,
        rows: LocalRows,
        n: int | None = None,
        instruction: str = SHORT,
        block: int = QUESTIONS_PER_BLOCK,
        skip_bad: bool = False,
        part: Part = Part(),
    ) -> None:
        """`n` questions in all, None for all of them.

        Args:
            rows: of the set.
            n: questions, the first ones of the part.
            instruction: follows each question for the model.
            block: questions in a block.
            skip_bad: whether rows that cannot be asked are counted and left out, instead of an error.
            part: which pictures are asked about.

        Raises:
            ValueError: for bad rows that are not to be skipped, or where no question is left.
        """
        self.rows, self.instruction, self.block, self.part = rows, instruction, block, part
        self.name = rows.reader.name
        self.counts = Counts(rows.name, skip_bad)
        self.listed = list(islice(self._listed(), n))
        self.by_index = {one.index: one for one in self.listed}
        self.counts.say()
        if not self.listed:
            raise ValueError(
                f"{rows.name} has no pictures in its {part.side} part at a share of {part.share:g}; "
                "expected more pictures, or another share"
            )
        self.about: dict[str, Any] = {"set": Path(rows.name).name, "reader": rows.reader.name}
        self.about |= {"n": len(self.listed), "instruction": instruction, "part": part.side}
        self.about |= self.counts.about

    def _listed(self) -> Iterator[Listed]:
        """Every question of the part, checked; others are counted."""
        sizes: dict[str, tuple[int, int]] = {}
        index = 0
        rows, reader, files = self.rows, self.rows.reader, {}
        bar = tqdm(rows.texts, desc="reading", unit="row", disable=len(rows.texts) < SHOWN_FROM)
        for number, row in enumerate(bar):
            for asked in asked_of(reader, row, self.counts, number):
                try:
                    stored = rows.stored(number, asked.page)
                    key = set_rows.picture_key(row, reader, stored, asked.page)
                    if isinstance(stored, str) and files.setdefault(key, stored) != stored:
                        raise ValueError(
                            f"{stored} and {files[key]} are both called {key}: expected names that differ"
                        )
                    if key not in sizes:
                        set_rows.check_picture(stored, rows.roots)
                        sizes[key] = set_rows.picture_size(stored, rows.roots)
                    boxes = pixel_boxes(asked, sizes[key])
                except BadRow as error:
                    self.counts.leave_out(error, number)
                    continue
                self.counts.take(asked.question)
                if key in self.part:
                    yield Listed(index, number, asked, key, sizes[key], boxes)
                index += 1

    def blocks(self, parallel: Callable = map) -> Iterator[list[Ref]]:
        """As `Source`."""
        refs = [Ref(one.key, one.index) for one in self.listed]
        return in_blocks(refs, self.block)

    def load(self, refs: Sequence[Ref]) -> list[Item]:
        """As `Source`: opens each picture once."""
        opened: dict[str, Image.Image] = {}
        items = []
        for ref in refs:
            one = self.by_index[ref.index]
            if one.key not in opened:
                opened[one.key] = self.rows.picture(one.row, one.asked.page)
            items.append(item_of(ref, opened[one.key], one.asked, one.boxes, self.instruction))
        return items


class Folder(Local):
    """A folder with images and `questions.json` (a list) or `questions.jsonl`, or a set's own files.

    Each record has `image` (path inside the folder), `question`, `answers` (a list, or one string)
    and, if there are any, `kind` and `boxes` (left, top, right, bottom, in pixels).
    """

    def __init__(
        self,
        folder: Path,
        n: int | None = None,
        *,
        skip_bad: bool = False,
        reader: str | None = None,
        pictures: Path | None = None,
        **options: Any,
    ) -> None:
        """As `Local`, with its `options`; `reader` names the columns, `pictures` where pictures lie.

        Raises:
            ValueError: for a malformed folder, or one with pictures that cannot be read and are not to
                be skipped.
        """
        rows = set_rows.folder_rows(Path(folder), reader, pictures)
        named = (row.get(rows.reader.image) for row in islice(rows.texts, n))
        names = [str(name) for name in named if name]
        bad = unreadable(rows.roots, names, skip=skip_bad)
        super().__init__(rows, n, skip_bad=skip_bad, **options)
        self.name = "folder"
        if bad:
            self.about["skipped_pictures"] = bad

    def file_of(self, one: Listed) -> Path:
        """The picture's file of one of `listed`."""
        return found_in(self.rows.roots, str(self.rows.stored(one.row, one.asked.page)))


class Hub:
    """A data set on the Hub, streamed; `sets.readers` says which columns it may have."""

    name, scoring, is_streamed = "hub", "vqa", True

    def __init__(
        self,
        dataset: str,
        split: str,
        subset: str | None = None,
        n: int | None = None,
        instruction: str = SHORT,
        block: int = QUESTIONS_PER_BLOCK,
        skip_bad: bool = False,
        part: Part = Part(),
        reader: str | None = None,
        shuffled: int | None = None,
    ) -> None:
        """`n` rows in all, None for the whole split; needs the `datasets` library.

        `shuffled` is a seed for the order of the rows, within a buffer; None leaves them as they come.
        Everything else is as for `Local`, whose bad rows are met here as the stream is read.
        """
        rows = set_rows.hub_rows(dataset, split, subset)
        rows = rows if n is None else rows.take(n)
        self.dataset = f"{dataset} ({split})"
        columns = getattr(rows, "column_names", None) or next(iter(rows), {}).keys()
        if not columns:
            raise ValueError(f"data set {self.dataset} has no rows, expected at least one")
        self.reader: Reader = reader_for(columns, f"data set {self.dataset}", reader)
        rows = set_rows.encoded_pictures(rows, self.reader.image)
        if shuffled is not None:
            rows = rows.shuffle(seed=shuffled, buffer_size=set_rows.BUFFER)
        self.rows, self.skip_bad, self.part = rows, skip_bad, part
        self.listed: dict[int, tuple[Ref, Asked, Any, tuple[Box, ...]]] = {}  # of the last block
        self.instruction, self.block = instruction, block
        self.about = {"dataset": dataset, "subset": subset, "split": split, "n": n}
        self.about |= {"reader": self.reader.name, "part": part.side, "instruction": instruction}

    def questions(
        self, *, may_be_none: bool = False
    ) -> Iterator[tuple[Ref, Asked, Any, tuple[Box, ...]]]:
        """Every question of the part, anew each time: its name, its text, its picture and boxes.

        What was left out is said when the stream has ended.

        Raises:
            ValueError: where there is no question; but for no row at all where there `may_be_none`, as
                of a worker for which there is no file.
        """
        counts, index, number = Counts(f"data set {self.dataset}", self.skip_bad), 0, -1
        for number, row in enumerate(self.rows):
            for asked in asked_of(self.reader, row, counts, number):
                try:
                    stored = set_rows.page_of(row, self.reader, asked.page)
                    key = set_rows.picture_key(row, self.reader, stored, asked.page)
                    image = set_rows.open_picture(stored)
                    boxes = pixel_boxes(asked, image.size)
                except BadRow as error:
                    counts.leave_out(error, number)
                    continue
                counts.take(asked.question)
                if key in self.part:
                    yield Ref(key, index), asked, image, boxes
                    index += 1
        self.about |= counts.about
        if number >= 0 or not may_be_none:
            counts.say()

    def blocks(self, parallel: Callable = map) -> Iterator[list[Ref]]:
        """As `Source`, anew each time; a block's questions are kept until the next one is listed."""
        questions = self.questions()
        while block := list(islice(questions, self.block)):
            self.listed = {one[0].index: one for one in block}
            yield [one[0] for one in block]

    def load(self, refs: Sequence[Ref]) -> list[Item]:
        """As `Source`, for the block that was listed last."""
        return [self.item(self.listed[ref.index]) for ref in refs]

    def item(self, one: tuple[Ref, Asked, Any, tuple[Box, ...]]) -> Item:
        """One of `questions` as an item."""
        ref, asked, image, boxes = one
        return item_of(ref, image, asked, boxes, self.instruction)


@dataclass(frozen=True)
class SetName:
    """Where a set lies and how it is read: a folder, or else a path or Hub id of `datasets`.

    `reader` and `pictures` are as for `Folder`; `split` and `subset` are of a data set.
    """

    folder: Path | None = None
    dataset: str | None = None
    split: str = "train"
    subset: str | None = None
    reader: str | None = None
    pictures: Path | None = None

    @property
    def is_streamed(self) -> bool:
        """Whether it is read from the Hub, row after row."""
        return not self.folder and not Path(self.dataset or "").exists()


def set_of(name: SetName, *, shuffled: int | None = None, **options: Any) -> Local | Hub:
    """The questions of a set.

    Args:
        name: of the set.
        shuffled: as for `Hub`; what is local can be drawn in any order, and is not shuffled here.
        options: `n`, `instruction`, `block`, `skip_bad` and `part`, as for `Local`.

    Raises:
        ValueError: as `Local` and `Hub`.
    """
    if name.folder:
        return Folder(name.folder, reader=name.reader, pictures=name.pictures, **options)
    if name.is_streamed:
        own = {"reader": name.reader, "shuffled": shuffled}
        return Hub(name.dataset, name.split, name.subset, **own, **options)
    rows = set_rows.set_rows(Path(name.dataset), name.split, name.reader, name.pictures)
    return Local(rows, **options)


def asked_of(
    reader: Reader, row: Mapping[str, Any], counts: Counts, number: int
) -> Iterable[Asked]:
    """A row's questions; what cannot be asked is counted, or is an error."""
    try:
        for asked in reader.ask(row):
            if isinstance(asked, BadRow):
                counts.leave_out(asked, number)
            else:
                yield asked
    except BadRow as error:
        counts.leave_out(error, number)


def item_of(
    ref: Ref, image: Image.Image, asked: Asked, boxes: Sequence[Box], instruction: str
) -> Item:
    """A question of a set as an item."""
    return Item(
        ref, image, asked.question, asked.kind, asked.answers, tuple(boxes), instruction=instruction
    )
