"""Plans: made from quotas, carried out in pieces, undone; written as JSON and read again, strictly."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kquota.errors import InputError
from kquota.files import write_json, write_yaml
from kquota.files.quota_file import QuotaFile
from kquota.policy import (
    Drift,
    Finding,
    Plan,
    PlannedChange,
    PlanTarget,
    Severity,
    difference,
    is_plan,
    read_plan,
    write_plan,
)
from kquota.policy.plan import fingerprint
from kquota.quotas import ClientQuotaEntity, QuotaChange, QuotaSnapshot, apply_changes, is_same_value
from tests.kit.strategies import crowded_entities, snapshots, unicode_text, user_client_entities

ALICE, BOB = ClientQuotaEntity({"user": "alice"}), ClientQuotaEntity({"user": "bob"})
PRODUCE, CONSUME = "producer_byte_rate", "consumer_byte_rate"
HERE = PlanTarget("an-id", "localhost:9092")

quotas = st.one_of(snapshots(), snapshots(crowded_entities, max_size=8))
targets = st.builds(PlanTarget, st.none() | unicode_text, unicode_text)


def made(before: QuotaSnapshot, after: QuotaSnapshot, *, prune: bool = True, target: PlanTarget = HERE) -> Plan:
    return Plan.of(target, before, difference(before, after, prune=prune))


def bits(snapshot: QuotaSnapshot) -> dict[ClientQuotaEntity, dict[str, bytes]]:
    """To the bit, and NaN equal to itself."""
    return {
        entity: {key: struct.pack(">d", value) for key, value in values.items()} for entity, values in snapshot.items()
    }


BEFORE = {ALICE: {PRODUCE: 5.0, CONSUME: 9.0}, BOB: {PRODUCE: 7.0}}
AFTER = {ALICE: {PRODUCE: 6.0, CONSUME: 9.0}, ClientQuotaEntity({"user": None}): {PRODUCE: math.nan}}
PLAN = made(BEFORE, AFTER)


class TestCarriedOut:
    @given(quotas, quotas)
    def test_a_plan_leads_where_it_was_made_for_and_back(self, before: QuotaSnapshot, after: QuotaSnapshot) -> None:
        plan = made(before, after)
        status = plan.status(before)
        assert (status.pending, status.moved) == (plan.changes, ())
        reached = apply_changes(before, status.pending)
        assert bits(reached) == bits(after)
        assert plan.status(reached).pending == ()
        back = plan.reversed(reached)
        assert bits(apply_changes(reached, back.status(reached).pending)) == bits(before)

    @given(quotas, quotas, st.data())
    def test_cut_anywhere_the_rest_is_what_is_left(
        self, before: QuotaSnapshot, after: QuotaSnapshot, data: st.DataObject
    ) -> None:
        """An entity is changed as a whole; which ones were, when it ended, may be any. It can be undone then, too."""
        plan = made(before, after)
        done = data.draw(st.sets(st.sampled_from(plan.entities)) if plan.entities else st.just(set()))
        cut = apply_changes(before, [change for change in plan.changes if change.entity in done])
        status = plan.status(cut)
        assert status.moved == ()
        assert {change.entity for change in status.pending} == set(plan.entities) - done
        assert bits(apply_changes(cut, status.pending)) == bits(after)
        back = plan.reversed(cut).status(cut)
        assert back.moved == ()
        assert bits(apply_changes(cut, back.pending)) == bits(before)

    @given(quotas, quotas, quotas, st.booleans())
    def test_nothing_but_what_is_touched_changes(
        self, before: QuotaSnapshot, after: QuotaSnapshot, others: QuotaSnapshot, prune: bool
    ) -> None:
        """Entities that the plan does not touch may have become anything; they do not keep it from being taken."""
        plan = made(before, after, prune=prune)
        touched = set(plan.entities)
        moved_on = {
            **{entity: values for entity, values in others.items() if entity not in touched},
            **{entity: values for entity, values in before.items() if entity in touched},
        }
        status = plan.status(moved_on)
        assert status.moved == ()
        reached = apply_changes(moved_on, status.pending)
        assert bits({e: v for e, v in reached.items() if e not in touched}) == bits(
            {e: v for e, v in moved_on.items() if e not in touched}
        )
        for change in plan.changes:
            assert is_same_value(reached.get(change.entity, {}).get(change.key), change.after)

    @given(quotas, quotas, st.data())
    def test_a_value_that_moved_is_named(
        self, before: QuotaSnapshot, after: QuotaSnapshot, data: st.DataObject
    ) -> None:
        """On an entity that is touched, whether the plan changes that value or not; that entity is held back."""
        plan = made(before, after)
        assume(plan.entities)
        entity = data.draw(st.sampled_from(plan.entities))
        keys = [PRODUCE, CONSUME] if "ip" not in entity.entries else ["connection_creation_rate"]
        key, value = data.draw(st.sampled_from(keys)), data.draw(st.none() | st.integers(1, 10**9).map(float))
        was, planned = before.get(entity, {}).get(key), after.get(entity, {}).get(key)
        assume(not is_same_value(value, was))
        assume(not is_same_value(value, planned))
        current = apply_changes(before, [QuotaChange(entity, key, was, value)])
        status = plan.status(current)
        assert [(one.entity, one.key, one.found) for one in status.moved] == [(entity, key, value)]
        assert is_same_value(status.moved[0].expected, was)
        assert entity not in {change.entity for change in status.pending}
        assert plan.base != fingerprint(current, plan.entities)

    def test_what_somebody_else_set_to_the_planned_value_is_done(self) -> None:
        current = {**BEFORE, ALICE: {PRODUCE: 6.0, CONSUME: 9.0}}
        status = PLAN.status(current)
        assert status.moved == ()
        assert ALICE not in {change.entity for change in status.pending}

    def test_undoing_leaves_alone_what_the_plan_did_not_change(self) -> None:
        """A value set since on the same entity does not keep it from being undone; one that was changed again does."""
        now = {**AFTER, ALICE: {PRODUCE: 6.0, CONSUME: 10.0, "request_percentage": 1.0}, BOB: {PRODUCE: 8.0}}
        back = PLAN.reversed(now).status(now)
        assert back.moved == (Drift(BOB, PRODUCE, None, 8.0),)
        assert apply_changes(now, back.pending) == {
            ALICE: {PRODUCE: 5.0, CONSUME: 10.0, "request_percentage": 1.0},
            BOB: {PRODUCE: 8.0},
        }
        assert apply_changes(now, PLAN.reversed(now).onto(now))[BOB] == {PRODUCE: 7.0}

    @given(quotas, quotas)
    def test_a_plan_holds_its_changes_and_no_others(self, before: QuotaSnapshot, after: QuotaSnapshot) -> None:
        plan = made(before, after)
        assert plan.holds(difference(before, after, prune=True))
        assert plan.holds(read_plan(write_plan(plan), name="p.json").changes)
        assert not plan.holds([QuotaChange(ALICE, "no_such_key", None, 5.0)])
        if plan.changes:
            assert not made(before, before).holds(plan.changes)
            assert not plan.holds(plan.reversed(after).changes)


class TestBase:
    @given(quotas, quotas)
    def test_it_is_of_the_values_of_what_is_touched(self, before: QuotaSnapshot, after: QuotaSnapshot) -> None:
        """Whatever the order, and whatever else there is."""
        plan = made(before, after)
        assert plan.base == fingerprint(before, plan.entities)
        touched = {e: dict(reversed(list(before[e].items()))) for e in reversed(list(before)) if e in plan.entities}
        assert plan.base == fingerprint(touched, reversed(plan.entities))

    def test_it_is_the_same_for_ever(self) -> None:
        """Plans outlive the kquota that made them, and others may want to work it out."""
        text = """\
