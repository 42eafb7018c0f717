"""A report made by hand, with names that want to break out of the page: for tests of what draws and writes it."""

from __future__ import annotations

from kquota.pipeline.report import model

START_MS = 1_767_323_045_000  # 2026-01-02T03:04:05Z
RANGE = model.TimeRange(START_MS, START_MS + 120_000)
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


def a_use(**changes: object) -> model.MeterUse:
    given: dict[str, object] = {
        "broker_id": 1,
        "brokers": 1,
        "rate_p95": 1.0 * MIB,
        "rate_max": 1.5 * MIB,
        "peak_1s": 2.0 * MIB,
        "seconds_active": 100,
        "seconds_over_80": 50,
        "seconds_over_100": 20,
    }
    return model.MeterUse(**(given | changes))  # type: ignore[arg-type]


def a_throttle(**changes: int) -> model.MeterThrottle:
    return model.MeterThrottle(**({"episodes": 1, "ambiguous": 0, "requests": 40, "throttle_ms": 65_000} | changes))


def a_limited_client(**changes: object) -> model.LimitedClient:
    client = model.Client("alice", "etl", None)
    given: dict[str, object] = {
        "cluster": "",
        "client": client,
        "key": "producer_byte_rate",
        "amount": 100.0 * MIB,
        "requests": 1_000,
        "throttled_requests": 40,
        "throttle_ms": 65_000,
        "limit": 1.0 * MIB,
        "limit_source": "user=alice",
        "level": 3,
        "meter": "user=alice",
        "use": a_use(),
        "told": a_throttle(),
        "sharers": model.Sharers(1, (client,)),
    }
    return model.LimitedClient(**(given | changes))  # type: ignore[arg-type]


def a_timeline(**changes: object) -> model.MeterTimeline:
    steps = tuple((START_MS + second * 1000, float(second % 30) / 20 * MIB) for second in range(0, 120, 5))
    given: dict[str, object] = {
        "name": model.MeterName("", "user=alice", "producer_byte_rate"),
        "limit_source": "user=alice",
        "use": a_use(),
        "told": a_throttle(),
        "series": (model.BrokerSeries(1, 1.0 * MIB, steps),),
        "spans": (model.Span(START_MS + 20_000, START_MS + 30_000),),
    }
    return model.MeterTimeline(**(given | changes))  # type: ignore[arg-type]


def an_episode(**changes: object) -> model.Episode:
    given: dict[str, object] = {
        "broker_id": 1,
        "name": model.MeterName("", "user=alice", "producer_byte_rate"),
        "cause": "producer_byte_rate",
        "start_ms": START_MS + 20_000,
        "end_ms": START_MS + 32_500,
        "requests": 40,
        "throttle_ms": 65_000,
        "throttle_max_ms": 2_000,
        "clients": 1,
        "largest": ("user=alice,client-id=etl",),
    }
    return model.Episode(**(given | changes))  # type: ignore[arg-type]


def some_episodes(*rows: model.Episode) -> model.Episodes:
    names = dict.fromkeys(one.name for one in rows)
    return model.Episodes(
        total=len(rows),
        ambiguous=sum(one.cause == model.AMBIGUOUS for one in rows),
        unexplained=sum(one.cause == model.UNEXPLAINED for one in rows),
        rows=rows,
        lanes=tuple(
            model.Lane(
                name,
                model.MeterThrottle(
                    episodes=sum(one.name == name for one in rows),
                    ambiguous=sum(one.name == name and one.cause == model.AMBIGUOUS for one in rows),
                    requests=sum(one.requests or 0 for one in rows if one.name == name),
                    throttle_ms=sum(one.throttle_ms or 0 for one in rows if one.name == name),
                ),
                spans=(model.Span(START_MS + 20_000, START_MS + 33_000),),
            )
            for name in names
        ),
    )


def a_calibrated_meter(**changes: object) -> model.CalibratedMeter:
    given: dict[str, object] = {
        "broker_id": 1,
        "name": model.MeterName("", "user=alice", "producer_byte_rate"),
        "waits": 40,
        "within": 0.975,
        "within_as_logged": 0.95,
        "missed": 1,
        "invented": 2,
        "error_p50_ms": 0.5,
        "error_p99_ms": 12.75,
        "told_ms": 65_000,
        "predicted_ms": 64_000,
        "not_compared": 3,
    }
    return model.CalibratedMeter(**(given | changes))  # type: ignore[arg-type]


def an_estimated_meter(**changes: object) -> model.EstimatedMeter:
    given: dict[str, object] = {
        "broker_id": 1,
        "name": model.MeterName("", "user=alice", "request_percentage"),
        "requests": 7,
        "told_ms": 4_000,
        "low_ms": 0,
        "high_ms": 90_000,
    }
    return model.EstimatedMeter(**(given | changes))  # type: ignore[arg-type]


