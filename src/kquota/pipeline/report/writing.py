"""The way in: read an analysis, make its page."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import TYPE_CHECKING

from kquota.pipeline.report import charts
from kquota.pipeline.report.contents import Bounds
from kquota.pipeline.report.page import render_page
from kquota.pipeline.report.queries import build_report

if TYPE_CHECKING:
    from kquota.pipeline.dataset.run import Run

__all__ = ["render_report"]


def render_report(run: Run, *, top: int = 12, generated: datetime) -> str:
    """A page about the tables of a run. `top` meters are drawn over time; `generated` (with a time zone) is printed in
    its footer.

    :raises MissingTableError: a table is not there that the page cannot do without.
    :raises KquotaError: the extra `report` is not installed.
    """
    charts.check_extra()  # before Spark works for nothing
    bounds = Bounds(meters=top)
    with ThreadPoolExecutor(1, "report") as pool:
        loaded = pool.submit(charts.load_extra)
        report = build_report(run, bounds)
    loaded.result()
    return render_page(report, generated=generated)
