"""What the page shows, as plain values.

A :class:`Report` is bounded by :class:`Bounds` whatever the size of the analysis: the lists hold the worst rows, and
beside every list stands the number of rows there are. Amounts and rates are in the unit of their quota key (bytes,
percent-seconds of one thread, partitions, connections; rates per second), times are milliseconds since the epoch.
None means "not known" throughout.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

__all__ = [
    "AMBIGUOUS",
    "QUOTA_KEYS",
    "UNEXPLAINED",
    "Bounds",
    "BrokerSeries",
    "CalibratedMeter",
    "Calibration",
    "Client",
    "Curve",
    "CurvePoint",
    "Curves",
    "Episode",
    "Episodes",
    "EstimatedMeter",
    "GrainDifference",
    "KeyTotals",
    "Lane",
    "LimitSpan",
    "LimitedClient",
    "LimitedClients",
    "MeterName",
    "MeterThrottle",
    "MeterTimeline",
    "MeterUse",
    "RateWindow",
    "Recommendation",
    "Recommendations",
    "RejectedLine",
    "RejectedReason",
    "Report",
    "Sharers",
    "Span",
    "Summary",
    "TimeRange",
    "UnlimitedClient",
    "UnlimitedClients",
    "WhatIf",
    "WhatIfMeter",
    "WhatIfRun",
]

AMBIGUOUS: Final = "ambiguous"
UNEXPLAINED: Final = "unexplained"
"""Causes in the `throttled` table beside the quota keys."""

QUOTA_KEYS: Final = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
    "connection_creation_rate",
)
"""The order in which the page goes through the keys."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How much of an analysis the page shows. All else is counted on the page and found in the tables."""

    meters: int = 12
    """Meters drawn over time, and lanes of throttled time."""
    brokers_per_meter: int = 5
    """Lines in one chart, apart from the limit's."""
    bins: int = 300
    """Steps of time in one chart."""
    clients: int = 200
    clients_open: int = 25
    """Limited clients in all, and those shown without unfolding."""
    episodes: int = 60
    episodes_open: int = 15
    unlimited_per_key: int = 15
    calibrated: int = 40
    calibrated_open: int = 15
    """Meters whose waits were replayed: in all, and those shown without unfolding."""
    what_if: int = 60
    what_if_open: int = 15
    """Meters that other limits touch: in all, and those shown without unfolding."""
    curves: int = 24
    curve_points: int = 64
    """Meters drawn against their limit, and limits in one of those charts."""
    recommendations: int = 60
    recommendations_open: int = 15
    reasons: int = 20
    samples_per_reason: int = 3
    names: int = 5
    """Clients named beside a shared meter or an episode."""


@dataclass(frozen=True, slots=True)
class Summary:
    """The parts of summary.json that the page prints."""

    timezone: str = "UTC"
    inputs: tuple[str, ...] = ()
    inputs_total: int = 0
    lines: int | None = None
    good: int | None = None
    rejected: int | None = None
    blank: int | None = None
    forwarded: int | None = None
    clients: int | None = None
    meters: int | None = None
    limited_meters: int | None = None
    throttled_meters: int | None = None
    throttle_ms: int | None = None
    unknown_amounts: int | None = None
    versions: tuple[tuple[str, str], ...] = ()
    """API, and its versions seen, in words."""
    seconds: tuple[tuple[str, float], ...] = ()
    """Stage and how long it took."""
    settings: tuple[tuple[str, float | str], ...] = ()
    """Broker settings that were used, such as quota.window.num."""
    metrics: str = ""
    """What was read of brokers' metrics, in a sentence."""
    kept_requests: bool | None = None
    """Whether the table `requests` was written, of which the log can be replayed."""
    limit_changes_ms: tuple[int, ...] = ()
    """When limits changed while the log ran."""
    limits_known_from_ms: int | None = None
    """From when on it is known which quotas were in force; None where nothing says so."""
    quotas_recorded_from_ms: int | None = None
    """Where these are not the quotas of the log's time: when the record of their changes begins."""
    what_if: WhatIfRun | None = None
    """How the table `whatif` was made."""
    curve_model: str = ""
    """How clients are taken to behave in the table `curve`: open or closed."""
    unmet: int | None = None
    """How many rows of `recommendations` miss what was wanted."""


