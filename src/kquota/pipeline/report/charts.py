"""The charts: one per meter, the enforced rate and its limit over time, as SVG that is part of the page.

Altair writes the chart down, vl-convert draws it, and :func:`_inline` makes the drawing part of the page: colours come
from the page's style sheet (light, dark and print), ids cannot clash, no address is left in it, and it carries a title
and a description for those who do not see it. Names of clients never go through the drawing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final
from xml.etree import ElementTree

from kquota import figures
from kquota.errors import KquotaError
from kquota.pipeline.report import wording
from kquota.pipeline.report.contents import Span, Timeline

if TYPE_CHECKING:
    import altair

__all__ = [
    "DASHES",
    "Points",
    "chart_of",
    "check_extra",
    "draw",
    "draw_meter",
    "load_extra",
    "plain",
]

_EXTRA: Final = ("altair", "jinja2", "vl_convert")

_WIDTH: Final = 336
_HEIGHT: Final = 150
"""Of the whole drawing, in CSS pixels: what a column of the page offers at 390 px."""

DASHES: Final = ((1, 0), (7, 2), (2, 2), (9, 2, 2, 2), (4, 4))
"""One pattern per broker, so that lines differ without colour too."""

Points = list[dict[str, float]]
"""Rows to draw, by field."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def check_extra() -> None:
    """See that what draws the charts and writes the page is there, without loading it.

    :raises KquotaError: the extra `report` is not installed.
    """
    for name in _EXTRA:
        if find_spec(name) is None:
            raise KquotaError(f"the report needs {name}, which is not installed: pip install 'kquota[report]'")


def load_extra() -> None:
    """Load it, which takes a while: best at the same time as other work."""
    for name in _EXTRA:
        import_module(name)


def draw_meter(timeline: Timeline, time_range: Span, zone: tzinfo, *, number: int) -> str:
    """One chart as SVG text, to be put into HTML as it is.

    `number` is that of the chart on the page. Times are those of `zone`, with its offset at the start of the range.
    """
    data: dict[str, Points] = {}
    chart = chart_of(timeline, time_range, zone, data)
    return draw(chart, data, prefix=f"chart{number}-", title=_title(timeline), description=_description(timeline))


def draw(chart: altair.LayerChart, datasets: dict[str, Points], *, prefix: str, title: str, description: str) -> str:
    """A chart as SVG text, to be put into HTML as it is; its ids begin with `prefix`."""
    import altair
    import vl_convert

    version = re.match(r"v?(\d+\.\d+)", altair.SCHEMA_VERSION)
    with altair.utils.schemapi.debug_mode(False):  # the chart is always the same: validated by the tests
        spec = chart.to_dict(validate=False)
    # Added last, because Altair copies what it is given many times.
    spec["datasets"] = datasets
    svg = vl_convert.vegalite_to_svg(spec, vl_version=version[1] if version else None)
    return _inline(svg, prefix=prefix, title=title, description=description)


def _title(timeline: Timeline) -> str:
    name = wording.shown_name(timeline.meter.meter or "").text
    return f"{figures.key_words(timeline.meter.key)}, counted on {name}, over time"


def _description(timeline: Timeline) -> str:
    key, use = timeline.meter.key, timeline.meter.use
    limits = " and ".join(figures.rate_figure(key, limit).text for limit in timeline.limits) or "unknown"
    if timeline.limit_spans:
        limits = f"{limits} at different times"
    reached = figures.percent(wording.ratio(use.rate_max, min(timeline.limits, default=None)))
    throttle = timeline.meter.throttle
    throttled = "no throttling" if throttle is None else f"{figures.requests(throttle.requests)} were throttled"
    return (
        f"Enforced rate against the limit of {limits}: at most {figures.rate_figure(key, use.rate_max).text},"
        f" {reached} of the limit, on broker {use.broker_id}; {throttled}. The table above has the figures."
    )


