"""The pure parts of the gateway's benchmarks, and how a gateway is started for them."""

import io
import json
import math
import os
import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import check_gateway_lossless, limit_client
from benchmarks.bench_gateway import BLIND, DIRECT, FULL, QUICK, Case, Sample, beside, goals, on_processor, summary
from benchmarks.check_gateway_limits import LIBRARIES, WORKS, batches, missed, spec, turns
from benchmarks.gateway_process import gateway_process, write_quotas
from benchmarks.histogram import bucket_of, merged, middle_of, quantile
from benchmarks.results_page import write_readme
from benchmarks.windows import Closeness, closeness, sums, window_sums
from kquota.files.reader import read_quota_file
from kquota.quotas import ClientQuotaEntity
from tests.kit.gateway_runs import judged
from tests.kit.log_check import Line
from tests.kit.workload import Summary

COUNTS = st.lists(st.integers(0, 10**9), max_size=60)


class TestHistogram:
    @given(st.integers(0, 2**60))
    def test_the_middle_of_a_bucket_is_near_every_value_in_it(self, ns: int) -> None:
        assert abs(middle_of(bucket_of(ns)) - ns) <= ns / 128

    @given(st.integers(0, 2**60))
    def test_a_longer_time_is_in_no_earlier_bucket_and_none_is_left_out(self, ns: int) -> None:
        assert bucket_of(ns + 1) - bucket_of(ns) in {0, 1}

    @given(st.lists(st.integers(0, 10**10), min_size=1), st.floats(0, 1))
    def test_a_quantile_is_that_of_the_values(self, values: list[int], share: float) -> None:
        counts = merged([[(bucket_of(value), 1)] for value in values])
        rank = max(1, math.ceil(share * len(values)))
        assert quantile(counts, share) == middle_of(bucket_of(sorted(values)[rank - 1]))

    def test_no_values_have_no_quantile(self) -> None:
        assert math.isnan(quantile({}, 0.5))

    def test_histograms_of_several_runs_become_one(self) -> None:
        assert merged([[(1, 2), (3, 1)], [(3, 4)]]) == {1: 2, 3: 5}


class TestWindows:
    @given(COUNTS, st.integers(1, 70))
    def test_each_window_is_the_sum_of_its_spans(self, counts: list[int], width: int) -> None:
        found = window_sums(counts, width)
        assert found == [sum(counts[at : at + width]) for at in range(len(counts) - width + 1)]

    def test_a_window_has_a_span(self) -> None:
        with pytest.raises(ValueError, match="0 spans"):
            window_sums([1], 0)

    def test_groups_leave_out_what_fills_none(self) -> None:
        assert sums([1, 2, 3, 4, 5], 2) == [3, 7]

    def test_traffic_at_its_limit_is_at_one_and_does_not_vary(self) -> None:
        steady = closeness([10.0] * 400, span_s=0.1, limit=100, window_s=30)
        assert steady == Closeness(mean=1.0, least=1.0, most=1.0, variation=0.0)

    def test_windows_show_what_the_mean_hides(self) -> None:
        """Four seconds at twice the limit, four without anything; windows of two seconds."""
        found = closeness([20.0] * 40 + [0.0] * 40, span_s=0.1, limit=100, window_s=2)
        assert found == Closeness(mean=1.0, least=0.0, most=2.0, variation=1.0)

    def test_where_nothing_came_nothing_varies(self) -> None:
        found = closeness([0.0] * 20, span_s=0.1, limit=100, window_s=1)
        assert found.mean == found.most == 0
        assert math.isnan(found.variation)

    def test_a_run_shorter_than_its_window_is_refused(self) -> None:
        with pytest.raises(ValueError, match=r"no window of 30 s"):
            closeness([1.0] * 299, span_s=0.1, limit=100, window_s=30)


def sample(pairs: int, ns: int = 1000, cpu_s: float = 0.5) -> Sample:
    return Sample(pairs=pairs, seconds=1.0, bytes_per_pair=200, histogram=[(bucket_of(ns), pairs)], cpu_s=cpu_s)


