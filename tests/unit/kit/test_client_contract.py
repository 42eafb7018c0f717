"""What the client programs share, and what Kafka's performance tools print."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kit.client_contract import Output, Record, Settings, checksum, transactions
from tests.kit.log_check import Line, read_lines
from tests.kit.perf_tools import ConsumerPerformance, ProducerPerformance

ARGUMENTS = ["bootstrap.servers=h:1", "mode=produce", "topic=t", "client.id=c"]


def settings(output: Path, *more: str) -> Settings:
    return Settings.parse([*ARGUMENTS, f"output={output}", *more])


@given(size=st.integers(0, 300), sequence=st.integers(0, 10**9), at=st.integers(0), bit=st.integers(0, 7))
def test_a_value_carries_a_checksum_that_any_changed_bit_breaks(size: int, sequence: int, at: int, bit: int) -> None:
    record = Record.make(settings(Path("unused"), f"size={size}", "partitions=7"), sequence)
    assert record.partition == sequence % 7
    assert len(record.value) == max(size, 8)
    assert not checksum(record.value).startswith("wrong-")
    changed = bytearray(record.value)
    changed[at % len(changed)] ^= 1 << bit
    assert checksum(bytes(changed)).startswith("wrong-")


def test_payloads_differ_from_record_to_record() -> None:
    made = [Record.make(settings(Path("unused")), sequence) for sequence in range(100)]
    assert len({checksum(one.value) for one in made}) == 100


def test_every_so_many_transactions_one_is_to_be_aborted() -> None:
    given = settings(Path("unused"), "records=23", "per.transaction=5", "abort.every=2")
    assert [(number, len(batch), is_to_abort) for number, batch, is_to_abort in transactions(given)] == [
        (0, 5, False),
        (1, 5, True),
        (2, 5, False),
        (3, 5, True),
        (4, 3, False),
    ]


def test_lines_are_there_at_once_and_the_summary_counts_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = Output(settings(tmp_path / "lines"))
    output.write(0, 5, b"c:0", b"00000000")
    output.write(0, 5, b"c:0", b"00000000")
    output.write(1, 0, b"c:1", b"00000001", " committed 4")
    expected = Line(0, 5, "c:0", "00000000")
    assert read_lines(tmp_path / "lines") == [expected, expected, Line(1, 0, "c:1", "wrong-00000000", "committed", 4)]
    assert output.different == 2
    output.failed(TimeoutError("too late"))
    assert output.finish() == 1
    summary = json.loads(capsys.readouterr().out)
    assert (summary["records"], summary["bytes"], summary["failed"]) == (3, 24, 1)
    assert summary["errors"] == {"TimeoutError: too late": 1}


@pytest.mark.parametrize("arguments", [ARGUMENTS, [*ARGUMENTS, "output=o", "retries=5"]], ids=["missing", "unknown"])
def test_arguments_that_are_missing_or_unknown_are_named(arguments: list[str]) -> None:
    with pytest.raises(SystemExit, match=r"output|retries"):
        Settings.parse(arguments)


def test_the_last_line_of_producer_performance_is_its_result() -> None:
    printed = (
        "4001 records sent, 800.2 records/sec (0.78 MB/sec), 5.0 ms avg latency, 210.0 ms max latency.\n"
        "5000 records sent, 1234.567890 records/sec (1.18 MB/sec), 12.34 ms avg latency, 345.00 ms max latency, "
        "7 ms 50th, 20 ms 95th, 30 ms 99th, 340 ms 99.9th.\n"
    )
    result = ProducerPerformance.parse(printed)
    assert (result.records, result.mb_per_s, result.p50_ms, result.p999_ms) == (5000, 1.18, 7.0, 340.0)
    with pytest.raises(ValueError, match="no result"):
        ProducerPerformance.parse(printed.splitlines()[0])


def test_the_table_of_consumer_performance_is_read_by_its_head() -> None:
    printed = (
        "start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, rebalance.time.ms, "
        "fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec\n"
        "2026-01-01 00:00:00:000, 2026-01-01 00:00:02:000, 19.0735, 9.5320, 20000, 10000.0, 1100, 900, 21.1928, 22222\n"
    )
    assert ConsumerPerformance.parse(printed) == ConsumerPerformance(20000, 19.0735, 9.532, 21.1928)
    with pytest.raises(ValueError, match="no result"):
        ConsumerPerformance.parse("")
