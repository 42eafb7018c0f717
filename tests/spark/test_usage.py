"""Usage comes out the same however the log is cut, whatever failed attempts left behind."""

import gzip
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

from kquota.pipeline.dataset.dataset import Dataset
from kquota.pipeline.dataset.run import Run
from kquota.pipeline.dataset.steps import INGEST_STEP
from kquota.pipeline.dataset.tables import USAGE
from kquota.pipeline.ingest.from_logs import IngestResult, ingest_logs
from kquota.pipeline.ingest.merge import merge_usage
from kquota.pipeline.ingest.request_log import log_files, split_reader
from kquota.pipeline.ingest.request_log.log_files import find_log_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

GOLDEN = Path("tests/data/golden/4.3.0/kafka-request.log")
COMPARED = [name for name in USAGE.columns if name != "connections"]


def ingest(
    spark: "SparkSession",
    place: Path,
    logs: Sequence[Path],
    *,
    keep_requests: bool = False,
    timezone: str = "UTC",
    before: Callable[[Run], None] = lambda run: None,
) -> IngestResult:
    """Read logs into a new dataset.

    :param before: is run first.
    """
    with Dataset.create(place).run(INGEST_STEP, spark=spark) as run:
        before(run)
        result = ingest_logs(
            run,
            find_log_files([str(path) for path in logs]),
            cluster="c",
            timezone=timezone,
            keep_requests=keep_requests,
            default_partitions=1,
            topics={},
        )
        run.commit()
    return result


def cells(place: Path) -> set[tuple[Any, ...]]:
    rows = Dataset.open(place).read("usage", columns=COMPARED).to_pylist()
    found = {tuple(round(value, 6) if isinstance(value, float) else value for value in row.values()) for row in rows}
    assert len(found) == len(rows), "one row per broker, second, client and key"
    return found


