"""Store: rows of an evaluation as parquet, one part a block, merged at the end."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from arr_coc.evaluate.questions import Ref
from arr_coc.peers.names import STOCK

Pair = tuple[str, float]  # a method and its budget, as the columns `method` and `budget`
Row = dict[str, Any]  # as SCHEMA
Table = pa.Table  # of rows, as SCHEMA
FULL: Pair = (STOCK, 1.0)  # the stock model knows no budget

SCHEMA = pa.schema(
    [
        ("dataset", pa.string()),  # name of the source of the question
        ("picture", pa.string()),  # names the picture within it; for a scene its seed
        ("index", pa.int32()),  # which of the picture's questions, or which record of the source
        ("detail", pa.float64()),  # scale at which a scene's emblems and writing are drawn
        ("kind", pa.string()),  # kind of question; accuracies are means over kinds
        ("question", pa.string()),  # without the instruction how to answer
        ("truth", pa.string()),  # the true answers, separated by |
        ("method", pa.string()),  # key of peers.methods.EVERY
        ("budget", pa.float64()),  # share of the native tokens that was allowed
        ("answer", pa.string()),
        ("right", pa.float32()),  # 1 or 0 by exact match, or VQA accuracy in [0, 1]
        ("anls", pa.float32()),  # Levenshtein similarity in [0, 1]; of VQA data alone
        ("entropy", pa.float32()),  # of the first answer token, in nats
        ("tokens", pa.int32()),  # visual tokens that the language model held, glance included
        ("native", pa.int32()),  # visual tokens of the whole picture
        # The others are null where the evidence has no boxes, or boxes that are large (rows.SMALL_BOXES).
        (
            "coverage",
            pa.float32(),
        ),  # share of the cells touched by the boxes, that were kept native
        ("covered_area", pa.float32()),  # the same, each cell by how much of the boxes it holds
        (
            "pointing",
            pa.float32(),
        ),  # 1 where the highest score is on a touched cell; null without one
        ("own_auc", pa.float32()),  # AUC of the score, own boxes against those of other questions
        # Of clips and several pictures alone (views_rows); `covered_area` is then of the best moments,
        # as many as are needed.
        ("seconds", pa.float32()),  # to the first token, nothing shared
        ("shows", pa.string()),  # pan, cut, moves or still; null of pictures
        ("moment", pa.float32()),  # 1 where something was kept of as many moments as are needed
        ("place", pa.float32()),  # 1 where half of the evidence was, at each of as many
        ("on_evidence", pa.float32()),  # share of the kept tokens in moments that hold evidence
        # Means over neighbouring moments: of relevance, and Jaccard's index of kept cells; at cuts apart.
        ("cosine", pa.float32()),
        ("cosine_cut", pa.float32()),
        ("dips", pa.float32()),  # share of neighbours within scenes with a cosine below views.APART
        ("overlap", pa.float32()),
        ("overlap_cut", pa.float32()),
    ]
)
# What differs in every row makes most of a file: it is kept to so many decimals.
DECIMALS = {"covered_area": 2, "own_auc": 2} | dict.fromkeys(
    ("entropy", "seconds", "coverage", "on_evidence", "cosine", "cosine_cut", "overlap", "overlap_cut"), 3
)  # fmt: skip
ZSTD_LEVEL = 19  # written once, kept for good
KEY = ("picture", "index", "detail", "method", "budget")
ORDER = ("detail", "picture", "index", "method", "budget")


def table_of(rows: list[Row]) -> pa.Table:
    """Rows as one table, as `SCHEMA`."""
    return pa.Table.from_pylist(rows, SCHEMA)


# ----------------------------------------------------------------------------------- on disk


def write_part(out: Path, number: int, rank: int, rows: list[Row]) -> None:
    """Keep a finished block, named by its number and the rank of the process that measured it."""
    folder = out / "parts"
    folder.mkdir(parents=True, exist_ok=True)
    _write(table_of(rows), folder / f"{rank:02d}-{number:06d}.parquet")


def merge_parts(out: Path) -> pa.Table:
    """All rows so far as one table, in `rows.parquet`; the parts are gone afterwards.

    A row that was measured twice counts once: the first stays.
    """
    parts = sorted((out / "parts").glob("*.parquet"))
    path = out / "rows.parquet"
    tables = [pq.read_table(p, schema=SCHEMA) for p in [path, *parts] if p.exists()]
    if not tables:
        return SCHEMA.empty_table()
    table = pa.concat_tables(tables)
    if parts:
        first = {key: row for row, key in reversed(list(enumerate(_keys(table))))}
        table = table.take(pa.array(sorted(first.values())))
        table = table.sort_by([(name, "ascending") for name in ORDER])
        _write(table, path)
        for part in parts:
            part.unlink()
    return table


def read_rows(out: Path) -> pa.Table:
    """The merged rows; none yet is an empty table."""
    path = out / "rows.parquet"
    return pq.read_table(path, schema=SCHEMA) if path.exists() else SCHEMA.empty_table()


def forget(out: Path, methods: Sequence[str]) -> None:
    """Drop the rows of some methods."""
    table = merge_parts(out)
    dropped = pc.is_in(table.column("method"), pa.array(methods, pa.string()))
    _write(table.filter(pc.invert(dropped)), out / "rows.parquet")


def _write(table: pa.Table, path: Path) -> None:
    """Written aside and renamed, so that a file is whole or not there."""
    for name, decimals in DECIMALS.items():
        at = table.schema.get_field_index(name)
        column = pc.round(table.column(name), decimals)
        table = table.set_column(at, table.schema.field(at), column)
    aside = path.with_suffix(".writing")
    pq.write_table(table, aside, compression="zstd", compression_level=ZSTD_LEVEL)
    aside.replace(path)


# ----------------------------------------------------------------------------------- in memory


def present_pairs(table: pa.Table) -> set[Pair]:
    """The pairs of method and budget that have rows."""
    return set(zip(table.column("method").to_pylist(), table.column("budget").to_pylist()))


def done_pairs(table: pa.Table) -> dict[Ref, set[Pair]]:
    """Per question, the pairs of method and budget that have a row."""
    done: dict[Ref, set[Pair]] = {}
    for picture, index, detail, method, budget in _keys(table):
        done.setdefault(Ref(picture, index, detail), set()).add((method, budget))
    return done


def asked_of(table: pa.Table) -> dict[Ref, tuple[str, str]]:
    """Per question, its words and the true answers as the rows have them."""
    columns = ("picture", "index", "detail", "question", "truth")
    named = zip(*(table.column(name).to_pylist() for name in columns))
    return {Ref(*ref): (question, truth) for *ref, question, truth in named}


def rows_of(table: pa.Table, pair: Pair) -> dict[Ref, Row]:
    """The rows of one method at one budget, by question."""
    chosen = pc.and_(
        pc.equal(table.column("method"), pair[0]), pc.equal(table.column("budget"), pair[1])
    )
    rows = table.filter(chosen).to_pylist()
    return {Ref(row["picture"], row["index"], row["detail"]): row for row in rows}


def _keys(table: pa.Table) -> Iterable[tuple[str, int, float, str, float]]:
    """The key of each row: the question, the method and the budget."""
    return zip(*(table.column(name).to_pylist() for name in KEY))
