"""The statistics: Kafka's own worked examples, and a plain model of the sampled rate."""

from __future__ import annotations

import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kquota.errors import IllegalArgumentError
from kquota.metering.statistics import (
    UNLIMITED,
    SampledRate,
    SampledTotal,
    SpreadRate,
    TimeUnit,
    TokenBucket,
    Windows,
)
from kquota.metering.throttling import bucket_throttle_ms, java_round, rate_throttle_ms
from kquota.quotas import is_same_value
from tests.kit.sampled_model import SampledModel

NOW = 1_700_000_000_000


@pytest.mark.parametrize(
    ("samples", "size_s", "rate"), [(1, 1, 50.050050), (1, 11, 4.545868), (11, 1, 4.545868), (11, 11, 0.413227)]
)
def test_a_rate_without_earlier_samples(samples: int, size_s: int, rate: float) -> None:
    """RateTest.testRateWithNoPriorAvailableSamples: 50 at once, measured just before the window ends."""
    measured = SampledRate(Windows(samples, size_s * 1000))
    measured.record(50, NOW)
    assert measured.measure(NOW + size_s * 1000 - 1) == pytest.approx(rate, abs=1e-6)


def test_a_burst_stays_in_the_rate_until_its_sample_goes() -> None:
    """SensorTest: of a limit of 2 a second, 30 at once are 3 a second, five seconds later too."""
    rate = SampledRate(Windows(11, 1000))
    rate.record(30, NOW)
    assert rate.measure(NOW) == 3.0
    assert rate.measure(NOW + 5000) == 3.0
    assert rate.measure(NOW + 11_000) == 0.0


def test_a_bucket_recovers_steadily() -> None:
    """SensorTest: of 2 a second, 20 at most; what is missing is there after so many seconds."""
    bucket = TokenBucket(Windows(10, 1000))
    bucket.record(30, NOW, 2)
    assert bucket.measure(NOW, 2) == -10
    assert bucket.measure(NOW + 5000, 2) == 0
    bucket.record(30, NOW + 5000, 2)
    assert bucket.measure(NOW + 5000, 2) == -30


def test_what_a_bucket_holds() -> None:
    """TokenBucketTest.testRecord; what is given back is held up to the burst."""
    bucket = TokenBucket(Windows(10, 2000))
    assert bucket.measure(NOW, 5) == 100
    bucket.record(60, NOW, 5)
    assert bucket.measure(NOW, 5) == 40
    bucket.record(5, NOW + 2000, 5)
    assert bucket.measure(NOW + 2000, 5) == 45
    bucket.record(60, NOW + 4000, 5)
    assert bucket.measure(NOW + 4000, 5) == -5
    bucket.record(-1000, NOW + 4000, 5)
    assert bucket.measure(NOW + 4000, 5) == 100


@pytest.mark.parametrize(
    ("unit", "size_ms", "second"),
    [
        (TimeUnit.NANOSECONDS, 1, 1e9),
        (TimeUnit.MICROSECONDS, 1, 1e6),
        (TimeUnit.MILLISECONDS, 500, 1e3),
        (TimeUnit.SECONDS, 1_000, 1.0),
        (TimeUnit.MINUTES, 60_000, 1 / 60),
        (TimeUnit.HOURS, 3_600_000, 1 / 3_600),
        (TimeUnit.DAYS, 86_400_000, 1 / 86_400),
    ],
)
def test_a_limit_is_per_unit(unit: TimeUnit, size_ms: int, second: float) -> None:
    """KIP-599's ``TokenBucket(TimeUnit)``: it fills by the limit in each unit, up to all windows in that unit."""
    bucket = TokenBucket(Windows(10, size_ms), unit)
    burst = 10 * size_ms / 1000 * second * 6
    assert bucket.measure(NOW, 6) == pytest.approx(burst)
    bucket.record(burst * 2, NOW, 6)
    assert bucket.measure(NOW, 6) == pytest.approx(-burst)
    assert bucket.measure(NOW + size_ms, 6) == pytest.approx(-burst * 0.9)
    assert bucket.measure(NOW + 100 * size_ms, 6) == pytest.approx(burst)
    rate = SampledRate(Windows(11, size_ms), unit)
    rate.record(30, NOW)
    assert rate.measure(NOW) == pytest.approx(30 / (10 * size_ms / 1000 * second))


