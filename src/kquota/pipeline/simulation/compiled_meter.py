"""A meter compiled: Kafka's sampled rate, or token bucket, and for how long a request is throttled.

Sources: ``Rate``, ``SampledStat``, ``TokenBucket``; :mod:`kquota.metering.statistics` has the same with the reasons,
:func:`kquota.metering.requests.charge` the rule, which tests compare this with.
A meter is one vector: what is known of it, and behind that the values, starts and last events of a ring of samples.
Its rule is a record. Compiled code that is given tuples of arrays counts their references at every step, and takes ten
times longer. With three windows::

    0        5          9         12        16        20        24
    | current| others   | bucket, | values  | starts  | lasts   |
    | sample | and sum  | mute    | of four | of four | of four |

The current sample is written to its slot of the ring only when the next begins. The sum of all samples is known
without a look at the ring, and may be too high by what is to be forgotten: as long as even that is far below the limit,
no rate is calculated. The events of :class:`kquota.metering.statistics.SampledRate`'s example, under 250 a second:

>>> rule = np.zeros(1, RULE)[0]
>>> rule["kind"], rule["windows"], rule["window_ms"], rule["limit"], rule["end_ms"] = BYTES, 3, 1_000, 250, 60_000
>>> rule["far"] = -math.inf
>>> meter, outcome = new_meter(3), np.zeros(8)
>>> for amount, now_ms in (600, 0), (300, 900), (300, 1_000):
...     free_ms, accepted = charge_request(meter, rule, float(amount), float(now_ms), outcome)
...     print(f"{now_ms:4} ms: muted until {free_ms:.0f} ms, {windowed_sum(meter):.0f} in all windows")
   0 ms: muted until 400 ms, 600 in all windows
 900 ms: muted until 1600 ms, 900 in all windows
1000 ms: muted until 3800 ms, 1200 in all windows
>>> float(outcome[PEAK])  # 600 a second by 250
2.4
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
from numba import njit

from kquota.metering.throttling import LONGEST_MS

__all__ = [
    "AMOUNT",
    "BACKLOG_MAX",
    "BYTES",
    "CONNECTIONS",
    "FETCHED",
    "MAX_DELAY_MS",
    "PEAK",
    "RULE",
    "TIME",
    "TOKENS",
    "TOTAL_DELAY_MS",
    "Floats",
    "Ints",
    "charge_request",
    "compiled",
    "inlined",
    "new_meter",
    "record",
    "record_evenly",
    "windowed_sum",
]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

AMOUNT, _THROTTLED, _THROTTLED_MS, _MUTED_MS, MAX_DELAY_MS, TOTAL_DELAY_MS, BACKLOG_MAX, PEAK = range(8)
"""The fields of an :class:`~kquota.pipeline.simulation.arrivals.Outcome`, in an array."""

BYTES, FETCHED, TIME, TOKENS, CONNECTIONS = range(5)
"""What is counted."""

RULE: Final = np.dtype(
    [
        ("kind", np.int64),
        ("windows", np.int64),
        ("window_ms", np.float64),
        ("limit", np.float64),
        ("far", np.float64),
        ("end_ms", np.float64),
        ("largest_request", np.float64),
        ("envelope", np.float64),
        ("in_flight", np.int64),
        ("first", np.int64),
        ("last", np.int64),
    ]
)
"""A limit, what it is for, and what it is tried on: `far` is a sum of samples that gives no rate near the limit, `most`
the largest request, `envelope` what joined ones need once, `first` to `last` are the cells."""

if TYPE_CHECKING:
    Rule = Any
    """A row of :data:`RULE`."""

# Of a meter's state: the current sample, its slot (-1 before the first event) and how many slots were ever used.
_SLOT, _USED, _VALUE, _START_MS, _LAST_MS = range(5)
# Of the other samples: their sum, when the oldest began, and the earliest that one is to be forgotten; minus infinity
# where these are to be found anew. The sum of all samples is at least what it says: some may be to be forgotten.
_OTHERS, _OLDEST_MS, _EXPIRE_MS, _WINDOWED_SUM = range(5, 9)
# The bucket, and until when anybody is muted.
_TOKENS, _COUNTED_MS, _MUTED_UNTIL_MS = range(9, 12)
_RING: Final = 12

if TYPE_CHECKING:

    def compiled(function: Any) -> Any:
        """As numba's, but divided by zero as in Java."""

    def inlined(function: Any) -> Any:
        """The same, in place of its calls."""
