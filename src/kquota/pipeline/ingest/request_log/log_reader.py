"""Request logs read without files of their own: what workers read goes on as Arrow tables.

:mod:`~kquota.pipeline.ingest.request_log.split_reader` reads the lines, here as in the step `ingest`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, get_args

import pyarrow as pa

from kquota.errors import InputError
from kquota.pipeline.dataset.manifest import DataFile
from kquota.pipeline.dataset.tables import REQUESTS
from kquota.pipeline.ingest.request_log.duplicate_logs import digests_of, find_duplicate_logs
from kquota.pipeline.ingest.request_log.log_files import InputSplit, find_log_files, to_splits
from kquota.pipeline.ingest.request_log.repeated_hours import split_starts, with_split_starts
from kquota.pipeline.ingest.request_log.split_reader import ReadOptions, read_splits
from kquota.pipeline.ingest.request_log.usage_rows import charge_mutations, mutation_costs
from kquota.pipeline.ingest.time_zone import check_time_zone
from kquota.pipeline.spark.arrow import decode_dictionaries

__all__ = ["Chunk", "LogReader", "Mode", "find_splits", "to_request_batches"]

Mode = Literal["permissive", "failfast"]

_BATCH_ROWS: Final = 65_536

_Splits = Sequence[tuple[int, InputSplit]]
"""With the place of each among all of a log."""


def find_splits(
    urls: Sequence[str], *, parallelism: int, broker_id: int = 0, timezone: str = "UTC", envelope: str = ""
) -> list[InputSplit]:
    """Find files, as :func:`~kquota.pipeline.ingest.request_log.log_files.find_log_files`, and cut them into splits.

    Files that are copies of others are left out. This reads the beginning of each file, all of those that begin alike,
    and the times of a file that covers the hour that came twice at the end of summer time.

    :raises InputError: there is no such file, it cannot be read, or an argument makes no sense.
    """
    check_time_zone(timezone)
    found = find_log_files(urls, broker_id=broker_id, envelope=envelope)
    copies = find_duplicate_logs(found, lambda compared: [digests_of(one) for one in compared])
    files = [file for place, file in enumerate(found) if place not in copies]
    splits, _ = with_split_starts(
        files,
        to_splits(files, parallelism=parallelism),
        timezone,
        lambda searches: [split_starts(one) for one in searches],
    )
    return splits


@dataclass(slots=True)
class _Kept:
    """In place of what writes rows of one kind: keeps those of a chunk."""

    tables: list[pa.Table] = field(default_factory=list)

    def write(self, rows: pa.Table) -> list[DataFile]:
        """Keep rows."""
        if rows.num_rows:
            self.tables.append(rows)
        return []

    def taken(self) -> list[pa.Table]:
        """What was kept, which is not kept any more."""
        tables, self.tables = self.tables, []
        return tables


@dataclass(frozen=True, slots=True)
class Chunk:
    """What a part of a split became."""

    split: int
    lines: int
    tables: Mapping[str, Sequence[pa.Table]]
    """By kind, those that were asked for."""


@dataclass(frozen=True, slots=True)
class LogReader:
    """How request logs are to be read. It goes to the workers."""

    timezone: str = "UTC"
    cluster: str = ""
    topics: Mapping[str, int] = field(default_factory=dict)
    """Partition counts of topics from before the logs begin."""
    num_partitions: int = 1
    """The brokers' ``num.partitions``: of topics that are created without a number."""
    mode: str = "permissive"
    """A :data:`Mode`: whether lines that cannot be read are left out, or end the job."""

    def __post_init__(self) -> None:
        """:raises InputError: there is no such mode."""
        if self.mode not in get_args(Mode):
            raise InputError(f"`mode`: there is no {self.mode}; there are {' and '.join(get_args(Mode))}")

    def chunks(self, splits: _Splits, kinds: Sequence[str]) -> Iterator[Chunk]:
        """Read splits, preferably in order of time, for their rows of these kinds (``ReadOptions.writers``).

        :raises InputError: a line cannot be read, and `mode` is ``failfast``.
        """
        fails_fast = self.mode == "failfast"
        kept = {kind: _Kept() for kind in {*kinds, *(["rejected"] if fails_fast else [])}}
        options = ReadOptions(kept, self.cluster, self.timezone, "requests" in kinds, self.num_partitions)
        paths = {index: split.path for index, split in splits}
        for manifest in read_splits(splits, options):
            chunk = Chunk(manifest.split, manifest.counts.lines, {kind: rows.taken() for kind, rows in kept.items()})
            for rows in chunk.tables["rejected"] if fails_fast else ():
                reason, sample = rows["reason"][0].as_py(), rows["sample"][0].as_py()
                raise InputError(f"{paths[chunk.split]}: a line cannot be read, {reason}: {sample}")
            yield chunk

    def requests(self, splits: _Splits) -> Iterator[pa.RecordBatch]:
        """The table `requests` of these splits alone: what other parts of the log say of topics is not known."""
        for chunk in self.chunks(splits, ("requests", "mutations")):
            for rows in chunk.tables["requests"]:
                yield from to_request_batches(rows)
            for rows in chunk.tables["mutations"]:
                yield from to_request_batches(charge_mutations(mutation_costs(rows, self.topics)))


def to_request_batches(rows: pa.Table) -> Iterator[pa.RecordBatch]:
    """Rows of the table `requests` as Spark takes them."""
    yield from decode_dictionaries(rows).select(REQUESTS.columns).cast(REQUESTS.arrow_schema).to_batches(_BATCH_ROWS)