["user=alice", {"consumer_byte_rate": 9, "producer_byte_rate": 5}]
["user=bob", {"producer_byte_rate": 7}]
["user=<default>", {}]
"""
        assert PLAN.base == f"sha256:{sha256(text.encode()).hexdigest()}"


class TestJson:
    @given(quotas, quotas, st.booleans(), targets)
    def test_what_was_written_is_read(
        self, before: QuotaSnapshot, after: QuotaSnapshot, prune: bool, target: PlanTarget
    ) -> None:
        """Every legal name, and every double to the bit; the same text again."""
        plan = made(before, after, prune=prune, target=target)
        text = write_plan(plan)
        found = read_plan(text.encode(), name="p.json")
        assert found.target == plan.target
        assert [(one.entity, one.key) for one in found.changes] == [(one.entity, one.key) for one in plan.changes]
        assert bits(found.unchanged) == bits(plan.unchanged)
        for one, other in zip(found.changes, plan.changes, strict=True):
            for value, same in ((one.before, other.before), (one.after, other.after)):
                assert (value is None) == (same is None)
                if value is not None and same is not None:
                    assert struct.pack(">d", value) == struct.pack(">d", same)
        assert write_plan(found) == text
        assert is_plan(text.encode())

    def test_it_has_the_fields_that_are_documented(self) -> None:
        impacts = {(ALICE, PRODUCE): {"starts": 2, "throttled_share": 0.25, "unknowns": ["x"]}}
        trap = Finding("silences", Severity.WARNING, BOB, PRODUCE, "stands above others")
        plan = PLAN.with_impacts(impacts).with_warnings([trap, Finding("x", Severity.INFO, None, None, "of no change")])
        found = json.loads(write_plan(plan))
        assert (found["format"], found["target"]) == (1, {"id": "an-id", "name": "localhost:9092"})
        assert found["base"] == PLAN.base
        assert found["changes"] == [
            {
                "entity": {"user": "alice"},
                "key": PRODUCE,
                "before": 5,
                "after": 6,
                "impact": {"starts": 2, "throttled_share": 0.25, "unknowns": ["x"]},
                "traps": [],
            },
            {
                "entity": {"user": "bob"},
                "key": PRODUCE,
                "before": 7,
                "after": None,
                "impact": None,
                "traps": [
                    {
                        "rule": "silences",
                        "severity": "warning",
                        "entity": {"user": "bob"},
                        "key": PRODUCE,
                        "message": "stands above others",
                    }
                ],
            },
            {"entity": {"user": None}, "key": PRODUCE, "before": None, "after": "NaN", "impact": None, "traps": []},
        ]
        again = read_plan(write_plan(plan), name="p.json")
        assert again.changes[0].impact == impacts[ALICE, PRODUCE]
        assert again.changes[1].traps == (trap,)

    def test_how_it_is_laid_out_does_not_matter(self) -> None:
        """A plan that went through a formatter is the same plan."""
        text = json.dumps(json.loads(write_plan(PLAN)), indent=4, sort_keys=True)
        assert write_plan(read_plan(text, name="p.json")) == write_plan(PLAN)
        assert write_plan(read_plan("\ufeff" + text, name="p.json")) == write_plan(PLAN)

    @given(st.data())
    def test_cut_short_it_is_refused(self, data: st.DataObject) -> None:
        """Wherever; and it is still taken for a plan, not for a bad quota file, once the first field is there."""
        text = write_plan(PLAN).encode()
        cut = data.draw(st.integers(0, len(text) - 3))
        assert is_plan(text[:cut]) == (cut >= len(b'{"format":'))
        with pytest.raises(InputError, match=r"^p\.json: this is no plan, or it was cut short: line \d+, column \d+"):
            read_plan(text[:cut], name="p.json")

    @given(quotas, quotas, st.data())
    def test_changed_by_hand_it_is_refused(
        self, before: QuotaSnapshot, after: QuotaSnapshot, data: st.DataObject
    ) -> None:
        """Any value, name or field; with what to do instead."""
        fields = json.loads(write_plan(made(before, after)))
        changed = _changed(fields, data)
        assume(_plain(changed) != _plain(fields))
        with pytest.raises(InputError, match=r"^p\.json: .*(make a new one with kquota plan|reads format 1)"):
            read_plan(json.dumps(changed), name="p.json")

    @pytest.mark.parametrize(
        "text, reason",
        [
            ("", "this is no plan, or it was cut short"),
            ("[]", "this is no plan: an object"),
            ("{}", "it has no format"),
            ('{"format": 2}', "the plan has format 2, and this kquota reads format 1"),
            ('{"format": "1"}', "the plan has format '1'"),
            ('{"format": true}', "the plan has format True"),
            ('{"format": 1}', "base is missing"),
            ('{"format": 1, "format": 1}', "a field twice"),
            ('{"format": NaN}', "JSON has no NaN"),
            ("[" * 100_000, "this is no plan"),
            ('{"format": ' + "1" * 5_000 + "}", "this is no plan"),
            (b"\xff", "this is no plan"),
            (b"PK\x03\x04", "this is no plan"),
        ],
    )
    def test_what_is_no_plan_is_said(self, text: str | bytes, reason: str) -> None:
        with pytest.raises(InputError) as caught:
            read_plan(text, name="p.json")
        assert str(caught.value).startswith("p.json: ")
        assert reason in str(caught.value)

    @pytest.mark.parametrize(
        "path, value, reason",
        [
            (("extra",), 1, "extra is not known"),
            (("target",), "localhost", "target: an object is expected"),
            (("target", "id"), 5, "target: an id, or null, and a name are expected"),
            (("changes",), {}, "changes: a list is expected"),
            (("changes", 0), 5, "changes[0]: an object is expected"),
            (("changes", 0, "entity"), [], "changes[0].entity: an object of names"),
            (("changes", 0, "entity"), {"user": 5}, "changes[0].entity: an object of names"),
            (("changes", 0, "entity"), {"user": "\ud800"}, "changes[0].entity: "),
            (("changes", 0, "key"), "", "changes[0].key: text is expected"),
            (("changes", 0, "key"), "\ud800", "changes[0].key: text is expected"),
            (("changes", 0, "before"), True, "changes[0].before: a number"),
            (("changes", 0, "before"), "5", "changes[0].before: a number"),
            (("changes", 0, "after"), 10**400, "changes[0].after: a number"),
            (("changes", 0, "after"), 5, "changes[0]: it changes nothing"),
            (("changes", 0, "impact"), [], "changes[0].impact: an object or null"),
            (("changes", 0, "traps"), None, "changes[0].traps: a list"),
            (("changes", 0, "traps"), ["x"], "changes[0].traps[0]: an object"),
            (("changes", 1), {"entity": {"user": "alice"}, "key": PRODUCE, "before": 1, "after": 2, "impact": None,
              "traps": []}, "changes: a value is changed twice"),
            (("unchanged", 0, "entity"), {"user": "zoe"}, "unchanged[0]: an entity that is changed is expected"),
            (("unchanged", 0, "values"), {PRODUCE: 5}, f"unchanged[0].values.{PRODUCE}: a value that is not changed"),
            (("unchanged", 0, "values"), {CONSUME: None}, f"unchanged[0].values.{CONSUME}: a value that is not"),
            (("unchanged", 0, "values"), [], "unchanged[0].values: an object"),
        ],
    )  # fmt: skip
    def test_what_is_wrong_in_it_is_said(self, path: tuple[str | int, ...], value: object, reason: str) -> None:
        fields: Any = json.loads(write_plan(PLAN))
        node = fields
        for step in path[:-1]:
            node = node[step]
        node[path[-1]] = value
        with pytest.raises(InputError) as caught:
            read_plan(json.dumps(fields), name="p.json")
        assert str(caught.value).startswith("p.json: the plan is damaged: ")
        assert reason in str(caught.value)

    @given(st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
            st.sampled_from(["format", "target", "base", "changes", "unchanged", "checksum", "entity", "key", "x"]),
            inner, max_size=6,
        ),
    ))  # fmt: skip
    def test_any_json_is_a_plan_or_refused(self, node: object) -> None:
        """Never another error."""
        for text in (json.dumps(node), json.dumps({**json.loads(write_plan(PLAN)), "changes": node})):
            with pytest.raises(InputError):
                read_plan(text, name="p.json")

    @given(quotas)
    def test_a_quota_file_is_not_taken_for_a_plan(self, snapshot: QuotaSnapshot) -> None:
        file = QuotaFile.of(snapshot)
        wrapped = json.dumps({"quotas": json.loads(write_json(file))})
        for text in (write_json(file), write_yaml(file), wrapped):
            assert not is_plan(text.encode())


def _changed(fields: dict[str, Any], data: st.DataObject) -> dict[str, Any]:
    """With one thing put in, taken out, or set to something else of its kind."""
    copy: dict[str, Any] = json.loads(json.dumps(fields))
    changes = copy["changes"]
    kind = data.draw(
        st.sampled_from(["base", "checksum", "target", *(["after", "before", "name", "less"] if changes else [])])
    )
    index = data.draw(st.integers(0, len(changes) - 1)) if changes else 0
    match kind:
        case "base" | "checksum":
            copy[kind] = data.draw(st.none() | unicode_text)
        case "target":
            copy["target"]["id"] = data.draw(unicode_text)
        case "less":
            del changes[index]
        case "name":
            changes[index]["entity"] = data.draw(user_client_entities.map(lambda entity: dict(entity.entries)))
        case _:
            changes[index][kind] = data.draw(st.none() | st.integers(1, 10**12))
    return copy


def _plain(fields: Mapping[str, Any]) -> str:
    return json.dumps(fields, sort_keys=True)


def test_impact_and_traps_have_no_part_in_what_is_done() -> None:
    one = PlannedChange(ALICE, PRODUCE, 5.0, 6.0, {"newly_throttled": 1})
    assert Plan.of(HERE, BEFORE, [one]).holds([PlannedChange(ALICE, PRODUCE, 5.0, 6.0)])
