import dataclasses
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from kquota.config import BrokerConfig
from kquota.errors import KquotaError
from kquota.pipeline.dataset import tables
from kquota.pipeline.dataset.dataset import Dataset
from kquota.pipeline.dataset.errors import MissingTableError
from kquota.pipeline.dataset.run import Run
from kquota.pipeline.dataset.steps import REPORT_STEP
from kquota.pipeline.meters.rates import enforced_rates
from kquota.pipeline.report.contents import Bounds, LimitSpan, Report
from kquota.pipeline.report.page import render_page, render_report
from kquota.pipeline.report.queries import build_report
from kquota.pipeline.report.timeline import enforced_rate_steps
from tests.kit.analysis_directory import START_MS, AnalysisDirectory

GENERATED = datetime(2026, 1, 3, 12, 0, tzinfo=UTC)
MIB = float(1 << 20)


def build(spark: SparkSession, analysis: AnalysisDirectory, path: Path, **bounds: int) -> Report:
    return build_report(read(spark, analysis.write(path / "out")), Bounds(**bounds))


def read(spark: SparkSession, directory: Path) -> Run:
    """The tables of a dataset, as the step `report` has them."""
    return Dataset.open(directory).run(REPORT_STEP, spark=spark)


def page(spark: SparkSession, directory: Path, *, top: int = 12) -> str:
    return render_report(read(spark, directory), top=top, generated=GENERATED)


def test_a_client_stands_with_its_limit_its_meter_and_its_utilisation(spark: SparkSession, tmp_path: Path) -> None:
    """A limited client has the figures of `clients`, those of its meter where it came closest, and its sharers."""
    analysis = AnalysisDirectory()
    analysis.usage("alice", "etl", 0, 10.0)
    analysis.client("alice", "etl", amount=900.0, limit=100.0, throttled_requests=3, throttle_ms=1500)
    analysis.client("alice", "", amount=10.0, limit=100.0)
    analysis.utilisation("user=alice", 100.0, 50.0, broker_id=1)
    analysis.utilisation("user=alice", 100.0, 120.0, broker_id=2, seconds_over_100=7)
    analysis.throttled("user=alice", 3, 9, broker_id=2, requests=3, throttle_ms=1500)
    limited = build(spark, analysis, tmp_path).limited
    assert limited.counts.total == 2
    assert [row.client_id for row in limited.rows] == ["etl", ""]
    first = limited.rows[0]
    assert (first.limit, first.limit_source, first.level, first.meter) == (100.0, "user=alice", 3, "user=alice")
    assert (first.amount, first.throttled_requests, first.throttle_ms) == (900.0, 3, 1500)
    assert first.use is not None
    assert (first.use.broker_id, first.use.brokers, first.use.rate_max, first.use.seconds_over_100) == (2, 2, 120.0, 7)
    assert first.throttle == Row(episodes=1, ambiguous=0, requests=3, throttle_ms=1500)
    assert (first.sharers, first.largest) == (2, [("alice", "etl", None), ("alice", "", None)])


def test_the_worst_come_first(spark: SparkSession, tmp_path: Path) -> None:
    """Throttled longest first, then closest to the limit; a request percentage counts what its meter was told."""
    analysis = AnalysisDirectory()
    for user, part in (("calm", 0.1), ("near", 0.9), ("unknown", None)):
        analysis.client(user, "app", limit=100.0)
        analysis.utilisation(f"user={user}", 100.0, None if part is None else part * 100)
    analysis.client("hit", "app", limit=100.0, throttled_requests=1, throttle_ms=10)
    analysis.client("timed", "app", "request_percentage", limit=5.0)
    analysis.throttled("user=timed", 1, 2, key="request_percentage", cause="request_percentage", throttle_ms=20)
    analysis.utilisation("user=timed", 5.0, 6.0, key="request_percentage")
    analysis.usage("hit", "app", 0, 1.0)
    report = build(spark, analysis, tmp_path)
    assert [row.user for row in report.limited.rows] == ["timed", "hit", "near", "calm", "unknown"]
    assert [one.meter.meter for one in report.timelines] == ["user=timed", "user=near", "user=calm", "user=unknown"]


