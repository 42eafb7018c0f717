"""What `kquota analyze` recorded, read back in the order of time, broker by broker: no Spark, and no table as a whole.

Each file is one stretch of a log, and small. One is opened when the time is reached at which it begins, so that only
those lie in memory that overlap.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kquota.errors import InputError
from kquota.files import QuotaFile, read_quota_file
from kquota.metering.callback import ClientQuotaType
from kquota.metering.callback_conformance import TrafficRecord
from kquota.metering.requests import is_strict
from kquota.pipeline.dataset.output_directory import MARKER

__all__ = ["RecordedTraffic"]


_REQUESTS: Final = ("record_ms", "seq", "key", "user", "client_id", "amount", "throttle_ms", "api_key", "api_version")
_CELLS: Final = (
    "cell_start_ms",
    "user",
    "client_id",
    "key",
    "amount",
    "requests",
    "throttled_requests",
    "throttle_ms",
    "throttle_max_ms",
)


class _File(NamedTuple):
    """A file of a table, and what its statistics say."""

    path: Path
    rows: int
    first_ms: float
    brokers: tuple[int, int] | None


@dataclass(slots=True)
class RecordedTraffic:
    """One directory. `skipped` counts what could not be used so far: an unknown client, an unknown amount,
    or a rate that metrics told.
    """

    directory: Path
    is_per_request: bool
    files: Sequence[_File]
    skipped: int = 0

    @classmethod
    def of(cls, directory: Path) -> RecordedTraffic:
        """The requests, where they were kept, otherwise the seconds of `usage`.

        :raises InputError: this is no directory that kquota wrote, or it holds neither.
        """
        if not (directory / MARKER).is_file():
            raise InputError(
                f"--dataset {directory}: this is not a directory that `kquota analyze --out` or "
                "`kquota pipeline ingest` wrote"
            )
        for table, time in (("requests", "record_ms"), ("usage", "cell_start_ms")):
            paths = sorted((directory / table).rglob("*.parquet"))
            if paths:
                return cls(directory, table == "requests", [_described(path, time) for path in paths])
        raise InputError(f"--dataset {directory}: there is neither a table `requests` nor a table `usage` in it")

    def quotas(self) -> QuotaFile | None:
        """Those that it was analysed with, if it was."""
        path = self.directory / "quotas.yaml"
        if not path.is_file():
            return None
        return read_quota_file(path.read_bytes(), name=str(path))

    @property
    def grain(self) -> str:
        """What is counted: a request and each quota it counts on, or a client's second."""
        return "requests and keys" if self.is_per_request else "seconds of clients"

    def rows(self) -> int:
        """How many there are."""
        return sum(file.rows for file in self.files)

    def brokers(self) -> list[int]:
        """Whose traffic it is."""
        found: set[int] = set()
        for file in self.files:
            if file.brokers is not None and file.brokers[0] == file.brokers[1]:
                found.add(file.brokers[0])
            elif file.rows:
                found.update(pq.read_table(file.path, columns=["broker_id"])["broker_id"].unique().to_pylist())
        return sorted(found)

    def of_broker(self, broker_id: int) -> Iterator[TrafficRecord]:
        """The traffic of one broker, in the order of its times; connections per second are none of a callback's."""
        columns, order = (_REQUESTS, ("record_ms", "seq")) if self.is_per_request else (_CELLS, _CELLS[:4])
        to_records = _request_records if self.is_per_request else _cell_records
        files = sorted(
            (one for one in self.files if one.rows and _may_hold(one, broker_id)),
            key=lambda file: (file.first_ms, file.path),
        )
        waiting: pa.Table | None = None
        for number, file in enumerate(files):
            found = _read(file.path, columns, broker_id)
            waiting = found if waiting is None else pa.concat_tables([waiting, found])
            waiting = waiting.sort_by([(name, "ascending") for name in order])
            # What begins later may still come between all that is later.
            until_ms = files[number + 1].first_ms if number + 1 < len(files) else inf
            ready = pc.sum(pc.less(waiting[order[0]], until_ms)).as_py() or 0
            yield from self._usable(waiting.slice(0, ready), to_records)
            waiting = waiting.slice(ready)

    def _usable(self, table: pa.Table, to_records: Any) -> Iterator[TrafficRecord]:
        for batch in table.to_batches(max_chunksize=65_536):
            for record in to_records(batch):
                if record is None:
                    self.skipped += 1
                else:
                    yield record


def _described(path: Path, time: str) -> _File:
    try:
        metadata = pq.read_metadata(path)
    except (OSError, pa.ArrowInvalid) as error:
        raise InputError(f"{path}: cannot be read: {error}") from None
    names = metadata.schema.names
    missing = [name for name in ("broker_id", time) if name not in names]
    if missing:
        raise InputError(f"{path}: the column {missing[0]} is missing: run `kquota analyze` again")

    def bounds(name: str) -> tuple[Any, Any] | None:
        column = names.index(name)
        groups = [metadata.row_group(group).column(column).statistics for group in range(metadata.num_row_groups)]
        if not groups or any(one is None or not one.has_min_max for one in groups):
            return None
        return min(one.min for one in groups), max(one.max for one in groups)

    times = bounds(time)
    return _File(path, metadata.num_rows, -inf if times is None else times[0], bounds("broker_id"))


def _may_hold(file: _File, broker_id: int) -> bool:
    return file.brokers is None or file.brokers[0] <= broker_id <= file.brokers[1]


def _read(path: Path, columns: Sequence[str], broker_id: int) -> pa.Table:
    # The folder's name says the date, which is no column of the file.
    table = pq.read_table(path, columns=[*columns, "broker_id"], partitioning=None)
    return table.filter(pc.equal(table["broker_id"], broker_id)).select(list(columns))


def _request_records(batch: pa.RecordBatch) -> Iterator[TrafficRecord | None]:
    columns = [batch.column(name).to_pylist() for name in _REQUESTS]
    for record_ms, _, key, user, client_id, charged, throttle_ms, api_key, api_version in zip(*columns, strict=True):
        quota_type = ClientQuotaType.find(key)
        if quota_type is None:
            continue
        if user is None or client_id is None or charged is None:
            yield None
            continue
        yield TrafficRecord(
            int(record_ms),
            quota_type,
            user,
            client_id,
            charged,
            throttled_requests=int(throttle_ms > 0),
            throttle_ms=throttle_ms,
            throttle_max_ms=throttle_ms,
            strict=is_strict(api_key, api_version),
        )


def _cell_records(batch: pa.RecordBatch) -> Iterator[TrafficRecord | None]:
    columns = [batch.column(name).to_pylist() for name in _CELLS]
    for start_ms, user, client_id, key, amount, requests, throttled, throttle_ms, longest_ms in zip(
        *columns, strict=True
    ):
        quota_type = ClientQuotaType.find(key)
        if quota_type is None:
            continue
        # A cell of a broker's metrics is a mean over its time, and no traffic to play again.
        if user is None or client_id is None or amount is None or requests is None:
            yield None
            continue
        yield TrafficRecord(start_ms, quota_type, user, client_id, amount, requests, throttled, throttle_ms, longest_ms)
