"""What the terminal says of an analysis."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from pyspark.sql import Row

from kquota.cli.pipeline.summary import print_analysis
from kquota.pipeline.dataset.dataset import Dataset
from kquota.pipeline.dataset.steps import INGEST_STEP
from kquota.pipeline.dataset.summary import AmbiguousHour, BackwardClock, DuplicateLogFile, Overlap
from kquota.pipeline.jobs import Analysis

METER = Row(
    broker_id=0,
    meter="user=ops",
    key="controller_mutation_rate",
    limit=10.0,
    limit_source="user=ops",
    level=3,
    clients=1,
    rate_p95=5.0,
    rate_max=6.0,
    seconds_active=60,
    seconds_over_100=0,
    throttled_requests=0,
    throttle_ms=0,
    ambiguous=False,
    episodes=0,
    unknown_amounts=0,
)


def analysis(tmp_path: Path, meters: Sequence[Row] = (), **parts: Any) -> Analysis:
    """One of ten lines."""
    with Dataset.create(tmp_path, overwrite=True).run(INGEST_STEP) as run:
        counts = {"lines": 10, "good": 7, "rejected": 2, "blank": 1, "start_ms": 0}
        run.summary = replace(run.summary, **counts, **parts)
        return Analysis(run.commit(), meters)


def test_a_clock_that_was_set_back_is_told_with_its_place(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    steps = [BackwardClock(3, from_ms=1_767_323_045_678, by_ms=30_000)]
    print_analysis(analysis(tmp_path, clock_went_backwards=steps))
    text = " ".join(capsys.readouterr().out.split())
    assert text.startswith(
        "10 lines: 7 good, 2 rejected, 1 blank broker 3: its log goes back in time by 30 s after 2026-01-02 03:04:05 "
        "UTC: the clock was set back, or summer time ended;"
    )
    assert "cut the log there, and analyse both parts on their own" in text
    print_analysis(analysis(tmp_path))
    assert "goes back" not in capsys.readouterr().out


def test_logs_that_were_left_out_or_may_be_mixed_up_are_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    overlaps = [
        Overlap(0, ["a", "b"], overlap_ms=60_000),
        Overlap(1, ["c", "d"], overlap_ms=0),
    ]
    repeated = [DuplicateLogFile(f"{number}.gz", of=f"{number}") for number in range(7)]
    print_analysis(analysis(tmp_path, overlaps=overlaps, duplicate_logs=repeated))
    text = " ".join(capsys.readouterr().out.split())
    assert "not counted: 0.gz: all of it is in 0 not counted: 1.gz" in text
    assert "not counted: 2 more copies of logs" in text
    assert "broker 0: its logs a and b overlap by 1 min 00 s: lines that are in both count twice, and if they" in text
    assert "broker 1: its logs c and d are of different addresses: a broker may have come back with another" in text
    assert "say whose each is, with --log 1=GLOB --log 2=GLOB, or --log 'logs/broker-{broker}/*'" in text


def test_a_log_that_begins_in_one_of_two_hours_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    print_analysis(analysis(tmp_path, ambiguous_hours=[AmbiguousHour(2, "a.log")]))
    text = " ".join(capsys.readouterr().out.split())
    assert "broker 2: a.log begins in the hour that the end of summer time repeats, and does not say in which" in text


def test_rates_that_lack_unknown_amounts_are_marked(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    print_analysis(analysis(tmp_path, (METER,)))
    assert "(+)" not in capsys.readouterr().out
    print_analysis(analysis(tmp_path, (Row(**METER.asDict() | {"unknown_amounts": 2}),)))
    text = " ".join(capsys.readouterr().out.split())
    assert "50 % (+) 60 % (+)" in text
    assert "(+) or more: the amounts of some requests are not known, and in no figure of the meter." in text
