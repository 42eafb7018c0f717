"""A session that the caller runs, as in a notebook: jobs use it as it is, and leave it as it was."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kquota.cli import run
from kquota.errors import InputError
from kquota.pipeline import jobs
from kquota.pipeline.ingest.reject_limit import TooManyRejectedError
from kquota.pipeline.jobs import LogSettings, RejectLimit
from kquota.pipeline.spark.session import active_session
from tests.kit.datasets import rows_by_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOG = Path("tests/data/golden/4.3.0/kafka-request.log").resolve()
QUOTAS = """
- {entity: {user: null}, values: {producer_byte_rate: 100}}
- {entity: {user: ANONYMOUS, client-id: etl}, values: {producer_byte_rate: 50000, consumer_byte_rate: 1MiB}}
"""
STEPS = (
    ["analyze", str(LOG), "--quotas", "quotas.yaml", "--out"],
    ["pipeline", "resolve", "--quotas", "quotas.yaml", "--dataset"],
    ["pipeline", "utilisation", "--dataset"],
    ["pipeline", "whatif", "--quotas", "new.yaml", "--dataset"],
    ["pipeline", "sweep", "--candidates", "3", "--dataset"],
    ["pipeline", "recommend", "--candidates", "3", "--objective", "throttled_share<=1", "--dataset"],
    ["pipeline", "showback", "--timezone", "Asia/Tokyo", "--dataset"],
)
IN_UTC = [
    [*STEPS[0][:-1], "--no-report", "--out"],
    *(step for step in STEPS if step[1] in ("whatif", "sweep", "showback")),
]
THEIRS = {
    "spark.sql.session.timeZone": "America/New_York",
    "spark.sql.shuffle.partitions": "3",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "quotas.yaml").write_text(QUOTAS)
    (tmp_path / "new.yaml").write_text(QUOTAS.replace("50000", "500"))
    return tmp_path


@pytest.fixture
def theirs(spark: SparkSession) -> Iterator[SparkSession]:
    """The session with settings of the caller's."""
    before = {name: spark.conf.get(name) for name in THEIRS}
    for name, value in THEIRS.items():
        spark.conf.set(name, value)
    yield spark
    for name, known in before.items():
        assert known is not None
        spark.conf.set(name, known)


def state(spark: SparkSession) -> dict[str, Any]:
    """All that a job could change: settings, level of the log, what is kept in memory."""
    context = spark.sparkContext
    assert context._jvm is not None
    level = context._jvm.org.apache.logging.log4j.LogManager.getRootLogger().getLevel().toString()
    caches = spark._jsparkSession.sharedState().cacheManager().isEmpty()
    kept = sorted(context._jsc.getPersistentRDDs())
    views = spark.catalog.listTables()
    return dict(spark.conf.getAll) | {"log level": level, "no caches": caches, "kept": kept, "views": views}


def test_jobs_leave_the_session_as_it_was(theirs: SparkSession, folder: Path) -> None:
    """Running, with every setting, and nothing kept in its memory; the tables do not depend on its time zone."""
    before = state(theirs)
    for step in STEPS:
        assert run([*step, "theirs", "-q"]) == 0
        assert state(theirs) == before, step
    assert theirs.range(3).count() == 3
    for name, value in {**THEIRS, "spark.sql.session.timeZone": "UTC", "spark.sql.shuffle.partitions": "2"}.items():
        theirs.conf.set(name, value)
    for step in IN_UTC:
        assert run([*step, "in-utc", "-q"]) == 0
    found, in_utc = rows_by_table(folder / "theirs"), rows_by_table(folder / "in-utc")
    assert found == in_utc | {"recommendations": found["recommendations"]}
    assert all(found[name] for name in ("usage", "clients", "utilisation", "whatif", "curve", "showback"))


def test_a_failure_leaves_it_too(theirs: SparkSession, folder: Path) -> None:
    before = state(theirs)
    log_settings, rejects = LogSettings(), RejectLimit.parse("0")
    (folder / "bad.log").write_text("no request\n")
    with pytest.raises(TooManyRejectedError):
        jobs.ingest(["bad.log"], log_settings, jobs.JobOptions(Path("out"), quiet=True), max_rejected=rejects)
    assert state(theirs) == before
    assert active_session() is theirs


@pytest.mark.parametrize("options", [{"master": "local[2]"}, {"conf": {"spark.sql.ansi.enabled": "false"}}])
def test_a_master_and_settings_are_for_a_session_of_ones_own(
    spark: SparkSession, folder: Path, options: dict[str, Any]
) -> None:
    """Where one runs they could only be ignored."""
    assert active_session() is spark
    with pytest.raises(InputError, match="a Spark session is running in this process"):
        jobs.ingest(
            [str(LOG)],
            LogSettings(),
            jobs.JobOptions(Path("out"), quiet=True, **options),
            max_rejected=RejectLimit.parse("0"),
        )
    assert not (folder / "out").exists()