class TestFigures:
    def test_ratios_are_of_each_round_so_that_a_slow_one_slows_both(self) -> None:
        assert beside([sample(90), sample(9), sample(80)], [sample(100), sample(10), sample(100)]) == 0.9
        assert beside([sample(90)], None) is None

    def test_a_case_has_its_medians_by_variant(self, tmp_path: Path) -> None:
        case = Case(kind="produce", frame_bytes=100, connections=1, in_flight=1)
        rounds = {
            DIRECT.name: [sample(1000, 5_000, math.nan)] * 2,
            BLIND.name: [sample(100, 150_000), sample(110, 150_000)],
            "gateway": [sample(90, 160_000), sample(88, 160_000)],
        }
        found = summary(case, rounds)
        gateway = found["variants"]["gateway"]
        assert gateway["pairs_s"] == {"median": 89, "least": 88, "most": 90}
        assert gateway["beside_blind_copy"] == 0.85
        assert gateway["p50_us"] == pytest.approx(160, rel=0.01)
        assert gateway["cpu_beside_blind_copy"] == 1.181
        assert found["variants"][DIRECT.name]["cpu_us"] is None
        assert found["variants"][DIRECT.name]["cpu_beside_blind_copy"] is None
        assert goals([found]) == {
            "gateway": {
                "beside blind copy, small frames, median": 0.85,
                "beside blind copy, small frames, least": 0.85,
                "CPU beside blind copy, small frames, median": 1.181,
                "p50 added to direct, us, most": pytest.approx(155, rel=0.02),
            }
        }
        machine = {"cores": 2, "processor": "test", "memory_gb": 8.0, "python": "3.11", "load_1min": 0.1}
        report = {
            "command": "bench", "machine": machine, "date": "2026-01-02", "cases": [found], "goals": goals([found]),
            "idle_bytes_per_connection": {"gateway": {"plain": 3500}},
        }  # fmt: skip
        (tmp_path / "gateway.json").write_text(json.dumps(report))
        write_readme(tmp_path)
        page = (tmp_path / "README.md").read_text()
        assert "| produce 100 B, 1 x 1 | 1,000 / 105 / 89 | " in page
        assert " / 1.00 / 0.85 | 1.00 / 0.10 / 0.09 | " in page
        assert "- an idle connection, gateway: plain 3,500 B" in page

    def test_the_quick_cases_are_among_the_full_ones(self) -> None:
        assert set(QUICK) < set(FULL)
        assert {case.tls for case in QUICK} == {False, True}
        assert any(case.connections == case.in_flight == 1 for case in QUICK)


def test_a_started_gateway_says_where_its_brokers_are(tmp_path: Path) -> None:
    program = tmp_path / "gateway.py"
    program.write_text(
        "import sys, time\n"
        f"open({str(tmp_path / 'arguments')!r}, 'w').write(' '.join(sys.argv[1:]))\n"
        "print('listening on 127.0.0.1:1\\nbroker 7 on 127.0.0.1:2', flush=True)\n"
        "time.sleep(600)\n"
    )
    command = (sys.executable, str(program))
    with gateway_process(
        "upstream:9092", "--shadow", quotas="cluster", log=tmp_path / "log", command=command
    ) as gateway:
        assert gateway.bootstrap == "127.0.0.1:1"
        assert gateway.brokers == {7: "127.0.0.1:2"}
        expected = "--upstream upstream:9092 --listen 127.0.0.1:0 --quotas cluster --shadow"
        assert (tmp_path / "arguments").read_text() == expected
    assert not Path(f"/proc/{gateway.pid}").exists()


def test_quotas_for_a_gateway_are_a_quota_file(tmp_path: Path) -> None:
    limits = [
        ("one", "producer_byte_rate", 1e6),
        ("one", "consumer_byte_rate", 5.0),
        ("two", "producer_byte_rate", 2.0),
    ]
    path = write_quotas(tmp_path / "quotas.yaml", limits)
    assert read_quota_file(path.read_text(), name=path.name).snapshot() == {
        ClientQuotaEntity({"client-id": "one"}): {"producer_byte_rate": 1e6, "consumer_byte_rate": 5.0},
        ClientQuotaEntity({"client-id": "two"}): {"producer_byte_rate": 2.0},
    }


def test_a_processor_is_taken_for_a_block_only() -> None:
    before = os.sched_getaffinity(0)
    with on_processor(1):
        assert len(os.sched_getaffinity(0)) == 1
    assert os.sched_getaffinity(0) == before


