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
from kquota.files import dump_json, write_json, write_yaml
from kquota.files.quota_file import QuotaFile
from kquota.policy import (
    Drift,
    Finding,
    Impact,
    Plan,
    PlannedChange,
    PlanTarget,
    Severity,
    difference,
    is_plan,
    read_plan,
    side_effects,
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
impacts = st.builds(
    Impact,
    *[
        st.floats() if kind == "float" else st.integers(0, 2**53)
        for kind in ("float", "float", "int", "float", "float", "float", "int")
    ],
)


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
IMPACT = Impact(
    throttled_share=0.25,
    max_delay_ms=1500.5,
    throttled_requests=7,
    total_delay_ms=9e3,
    amount_old=5e6,
    amount_new=4e6,
    meters=3,
    newly_throttled=2,
    newly_throttled_meters=("user=a", "user=b"),
    unknowns=("x",),
)
AS_MADE = "this is not the plan that was made: it was changed by hand"
IMPACT_FIELDS: dict[str, Any] = {
    "throttled_share": 0.25,
    "max_delay_ms": 1500.5,
    "throttled_requests": 7,
    "total_delay_ms": 9000,
    "amount_old": 5000000,
    "amount_new": 4000000,
    "meters": 3,
    "newly_throttled": 2,
    "no_longer_throttled": 0,
    "taken_over": 0,
    "newly_throttled_meters": ["user=a", "user=b"],
    "no_longer_throttled_meters": [],
    "taken_over_meters": [],
    "unknowns": ["x"],
}


def checksum(fields: dict[str, Any]) -> str:
    """As docs/plans.md has it: of all fields, however they are laid out."""

    def in_order(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: in_order(value[name]) for name in sorted(value)}
        return [in_order(one) for one in value] if isinstance(value, list) else value

    return f"sha256:{sha256(dump_json(in_order(fields)).encode('utf-8', 'surrogatepass')).hexdigest()}"


class TestCarriedOut:
    @given(quotas, quotas)
    def test_a_plan_leads_where_it_was_made_for_and_back(self, before: QuotaSnapshot, after: QuotaSnapshot) -> None:
        plan = made(before, after)
        status = plan.status(before)
        assert (status.pending, status.drifted) == (plan.changes, ())
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
        assert status.drifted == ()
        assert {change.entity for change in status.pending} == set(plan.entities) - done
        assert bits(apply_changes(cut, status.pending)) == bits(after)
        back = plan.reversed(cut).status(cut)
        assert back.drifted == ()
        assert bits(apply_changes(cut, back.pending)) == bits(before)

    @given(quotas, quotas, quotas, st.booleans())
    def test_nothing_but_what_is_touched_changes(
        self, before: QuotaSnapshot, after: QuotaSnapshot, others: QuotaSnapshot, prune: bool
    ) -> None:
        """Entities that the plan does not touch may have become anything; they do not keep it from being taken."""
        plan = made(before, after, prune=prune)
        touched = set(plan.entities)
        now = {
            **{entity: values for entity, values in others.items() if entity not in touched},
            **{entity: values for entity, values in before.items() if entity in touched},
        }
        status = plan.status(now)
        assert status.drifted == ()
        reached = apply_changes(now, status.pending)
        assert bits({e: v for e, v in reached.items() if e not in touched}) == bits(
            {e: v for e, v in now.items() if e not in touched}
        )
        for change in plan.changes:
            assert is_same_value(reached.get(change.entity, {}).get(change.key), change.after)

    @given(quotas, quotas, st.data())
    def test_a_value_that_drifted_is_named(
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
        assert [(one.entity, one.key, one.found) for one in status.drifted] == [(entity, key, value)]
        assert is_same_value(status.drifted[0].expected, was)
        assert entity not in {change.entity for change in status.pending}
        assert plan.base != fingerprint(current, plan.entities)

    def test_what_somebody_else_set_to_the_planned_value_is_done(self) -> None:
        current = {**BEFORE, ALICE: {PRODUCE: 6.0, CONSUME: 9.0}}
        status = PLAN.status(current)
        assert status.drifted == ()
        assert ALICE not in {change.entity for change in status.pending}

    def test_undoing_leaves_alone_what_the_plan_did_not_change(self) -> None:
        """A value set since on the same entity does not keep it from being undone; one that was changed again does."""
        now = {**AFTER, ALICE: {PRODUCE: 6.0, CONSUME: 10.0, "request_percentage": 1.0}, BOB: {PRODUCE: 8.0}}
        back = PLAN.reversed(now).status(now)
        assert back.drifted == (Drift(BOB, PRODUCE, None, 8.0),)
        assert apply_changes(now, back.pending) == {
            ALICE: {PRODUCE: 5.0, CONSUME: 10.0, "request_percentage": 1.0},
            BOB: {PRODUCE: 8.0},
        }
        assert apply_changes(now, PLAN.reversed(now).onto(now))[BOB] == {PRODUCE: 7.0}

    @given(quotas, quotas)
    def test_a_plan_includes_its_changes_and_no_others(self, before: QuotaSnapshot, after: QuotaSnapshot) -> None:
        plan = made(before, after)
        assert plan.includes(difference(before, after, prune=True))
        assert plan.includes(read_plan(write_plan(plan), name="p.json").changes)
        assert not plan.includes([QuotaChange(ALICE, "no_such_key", None, 5.0)])
        if plan.changes:
            assert not made(before, before).includes(plan.changes)
            assert not plan.includes(plan.reversed(after).changes)


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
        fields = json.loads(text)
        assert fields.pop("checksum") == checksum(fields)

    def test_it_has_the_fields_that_are_documented(self) -> None:
        impacts = {(ALICE, PRODUCE): IMPACT}
        warning = Finding("silences", Severity.WARNING, BOB, PRODUCE, "takes precedence over others")
        plan = PLAN.with_impacts(impacts).with_warnings(
            [warning, Finding("x", Severity.INFO, None, None, "of no change")]
        )
        found = json.loads(write_plan(plan))
        assert (found["format"], found["target"]) == (2, {"id": "an-id", "name": "localhost:9092"})
        assert found["base"] == PLAN.base
        assert found["changes"] == [
            {
                "entity": {"user": "alice"},
                "key": PRODUCE,
                "before": 5,
                "after": 6,
                "impact": IMPACT_FIELDS,
                "warnings": [],
            },
            {
                "entity": {"user": "bob"},
                "key": PRODUCE,
                "before": 7,
                "after": None,
                "impact": None,
                "warnings": [
                    {
                        "rule": "silences",
                        "severity": "warning",
                        "entity": {"user": "bob"},
                        "key": PRODUCE,
                        "message": "takes precedence over others",
                    }
                ],
            },
            {"entity": {"user": None}, "key": PRODUCE, "before": None, "after": "NaN", "impact": None, "warnings": []},
        ]
        again = read_plan(write_plan(plan), name="p.json")
        assert again.changes[0].impact == IMPACT
        assert again.changes[1].warnings == (warning,)

    @given(impacts)
    def test_an_impact_is_read_as_it_was_written(self, impact: Impact) -> None:
        """Also where a figure is no number that JSON has."""
        plan = PLAN.with_impacts({(ALICE, PRODUCE): impact})
        (found, *others) = read_plan(write_plan(plan), name="p.json").changes
        assert (str(found.impact), {one.impact for one in others}) == (str(impact), {None})

    def test_a_figure_of_an_impact_that_was_changed_by_hand_is_refused(self) -> None:
        text = write_plan(PLAN.with_impacts({(ALICE, PRODUCE): IMPACT}))
        assert '"meters": 3' in text
        with pytest.raises(InputError, match="changed by hand"):
            read_plan(text.replace('"meters": 3', '"meters": 4'), name="p.json")

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
            ('{"format": 1}', "the plan has format 1, and this kquota reads format 2"),
            ('{"format": "1"}', "the plan has format '1'"),
            ('{"format": true}', "the plan has format True"),
            ('{"format": 2}', "Object missing required field `target`"),
            ('{"format": 2, "format": 2}', "a field twice"),
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
            (("extra",), 1, AS_MADE),
            (("extra",), 10**400, AS_MADE),
            (("target",), "localhost", "Expected `object`, got `str` - at `$.target`"),
            (("target", "id"), 5, "Expected `str | null`, got `int` - at `$.target.id`"),
            (("target", "more"), "x", AS_MADE),
            (("base",), "sha256:0", AS_MADE),
            (("changes",), {}, "Expected `array`, got `object` - at `$.changes`"),
            (("changes", 0), 5, "Expected `object`, got `int` - at `$.changes[0]`"),
            (("changes", 0, "entity"), [], "an object of names is expected - at `$.changes[0].entity`"),
            (("changes", 0, "entity"), {"user": 5}, "the name of user must be text, not 5 - at `$.changes[0].entity`"),
            (("changes", 0, "entity"), {"user": "\ud800"}, "half a surrogate pair and cannot be sent"),
            (("changes", 0, "key"), "", "changes: a key is expected"),
            (("changes", 0, "key"), 5, "Expected `str`, got `int` - at `$.changes[0].key`"),
            (("changes", 0, "key"), "\ud800", "the key of a change holds half a surrogate pair"),
            (("changes", 0, "before"), True, "Expected `float | null`, got `bool` - at `$.changes[0].before`"),
            (("changes", 0, "before"), "5", AS_MADE),
            (("changes", 0, "before"), "five", "Expected `float | null`, got `str` - at `$.changes[0].before`"),
            (("changes", 0, "after"), 10**400, "Number out of range - at `$.changes[0].after`"),
            (("changes", 0, "after"), 5, "changes: a value does not change"),
            (("changes", 0, "impact"), [], "Expected `object | null`, got `array` - at `$.changes[0].impact`"),
            (("changes", 0, "impact"), {**IMPACT_FIELDS, "more": 1}, AS_MADE),
            (("changes", 0, "impact"), {**IMPACT_FIELDS, "meters": "x"}, "got `str` - at `$.changes[0].impact.meters`"),
            (("changes", 0, "impact"), {"meters": 1}, "Object missing required field `throttled_share`"),
            (("changes", 0, "warnings"), None, "Expected `array`, got `null` - at `$.changes[0].warnings`"),
            (("changes", 0, "warnings"), ["x"], "Expected `object`, got `str` - at `$.changes[0].warnings[0]`"),
            (("changes", 1), {"entity": {"user": "alice"}, "key": PRODUCE, "before": 1, "after": 2, "impact": None,
              "warnings": []}, "changes: a value is changed twice"),
            (("unchanged", 0, "entity"), {"user": "zoe"}, "unchanged: other values of the entities that are changed"),
            (("unchanged", 0, "values"), {PRODUCE: 5}, "unchanged: other values of the entities that are changed"),
            (("unchanged", 0, "values"), {CONSUME: None}, "Expected `float`, got `null` - at `$.unchanged[0].values"),
            (("unchanged", 0, "values"), [], "Expected `object`, got `array` - at `$.unchanged[0].values`"),
            (("unchanged", 1), {"entity": {"user": "alice"}, "values": {}}, AS_MADE),
        ],
    )  # fmt: skip
    @pytest.mark.parametrize("is_resealed", [False, True])
    def test_what_is_wrong_in_it_is_said(
        self, path: tuple[str | int, ...], value: object, reason: str, is_resealed: bool
    ) -> None:
        """Also where somebody has worked out a checksum that goes with it."""
        fields: Any = json.loads(write_plan(PLAN))
        node = fields
        for step in path[:-1]:
            node = node[step]
        if path == ("unchanged", 1):
            node.append(value)
        else:
            node[path[-1]] = value
        if is_resealed:
            fields["checksum"] = checksum({name: one for name, one in fields.items() if name != "checksum"})
        with pytest.raises(InputError) as caught:
            read_plan(json.dumps(fields), name="p.json")
        assert str(caught.value).startswith("p.json: ")
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
    one = PlannedChange(ALICE, PRODUCE, 5.0, 6.0, IMPACT)
    assert Plan.of(HERE, BEFORE, [one]).includes([PlannedChange(ALICE, PRODUCE, 5.0, 6.0)])