else:

    def _compiler(**options):
        def compiler(function):
            try:
                return njit(cache=True, nogil=True, error_model="numpy", **options)(function)
            except RuntimeError:
                # No folder can be written that the compiled code could be kept in: each process compiles it anew.
                return njit(nogil=True, error_model="numpy", **options)(function)

        return compiler

    compiled = _compiler()
    inlined = _compiler(inline="always")


@compiled
def new_meter(windows: int) -> Floats:
    """A meter of so many windows, and of the one that counts in part."""
    meter = np.zeros(_RING + 3 * (windows + 1))
    meter[_SLOT] = -1.0
    meter[_START_MS] = -math.inf
    return meter


@inlined
def windowed_sum(meter: Floats) -> float:
    """The sum of all samples, or more."""
    return meter[_WINDOWED_SUM]  # type: ignore[no-any-return]


@compiled
def _begin_sample(meter: Floats, windows: int, now_ms: float) -> None:
    slot = int(meter[_SLOT])
    values, starts, lasts = _RING, _RING + windows + 1, _RING + 2 * (windows + 1)
    if slot >= 0:
        meter[values + slot] = meter[_VALUE]
        meter[starts + slot] = meter[_START_MS]
        meter[lasts + slot] = meter[_LAST_MS]
    slot = 0 if slot == windows else slot + 1
    meter[_SLOT] = slot
    if slot >= meter[_USED]:
        meter[_USED] = slot + 1.0
    else:
        meter[_WINDOWED_SUM] -= meter[values + slot]
    meter[_VALUE] = 0.0
    meter[_START_MS] = now_ms
    meter[_EXPIRE_MS] = -math.inf


@inlined
def record(meter: Floats, rule: Rule, amount: float, now_ms: float) -> None:
    """Count an amount."""
    if now_ms - meter[_START_MS] >= rule.window_ms:
        _begin_sample(meter, rule.windows, now_ms)
    meter[_VALUE] += amount
    meter[_WINDOWED_SUM] += amount
    meter[_LAST_MS] = now_ms


@inlined
def record_evenly(meter: Floats, rule: Rule, each: float, start_ms: float, every_ms: float, parts: int) -> None:
    """Count so many equal amounts, one in the middle of each `every_ms`."""
    part = 0
    last_ms = math.floor(start_ms + (parts - 0.5) * every_ms)
    while part < parts:
        now_ms = math.floor(start_ms + (part + 0.5) * every_ms)
        if now_ms - meter[_START_MS] >= rule.window_ms:
            _begin_sample(meter, rule.windows, now_ms)
        # All up to the sample's end are one sum: those that come before it, which rounding may have taken one too far.
        ends_ms = meter[_START_MS] + rule.window_ms
        until, until_ms = parts, last_ms
        if last_ms >= ends_ms:
            until = max(part + 1, min(parts, int((ends_ms - start_ms) / every_ms) + 2))
            until_ms = math.floor(start_ms + (until - 0.5) * every_ms)
            while until > part + 1 and until_ms >= ends_ms:
                until -= 1
                until_ms = math.floor(start_ms + (until - 0.5) * every_ms)
        more = (until - part) * each
        meter[_VALUE] += more
        meter[_WINDOWED_SUM] += more
        meter[_LAST_MS] = until_ms
        part = until


@compiled
def _forget(meter: Floats, windows: int, span_ms: float, now_ms: float) -> None:
    """Forget each other sample whose last event is too long ago, and find what is kept of them."""
    current = int(meter[_SLOT])
    values, starts, lasts = _RING, _RING + windows + 1, _RING + 2 * (windows + 1)
    total = 0.0
    oldest_ms = math.inf
    expire_ms = math.inf
    for slot in range(int(meter[_USED])):
        if slot == current:
            continue
        if now_ms - meter[lasts + slot] >= span_ms:
            meter[values + slot] = 0.0
            meter[starts + slot] = now_ms
            meter[lasts + slot] = now_ms
        total += meter[values + slot]
        oldest_ms = min(oldest_ms, meter[starts + slot])
        expire_ms = min(expire_ms, meter[lasts + slot])
    meter[_OTHERS] = total
    meter[_OLDEST_MS] = oldest_ms
    meter[_EXPIRE_MS] = expire_ms + span_ms
    meter[_WINDOWED_SUM] = total + meter[_VALUE]


