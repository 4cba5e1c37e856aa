"""Questions: a folder of pictures and questions as a data set that the viewer and DuckDB open.

`questions.parquet` has a row for each question with its picture; `rows.parquet`, where an evaluation of the
same folder is given, a row for each question, method and budget. Both name a question by `picture` and
`index`.
"""

import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from huggingface_hub import DatasetCardData
from PIL import Image

from arr_coc.evaluate.vqa import Folder, Listed
from arr_coc.hub import cards, private
from arr_coc.hub.files import Files

QUESTIONS = "questions.parquet"
WHOLE = ("PNG", "JPEG")  # formats whose files go as they are, where nobody has to turn them
ORIENTATION = 0x0112  # EXIF's tag
SCHEMA = pa.schema(
    [
        ("picture", pa.string()),
        ("index", pa.int32()),
        ("image", pa.struct([("bytes", pa.binary()), ("path", pa.string())])),
        ("question", pa.string()),
        ("answers", pa.list_(pa.string())),
        ("kind", pa.string()),
        ("boxes", pa.list_(pa.list_(pa.float64()))),  # left, top, right, bottom in pixels
    ]
)
FEATURES = [
    {"name": "picture", "dtype": "string"},
    {"name": "index", "dtype": "int32"},
    {"name": "image", "dtype": "image"},
    {"name": "question", "dtype": "string"},
    {"name": "answers", "list": "string"},
    {"name": "kind", "dtype": "string"},
    {"name": "boxes", "list": {"list": "float64"}},
]


def question_files(
    folder: Path, results: Path | None, repo_id: str, licence: str, *, skip_bad: bool = False
) -> Files:
    """The data set of a folder, and its card.

    Args:
        folder: as `evaluate --folder` reads it.
        results: an evaluation of it; None for the questions alone.
        repo_id: where it goes.
        licence: of pictures and questions, as the Hub spells it.
        skip_bad: whether questions that cannot be asked are left out, as in that evaluation.

    Raises:
        ValueError: for a folder that cannot be read, or results of other questions.
    """
    source = Folder(folder, skip_bad=skip_bad)
    rows = [row_of(source, index) for index in range(len(source.listed))]
    files: Files = {QUESTIONS: _written(pa.Table.from_pylist(rows, SCHEMA))}
    summary = None
    if results is not None:
        summary = cards.read_summary(results)
        asked = {(row["picture"], row["index"]) for row in rows}
        _check_rows(results / cards.ROWS, asked)
        files[cards.ROWS] = results / cards.ROWS
        files[cards.SUMMARY] = private.told(results / cards.SUMMARY)
    files["README.md"] = question_card(repo_id, licence, rows, summary)
    return files


def row_of(source: Folder, index: int) -> dict[str, Any]:
    """A question as a row of `SCHEMA`."""
    one = source.listed[index]
    return {
        "picture": one.key,
        "index": index,
        "image": {"bytes": picture_bytes(source, one), "path": source.file_of(one).name},
        "question": one.asked.question,
        "answers": list(one.asked.answers),
        "kind": one.asked.kind,
        "boxes": [list(box) for box in one.boxes],
    }


def picture_bytes(source: Folder, one: Listed) -> bytes:
    """A picture's file; one that has to be turned, or is no PNG or JPEG, as a PNG of what is seen."""
    path = source.file_of(one)
    with Image.open(path) as picture:
        if picture.format in WHOLE and picture.getexif().get(ORIENTATION, 1) == 1:
            return path.read_bytes()
    held = io.BytesIO()
    source.rows.picture(one.row, one.asked.page).save(held, "PNG")
    return held.getvalue()


def _written(table: pa.Table) -> bytes:
    held = io.BytesIO()
    # Small groups, so that a viewer of one page does not read every picture.
    pq.write_table(table, held, compression="zstd", row_group_size=100)
    return held.getvalue()


def _check_rows(path: Path, asked: set[tuple[str, int]]) -> None:
    """ValueError unless every row is about a question of the folder."""
    table = pq.read_table(path, columns=["picture", "index"])
    found = set(zip(table["picture"].to_pylist(), table["index"].to_pylist()))
    if strangers := sorted(found - asked):
        raise ValueError(
            f"{path} is about other questions, such as {strangers[0]}: expected an evaluation of this "
            "folder"
        )


def question_card(
    repo_id: str, licence: str, rows: list[dict[str, Any]], summary: dict[str, Any] | None
) -> str:
    """Markdown with metadata, and a query that joins what was asked with what was answered."""
    names = {"questions": QUESTIONS} | ({"rows": cards.ROWS} if summary else {})
    configs: list[dict[str, Any]] = [
        {"config_name": name, "data_files": [{"split": "test", "path": path}]}
        for name, path in names.items()
    ]
    configs[0]["default"] = True
    data = DatasetCardData(
        license=licence,
        pretty_name=repo_id.split("/")[-1],
        task_categories=["visual-question-answering"],
        configs=configs,
        dataset_info={"config_name": "questions", "features": FEATURES},
    )
    boxed = sum(bool(row["boxes"]) for row in rows)
    pictures = len({row["picture"] for row in rows})
    counted = {"rows": len(rows), "pictures": pictures, "boxed": boxed, "repo": repo_id}
    lines = [_QUESTIONS.format(name=repo_id.split("/")[-1], **counted)]
    if summary:
        lines += [_JOINED.format(repo=repo_id), cards.method_table(summary), "", cards.CAPTION, ""]
        lines += [cards.made_by(summary), ""]
    return f"---\n{data.to_yaml().strip()}\n---\n" + "\n".join(lines)


_QUESTIONS = """\
# {name}

{rows} questions about {pictures} pictures; of {boxed} it is known where the evidence is.

| column of `questions.parquet` | |
|---|---|
| `picture`, `index` | name a question, in every file here |
| `image` | as a person sees it |
| `question`, `answers`, `kind` | any of the answers is right |
| `boxes` | of the evidence: left, top, right, bottom in pixels; empty where nobody knows |
"""

_JOINED = """\
`rows.parquet` has what each method answered with how many visual tokens, and `summary.json` what follows
from it. Where answers hang on evidence that is small, with DuckDB:

```sql
SELECT r.method, r.budget, count(*) AS n,
  round(avg(r."right"), 3) AS accuracy, round(avg(r.tokens), 1) AS tokens
FROM 'hf://datasets/{repo}/questions.parquet' AS q
JOIN 'hf://datasets/{repo}/rows.parquet' AS r USING (picture, "index")
WHERE len(q.boxes) > 0
GROUP BY ALL ORDER BY r.method, r.budget
```
"""