@dataclass(frozen=True, slots=True)
class RateWindow:
    """The window of the sampled rate: `num` windows of `size_s` seconds each."""

    num: int = 11
    size_s: int = 1

    @property
    def window_ms(self) -> int:
        """Length of all windows together."""
        return self.num * self.size_s * 1000


@dataclass(frozen=True, slots=True)
class TimeRange:
    """From the start of the first cell to the end of the last."""

    start_ms: int
    end_ms: int


@dataclass(frozen=True, slots=True)
class Client:
    """Raw names. '' is a name known to be empty, None one that is not known or does not apply."""

    user: str | None
    client_id: str | None
    ip: str | None


@dataclass(frozen=True, slots=True)
class MeterName:
    """What usage is counted against. `meter` is canonical text, None where no known limit explains a throttle."""

    cluster: str
    meter: str | None
    key: str


@dataclass(frozen=True, slots=True)
class MeterThrottle:
    """What the limit of a meter caused, or may have caused in the `ambiguous` ones of its `episodes`."""

    episodes: int
    ambiguous: int
    requests: int | None
    throttle_ms: int | None

    @property
    def certain(self) -> bool:
        """Whether at least one episode has no other explanation."""
        return self.ambiguous < self.episodes


@dataclass(frozen=True, slots=True)
class MeterUse:
    """How close a meter came to its limit, on the broker where it came closest.

    `unknown_amounts`: how many of its requests, on all brokers, are in no figure.
    """

    broker_id: int
    brokers: int
    rate_p95: float | None
    rate_max: float | None
    peak_1s: float | None
    seconds_active: int | None
    seconds_over_80: int | None
    seconds_over_100: int | None
    unknown_amounts: int = 0


@dataclass(frozen=True, slots=True)
class Sharers:
    """The clients that are counted on one meter: how many, and the largest of them."""

    clients: int
    largest: tuple[Client, ...]


@dataclass(frozen=True, slots=True)
class LimitedClient:
    """One client and key with the limit that holds for it.

    `throttled_requests` and `throttle_ms` are the client's own, on the APIs of the key; `told` is that of the meter.
    """

    cluster: str
    client: Client
    key: str
    amount: float | None
    requests: int | None
    throttled_requests: int | None
    throttle_ms: int | None
    limit: float
    limit_source: str
    level: int | None
    meter: str
    use: MeterUse | None
    told: MeterThrottle | None
    sharers: Sharers
    unknown_amounts: int = 0
    """How many of its requests are not in `amount`."""

    @property
    def ratio_p95(self) -> float | None:
        """Part of the limit that the meter's 95th percentile is."""
        return ratio(self.use.rate_p95 if self.use else None, self.limit)

    @property
    def ratio_max(self) -> float | None:
        """Part of the limit that the meter's largest rate is."""
        return ratio(self.use.rate_max if self.use else None, self.limit)


@dataclass(frozen=True, slots=True)
class LimitedClients:
    """Of `total`, those throttled longest, then those closest to their limit."""

    total: int
    rows: tuple[LimitedClient, ...]


@dataclass(frozen=True, slots=True)
class UnlimitedClient:
    """A client for which no limit of some key holds.

    `by_request_time`: a request percentage holds for it, which can throttle requests of every kind.
    """

    cluster: str
    client: Client
    amount: float | None
    requests: int | None
    throttled_requests: int | None
    throttle_ms: int | None
    by_request_time: bool = False
    unknown_amounts: int = 0
    """How many of its requests are not in `amount`."""


