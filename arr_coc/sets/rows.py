"""Rows: where sets lie: a folder with a list, local parquet, a `save_to_disk` folder, or the Hub.

Every place gives rows as plain dicts, whose pictures are names or bytes until `picture` opens one.
"""

import glob
import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image

from arr_coc.pictures import as_read, found_in, too_long, upright_size, why_unreadable
from arr_coc.sets.asked import BadRow
from arr_coc.sets.readers import READERS, Reader, reader_for

UNREADABLE = "with a picture that cannot be read"
# Where the pictures of a Visual-CoT copy lie, if nobody says.
PICTURE_FOLDERS = (".", "images", "cot_image_data")
BUFFER = 1000  # rows of a stream that are shuffled among each other


@dataclass(frozen=True)
class LocalRows:
    """Rows that can be had in any order.

    Attributes:
        name: of the set, for messages and reports.
        reader: of its columns.
        texts: the rows without pictures that are bytes.
        pictures: a sequence of rows with their pictures; the same as `texts` where these name files.
        roots: folders in which pictures that are names are looked for.
    """

    name: str
    reader: Reader
    texts: Sequence[dict[str, Any]]
    pictures: Sequence[dict[str, Any]]
    roots: tuple[Path, ...] = ()

    def picture(self, row: int, page: int = 0) -> Image.Image:
        """One picture as a person sees it; BadRow where it cannot be read."""
        return open_picture(self.stored(row, page), self.roots)

    def stored(self, row: int, page: int = 0) -> Any:
        """What a row holds in the place of a picture."""
        return page_of(self.pictures[row], self.reader, page)


def page_of(row: Mapping[str, Any], reader: Reader, page: int) -> Any:
    """What a row holds in the place of one of its pictures; BadRow where it has not that one alone."""
    stored = row.get(reader.image)
    if not isinstance(stored, list | tuple):
        return stored
    if len(stored) > 1 and not reader.has_pages:
        raise BadRow("with several pictures", f"it has {len(stored)} pictures, expected one")
    if not 0 <= page < len(stored):
        raise BadRow("without a picture", f"it has {len(stored)} pages, asked is page {page + 1}")
    return stored[page]


def open_picture(stored: Any, roots: Sequence[Path] = ()) -> Image.Image:
    """A picture that a row names, or holds as bytes, or decoded; upright RGB.

    Raises:
        BadRow: where there is none, or what there is cannot be read.
    """
    if stored is None:
        raise BadRow("without a picture", "it has no picture")
    try:
        decoded = isinstance(stored, Image.Image)
        picture = as_read(stored if decoded else Image.open(_file(stored, roots)))
    except Exception as error:  # a decoder raises anything on a damaged file
        raise _unreadable(error) from error
    if wrong := too_long(picture.size):
        raise BadRow(
            "with a picture that is too long", f"its picture cannot be asked about: {wrong}"
        )
    return picture


def _file(stored: Any, roots: Sequence[Path]) -> Path | io.BytesIO:
    """The file of a picture that a row names or holds as bytes."""
    if isinstance(stored, dict) and stored.get("bytes") is not None:
        return io.BytesIO(stored["bytes"])
    name = stored.get("path") if isinstance(stored, dict) else stored
    return found_in(roots or (Path(),), str(name))


def _unreadable(error: Exception) -> BadRow:
    said = (str(error).strip() or type(error).__name__).splitlines()[0]
    return BadRow(UNREADABLE, f"its picture cannot be read: {said}")


def picture_size(stored: Any, roots: Sequence[Path] = ()) -> tuple[int, int]:
    """Width and height of a picture as `open_picture` gives it, of whose file the header is read.

    Raises:
        BadRow: where it cannot be read.
    """
    if isinstance(stored, Image.Image):
        return open_picture(stored).size
    try:
        with Image.open(_file(stored, roots)) as image:
            return upright_size(image)
    except Exception as error:  # a decoder raises anything on a damaged file
        raise _unreadable(error) from error


def check_picture(stored: Any, roots: Sequence[Path] = ()) -> None:
    """BadRow where a picture cannot be read to its end."""
    if stored is None:
        raise BadRow("without a picture", "it has no picture")
    if not isinstance(stored, Image.Image) and (wrong := why_unreadable(_file(stored, roots))):
        raise BadRow(UNREADABLE, f"its picture cannot be read: {wrong}")


