"""Kafka's request log to files of usage, on Spark's workers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from kquota.pipeline.ingest.chunks import ChunkManifest
from kquota.pipeline.ingest.request_log.log_files import InputSplit
from kquota.pipeline.ingest.request_log.split_reader import IngestOptions, read_splits
from kquota.pipeline.spark.workers import drop_zip_importers

if TYPE_CHECKING:
    from pyspark import Accumulator
    from pyspark.sql import SparkSession

__all__ = ["read_request_logs"]


def read_request_logs(
    spark: SparkSession,
    ranges: Sequence[InputSplit],
    tasks: Sequence[Sequence[int]],
    options: IngestOptions,
    *,
    lines_read: Accumulator[int],
) -> list[ChunkManifest]:
    """Read the ranges on Spark's workers into files.

    :param tasks: indices of `ranges`, by task.
    :param lines_read: grows while workers read.
    :returns: the manifests, some per range; their number is bounded by the bytes read, not by what is in them.
    """
    ranges, tasks = tuple(ranges), tuple(map(tuple, tasks))

    def work(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        drop_zip_importers()
        for batch in batches:
            for task in batch.column(0).to_pylist():
                for chunk in read_splits([(index, ranges[index]) for index in tasks[task]], options):
                    lines_read.add(chunk.lines)
                    manifest = msgspec.json.encode(chunk).decode()
                    yield pa.RecordBatch.from_pydict({"manifest": [manifest]})

    frame = spark.range(0, len(tasks), 1, max(1, len(tasks))).mapInArrow(work, "manifest string")
    decoder = msgspec.json.Decoder(ChunkManifest)
    return [decoder.decode(row.manifest) for row in frame.collect()]
