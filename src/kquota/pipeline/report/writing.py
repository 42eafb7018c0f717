"""The way in: read an analysis, write its page."""

from __future__ import annotations

import dataclasses
import os
import tempfile
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from kquota.errors import KquotaError
from kquota.pipeline.report import charts, model
from kquota.pipeline.report.page import render_page
from kquota.pipeline.report.queries import build_report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["write_report"]


def write_report(
    spark: SparkSession, directory: Path, *, target: Path | None = None, top: int = 12, generated: datetime
) -> Path:
    """Write a page about the tables that `kquota analyze --out DIR` wrote, by default DIR/report.html; return its path.

    The page appears whole or not at all. `top` meters are drawn over time; `generated` (with a time zone) is printed in
    its footer.

    :raises InputError: `directory` does not hold such tables.
    :raises KquotaError: the extra `report` is not installed, or the file cannot be written.
    """
    charts.check_extra()  # before Spark works for nothing
    bounds = dataclasses.replace(model.Bounds(), meters=top)
    with ThreadPoolExecutor(1, "report") as pool:
        loaded = pool.submit(charts.load_extra)
        report = build_report(spark, directory, bounds)
    loaded.result()
    page = render_page(report, generated=generated)
    target = target or directory / "report.html"
    try:
        _replace(target, page)
    except OSError as error:
        raise KquotaError(f"{target} cannot be written: {error.strerror}") from error
    return target


def _replace(target: Path, text: str) -> None:
    """Write beside the target and rename, so that a reader never sees half a page."""
    descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=".report-", suffix=".html")
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace", newline="\n") as file:
            file.write(text)
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)  # mkstemp's files are for their owner alone
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
