"""What the page says of limits that changed while the log ran."""

from dataclasses import replace
from datetime import UTC

import pytest

from kquota.pipeline.dataset.summary import QuotaPeriodRead, QuotasOverTimeRead
from kquota.pipeline.report import charts
from kquota.pipeline.report.contents import LimitSpan
from kquota.pipeline.report.summary import limit_times
from tests.kit import example_report as example
from tests.kit.example_report import MIB, START_MS
from tests.unit.pipeline.report.test_page import page_of

END_MS = example.RANGE.end_ms
MIDDLE_MS = START_MS + 60_000


def read_over_time(*begins_ms: int | None, recorded_from_ms: int | None = None) -> QuotasOverTimeRead:
    """Quotas that changed at these times."""
    return QuotasOverTimeRead(0, recorded_from_ms, [QuotaPeriodRead(begin_ms, None, 1) for begin_ms in begins_ms])


SPANS = (LimitSpan(START_MS, MIDDLE_MS, 2 * MIB), LimitSpan(MIDDLE_MS, END_MS, 1.0 * MIB))


def test_a_limit_is_drawn_with_its_steps() -> None:
    """One line as long as there is a limit; another where there was none in between."""
    datasets: dict[str, charts.Points] = {}
    chart = charts.chart_of(example.a_timeline(limit_spans=SPANS), example.RANGE, UTC, datasets)
    assert chart.to_dict(validate=True)["width"] > 0
    assert [point["at"] for point in datasets["limit0"]] == [START_MS, MIDDLE_MS, MIDDLE_MS, END_MS]
    assert [point["rate"] for point in datasets["limit0"]] == [2.0, 2.0, 1.0, 1.0]
    gap = (SPANS[0], replace(SPANS[1], start_ms=MIDDLE_MS + 1000))
    datasets.clear()
    charts.chart_of(example.a_timeline(limit_spans=gap), example.RANGE, UTC, datasets)
    assert sorted(datasets) == ["limit0", "limit1", "rate0", "throttled"]


def test_any_number_of_gaps_can_be_drawn() -> None:
    spans = tuple(LimitSpan(START_MS + at * 2000, START_MS + at * 2000 + 1000, 1.0) for at in range(40))
    timeline = example.a_timeline(limit_spans=spans)
    datasets: dict[str, charts.Points] = {}
    charts.chart_of(timeline, example.RANGE, UTC, datasets)
    assert len([name for name in datasets if name.startswith("limit")]) == 10
    assert 'class="limit9"' in charts.draw_meter(timeline, example.RANGE, UTC, number=1)


def test_the_page_says_when() -> None:
    report = example.a_report(timelines=(example.a_timeline(limit_spans=SPANS),))
    plain = page_of(report).text
    assert "Limits changed" not in plain
    assert "2 MiB/s from 2026-01-02 03:04:05, 1 MiB/s from 2026-01-02 03:05:05: max" in plain
    changed = example.a_summary(start_ms=START_MS, quotas_over_time=read_over_time(START_MS + 5000, MIDDLE_MS))
    text = page_of(replace(report, summary=changed)).text
    assert "Limits changed 1 time, 2026-01-02 03:05:05: seconds over" in text
    assert "Not known from before 2026-01-02 03:04:10." in text
    late = example.a_summary(quotas_over_time=read_over_time(recorded_from_ms=END_MS))
    assert (
        "As they are now: the record of their changes begins only after this log"
        in page_of(replace(report, summary=late)).text
    )


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, ((), None, None)),
        (read_over_time(1000, 7000), ((7000,), None, None)),
        (read_over_time(6000, 7000), ((7000,), 6000, None)),
        (read_over_time(None, recorded_from_ms=9000), ((), None, 9000)),
        (read_over_time(), ((), None, None)),
    ],
)
def test_what_is_read_of_the_summary(value: QuotasOverTimeRead | None, expected: tuple[object, ...]) -> None:
    assert limit_times(value, start_ms=5000) == expected
