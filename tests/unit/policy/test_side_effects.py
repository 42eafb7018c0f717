"""What a change brings beside what it says, held against the resolver."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kquota.policy import Severity, side_effects
from kquota.quotas import CLIENT_ID, USER, ClientQuotaEntity, QuotaResolver
from tests.kit.strategies import FEW_NAMES, crowded_entities, snapshots

KEY = "producer_byte_rate"
USERS = [*FEW_NAMES, "other"]
CLIENT_IDS = [*USERS, ""]

Told = set[tuple[str, str]]


def quotas(text: str) -> dict[ClientQuotaEntity, dict[str, float]]:
    return {ClientQuotaEntity.from_text(rule): {KEY: 1000.0} for rule in text.split()}


def told(before: str, after: str) -> Told:
    """(trap, entity) of each."""
    findings = side_effects(quotas(before), quotas(after))
    assert all(one.key == KEY for one in findings)
    return {(one.rule, one.entity.to_text() if one.entity else "") for one in findings}


@pytest.mark.parametrize(
    "before, after, expected",
    [
        ("", "", set()),
        ("user=a", "user=a", set()),
        # The first default of users: nobody meets the client ids any more.
        ("client-id=etl", "client-id=etl user=<default>", {
            ("silences", "user=<default>"), ("binds-everyone", "user=<default>"),
        }),
        (
            "client-id=etl client-id=<default>",
            "client-id=etl client-id=<default> user=<default>",
            {("silences", "user=<default>"), ("moves-meters", "user=<default>")},
        ),
        (
            "client-id=etl",
            "client-id=etl user=<default>,client-id=etl",
            {("silences", "user=<default>,client-id=etl"), ("moves-meters", "user=<default>,client-id=etl")},
        ),
        ("user=a", "user=a user=a,client-id=<default>", {
            ("silences", "user=a,client-id=<default>"), ("moves-meters", "user=a,client-id=<default>"),
        }),
        # The first rule of a user, beside rules of client ids: counted per user from now on.
        ("client-id=<default>", "client-id=<default> user=a", {("moves-meters", "user=a")}),
        ("client-id=etl", "client-id=etl user=a", set()),
        ("client-id=<default> user=a", "client-id=<default>", {("moves-meters", "user=a")}),
        # The same meters, other rules.
        ("user=<default>", "user=<default> user=a", set()),
        ("user=a", "user=<default>", {("binds-everyone", "user=<default>")}),
        ("user=<default>,client-id=<default>", "user=<default>,client-id=<default> user=a,client-id=b", set()),
        # A limit that goes.
        ("user=a", "", {("lifts-limit", "user=a")}),
        ("user=<default>", "", {("lifts-limit", "user=<default>")}),
        ("user=<default> user=a", "user=a", {("lifts-limit", "user=<default>")}),
        ("user=<default> user=a", "user=<default>", set()),
        ("user=<default> client-id=etl", "user=<default>", set()),
        # In vain from the start.
        ("user=<default>", "user=<default> client-id=etl", {("unreachable", "client-id=etl")}),
        ("user=a,client-id=<default>", "user=a,client-id=<default> user=a", {("overridden", "user=a")}),
        ("", "client-id=<default>", {("binds-everyone", "client-id=<default>")}),
    ],
)  # fmt: skip
def test_traps(before: str, after: str, expected: Told) -> None:
    assert told(before, after) == expected


def test_what_is_said_about_rules_that_fall_silent() -> None:
    before = quotas("client-id=a client-id=b client-id=c client-id=d")
    after = before | quotas("user=<default>")
    silences, everyone = sorted(side_effects(before, after), key=lambda one: one.rule, reverse=True)
    assert silences.severity is Severity.WARNING
    assert silences.message.startswith(
        "takes precedence over client-id=a; client-id=b; client-id=c and 1 more, which bind nobody from now on"
    )
    assert everyone.severity is Severity.INFO
    assert "ANONYMOUS" in everyone.message


def test_what_is_said_about_other_meters() -> None:
    (one,) = side_effects(quotas("client-id=<default>"), quotas("client-id=<default> user=a"))
    assert one.severity is Severity.INFO
    assert one.message.endswith(
        "which start empty: all clients of a user together; so far a client id together, whichever user has it"
    )


def test_keys_are_looked_at_apart_and_addresses_not_at_all() -> None:
    client_id, everyone = ClientQuotaEntity({CLIENT_ID: "etl"}), ClientQuotaEntity({USER: None})
    before = {client_id: {KEY: 1.0}}
    assert (
        side_effects(before, {client_id: {KEY: 1.0}, everyone: {"consumer_byte_rate": 1.0}})[0].rule == "binds-everyone"
    )
    ip = ClientQuotaEntity({"ip": None})
    assert side_effects({}, {ip: {"connection_creation_rate": 5.0}}) == ()


rules = st.sets(crowded_entities, max_size=6)


@given(rules, rules)
def test_a_rule_falls_silent_exactly_where_the_resolver_gives_it_nobody_any_more(
    before: set[ClientQuotaEntity], after: set[ClientQuotaEntity]
) -> None:
    was, now = ({rule: {KEY: 1.0} for rule in given_rules} for given_rules in (before, after))
    resolver_was, resolver_now = QuotaResolver(was), QuotaResolver(now)

    def bound(rule: ClientQuotaEntity, resolver: QuotaResolver) -> set[tuple[str, str]]:
        return {
            (user, client_id)
            for user in USERS
            for client_id in CLIENT_IDS
            if resolver.resolve_key(KEY, user, client_id).source == rule and client_id
        }

    silent = {rule for rule in before & after if bound(rule, resolver_was) and not bound(rule, resolver_now)}
    findings = side_effects(was, now)
    causes = {one.entity for one in findings if one.rule == "silences"}
    assert bool(causes) == bool(silent)
    assert causes <= after - before
    assert all(any(rule.to_text() in one.message for one in findings) for rule in sorted(silent, key=str)[:1])
    in_vain = {one.entity for one in findings if one.rule == "unreachable"}
    assert in_vain == {rule for rule in after - before if not bound(rule, resolver_now) and USER not in rule.entries}


@given(rules, rules)
def test_what_is_told_of_limits_and_meters_happens_to_somebody(
    before: set[ClientQuotaEntity], after: set[ClientQuotaEntity]
) -> None:
    was, now = (QuotaResolver({rule: {KEY: 1.0} for rule in given_rules}) for given_rules in (before, after))
    pairs = [
        (was.resolve_key(KEY, user, client_id), now.resolve_key(KEY, user, client_id))
        for user in USERS
        for client_id in CLIENT_IDS
    ]
    for one in side_effects({rule: {KEY: 1.0} for rule in before}, {rule: {KEY: 1.0} for rule in after}):
        if one.rule == "lifts-limit":
            assert any(old.source == one.entity and new.source is None for old, new in pairs)
        elif one.rule == "binds-everyone":
            assert any(old.source is None and new.source == one.entity for old, new in pairs)
        elif one.rule == "moves-meters":
            moved = [(old, new) for old, new in pairs if old.meter and new.meter and old.meter != new.meter]
            assert any(one.entity in (old.source, new.source) for old, new in moved)


@given(rules)
def test_whoever_loses_the_only_limit_is_told(before: set[ClientQuotaEntity]) -> None:
    """Each rule in turn is removed: somebody whom no rule names has no limit then, or there is nothing to tell."""
    for rule in before:
        was = {other: {KEY: 1.0} for other in before}
        now = {other: {KEY: 1.0} for other in before - {rule}}
        user, client_id = rule.entries.get(USER) or "other", rule.entries.get(CLIENT_ID) or "other"
        # Clients without a client id count only where the rule binds nobody else.
        bound = [one for one in (client_id, "") if QuotaResolver(was).resolve_key(KEY, user, one).source == rule]
        lost = bool(bound) and QuotaResolver(now).resolve_key(KEY, user, bound[0]).source is None
        found = {one.rule for one in side_effects(was, now) if one.entity == rule}
        assert ("lifts-limit" in found) == lost


@given(snapshots(), snapshots())
def test_any_change_can_be_looked_at(
    before: dict[ClientQuotaEntity, dict[str, float]], after: dict[ClientQuotaEntity, dict[str, float]]
) -> None:
    assert side_effects(before, before) == ()
    for one in side_effects(before, after):
        assert one.entity in before or one.entity in after
        assert one.message


def test_a_limit_that_becomes_nan_is_told() -> None:
    """Once: where it was NaN before, it is no change."""
    user, other = (ClientQuotaEntity({USER: name}) for name in "ab")
    before = {user: {KEY: 5.0}, other: {KEY: math.nan}}
    after = {user: {KEY: math.nan}, other: {KEY: math.nan}}
    assert [(one.rule, one.entity, one.key, one.severity) for one in side_effects(before, after)] == [
        ("nan-limit", user, KEY, Severity.WARNING)
    ]
    assert side_effects(after, before) == side_effects(before, before) == ()
    assert "nan-limit" in {one.rule for one in side_effects({}, after)}