@dataclass(frozen=True, slots=True)
class UnlimitedClients:
    """Clients without a limit for `key`, those with the largest amount first."""

    key: str
    total: int
    unexplained: int
    """How many of them were throttled although no request percentage holds for them either."""
    rows: tuple[UnlimitedClient, ...]


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of time."""

    start_ms: int
    end_ms: int


@dataclass(frozen=True, slots=True)
class LimitSpan:
    """A stretch of time in which a limit was in force."""

    start_ms: int
    end_ms: int
    limit: float


@dataclass(frozen=True, slots=True)
class BrokerSeries:
    """The enforced rate on one broker: a step function, given as (from when, rate). In one bin it is the largest."""

    broker_id: int
    limit: float | None
    steps: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class MeterTimeline:
    """One limited meter over time, all brokers together."""

    name: MeterName
    limit_source: str | None
    use: MeterUse
    told: MeterThrottle | None
    series: tuple[BrokerSeries, ...]
    spans: tuple[Span, ...]
    """When requests of this meter were throttled, on any broker."""
    limit_spans: tuple[LimitSpan, ...] = ()
    """Which limit was in force when, where it changed."""

    @property
    def limits(self) -> tuple[float, ...]:
        """The limits to draw: one, unless it changed, or static defaults differ between the brokers drawn."""
        if self.limit_spans:
            return tuple(sorted({span.limit for span in self.limit_spans}))
        return tuple(sorted({one.limit for one in self.series if one.limit is not None}))


@dataclass(frozen=True, slots=True)
class Lane:
    """Throttled time of one meter, all brokers together; spans do not overlap and are rounded to the page's bins."""

    name: MeterName
    told: MeterThrottle
    spans: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class Episode:
    """A row of `throttled`; `clients` is how many there were, `largest` names some of them."""

    broker_id: int
    name: MeterName
    cause: str
    start_ms: int
    end_ms: int
    requests: int | None
    throttle_ms: int | None
    throttle_max_ms: int
    clients: int
    largest: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Episodes:
    """Of `total` episodes, those with the longest waits; `lanes` draws the meters throttled longest."""

    total: int
    ambiguous: int
    unexplained: int
    rows: tuple[Episode, ...]
    lanes: tuple[Lane, ...]


@dataclass(frozen=True, slots=True)
class CalibratedMeter:
    """The waits that one broker told on a meter, beside those that Kafka's arithmetic gives on the same log."""

    broker_id: int
    name: MeterName
    waits: int
    """Told or predicted, and compared."""
    within: float | None
    """The share of them that is within 5 ms or 5 %; None where there were none to compare."""
    within_as_logged: float | None
    """The same without learning from what was told later."""
    false_negatives: int
    false_positives: int
    error_p50_ms: float | None
    error_p99_ms: float | None
    told_ms: int
    predicted_ms: int
    not_compared: int


@dataclass(frozen=True, slots=True)
class EstimatedMeter:
    """The waits told to clients whose request time is limited, on any request, and the range of the replay."""

    broker_id: int
    name: MeterName
    requests: int
    told_ms: int
    low_ms: int
    high_ms: int


@dataclass(frozen=True, slots=True)
class Calibration:
    """Of `total` meters, those with the most waits that the replay does not give; the sums are of all of them.

    `estimates` are apart: nothing can be said of them but a range.
    """

    total: int
    waits: int
    close: int
    told_ms: int
    predicted_ms: int
    not_compared: int
    rows: tuple[CalibratedMeter, ...]
    estimates_total: int
    estimates: tuple[EstimatedMeter, ...]


@dataclass(frozen=True, slots=True)
class GrainDifference:
    """How far seconds and requests are apart, on the `meters` that either throttles: in parts of the throughput."""

    meters: int
    mean: float
    worst: float
    worst_meter: str


@dataclass(frozen=True, slots=True)
class WhatIfRun:
    """How other limits were tried: `model` is open or closed, `grain` request or cell."""

    model: str
    grain: str
    difference: GrainDifference | None = None


@dataclass(frozen=True, slots=True)
class WhatIfMeter:
    """What another limit, or other clients, would have made of one meter on one broker. A limit of None is no limit."""

    broker_id: int
    name: MeterName
    limit_old: float | None
    limit_new: float | None
    amount_old: float | None
    amount_new: float | None
    throttled_requests: int
    share: float | None
    """Part of the recording in which the meter is muted."""
    max_delay_ms: float | None
    total_delay_ms: float | None
    previous_meters: str | None
    """Whose clients it takes: canonical text of their meters."""
    newly_throttled: bool
    no_longer_throttled: bool
    unknowns: tuple[str, ...]
    """Names of what the recording cannot tell."""


