"""Store: rows of an evaluation as parquet, one part a block, merged at the end.

The schema is here; what a row's columns mean stands in `rows`.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from arr_coc.evaluate.questions import Ref

FULL = ("stock", 1.0)  # the pair of the stock model: it knows no budget

SCHEMA = pa.schema(
    [
        ("dataset", pa.string()),
        ("picture", pa.string()),  # of a scene: its seed
        ("index", pa.int32()),
        ("detail", pa.float64()),
        ("kind", pa.string()),
        ("question", pa.string()),
        ("truth", pa.string()),
        ("method", pa.string()),
        ("budget", pa.float64()),  # share of the native tokens that was allowed
        ("answer", pa.string()),
        ("right", pa.float32()),  # exact match, or VQA accuracy
        ("anls", pa.float32()),
        ("entropy", pa.float32()),  # of the first answer token, nats
        ("tokens", pa.int32()),
        ("native", pa.int32()),
        ("coverage", pa.float32()),  # of the cells that the boxes touch
        ("covered_area", pa.float32()),  # of the boxes' area
        ("pointing", pa.float32()),
        ("own_auc", pa.float32()),
    ]
)
KEY = ("picture", "index", "detail", "method", "budget")
Pair = tuple[str, float]


# ----------------------------------------------------------------------------------- on disk


def write_part(out: Path, number: int, rank: int, rows: list[dict[str, Any]]) -> None:
    """Keep a finished block: written aside and renamed, so that a part is whole or not there."""
    folder = out / "parts"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{rank:02d}-{number:06d}.parquet"
    _write(table_of(rows), path)


def table_of(rows: list[dict[str, Any]]) -> pa.Table:
    """Rows as one table, as `SCHEMA`."""
    return pa.Table.from_pylist(rows, SCHEMA)


def merge_parts(out: Path) -> pa.Table:
    """All rows so far as one table, in `rows.parquet`; the parts are gone afterwards.

    A block that was measured twice counts once.
    """
    parts = sorted((out / "parts").glob("*.parquet"))
    path = out / "rows.parquet"
    tables = [pq.read_table(p, schema=SCHEMA) for p in [path, *parts] if p.exists()]
    if not tables:
        return SCHEMA.empty_table()
    table = pa.concat_tables(tables)
    if parts:
        first = {key: row for row, key in reversed(list(enumerate(keys(table))))}
        table = table.take(pa.array(sorted(first.values())))
        order = [(name, "ascending") for name in ("detail", "picture", "index", "method", "budget")]
        table = table.sort_by(order)
        _write(table, path)
        for part in parts:
            part.unlink()
    return table


def forget(out: Path, methods: Sequence[str]) -> None:
    """Drop the rows of some methods."""
    table = merge_parts(out)
    gone = pc.is_in(table.column("method"), pa.array(methods, pa.string()))
    _write(table.filter(pc.invert(gone)), out / "rows.parquet")


def read_rows(out: Path) -> pa.Table:
    """The merged rows; none yet is an empty table."""
    path = out / "rows.parquet"
    return pq.read_table(path, schema=SCHEMA) if path.exists() else SCHEMA.empty_table()


def present_pairs(table: pa.Table) -> set[Pair]:
    """The pairs of method and budget that have rows."""
    return set(zip(table.column("method").to_pylist(), table.column("budget").to_pylist()))


def rows_of(table: pa.Table, pair: Pair) -> dict[Ref, dict[str, Any]]:
    """The rows of one method at one budget, by question."""
    chosen = pc.and_(
        pc.equal(table.column("method"), pair[0]), pc.equal(table.column("budget"), pair[1])
    )
    rows = table.filter(chosen).to_pylist()
    return {Ref(row["picture"], row["index"], row["detail"]): row for row in rows}


def _write(table: pa.Table, path: Path) -> None:
    aside = path.with_suffix(".writing")
    pq.write_table(table, aside, compression="zstd")
    aside.replace(path)


def keys(table: pa.Table) -> Iterable[tuple]:
    """The key of each row: question, method and budget."""
    return zip(*(table.column(name).to_pylist() for name in KEY))


def done_pairs(table: pa.Table) -> dict[Ref, set[Pair]]:
    """Per question, the pairs of method and budget that have a row."""
    done: dict[Ref, set[Pair]] = {}
    for picture, index, detail, method, budget in keys(table):
        done.setdefault(Ref(picture, index, detail), set()).add((method, budget))
    return done
