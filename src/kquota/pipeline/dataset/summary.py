"""summary.json: what the steps counted. Written and read here alone; names in the file are those of the fields.

Each step sets some fields (:mod:`kquota.pipeline.dataset.steps`); those with a default are left out where they have it,
because their step has not run or found nothing.
"""

from __future__ import annotations

import msgspec

from kquota import __version__

__all__ = [
    "AmbiguousHour",
    "BackwardClock",
    "CalibrationTotals",
    "CurveRun",
    "DuplicateLogFile",
    "GrainDifference",
    "Input",
    "MetricsRead",
    "Overlap",
    "QuotaPeriodRead",
    "QuotasOverTimeRead",
    "RecommendRun",
    "ShowbackRun",
    "Summary",
    "WhatIfRun",
    "encode_summary",
]


class Input(msgspec.Struct, frozen=True):
    """A file that was read; `broker_id` is null where the file itself names its brokers."""

    file: str
    source: str
    broker_id: int | None
    bytes: int


class DuplicateLogFile(msgspec.Struct, frozen=True):
    """A log that was not read, because another holds all of its lines."""

    file: str
    of: str


class Overlap(msgspec.Struct, frozen=True):
    """Logs of one broker that may be of several, or hold the same lines."""

    broker_id: int
    files: list[str]
    overlap_ms: int


class AmbiguousHour(msgspec.Struct, frozen=True):
    """A log that begins in an hour that came twice, and does not say in which of the two."""

    broker_id: int | None
    file: str


class BackwardClock(msgspec.Struct, frozen=True):
    """A broker's clock was set back by `by_ms` at `from_ms`."""

    broker_id: int
    from_ms: int
    by_ms: int


class MetricsRead(msgspec.Struct, frozen=True):
    """What became of brokers' metrics: readings of quota metrics, and other series."""

    readings: int
    rejected: int
    blank: int
    meters: int
    cells: dict[str, int]
    """By source, cells of usage that were made of them."""
    step_ms: int | None
    """The most frequent time between readings."""
    duplicates: int
    contradictions: int
    covered_by_log: int
    """Readings that were left out, because a request log covers their time."""
    gaps: int
    resets: int
    without_value: int
    related: int
    """Series that say something of quotas and are no usage."""
    untagged: int
    foreign: int
    other_series: int
    other_metrics: int
    largest_other_metrics: dict[str, int]
    brokers: dict[str, int]
    """Broker ids by value of the label that tells brokers apart."""


class QuotaPeriodRead(msgspec.Struct, frozen=True):
    """Quotas that were in force at one time; null: from before, or until after, the recording."""

    valid_from_ms: int | None
    valid_to_ms: int | None
    entities: int


class QuotasOverTimeRead(msgspec.Struct, frozen=True):
    """How quotas changed while the recording ran."""

    changes: int
    recorded_from_ms: int | None
    periods: list[QuotaPeriodRead]


class CalibrationTotals(msgspec.Struct, frozen=True):
    """The `calibration` table summed up, but for request time; `within_5ms_or_5pct` counts requests."""

    compared: int
    within_5ms_or_5pct: int
    not_compared: int
    throttle_ms_logged: int
    throttle_ms_predicted: int


class GrainDifference(msgspec.Struct, frozen=True):
    """How far simulations of cells and of requests are apart on `meters` meters; null where there is none."""

    meters: int
    amount_mean: float | None
    amount_worst: float | None
    amount_worst_meter: str | None
    share_mean: float | None
    share_worst: float | None


class WhatIfRun(msgspec.Struct, frozen=True):
    """How other limits were simulated, and how many meters they affect. `clients` and `meters` are those compared."""

    model: str
    in_flight: int | None
    grain: str
    clients: int
    meters: int
    throttled: int
    newly_throttled: int
    no_longer_throttled: int
    taken_over: int
    """Meters with clients that were on another."""
    changed: int
    grain_difference: GrainDifference | None


class CurveRun(msgspec.Struct, frozen=True):
    """How many candidate limits were simulated."""

    model: str
    meters: int
    candidates: int


class RecommendRun(msgspec.Struct, frozen=True):
    """The goal, and for how many rules no limit meets it."""

    goal: str
    rules: int
    unmet: int


class ShowbackRun(msgspec.Struct, frozen=True):
    """`unowned` counts clients."""

    timezone: str
    owners: int
    unowned: int


class Summary(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What the steps counted so far. lines = good + rejected + blank; good includes forwarded and followers."""

    kquota: str
    """Version that read the logs."""
    timezone: str
    """That the logs were written in."""
    cluster: str
    inputs: list[Input]
    start_ms: int | None
    """The recording is [start_ms, end_ms); null where it is empty."""
    end_ms: int | None
    lines: int
    good: int
    rejected: int
    blank: int
    forwarded: int
    followers: int
    unknown_amounts: int
    versions: dict[str, dict[str, int]]
    """Requests by API and version."""
    kept_requests: bool
    settings: dict[str, int]
    """Of the brokers: quota.window.num and the like."""
    duplicate_logs: list[DuplicateLogFile] = []
    overlaps: list[Overlap] = []
    ambiguous_hours: list[AmbiguousHour] = []
    clock_went_backwards: list[BackwardClock] = []
    metrics: MetricsRead | None = None
    clients: int | None = None
    meters: int | None = None
    limited_meters: int | None = None
    throttle_ms: int | None = None
    throttled_requests: int | None = None
    quotas_over_time: QuotasOverTimeRead | None = None
    throttled_meters: int | None = None
    calibration: CalibrationTotals | None = None
    whatif: WhatIfRun | None = None
    curve: CurveRun | None = None
    recommendations: RecommendRun | None = None
    showback: ShowbackRun | None = None
    seconds: dict[str, float] = {}
    """By stage."""

    @classmethod
    def empty(cls) -> Summary:
        """Of a dataset that nothing was read into."""
        return cls(
            kquota=__version__,
            timezone="UTC",
            cluster="",
            inputs=[],
            start_ms=None,
            end_ms=None,
            lines=0,
            good=0,
            rejected=0,
            blank=0,
            forwarded=0,
            followers=0,
            unknown_amounts=0,
            versions={},
            kept_requests=False,
            settings={},
        )


def encode_summary(summary: Summary) -> bytes:
    """As summary.json is written, for people to read."""
    return msgspec.json.format(msgspec.json.encode(summary), indent=2) + b"\n"