@dataclass(frozen=True, slots=True)
class WhatIf:
    """Of the `changed` meters of all `meters`, the worst; the other counts are of all meters."""

    meters: int
    changed: int
    throttled: int
    newly_throttled: int
    no_longer_throttled: int
    taken_over: int
    rows: tuple[WhatIfMeter, ...]
    unknowns: tuple[tuple[str, str], ...]
    """Name and words of each that a row has."""


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """What one limit would have done to a meter."""

    limit: float
    share: float
    max_delay_ms: float


@dataclass(frozen=True, slots=True)
class Curve:
    """How throttling grows as the limit of a meter falls, on the broker where its present limit throttles most."""

    name: MeterName
    broker_id: int
    brokers: int
    points: tuple[CurvePoint, ...]
    """By limit, the lowest first; never none."""
    limit: float | None
    """The present one; None for a meter that has none."""
    share: float | None
    max_delay_ms: float | None
    """What the present limit does."""
    recommended: float | None
    """What its rule should be set to."""

    @property
    def free_from(self) -> float | None:
        """The lowest of the limits tried from which on none throttles; None where even the highest does."""
        found = None
        for point in reversed(self.points):
            if point.share > 0:
                break
            found = point.limit
        return found


@dataclass(frozen=True, slots=True)
class Curves:
    """Of `total` meters, those that their present limit throttles most of the time."""

    total: int
    rows: tuple[Curve, ...]


@dataclass(frozen=True, slots=True)
class Recommendation:
    """What one rule should be set to; `share` and `max_delay_ms` are of the meter of it that would fare worst."""

    cluster: str
    entity: str
    key: str
    now: float | None
    new: float | None
    """None where none of the limits tried does what was wanted."""
    reason: str
    share: float | None
    max_delay_ms: float | None
    curve: Curve | None
    """Of that meter of the rule that its present limit throttles most; None where no limits were tried on it."""
    owner: str | None = None
    """None for a rule of nobody, and where no owners are known."""

    @property
    def change(self) -> str:
        """'raise', 'lower', 'keep', 'add' or 'unmet'."""
        if self.new is None:
            return "unmet"
        if self.now is None:
            return "add"
        return "raise" if self.new > self.now else "lower" if self.new < self.now else "keep"


@dataclass(frozen=True, slots=True)
class Recommendations:
    """Of `total` rules, those without an answer, those to add, and those that change most."""

    total: int
    raised: int
    lowered: int
    added: int
    rows: tuple[Recommendation, ...]


@dataclass(frozen=True, slots=True)
class RejectedLine:
    """One line that could not be used."""

    file: str
    line: int
    detail: str
    """What the reason says about this line alone."""
    sample: str


@dataclass(frozen=True, slots=True)
class RejectedReason:
    """How many lines were rejected for one reason, and the first of them."""

    reason: str
    lines: int
    samples: tuple[RejectedLine, ...]


@dataclass(frozen=True, slots=True)
class KeyTotals:
    """All clients of one key together."""

    key: str
    clients: int
    limited: int
    amount: float | None
    requests: int
    throttled_clients: int
    throttled_requests: int
    throttle_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The whole page."""

    summary: Summary
    clusters: tuple[str, ...]
    brokers: tuple[tuple[str, int], ...]
    """(cluster, broker id), at most 200 of them."""
    brokers_total: int
    range: TimeRange | None
    """None where no cell was written."""
    window: RateWindow
    mutation_window: RateWindow
    totals: tuple[KeyTotals, ...]
    limited: LimitedClients
    unlimited: tuple[UnlimitedClients, ...]
    timelines: tuple[MeterTimeline, ...]
    limited_meters: int
    """Meters with a limit that were active, of which `timelines` are the worst."""
    episodes: Episodes
    calibration: Calibration | None
    """None where the analysis has no such table."""
    rejected: tuple[RejectedReason, ...]
    what_if: WhatIf | None = None
    curves: Curves | None = None
    recommendations: Recommendations | None = None
    """These three are None where the analysis has no such table."""
    bounds: Bounds = field(default_factory=Bounds)


def ratio(rate: float | None, limit: float | None) -> float | None:
    """Part of the limit that `rate` is, None where either is unknown or the limit is not a positive number."""
    return rate / limit if rate is not None and limit is not None and limit > 0 else None