def test_without_a_limit_a_bucket_is_never_empty() -> None:
    """And takes nothing, so that a limit which comes later finds it full."""
    bucket = TokenBucket(Windows(10, 1000))
    bucket.record(1e9, NOW, None)
    assert bucket.measure(NOW, None) == UNLIMITED == 2.0**63
    assert bucket.measure(NOW, 5) == 50


def test_the_example_of_kip_599() -> None:
    """A burst of 560 of a limit of 5 over 100 windows: 12 seconds by the bucket."""
    bucket = TokenBucket(Windows(100, 1000))
    bucket.record(560, NOW, 5)
    tokens = bucket.measure(NOW, 5)
    assert (tokens, bucket_throttle_ms(tokens, 5)) == (-60, 12_000)
    assert bucket.measure(NOW + 12_000, 5) == 0


def test_a_bucket_of_nothing_but_defaults() -> None:
    """KIP-599's ``TokenBucket()`` is one of seconds; over the windows that a broker has if nobody sets any."""
    bucket, other = TokenBucket(), TokenBucket(Windows(11, 1000), TimeUnit.SECONDS)
    for one in (bucket, other):
        one.record(60, NOW, 5)
    assert bucket.measure(NOW + 500, 5) == other.measure(NOW + 500, 5) == -2.5
    assert TokenBucket(unit=TimeUnit.MINUTES).measure(NOW, 60) == 11
    with pytest.raises(IllegalArgumentError, match=r"TokenBucket\(unit=\.\.\.\)"):
        TokenBucket(TimeUnit.MINUTES)  # type: ignore[arg-type] # as the KIP has it


def test_the_example_of_kip_599_by_the_rate_that_it_replaces() -> None:
    """The KIP says 5.6 and 12 seconds; Kafka's rate is over one window less at first, which gives a second more."""
    rate = SampledRate(Windows(100, 1000))
    rate.record(560, NOW)
    assert rate.measure(NOW) == 560 / 99
    assert rate_throttle_ms(rate.measure(NOW), 5, 99_000) == 13_000


def test_the_example_of_the_spread_rate() -> None:
    """The page's other proposal: 99 windows of 5 and one of 65, a rate of 5.6, 12 seconds, then admitted."""
    rate = SpreadRate(Windows(100, 1000))
    rate.record(560, NOW, 5)
    assert sorted(rate._values.values()) == [5.0] * 99 + [65.0]
    assert rate.measure(NOW) == pytest.approx(5.6)
    assert rate_throttle_ms(rate.measure(NOW), 5, rate.windows.span_ms) == 12_000
    assert rate.measure(NOW + 11_999) > 5
    assert rate.measure(NOW + 12_000) == 5
    rate.record(7, NOW + 12_000, math.nan)
    assert rate.measure(NOW + 12_000) == pytest.approx(5.07)


@pytest.mark.parametrize(
    ("rate", "limit", "covered_ms", "throttle_ms"),
    [
        (16.5, 16.5, 9_000, 0),
        (16.5, 20.4, 9_000, -1721),
        (100.0, 50.0, 9_000, 9_000),
        (3_000_000 / 10, 1.0, 10_000, 2_999_990_000),
        (5.0, math.nan, 10_000, 0),
        (math.nan, 5.0, 10_000, 0),
        (5.0, 0.0, 10_000, 2**63 - 1),
        (0.0, 0.0, 10_000, 0),
        (math.inf, 5.0, 10_000, 2**63 - 1),
    ],
)
def test_throttle_times_of_rates(rate: float, limit: float, covered_ms: int, throttle_ms: int) -> None:
    """QuotaUtilsTest, and what Java makes of numbers that are none."""
    assert rate_throttle_ms(rate, limit, covered_ms) == throttle_ms


@pytest.mark.parametrize(("tokens", "throttle_ms"), [(0, 0), (-5, 500), (-10, 1000), (-0.00004, 0)])
def test_throttle_times_of_buckets(tokens: float, throttle_ms: int) -> None:
    """ControllerMutationQuotaManagerTest.testThrottleTime, at a limit of 10."""
    assert bucket_throttle_ms(tokens, 10) == throttle_ms


def test_rounding_is_javas() -> None:
    """Half up, also below zero, and without a detour over a sum."""
    assert [java_round(x) for x in (0.5, 1.5, -0.5, -1.5, 0.49999999999999994, 2.0**53 + 1)] == [1, 2, 0, -1, 0, 2**53]
    assert java_round(-math.inf) == -(2**63)


