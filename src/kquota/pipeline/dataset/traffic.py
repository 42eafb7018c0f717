"""What `kquota analyze` recorded, read back in the order of time, broker by broker: no Spark, and no table as a whole.

Each file covers one period of a log, and is small. A file is opened when the time is reached at which it begins, so
that only files that overlap are in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from kquota.files import QuotaFile
from kquota.metering.callback import ClientQuotaType
from kquota.metering.callback_conformance import TrafficRecord
from kquota.metering.requests import is_strict
from kquota.pipeline.dataset.dataset import Dataset
from kquota.pipeline.dataset.errors import DamagedFileError
from kquota.pipeline.dataset.manifest import DataFile
from kquota.pipeline.dataset.steps import written_by
from kquota.pipeline.dataset.tables import REQUESTS, USAGE, Table
from kquota.pipeline.dataset.writing import read_file

__all__ = ["RecordedTraffic"]


_CLIENT: Final = ("key", "user", "client_id", "amount")
_REQUESTS: Final = ("record_ms", *_CLIENT, "throttle_ms", "api_key", "api_version")
_CELLS: Final = ("cell_start_ms", *_CLIENT, "requests", "throttled_requests", "throttle_ms", "throttle_max_ms")


@dataclass(slots=True)
class RecordedTraffic:
    """Traffic of one dataset. `skipped` counts the rows that could not be used so far: of unknown clients, of unknown
    amounts, and of metrics.
    """

    dataset: Dataset
    table: Table
    skipped: int = 0

    @classmethod
    def of(cls, dataset: Dataset) -> RecordedTraffic:
        """The table `requests`, where it has rows, otherwise `usage`.

        :raises MissingTableError: it has neither.
        """
        if dataset.files(REQUESTS.name):
            return cls(dataset, REQUESTS)
        dataset.require(USAGE.name)
        return cls(dataset, USAGE)

    @property
    def is_per_request(self) -> bool:
        """Whether each row is a request."""
        return self.table is REQUESTS

    @property
    def files(self) -> Sequence[DataFile]:
        """The files of the table."""
        return self.dataset.files(self.table.name)

    def quotas(self) -> QuotaFile | None:
        """The last quotas that the dataset was analysed with."""
        quotas = self.dataset.quotas()
        return None if quotas is None else quotas.last

    @property
    def grain(self) -> str:
        """What a row is: a request and each quota it counts on, or a client's second."""
        return "requests and keys" if self.is_per_request else "seconds of clients"

    def rows(self) -> int:
        """How many rows there are."""
        return sum(file.rows for file in self.files)

    def brokers(self) -> list[int]:
        """The brokers of the traffic."""
        found: set[int] = set()
        for file in self.files:
            if file.broker_id is not None:
                found.add(file.broker_id)
            else:
                found.update(self._read(file, ["broker_id"])["broker_id"].unique().to_pylist())
        return sorted(found)

    def of_broker(self, broker_id: int) -> Iterator[TrafficRecord]:
        """The traffic of one broker, in the order of its times; connections per second are none of a callback's."""
        columns, order = [*_CELLS], ["cell_start_ms", "user", "client_id", "key"]
        if self.is_per_request:
            columns, order = [*_REQUESTS, "seq"], ["record_ms", "seq"]
        files = sorted(
            (one for one in self.files if one.broker_id in (None, broker_id)),
            key=lambda file: (_first_ms(file), file.path),
        )
        waiting: pa.Table | None = None
        for number, file in enumerate(files):
            found = self._read(file, [*columns, "broker_id"])
            found = found.filter(pc.equal(found["broker_id"], broker_id)).drop_columns("broker_id")
            waiting = found if waiting is None else pa.concat_tables([waiting, found])
            waiting = waiting.sort_by([(name, "ascending") for name in order])
            # Rows from this time on may have rows of later files between them.
            until_ms = _first_ms(files[number + 1]) if number + 1 < len(files) else inf
            ready = pc.sum(pc.less(waiting[order[0]], until_ms)).as_py() or 0
            yield from self._records(waiting.slice(0, ready))
            waiting = waiting.slice(ready)

    def _records(self, rows: pa.Table) -> Iterator[TrafficRecord]:
        to_columns = _columns_of_requests if self.is_per_request else _columns_of_cells
        for batch in rows.to_batches(max_chunksize=65_536):
            for at_ms, key, user, client_id, amount, requests, throttled, throttle_ms, longest_ms, strict in zip(
                *to_columns(batch), strict=True
            ):
                quota_type = ClientQuotaType.find(key)
                if quota_type is None:
                    continue
                # A cell without a number of requests is of metrics: a mean over its time, no traffic to play again.
                if user is None or client_id is None or amount is None or requests is None:
                    self.skipped += 1
                    continue
                yield TrafficRecord(
                    at_ms, quota_type, user, client_id, amount, requests, throttled, throttle_ms, longest_ms, strict
                )

    def _read(self, file: DataFile, columns: Sequence[str]) -> pa.Table:
        try:
            return read_file(self.dataset.storage, file, self.table, columns)
        except (FileNotFoundError, pa.ArrowInvalid):
            raise DamagedFileError(self.dataset.url, file.path, written_by(self.table.name).name) from None


def _first_ms(file: DataFile) -> float:
    return -inf if file.first_ms is None else file.first_ms


def _columns_of_requests(batch: pa.RecordBatch) -> list[list[Any]]:
    """The columns of a :class:`TrafficRecord`, the key for the quota type."""
    at_ms, *client, throttle_ms, api_key, api_version = (batch.column(name).to_pylist() for name in _REQUESTS)
    throttled = [int(one > 0) for one in throttle_ms]
    strict = list(map(is_strict, api_key, api_version))
    return [list(map(int, at_ms)), *client, [1] * len(at_ms), throttled, throttle_ms, throttle_ms, strict]


def _columns_of_cells(batch: pa.RecordBatch) -> list[list[Any]]:
    return [*(batch.column(name).to_pylist() for name in _CELLS), [False] * batch.num_rows]
