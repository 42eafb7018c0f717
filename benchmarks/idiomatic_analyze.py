"""`kquota analyze` with its steps after the reading of logs as idiomatic PySpark.

Logs are read as kquota reads them: workers take byte ranges and write Parquet (``from_json`` is many times slower,
which nobody has to show again), and what stands in two ranges is put together. From there on ``spark.read.parquet``
takes the place of the reader in Arrow, and joins, ``groupBy``, ``repartition`` and sorts that of blocks of rows: for
the totals of clients, `utilisation` and `throttled`. Calibration and report are the same: they are Spark's SQL already.

Usage: ``python -m benchmarks.idiomatic_analyze LOG QUOTAS OUT [--form FORM] [--no-keep-requests]``
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Final
from unittest import mock

from benchmarks import idiomatic_usage
from benchmarks.idiomatic_steps import shuffle_bytes
from kquota.files import QuotaTimeline, read_quota_file
from kquota.pipeline import jobs
from kquota.pipeline.dataset.run import Run
from kquota.pipeline.ingest.request_log.log_files import find_log_files
from kquota.pipeline.jobs import JobOptions, LogSettings, RejectLimit
from kquota.pipeline.limits import step as limits
from kquota.pipeline.meters import step as utilisation
from kquota.pipeline.spark.session import start_session

__all__ = ["FORMS", "SPECIAL", "TABLES", "analyze", "idiomatic_steps"]

SPECIAL: Final = "special"
FORMS: Final[Mapping[str, dict[str, str]]] = {
    SPECIAL: {},
    "idiomatic": idiomatic_usage.session_settings(),
    "idiomatic, Java's first compiler": idiomatic_usage.session_settings(optimise=False),
}
"""With the settings of Spark that go with each, beside kquota's own."""
_METER: Final = ("cluster", "broker_id", "meter", "key")
TABLES: Final = {
    "usage": ("cluster", "broker_id", "cell_start_ms", "user", "client_id", "ip", "key"),
    "clients": ("cluster", "user", "client_id", "ip", "key"),
    "utilisation": _METER,
    "throttled": (*_METER, "start_ms"),
    "calibration": _METER,
}
"""What tells the rows of the tables apart that an analysis writes."""


@contextmanager
def idiomatic_steps() -> Iterator[None]:
    """Within, the steps of an analysis are idiomatic."""

    instead: dict[tuple[object, str], object] = {
        (Run, "source"): Run.frame,
        (limits, "to_client_totals"): idiomatic_usage.client_totals,
        (utilisation, "to_utilisation"): idiomatic_usage.to_utilisation,
        (utilisation, "to_throttled"): idiomatic_usage.to_throttled,
    }
    with ExitStack() as stack:
        for (owner, name), function in instead.items():
            stack.enter_context(mock.patch.object(owner, name, function))
        yield


def analyze(
    logs: Sequence[str],
    quotas: Path,
    out: Path,
    form: str,
    *,
    keep_requests: bool | None = None,
    report: bool = True,
    quiet: bool = False,
) -> None:
    """Analyse logs in one of the forms, in the session that is there, otherwise as `kquota analyze` does by default."""
    of_its_time = QuotaTimeline.always(read_quota_file(quotas.read_bytes(), name=str(quotas)))
    settings, options = LogSettings(keep_requests=keep_requests), JobOptions(out, quiet=quiet)
    with nullcontext() if form == SPECIAL else idiomatic_steps():
        jobs.analyze(logs, of_its_time, settings, options, max_rejected=RejectLimit.parse("10%"), report=report)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.idiomatic_analyze", description=__doc__.split("\n\n")[0]
    )
    parser.add_argument("log", help="a quoted glob")
    parser.add_argument("quotas", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--form", choices=list(FORMS), default="idiomatic")
    parser.add_argument("--no-keep-requests", action="store_true", help="as kquota's, which by default keeps up to 5 M")
    options = parser.parse_args(arguments)
    started = time.perf_counter()
    conf = {"spark.ui.liveUpdate.period": "0"} | FORMS[options.form]
    log_bytes = sum(file.plain_bytes for file in find_log_files([options.log], broker_id=0))
    spark = start_session(conf=conf, log_bytes=log_bytes)
    try:
        begun = time.perf_counter()
        keep_requests = False if options.no_keep_requests else None
        analyze([options.log], options.quotas, options.out, options.form, keep_requests=keep_requests)
        done = time.perf_counter()
        shuffled = shuffle_bytes(spark)
    finally:
        spark.stop()
    steps = {"start Spark": begun - started, "work": done - begun, "shuffle_bytes": shuffled}
    options.out.with_name(f"{options.out.name}.steps.json").write_text(json.dumps(steps) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
