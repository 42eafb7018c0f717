"""From a :class:`~kquota.pipeline.report.model.Report` to one HTML text that needs nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final

from kquota import figures
from kquota.pipeline.report import calibration_chart, charts, curve_chart, model, wording
from kquota.pipeline.report.rejection_hints import rejection_hint
from kquota.pipeline.report.summary import zone_of

if TYPE_CHECKING:
    from jinja2 import Environment

__all__ = ["render_page"]

_BAR_END: Final = 1.25
"""The bars of the tables reach from 0 to this part of the limit."""


def render_page(report: model.Report, *, generated: datetime) -> str:
    """The page as HTML: the same report and time give the same text.

    :raises KquotaError: the extra `report` is not installed, or the time zone of the report is not known.
    """
    charts.check_extra()
    from markupsafe import Markup

    zone = zone_of(report.summary)
    plot = calibration_chart.draw_calibration_chart(report.calibration) if report.calibration is not None else ""
    drawn = [
        (timeline, Markup(charts.draw_meter(timeline, report.range, zone, number=number)))  # noqa: S704 (our own drawing)
        for number, timeline in enumerate(report.timelines, start=1)
        if report.range is not None and timeline.series
    ]
    curves = [
        (curve, Markup(curve_chart.draw_curve(curve, number=number)))  # noqa: S704 (our own drawing)
        for number, curve in enumerate(report.curves.rows if report.curves is not None else (), start=1)
    ]
    environment = _environment()
    environment.filters.update(
        moment=lambda at_ms: figures.moment(at_ms, zone),
        minute=lambda at_ms: figures.moment(at_ms, zone, seconds=False),
    )
    offset = figures.offset_text(report.range.start_ms, zone) if report.range else "UTC"
    return environment.get_template("report.html.j2").render(
        report=report,
        summary=report.summary,
        bounds=report.bounds,
        charts=drawn,
        agreement=Markup(plot),  # noqa: S704 (our own drawing)
        curves=curves,
        curve_numbers={curve.name: number for number, (curve, _) in enumerate(curves, start=1)},
        undrawn=[one for one in report.timelines if report.range is None or not one.series],
        several_clusters=len(report.clusters) > 1,
        offset=offset,
        generated=generated.astimezone(zone).strftime("%Y-%m-%d %H:%M"),
        version=version("kquota"),
        throttled_ms=sum(one.throttle_ms for one in report.totals),
        throttled_requests=sum(one.throttled_requests for one in report.totals),
        dashes=charts.DASHES,
    )


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
    source, _, _ = _loaded(environment, "report.css")
    environment.globals.update(
        stylesheet=Markup(source),  # noqa: S704 (part of the package)
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
        strip=_strip,
        change=figures.change,
        spark_of=curve_chart.spark_of,
        ratio=model.ratio,
        mark_of=calibration_chart.mark_of,
        is_low=calibration_chart.is_low,
        AMBIGUOUS=model.AMBIGUOUS,
        UNEXPLAINED=model.UNEXPLAINED,
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


def _loaded(environment: Environment, name: str) -> tuple[str, str | None, Any]:
    assert environment.loader is not None
    return environment.loader.get_source(environment, name)


def _bar(part: float | None) -> str:
    """Where `part` of the limit stands on a bar, in per cent of the bar's width."""
    if part is None or part != part:  # noqa: PLR0124 (NaN)
        return "0"
    return f"{max(0.0, min(part, _BAR_END)) / _BAR_END * 100:.1f}".removesuffix(".0")


def _strip(part: float) -> str:
    """A part of a whole, from 0 to 1, in per cent of a bar's width."""
    return f"{max(0.0, min(part, 1.0)) * 100:.1f}".removesuffix(".0")


def _lane(spans: Sequence[model.Span], time_range: model.TimeRange) -> list[tuple[str, str]]:
    """Spans as (x, width) on a strip 1000 wide; never narrower than can be seen."""
    width_ms = max(1, time_range.end_ms - time_range.start_ms)
    return [
        (
            f"{(span.start_ms - time_range.start_ms) / width_ms * 1000:.1f}",
            f"{max(2.0, (span.end_ms - span.start_ms) / width_ms * 1000):.1f}",
        )
        for span in spans
    ]