def picture_key(row: dict[str, Any], reader: Reader, stored: Any, page: int) -> str:
    """What names a picture: the set's own name for it, its file's, or a digest of its bytes.

    The same wherever the set lies: of an absolute path the file's name alone counts.
    """
    for column in reader.keys:
        value = row.get(column)
        if isinstance(value, str | int) and value != "":
            # Sets that are made of several name pictures anew in each.
            within = f"{row.get('dataset') or ''}/" if reader.name == "visual-cot" else ""
            within = "" if within == "/" or str(value).startswith(within) else within
            return f"{within}{value}" + (f"#{page + 1}" if page else "")
    if isinstance(stored, str):
        return _portable(stored)
    if isinstance(stored, Image.Image):
        return hashlib.sha256(stored.tobytes()).hexdigest()[:16]
    if isinstance(stored, dict) and stored.get("bytes") is not None:
        return hashlib.sha256(stored["bytes"]).hexdigest()[:16]
    return _portable(str((stored or {}).get("path")))


def _portable(path: str) -> str:
    return Path(path).name if Path(path).is_absolute() else path


# --- a folder with a list ---


def folder_rows(folder: Path, reader: str | None = None, pictures: Path | None = None) -> LocalRows:
    """The rows of a folder: its `questions.json` or `.jsonl`, official VQA JSON, or Visual-CoT's lines.

    `pictures` is where the pictures lie, if not in the folder.
    """
    roots = (pictures,) if pictures else tuple(folder / name for name in PICTURE_FOLDERS)
    official = sorted(folder.glob("*OpenEnded*_questions.json"))
    if (folder / "questions.json").exists() or (folder / "questions.jsonl").exists():
        rows = _listed(folder)
        own = reader or "plain"
    elif official:
        rows, subtypes = _official_vqa(folder, official)
        roots = tuple(root / sub for root in roots for sub in (*subtypes, "."))
        own = "vqav2"
    elif lines := sorted({*folder.glob("*.jsonl"), *folder.glob("metadata/*.jsonl")}):
        rows, own = [row for path in lines for row in _lines(path)], reader
    else:
        raise ValueError(
            f"{folder} holds neither questions.json nor questions.jsonl, nor official VQA questions, "
            "nor Visual-CoT's .jsonl files"
        )
    if not rows:
        raise ValueError(f"{folder} has no questions, expected at least one")
    if own == "plain":
        _check_plain(folder, rows)
    found = READERS[own] if own in ("plain", "vqav2") else reader_for(rows[0], str(folder), own)
    if found.name == "visual-cot":
        # One without a picture is counted where it is asked.
        rows = [
            row | {"image": _visual_cot_file(row, roots)} if row.get("image") else row
            for row in rows
        ]
    return LocalRows(str(folder), found, rows, rows, roots)


def _check_plain(folder: Path, rows: Sequence[dict[str, Any]]) -> None:
    for number, row in enumerate(rows):
        if not isinstance(row, dict):
            raise ValueError(f"record {number} of {folder} is {row!r}, expected an object")
        # One without answers is counted where it is asked.
        if missing := {"image", "question"} - set(row):
            raise ValueError(f"record {number} of {folder} lacks {sorted(missing)}")
        if not isinstance(row["image"], str):
            given = type(row["image"]).__name__
            raise ValueError(
                f"record {number} of {folder} has a {given} as its image, expected a file's name"
            )


def _visual_cot_file(row: dict[str, Any], roots: Sequence[Path]) -> str:
    """Pictures lie in a folder of the set that they came from, or all in one."""
    within = f"{row.get('dataset')}/{row['image']}"
    return within if any((root / within).is_file() for root in roots) else str(row["image"])


def _official_vqa(folder: Path, questions: Sequence[Path]) -> tuple[list[dict[str, Any]], set[str]]:
    """The rows of official VQA files, each question with its annotation, and their subtypes."""
    annotations: dict[int, dict[str, Any]] = {}
    for path in folder.glob("*_annotations.json"):
        annotations |= {one["question_id"]: one for one in _whole(path)["annotations"]}
    rows, subtypes = [], set()
    for path in questions:
        held = _whole(path)
        subtype = str(held.get("data_subtype") or "train2014")
        subtypes.add(subtype)
        for question in held["questions"]:
            image = f"COCO_{subtype}_{int(question['image_id']):012d}.jpg"
            rows.append(annotations.get(question["question_id"], {}) | question | {"image": image})
    return rows, subtypes


