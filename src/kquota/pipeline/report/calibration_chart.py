"""The plot of the calibration: throttle time in the log of each meter, against what the replay predicts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from math import sqrt
from typing import TYPE_CHECKING, Any, Final

from kquota import figures
from kquota.pipeline.calibration.broker_replay import CLOSE_SHARE
from kquota.pipeline.report import charts, wording
from kquota.quotas import CONSUMER_BYTE_RATE, CONTROLLER_MUTATION_RATE, PRODUCER_BYTE_RATE

if TYPE_CHECKING:
    import altair
    from pyspark.sql import Row

__all__ = ["chart_of", "draw_calibration_chart", "is_low", "mark_of"]

_MOSTLY: Final = 0.9
"""A meter with a smaller share of its throttle times reproduced has a filled mark; others do not hide one another."""
_NUMBERED: Final = 10
"""How many of the marks that are filled or off the diagonal have the number of their row next to them."""

_MARKS: Final = {PRODUCER_BYTE_RATE: 0, CONSUMER_BYTE_RATE: 1, CONTROLLER_MUTATION_RATE: 2}
_SHAPES: Final = ("circle", "square", "triangle-up", "diamond")
"""By mark; the last is that of all other keys."""

_HEIGHT: Final = 320
_LEAST_SPAN: Final = 10.0
"""The axes reach over this factor at least, so that a little difference looks little."""
_MARGIN: Final = 1.5

_SECOND, _MINUTE, _HOUR, _DAY = 1_000, 60_000, 3_600_000, 86_400_000
_TICKS_MS: Final = (
    *(1, 3, 10, 30, 100, 300),
    *(step * _SECOND for step in (1, 3, 10, 30)),
    *(step * _MINUTE for step in (1, 3, 10, 30)),
    *(step * _HOUR for step in (1, 3, 10)),
    *(step * _DAY for step in (1, 3, 10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000, 100_000)),
)
_UNITS: Final = ((_DAY, "d"), (_HOUR, "h"), (_MINUTE, "min"), (_SECOND, "s"), (1, "ms"))
_MOST_TICKS: Final = 5


def is_low(row: Row) -> bool:
    """Whether many of its throttle times are not reproduced."""
    return row.within_5ms_or_5pct is not None and row.within_5ms_or_5pct < _MOSTLY


def mark_of(key: str) -> int:
    """The mark of a key's meters."""
    return _MARKS.get(key, len(_SHAPES) - 1)


def draw_calibration_chart(rows: Sequence[Row]) -> str:
    """The plot as SVG text, to be put into HTML as it is; '' where no throttle time was compared."""
    drawn = [row for row in rows if _is_drawn(row)]
    if not drawn:
        return ""
    data: dict[str, charts.Points] = {}
    chart = chart_of(rows, data)
    return charts.draw(
        chart,
        data,
        prefix="agreement-",
        title="Throttle time in the log against the time predicted, by meter",
        description=_description(drawn),
    )


def _description(drawn: Sequence[Row]) -> str:
    logged = sorted(row.throttle_ms_logged for row in drawn)
    off = sum(not _is_on_diagonal(row) for row in drawn)
    low = sum(is_low(row) for row in drawn)
    return (
        f"Meters drawn: {figures.count(len(drawn))}, throttled for {wording.duration(logged[0])} to"
        f" {wording.duration(logged[-1])} each. Predicted within 5 % of that: {figures.count(len(drawn) - off)}."
        f" With less than {figures.percent(_MOSTLY)} of their single throttle times reproduced: {figures.count(low)}."
        " The table has the figures."
    )


def _is_drawn(row: Row) -> bool:
    return bool(row.throttle_ms_logged > 0 or row.throttle_ms_predicted > 0)


def _is_on_diagonal(row: Row) -> bool:
    return bool(abs(row.throttle_ms_predicted - row.throttle_ms_logged) <= CLOSE_SHARE * row.throttle_ms_logged)