def test_lists_are_bounded_and_counted(spark: SparkSession, tmp_path: Path) -> None:
    """Of thousands of clients, meters, episodes and bad lines only the wanted number is listed; all are counted."""
    analysis = AnalysisDirectory()
    for number in range(3_000):
        user = f"user-{number:04}"
        analysis.client(user, "app", limit=100.0, amount=float(number))
        analysis.client(user, "app", "consumer_byte_rate", amount=float(number))
        analysis.utilisation(f"user={user}", 100.0, float(number) / 30)
        analysis.throttled(f"user={user}", number % 100, number % 100 + 1, throttle_ms=number)
        analysis.rejected(f"broken JSON: at byte {number}", number, "{")
        analysis.usage(user, "app", number % 100, 1.0)
    report = build(
        spark, analysis, tmp_path, clients=7, meters=4, episodes=5, unlimited_per_key=3, samples_per_reason=2
    )
    assert (report.limited.counts.total, len(report.limited.rows)) == (3_000, 7)
    assert (report.limited_meters, len(report.timelines)) == (3_000, 4)
    assert (report.episodes.counts.total, len(report.episodes.rows), len(report.lanes)) == (3_000, 5, 4)
    assert [one.throttle_ms for one in report.episodes.rows] == [2_999, 2_998, 2_997, 2_996, 2_995]
    assert {(row.key, row.total) for row in report.unlimited} == {("consumer_byte_rate", 3_000)}
    assert [row.amount for row in report.unlimited] == [2_999.0, 2_998.0, 2_997.0]
    assert {(row.kind, row.lines) for row in report.rejected} == {("broken JSON", 3_000)}
    assert [(row.line, row.detail) for row in report.rejected] == [(0, "at byte 0"), (1, "at byte 1")]


def test_sharers_are_counted_in_full_and_named_in_part(spark: SparkSession, tmp_path: Path) -> None:
    """A meter with many clients names its largest ones."""
    analysis = AnalysisDirectory()
    for number in range(50):
        analysis.client("alice", f"app-{number}", limit=100.0, amount=float(number))
    row = build(spark, analysis, tmp_path, names=2, clients=1).limited.rows[0]
    assert row.sharers == 50
    assert [one.client_id for one in row.largest] == ["app-49", "app-48"]


def test_the_drawn_rate_is_the_enforced_rate(spark: SparkSession, tmp_path: Path) -> None:
    """At the end of every active second the steps have the value that `enforced_rates` gives; then they decay."""
    analysis = AnalysisDirectory()
    for second, amount in ((0, 110.0), (1, 22.0), (5, 0.1), (5, 0.2), (11, 33.0), (12, None), (40, 7.0)):
        analysis.usage("alice", "etl" if second != 1 else "", second, amount, broker_id=3)
    analysis.client("alice", "etl", limit=5.0)
    analysis.client("alice", "", limit=5.0)
    directory = analysis.write(tmp_path / "out")
    usage, clients = (Dataset.open(directory).frame(spark, name) for name in ("usage", "clients"))
    expected = {row.cell_start_ms + 1000: row.rate for row in enforced_rates(usage, clients, BrokerConfig()).collect()}
    cells = usage.select(
        F.lit(0).alias("index"),
        "broker_id",
        F.lit(11_000).alias("window_ms"),
        "cell_start_ms",
        "cell_ms",
        "amount",
        F.lit(False).alias("is_sampled"),
    )
    steps = sorted((row.at_ms, row.rate) for row in enforced_rate_steps(cells).collect())

    def drawn(at_ms: int) -> float:
        return float([rate for start, rate in steps if start <= at_ms][-1])

    assert len(expected) == 6
    assert {at_ms: drawn(at_ms) for at_ms in expected} == pytest.approx(expected, abs=1e-6)
    assert drawn(START_MS + 30_000) == 0.0
    assert drawn(START_MS + 52_000) == 0.0


def test_a_timeline_has_the_largest_rate_of_each_step(spark: SparkSession, tmp_path: Path) -> None:
    """Over two days a peak of one second is still as high as it was, in a bounded number of steps per broker."""
    analysis = AnalysisDirectory()
    analysis.client("alice", "etl", limit=100.0)
    for broker in (1, 2):
        analysis.usage("alice", "etl", 0, 11.0, broker_id=broker)
        analysis.usage("alice", "etl", 90_000, 1_100.0 * broker, broker_id=broker)
        analysis.usage("alice", "etl", 2 * 86_400 - 1, 11.0, broker_id=broker)
        analysis.utilisation("user=alice", 100.0, 100.0 * broker, broker_id=broker)
    (timeline,) = build(spark, analysis, tmp_path, bins=100).timelines
    assert [one.broker_id for one in timeline.series] == [1, 2]
    for one in timeline.series:
        assert len(one.steps) <= 100
        assert max(rate for _, rate in one.steps) == pytest.approx(100.0 * one.broker_id)
        peak_ms = next(at for at, rate in one.steps if rate > 10)
        assert peak_ms <= START_MS + 90_000_000 < peak_ms + 1_800_000
        assert one.limit == 100.0


