"""Manifests of chunks of log: small descriptions that workers return for what they read, with the files they wrote.

Workers write their files themselves, so that no row passes through the JVM only to be written again. A file counts
only when its chunk's manifest has reached the driver; files that a failed or repeated task wrote are removed with the
run. See docs/adr/0005-workers-write-parquet.md.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final, Protocol

import pyarrow as pa
from msgspec import Struct, field

from kquota.pipeline.dataset.manifest import DataFile
from kquota.pipeline.dataset.tables import REQUESTS
from kquota.pipeline.ingest.counts import LineCounts
from kquota.pipeline.ingest.request_log.clock import LogTimes

__all__ = [
    "CONNECTIONS_SCHEMA",
    "MUTATIONS_SCHEMA",
    "REJECTED_SCHEMA",
    "ChunkManifest",
    "RowWriter",
    "files_by_kind",
    "to_table",
    "write_usage",
]

_DAY_MS: Final = 86_400_000

MUTATIONS_SCHEMA: Final = pa.schema(
    [
        *(column for column in REQUESTS.arrow_schema if column.name not in ("amount", "ip", "key")),
        ("topic", pa.string()),
        ("operation", pa.string()),
        ("partitions", pa.int64()),
        ("validate_only", pa.bool_()),
    ]
)
"""One row per topic of a CreateTopics, CreatePartitions or DeleteTopics request, in request order.

`operation` is create, grow, delete, or none where the topic was refused; `partitions` is the count that the topic has
afterwards, null where the line does not say it. A request that only validates is charged, too, but does not change the
topic. A request without topics has one row with null topic."""
CONNECTIONS_SCHEMA: Final = pa.schema(
    [("broker_id", pa.int32()), ("connection", pa.string()), ("ip", pa.string()), ("second", pa.int64())]
)
"""One row per connection of a chunk; `second` is the first one in which it was seen, since the epoch."""
REJECTED_SCHEMA: Final = pa.schema(
    [("split", pa.int64()), ("line", pa.int64()), ("reason", pa.string()), ("sample", pa.string())]
)
"""One row per rejected line; `line` counts from 1 within its split (its index among all splits)."""


class RowWriter(Protocol):
    """Where rows of one kind go."""

    def write(self, rows: pa.Table) -> list[DataFile]:
        """Take rows; returns the files that have them."""


class ChunkManifest(Struct, frozen=True):
    """What a worker read at a time: a split of a log, or a part of one.

    Pairs are of seconds since the epoch, both ends included; None where there are no such seconds.
    """

    split: int
    """Index among all splits."""
    broker_id: int
    counts: LineCounts
    files: dict[str, list[DataFile]] = field(default_factory=dict)
    """By kind: tables, and temporary files."""
    seen: tuple[int, int] | None = None
    """Everything was recorded within these."""
    final: tuple[int, int] | None = None
    """Cells of these seconds were written as `usage`."""
    open: tuple[int, int] | None = None
    """Cells of these seconds were written as `edges`; they may lie around `final`."""
    times: LogTimes | None = None
    """When the lines were logged."""
    addresses: list[str] = field(default_factory=list)
    """Addresses of the broker that clients were connected to, ``host:port``."""


class _Manifest(Protocol):
    @property
    def files(self) -> dict[str, list[DataFile]]: ...


def files_by_kind(manifests: Iterable[_Manifest]) -> dict[str, list[DataFile]]:
    """The files of several manifests together."""
    found = defaultdict[str, list[DataFile]](list)
    for manifest in manifests:
        for kind, files in manifest.files.items():
            found[kind] += files
    return found


def to_table(rows: Sequence[Sequence[object]], schema: pa.Schema) -> pa.Table:
    """Rows as a table; each has the columns of `schema`."""
    columns = zip(*rows, strict=True) if rows else ((),) * len(schema)
    arrays = [pa.array(list(column), field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.table(arrays, schema=schema)


def write_usage(writer: RowWriter, usage: pa.Table) -> list[DataFile]:
    """Write rows of the `usage` table that lack only its column `date` (``USAGE_SCHEMA``)."""
    days = pa.array(usage["cell_start_ms"].to_numpy() // _DAY_MS, pa.int32()).cast(pa.date32())
    return writer.write(usage.append_column("date", days))
