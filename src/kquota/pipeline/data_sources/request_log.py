"""The format ``kafka-request-log``: requests as a broker logged them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from kquota.errors import InputError
from kquota.pipeline.data_sources.options import check_options, whole_number
from kquota.pipeline.dataset.tables import REQUESTS
from kquota.pipeline.ingest.request_log.log_files import InputSplit
from kquota.pipeline.ingest.request_log.log_reader import LogReader, find_splits

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = ["RequestLogDataSource"]

_PARALLELISM: Final = 16
"""Spark does not say how many cores there are. Files are cut as for so many; those of no size are one split."""


class RequestLogDataSource(DataSource):
    """Columns of the table `requests`, one row per request and key that it was charged to.

    Options: ``path`` (what `load` is given), ``broker_id``, ``timezone``, ``cluster``, ``envelope``, ``mode`` and
    ``num_partitions``, as parameters of :func:`kquota.pipeline.read_request_log`. Each task knows its part of the log
    alone: what a request cost that deleted topics is null where another part says it, and connections are no rows.
    """

    @classmethod
    def name(cls) -> str:
        """What ``format`` is given."""
        return "kafka-request-log"

    def schema(self) -> StructType:
        """The columns of the table `requests`."""
        return REQUESTS.schema

    def reader(self, schema: StructType) -> _Reader:
        """Find the files, and what is to be done with them.

        :raises InputError: there are none, or an option cannot be used.
        """
        del schema
        options = {name.lower(): value for name, value in self.options.items()}
        known = ("path", "broker_id", "timezone", "cluster", "envelope", "mode", "num_partitions")
        check_options(options, known, self.name())
        if "path" not in options:
            raise InputError(f"format {self.name()}: give a log: .load('s3://logs/kafka-request.log')")
        timezone = options.get("timezone", "UTC")
        splits = find_splits(
            [options["path"]],
            parallelism=_PARALLELISM,
            broker_id=whole_number(options, "broker_id", 0),
            timezone=timezone,
            envelope=options.get("envelope", ""),
        )
        log = LogReader(
            timezone=timezone,
            cluster=options.get("cluster", ""),
            num_partitions=whole_number(options, "num_partitions", 1),
            mode=options.get("mode", "permissive"),
        )
        return _Reader(splits, log)


@dataclass
class _Part(InputPartition):
    index: int
    split: InputSplit


class _Reader(DataSourceReader):
    def __init__(self, splits: Sequence[InputSplit], log: LogReader) -> None:
        self._splits, self._log = splits, log

    def partitions(self) -> Sequence[InputPartition]:
        """A task for each split: some megabytes of a plain log, or a whole compressed one."""
        return [_Part(index, split) for index, split in enumerate(self._splits)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a split."""
        if isinstance(partition, _Part):
            yield from self._log.requests([(partition.index, partition.split)])
