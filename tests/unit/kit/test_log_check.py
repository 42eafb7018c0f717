"""The checker of logs finds each kind of fault, and nothing where there is none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kquota.errors import InputError
from tests.kit.log_check import Findings, Line, check, read_lines, summary, without_repetitions

# Two producers, two partitions: (producer, sequence) as the broker wrote them.
GOOD = [
    Line(0, 0, "a:0", "0000000a"),
    Line(0, 1, "b:0", "0000000b"),
    Line(0, 2, "a:2", "0000000c"),
    Line(1, 0, "a:1", "0000000d"),
    Line(1, 1, "b:1", "0000000e"),
    Line(1, 2, "a:3", "0000000f"),
]


def transaction(lines: Sequence[Line], state: str, number: int = 0) -> list[Line]:
    return [replace(line, state=state, transaction=number) for line in lines]


def kinds(findings: Findings) -> dict[str, list[str]]:
    """The keys of what was found, by kind."""
    found = {one.name: [line.key for line in getattr(findings, one.name)] for one in fields(findings)}
    return {kind: keys for kind, keys in found.items() if keys}


@given(st.permutations(GOOD))
def test_what_was_acknowledged_in_whatever_order_and_is_there_is_well(acknowledged: list[Line]) -> None:
    findings = check(acknowledged, GOOD)
    assert kinds(findings) == {}
    assert findings.problems() == []


@given(st.sets(st.sampled_from(GOOD)))
def test_what_is_acknowledged_and_not_there_is_lost(missing: set[Line]) -> None:
    findings = check(GOOD, [line for line in GOOD if line not in missing])
    assert set(findings.lost) == missing
    assert (findings.problems() == []) == (not missing)


@given(st.sets(st.sampled_from(GOOD)))
def test_what_is_there_and_not_acknowledged_is_allowed(silent: set[Line]) -> None:
    """The answer was lost, or the sender gave up: it promised nothing."""
    findings = check([line for line in GOOD if line not in silent], GOOD)
    assert set(findings.unacknowledged) == silent
    assert findings.problems() == []


def test_a_record_at_another_place_than_was_acknowledged_has_moved() -> None:
    """As where answers are given to the wrong requests."""
    acknowledged = [replace(GOOD[0], offset=2), replace(GOOD[2], offset=0), *GOOD[3:]]
    assert kinds(check(acknowledged, GOOD))["moved"] == ["a:0", "a:2"]
    other_partition = [replace(GOOD[3], partition=0)]
    assert kinds(check(other_partition, GOOD))["moved"] == ["a:1"]


def test_an_offset_that_the_client_was_not_told_may_be_any_of_that_partition() -> None:
    assert check([replace(GOOD[5], offset=-1)], GOOD).problems() == []
    assert kinds(check([replace(GOOD[5], partition=0, offset=-1)], GOOD))["moved"] == ["a:3"]


def test_a_record_that_is_there_again_is_a_duplicate_and_not_out_of_order() -> None:
    log = [GOOD[0], GOOD[1], GOOD[2], replace(GOOD[0], offset=3), replace(GOOD[2], offset=4), *GOOD[3:]]
    findings = check(GOOD, log)
    assert kinds(findings) == {"duplicated": ["a:0", "a:2"]}
    assert findings.problems() == ["2 duplicated, such as a:0 at 0/3, a:2 at 0/4"]
    assert findings.problems(duplicates=1) == findings.problems()
    assert findings.problems(duplicates=2) == findings.problems(duplicates=None) == []


def test_a_duplicate_in_another_partition_is_one_too() -> None:
    log = [*GOOD, Line(2, 0, "a:0", "0000000a")]
    assert kinds(check(GOOD, log)) == {"duplicated": ["a:0"]}


def test_a_record_after_a_later_one_of_its_producer_is_out_of_order() -> None:
    log = [replace(GOOD[2], offset=0), GOOD[1], replace(GOOD[0], offset=2), *GOOD[3:]]
    findings = check(log, log)
    assert kinds(findings) == {"reordered": ["a:0"]}
    assert findings.problems() != []
    assert findings.problems(duplicates=None) == []


def test_a_payload_that_differs_from_its_checksum_or_from_what_was_sent_is_corrupted() -> None:
    log = [replace(GOOD[0], checksum="wrong-0000000a"), replace(GOOD[1], checksum="12345678"), *GOOD[2:]]
    assert kinds(check(GOOD, log)) == {"corrupted": ["a:0", "b:0"]}
    assert kinds(check([], log))["corrupted"] == ["a:0"]


def test_records_of_other_programs_are_left_alone() -> None:
    others = [Line(0, offset, "-", "wrong-00000000") for offset in range(3)]
    assert kinds(check([], others)) == {}


class TestTransactions:
    def test_of_a_committed_one_everything_has_to_be_there(self) -> None:
        assert kinds(check(transaction(GOOD, "committed"), GOOD[1:])) == {"lost": ["a:0"]}

    def test_of_an_aborted_one_nothing_may_be_read(self) -> None:
        acknowledged = [*transaction(GOOD[:2], "aborted"), *transaction(GOOD[2:], "committed", 1)]
        assert kinds(check(acknowledged, GOOD[2:])) == {}
        assert kinds(check(acknowledged, GOOD)) == {"aborted": ["a:0", "b:0"]}

    def test_one_of_unknown_end_is_there_as_a_whole_or_not_at_all(self) -> None:
        acknowledged = [*transaction(GOOD[:3], "unknown"), *transaction(GOOD[3:], "committed", 1)]
        assert kinds(check(acknowledged, GOOD)) == {}
        assert kinds(check(acknowledged, GOOD[3:])) == {}
        # Those of other producers are other transactions.
        assert kinds(check(acknowledged, GOOD[2:])) == {"torn": ["a:2"]}
        assert kinds(check(acknowledged, [GOOD[1], *GOOD[3:]])) == {}


class TestSummaries:
    def test_count_and_name_the_first_and_the_last_offset_of_each_partition(self) -> None:
        log = [replace(line, offset=line.offset + 5) for line in reversed(GOOD)]
        of_partition = summary(log[::-1])
        assert {number: (one.records, one.first, one.last) for number, one in of_partition.items()} == {
            0: (3, 5, 7),
            1: (3, 5, 7),
        }

    @pytest.mark.parametrize(
        "other",
        [
            GOOD[1:],
            [GOOD[1], GOOD[0], *GOOD[2:]],
            [replace(GOOD[0], checksum="ffffffff"), *GOOD[1:]],
            [replace(GOOD[0], key="a:9"), *GOOD[1:]],
            [*GOOD, GOOD[5]],
        ],
        ids=["fewer", "order", "checksum", "key", "again"],
    )
    def test_differ_where_anything_does(self, other: list[Line]) -> None:
        assert summary(other) != summary(GOOD)

    @given(st.lists(st.sampled_from(GOOD)), st.randoms())
    def test_repetitions_and_the_order_of_members_can_be_taken_out(self, again: list[Line], random: object) -> None:
        read = [*GOOD, *again]
        random.shuffle(read)  # type: ignore[attr-defined]
        assert summary(without_repetitions(read)) == summary(GOOD)


class TestLines:
    def test_are_read_with_and_without_a_transaction_and_without_one_that_was_cut_off(self, tmp_path: Path) -> None:
        output = tmp_path / "output"
        output.write_text("0 17 a:b:5 00c0ffee\n2 -1 a:6 wrong-00c0ffee aborted 3\n2 18 a:7 00c0")
        assert read_lines(output) == [
            Line(0, 17, "a:b:5", "00c0ffee"),
            Line(2, -1, "a:6", "wrong-00c0ffee", "aborted", 3),
        ]
        assert [(line.producer, line.sequence) for line in read_lines(output)] == [("a:b", 5), ("a", 6)]

    @pytest.mark.parametrize("text", ["", "0 1 a:0", "0 1 a:0 00000000 committed", "0 1 a:0 00000000 done 1"])
    def test_of_another_shape_are_refused(self, text: str) -> None:
        with pytest.raises(InputError):
            Line.parse(text)