def test_entities_whose_impact_does_most_harm_come_first() -> None:
    """By the worst of their changes; without impacts, and where impacts are equal, in order."""
    dave = ClientQuotaEntity({"user": "dave"})
    before: QuotaSnapshot = {entity: {PRODUCE: 5.0, CONSUME: 5.0} for entity in (ALICE, BOB, dave)}
    plan = made(before, {entity: {PRODUCE: 6.0, CONSUME: 6.0} for entity in before})
    assert [[one.entity for one in own] for own in plan.by_entity()] == [[ALICE] * 2, [BOB] * 2, [dave] * 2]
    mild, bad = Impact(0.5, 9.0, 9, 9.0, 1.0, 1.0, 1), Impact(0.1, 1.0, 1, 1.0, 1.0, 1.0, 1, newly_throttled=1)
    judged = plan.with_impacts({(ALICE, PRODUCE): mild, (BOB, CONSUME): mild, (dave, CONSUME): bad})
    assert [own[0].entity for own in judged.by_entity()] == [dave, ALICE, BOB]
    assert [one.key for one in judged.by_entity()[0]] == [CONSUME, PRODUCE]


@given(quotas, quotas, st.booleans())
def test_a_plan_between_two_states_has_their_difference_and_its_side_effects(
    before: QuotaSnapshot, after: QuotaSnapshot, prune: bool
) -> None:
    plan = Plan.between(HERE, before, after, prune=prune)
    assert plan.includes(difference(before, after, prune=prune))
    assert len(plan.changes) == len(difference(before, after, prune=prune))
    reached = apply_changes(before, plan.changes)
    changed = {(change.entity, change.key) for change in plan.changes}
    found = [one for change in plan.changes for one in change.warnings]
    expected = [one for one in side_effects(before, reached) if (one.entity, one.key) in changed]
    assert sorted(found, key=str) == sorted(expected, key=str)
