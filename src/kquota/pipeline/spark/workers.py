"""Work for Spark's Python workers: tasks of about the same size, and the manifests that they give back."""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar
from zipimport import zipimporter

import msgspec
import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = [
    "MANIFESTS",
    "balanced_tasks",
    "collect_manifests",
    "decode_manifests",
    "default_parallelism",
    "drop_zip_importers",
    "file_tasks",
    "is_connect",
    "manifest_batch",
]

MANIFESTS: Final = "manifest string"
"""Spark's schema of manifests: one row for each, what a worker did, as JSON of a msgspec Struct."""

_TASK_BYTES: Final = 32 * 1024**2
_LEAST_TASK_BYTES: Final = 1024**2
"""Starting a task takes longer than reading less than this."""
_SPLITS: Final = re.compile(r"splits=(?:Some\()?(\d+)")

_Task = TypeVar("_Task")
_Manifest = TypeVar("_Manifest")


def balanced_tasks(
    sizes: Sequence[int], parallelism: int, *, per_core: int = 3, min_bytes: int = 1, max_bytes: int
) -> list[list[int]]:
    """Group inputs (by index) into tasks of about the same size. Each task has neighbours, in their order.

    The largest task comes first, so that one large input does not start last.

    :param sizes: of the inputs, in bytes.
    :param parallelism: the number of cores.
    :param per_core: how many tasks there should be for each core.
    :param min_bytes: there are fewer tasks than that, if they would be smaller than this.
    :param max_bytes: there are more, if they would be larger; one input may be.
    """
    total = max(1, sum(sizes))
    fewest = min(parallelism * per_core, -(-total // min_bytes))
    # A multiple of the cores, so that none of them waits for the last task.
    count = -(-max(fewest, -(-total // max_bytes)) // parallelism) * parallelism
    tasks: dict[int, list[int]] = defaultdict(list)
    before = 0
    for index, size in enumerate(sizes):
        tasks[(2 * before + size) * count // (2 * total)].append(index)
        before += size
    return sorted(tasks.values(), key=lambda task: -sum(sizes[index] for index in task))


def file_tasks(spark: SparkSession, sizes: Sequence[int]) -> list[list[int]]:
    """Group Parquet files (by index) into tasks."""
    return balanced_tasks(sizes, default_parallelism(spark), min_bytes=_LEAST_TASK_BYTES, max_bytes=_TASK_BYTES)


def default_parallelism(spark: SparkSession) -> int:
    """How many tasks run at a time; with Spark Connect, where only the server knows it, into how many it cuts a range.

    Of a cluster that adds executors it is what there is now, and may be too few.
    """
    if not is_connect(spark):
        return spark.sparkContext.defaultParallelism
    # The plan of a client's frame says so without a job, and nothing public does: "Range (0, 1, step=1, splits=2)".
    frame: Any = spark.range(1)
    found = _SPLITS.search(frame._explain_string())  # noqa: SLF001
    return int(found[1]) if found else 2


def is_connect(spark: SparkSession) -> bool:
    """Whether a session is a client of Spark Connect: without a context, broadcasts and accumulators."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def collect_manifests(
    spark: SparkSession,
    tasks: Sequence[_Task],
    work: Callable[[_Task], Iterable[_Manifest]],
    kind: type[_Manifest],
) -> list[_Manifest]:
    """Run `work` on workers, for each of `tasks` in a Spark task of its own.

    :param kind: the msgspec Struct that `work` yields.
    :returns: what it yielded, in the order of `tasks`. All of it is on the driver: `work` yields little.
    """
    tasks = tuple(tasks)

    def each(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        drop_zip_importers()
        for batch in batches:
            for index in batch.column(0).to_pylist():
                yield from map(manifest_batch, work(tasks[index]))

    return decode_manifests(spark.range(0, len(tasks), 1, max(1, len(tasks))).mapInArrow(each, MANIFESTS), kind)


def manifest_batch(manifest: object) -> pa.RecordBatch:
    """A row of :data:`MANIFESTS`."""
    return pa.RecordBatch.from_pydict({"manifest": [msgspec.json.encode(manifest).decode()]})


def decode_manifests(frame: DataFrame, kind: type[_Manifest]) -> list[_Manifest]:
    """Run the job of a frame of :data:`MANIFESTS`, and give what its workers yielded, in order of its partitions."""
    decoder = msgspec.json.Decoder(kind)
    return [decoder.decode(row.manifest) for row in frame.collect()]


def drop_zip_importers() -> None:
    """Call this at the start of whatever runs on a worker.

    Before each task Spark has a reused worker refresh all importers (``importlib.invalidate_caches``), and each of the
    dozen that have looked into pyspark.zip then reads its list of 1,600 files anew: a fifth of a second, for nothing.
    They are made again where they are needed.
    """
    for path, importer in list(sys.path_importer_cache.items()):
        if isinstance(importer, zipimporter):
            del sys.path_importer_cache[path]
