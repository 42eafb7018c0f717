"""The Spark session that the command line uses."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from kquota.errors import KquotaError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["start_session"]

# Of log; its cells are more than fifty times smaller. Every partition costs a task, and a small job would spend its
# time on those.
_LOG_BYTES_PER_PARTITION = 4 * 1024**3
_TABLE_BYTES_PER_PARTITION = 32 * 1024**2

# In a job of a few minutes the optimising compiler and parallel collections cost more than they bring (at 10 GB of log
# a third of the JVM's time): most work per row is done by the Python workers, and what reaches the JVM is small.
_MUCH_LOG_BYTES = 64 * 1024**3
_MUCH_TABLE_BYTES = 8 * 1024**3
_JAVA_FOR_LITTLE = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:MetaspaceSize=256m"
_JAVA_FOR_MUCH = "-XX:+UseParallelGC"

# Blocks of a few hundred kilobytes come and go for every two hundred lines. By default glibc gets each from the system
# and gives it back: a tenth of a worker's time, most of which this saves.
_WORKER_ENVIRONMENT = {"MALLOC_MMAP_THRESHOLD_": str(32 * 1024**2), "MALLOC_TRIM_THRESHOLD_": str(64 * 1024**2)}

_PARTITIONS = "spark.sql.shuffle.partitions"
_QUIET_LOGGING = Path(__file__).with_name("log4j2.properties")


def start_session(
    *, master: str | None = None, app_name: str = "kquota", log_bytes: int = 0, table_bytes: int = 0
) -> SparkSession:
    """Start Spark, or join the session that is there (spark-submit).

    :param master: a Spark master URL; by default what spark-submit says, otherwise ``local[*]``.
    :param log_bytes: about how much log is read; a local session is made for that.
    :param table_bytes: how large the tables are that are read.
    :raises KquotaError: PySpark is not installed, or there is no Java 17 or 21; the message says what to install.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise KquotaError(f"PySpark is not installed ({error}): pip install 'kquota[spark]'") from error

    from kquota.pipeline.java import ensure_java

    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if not submitted:
        os.environ["JAVA_HOME"] = str(ensure_java())
        master = master or "local[*]"
    is_local = not submitted and master is not None and master.startswith("local")
    # Spark's workers would otherwise run whichever python3 comes first in PATH.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(app_name)
    if master is not None:
        builder = builder.master(master)
    defaults = {"spark.sql.session.timeZone": "UTC", "spark.sql.execution.arrow.maxRecordsPerBatch": "65536"}
    defaults |= {f"spark.executorEnv.{name}": value for name, value in _WORKER_ENVIRONMENT.items()}
    if not submitted:  # otherwise the rest is the submitter's to say
        defaults |= {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
    quiet = f"-Dlog4j2.configurationFile={_QUIET_LOGGING.as_uri()}"
    partitions = max(1, -(-log_bytes // _LOG_BYTES_PER_PARTITION), -(-table_bytes // _TABLE_BYTES_PER_PARTITION))
    if is_local:
        much = log_bytes >= _MUCH_LOG_BYTES or table_bytes >= _MUCH_TABLE_BYTES
        java_options = _JAVA_FOR_MUCH if much else _JAVA_FOR_LITTLE
        defaults |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": "2g",
            # A multiple of the cores, so that none of them waits for the last task.
            _PARTITIONS: str(-(-partitions // _cores()) * _cores()),
            # Planning again after every stage, and compiling code for every query, takes longer than it saves.
            "spark.sql.adaptive.enabled": str(much).lower(),
            "spark.sql.codegen.wholeStage": str(much).lower(),
            "spark.sql.codegen.factoryMode": "FALLBACK" if much else "NO_CODEGEN",
            # A job to list what is known to be there takes longer than the list.
            "spark.sql.sources.parallelPartitionDiscovery.threshold": "10000",
            "spark.driver.extraJavaOptions": f"{quiet} {java_options}",
        }
    else:
        defaults["spark.sql.adaptive.coalescePartitions.parallelismFirst"] = "false"
        if not submitted:
            defaults["spark.driver.extraJavaOptions"] = quiet
    for key, value in defaults.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    if not is_local and not session.sparkContext.getConf().contains(_PARTITIONS):
        # Spark's 200 partitions are made for more than there may be here, and each costs a task.
        session.conf.set(_PARTITIONS, str(max(16, partitions)))
    session.sparkContext.setLogLevel("ERROR")
    return session


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
