"""Runs with a Spark session: the one that is there, or one that ends with the run."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from kquota.clock import SystemClock
from kquota.config import BrokerConfig
from kquota.errors import InputError
from kquota.pipeline.dataset.dataset import Dataset
from kquota.pipeline.dataset.run import Run
from kquota.pipeline.dataset.steps import Step
from kquota.pipeline.progress import Progress
from kquota.pipeline.spark.errors import to_kquota_error
from kquota.pipeline.spark.persisted_frames import unpersisting
from kquota.pipeline.spark.session import active_session, start_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["JobOptions", "spark_run"]

_RECORDED = ("usage", "requests")
"""The large tables: a row for each cell or request that was recorded."""


@dataclass(frozen=True, slots=True)
class JobOptions:
    """What all jobs take. `master` is a Spark master URL, None for what Spark's settings say, otherwise ``local[*]``;
    `conf` are settings of Spark. Both are for a session that the job starts: one that is there is used as it is.
    """

    out: str | Path
    overwrite: bool = False
    broker_config: BrokerConfig = field(default_factory=BrokerConfig)
    master: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)
    quiet: bool = False

    def progress(self) -> Progress:
        """A reporter on standard error."""
        return Progress(sys.stderr, SystemClock(), quiet=self.quiet)


@contextmanager
def spark_run(
    options: JobOptions,
    step: Step,
    dataset: Dataset,
    *,
    into: Dataset | None = None,
    is_read_only: bool = False,
    log_bytes: int = 0,
) -> Iterator[Run]:
    """A run of a step; as :meth:`Dataset.run`. An error of Spark is one of ours, in a line.

    :param is_read_only: the run writes nothing, and is not announced: the dataset may be on a read-only storage.
    :param log_bytes: about how much the step reads besides the dataset.
    :raises KquotaError: the work failed.
    :raises InputError: there is a session, and the options are for another.
    """
    run = dataset.run(step, progress=options.progress(), broker=options.broker_config, into=into)
    try:
        with nullcontext() if is_read_only else run, _session(options, run, log_bytes):
            yield run
    except Exception as error:
        raise to_kquota_error(error) from error


@contextmanager
def _session(options: JobOptions, run: Run, log_bytes: int) -> Iterator[SparkSession]:
    joined = active_session()
    if joined is not None and (options.master is not None or options.conf):
        raise InputError("a Spark session is running in this process: it has its own master and settings, give none")
    with run.stage("start Spark"):
        run.session = joined or start_session(
            master=options.master,
            conf=options.conf,
            log_bytes=log_bytes,
            table_bytes=0 if run.step.begins_anew else run.dataset.nbytes(*_RECORDED),
        )
    try:
        with unpersisting():
            yield run.session
    finally:
        if joined is None:
            run.session.stop()
