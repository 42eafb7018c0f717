"""The Spark session that jobs run in: the one that is there, or one that is started for them."""

from __future__ import annotations

import os
import shlex
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from kquota.config import read_properties
from kquota.errors import InputError, KquotaError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["SHUFFLE_PARTITIONS", "active_session", "start_session"]

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

SHUFFLE_PARTITIONS: Final = "spark.sql.shuffle.partitions"
_OF_QUERIES: Final = {"spark.sql.session.timeZone": "UTC", "spark.sql.execution.arrow.maxRecordsPerBatch": "65536"}
_CONNECT: Final = "sc://"
_CONNECT_PORT: Final = 15002
_CONNECT_S: Final = 10.0
_NAME: Final = "spark.app.name"
_MASTER: Final = "spark.master"
_LOG_LEVEL: Final = "spark.log.level"
_LOCAL_MEMORY: Final = "2g"
_SUBMIT_ARGS: Final = "PYSPARK_SUBMIT_ARGS"
_SUBMIT_OPTIONS: Final = {
    "--master": _MASTER,
    "--name": _NAME,
    "--driver-java-options": "spark.driver.extraJavaOptions",
}
"""Options of spark-submit that are settings, of those that are set here."""
_QUIET_LOGGING = Path(__file__).with_name("log4j2.properties")


def active_session() -> SparkSession | None:
    """The session that this process has already, whichever thread began it: a notebook's, a program's own.

    A session of Spark Connect counts in the thread that made it.
    """
    connect = sys.modules.get("pyspark.sql.connect.session")
    if connect is not None and (session := connect.SparkSession.getActiveSession()) is not None:
        found: SparkSession = session
        return found
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    if SparkContext._active_spark_context is None:  # noqa: SLF001 - there is no other way to ask
        return None
    # Without a setting this changes none.
    return SparkSession.getActiveSession() or SparkSession.builder.getOrCreate()


