"""Days by the clocks of a place."""

from datetime import UTC, date, datetime
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kquota.pipeline.owners.by_owner import local_date, local_dates

ZONES = [
    "UTC",
    "Europe/Berlin",
    "America/Sao_Paulo",
    "America/St_Johns",
    "Asia/Kathmandu",
    "Pacific/Apia",
    "Africa/Cairo",
]
moments = st.integers(1_000_000_000_000, 2_000_000_000_000)


@given(st.lists(moments, max_size=40), moments, st.integers(1, 90_000_000), st.sampled_from(ZONES))
def test_columns_of_dates_equal_single_ones(some: list[int], start_ms: int, step_ms: int, name: str) -> None:
    zone = ZoneInfo(name)
    at_ms = np.array([*some, *range(start_ms, start_ms + 30 * step_ms, step_ms)], np.int64)
    assert local_dates(at_ms, zone).tolist() == [local_date(int(at), zone) for at in at_ms]


@pytest.mark.parametrize(
    ("zone", "text", "expected"),
    [
        ("UTC", "2026-03-01T23:59:59", date(2026, 3, 1)),
        ("Europe/Berlin", "2026-03-01T22:59:59", date(2026, 3, 1)),
        ("Europe/Berlin", "2026-03-01T23:00:00", date(2026, 3, 2)),
        ("Europe/Berlin", "2026-07-01T22:00:00", date(2026, 7, 2)),
        ("Asia/Kathmandu", "2026-07-01T18:15:00", date(2026, 7, 2)),
        ("America/St_Johns", "2007-11-04T02:30:30", date(2007, 11, 4)),  # clocks went back at 00:01, to the day before
        ("America/St_Johns", "2007-11-04T02:31:00", date(2007, 11, 3)),
    ],
)
def test_days_begin_at_midnight_there(zone: str, text: str, expected: date) -> None:
    at_ms = int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)
    assert local_dates(np.array([at_ms]), ZoneInfo(zone)).tolist() == [expected]
