"""What workers hand over: Parquet files in a staging folder, and a small manifest of each chunk of log they read.

Workers write their files themselves, so that no row passes through the JVM only to be written down again. A file
counts only once its chunk's manifest has reached the driver; what a failed or repeated task left behind is removed
with the folder. See docs/adr/0005-workers-write-parquet.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path
from typing import Final
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct, field

from kquota.pipeline.ingest.request_log.times import LogTimes

__all__ = [
    "CONNECTIONS_SCHEMA",
    "MUTATIONS_SCHEMA",
    "REJECTED_SCHEMA",
    "REQUESTS_SCHEMA",
    "ChunkManifest",
    "DataFile",
    "write_data_file",
    "write_usage",
]

_STAGED: Final = "staged"
_EPOCH: Final = date(1970, 1, 1)
_DAY_MS: Final = 86_400_000

REQUESTS_SCHEMA: Final = pa.schema(
    [
        ("cluster", pa.string()),
        ("broker_id", pa.int32()),
        ("connection", pa.string()),
        ("seq", pa.int64()),
        ("end_ms", pa.float64()),
        ("record_ms", pa.float64()),
        ("api_key", pa.int32()),
        ("api_version", pa.int32()),
        ("user", pa.string()),
        ("client_id", pa.string()),
        ("ip", pa.string()),
        ("key", pa.string()),
        ("amount", pa.float64()),
        ("local_ms", pa.float64()),
        ("remote_ms", pa.float64()),
        ("throttle_ms", pa.int64()),
        ("listener", pa.string()),
    ]
)
MUTATIONS_SCHEMA: Final = pa.schema(
    [
        *(column for column in REQUESTS_SCHEMA if column.name not in ("amount", "ip", "key")),
        ("topic", pa.string()),
        ("operation", pa.string()),
        ("partitions", pa.int64()),
        ("validate_only", pa.bool_()),
    ]
)
"""One row per topic of a CreateTopics, CreatePartitions or DeleteTopics request, in request order; `partitions` is
the count that the topic has afterwards, null where the line does not say, and `operation` is none where the topic
was refused. What is only validated is charged, too, but leaves the topic as it was. A request without topics has one
row with null topic."""
CONNECTIONS_SCHEMA: Final = pa.schema(
    [("broker_id", pa.int32()), ("connection", pa.string()), ("ip", pa.string()), ("second", pa.int64())]
)
"""One row per connection seen in a chunk, with the first second."""
REJECTED_SCHEMA: Final = pa.schema(
    [("range", pa.int64()), ("line", pa.int64()), ("reason", pa.string()), ("sample", pa.string())]
)
"""One row per rejected line; `line` counts from 1 within its range."""


class DataFile(Struct, frozen=True):
    """A Parquet file under the staging folder; `partition` such as ``date=2026-01-02``, or empty."""

    kind: str
    path: str
    rows: int
    partition: str = ""


class ChunkManifest(Struct, frozen=True):
    """What one worker read in one go: a byte range, or a part of one.

    Of the pairs of seconds, both ends included: anything was recorded within `seen`. Cells of seconds in `final` were
    written as `usage`; cells of seconds in `open` (which may lie around `final`) went to the edges. None where there
    are no such seconds.
    """

    range: int
    broker_id: int
    lines: int
    good: int
    rejected: int
    blank: int
    forwarded: int
    followers: int
    unknown_amounts: int
    versions: dict[str, int]
    files: list[DataFile] = field(default_factory=list)
    seen: tuple[int, int] | None = None
    final: tuple[int, int] | None = None
    open: tuple[int, int] | None = None
    times: LogTimes | None = None
    """Those that the lines were logged at."""
    addresses: list[str] = field(default_factory=list)
    """Those of the broker that clients were connected to, ``host:port``."""


def write_usage(folder: str | Path, usage: pa.Table) -> Iterator[DataFile]:
    """Write rows of the `usage` table (``USAGE_SCHEMA``) as staged files, one per UTC day."""
    day_of_row = usage["cell_start_ms"].to_numpy() // _DAY_MS
    for day in np.unique(day_of_row).tolist():
        partition = f"date={_EPOCH + timedelta(days=day)}"
        of_day = usage.filter(pa.array(day_of_row == day))
        yield write_data_file(folder, "usage", of_day, partition=partition)


def write_data_file(folder: str | Path, kind: str, table: pa.Table, *, partition: str = "") -> DataFile:
    """Write one staged Parquet file (snappy) under a name that no other attempt can have."""
    name = Path(_STAGED, kind, partition, f"{uuid4().hex}.parquet")
    path = Path(folder) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, compression="snappy", store_schema=False)
    return DataFile(kind, str(name), table.num_rows, partition)