def chart_of(
    timeline: Timeline,
    time_range: Span,
    zone: tzinfo,
    datasets: dict[str, Points],
) -> altair.LayerChart:
    """The chart, and into `datasets` what it draws, by name."""
    import altair as alt

    shift_ms = _shift_ms(time_range.start_ms, zone)
    first, last = time_range.start_ms + shift_ms, time_range.end_ms + shift_ms
    highest = max([*timeline.limits, *(rate for one in timeline.series for _, rate in one.steps)], default=0.0)
    scale = figures.rate_scale(timeline.meter.key, highest)
    ticks, time_format = _time_ticks(first, last)
    top = highest / scale.divisor * 1.12 or 1.0

    x = alt.X(
        "at:T",
        scale=alt.Scale(type="utc", domain=[first, last], nice=False),
        axis=alt.Axis(title=None, format=time_format, values=ticks, labelFlush=True, labelOverlap=True),
    )
    y = alt.Y(
        "rate:Q",
        scale=alt.Scale(domain=[0, top], nice=False),
        axis=alt.Axis(
            title=scale.unit, titleAngle=0, titleAlign="left", titleAnchor="end", titleY=-7, titleX=-28, tickCount=3
        ),
    )

    def data(name: str, rows: Points) -> alt.Chart:
        datasets[name] = rows
        return alt.Chart(alt.NamedData(name=name)).properties(name=name)

    layers: list[Any] = []
    if timeline.spans:
        spans: Points = [{"at": span.start_ms + shift_ms, "to": span.end_ms + shift_ms} for span in timeline.spans]
        layers.append(data("throttled", spans).mark_rect().encode(x=x, x2="to:T"))
    for index, series in enumerate(timeline.series):
        points: Points = [
            {"at": at_ms + shift_ms, "rate": rate / scale.divisor} for at_ms, rate in _closed(series.steps, time_range)
        ]
        if points:
            layers.append(
                data(f"rate{index}", points)
                .mark_line(interpolate="step-after", strokeDash=list(DASHES[index % len(DASHES)]), strokeWidth=1.6)
                .encode(x=x, y=y)
            )
    for index, line in enumerate(_limit_lines(timeline, time_range)):
        ends: Points = [{"at": at_ms + shift_ms, "rate": limit / scale.divisor} for at_ms, limit in line]
        layers.append(data(f"limit{index}", ends).mark_line(strokeDash=[6, 3], strokeWidth=1.4).encode(x=x, y=y))
    return plain(layers, _HEIGHT)


def _limit_lines(timeline: Timeline, time_range: Span) -> list[list[tuple[int, float]]]:
    """Lines through (time, limit): one for each limit, or through the steps of one that changed."""
    if not timeline.limit_spans:
        return [[(time_range.start_ms, limit), (time_range.end_ms, limit)] for limit in timeline.limits]
    lines: list[list[tuple[int, float]]] = []
    for span in timeline.limit_spans:
        ends = [(span.start_ms, span.limit), (span.end_ms, span.limit)]
        if lines and (lines[-1][-1][0] == span.start_ms or len(lines) == _MOST_LIMIT_LINES):
            lines[-1] += ends
        else:
            lines.append(ends)
    return lines


def plain(layers: Sequence[Any], height: int) -> altair.LayerChart:
    """A chart of these layers, in the width and the style that all on the page have."""
    import altair as alt

    chart: alt.LayerChart = (
        alt.layer(*layers)
        .properties(width=_WIDTH, height=height, autosize=alt.AutoSizeParams(type="fit", contains="padding"))
        .properties(padding={"left": 2, "right": 6, "top": 4, "bottom": 2}, background="transparent")
        .configure(aria=False, font="sans-serif")
        .configure_view(stroke=None)
        .configure_axis(labelFontSize=11, titleFontSize=11, titleFontWeight="normal", domain=False, tickSize=3)
        .configure_axisX(grid=False, ticks=True)
        .configure_axisY(grid=True, ticks=False)
    )
    return chart