def close(mean: float, least: float, most: float) -> Closeness:
    return Closeness(mean=mean, least=least, most=most, variation=0.1)


class TestLimits:
    def test_every_work_runs_once_and_those_with_high_limits_in_threes(self) -> None:
        found = batches(WORKS)
        assert sorted(map(str, WORKS)) == sorted(str(work) for batch in found for work in batch)
        assert {work.limit for work in found[0]} == {100_000, 1_000_000}
        assert all({work.library for work in batch} == set(LIBRARIES) and len(batch) == 3 for batch in found[1:])

    @pytest.mark.parametrize("at_once", [False, True])
    def test_every_work_is_done_at_every_endpoint(self, *, at_once: bool) -> None:
        found = turns(WORKS, ["broker", "gateway"], at_once=at_once)
        assert len(found) == len(batches(WORKS)) * (1 if at_once else 2)
        done = [run for together in found for run in together]
        assert len(done) == len(set(done)) == 2 * len(WORKS)

    def test_a_client_begins_anew_before_it_has_fetched_all_ahead(self) -> None:
        for work in WORKS:
            one = spec(work, "broker", "localhost:9092", 60.0, {work.topic: 4_000})
            fetched_ahead = one["fetch_bytes"] / one["record_bytes"]
            assert 2_000 < one["rereads_after"] < 4_000 - 3 * fetched_ahead

    def test_no_two_clients_share_a_limit(self) -> None:
        names = [work.client_id(endpoint) for work in WORKS for endpoint in ("broker", "gateway", "both")]
        assert len(names) == len(set(names))

    @pytest.mark.parametrize(
        "gateway, misses",
        [
            (close(1.0, 0.981, 1.019), False),
            (close(1.0, 0.9, 1.0), True),  # the broker is nearer
        ],
    )
    def test_a_gateway_is_within_two_percent_where_the_broker_is(self, gateway: Closeness, misses: bool) -> None:
        assert bool(missed({"broker": close(1.0, 1.0, 1.0), "gateway": gateway})) == misses

    def test_a_gateway_may_be_as_far_off_as_the_broker(self) -> None:
        broker = close(0.9, 0.75, 1.1)
        assert missed({"broker": broker, "gateway": close(0.9, 0.75, 1.1)}) == []
        [said] = missed({"broker": broker, "gateway": close(0.9, 0.7, 1.1)})
        assert said == "the gateway's worst window is 30.0% off, the broker's 25.0%"

    def test_both_together_cost_a_client_at_most_two_percent(self) -> None:
        broker = close(0.9, 0.75, 1.1)
        assert missed({"broker": broker, "both": close(0.883, 0.7, 1.0)}) == []
        assert missed({"broker": broker, "both": close(0.81, 0.7, 1.0)}) == [
            "both let through 0.900 of what the broker does"
        ]

    def test_without_a_gateway_nothing_is_missed(self) -> None:
        assert missed({"broker": close(0.1, 0.0, 3.0)}) == []

    def test_the_page_shows_who_enforced_what(self, tmp_path: Path) -> None:
        machine = {"cores": 2, "processor": "test", "memory_gb": 8.0, "python": "3.11", "load_1min": 0.1}
        one = {"mean": 0.9, "least": 0.75, "most": 1.1, "variation": 1.5}
        work = {"work": "java fetch steady 100kB", "endpoints": {"broker": one, "gateway": one}, "missed": ["it"]}
        report = {
            "command": "check", "machine": machine, "date": "2026-01-02", "kafka": "4.3.0", "window_s": 30.0,
            "works": [work],
        }  # fmt: skip
        (tmp_path / "gateway-limits.json").write_text(json.dumps(report))
        write_readme(tmp_path)
        cell = "0.900 (0.750-1.100), 1.50"
        assert f"| java fetch steady 100kB | {cell} | {cell} | it |" in (tmp_path / "README.md").read_text()