@compiled
def _rounded(value: float) -> float:
    """As java_round, up to the longest throttle time."""
    if not value < LONGEST_MS:
        return 0.0 if math.isnan(value) else float(LONGEST_MS)
    whole = math.floor(value)
    return max(whole + 1.0 if value - whole >= 0.5 else whole, 0.0)


@compiled
def _take(meter: Floats, rule: Rule, amount: float, now_ms: float) -> tuple[float, bool, float]:
    """Take tokens, where there are any: how long to wait for them, whether they were taken, and how many are used."""
    burst = rule.windows * (rule.window_ms / 1000.0) * rule.limit
    tokens = min(meter[_TOKENS] + rule.limit * ((now_ms - meter[_COUNTED_MS]) / 1000.0), burst)
    meter[_COUNTED_MS] = now_ms
    accepted = not tokens < 0.0
    if accepted:
        tokens -= amount
    meter[_TOKENS] = tokens
    throttle_ms = 0.0 if accepted else max(_rounded(-tokens / rule.limit * 1000.0), 1.0)
    return throttle_ms, accepted, (burst - tokens) / burst


@inlined
def _add(meter: Floats, rule: Rule, amount: float, now_ms: float) -> tuple[float, bool, float]:
    """Count an amount: how long it is throttled, whether it is let through, and the rate by the limit."""
    record(meter, rule, amount, now_ms)
    if now_ms >= meter[_EXPIRE_MS]:
        _forget(meter, rule.windows, rule.windows * rule.window_ms, now_ms)
    elapsed_ms = now_ms - min(meter[_OLDEST_MS], meter[_START_MS])
    over_ms = max(elapsed_ms, 1.0)
    least_ms = (rule.windows - 1) * rule.window_ms
    if elapsed_ms < least_ms:
        over_ms = max(elapsed_ms + least_ms - int(elapsed_ms / rule.window_ms) * rule.window_ms, 1.0)
    rate = (meter[_OTHERS] + meter[_VALUE]) / (over_ms / 1000.0)
    throttle_ms = _rounded((rate - rule.limit) / rule.limit * over_ms) if rate > rule.limit else 0.0
    if rule.kind == TIME:
        throttle_ms = min(throttle_ms, rule.window_ms)
    accepted = rule.kind != FETCHED or throttle_ms == 0.0
    if not accepted:
        meter[_VALUE] -= amount
        meter[_WINDOWED_SUM] -= amount
    return throttle_ms, accepted, rate / rule.limit


@inlined
def charge_request(
    meter: Floats, rule: Rule, amount: float, at_ms: float, out: Floats,
) -> tuple[float, bool]:  # fmt: skip
    """Count a request, and note what came of it: when the mute ends, and whether it was let through."""
    now_ms = math.floor(at_ms)
    throttle_ms, accepted, level = 0.0, True, 0.0
    if meter[_WINDOWED_SUM] + amount <= rule.far:
        record(meter, rule, amount, now_ms)
    elif rule.kind == TOKENS:
        throttle_ms, accepted, level = _take(meter, rule, amount, now_ms)
    else:
        throttle_ms, accepted, level = _add(meter, rule, amount, now_ms)
    if throttle_ms > 0.0:
        out[_THROTTLED] += 1.0
        out[_THROTTLED_MS] += throttle_ms
        until_ms = min(at_ms + throttle_ms, rule.end_ms)
        out[_MUTED_MS] += max(until_ms - max(at_ms, meter[_MUTED_UNTIL_MS]), 0.0)
        meter[_MUTED_UNTIL_MS] = max(meter[_MUTED_UNTIL_MS], until_ms)
    if level > out[PEAK]:
        out[PEAK] = level
    return at_ms + throttle_ms, accepted