def test_of_many_brokers_the_closest_are_drawn(spark: SparkSession, tmp_path: Path) -> None:
    """A chart has at most the wanted number of brokers: those where the meter came closest to its limit."""
    analysis = AnalysisDirectory()
    analysis.client("alice", "etl", limit=100.0)
    for broker in range(20):
        analysis.usage("alice", "etl", 0, 1.0, broker_id=broker)
        analysis.utilisation("user=alice", 100.0, float(broker), broker_id=broker)
    report = build(spark, analysis, tmp_path)
    assert [one.broker_id for one in report.timelines[0].series] == [15, 16, 17, 18, 19]
    assert report.timelines[0].meter.use.brokers == 20
    assert report.brokers_total == 20


def test_clients_of_one_name_on_two_clusters_are_two(spark: SparkSession, tmp_path: Path) -> None:
    """Usage of one cluster is not counted on another's meter."""
    analysis = AnalysisDirectory()
    for cluster, amount in (("east", 110.0), ("west", 11.0)):
        analysis.client("alice", "etl", limit=100.0, cluster=cluster)
        analysis.usage("alice", "etl", 0, amount, cluster=cluster)
        analysis.utilisation("user=alice", 100.0, amount, cluster=cluster)
    report = build(spark, analysis, tmp_path)
    assert report.clusters == ["east", "west"]
    assert {one.meter.cluster: one.series[0].steps[0][1] for one in report.timelines} == {"east": 10.0, "west": 1.0}


