"""Files that workers write for a run, under their final names. None is live before the run commits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kquota.pipeline.dataset.manifest import DataFile
from kquota.pipeline.dataset.runs import new_path
from kquota.pipeline.dataset.tables import Table
from kquota.pipeline.storage.port import Storage

__all__ = ["TableWriter", "new_id", "read_file"]


def new_id() -> str:
    """Twelve hex digits by chance: of a run, or of a file of one."""
    return uuid4().hex[:12]


@dataclass(frozen=True, slots=True)
class TableWriter:
    """Writes Parquet files (snappy) of a table for a run. It can be pickled; the driver adds what it returns.

    A task that is repeated writes files of other names; those of the first remain out of the table.
    """

    storage: Storage
    folder: str
    run: str
    table: Table | None = None
    """None for temporary files: any columns."""

    def write(self, rows: pa.Table) -> list[DataFile]:
        """Write rows: a file, or one for each value of the columns that the table is partitioned by. None without rows.

        :raises ValueError: rows lack a column of the table or have another, or have nulls where the path needs a value.
        """
        if not rows.num_rows:
            return []
        if self.table is None:
            return [self._write(rows, self.folder)]
        if sorted(rows.column_names) != sorted(self.table.columns):
            raise ValueError(f"a {self.table.name} table has columns {self.table.columns}, not {rows.column_names}")
        rows = _conformed(rows.select(self.table.columns), self.table.arrow_schema)
        return [self._write(part, folder) for folder, part in _partitioned(rows, self.folder, self.table.partition_by)]

    def _write(self, rows: pa.Table, folder: str) -> DataFile:
        sink = pa.BufferOutputStream()
        pq.write_table(rows, sink, compression="snappy", store_schema=False)
        content = sink.getvalue()
        path = new_path(folder, self.run, new_id(), "parquet")
        # A manifest names files of tables, and must not outlive them. Temporary ones are of no use after a crash.
        self.storage.put(path, content, durable=self.table is not None)
        first_ms, last_ms = _bounds(rows, self.table.time if self.table is not None else "")
        least, greatest = _bounds(rows, "broker_id")
        return DataFile(
            path, rows.num_rows, content.size, first_ms, last_ms, broker_id=least if least == greatest else None
        )


def _conformed(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Rows in the types of `schema`; columns that are encoded by dictionaries stay so, as they are in the file."""
    for place, field in enumerate(schema):
        column = rows.column(place)
        is_encoded = pa.types.is_dictionary(column.type) and column.type.value_type == field.type
        if column.type != field.type and not is_encoded:
            rows = rows.set_column(place, field.name, column.cast(field.type))
    return rows


def _partitioned(rows: pa.Table, folder: str, names: Sequence[str]) -> Iterator[tuple[str, pa.Table]]:
    """Rows by the folder that they belong in, without the columns that it says."""
    if not names:
        yield folder, rows
        return
    name, *others = names
    if rows[name].null_count:
        raise ValueError(f"rows without a {name}")
    values = pc.unique(rows[name]).to_pylist()
    for value in values:
        text = value.isoformat() if isinstance(value, date) else str(value)
        part = rows if len(values) == 1 else rows.filter(pc.equal(rows[name], value))
        part = part.drop_columns([name])
        yield from _partitioned(part, f"{folder}/{name}={text}", others)


def _bounds(rows: pa.Table, column: str) -> tuple[Any, Any]:
    """The least and the greatest value; None where there is none."""
    if column not in rows.column_names:
        return None, None
    found = pc.min_max(rows[column]).as_py()
    return found["min"], found["max"]


def read_file(storage: Storage, file: DataFile, table: Table, columns: Sequence[str]) -> pa.Table:
    """Rows of a file of a table, with the columns that its path says.

    :raises FileNotFoundError: it is not there.
    :raises pa.ArrowInvalid: it is damaged.
    """
    inside = [name for name in columns if name not in table.partition_by]
    with storage.open_input(file.path) as source:
        rows = pq.ParquetFile(source).read(columns=inside, use_threads=False)
    for name in columns:
        if name in table.partition_by:
            value = pa.scalar(file.partition[name]).cast(table.arrow_schema.field(name).type)
            rows = rows.append_column(name, pa.repeat(value, file.rows))
    schema = pa.schema([table.arrow_schema.field(name) for name in columns])
    return rows.select(list(columns)).cast(schema)