class TestPace:
    def test_a_client_keeps_its_pace_and_catches_up_with_a_second_at_most(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        client, clock = paced(monkeypatch, on_s=1.0, off_s=0.0, pace=100.0)
        taken = 0
        for tick in range(500):  # 5 s, without it for the second and third
            clock[0] = 1000 + tick / 100
            while not 100 <= tick < 300 and client.is_on():
                client.take(10)
                taken += 10
        assert taken == pytest.approx(100 + 100 + 200, abs=20)

    def test_a_client_without_a_pace_works_while_it_is_on(self, monkeypatch: pytest.MonkeyPatch) -> None:
        client, clock = paced(monkeypatch, on_s=2.0, off_s=2.0, pace=0.0)
        found = []
        for second in (-0.5, 0.0, 1.9, 2.0, 3.9, 4.0):
            clock[0] = 1000 + second
            client.take(10**9)
            found.append(client.is_on())
        assert found == [False, True, True, False, False, True]

    def test_rest_is_not_caught_up_with(self, monkeypatch: pytest.MonkeyPatch) -> None:
        client, clock = paced(monkeypatch, on_s=2.0, off_s=2.0, pace=100.0)
        taken = {0: 0, 1: 0}
        for tick in range(800):
            clock[0] = 1000 + tick / 100
            while client.is_on():
                client.take(1)
                taken[tick // 400] += 1
        assert taken[1] == pytest.approx(taken[0], abs=5) == pytest.approx(200, abs=5)

    def test_bytes_count_in_the_span_in_which_they_came(self, monkeypatch: pytest.MonkeyPatch) -> None:
        client, clock = paced(monkeypatch, on_s=1.0, off_s=0.0, pace=0.0)
        for second, amount in ((-0.1, 1), (0.0, 2), (0.55, 4), (7.95, 8), (8.0, 16)):
            clock[0] = 1000 + second
            client.count(amount)
        assert {span: amount for span, amount in enumerate(client.spans) if amount} == {0: 2, 1: 4, 15: 8}


def paced(monkeypatch: pytest.MonkeyPatch, **pattern: float) -> tuple[limit_client.Client, list[float]]:
    """A client that started at second 1000 of the clock, which is the first of the list."""
    clock = [1000.0]
    monkeypatch.setattr("time.time", lambda: clock[0])
    monkeypatch.setattr("sys.stdin", io.StringIO("1000.0\n"))
    client = limit_client.Client({"seconds": 8.0, "span_s": 0.5, **pattern})
    client.wait_for_start()
    return client, clock


class TestLossless:
    def test_every_listener_mode_and_quota_is_run_with_all_faults_and_each_fault_alone(self) -> None:
        runs = check_gateway_lossless.all_runs(600, 2)
        together = [run for run in runs if len(run.faults) > 1]
        assert len({(run.listener, run.mode, run.byte_rate is None) for run in together}) == len(together) == 18
        alone = Counter((run.faults[0], run.is_direct) for run in runs if len(run.faults) == 1)
        assert set(alone.values()) == {2}
        assert not alone["gateway killed", True]
        assert alone["broker killed", True] == alone["broker killed", False]

    def test_what_was_lost_is_in_the_report_and_on_the_page(self, tmp_path: Path) -> None:
        runs = check_gateway_lossless.all_runs(1, 1)
        [alone] = [run for run in runs if run.faults == ("broker killed",) and not run.is_direct]
        outcome = judged(runs[0], [Line(0, 0, "sender-java:0", "0")], [], [Summary(1, 200, 1.0, 0, {})])
        repeating = [Line(0, at, "sender-sarama:0", "0") for at in range(3)]
        done = [(runs[0], outcome), (alone, judged(alone, repeating[:1], repeating, [Summary(1, 200, 1.0, 0, {})]))]
        found = check_gateway_lossless.report(done, [(runs[1], "not ended after 240 s")])
        assert found["repeated"] == {"broker killed": {"gateway": [2]}}
        assert found["repeated_by_client"] == {"sarama": 2}
        machine = {"cores": 2, "processor": "test", "memory_gb": 8.0, "python": "3.11", "load_1min": 0.1}
        named = {"command": "c", "machine": machine, "date": "d", "kafka": "4.3.0", "clients": ["java"]}
        (tmp_path / "gateway-lossless.json").write_text(json.dumps({**named, **found}))
        write_readme(tmp_path)
        page = (tmp_path / "README.md").read_text()
        assert "1 lost, such as sender-java:0" in page
        assert "| broker killed | - | 2 |" in page
        assert "not ended after 240 s" in page