def chart_of(rows: Sequence[Row], datasets: dict[str, charts.Points]) -> altair.LayerChart:
    """The plot, and into `datasets` what it draws, by name."""
    import altair as alt

    numbered = {number: row for number, row in enumerate(rows, start=1) if _is_drawn(row)}
    low_ms, high_ms = _domain_ms(list(numbered.values()))
    ticks = _ticks_ms(low_ms, high_ms)
    labels = json.dumps({str(tick): _tick_label(tick) for tick in ticks})
    scale = alt.Scale(type="log", domain=[low_ms, high_ms], nice=False)
    given: dict[str, Any] = {"values": ticks, "labelExpr": f"{labels}[datum.value]"}
    x = alt.X("logged:Q", scale=scale, axis=alt.Axis(title="logged by the broker", grid=True, labelFlush=True, **given))
    y = alt.Y(
        "predicted:Q",
        scale=scale,
        axis=alt.Axis(
            title="predicted", titleAngle=0, titleAlign="left", titleAnchor="end", titleY=-7, titleX=-38, **given
        ),
    )

    def data(name: str, points: charts.Points) -> alt.Chart:
        datasets[name] = points
        return alt.Chart(alt.NamedData(name=name)).properties(name=name)

    def at(row: Row) -> dict[str, float]:
        # There is no 0 on a scale of logarithms: it is drawn on the edge.
        return {
            "logged": max(float(row.throttle_ms_logged), low_ms),
            "predicted": max(float(row.throttle_ms_predicted), low_ms),
        }

    less, more = 1 - CLOSE_SHARE, 1 + CLOSE_SHARE
    band: charts.Points = [
        {"logged": logged, "predicted": max(logged * less, low_ms), "to": min(logged * more, high_ms)}
        for logged in (low_ms, low_ms / less, high_ms / more, high_ms)
    ]
    ends: charts.Points = [{"logged": end, "predicted": end} for end in (low_ms, high_ms)]
    layers: list[Any] = [
        data("band", band).mark_area().encode(x=x, y=y, y2="to:Q"),
        data("equal", ends).mark_line(strokeWidth=1).encode(x=x, y=y),
    ]
    for mark, shape in enumerate(_SHAPES):
        for name, low in ((f"logged{mark}", False), (f"low{mark}", True)):
            points = [at(row) for row in numbered.values() if mark_of(row.key) == mark and is_low(row) is low]
            if points:
                marks = data(name, points).mark_point(shape=shape, size=72, strokeWidth=1.6, filled=low, opacity=1)
                layers.append(marks.encode(x=x, y=y))
    look_at = [
        at(row) | {"number": float(number)}
        for number, row in numbered.items()
        if is_low(row) or not _is_on_diagonal(row)
    ][:_NUMBERED]
    if look_at:
        texts = data("number", look_at).mark_text(align="left", dx=7, dy=5, fontSize=11)
        layers.append(texts.encode(x=x, y=y, text=alt.Text("number:Q", format="d")))
    return charts.plain(layers, _HEIGHT)


def _domain_ms(rows: Sequence[Row]) -> tuple[float, float]:
    positive = [
        float(value) for row in rows for value in (row.throttle_ms_logged, row.throttle_ms_predicted) if value > 0
    ]
    low_ms, high_ms = min(positive) / _MARGIN, max(positive) * _MARGIN
    widen = max(1.0, sqrt(_LEAST_SPAN * low_ms / high_ms))
    return low_ms / widen, high_ms * widen


def _ticks_ms(low_ms: float, high_ms: float) -> list[int]:
    """At most five round lengths of time."""
    inside = [tick for tick in _TICKS_MS if low_ms <= tick <= high_ms]
    return inside[:: -(-len(inside) // _MOST_TICKS) or 1]


def _tick_label(tick_ms: int) -> str:
    unit_ms, unit = next(one for one in _UNITS if tick_ms >= one[0])
    return f"{tick_ms // unit_ms:,} {unit}"