def _shift_ms(at_ms: int, zone: tzinfo) -> int:
    offset = (_EPOCH + timedelta(milliseconds=at_ms)).astimezone(zone).utcoffset() or timedelta()
    return round(offset.total_seconds() * 1000)


def _closed(steps: tuple[tuple[int, float], ...], time_range: Span) -> Iterator[tuple[int, float]]:
    """The steps, the last one drawn out to the end of the range."""
    yield from steps
    if steps:
        yield time_range.end_ms, steps[-1][1]


_TICK_SECONDS: Final = (
    1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200, 86_400,
)  # fmt: skip
_MOST_TICKS: Final = 4


def _time_ticks(first_ms: int, last_ms: int) -> tuple[list[int], str]:
    """At most four ticks at round times of day, and the d3 format that distinguishes them."""
    whole_days = -(-(last_ms - first_ms) // (86_400_000 * _MOST_TICKS)) * 86_400
    step = next(
        (one for one in _TICK_SECONDS if (last_ms - first_ms) <= one * 1000 * _MOST_TICKS), max(86_400, whole_days)
    )
    ticks = list(range(-(-first_ms // (step * 1000)) * step * 1000, last_ms + 1, step * 1000))[:_MOST_TICKS]
    if step < 60:
        return ticks, "%H:%M:%S"
    if step >= 86_400:
        return ticks, "%d %b"
    same_day = first_ms // 86_400_000 == last_ms // 86_400_000
    return ticks, "%H:%M" if same_day else "%d %b %H:%M"


_MOST_LIMIT_LINES: Final = 10
_OWN_NAME: Final = re.compile(
    r"\b(throttled|rate\d|limit\d|band|equal|logged\d|low\d|number|curve|candidates|now|advised|nowname|advisedname)_marks\b"
)
_PAINT: Final = ("fill", "stroke")


def _inline(svg: str, *, prefix: str, title: str, description: str) -> str:
    root = ElementTree.fromstring(svg)  # noqa: S314 (drawn by vl-convert a moment ago, not input)
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
        if "id" in element.attrib:
            element.set("id", prefix + element.attrib["id"])
        for name, value in list(element.attrib.items()):
            if name.startswith("{"):
                del element.attrib[name]
            elif value.startswith("url(#"):
                element.set(name, value.replace("url(#", f"url(#{prefix}"))
        _style(element)
    # The page sets the size; the drawing keeps its proportions.
    width, height = root.attrib.pop("width"), root.attrib.pop("height")
    root.attrib.pop("version", None)
    root.set("class", "chart")
    root.set("role", "img")
    root.set("aria-labelledby", f"{prefix}title {prefix}description")
    root.set("style", f"aspect-ratio:{width}/{height}")
    for tag, text in (("desc", description), ("title", title)):
        child = ElementTree.Element(tag, {"id": f"{prefix}{'title' if tag == 'title' else 'description'}"})
        child.text = text
        root.insert(0, child)
    return ElementTree.tostring(root, encoding="unicode", short_empty_elements=True)


def _style(element: ElementTree.Element) -> None:
    """Leave what to paint to the style sheet: a class for each of our own marks, for axes, labels and grid."""
    found = _OWN_NAME.search(element.get("class", ""))
    role = re.search(r"\brole-axis-(grid|label|title|tick)\b", element.get("class", ""))
    if found:
        element.set("class", found[1])
    elif role:
        element.set("class", role[1])
    else:
        element.attrib.pop("class", None)
    for name in ("aria-hidden", "aria-roledescription", "role", "pointer-events"):
        element.attrib.pop(name, None)
    for name in _PAINT:
        if element.get(name, "none") not in ("none", "transparent"):
            del element.attrib[name]
    if element.tag == "text":
        element.attrib.pop("font-family", None)