def test_spans_join_episodes_of_all_brokers(spark: SparkSession, tmp_path: Path) -> None:
    """Overlapping and touching episodes become one span; one outside the range is drawn at its edge."""
    analysis = AnalysisDirectory()
    analysis.client("alice", "etl", limit=100.0)
    analysis.utilisation("user=alice", 100.0, 1.0)
    analysis.usage("alice", "etl", 0, 1.0)
    analysis.usage("alice", "etl", 99, 1.0)
    for first, last, broker in ((10, 20, 1), (15, 30, 2), (31, 32, 1), (50, 51, 1), (98, 130, 1)):
        analysis.throttled("user=alice", first, last, broker_id=broker)
    report = build(spark, analysis, tmp_path)
    spans = [((one.start_ms - START_MS) // 1000, (one.end_ms - START_MS) // 1000) for one in report.timelines[0].spans]
    assert spans == [(10, 33), (50, 52), (98, 100)]
    [(meter, on_lane)] = report.lanes
    assert on_lane == report.timelines[0].spans
    assert meter.throttle.episodes == 5


def test_unexplained_throttling_is_not_blamed_on_a_known_limit(spark: SparkSession, tmp_path: Path) -> None:
    """A throttled client without a limit is unexplained, unless its request percentage can have done it."""
    analysis = AnalysisDirectory()
    analysis.usage("mallory", "x", 0, 1.0)
    analysis.client("mallory", "x", throttled_requests=2, throttle_ms=50)
    analysis.client("timed", "x", throttled_requests=2, throttle_ms=50)
    analysis.client("timed", "x", "request_percentage", limit=1.0)
    analysis.throttled(None, 0, 1, cause="unexplained")
    analysis.throttled("user=timed", 0, 1, key="request_percentage", cause="request_percentage")
    report = build(spark, analysis, tmp_path)
    assert {(row.total, row.unexplained) for row in report.unlimited} == {(2, 1)}
    assert {row.user: row.by_request_time for row in report.unlimited} == {"mallory": False, "timed": True}
    assert report.episodes.counts.asDict() == {"total": 2, "unexplained": 1, "ambiguous": 0}


def test_tables_without_rows(spark: SparkSession, tmp_path: Path) -> None:
    """An analysis of an empty log gives a report of nothing, and a page."""
    directory = AnalysisDirectory().write(tmp_path / "out")
    report = build_report(read(spark, directory), Bounds())
    assert (report.range, report.limited.counts.total, report.unlimited, report.timelines) == (None, 0, [], [])
    assert (report.rejected, report.episodes.counts.total, report.brokers_total) == ([], 0, 0)
    assert "No client request was found" in page(spark, directory)


def test_only_unknown_amounts_and_strange_limits(spark: SparkSession, tmp_path: Path) -> None:
    """Null amounts, a limit of 0, NaN and infinity neither fail nor become figures."""
    analysis = AnalysisDirectory()
    for number, limit in enumerate((0.0, float("nan"), float("inf"), 5.0)):
        analysis.client(f"u{number}", "x", "controller_mutation_rate", amount=None, limit=limit, unknown_amounts=3)
        analysis.usage(f"u{number}", "x", number, None, key="controller_mutation_rate")
        for broker_id, unknown in ((0, 1), (1, 2)):
            rates = {"broker_id": broker_id, "unknown_amounts": unknown}
            analysis.utilisation(f"user=u{number}", limit, None, key="controller_mutation_rate", **rates)
    analysis.client(None, None, amount=None)
    directory = analysis.write(tmp_path / "out")
    report = build_report(read(spark, directory), Bounds())
    assert report.limited.counts.total == 4
    assert {row.amount for row in report.limited.rows} == {None}
    assert [(row.unknown_amounts, row.use.unknown_amounts) for row in report.limited.rows if row.use] == [(3, 3)] * 4
    assert all(one.series == () for one in report.timelines)
    assert "Not drawn, because no amount" in page(spark, directory)


def test_what_clients_are_called_is_text_of_the_page(spark: SparkSession, tmp_path: Path) -> None:
    """And nothing that a browser would obey."""
    analysis = AnalysisDirectory(summary={"timezone": "Europe/Berlin", "settings": {"quota.window.num": 5}})
    analysis.usage("<script>alert(1)</script>", "x", 0, 1.0)
    analysis.client("<script>alert(1)</script>", "x", limit=1.0, meter="user=%3Cscript%3E")
    analysis.utilisation("user=%3Cscript%3E", 1.0, 0.2)
    html = page(spark, analysis.write(tmp_path / "out"))
    assert "<script" not in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html
    assert "the last 5 windows of 1&nbsp;s" in html
    assert html.count("aria-roledescription") == 0
    assert html.count("<figure>") == html.count('class="chart"') == 1


def test_top_is_the_number_of_meters_drawn(spark: SparkSession, tmp_path: Path) -> None:
    """`top` bounds the charts."""
    analysis = AnalysisDirectory()
    for number in range(4):
        analysis.usage(f"u{number}", "x", number, 1.0)
        analysis.client(f"u{number}", "x", limit=1.0)
        analysis.utilisation(f"user=u{number}", 1.0, 0.1)
    directory = analysis.write(tmp_path / "out")
    html = page(spark, directory, top=2)
    assert html.count("<figure>") == 2
    assert "The 2 worst of 4 limited meters" in html


def test_a_table_that_the_page_needs_is_named(spark: SparkSession, tmp_path: Path) -> None:
    """With the step that makes it."""
    directory = AnalysisDirectory(left_out=frozenset({"utilisation"})).write(tmp_path / "out")
    with pytest.raises(MissingTableError) as caught:
        page(spark, directory)
    assert (caught.value.table, caught.value.written_by) == ("utilisation", "utilisation")


def test_an_unknown_zone_is_an_error(spark: SparkSession, tmp_path: Path) -> None:
    """Times are never printed in another zone than the one that was asked for."""
    directory = AnalysisDirectory(summary={"timezone": "Mars/Olympus"}).write(tmp_path / "out")
    with pytest.raises(KquotaError, match="Mars/Olympus"):
        page(spark, directory)


def test_the_meters_replayed_worst_come_first(spark: SparkSession, tmp_path: Path) -> None:
    """Those with the most throttle times not reproduced are listed; the sums are of all but request time."""
    analysis = AnalysisDirectory()
    analysis.calibration("user=few", 10, 0.0, throttle_ms_logged=500)
    analysis.calibration(
        "user=many", 1_000, 0.97, false_positives=1_000, false_negatives=4, not_compared=6, within_as_logged=0.5
    )
    analysis.calibration("user=all", 90, 1.0, throttle_ms_predicted=70)
    analysis.calibration("user=none", 0, None, error_p50_ms=None, not_compared=5, throttle_ms_logged=0)
    analysis.calibration(
        "user=timed", 7, None, key="request_percentage", false_negatives=None, false_positives=None,
        throttle_ms_logged=30, predicted_low_ms=1, predicted_high_ms=99,
    )  # fmt: skip
    calibration = build(spark, analysis, tmp_path, calibrated=2).calibration
    assert calibration is not None
    rows = [row for row in calibration if not row.is_estimate]
    assert [(row.meter, row.compared, row.within_5ms_or_5pct) for row in rows] == [
        ("user=many", 2_000, 0.97),
        ("user=few", 10, 0.0),
    ]
    many = rows[0]
    assert (many.false_negatives, many.false_positives, many.not_compared, many.within_as_logged) == (4, 1_000, 6, 0.5)
    errors_ms = (many.error_p50_ms, many.error_p99_ms)
    assert (*errors_ms, many.throttle_ms_logged, many.throttle_ms_predicted) == (1.0, 2.0, 1000, 1000)
    assert (many.all_total, many.all_compared, many.all_close, many.all_not_compared) == (4, 2_100, 2_030, 11)
    assert (many.all_throttle_ms_logged, many.all_throttle_ms_predicted) == (2_500, 3_070)
    [timed] = [row for row in calibration if row.is_estimate]
    assert (timed.all_total, timed.meter, timed.throttled_requests) == (1, "user=timed", 7)
    assert (timed.throttle_ms_logged, timed.predicted_low_ms, timed.predicted_high_ms) == (30, 1, 99)


def test_a_directory_without_calibration_has_its_page_all_the_same(spark: SparkSession, tmp_path: Path) -> None:
    """The table may be missing, where `utilisation` was not run; without rows it says what is known."""
    analysis = AnalysisDirectory(summary={"kept_requests": False})
    directory = analysis.write(tmp_path / "out")
    report = build_report(read(spark, directory), Bounds())
    assert report.calibration == []
    assert "the requests were not kept" in page(spark, directory)
    directory = dataclasses.replace(analysis, left_out=frozenset({"calibration"})).write(tmp_path / "without")
    assert build_report(read(spark, directory), Bounds()).calibration is None
    assert "no table <code>calibration</code>" in page(spark, directory)


def test_a_meter_is_drawn_for_the_time_in_which_its_clients_counted_on_it(spark: SparkSession, tmp_path: Path) -> None:
    """What a client used while it was counted elsewhere is not in the chart, and the limit has its steps."""
    analysis = AnalysisDirectory(summary={"start_ms": START_MS})
    for second in (0, 30, 60, 90):
        analysis.usage("alice", "etl", second, 110.0)
    analysis.client("alice", "etl", limit=20.0)
    analysis.utilisation("user=alice", 20.0, 10.0)
    limit = {"user": "alice", "client_id": "etl", "key": "producer_byte_rate", "limit_source": "user=alice", "level": 3}
    changes = [START_MS + second * 1000 for second in (30, 60)]
    for begin, end, meter, value in (
        (None, changes[0], "client-id=etl", 5.0),
        (changes[0], changes[1], "user=alice", 40.0),
        (changes[1], None, "user=alice", 20.0),
    ):
        analysis.add(tables.LIMITS, **limit, valid_from_ms=begin, valid_to_ms=end, meter=meter, limit=value)
    [timeline] = build(spark, analysis, tmp_path).timelines
    [series] = timeline.series
    assert [at_ms - START_MS for at_ms, rate in series.steps if rate] == [30_000, 60_000, 90_000]
    assert timeline.limit_spans == (
        LimitSpan(changes[0], changes[1], 40.0),
        LimitSpan(changes[1], START_MS + 91_000, 20.0),
    )
    assert timeline.limits == (20.0, 40.0)


def test_the_meters_that_fare_worst_under_other_limits_come_first(spark: SparkSession, tmp_path: Path) -> None:
    """Of meters that change: those throttled anew, then those muted longest; the counts are of all meters."""
    counts = ("clients", "meters", "throttled", "newly_throttled", "no_longer_throttled", "taken_over", "changed")
    run = {"model": "closed", "in_flight": 1, "grain": "request", **dict.fromkeys(counts, 0)}
    run["grain_difference"] = {"meters": 2, "amount_mean": 0.1, "amount_worst": 0.5, "share_mean": 0.0,
           "share_worst": 0.0, "amount_worst_meter": "user=long producer_byte_rate"}  # fmt: skip
    analysis = AnalysisDirectory(summary={"whatif": run})
    analysis.what_if("user=same", 5.0, 5.0, throttled_requests=9, throttled_share=0.99)
    analysis.what_if(
        "user=long", 5.0, 4.0, throttled_requests=9, throttled_share=0.9, unknowns=["own", "shaped-arrivals"]
    )
    analysis.what_if(
        "user=free", 5.0, None, no_longer_throttled=True, unknowns=["suppressed-demand", "shaped-arrivals"]
    )
    analysis.what_if("user=moved", 5.0, 5.0, previous_meters="user=a", amount_old=None)
    analysis.what_if("user=anew", None, 4.0, throttled_requests=1, throttled_share=0.1, newly_throttled=True)
    report = build(spark, analysis, tmp_path, what_if=3)
    found = report.what_if
    assert found is not None
    assert [one.meter for one in found.rows] == ["user=anew", "user=long", "user=free"]
    assert found.counts.asDict() == {
        "meters": 5, "changed": 4, "throttled": 3, "newly_throttled": 1, "no_longer_throttled": 1, "taken_over": 1,
    }  # fmt: skip
    html = render_page(report, generated=GENERATED)
    unknowns = re.findall(r"<dt><bdi>([\w-]+)</bdi></dt><dd>(.*?)</dd>", html)
    assert [name for name, _ in unknowns] == ["suppressed-demand", "shaped-arrivals", "own"]
    assert unknowns[0][1].startswith("what clients would use")
    assert (report.curves, report.recommendations) == (None, None)


def test_curves_have_the_present_limit_and_that_recommended(spark: SparkSession, tmp_path: Path) -> None:
    """A meter stands with its limit, what that does on its worst broker, and what its rule should be set to."""
    analysis = AnalysisDirectory(summary={"curve": {"model": "closed", "meters": 1, "candidates": 1}})
    analysis.client("calm", "x", limit=20.0)
    analysis.client("busy", "x", limit=20.0 * (1 + 1e-12), limit_source="user=<default>")
    analysis.curve("user=free", {10.0: 1.0, 20.0: 0.9})
    analysis.curve("user=calm", {10.0: 0.3, 20.0: 0.0, 40.0: 0.0})
    analysis.curve("user=busy", {10.0: 0.9, 20.0: 0.1, 40.0: 0.0}, broker_id=1)
    analysis.curve("user=busy", {40.0: 0.1, 20.0: 0.5, 10.0: 0.8}, broker_id=2)
    analysis.curve("user=odd", {0.0: 1.0, float("inf"): 0.0, float("nan"): 0.0})
    analysis.recommendation("user=<default>", 20.0, 30.0)
    analysis.recommendation("user=<default>", 20.0, 99.0, key="consumer_byte_rate")
    analysis.recommendation("user=free", None, 50.0)
    report = build(spark, analysis, tmp_path)
    assert report.curves is not None
    busy, calm, free = report.curves.rows
    assert report.curves.counts.total == 3
    assert (busy.cluster, busy.meter, busy.key) == ("", "user=busy", "producer_byte_rate")
    assert (busy.broker_id, busy.brokers) == (2, 2)
    assert busy.points == [(10.0, 0.8), (20.0, 0.5), (40.0, 0.1)]
    assert (busy.limit, busy.throttled_share, busy.max_delay_ms) == (20.0 * (1 + 1e-12), 0.5, 500.0)
    assert busy.recommended == 30.0
    assert (calm.meter, calm.limit, calm.throttled_share, calm.recommended) == ("user=calm", 20.0, 0.0, None)
    assert (free.meter, free.limit, free.throttled_share, free.recommended) == ("user=free", None, None, 50.0)


def test_curves_have_no_limit_that_is_there_no_more(spark: SparkSession, tmp_path: Path) -> None:
    """Where limits changed, `clients` has the last one that each client had; in force is what has not ended."""
    analysis = AnalysisDirectory()
    analysis.client("gone", "app", limit=20.0)
    analysis.client("left", "app", limit=30.0)
    for user, *stretches in (
        ("gone", (None, START_MS, 20.0), (START_MS, None, None)),
        ("left", (None, START_MS, 10.0), (START_MS, None, 30.0)),
    ):
        meter = f"user={user}"
        for begin, end, limit in stretches:
            rule = {} if limit is None else {"limit": limit, "limit_source": meter, "level": 3, "meter": meter}
            client = {"user": user, "client_id": "app", "key": "producer_byte_rate"}
            analysis.add(tables.LIMITS, **client, valid_from_ms=begin, valid_to_ms=end, **rule)
        analysis.curve(meter, {10.0: 0.5, 20.0: 0.3, 30.0: 0.1})
        analysis.recommendation(meter, None, 20.0)
    report = build(spark, analysis, tmp_path)
    assert report.curves is not None
    assert {one.meter: (one.limit, one.throttled_share) for one in report.curves.rows} == {
        "user=gone": (None, None),
        "user=left": (30.0, 0.1),
    }
    assert report.recommendations is not None
    drawn = {one.entity: one.curve for one in report.recommendations.rows}
    assert {entity: curve and curve.limit for entity, curve in drawn.items()} == {"user=gone": None, "user=left": 30.0}


def test_curves_are_bounded(spark: SparkSession, tmp_path: Path) -> None:
    """Of many meters the worst are drawn, of many limits some, the present one and the ends always among them."""
    analysis = AnalysisDirectory()
    for number in range(30):
        analysis.client(f"u{number}", "x", limit=501.0)
        analysis.curve(f"user=u{number}", {float(limit): number / 100 for limit in range(1, 1_001)})
    curves = build(spark, analysis, tmp_path, curves=4, curve_points=10).curves
    assert curves is not None
    assert curves.counts.total == 30
    assert [one.meter for one in curves.rows] == [f"user=u{number}" for number in (29, 28, 27, 26)]
    limits = [point.limit for point in curves.rows[0].points]
    assert len(limits) <= 12
    assert {1.0, 501.0, 1_000.0} <= set(limits)
    assert limits == sorted(limits)


def test_the_rules_to_change_most_come_first(spark: SparkSession, tmp_path: Path) -> None:
    """Those without an answer, those to add, then by how many times; each with the curve of its worst meter."""
    analysis = AnalysisDirectory(summary={"recommendations": {"goal": "", "rules": 5, "unmet": 1}})
    for user in ("a", "b"):
        analysis.client(user, "x", limit=10.0, limit_source="user=<default>")
    analysis.curve("user=a", {10.0: 0.2, 20.0: 0.0})
    analysis.curve("user=b", {10.0: 0.3, 20.0: 0.0})
    analysis.recommendation("user=<default>", 10.0, 11.0)
    analysis.recommendation("user=same", 10.0, 10.0)
    analysis.recommendation("user=half", 10.0, 5.0, owner="search")
    analysis.recommendation("user=new", None, 7.0, owner="unowned")
    analysis.recommendation("user=none", 10.0, None, predicted_throttled_share=None, predicted_max_delay_ms=None)
    report = build(spark, analysis, tmp_path, recommendations=4)
    found = report.recommendations
    assert found is not None
    assert found.counts.asDict() == {"total": 5, "raised": 1, "lowered": 1, "added": 1}
    assert [one.change for one in found.rows] == ["unmet", "add", "lower", "raise"]
    assert [one.owner for one in found.rows] == [None, None, "search", None]
    assert found.rows[0].predicted_throttled_share is None
    drawn = [one.curve for one in found.rows]
    assert drawn[:3] == [None, None, None]
    assert drawn[3] is not None
    assert (drawn[3].meter, drawn[3].recommended) == ("user=b", 11.0)


def test_steps_that_found_nothing_have_their_sections(spark: SparkSession, tmp_path: Path) -> None:
    """Tables without rows are not the same as no tables: the page says what was looked for."""
    tried = frozenset({"whatif", "curve", "recommendations"})
    directory = AnalysisDirectory(without_rows=tried).write(tmp_path / "out")
    report = build_report(read(spark, directory), Bounds())
    for listed in (report.what_if, report.curves, report.recommendations):
        assert listed is not None
        assert (set(listed.counts), listed.rows) == ({0}, [])
    html = page(spark, directory)
    assert {"what-if", "curves", "recommendations"} <= set(re.findall(r'<section id="([\w-]+)"', html))
