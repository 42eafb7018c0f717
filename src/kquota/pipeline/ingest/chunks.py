"""What workers give back: a small manifest of each chunk of log that they read, with the files that they wrote.

Workers write their files themselves, so that no row passes through the JVM only to be written down again. A file
counts only once its chunk's manifest has reached the driver; what a failed or repeated task left behind goes with
the run. See docs/adr/0005-workers-write-parquet.md.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final

import pyarrow as pa
from msgspec import Struct, field

from kquota.pipeline.dataset.manifest import DataFile
from kquota.pipeline.dataset.tables import REQUESTS
from kquota.pipeline.dataset.writing import TableWriter
from kquota.pipeline.ingest.request_log.times import LogTimes

__all__ = [
    "CONNECTIONS_SCHEMA",
    "MUTATIONS_SCHEMA",
    "REJECTED_SCHEMA",
    "ChunkManifest",
    "write_usage",
    "written",
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
    files: dict[str, list[DataFile]] = field(default_factory=dict)
    """By kind: tables, and what is read again before the run ends."""
    seen: tuple[int, int] | None = None
    final: tuple[int, int] | None = None
    open: tuple[int, int] | None = None
    times: LogTimes | None = None
    """Those that the lines were logged at."""
    addresses: list[str] = field(default_factory=list)
    """Those of the broker that clients were connected to, ``host:port``."""


def write_usage(writer: TableWriter, usage: pa.Table) -> list[DataFile]:
    """Write rows of the `usage` table without its date (``USAGE_SCHEMA``)."""
    days = pa.array(usage["cell_start_ms"].to_numpy() // _DAY_MS, pa.int32()).cast(pa.date32())
    return writer.write(usage.append_column("date", days))


def written(files: Iterable[Mapping[str, list[DataFile]]]) -> dict[str, list[DataFile]]:
    """The files of several manifests together, by kind."""
    found = defaultdict[str, list[DataFile]](list)
    for of_one in files:
        for kind, those in of_one.items():
            found[kind] += those
    return found