@pytest.mark.parametrize(("samples", "size_ms"), [(0, 1000), (11, 0), (-1, 1)])
def test_there_is_at_least_one_window(samples: int, size_ms: int) -> None:
    with pytest.raises(IllegalArgumentError):
        Windows(samples, size_ms)


def test_samples_are_forgotten_by_their_last_event() -> None:
    """SampledStatTest: 2 windows of a second; a sample counts until two seconds after its last event."""
    total = SampledTotal(Windows(2, 1000))
    total.record(1, NOW)
    total.record(1, NOW + 999)
    assert total.total(NOW + 999 + 1500) == 2
    assert total.total(NOW + 999 + 2000) == 0


def test_one_sample_more_than_there_are_windows_counts() -> None:
    """SampledStatTest: two whole samples of a second, a tenth of one between them, and an event at 2.2 s."""
    total = SampledTotal(Windows(2, 1000))
    for after_ms in (0, 999, 1100, 2099, 2200):
        total.record(1, NOW + after_ms)
    assert total.total(NOW + 2200) == 5
    assert total.total(NOW + 2998) == 5
    assert total.total(NOW + 2999) == 3


steps_ms = st.one_of(
    st.sampled_from(
        [0, 1, 998, 999, 1000, 1001, 1999, 2000, 2001, 9_999, 10_000, 10_001, 11_000, 3_600_001, -1, -1500, -7_200_000]
    ),
    st.integers(0, 15_000),
)
values = st.one_of(
    st.integers(-(10**6), 10**7).map(float),
    st.floats(0, 1e9),
    st.sampled_from([1e15, -1e15, 1e-3, -1e-3, 0.1, 1e300, -1e300, 1e-300]),
    st.floats(),
)
events_of_a_rate = st.lists(st.tuples(steps_ms, st.none() | values), max_size=60)
windows_of_a_rate = st.builds(Windows, st.integers(1, 12), st.sampled_from([1, 500, 1000, 3000]))


@given(windows=windows_of_a_rate, events=events_of_a_rate)
def test_the_running_total_is_the_sum_of_the_samples(windows: Windows, events: list[tuple[int, float | None]]) -> None:
    """To the last bit, whatever is recorded and looked at when: numbers that cancel out, a clock that goes back."""
    rate, model = SampledRate(windows), SampledModel(windows)
    now_ms = NOW
    for step_ms, value in events:
        now_ms += step_ms
        if value is not None:
            rate.record(value, now_ms)
            model.record(value, now_ms)
        assert is_same_value(rate.measure(now_ms), model.measure(now_ms))


@given(windows=windows_of_a_rate, events=events_of_a_rate)
def test_in_one_go_is_one_after_the_other(windows: Windows, events: list[tuple[int, float | None]]) -> None:
    """A decision counts and measures at once, and says what it divided by."""
    at_once, in_steps = SampledRate(windows), SampledRate(windows)
    now_ms = NOW
    for step_ms, value in events:
        now_ms += step_ms
        in_steps.record(value or 0.0, now_ms)
        assert is_same_value(at_once.add(value or 0.0, now_ms), in_steps.measure(now_ms))
        assert at_once.added_over_ms == in_steps.covered_ms(now_ms)


@pytest.mark.parametrize("seed", range(5))
def test_errors_do_not_build_up(seed: int) -> None:
    """A long run of huge and tiny, taken back and not: never more than the samples' own, and 0 when all are forgotten.

    Within 1e-12 of the exact sum, where nothing cancels out.
    """
    random = Random(seed)
    windows = Windows(11, 1000)
    rate, model, positive = SampledRate(windows), SampledModel(windows), SampledTotal(windows)
    now_ms, total = NOW, 0.0
    for _ in range(20_000):
        now_ms += random.choice((0, 1, 7, 130, 1000))
        value = random.choice((1e15, 1e-3, 0.1, random.random(), float(random.randrange(10**6))))
        positive.record(value, now_ms)
        value *= random.choice((1, 1, -1))
        rate.record(value, now_ms)
        model.record(value, now_ms)
        assert rate.measure(now_ms) == model.measure(now_ms)
        total = positive.total(now_ms)
    exact = math.fsum(positive._values) + positive._value
    assert total == pytest.approx(exact, rel=1e-12)
    now_ms += windows.span_ms
    assert rate.total(now_ms) == positive.total(now_ms) == 0.0
    rate.record(1e-3, now_ms)
    assert rate.total(now_ms) == 1e-3
