"""Quotas over time: what is read from dated files and from a history, and which of them hold when."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kquota.errors import InputError
from kquota.files import QuotaFile, QuotaHistory, QuotaPeriod, QuotaTimeline, parse_timestamp, timestamp_name
from kquota.quotas import USER, ClientQuotaEntity, QuotaChange, QuotaSnapshot, apply_changes
from tests.kit.strategies import snapshots

KEY = "producer_byte_rate"
ALICE = ClientQuotaEntity({USER: "alice"})
MOMENT = 1_767_323_045_000  # 2026-01-02T03:04:05Z


def quotas(value: float) -> QuotaFile:
    return QuotaFile.of({ALICE: {KEY: value}})


def limit(file: QuotaFile | None) -> float | None:
    """What alice is limited to; None where that is not known, 0 for no limit."""
    return None if file is None else file.snapshot().get(ALICE, {}).get(KEY, 0.0)


@pytest.mark.parametrize(
    ("text", "at_ms"),
    [
        ("2026-01-02T03:04:05Z", MOMENT),
        ("2026-01-02T030405Z", MOMENT),
        ("20260102T030405Z", MOMENT),
        ("2026-01-02T03:04:05.678Z", MOMENT + 678),
        ("2026-01-02T030405,6Z", MOMENT + 600),
        ("2026-01-02T03:04Z", MOMENT - 5000),
        ("2026-01-02", MOMENT - 11_045_000),
        ("1969-12-31T23:59:59.999Z", -1),
    ],
)
def test_moments(text: str, at_ms: int) -> None:
    assert parse_timestamp(text) == at_ms


@pytest.mark.parametrize(
    "text",
    [
        "", "quotas", "2026-01-02T03:04:05", "2026-01-02T03:04:05+01:00", "2026-01-02 03:04:05Z", "2026-13-02",
        "2026-0102", "2026-02-30", "2026-01-02T24:00:00Z", "2026-01-02T03:0405Z", "2026-01-02T03:04:05.1234Z",
        "٢٠٢٦-01-02", "2026-01-02Z",
    ],
)  # fmt: skip
def test_what_is_no_moment(text: str) -> None:
    assert parse_timestamp(text) is None


@given(st.integers(-62_135_596_800_000, 253_402_300_799_999))
def test_moments_are_read_as_they_are_written(at_ms: int) -> None:
    name = timestamp_name(at_ms)
    assert parse_timestamp(name) == at_ms
    assert ":" not in name


def test_files_hold_from_their_time_until_the_next() -> None:
    text = "- entity: {user: alice}\n  values: {producer_byte_rate: %d}\n  owner: shop\n"
    files = {"2026-01-03T000000Z.yml": text % 2, "2026-01-02T03:04:05Z.yaml": text % 1, "2026-02-01.json": "[]"}
    dated = QuotaTimeline.of_files(files, folder="q")
    assert [period.valid_from_ms for period in dated.periods] == [MOMENT, 1_767_398_400_000, 1_769_904_000_000]
    found = [limit(dated.at(at)) for at in (MOMENT - 1, MOMENT, 1_767_398_399_999, 1_767_398_400_000, 2 * MOMENT)]
    assert found == [None, 1.0, 1.0, 2.0, 0.0]
    assert dated.periods[0].quotas.entries[0].owner == "shop"


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "there is no quota file in it"),
        ({"quotas.yaml": ""}, "q/quotas.yaml: the name is not a time in UTC"),
        ({"2026-01-02.txt": ""}, "q/2026-01-02.txt: the name is not a time in UTC"),
        ({"README.md": ""}, "q/README.md: .* such as 2026-01-02T03:04:05Z.yaml"),
        (
            {"2026-01-02T030405Z.yaml": "[]", "2026-01-02T03:04:05Z.yaml": "[]"},
            "q/2026-01-02T03:04:05Z.yaml: begins at the same time as 2026-01-02T030405Z.yaml",
        ),
        ({"2026-01-02.yaml": "- entity: {user: a}\n  valuez: {}\n"}, "q/2026-01-02.yaml:2.*valuez"),
    ],
)
def test_folders_that_cannot_be_used(files: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        QuotaTimeline.of_files(files, folder="q")
    assert caught.value.exit_code == 2


def test_only_what_was_in_force_is_kept() -> None:
    """Of [start, end) the periods that it meets; those that say the same are one."""
    dated = QuotaTimeline(tuple(QuotaPeriod(at * 1000, quotas(value)) for at, value in enumerate((5, 5, 6, 6, 7))))

    def kept(start_ms: int, end_ms: int) -> list[tuple[int | None, float | None]]:
        return [(period.valid_from_ms, limit(period.quotas)) for period in dated.within(start_ms, end_ms).periods]

    assert kept(0, 9000) == [(0, 5), (2000, 6), (4000, 7)]
    assert kept(1000, 2000) == [(1000, 5)]
    assert kept(1999, 2001) == [(1000, 5), (2000, 6)]
    assert kept(3500, 4000) == [(3000, 6)]
    assert kept(-5, 0) == []
    assert kept(8000, 9000) == [(4000, 7)]
    last = dated.within(None, None)
    assert limit(last.last) == 7
    assert QuotaTimeline.always(quotas(5)).within(0, 1) == QuotaTimeline.always(quotas(5))
    assert QuotaTimeline(()).last is None


def commit(at_ms: int, before: float | None, after: float | None) -> tuple[int, list[QuotaChange]]:
    return at_ms, [QuotaChange(ALICE, KEY, before, after)]


HISTORY = QuotaHistory(
    [commit(1000, None, 5), commit(2000, 5, 6), commit(2000, 6, 7), commit(1500, 7, 8), commit(4000, 8, None)]
)


def test_a_history_is_what_was_set_when() -> None:
    """Several changes at once are one; a clock that was set back undoes nothing."""
    assert [(one.valid_from_ms, limit(one.quotas)) for one in HISTORY.within(0, 9000).periods] == [
        (1000, 5),
        (2000, 8),
        (4000, 0),
    ]
    assert [(one.valid_from_ms, limit(one.quotas)) for one in HISTORY.within(1200, 1900).periods] == [(1000, 5)]
    assert [(one.valid_from_ms, limit(one.quotas)) for one in HISTORY.within(2000, 4000).periods] == [(2000, 8)]


def test_a_log_from_before_the_history() -> None:
    """It is judged by what there is now, and that is said; who asks for the history gets what that knows: nothing."""
    late = HISTORY.within(0, 1000)
    assert (limit(late.last), late.recorded_from_ms, late.periods[0].valid_from_ms) == (0, 1000, None)
    strict = QuotaHistory(HISTORY.commits, strict=True).within(0, 1000)
    assert strict == QuotaTimeline(())
    assert HISTORY.within(None, None).last == QuotaFile(())
    assert QuotaHistory([]).within(0, 1) == QuotaTimeline.always(QuotaFile(()))


steps = st.lists(st.tuples(st.integers(0, 5), snapshots()), min_size=1, max_size=6)


def as_history(steps: list[tuple[int, dict[ClientQuotaEntity, dict[str, float]]]]) -> QuotaHistory:
    """Commits that lead from one snapshot to the next."""
    commits, at_ms = [], 0
    now: dict[ClientQuotaEntity, dict[str, float]] = {}
    for later_ms, wanted in steps:
        at_ms += later_ms
        changes = [
            QuotaChange(entity, key, now.get(entity, {}).get(key), wanted.get(entity, {}).get(key))
            for entity in now.keys() | wanted.keys()
            for key in now.get(entity, {}).keys() | wanted.get(entity, {}).keys()
        ]
        commits.append((at_ms, changes))
        now = wanted
    return QuotaHistory(commits, strict=True)


def as_text(snapshot: QuotaSnapshot) -> dict[ClientQuotaEntity, dict[str, str]]:
    """To be compared where NaN equals itself."""
    return {entity: {key: repr(value) for key, value in values.items()} for entity, values in snapshot.items()}


@given(steps, st.integers(0, 20), st.integers(1, 20))
def test_at_every_time_of_the_range_the_last_commit_before_it_holds(
    steps: list[tuple[int, dict[ClientQuotaEntity, dict[str, float]]]], start_ms: int, length: int
) -> None:
    """What is cut down to a range says the same about each of its times, as does a folder of the same periods."""
    history = as_history(steps)
    cut = history.within(start_ms, start_ms + length)
    begins = [period.valid_from_ms for period in cut.periods]
    assert begins == sorted(set(begins), key=lambda begin: begin or 0)
    for at_ms in range(start_ms, start_ms + length):
        before = [changes for commit_ms, changes in history.commits if commit_ms <= at_ms]
        snapshot: QuotaSnapshot = {}
        for changes in before:
            snapshot = apply_changes(snapshot, changes)
        found = cut.at(at_ms)
        assert (found is None) is (not before)
        assert found is None or as_text(found.snapshot()) == as_text(snapshot)
