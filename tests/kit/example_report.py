"""A report made by hand, with names that want to break out of the page: for tests of what draws and writes it.

Rows have the columns that the page reads, by the names that the queries of the report give them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from pyspark.sql import Row

from kquota.pipeline.dataset.summary import CurveRun, GrainDifference, Input, RecommendRun, Summary, WhatIfRun
from kquota.pipeline.meters.episodes import AMBIGUOUS, UNEXPLAINED
from kquota.pipeline.report.contents import BrokerSeries, Listed, Report, Span, Timeline

START_MS = 1_767_323_045_000  # 2026-01-02T03:04:05Z
RANGE = Span(START_MS, START_MS + 120_000)
MIB = 1 << 20

HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "javascript:alert(1)//{{ 7*7 }}{% raw %}",
    "\u202egnp.exe\u2066",
    "nul\0and\ttab\x1b[31m",
    "x" * 5_000,
    "  ",
    "<default>",
    "ünï-\U0001f980-\ud800",
    "</style></svg></title>&amp;&#60;",
    "https://example.invalid/x.js",
)

METER = {"cluster": "", "meter": "user=alice", "key": "producer_byte_rate"}


def a_row(given: dict[str, Any], changes: dict[str, Any]) -> Row:
    """A row with these values, some of them changed."""
    unknown = changes.keys() - given.keys()
    assert not unknown, f"the page reads no {unknown}"
    return Row(**(given | changes))


def changed(row: Row, **changes: Any) -> Row:
    """A row with other values."""
    return a_row(row.asDict(), changes)


def a_client(user: str | None = "alice", client_id: str | None = "etl", ip: str | None = None) -> Row:
    return Row(user=user, client_id=client_id, ip=ip)


def a_use(**changes: Any) -> Row:
    given = {
        "broker_id": 1,
        "brokers": 1,
        "rate_p95": 1.0 * MIB,
        "rate_max": 1.5 * MIB,
        "seconds_over_100": 20,
        "unknown_amounts": 0,
    }
    return a_row(given, changes)


def a_throttle(**changes: int) -> Row:
    return a_row({"episodes": 1, "ambiguous": 0, "requests": 40, "throttle_ms": 65_000}, changes)


def a_limited_client(**changes: Any) -> Row:
    given = {
        **a_client().asDict(),
        **METER,
        "amount": 100.0 * MIB,
        "requests": 1_000,
        "throttled_requests": 40,
        "throttle_ms": 65_000,
        "unknown_amounts": 0,
        "limit": 1.0 * MIB,
        "limit_source": "user=alice",
        "level": 3,
        "use": a_use(),
        "throttle": a_throttle(),
        "sharers": 1,
        "largest": [a_client()],
    }
    return a_row(given, changes)


def an_unlimited_client(**changes: Any) -> Row:
    given = {
        **a_client("bob", "").asDict(),
        "cluster": "",
        "key": "producer_byte_rate",
        "amount": 10.0 * MIB,
        "requests": 10,
        "throttled_requests": 0,
        "throttle_ms": 0,
        "unknown_amounts": 0,
        "by_request_time": False,
        "total": 1,
        "unexplained": 0,
    }
    return a_row(given, changes)


def a_timeline(
    *,
    series: tuple[BrokerSeries, ...] | None = None,
    spans: tuple[Span, ...] = (Span(START_MS + 20_000, START_MS + 30_000),),
    limit_spans: tuple[Any, ...] = (),
    **meter: Any,
) -> Timeline:
    if series is None:
        steps = tuple((START_MS + second * 1000, float(second % 30) / 20 * MIB) for second in range(0, 120, 5))
        series = (BrokerSeries(1, 1.0 * MIB, steps),)
    row = a_row({**METER, "use": a_use(), "throttle": a_throttle()}, meter)
    return Timeline(row, series, spans, limit_spans)


def an_episode(**changes: Any) -> Row:
    given = {
        **METER,
        "broker_id": 1,
        "cause": "producer_byte_rate",
        "start_ms": START_MS + 20_000,
        "end_ms": START_MS + 32_500,
        "requests": 40,
        "throttle_ms": 65_000,
        "throttle_max_ms": 2_000,
        "clients": 1,
        "largest": ["user=alice,client-id=etl"],
    }
    return a_row(given, changes)


def some_episodes(*rows: Row) -> dict[str, Any]:
    """`episodes` and `lanes` of a report."""
    causes = [row.cause for row in rows]
    counts = Row(total=len(rows), ambiguous=causes.count(AMBIGUOUS), unexplained=causes.count(UNEXPLAINED))
    return {
        "episodes": Listed(counts, rows),
        "lanes": [_a_lane(name, rows) for name in dict.fromkeys(map(_name, rows))],
    }


def _name(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in METER)


def _a_lane(name: tuple[Any, ...], rows: Sequence[Row]) -> tuple[Row, tuple[Span, ...]]:
    of_meter = [row for row in rows if _name(row) == name]
    throttle = a_throttle(
        episodes=len(of_meter),
        ambiguous=sum(row.cause == AMBIGUOUS for row in of_meter),
        requests=sum(row.requests or 0 for row in of_meter),
        throttle_ms=sum(row.throttle_ms or 0 for row in of_meter),
    )
    meter = dict(zip(METER, name, strict=True))
    return Row(**meter, throttle=throttle), (Span(START_MS + 20_000, START_MS + 33_000),)


def a_calibrated_meter(**changes: Any) -> Row:
    given = {
        **METER,
        "broker_id": 1,
        "is_estimate": False,
        "compared": 40,
        "within_5ms_or_5pct": 0.975,
        "within_as_logged": 0.95,
        "false_negatives": 1,
        "false_positives": 2,
        "error_p50_ms": 0.5,
        "error_p99_ms": 12.75,
        "throttled_requests": 38,
        "throttle_ms_logged": 65_000,
        "throttle_ms_predicted": 64_000,
        "predicted_low_ms": None,
        "predicted_high_ms": None,
        "not_compared": 3,
    }
    return a_row(given, changes)


def an_estimated_meter(**changes: Any) -> Row:
    given = a_calibrated_meter().asDict() | {
        "key": "request_percentage",
        "is_estimate": True,
        "within_5ms_or_5pct": None,
        "throttled_requests": 7,
        "throttle_ms_logged": 4_000,
        "predicted_low_ms": 0,
        "predicted_high_ms": 90_000,
    }
    return a_row(given, changes)


def a_calibration(*rows: Row, estimates: Sequence[Row] = (), **sums: int) -> list[Row]:
    """The rows with the sums of all meters; `sums` replaces some of these."""
    found: list[Row] = []
    for of_kind in (rows, estimates):
        all_meters = {
            "all_total": len(of_kind),
            "all_compared": sum(one.compared for one in of_kind),
            "all_close": sum(round((one.within_5ms_or_5pct or 0) * one.compared) for one in of_kind),
            "all_throttle_ms_logged": sum(one.throttle_ms_logged for one in of_kind),
            "all_throttle_ms_predicted": sum(one.throttle_ms_predicted for one in of_kind),
            "all_not_compared": sum(one.not_compared for one in of_kind),
        }
        found += (Row(**one.asDict(), **(all_meters | sums)) for one in of_kind)
    return found


def a_what_if_meter(**changes: Any) -> Row:
    given = {
        **METER,
        "broker_id": 1,
        "limit_old": 1.0 * MIB,
        "limit_new": 0.5 * MIB,
        "amount_old": 100.0 * MIB,
        "amount_new": 62.0 * MIB,
        "throttled_requests": 420,
        "throttled_share": 0.86,
        "max_delay_ms": 8_200.0,
        "total_delay_ms": 16_700_000.0,
        "previous_meters": None,
        "newly_throttled": True,
        "no_longer_throttled": False,
        "unknowns": ["shaped-arrivals"],
    }
    return a_row(given, changes)


def a_what_if(*rows: Row, **counts: int) -> Listed:
    """`counts` replaces some of those of the rows."""
    found = {
        "meters": len(rows),
        "changed": len(rows),
        "throttled": sum(one.throttled_requests > 0 for one in rows),
        "newly_throttled": sum(one.newly_throttled for one in rows),
        "no_longer_throttled": sum(one.no_longer_throttled for one in rows),
        "taken_over": sum(one.previous_meters is not None for one in rows),
    }
    return Listed(a_row(found, counts), rows)


def a_curve(**changes: Any) -> Row:
    """Muted up to 0.8 MiB/s, half of the time at 1 MiB/s, and never from 1.6 MiB/s on."""
    shares = {0.5: 0.9, 0.8: 0.8, 1.0: 0.5, 1.25: 0.1, 1.6: 0.0, 2.0: 0.0}
    given = {
        **METER,
        "broker_id": 1,
        "brokers": 1,
        "points": some_points(*((limit * MIB, share) for limit, share in shares.items())),
        "limit": 1.0 * MIB,
        "throttled_share": 0.5,
        "max_delay_ms": 4_500.0,
        "recommended": 1.4 * MIB,
    }
    return a_row(given, changes)


def some_points(*points: tuple[float, float]) -> list[Row]:
    """Of a curve: (limit, part of the time in which it mutes)."""
    return [Row(limit=limit, throttled_share=share) for limit, share in points]


def some_curves(*rows: Row, total: int | None = None) -> Listed:
    return Listed(Row(total=len(rows) if total is None else total), rows)


def a_recommendation(**changes: Any) -> Row:
    given = {
        "cluster": "",
        "entity": "user=alice",
        "key": "producer_byte_rate",
        "value_now": 1.0 * MIB,
        "value_new": 1.4 * MIB,
        "change": "raise",
        "reason": "the lowest with throttled_share<=0.01",
        "predicted_throttled_share": 0.008,
        "predicted_max_delay_ms": 430.0,
        "curve": a_curve(),
        "owner": None,
    }
    return a_row(given, changes)


def some_recommendations(*rows: Row, **counts: int) -> Listed:
    """`counts` replaces some of those of the rows."""
    changes = [one.change for one in rows]
    found = {name: changes.count(one) for name, one in (("raised", "raise"), ("lowered", "lower"), ("added", "add"))}
    return Listed(a_row({"total": len(rows), **found}, counts), rows)


def a_rejected_line(**changes: Any) -> Row:
    given = {
        "file": "a.log",
        "line": 17,
        "sample": '{"isForwarded":',
        "kind": "broken JSON",
        "detail": "truncated",
        "lines": 1,
    }
    return a_row(given, changes)


def a_summary(**changes: Any) -> Summary:
    difference = GrainDifference(6, 0.0014, 0.0064, "client-id=etl producer_byte_rate", None, None)
    counts = dict.fromkeys(
        ("clients", "meters", "throttled", "newly_throttled", "no_longer_throttled", "taken_over", "changed"), 0
    )
    summary = msgspec.structs.replace(
        Summary.empty(),
        inputs=[Input("/var/log/kafka/kafka-request.log", "kafka", 1, 0)],
        lines=1_001,
        good=1_000,
        rejected=1,
        clients=2,
        meters=2,
        limited_meters=1,
        throttled_meters=1,
        throttle_ms=65_000,
        versions={"PRODUCE": {"11": 500, "13": 500}},
        seconds={"read": 1.5},
        whatif=WhatIfRun(model="open", in_flight=None, grain="request", grain_difference=difference, **counts),
        curve=CurveRun("open", 1, 1),
        recommendations=RecommendRun("", 1, 0),
    )
    return msgspec.structs.replace(summary, **changes)


def a_report(**changes: Any) -> Report:
    """One limited and throttled client, one without a limit, one rejected line."""
    given = {
        "summary": a_summary(),
        "clusters": [""],
        "brokers": [("", 1)],
        "brokers_total": 1,
        "range": RANGE,
        "totals": Row(throttled_requests=40, throttle_ms=65_000),
        "limited": Listed(Row(total=1), [a_limited_client()]),
        "unlimited": [an_unlimited_client()],
        "timelines": [a_timeline()],
        "limited_meters": 1,
        **some_episodes(an_episode()),
        "calibration": a_calibration(a_calibrated_meter()),
        "what_if": a_what_if(a_what_if_meter()),
        "curves": some_curves(a_curve()),
        "recommendations": some_recommendations(a_recommendation()),
        "rejected": [a_rejected_line()],
    }
    return Report(**(given | changes))


def limited(*rows: Row, total: int | None = None) -> Listed:
    return Listed(Row(total=len(rows) if total is None else total), rows)


def a_long_report() -> Report:
    """With figures as long as a real log has them."""
    clients = (a_client("provisioner", "terraform"), a_client("ANONYMOUS", "adminclient-1"))
    timed = {"key": "request_percentage", "amount": 98.4, "requests": 44_240, "total": 2}
    return a_report(
        totals=Row(throttled_requests=15_131, throttle_ms=2_028_000),
        limited=limited(a_limited_client(), a_limited_client(throttle_ms=8_220_000)),
        unlimited=[an_unlimited_client(), *(an_unlimited_client(**one.asDict(), **timed) for one in clients)],
        what_if=a_what_if(
            a_what_if_meter(total_delay_ms=47_820_000.0, amount_new=100.0 * MIB, unknowns=["large-requests"]),
            a_what_if_meter(
                max_delay_ms=3_599_000.0,
                newly_throttled=False,
                no_longer_throttled=True,
                unknowns=["suppressed-demand", "shaped-arrivals"],
            ),
        ),
        recommendations=some_recommendations(
            a_recommendation(predicted_max_delay_ms=3_599_000.0),
            a_recommendation(
                key="controller_mutation_rate", value_now=12.0, value_new=15.5, predicted_throttled_share=0.0004
            ),
            a_recommendation(
                value_new=None,
                change="unmet",
                reason="no limit tried keeps throttled_requests<=1000, max_delay_ms<=1000",
            ),
        ),
    )


def an_empty_report() -> Report:
    """Of a log without a single request."""
    return a_report(
        summary=msgspec.structs.replace(Summary.empty(), clients=0, meters=0, limited_meters=0, throttled_meters=0),
        clusters=[],
        brokers=[],
        brokers_total=0,
        range=None,
        totals=Row(throttled_requests=0, throttle_ms=0),
        limited=limited(),
        unlimited=[],
        timelines=[],
        limited_meters=0,
        **some_episodes(),
        calibration=a_calibration(),
        what_if=a_what_if(),
        curves=some_curves(),
        recommendations=some_recommendations(),
        rejected=[],
    )


def a_hostile_report() -> Report:
    """Every name that a client, a cluster or a log line can choose is one of HOSTILE, each in every place."""
    clients = [a_client(name, other) for name, other in zip(HOSTILE, reversed(HOSTILE), strict=True)]
    rows = [
        a_limited_client(
            **one.asDict(),
            cluster=HOSTILE[0],
            limit_source=one.user,
            meter=one.client_id,
            sharers=9_999,
            largest=clients[:5],
            use=a_use(brokers=7),
        )
        for one in clients
    ]
    throttled = {"amount": None, "requests": 1, "throttled_requests": 1, "throttle_ms": 1}
    of_key = {"key": HOSTILE[0], "total": 123_456, "unexplained": 3}
    unlimited = [
        an_unlimited_client(**one.asDict(), cluster=name, **throttled, **of_key)
        for name, one in zip(HOSTILE, clients, strict=True)
    ]
    short = [name for name in HOSTILE if len(name) < 100]  # what kquota itself writes is not long
    names: list[dict[str, Any]] = [
        {"cluster": HOSTILE[1], "meter": name, "key": "request_percentage"} for name in HOSTILE
    ]
    counts = dict.fromkeys(
        ("clients", "meters", "throttled", "newly_throttled", "no_longer_throttled", "taken_over", "changed"), 0
    )
    difference = GrainDifference(2, 1e9, 1e12, HOSTILE[5], None, None)
    return a_report(
        summary=a_summary(
            timezone="Asia/Kolkata",
            inputs=[Input(name, "kafka", 1, 0) for name in HOSTILE],
            versions={name: {name: 1, "3": 1} for name in short},
            seconds=dict.fromkeys(short, 1e9),
            settings=dict.fromkeys(short, 7),
            whatif=WhatIfRun(model=HOSTILE[0], in_flight=1, grain=HOSTILE[1], grain_difference=difference, **counts),
            curve=CurveRun(HOSTILE[0], 1, 1),
            recommendations=RecommendRun(HOSTILE[0], 99, 99),
        ),
        clusters=HOSTILE,
        brokers=[(name, 2**31 - 1) for name in HOSTILE],
        brokers_total=len(HOSTILE),
        limited=limited(*rows, total=123_456),
        unlimited=unlimited,
        timelines=[a_timeline(**name) for name in names],
        limited_meters=123_456,
        **some_episodes(
            *(an_episode(**name, cause=AMBIGUOUS, clients=99, largest=list(HOSTILE[:5])) for name in names),
            an_episode(meter=None, key=HOSTILE[0], cause=HOSTILE[1]),
        ),
        calibration=a_calibration(
            *(a_calibrated_meter(**(name | {"key": HOSTILE[0]}), within_5ms_or_5pct=0.1) for name in names),
            estimates=[an_estimated_meter(**name) for name in names],
        ),
        what_if=a_what_if(
            *(a_what_if_meter(**name, previous_meters=name["meter"], unknowns=short) for name in names),
            a_what_if_meter(cluster=HOSTILE[1], meter=HOSTILE[0], key=HOSTILE[4], limit_old=None, amount_old=None),
        ),
        curves=some_curves(*(a_curve(**name, brokers=7) for name in names), total=123_456),
        recommendations=some_recommendations(
            *(a_recommendation(entity=name, reason=name, cluster=name, owner=name) for name in HOSTILE),
            a_recommendation(entity="static", key=HOSTILE[0], value_now=None, change="add", curve=None),
        ),
        rejected=[
            a_rejected_line(file=name, line=10**9, sample=name, kind=name, detail=name, lines=1_000_000)
            for name in HOSTILE
        ],
    )