def a_calibration(*rows: model.CalibratedMeter, estimates: tuple[model.EstimatedMeter, ...] = ()) -> model.Calibration:
    return model.Calibration(
        total=len(rows),
        waits=sum(one.waits for one in rows),
        close=sum(round((one.within or 0) * one.waits) for one in rows),
        told_ms=sum(one.told_ms for one in rows),
        predicted_ms=sum(one.predicted_ms for one in rows),
        not_compared=sum(one.not_compared for one in rows),
        rows=rows,
        estimates_total=len(estimates),
        estimates=estimates,
    )


def a_report(**changes: object) -> model.Report:
    """One limited and throttled client, one without a limit, one rejected line."""
    given: dict[str, object] = {
        "summary": model.Summary(
            inputs=("/var/log/kafka/kafka-request.log",),
            lines=1_001,
            good=1_000,
            rejected=1,
            blank=0,
            forwarded=0,
            clients=2,
            meters=2,
            limited_meters=1,
            throttled_meters=1,
            throttle_ms=65_000,
            unknown_amounts=0,
            versions=(("Produce", "11, 13"),),
            seconds=(("read", 1.5),),
        ),
        "clusters": ("",),
        "brokers": (("", 1),),
        "brokers_total": 1,
        "range": RANGE,
        "window": model.RateWindow(),
        "mutation_window": model.RateWindow(),
        "totals": (model.KeyTotals("producer_byte_rate", 2, 1, 110.0 * MIB, 1_010, 1, 40, 65_000),),
        "limited": model.LimitedClients(1, (a_limited_client(),)),
        "unlimited": (
            model.UnlimitedClients(
                "producer_byte_rate",
                1,
                0,
                (model.UnlimitedClient("", model.Client("bob", "", None), 10.0 * MIB, 10, 0, 0),),
            ),
        ),
        "timelines": (a_timeline(),),
        "limited_meters": 1,
        "episodes": some_episodes(an_episode()),
        "calibration": a_calibration(a_calibrated_meter()),
        "rejected": (
            model.RejectedReason("broken JSON", 1, (model.RejectedLine("a.log", 17, "truncated", '{"isForwarded":'),)),
        ),
    }
    return model.Report(**(given | changes))  # type: ignore[arg-type]


def an_empty_report() -> model.Report:
    """Of a log without a single request."""
    return a_report(
        summary=model.Summary(lines=0, good=0, rejected=0, clients=0, meters=0, limited_meters=0, throttled_meters=0),
        clusters=(),
        brokers=(),
        brokers_total=0,
        range=None,
        totals=(),
        limited=model.LimitedClients(0, ()),
        unlimited=(),
        timelines=(),
        limited_meters=0,
        episodes=model.Episodes(0, 0, 0, (), ()),
        calibration=a_calibration(),
        rejected=(),
    )


def a_hostile_report() -> model.Report:
    """Every name that a client, a cluster or a log line can choose is one of HOSTILE, each in every place."""
    clients = [model.Client(name, other, None) for name, other in zip(HOSTILE, reversed(HOSTILE), strict=True)]
    limited = tuple(
        a_limited_client(
            cluster=HOSTILE[0],
            client=one,
            limit_source=one.user,
            meter=one.client_id,
            sharers=model.Sharers(9_999, tuple(clients[:5])),
            use=a_use(brokers=7),
        )
        for one in clients
    )
    unlimited = tuple(
        model.UnlimitedClient(name, one, None, 1, 1, 1) for name, one in zip(HOSTILE, clients, strict=True)
    )
    short = [name for name in HOSTILE if len(name) < 100]  # what kquota itself writes is not long
    names = [model.MeterName(HOSTILE[1], name, "request_percentage") for name in HOSTILE]
    return a_report(
        summary=model.Summary(
            timezone="Asia/Kolkata",
            inputs=HOSTILE,
            versions=tuple((name, name) for name in short),
            seconds=tuple((name, 1e9) for name in short),
            settings=tuple((name, name) for name in short),
        ),
        clusters=HOSTILE,
        brokers=tuple((name, 2**31 - 1) for name in HOSTILE),
        brokers_total=len(HOSTILE),
        limited=model.LimitedClients(123_456, limited),
        unlimited=(model.UnlimitedClients(HOSTILE[0], 123_456, 3, unlimited),),
        timelines=tuple(a_timeline(name=name) for name in names),
        limited_meters=123_456,
        episodes=some_episodes(
            *(an_episode(name=name, cause=model.AMBIGUOUS, clients=99, largest=HOSTILE[:5]) for name in names),
            an_episode(name=model.MeterName("", None, HOSTILE[0]), cause=HOSTILE[1]),
        ),
        calibration=a_calibration(
            *(a_calibrated_meter(name=model.MeterName(HOSTILE[1], name, HOSTILE[0]), within=0.1) for name in HOSTILE),
            estimates=tuple(an_estimated_meter(name=name) for name in names),
        ),
        rejected=tuple(
            model.RejectedReason(name, 1_000_000, (model.RejectedLine(name, 10**9, name, name),)) for name in HOSTILE
        ),
    )
