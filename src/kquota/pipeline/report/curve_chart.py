"""Drawings of a curve: a chart of the muted share against the limit, and a small one in a line of a table."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, floor, log10
from typing import TYPE_CHECKING, Any, Final

from kquota import figures
from kquota.pipeline.report import charts, wording

if TYPE_CHECKING:
    import altair
    from pyspark.sql import Row

__all__ = ["Spark", "chart_of", "draw_curve", "free_from", "spark_of"]

_HEIGHT: Final = 170
_TOP: Final = 128
"""Where the vertical axis ends, in per cent: above 100 are the names of the limits."""
_ROWS: Final = (108, 121)
"""Heights of those names, so that neighbours do not run into each other."""
_LETTER: Final = 0.026
"""Width of a letter of them, in parts of the axis."""
_MARGIN: Final = 1.04
_LEAST_SPAN: Final = 2.0
"""The horizontal axis reaches over this factor at least."""
_FEW: Final = 8
"""Up to this many limits are also drawn as points: one alone makes no line."""
_MOST_TICKS: Final = 4
_STEPS: Final = (
    *((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 5, 7), (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8)),
    tuple(one / 10 for one in range(10, 100)),
)
"""Round numbers below ten, coarse to fine."""


def free_from(curve: Row) -> float | None:
    """The lowest candidate from which on none throttles; None where even the highest does."""
    found: float | None = None
    for point in reversed(curve.points):
        if point.throttled_share > 0:
            break
        found = point.limit
    return found


def draw_curve(curve: Row, *, number: int) -> str:
    """The chart as SVG text, to be put into HTML as it is; `number` is that of the chart on the page."""
    data: dict[str, charts.Points] = {}
    chart = chart_of(curve, data)
    name = wording.shown_name(curve.meter or "").text
    return charts.draw(
        chart,
        data,
        prefix=f"curve{number}-",
        title=f"{figures.key_words(curve.key)}, counted on {name}: time muted against the limit",
        description=_description(curve),
    )


def _description(curve: Row) -> str:
    key = curve.key

    def said(point: Row) -> str:
        return f"{figures.rate_figure(key, point.limit).text}: {figures.percent(point.throttled_share)} of the time"

    middle = curve.points[len(curve.points) // 2]
    some = dict.fromkeys((curve.points[0], middle, curve.points[-1]))
    parts = [f"Muted with a limit of {'; '.join(map(said, some))}."]
    if curve.limit is not None:
        now = f"The present limit is {figures.rate_figure(key, curve.limit).text}"
        wait = f", the longest delay {wording.duration(curve.max_delay_ms)}"
        parts.append(
            f"{now}: {figures.percent(curve.throttled_share)}{wait if curve.max_delay_ms is not None else ''}."
        )
    if curve.recommended is not None:
        parts.append(f"Recommended is {figures.rate_figure(key, curve.recommended).text}.")
    return " ".join(parts)


def chart_of(curve: Row, datasets: dict[str, charts.Points]) -> altair.LayerChart:
    """The chart, and into `datasets` what it draws, by name."""
    import altair as alt

    low, high = _domain(curve)
    scale = figures.rate_scale(curve.key, high)
    low, high = low / scale.divisor, high / scale.divisor
    x = alt.X(
        "limit:Q",
        scale=alt.Scale(type="log", domain=[low, high], nice=False),
        axis=alt.Axis(title=f"limit, {scale.unit}", values=_ticks(low, high), format="~g", labelFlush=True),
    )
    y = alt.Y(
        "share:Q",
        scale=alt.Scale(domain=[0, _TOP], nice=False),
        axis=alt.Axis(
            title="muted", titleAngle=0, titleAlign="left", titleAnchor="end", titleY=-1, titleX=-34,
            values=[0, 50, 100], labelExpr="datum.value + ' %'",
        ),
    )  # fmt: skip

    def data(name: str, points: charts.Points) -> alt.Chart:
        datasets[name] = points
        return alt.Chart(alt.NamedData(name=name)).properties(name=name)

    layers: list[Any] = []
    points: charts.Points = [
        {"limit": one.limit / scale.divisor, "share": one.throttled_share * 100} for one in curve.points
    ]
    marks = [("now", curve.limit, "now", [1, 0]), ("advised", curve.recommended, "recommended", [5, 3])]
    # There is no 0 on a scale of logarithms.
    given = [limit for _, limit, _, _ in marks if limit is not None and limit > 0]
    for row, (name, limit, words, dash) in enumerate(marks):
        if limit is None or limit <= 0:
            continue
        at = limit / scale.divisor
        rule: charts.Points = [{"limit": at, "share": 0, "to": float(_ROWS[row]) + 5}]
        layers.append(data(name, rule).mark_rule(strokeDash=dash, strokeWidth=1.6).encode(x=x, y=y, y2="to:Q"))
        place = _part(at, low, high)
        # Away from the other one, unless there is no room.
        room = len(words) * _LETTER
        to_left = place > room if limit < max(given) else place > 1 - room
        texts = data(f"{name}name", [{"limit": at, "share": float(_ROWS[row])}]).mark_text(
            text=words, align="right" if to_left else "left", dx=-5 if to_left else 5, fontSize=11
        )
        layers.append(texts.encode(x=x, y=y))
    layers.append(data("curve", points).mark_line(strokeWidth=1.8).encode(x=x, y=y))
    if len(points) <= _FEW:
        layers.append(data("candidates", points).mark_point(size=26, filled=True, opacity=1).encode(x=x, y=y))
    return charts.plain(layers, _HEIGHT)


def _domain(curve: Row) -> tuple[float, float]:
    """From the lowest to the highest limit that is drawn, and a little more."""
    limits = [one.limit for one in curve.points]
    limits += [one for one in (curve.limit, curve.recommended) if one is not None and one > 0]
    low, high = min(limits) / _MARGIN, max(limits) * _MARGIN
    widen = max(1.0, (_LEAST_SPAN * low / high) ** 0.5)
    return low / widen, high * widen


def _part(at: float, low: float, high: float) -> float:
    """How far along the axis `at` is, from 0 to 1."""
    return (log10(at) - log10(low)) / (log10(high) - log10(low)) if at > 0 else 0.0


def _ticks(low: float, high: float) -> list[float]:
    """The most round numbers within, but not too many; the coarsest that are more than one."""
    decades = range(floor(log10(low)), floor(log10(high)) + 1)
    found: list[float] = []
    for steps in _STEPS:
        numbers = {step * 10.0**decade for decade in decades for step in steps}
        found = sorted(float(f"{one:.6g}") for one in numbers if low <= one <= high)
        if len(found) >= _MOST_TICKS - 1:
            break
    return found[:: ceil(len(found) / _MOST_TICKS) or 1]


@dataclass(frozen=True, slots=True)
class Spark:
    """A curve on a strip 100 wide and 30 high: the path, and where the limits are; None for one that there is not."""

    path: str
    now: str | None
    advised: str | None


def spark_of(curve: Row) -> Spark:
    """The small curve in a line of a table."""
    low, high = _domain(curve)

    def x(limit: float) -> str:
        return f"{_part(limit, low, high) * 100:.1f}"

    points = [f"{x(one.limit)} {29 - one.throttled_share * 28:.1f}" for one in curve.points]
    return Spark(
        path="M" + "L".join(points) if len(points) > 1 else f"M{points[0]}h1",
        now=x(curve.limit) if curve.limit is not None else None,
        advised=x(curve.recommended) if curve.recommended else None,
    )
