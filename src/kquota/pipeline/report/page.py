"""The page: from the tables of an analysis to one HTML text that needs nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from importlib.metadata import version
from importlib.resources import files
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from kquota import figures
from kquota.pipeline.advice.what_if import UNKNOWNS
from kquota.pipeline.meters.episodes import AMBIGUOUS, UNEXPLAINED
from kquota.pipeline.report import calibration_chart, charts, curve_chart, wording
from kquota.pipeline.report import summary as summaries
from kquota.pipeline.report.contents import Bounds, Report, Span
from kquota.pipeline.report.queries import build_report
from kquota.pipeline.report.rejection_hints import rejection_hint
from kquota.quotas import CONTROLLER_MUTATION_RATE, PRODUCER_BYTE_RATE

if TYPE_CHECKING:
    from datetime import tzinfo

    from jinja2 import Environment
    from pyspark.sql import Row

    from kquota.pipeline.dataset.run import Run

__all__ = ["render_page", "render_report"]

_BAR_END: Final = 1.25
"""The bars of the tables reach from 0 to this part of the limit."""


def render_report(run: Run, *, top: int = 12, generated: datetime) -> str:
    """A page about the tables of a run. `top` meters are drawn over time; `generated` (with a time zone) is printed in
    its footer.

    :raises MissingTableError: a table is not there that the page cannot do without.
    :raises KquotaError: the extra `report` is not installed.
    """
    charts.check_extra()  # before Spark works for nothing
    with ThreadPoolExecutor(1, "report") as pool:
        loaded = pool.submit(charts.load_extra)
        report = build_report(run, Bounds(meters=top))
    loaded.result()
    return render_page(report, generated=generated)


def render_page(report: Report, *, generated: datetime) -> str:
    """The page as HTML: the same report and time give the same text.

    :raises KquotaError: the extra `report` is not installed, or the time zone of the report is not known.
    """
    charts.check_extra()
    summary = report.summary
    zone = summaries.zone_of(summary)
    environment = _environment()
    environment.filters.update(
        moment=lambda at_ms: figures.moment(at_ms, zone),
        minute=lambda at_ms: figures.moment(at_ms, zone, seconds=False),
    )
    calibrated = report.calibration or ()
    return environment.get_template("report.html.j2").render(
        **_drawings(report, zone),
        report=report,
        summary=summary,
        bounds=report.bounds,
        limit_times=summaries.limit_times(summary.quotas_over_time, summary.start_ms),
        window=summaries.rate_window(summary, PRODUCER_BYTE_RATE),
        mutation_window=summaries.rate_window(summary, CONTROLLER_MUTATION_RATE),
        unlimited=_grouped(report.unlimited, "key"),
        rejected=_grouped(report.rejected, "kind"),
        calibrated=[row for row in calibrated if not row.is_estimate],
        estimates=[row for row in calibrated if row.is_estimate],
        several_clusters=len(report.clusters) > 1,
        offset=figures.offset_text(report.range.start_ms, zone) if report.range else "UTC",
        generated=generated.astimezone(zone).strftime("%Y-%m-%d %H:%M"),
        version=version("kquota"),
        dashes=charts.DASHES,
    )


def _drawings(report: Report, zone: tzinfo) -> dict[str, Any]:
    """What the templates show of charts: our own SVG; names in it are escaped."""
    from markupsafe import Markup

    plot = calibration_chart.draw_calibration_chart([row for row in report.calibration or () if not row.is_estimate])
    drawn = [
        (timeline, Markup(charts.draw_meter(timeline, report.range, zone, number=number)))  # noqa: S704 (our own drawing)
        for number, timeline in enumerate(report.timelines, start=1)
        if report.range is not None and timeline.series
    ]
    curves = [
        (curve, Markup(curve_chart.draw_curve(curve, number=number)))  # noqa: S704 (our own drawing)
        for number, curve in enumerate(report.curves.rows if report.curves is not None else (), start=1)
    ]
    return {
        "charts": drawn,
        "undrawn": [one.meter for one in report.timelines if report.range is None or not one.series],
        "agreement": Markup(plot),  # noqa: S704 (our own drawing)
        "curves": curves,
        "curve_numbers": {
            (curve.cluster, curve.meter, curve.key): number for number, (curve, _) in enumerate(curves, start=1)
        },
    }


def _grouped(rows: Sequence[Row], column: str) -> list[tuple[str, list[Row]]]:
    """Neighbours with the same value in a column, and that value."""
    return [(value, list(of_one)) for value, of_one in groupby(rows, key=lambda row: row[column])]


def _unknown_words(rows: Sequence[Row]) -> list[tuple[str, str]]:
    """Name and words of what rows of `whatif` do not know, in the order of `UNKNOWNS`; names of none of these last."""
    used = {name for row in rows for name in row.unknowns or ()}
    known = [name for name in UNKNOWNS if name in used]
    return [(name, UNKNOWNS.get(name, "")) for name in (*known, *sorted(used - set(known)))]


def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=PackageLoader("kquota.pipeline.report"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    stylesheet = files("kquota.pipeline.report").joinpath("templates/report.css").read_text(encoding="utf-8")
    environment.globals.update(
        stylesheet=Markup(stylesheet),  # noqa: S704 (part of the package)
        estimated=lambda key: key in figures.ESTIMATED_KEYS,
        amount=figures.amount_figure,
        rate=figures.rate_figure,
        key_words=figures.key_words,
        rule_words=figures.rule_words,
        meter_words=wording.meter_words,
        cause_words=wording.cause_words,
        state_of=wording.state_of,
        shown=wording.shown_name,
        advice=rejection_hint,
        exact=figures.exact,
        bar=_bar,
        lane=_lane,
        strip=lambda part: _bar(part, 1.0),
        change=figures.change,
        spark_of=curve_chart.spark_of,
        ratio=wording.ratio,
        is_certain=wording.is_certain,
        free_from=curve_chart.free_from,
        unknown_words=_unknown_words,
        metrics_words=summaries.metrics_words,
        versions_words=summaries.versions_words,
        mark_of=calibration_chart.mark_of,
        is_low=calibration_chart.is_low,
        AMBIGUOUS=AMBIGUOUS,
        UNEXPLAINED=UNEXPLAINED,
    )
    environment.filters.update(
        count=figures.count,
        requests=figures.requests,
        duration=wording.duration,
        percent=figures.percent,
        share=figures.share,
    )
    return environment


def _finalize(value: object) -> object:
    """What every expression of the templates goes through, so that no text can be forgotten."""
    return wording.visible(value) if type(value) is str else value


def _bar(part: float | None, end: float = _BAR_END) -> str:
    """Where a part of a whole is on a bar that reaches from 0 to `end`, in per cent of the bar's width."""
    if part is None or part != part:  # noqa: PLR0124 (NaN)
        return "0"
    return f"{max(0.0, min(part, end)) / end * 100:.1f}".removesuffix(".0")


def _lane(spans: Sequence[Span], time_range: Span) -> list[tuple[str, str]]:
    """Spans as (x, width) on a strip 1000 wide; never narrower than can be seen."""
    width_ms = max(1, time_range.end_ms - time_range.start_ms)
    return [
        (
            f"{(span.start_ms - time_range.start_ms) / width_ms * 1000:.1f}",
            f"{max(2.0, (span.end_ms - span.start_ms) / width_ms * 1000):.1f}",
        )
        for span in spans
    ]
