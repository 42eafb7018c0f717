"""What `kquota analyze` recorded, read back in the order of time, broker by broker: no Spark, and no table as a whole.

Each file is one stretch of a log, and small. One is opened when the time is reached at which it begins, so that only
those lie in memory that overlap.
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


@dataclass(slots=True)
class RecordedTraffic:
    """Traffic of one dataset. `skipped` counts what could not be used so far: an unknown client, an unknown amount,
    or a rate that is from metrics.
    """

    dataset: Dataset
    table: Table
    skipped: int = 0

    @classmethod
    def of(cls, dataset: Dataset) -> RecordedTraffic:
        """The requests, where they were kept, otherwise the seconds of `usage`.

        :raises MissingTableError: it has neither.
        """
        if dataset.files(REQUESTS.name):
            return cls(dataset, REQUESTS)
        dataset.require(USAGE.name)
        return cls(dataset, USAGE)

    @property
    def is_per_request(self) -> bool:
        """Whether it is known request by request."""
        return self.table is REQUESTS

    @property
    def files(self) -> Sequence[DataFile]:
        """Where it is."""
        return self.dataset.files(self.table.name)

    def quotas(self) -> QuotaFile | None:
        """Those that it was analysed with, the last of those that changed."""
        quotas = self.dataset.quotas()
        return None if quotas is None else quotas.last

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
            if file.broker_id is not None:
                found.add(file.broker_id)
            else:
                found.update(self._read(file, ["broker_id"])["broker_id"].unique().to_pylist())
        return sorted(found)

    def of_broker(self, broker_id: int) -> Iterator[TrafficRecord]:
        """The traffic of one broker, in the order of its times; connections per second are none of a callback's."""
        columns, order = (_REQUESTS, ("record_ms", "seq")) if self.is_per_request else (_CELLS, _CELLS[:4])
        to_records = _request_records if self.is_per_request else _cell_records
        files = sorted(
            (one for one in self.files if one.broker_id in (None, broker_id)),
            key=lambda file: (_first_ms(file), file.path),
        )
        waiting: pa.Table | None = None
        for number, file in enumerate(files):
            found = self._read(file, [*columns, "broker_id"])
            found = found.filter(pc.equal(found["broker_id"], broker_id)).select(list(columns))
            waiting = found if waiting is None else pa.concat_tables([waiting, found])
            waiting = waiting.sort_by([(name, "ascending") for name in order])
            # What begins later may still come between all that is later.
            until_ms = _first_ms(files[number + 1]) if number + 1 < len(files) else inf
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

    def _read(self, file: DataFile, columns: Sequence[str]) -> pa.Table:
        try:
            return read_file(self.dataset.storage, file, self.table, columns)
        except (FileNotFoundError, pa.ArrowInvalid):
            raise DamagedFileError(self.dataset.url, file.path, written_by(self.table.name).name) from None


def _first_ms(file: DataFile) -> float:
    return -inf if file.first_ms is None else file.first_ms


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