def test_usage_is_the_same_however_the_log_is_cut(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One range, many ranges, small chunks, and files that overlap line by line: the cells are equal."""
    whole = ingest(spark, tmp_path / "whole", [GOLDEN])
    expected = cells(tmp_path / "whole")
    assert len(expected) > 100

    monkeypatch.setattr(log_files, "MIN_SPLIT_BYTES", 20_000)
    monkeypatch.setattr(log_files, "MAX_SPLIT_BYTES", 20_000)
    cut = ingest(spark, tmp_path / "cut", [GOLDEN])
    assert cells(tmp_path / "cut") == expected
    assert cut == whole

    lines = GOLDEN.read_bytes().splitlines(keepends=True)
    for parity in (0, 1):
        (tmp_path / f"half-{parity}.log").write_bytes(b"".join(lines[parity::2]))
    halves = ingest(spark, tmp_path / "halves", [tmp_path / "half-1.log", tmp_path / "half-0.log"])
    assert cells(tmp_path / "halves") == expected
    assert (halves.good, halves.followers, halves.forwarded) == (whole.good, whole.followers, whole.forwarded)


def test_the_same_log_under_two_names_counts_once(spark: "SparkSession", tmp_path: Path) -> None:
    """A rotated log, its packed copy in an archive, and a copy that was made before it went on."""
    whole = ingest(spark, tmp_path / "whole", [GOLDEN])
    text = GOLDEN.read_bytes()
    (tmp_path / "archive.gz").write_bytes(gzip.compress(text))
    (tmp_path / "early").write_bytes(text[: len(text) // 2])
    again = ingest(spark, tmp_path / "again", [tmp_path / "archive.gz", tmp_path / "early", GOLDEN])
    assert [Path(log.path).name for log in again.duplicate_logs] == ["archive.gz", "early"]
    assert {log.of for log in again.duplicate_logs} == {str(GOLDEN.resolve())}
    assert replace(again, duplicate_logs=()) == whole
    assert cells(tmp_path / "again") == cells(tmp_path / "whole")


def test_an_hour_that_came_twice_is_two_hours(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Summer time ends within the log, whose ranges are read on their own."""
    line = next(line for line in GOLDEN.read_bytes().splitlines() if b'"requestApiKeyName":"PRODUCE"' in line)
    body = line.partition(b"]")[2]
    hours = (f"02:{minute:02}" for _ in range(2) for minute in range(60))
    text = b"".join(b"[2026-10-25 %s:30,000]%s\n" % (hour.encode(), body) for hour in hours)
    (tmp_path / "log").write_bytes(b"[2026-10-25 01:59:30,000]" + body + b"\n" + text)
    monkeypatch.setattr(log_files, "MIN_SPLIT_BYTES", 20_000)
    monkeypatch.setattr(log_files, "MAX_SPLIT_BYTES", 20_000)
    result = ingest(spark, tmp_path / "out", [tmp_path / "log"], timezone="Europe/Berlin")
    assert (result.good, result.clock_went_backwards, result.ambiguous_hours) == (121, {}, ())
    assert result.start_ms is not None
    assert result.end_ms is not None
    assert (result.end_ms - result.start_ms) // 60_000 == 120
    usage = Dataset.open(tmp_path / "out").read("usage").to_pylist()
    assert {row["requests"] for row in usage if row["key"] == "producer_byte_rate"} == {1}


def test_what_a_failed_attempt_left_behind_does_not_count(spark: "SparkSession", tmp_path: Path) -> None:
    """A worker that is lost leaves files that no manifest names; another one reads its lines again."""
    whole = ingest(spark, tmp_path / "whole", [GOLDEN], keep_requests=True)

    def fail(run: Run) -> None:
        for kind in ("usage", "requests", "rejected"):
            run.writer(kind).write(Dataset.open(tmp_path / "whole").read(kind))

    again = ingest(spark, tmp_path / "again", [GOLDEN], keep_requests=True, before=fail)
    assert again == whole
    assert cells(tmp_path / "again") == cells(tmp_path / "whole")
    requests = [pq.read_table(tmp_path / run / "requests").num_rows for run in ("whole", "again")]
    assert requests[0] == requests[1] > 100


def test_small_stretches_give_the_same_cells(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Handing over every few lines, as a huge file does every half million, changes nothing."""
    ingest(spark, tmp_path / "whole", [GOLDEN])
    monkeypatch.setattr(log_files, "MIN_SPLIT_BYTES", 50_000)
    monkeypatch.setattr(log_files, "MAX_SPLIT_BYTES", 50_000)
    monkeypatch.setattr(split_reader, "CHUNK_LINES", 1)
    monkeypatch.setattr(split_reader, "read_blocks", partial(log_files.read_blocks, chunk_bytes=8000))
    ranges = log_files.to_splits(find_log_files([str(GOLDEN)]), parallelism=1)
    with Dataset.create(tmp_path / "small").run(INGEST_STEP, spark=spark) as run:
        writers = {kind: run.temporary(kind) for kind in ("edges", "mutations", "connections", "rejected")}
        writers["usage"] = run.writer("usage")
        options = split_reader.IngestOptions(writers, "c", "UTC", keep_requests=False, default_partitions=1)
        chunks = list(split_reader.read_splits(list(enumerate(ranges)), options))
        assert len(chunks) > 2 * len(ranges) > 10
        merge_usage(run, chunks, cluster="c", topics={}, keep_requests=False)
        run.commit()
    assert cells(tmp_path / "small") == cells(tmp_path / "whole")
    # What a stretch leaves open the next one knows: only the whole's own ends were put together afterwards.
    assert sum("edges" in chunk.files for chunk in chunks) < len(chunks) / 4


def test_requests_have_a_row_per_request_and_key(spark: "SparkSession", tmp_path: Path) -> None:
    """Kept requests add up to the usage, and a request stands once on each of its keys."""
    ingest(spark, tmp_path / "kept", [GOLDEN], keep_requests=True)
    dataset = Dataset.open(tmp_path / "kept")
    requests, usage = (dataset.frame(spark, name) for name in ("requests", "usage"))
    assert requests.groupBy("broker_id", "seq", "key").count().where("count > 1").count() == 0

    def amounts(table: "DataFrame") -> dict[str, float]:
        return {row.key: row.total for row in table.groupBy("key").agg(F.sum("amount").alias("total")).collect()}

    used = amounts(usage)
    used.pop("connection_creation_rate")
    assert amounts(requests) == pytest.approx(used)