def start_session(
    *,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    app_name: str = "kquota",
    log_bytes: int = 0,
    table_bytes: int = 0,
) -> SparkSession:
    """Start Spark, in the way that suits the work. What the user sets, here or where Spark looks, goes before that.

    :param master: a Spark master URL, or that of a Spark Connect server, ``sc://host:port``; by default what Spark's
        own settings say, otherwise ``local[*]``.
    :param conf: settings of Spark, over those in ``spark-defaults.conf`` and ``PYSPARK_SUBMIT_ARGS``.
    :param log_bytes: about how much log is read; a local session is made for that.
    :param table_bytes: how large the tables are that are read.
    :raises KquotaError: PySpark is not installed, or there is no Java 17 or 21; the message says what to install.
    :raises InputError: spark-submit has started the driver, and `conf` has settings of the driver.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise KquotaError(f"PySpark is not installed ({error}): pip install 'kquota[spark]'") from error

    conf = conf or {}
    if master is not None and master.startswith(_CONNECT):
        return _connect(master, conf)
    from kquota.pipeline.spark.java import ensure_java

    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if not submitted:
        os.environ["JAVA_HOME"] = str(ensure_java())
    elif too_late := [key for key in conf if key.startswith("spark.driver.")]:
        raise InputError(f"{too_late[0]}: spark-submit has started the driver: give it that, before the script")
    given = (_submitted_settings() if submitted else _settings_of_files()) | dict(conf)
    master = master or given.get(_MASTER, None if submitted else "local[*]")
    is_local = not submitted and master is not None and master.startswith("local")
    # Spark's workers would otherwise run whichever python3 comes first in PATH.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    defaults = _OF_QUERIES | {f"spark.executorEnv.{name}": value for name, value in _WORKER_ENVIRONMENT.items()}
    if not submitted:  # otherwise the rest is the submitter's to say
        defaults |= {
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.driver.defaultJavaOptions": f"-Dlog4j2.configurationFile={_QUIET_LOGGING.as_uri()}",
        }
    defaults |= _for_size(log_bytes, table_bytes) if is_local else _for_a_cluster(log_bytes, table_bytes)
    builder = SparkSession.builder
    for key, value in ({_NAME: app_name} | defaults).items():
        if key not in given:
            builder = builder.config(key, value)
    for key, value in conf.items():
        builder = builder.config(key, value)
    if master is not None:
        builder = builder.master(master)
    if conf and not submitted and (arguments := shlex.split(os.environ.get(_SUBMIT_ARGS, ""))):
        # A JVM takes these after those of the builder; their last is what it is to run.
        ours = [part for key, value in conf.items() for part in ("--conf", f"{key}={value}")]
        os.environ[_SUBMIT_ARGS] = shlex.join([*arguments[:-1], *ours, arguments[-1]])
    session = builder.getOrCreate()
    if _LOG_LEVEL not in given:
        session.sparkContext.setLogLevel("ERROR")
    return session


def _for_size(log_bytes: int, table_bytes: int) -> dict[str, str]:
    """Settings of a session in this process, by how much it is to read."""
    much = log_bytes >= _MUCH_LOG_BYTES or table_bytes >= _MUCH_TABLE_BYTES
    # What Spark takes where neither its settings nor its spark-env.sh say how much.
    os.environ.setdefault("SPARK_DRIVER_MEMORY", _LOCAL_MEMORY)
    return {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        # A multiple of the cores, so that none of them waits for the last task.
        SHUFFLE_PARTITIONS: str(-(-_partitions(log_bytes, table_bytes) // _cores()) * _cores()),
        # Planning again after every stage, and compiling code for every query, takes longer than it saves.
        "spark.sql.adaptive.enabled": str(much).lower(),
        "spark.sql.codegen.wholeStage": str(much).lower(),
        "spark.sql.codegen.factoryMode": "FALLBACK" if much else "NO_CODEGEN",
        # A job to list what is known to be there takes longer than the list.
        "spark.sql.sources.parallelPartitionDiscovery.threshold": "10000",
        "spark.driver.extraJavaOptions": _JAVA_FOR_MUCH if much else _JAVA_FOR_LITTLE,
    }


def _for_a_cluster(log_bytes: int, table_bytes: int) -> dict[str, str]:
    return {
        # Spark's 200 partitions are made for more than there may be here, and each costs a task.
        SHUFFLE_PARTITIONS: str(max(16, _partitions(log_bytes, table_bytes))),
        "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
    }


def _partitions(log_bytes: int, table_bytes: int) -> int:
    return max(1, -(-log_bytes // _LOG_BYTES_PER_PARTITION), -(-table_bytes // _TABLE_BYTES_PER_PARTITION))


def _connect(url: str, conf: Mapping[str, str]) -> SparkSession:
    """A client's session: the server has its Java, its resources, and its settings but for those of queries."""
    from pyspark.sql import SparkSession

    address = urlsplit(url)
    host, port = address.hostname or "localhost", address.port or _CONNECT_PORT
    try:
        socket.create_connection((host, port), _CONNECT_S).close()
    except OSError as error:  # the client would try for ten minutes, and say nothing
        raise KquotaError(f"{url}: there is no Spark Connect server at {host}:{port}: {error}") from None
    builder = SparkSession.builder.remote(url)
    for key, value in (_OF_QUERIES | dict(conf)).items():
        builder = builder.config(key, value)
    try:
        return builder.getOrCreate()
    except ImportError as error:
        raise KquotaError(f"Spark Connect cannot be used ({error}): pip install 'kquota[connect]'") from error


def _submitted_settings() -> dict[str, str]:
    """Those of spark-submit, from the JVM that it has started."""
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized()  # noqa: SLF001 - so does PySpark's own shell
    settings = dict(SparkConf().getAll())
    if settings.get(_NAME) == Path(sys.argv[0]).name:  # nobody gave it one
        del settings[_NAME]
    return settings


def _settings_of_files() -> dict[str, str]:
    """Those that a driver which is started here will find: in PYSPARK_SUBMIT_ARGS, and in spark-defaults.conf.

    :raises InputError: one cannot be read.
    """
    from pyspark.find_spark_home import _find_spark_home

    folder = os.environ.get("SPARK_CONF_DIR") or Path(_find_spark_home(), "conf")
    file = Path(folder, "spark-defaults.conf")
    settings: dict[str, str] = {}
    arguments = iter(shlex.split(os.environ.get(_SUBMIT_ARGS, "")))
    for argument in arguments:
        option, equals, value = argument.partition("=")
        if option not in ("--conf", "-c", "--properties-file", *_SUBMIT_OPTIONS):
            continue
        text = value if equals else next(arguments, "")
        if option in _SUBMIT_OPTIONS:
            settings[_SUBMIT_OPTIONS[option]] = text
        elif option == "--properties-file":
            file = Path(text)
        else:
            key, _, value = text.partition("=")
            settings[key] = value
    of_file = read_properties(str(file), "Spark's settings") if file.is_file() else {}
    return of_file | settings


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
