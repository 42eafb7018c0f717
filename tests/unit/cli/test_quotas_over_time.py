"""Which quotas a log is judged by: a file, a folder of dated files, a store with its history."""

from pathlib import Path
from typing import Any

import click
import pytest
from msgspec.structs import replace

from kquota.cli.options.quotas_over_time import over_time_lines, read_quota_timeline
from kquota.cli.options.targets import Target
from kquota.errors import InputError
from kquota.files import QuotaFile, QuotaTimeline
from kquota.pipeline.dataset.summary import QuotaPeriodRead, QuotasOverTimeRead, Summary
from kquota.quotas import KAFKA, USER, ClientQuotaAlteration, ClientQuotaEntity
from kquota.stores.local import LocalStore
from kquota.stores.sqlite import SqliteKeeper
from tests.kit.manual_clock import ManualClock

ALICE = ClientQuotaEntity({USER: "alice"})
KEY = "producer_byte_rate"


def limits(quotas: QuotaTimeline) -> list[tuple[int | None, float | None]]:
    return [(period.valid_from_ms, period.quotas.snapshot().get(ALICE, {}).get(KEY)) for period in quotas.periods]


@pytest.fixture
def store(tmp_path: Path) -> Target:
    """alice has 5 from the 10th second on and 6 from the 20th."""
    clock = ManualClock()
    with LocalStore(SqliteKeeper(tmp_path / "q.db"), clock=clock) as store:
        for second, value in ((10, 5.0), (20, 6.0)):
            clock.advance(second * 1000 - clock.now_ms())
            assert store.alter([ClientQuotaAlteration(ALICE, [ClientQuotaAlteration.Op(KEY, value)])]) == {ALICE: None}
    return Target(store=f"sqlite:///{tmp_path / 'q.db'}")


def test_a_store_answers_for_the_time_of_the_log(store: Target) -> None:
    """By default what was in force then, also where the quotas were changed since."""
    quotas = read_quota_timeline(store, None)
    assert limits(quotas.within(12_000, 15_000)) == [(10_000, 5)]
    assert limits(quotas.within(12_000, 25_000)) == [(10_000, 5), (20_000, 6)]
    assert limits(quotas.within(30_000, 35_000)) == [(20_000, 6)]
    assert limits(quotas.within(None, None)) == [(None, 6)]


def test_a_log_from_before_the_store(store: Target) -> None:
    """The quotas of now, unless its history is asked for."""
    before = read_quota_timeline(store, None).within(0, 10_000)
    assert (limits(before), before.recorded_from_ms) == ([(None, 6)], 10_000)
    assert limits(read_quota_timeline(store, "log").within(0, 10_000)) == []
    assert limits(read_quota_timeline(store, "now").within(12_000, 15_000)) == [(None, 6)]


def test_folders_and_files(tmp_path: Path) -> None:
    text = "- entity: {user: alice}\n  values: {producer_byte_rate: 7}\n"
    (tmp_path / "one.yaml").write_text(text)
    assert limits(read_quota_timeline(Target(quotas=str(tmp_path / "one.yaml")), None).within(0, 1)) == [(None, 7)]
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "1970-01-01T000005Z.yaml").write_text(text)
    assert limits(read_quota_timeline(Target(quotas=str(tmp_path / "folder")), None).within(0, 9000)) == [(5000, 7)]
    with pytest.raises(click.UsageError, match="goes with --store"):
        read_quota_timeline(Target(quotas=str(tmp_path / "folder")), "log")
    with pytest.raises(InputError, match="this is a folder"):
        Target(quotas=str(tmp_path / "folder")).read()


def test_what_foreign_files_of_a_folder_leave_out_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As of a single file: with the name of the file, and its line."""
    rpk = Path(__file__).parents[2] / "data" / "quota_files" / "rpk.yaml"
    name = "2026-01-02T030405Z.yaml"
    (tmp_path / name).write_bytes(rpk.read_bytes())
    (tmp_path / "2026-01-03.yaml").write_text("- entity: {user: alice}\n  values: {producer_byte_rate: 7}\n")
    assert limits(read_quota_timeline(Target(quotas=str(tmp_path)), None).within(None, None)) == [
        (1_767_398_400_000, 7)
    ]
    told = capsys.readouterr().err
    assert told.startswith(f"kquota: warning: {tmp_path / name}:16:")
    assert told.count("\n") == 1
    assert "Kafka has no quotas by prefix" in told


def lines(quotas: QuotaTimeline | None, **changes: Any) -> list[str]:
    given = QuotasOverTimeRead(0, None, [])
    summary = replace(Summary.empty(), start_ms=0, end_ms=60_000)
    return over_time_lines(summary if quotas is None else replace(summary, quotas_over_time=replace(given, **changes)))


def since(*begins_ms: int | None) -> list[QuotaPeriodRead]:
    return [QuotaPeriodRead(begin_ms, None, 1) for begin_ms in begins_ms]


def test_what_is_said() -> None:
    """Nothing of quotas that were just given; otherwise what one would not expect."""
    some = QuotaTimeline.always(QuotaFile(()))
    assert lines(None) == []
    assert lines(some, periods=since(0)) == []
    [changed] = lines(some, changes=2, periods=since(0, 5000, 9000))
    assert changed.startswith("the limits changed 2 times (1970-01-01 00:00:05 UTC, 1970-01-01 00:00:09 UTC): ")
    [known] = lines(some, periods=since(5000))
    assert known.startswith("no limits are known from before 1970-01-01 00:00:05 UTC: what was used from")
    assert "no limits are known for any of it" in lines(some)[0]
    assert "judged by the quotas as they are now" in lines(some, recorded_from_ms=70_000, periods=since(None))[0]


@pytest.mark.parametrize("quotas_as_of", ["log", "now"])
def test_rules_on_types_that_no_log_names_are_left_aside_and_said(
    tmp_path: Path, quotas_as_of: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is kept beside the tables can be read again by steps that know Kafka's types alone."""
    groups = [ClientQuotaEntity({"group": name}) for name in ("a", "b", "c", "d")]
    model = KAFKA.with_entity_type("group", keys=[KEY])
    with LocalStore(SqliteKeeper(tmp_path / "q.db"), clock=ManualClock(), model=model) as store:
        store.alter([ClientQuotaAlteration(one, [ClientQuotaAlteration.Op(KEY, 5.0)]) for one in (*groups, ALICE)])
    quotas = read_quota_timeline(Target(store=f"sqlite:///{tmp_path / 'q.db'}"), quotas_as_of).within(None, None)
    assert [list(period.quotas.snapshot()) for period in quotas.periods] == [[ALICE]]
    assert "warning: left aside: group=a; group=b; group=c and 1 more: recorded traffic" in capsys.readouterr().err