def _listed(folder: Path) -> list[dict[str, Any]]:
    whole = folder / "questions.json"
    return _whole(whole) if whole.exists() else _lines(folder / "questions.jsonl")


def _whole(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8-sig"))
    except ValueError as error:
        raise ValueError(f"{path} is no JSON: {error}") from error


def _lines(path: Path) -> list[dict[str, Any]]:
    rows = []
    # `splitlines` would part a line at what a text may hold, as U+2028.
    for number, line in enumerate(path.read_text(encoding="utf-8-sig").split("\n"), 1):
        if line.strip():
            try:
                rows.append(json.loads(line))
            except ValueError as error:
                raise ValueError(f"line {number} of {path} is no JSON: {error}") from error
    return rows


# --- `datasets` ---


SPLITS = {"train", "training", "validation", "valid", "val", "dev", "test"}


def _split_of(name: str, folder: Path) -> str:
    """A file's name up to the first dash, `test` of test-0-of-2.parquet, or a split's folder around it."""
    own = Path(name).stem.split("-")[0]
    within = Path(name).parent.parts[len(folder.parts) :]
    return own if own in SPLITS else next((f for f in reversed(within) if f in SPLITS), own)


def set_rows(
    path: Path, split: str, reader: str | None = None, pictures: Path | None = None
) -> LocalRows:
    """The rows of a parquet file, a folder of them, or a `save_to_disk` folder.

    Pictures that are names are looked for in `pictures`, or else in the folder and beside it.
    """
    datasets = _library()
    files = sorted(glob.glob(str(path / "**/*.parquet"), recursive=True)) or [str(path)]
    of_split = [name for name in files if _split_of(name, path) == split]
    try:
        if path.is_dir() and not list(path.glob("**/*.parquet")):
            found = datasets.load_from_disk(str(path))
            if isinstance(found, dict):
                if split not in found:
                    raise ValueError(f"{path} has the splits {sorted(found)}, not {split!r}")
                found = found[split]
        else:
            named = {_split_of(name, path) for name in files}
            if not of_split and path.is_dir() and named & SPLITS:
                raise ValueError(f"{path} has the splits {sorted(named)}, not {split!r}")
            found = datasets.Dataset.from_parquet(of_split or files)
    except ValueError:
        raise
    except Exception as error:  # pyarrow and datasets each have errors of their own
        said = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ValueError(
            f"{path} is neither parquet nor a folder of save_to_disk: {said}"
        ) from error
    if not len(found):
        raise ValueError(f"{path} has no rows, expected at least one")
    own = reader_for(found.column_names, str(path), reader)
    encoded = encoded_pictures(found, own.image)
    names_files = getattr(encoded.features[own.image], "dtype", None) == "string"
    texts = encoded if names_files else encoded.remove_columns(own.image)
    own_roots = (path, path.parent) if path.is_dir() else (path.parent,)
    roots = (pictures,) if pictures else own_roots
    return LocalRows(str(path), own, texts, encoded, roots)


def hub_rows(dataset: str, split: str, subset: str | None) -> Any:
    """A data set on the Hub as a stream of rows, its pictures undecoded.

    Raises:
        ValueError: where the Hub gives none, or the library is not there.
    """
    datasets = _library()
    try:
        return datasets.load_dataset(dataset, subset, split=split, streaming=True)
    except Exception as error:  # of the Hub's client, the network and the set's own layout
        said = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ValueError(
            f"data set {dataset!r}, split {split!r}, is neither a local path nor one the Hub gives: {said}"
        ) from error


def encoded_pictures(rows: Any, column: str) -> Any:
    """The same rows with a column of pictures left as bytes; as they are without that feature."""
    features = getattr(rows, "features", None)
    if not features or column not in features:
        return rows
    datasets = _library()
    feature = features[column]
    if isinstance(feature, datasets.Image):
        return rows.cast_column(column, datasets.Image(decode=False))
    if isinstance(getattr(feature, "feature", None), datasets.Image):
        return rows.cast_column(column, type(feature)(datasets.Image(decode=False)))
    return rows


def _library() -> Any:
    try:
        import datasets
    except ImportError as error:
        raise ValueError("--dataset needs the datasets library: pip install datasets") from error
    return datasets


# --- a held-out part ---


def is_held_out(key: str, share: float) -> bool:
    """Whether a picture belongs to the held-out part of its set: always the same ones."""
    if not share:
        return False
    digest = hashlib.sha256(f"held out {key}".encode()).digest()
    return int.from_bytes(digest[:6], "big") < share * 2**48
