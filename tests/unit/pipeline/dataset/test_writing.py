"""Files as workers write them, and what is known of each."""

from __future__ import annotations

import pickle
from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kquota.pipeline.dataset.manifest import DataFile
from kquota.pipeline.dataset.runs import written_files
from kquota.pipeline.dataset.tables import CLIENTS, REQUESTS, USAGE, Table
from kquota.pipeline.dataset.writing import TableWriter, new_id, read_file
from kquota.pipeline.storage.opening import open_storage
from tests.kit.datasets import rows_of

RUN = "0123456789ab"


def writer(tmp_path: Path, table: Table | None, folder: str = "") -> TableWriter:
    return TableWriter(open_storage(tmp_path), folder or (table.name if table else "temporary"), RUN, table)


def test_a_file_for_each_day(tmp_path: Path) -> None:
    days = [date(2026, 1, 5), date(2026, 1, 6), date(2026, 1, 5)]
    rows = rows_of(USAGE, *({"date": day, "requests": place} for place, day in enumerate(days)))
    files = writer(tmp_path, USAGE).write(rows)
    assert [(file.path.rpartition("/")[0], file.rows) for file in files] == [
        ("usage/date=2026-01-05", 2),
        ("usage/date=2026-01-06", 1),
    ]
    for file in files:
        assert "date" not in pq.read_schema(tmp_path / file.path).names
        assert (tmp_path / file.path).stat().st_size == file.bytes
    read = [read_file(open_storage(tmp_path), file, USAGE, USAGE.columns) for file in files]
    assert pa.concat_tables(read).sort_by("requests") == rows


def test_a_file_says_its_time_and_its_broker(tmp_path: Path) -> None:
    one_broker = rows_of(
        REQUESTS, *({"record_ms": at_ms, "broker_id": 3, "end_ms": 0.0} for at_ms in (7.5, None, 2.25))
    )
    (file,) = writer(tmp_path, REQUESTS).write(one_broker)
    assert (file.first_ms, file.last_ms, file.broker_id) == (2.25, 7.5, 3)
    (file,) = writer(tmp_path, REQUESTS).write(rows_of(REQUESTS, {"broker_id": 1}, {"broker_id": 2}))
    assert (file.first_ms, file.last_ms, file.broker_id) == (None, None, None)
    (file,) = writer(tmp_path, CLIENTS).write(rows_of(CLIENTS, {"user": "alice"}))
    assert (file.first_ms, file.last_ms, file.broker_id) == (None, None, None)


def test_no_file_without_rows(tmp_path: Path) -> None:
    assert writer(tmp_path, CLIENTS).write(rows_of(CLIENTS)) == []
    assert list(tmp_path.iterdir()) == []


def test_columns_come_in_the_order_and_types_of_the_table(tmp_path: Path) -> None:
    rows = rows_of(CLIENTS, {"user": "alice", "requests": 3})
    encoded = rows.set_column(1, "user", rows["user"].dictionary_encode()).select(CLIENTS.columns[::-1])
    (file,) = writer(tmp_path, CLIENTS).write(encoded)
    assert pq.read_table(tmp_path / file.path) == rows


@pytest.mark.parametrize(
    "rows",
    [
        rows_of(CLIENTS, {"user": "alice"}).drop_columns(["meter"]),
        rows_of(CLIENTS, {"user": "alice"}).append_column("colour", pa.array(["red"])),
    ],
)
def test_rows_with_other_columns_are_refused(tmp_path: Path, rows: pa.Table) -> None:
    with pytest.raises(ValueError, match="a clients table has columns"):
        writer(tmp_path, CLIENTS).write(rows)


def test_rows_without_a_day_are_refused_rather_than_lost(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="rows without a date"):
        writer(tmp_path, USAGE).write(rows_of(USAGE, {"requests": 1}, {"date": date(2026, 1, 5)}))


def test_temporary_files_have_any_columns(tmp_path: Path) -> None:
    rows = pa.table({"colour": ["red", None]})
    (file,) = writer(tmp_path, None, "_runs/0123456789ab.tmp/edges").write(rows)
    assert pq.read_table(tmp_path / file.path) == rows


def test_files_are_of_their_run(tmp_path: Path) -> None:
    """So they are found if it is killed; other files are never taken for such."""
    usage = writer(tmp_path, USAGE).write(rows_of(USAGE, {"date": date(2026, 1, 5)}))
    temporary = writer(tmp_path, None, f"_runs/{RUN}.tmp/edges").write(pa.table({"colour": ["red"]}))
    for other in ("report.html", "usage/mine.parquet", "_runs/00000001.json", f"_runs/{RUN}.running"):
        open_storage(tmp_path).put(other, b"")
    assert sorted(written_files(open_storage(tmp_path))) == sorted((file.path, RUN) for file in usage + temporary)


def test_a_task_that_is_repeated_writes_another_file(tmp_path: Path) -> None:
    worker = pickle.loads(pickle.dumps(writer(tmp_path, CLIENTS)))
    rows = rows_of(CLIENTS, {"user": "alice"})
    first, second = worker.write(rows), worker.write(rows)
    assert first != second
    assert isinstance(first[0], DataFile)


def test_ids_are_twelve_hex_digits() -> None:
    ids = {new_id() for _ in range(1000)}
    assert len(ids) == 1000
    assert all(len(one) == 12 and int(one, 16) >= 0 for one in ids)
