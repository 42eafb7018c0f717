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
        "false_negatives": 1,
        "false_positives": 2,
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


def a_what_if_meter(**changes: object) -> model.WhatIfMeter:
    given: dict[str, object] = {
        "broker_id": 1,
        "name": model.MeterName("", "user=alice", "producer_byte_rate"),
        "limit_old": 1.0 * MIB,
        "limit_new": 0.5 * MIB,
        "amount_old": 100.0 * MIB,
        "amount_new": 62.0 * MIB,
        "throttled_requests": 420,
        "share": 0.86,
        "max_delay_ms": 8_200.0,
        "total_delay_ms": 16_700_000.0,
        "previous_meters": None,
        "newly_throttled": True,
        "no_longer_throttled": False,
        "unknowns": ("shaped-arrivals",),
    }
    return model.WhatIfMeter(**(given | changes))  # type: ignore[arg-type]


def a_what_if(*rows: model.WhatIfMeter) -> model.WhatIf:
    names = dict.fromkeys(name for one in rows for name in one.unknowns)
    return model.WhatIf(
        meters=len(rows),
        changed=len(rows),
        throttled=sum(one.throttled_requests > 0 for one in rows),
        newly_throttled=sum(one.newly_throttled for one in rows),
        no_longer_throttled=sum(one.no_longer_throttled for one in rows),
        taken_over=sum(one.previous_meters is not None for one in rows),
        rows=rows,
        unknowns=tuple((name, f"the words of {name}") for name in names),
    )


def a_curve(**changes: object) -> model.Curve:
    """Muted up to 0.8 MiB/s, half of the time at 1 MiB/s, and never from 1.6 MiB/s on."""
    shares = {0.5: 0.9, 0.8: 0.8, 1.0: 0.5, 1.25: 0.1, 1.6: 0.0, 2.0: 0.0}
    given: dict[str, object] = {
        "name": model.MeterName("", "user=alice", "producer_byte_rate"),
        "broker_id": 1,
        "brokers": 1,
        "points": tuple(model.CurvePoint(limit * MIB, share, share * 9_000) for limit, share in shares.items()),
        "limit": 1.0 * MIB,
        "share": 0.5,
        "max_delay_ms": 4_500.0,
        "recommended": 1.4 * MIB,
    }
    return model.Curve(**(given | changes))  # type: ignore[arg-type]


def a_recommendation(**changes: object) -> model.Recommendation:
    given: dict[str, object] = {
        "cluster": "",
        "entity": "user=alice",
        "key": "producer_byte_rate",
        "now": 1.0 * MIB,
        "new": 1.4 * MIB,
        "reason": "the lowest with throttled_share<=0.01",
        "share": 0.008,
        "max_delay_ms": 430.0,
        "curve": a_curve(),
    }
    return model.Recommendation(**(given | changes))  # type: ignore[arg-type]


def some_recommendations(*rows: model.Recommendation) -> model.Recommendations:
    changes = [one.change for one in rows]
    return model.Recommendations(len(rows), changes.count("raise"), changes.count("lower"), changes.count("add"), rows)


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
            what_if=model.WhatIfRun(
                "open", "request", model.GrainDifference(6, 0.0014, 0.0064, "client-id=etl producer_byte_rate")
            ),
            curve_model="open",
            unmet=0,
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
        "what_if": a_what_if(a_what_if_meter()),
        "curves": model.Curves(1, (a_curve(),)),
        "recommendations": some_recommendations(a_recommendation()),
        "rejected": (
            model.RejectedReason("broken JSON", 1, (model.RejectedLine("a.log", 17, "truncated", '{"isForwarded":'),)),
        ),
    }
    return model.Report(**(given | changes))  # type: ignore[arg-type]


def a_long_report() -> model.Report:
    """With figures as long as a real log has them."""
    clients = (model.Client("provisioner", "terraform", None), model.Client("ANONYMOUS", "adminclient-1", None))
    long = a_report()
    return a_report(
        totals=(model.KeyTotals("producer_byte_rate", 2, 1, 110.0 * MIB, 48_588, 1, 15_131, 2_028_000),),
        limited=model.LimitedClients(2, (a_limited_client(), a_limited_client(throttle_ms=8_220_000))),
        unlimited=(
            *long.unlimited,
            model.UnlimitedClients(
                "request_percentage", 2, 0, tuple(model.UnlimitedClient("", one, 98.4, 44_240, 0, 0) for one in clients)
            ),
        ),
        what_if=a_what_if(
            a_what_if_meter(total_delay_ms=47_820_000.0, amount_new=100.0 * MIB, unknowns=("large-requests",)),
            a_what_if_meter(
                max_delay_ms=3_599_000.0,
                newly_throttled=False,
                no_longer_throttled=True,
                unknowns=("suppressed-demand", "shaped-arrivals"),
            ),
        ),
        recommendations=some_recommendations(
            a_recommendation(max_delay_ms=3_599_000.0),
            a_recommendation(key="controller_mutation_rate", now=12.0, new=15.5, share=0.0004),
            a_recommendation(new=None, reason="no limit tried keeps throttled_requests<=1000, max_delay_ms<=1000"),
        ),
    )


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
        what_if=a_what_if(),
        curves=model.Curves(0, ()),
        recommendations=some_recommendations(),
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
            what_if=model.WhatIfRun(HOSTILE[0], HOSTILE[1], model.GrainDifference(2, 1e9, 1e12, HOSTILE[5])),
            curve_model=HOSTILE[0],
            unmet=99,
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
        what_if=a_what_if(
            *(a_what_if_meter(name=name, previous_meters=name.meter, unknowns=tuple(short)) for name in names),
            a_what_if_meter(name=model.MeterName(HOSTILE[1], HOSTILE[0], HOSTILE[4]), limit_old=None, amount_old=None),
        ),
        curves=model.Curves(123_456, tuple(a_curve(name=name, brokers=7) for name in names)),
        recommendations=some_recommendations(
            *(a_recommendation(entity=name, reason=name, cluster=name, owner=name) for name in HOSTILE),
            a_recommendation(entity="static", key=HOSTILE[0], now=None, curve=None),
        ),
        rejected=tuple(
            model.RejectedReason(name, 1_000_000, (model.RejectedLine(name, 10**9, name, name),)) for name in HOSTILE
        ),
    )
