"""QuotaResolver: which rule binds a client, and what its usage is counted against (DefaultQuotaCallback)."""

import math
import pickle
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kquota.errors import IllegalArgumentError
from kquota.quotas import (
    CLIENT_ID,
    IP,
    KAFKA,
    STATIC,
    USER,
    Candidate,
    ClientQuotaEntity,
    MeterKey,
    QuotaResolver,
    QuotaSnapshot,
    ResolvedQuota,
)
from tests.kit.strategies import crowded_clients, crowded_entities, legal_names, snapshots

P, C, R, M = "producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate"

LEVELS = [
    ClientQuotaEntity({USER: "U", CLIENT_ID: "C"}),
    ClientQuotaEntity({USER: "U", CLIENT_ID: None}),
    ClientQuotaEntity({USER: "U"}),
    ClientQuotaEntity({USER: None, CLIENT_ID: "C"}),
    ClientQuotaEntity({USER: None, CLIENT_ID: None}),
    ClientQuotaEntity({USER: None}),
    ClientQuotaEntity({CLIENT_ID: "C"}),
    ClientQuotaEntity({CLIENT_ID: None}),
]
PAIR = MeterKey({USER: "U", CLIENT_ID: "C"})
OF_USER = MeterKey({USER: "U"})
OF_CLIENT = MeterKey({CLIENT_ID: "C"})
METERS = [PAIR, PAIR, OF_USER, PAIR, PAIR, OF_USER, OF_CLIENT, OF_CLIENT]


def quotas(*entries: tuple[Mapping[str, str | None], float], key: str = P) -> dict[ClientQuotaEntity, dict[str, float]]:
    return {ClientQuotaEntity(entity): {key: value} for entity, value in entries}


@pytest.mark.parametrize("first", range(8))
def test_precedence(first: int) -> None:
    """With levels n..8 set, level n binds, is metered as its tags say, and the levels below are overridden in order."""
    snapshot = {e: {P: float(i + 1)} for i, e in enumerate(LEVELS) if i >= first}
    assert QuotaResolver(snapshot).resolve_key(P, "U", "C") == ResolvedQuota(
        key=P,
        value=first + 1,
        source=LEVELS[first],
        level=first + 1,
        meter=METERS[first],
        overridden=tuple(Candidate(e, i + 1, i + 1.0) for i, e in enumerate(LEVELS) if i > first),
    )


@pytest.mark.parametrize("only", range(8))
def test_each_level_alone_binds(only: int) -> None:
    resolved = QuotaResolver({LEVELS[only]: {P: 7.0}}).resolve_key(P, "U", "C")
    assert resolved == (P, 7.0, LEVELS[only], only + 1, METERS[only], ())


def test_every_key_is_there_and_unlimited_without_quotas() -> None:
    resolved = QuotaResolver({}).resolve("U", "C")
    assert list(resolved) == [P, C, R, M]
    assert all(r == (key, None, None, None, None, ()) for key, r in resolved.items())


def test_keys_are_resolved_on_their_own() -> None:
    """A producer rate of a user does not hide a consumer rate of a client id."""
    snapshot = {ClientQuotaEntity({USER: "U"}): {P: 1.0}, ClientQuotaEntity({CLIENT_ID: "C"}): {P: 2.0, C: 3.0}}
    resolved = QuotaResolver(snapshot).resolve("U", "C")
    assert (resolved[P].value, resolved[P].level) == (1.0, 3)
    assert (resolved[C].value, resolved[C].level, resolved[C].meter) == (3.0, 7, OF_CLIENT)
    assert resolved[R].value is None


def test_upstream_precedence_walkthrough() -> None:
    """ClientQuotaManagerTest.testQuotaConfigPrecedence: the limits it expects, step by step."""
    set_at = dict[tuple[str | None, str | None], float]
    absent = ""

    def bound(state: set_at, user: str, client: str) -> float | None:
        snapshot = {
            ClientQuotaEntity({t: n for t, n in ((USER, u), (CLIENT_ID, c)) if n != absent}): {P: value}
            for (u, c), value in state.items()
        }
        return QuotaResolver(snapshot).resolve_key(P, user, client).value

    state: set_at = {
        (None, absent): 1000,
        (absent, None): 2000,
        (None, None): 3000,
        ("userA", absent): 4000,
        ("userA", "client1"): 5000,
        ("userB", absent): 6000,
        ("userB", "client1"): 7000,
        ("userB", None): 8000,
        ("userC", absent): 10000,
        (absent, "client1"): 9000,
    }
    for user, client, expected in [
        ("userA", "client1", 5000),
        ("userA", "client2", 4000),
        ("userA", "client3", 4000),
        ("userB", "client1", 7000),
        ("userB", "client2", 8000),
        ("userB", "client3", 8000),
        ("userD", "client1", 3000),
        ("userD", "client2", 3000),
        ("userE", "client1", 3000),
    ]:
        assert bound(state, user, client) == expected
    del state[None, None]
    assert [bound(state, *who) for who in (("userD", "client1"), ("userE", "client4"), ("userF", "client4"))] == [
        1000, 1000, 1000
    ]  # fmt: skip
    del state[None, absent]
    assert bound(state, "userF", "client4") == 2000
    assert bound(state, "userF", "client5") == 2000
    del state[absent, None]
    assert bound(state, "userF", "client4") is None
    assert bound(state, "userF", "client1") == 9000
    state["userA", "client6"] = 11000
    assert bound(state, "userA", "client6") == 11000
    state["userA", None] = 12000
    del state["userA", "client6"]
    assert bound(state, "userA", "client6") == 12000


@pytest.mark.parametrize("shape", [{USER}, {CLIENT_ID}, {USER, CLIENT_ID}])
def test_upstream_quota_parsing(shape: set[str]) -> None:
    """testClientIdQuotaParsing, testUserQuotaParsing, testUserClientIdQuotaParsing: overrides, then the default."""

    def named(user: str | None, client: str | None) -> ClientQuotaEntity:
        return ClientQuotaEntity({t: n for t, n in ((USER, user), (CLIENT_ID, client)) if t in shape})

    one, two = named("User1", "p1"), named("User2", "p2")
    resolver = QuotaResolver({one: {P: 2000.0}, two: {P: 4000.0}})
    assert resolver.resolve_key(P, "RandomUser", "random-client-id").value is None
    assert resolver.resolve_key(P, "User1", "p1").value == 2000
    assert resolver.resolve_key(P, "User2", "p2").value == 4000
    fallen_back = QuotaResolver({two: {P: 4000.0}, named(None, None): {P: 4000.0}})
    assert fallen_back.resolve_key(P, "User1", "p1").value == 4000


def test_kip_546_example_follows_the_rule_not_the_sample() -> None:
    """KIP-546's sample of --resolve swaps two values of its own sample of --describe.

    It prints consumer 2000000 from {user-two, my-client} and producer 500000 from the default user. By the rule, and
    with the quotas that it lists itself, user-two's own producer rate binds and its consumer rate is the default's.
    """
    two = ClientQuotaEntity({USER: "user-two", CLIENT_ID: "my-client"})
    default = ClientQuotaEntity({USER: None, CLIENT_ID: "my-client"})
    snapshot = {
        ClientQuotaEntity({USER: "user-one", CLIENT_ID: "my-client"}): {C: 4000000.0, P: 1000000.0},
        two: {P: 2000000.0},
        default: {C: 1000000.0, P: 500000.0},
    }
    resolved = QuotaResolver(snapshot).resolve("user-two", "my-client")
    assert resolved[P][1:4] == (2000000.0, two, 1)
    assert resolved[P].overridden == ((default, 4, 500000.0),)
    assert resolved[C][1:4] == (1000000.0, default, 4)


STATIC_DEFAULTS = {P: 100.0, C: 200.0}


def test_static_defaults_act_as_a_client_id_default_below_level_8() -> None:
    resolver = QuotaResolver({}, static_defaults=STATIC_DEFAULTS)
    resolved = resolver.resolve("U", "C")
    assert resolved[P] == (P, 100.0, STATIC, 9, OF_CLIENT, ())
    assert resolved[C] == (C, 200.0, STATIC, 9, OF_CLIENT, ())
    assert resolved[R].value is resolved[M].value is None
    with_default = QuotaResolver(quotas(({CLIENT_ID: None}, 5.0)), static_defaults=STATIC_DEFAULTS)
    assert with_default.resolve_key(P, "U", "C") == (P, 5.0, LEVELS[7], 8, OF_CLIENT, ((STATIC, 9, 100.0),))
    assert resolver.resolve_key(P, "U", "").value is None, "a client without a client id has no such default"
    assert str(STATIC) == STATIC.to_text() == "static"


def test_static_defaults_bind_clients_without_a_user() -> None:
    """They have a client id, and that is what a static default is metered by."""
    resolver = QuotaResolver(quotas(({CLIENT_ID: None}, 5.0)), static_defaults=STATIC_DEFAULTS)
    assert resolver.resolve_key(C, "", "C") == (C, 200.0, STATIC, 9, OF_CLIENT, ())
    assert resolver.resolve_key(P, "", "C") == (P, 5.0, LEVELS[7], 8, OF_CLIENT, ((STATIC, 9, 100.0),))


def test_static_defaults_set_the_client_id_bit() -> None:
    """With user quotas as well the walk decides: a user without one is metered by client id, not by user."""
    snapshot = quotas(({USER: "other"}, 5.0))
    assert QuotaResolver(snapshot).tags(P, "U", "C") == ("U", "")
    assert QuotaResolver(snapshot, static_defaults=STATIC_DEFAULTS).tags(P, "U", "C") == ("", "C")
    assert QuotaResolver(snapshot, static_defaults=STATIC_DEFAULTS).tags(R, "U", "C") == ("", "C")


def test_a_static_default_of_long_max_is_none() -> None:
    assert QuotaResolver({}, static_defaults={P: 2**63 - 1}).resolve_key(P, "U", "C").value is None


def test_only_the_two_byte_rates_have_static_defaults() -> None:
    with pytest.raises(IllegalArgumentError, match="request_percentage"):
        QuotaResolver({}, static_defaults={R: 1.0})


@pytest.mark.parametrize(
    "entries, tags",
    [
        ([], ("", "C")),
        ([{CLIENT_ID: "x"}], ("", "C")),
        ([{USER: "x"}], ("U", "")),
        ([{USER: None, CLIENT_ID: "x"}], ("U", "C")),
        ([{USER: "x"}, {CLIENT_ID: "x"}], ("", "C")),
        ([{USER: "x"}, {USER: "x", CLIENT_ID: "x"}], ("", "C")),
        ([{USER: "U"}, {USER: "x", CLIENT_ID: "x"}], ("U", "")),
        ([{USER: "x"}, {USER: "U", CLIENT_ID: None}], ("U", "C")),
        ([{USER: "x"}, {USER: None, CLIENT_ID: "C"}], ("U", "C")),
        ([{CLIENT_ID: "C"}, {USER: None}], ("U", "")),
        ([{CLIENT_ID: "C"}, {USER: None, CLIENT_ID: None}], ("U", "C")),
    ],
)
def test_tags_of_clients_with_and_without_rules(entries: list[dict[str, str | None]], tags: tuple[str, str]) -> None:
    """One kind of level in use decides by itself; several kinds are walked. They exist without a limit too."""
    snapshot = {ClientQuotaEntity(e): {P: 1.0} for e in entries}
    assert QuotaResolver(snapshot).tags(P, "U", "C") == tags
    assert QuotaResolver(snapshot).tags(C, "U", "C") == ("", "C"), "each key has its own mask"


@pytest.mark.parametrize(
    "user, client_id, entries, expected",
    [
        # no client id: defaults for client ids never bind
        ("U", "", [{CLIENT_ID: None}], None),
        ("U", "", [{USER: "U", CLIENT_ID: None}], None),
        ("U", "", [{USER: None, CLIENT_ID: None}], None),
        ("U", "", [{USER: "U", CLIENT_ID: None}, {USER: "U"}], {USER: "U"}),
        ("U", "", [{USER: "U", CLIENT_ID: None}, {USER: None}], {USER: None}),
        ("U", "", [{USER: None, CLIENT_ID: None}, {USER: None}, {CLIENT_ID: None}], {USER: None}),
        ("U", "", [{CLIENT_ID: None}, {USER: None}], {USER: None}),
        ("U", "", [{USER: "U"}, {USER: None}], {USER: "U"}),
        # no user: rules of users never bind, and a default user hides those of client ids
        ("", "C", [{USER: None}], None),
        ("", "C", [{USER: None, CLIENT_ID: None}], None),
        ("", "C", [{CLIENT_ID: "C"}], {CLIENT_ID: "C"}),
        ("", "C", [{CLIENT_ID: "C"}, {USER: None}], None),
        ("", "C", [{CLIENT_ID: "C"}, {USER: None}, {USER: None, CLIENT_ID: None}], {CLIENT_ID: "C"}),
        ("", "", [{USER: None}, {CLIENT_ID: None}, {USER: None, CLIENT_ID: None}], None),
    ],
)
def test_clients_without_a_half_of_their_identity(
    user: str, client_id: str, entries: list[dict[str, str | None]], expected: dict[str, str | None] | None
) -> None:
    """The tags of such a client are looked up in one group of levels only, without falling through."""
    snapshot = {ClientQuotaEntity(e): {P: 1.0} for e in entries}
    resolved = QuotaResolver(snapshot).resolve_key(P, user, client_id)
    assert resolved.source == (None if expected is None else ClientQuotaEntity(expected))
    if expected is not None:
        assert resolved.meter == MeterKey({USER: user, CLIENT_ID: client_id})


def test_only_rules_that_could_bind_are_overridden() -> None:
    """The defaults for client ids do not stand below the user's rule of a client without client id."""
    snapshot = {e: {P: float(i)} for i, e in enumerate(LEVELS)}
    resolved = QuotaResolver(snapshot, static_defaults=STATIC_DEFAULTS).resolve_key(P, "U", "")
    assert [candidate.level for candidate in resolved.overridden] == [6]


def test_unlimited_has_no_meter() -> None:
    """Also where Kafka would record its usage without limiting it."""
    assert QuotaResolver(quotas(({USER: "other"}, 1.0))).resolve_key(P, "U", "C").meter is None


def test_ips() -> None:
    key = "connection_creation_rate"
    snapshot = quotas(
        ({IP: "10.0.0.1"}, 10.0), ({IP: None}, 20.0), ({IP: "127.1"}, 3.0), ({IP: "0:0::1"}, 4.0), key=key
    )
    own, default = (ClientQuotaEntity({IP: name}) for name in ("10.0.0.1", None))
    resolver = QuotaResolver(snapshot)
    assert resolver.resolve("U", "C", "10.0.0.1")[key] == (
        key, 10.0, own, 1, MeterKey({IP: "10.0.0.1"}), ((default, 2, 20.0),)
    )  # fmt: skip
    assert resolver.resolve("U", "C", "10.0.0.2")[key] == (key, 20.0, default, 2, MeterKey({IP: "10.0.0.2"}), ())
    assert resolver.resolve("U", "C", "127.0.0.1")[key].value == 3.0, "addresses are compared as addresses"
    assert resolver.resolve("U", "C", "::1")[key].value == 4.0
    assert resolver.resolve("U", "C", "0:0:0:0:0:0:0:1")[key].meter == MeterKey({IP: "::1"})
    assert resolver.resolve("U", "C", "")[key].value is None
    assert key not in resolver.resolve("U", "C")
    assert QuotaResolver({}).resolve("U", "C", "10.0.0.1")[key] == (key, None, None, None, None, ())


def test_a_host_name_is_compared_as_text() -> None:
    key = "connection_creation_rate"
    resolver = QuotaResolver(quotas(({IP: "broker.example"}, 5.0), key=key))
    assert resolver.resolve("", "", "broker.example")[key].value == 5.0
    assert resolver.resolve("", "", "10.0.0.1")[key].value is None


def test_other_shapes_and_keys_are_left_aside() -> None:
    snapshot = {
        ClientQuotaEntity({}): {P: 1.0},
        ClientQuotaEntity({USER: "U", IP: "1.1.1.1"}): {P: 1.0},
        ClientQuotaEntity({"group": "g"}): {P: 1.0},
        ClientQuotaEntity({USER: "U"}): {"nonsense": 1.0, "connection_creation_rate": 1.0},
    }
    assert all(r.value is None for r in QuotaResolver(snapshot).resolve("U", "C", "1.1.1.1").values())


def test_a_key_of_a_registered_model_is_resolved() -> None:
    from dataclasses import replace

    extra = replace(KAFKA.keys[0], name="extra")
    model = replace(KAFKA, keys=(*KAFKA.keys, extra))
    resolver = QuotaResolver(quotas(({USER: None}, 5.0), key="extra"), model=model)
    assert resolver.resolve("U", "C")["extra"].value == 5.0


def test_nan_is_a_limit_like_any_other() -> None:
    assert math.isnan(QuotaResolver(quotas(({USER: "U"}, math.nan))).resolve_key(P, "U", "C").value or 0)


def test_answers_can_be_pickled() -> None:
    resolver = QuotaResolver(quotas(({USER: "U"}, 5.0)), static_defaults=STATIC_DEFAULTS)
    answer = resolver.resolve("U", "C", "1.1.1.1")
    assert pickle.loads(pickle.dumps(answer)) == answer
    assert pickle.loads(pickle.dumps(resolver)).resolve("U", "C", "1.1.1.1") == answer


# A second implementation, from the prose of the rules: lists and scans, no tables.

Rule = tuple[str | None, str | None]
ABSENT = "\x00absent"


def naive_resolve(
    snapshot: QuotaSnapshot, static: float | None, key: str, user: str, client: str
) -> tuple[tuple[str, str], list[tuple[int, float]]]:
    """(tags, the rules that could bind: level and value, in order). Two phases: tags, then the limits of the tags."""

    def value(user_part: str | None, client_part: str | None) -> float | None:
        for entity, values in snapshot.items():
            parts = (entity.entries.get(USER, ABSENT), entity.entries.get(CLIENT_ID, ABSENT))
            if parts == (user_part, client_part) and key in values:
                return values[key]
        return None

    def shape(entity: ClientQuotaEntity) -> str:
        return "+".join(sorted(entity.entries))

    kinds = {shape(entity) for entity, values in snapshot.items() if key in values}
    if static is not None:
        kinds.add("client-id")
    walk: list[tuple[Rule, tuple[str, str]]] = [
        ((user, client), (user, client)),
        ((user, None), (user, client)),
        ((user, ABSENT), (user, "")),
        ((None, client), (user, client)),
        ((None, None), (user, client)),
        ((None, ABSENT), (user, "")),
    ]
    if kinds <= {"client-id"}:
        tags = ("", client)
    elif kinds == {"user"}:
        tags = (user, "")
    elif kinds == {"client-id+user"}:
        tags = (user, client)
    else:
        tags = next((t for rule, t in walk if value(*rule) is not None), ("", client))

    groups: dict[tuple[bool, bool], list[tuple[int, Rule]]] = {
        (True, True): [(1, (user, client)), (2, (user, None)), (4, (None, client)), (5, (None, None))],
        (True, False): [(3, (user, ABSENT)), (6, (None, ABSENT))],
        (False, True): [(7, (ABSENT, client)), (8, (ABSENT, None))],
        (False, False): [],
    }
    hits = [(level, v) for level, rule in groups[bool(tags[0]), bool(tags[1])] if (v := value(*rule)) is not None]
    if static is not None and (bool(tags[0]), bool(tags[1])) == (False, True):
        hits.append((9, static))
    return tags, hits


static_values = st.sampled_from([None, 1000.0])


@given(snapshots(crowded_entities, max_size=10), crowded_clients, static_values)
def test_the_resolver_equals_a_naive_one(
    snapshot: dict[ClientQuotaEntity, dict[str, float]], client: tuple[str, str], static: float | None
) -> None:
    defaults = {} if static is None else {P: static, C: static}
    resolver = QuotaResolver(snapshot, static_defaults=defaults)
    for key, resolved in resolver.resolve(*client).items():
        tags, hits = naive_resolve(snapshot, defaults.get(key), key, *client)
        assert resolver.tags(key, *client) == tags
        assert resolver.resolve_key(key, *client) == resolved
        if not hits:
            assert resolved == (key, None, None, None, None, ())
            continue
        assert (resolved.level, repr(resolved.value)) == (hits[0][0], repr(hits[0][1]))
        assert resolved.meter == MeterKey({USER: tags[0], CLIENT_ID: tags[1]})
        overridden = [(rule.level, repr(rule.value)) for rule in resolved.overridden]
        if not all(client):
            assert overridden == [(level, repr(v)) for level, v in hits[1:]]


changes = st.tuples(st.sampled_from([P, C]), crowded_entities, st.sampled_from([None, 5.0, 7.0]))


@given(snapshots(crowded_entities, max_size=10), st.lists(changes, max_size=10), crowded_clients, static_values)
def test_a_resolver_that_is_updated_equals_one_that_is_made_anew(
    snapshot: dict[ClientQuotaEntity, dict[str, float]],
    some: list[tuple[str, ClientQuotaEntity, float | None]],
    client: tuple[str, str],
    static: float | None,
) -> None:
    defaults = {} if static is None else {P: static}
    updated = QuotaResolver(snapshot, static_defaults=defaults)
    now = {entity: dict(values) for entity, values in snapshot.items()}
    # Each that is there is removed in the end, so that levels become empty as well.
    for key, entity, value in [*some, *((key, entity, None) for entity in snapshot for key in (P, C, R, M))]:
        if IP in entity.entries:
            continue
        updated.update(key, entity, value)
        if value is None:
            now.get(entity, {}).pop(key, None)
        else:
            now.setdefault(entity, {})[key] = value
        anew = QuotaResolver(now, static_defaults=defaults)
        for each in (P, C, R, M):
            tags = anew.tags(each, *client)
            assert updated.tags(each, *client) == tags
            assert repr(updated.rule_of_tags(each, *tags)) == repr(anew.rule_of_tags(each, *tags))
            assert repr(updated.resolve_key(each, *client)) == repr(anew.resolve_key(each, *client))
            assert updated.is_used(each) == anew.is_used(each)


def test_an_update_of_an_entity_without_users_and_client_ids_is_left_aside() -> None:
    resolver = QuotaResolver({})
    for entity in ({}, {IP: "1.1.1.1"}, {USER: "U", IP: "1.1.1.1"}):
        resolver.update(P, ClientQuotaEntity(entity), 5.0)
    assert not resolver.is_used(P)
    with pytest.raises(KeyError):
        resolver.update("connection_creation_rate", ClientQuotaEntity({USER: "U"}), 5.0)


@given(snapshots(crowded_entities, max_size=10), crowded_clients, static_values)
def test_overridden_rules_bind_in_turn_when_those_above_are_removed(
    snapshot: dict[ClientQuotaEntity, dict[str, float]], client: tuple[str, str], static: float | None
) -> None:
    """Taking the winner away makes the first overridden rule the winner, until none is left."""
    defaults = {} if static is None else {P: static}
    user, client_id = client
    if not user:
        return  # a client without user: removing a rule can change the group of levels that is asked
    left = {entity: dict(values) for entity, values in snapshot.items()}
    resolved = QuotaResolver(left, static_defaults=defaults).resolve_key(P, user, client_id)
    while isinstance(resolved.source, ClientQuotaEntity):
        del left[resolved.source][P]
        following = QuotaResolver(left, static_defaults=defaults).resolve_key(P, user, client_id)
        if resolved.overridden:
            assert repr((following.source, following.level, following.value)) == repr(tuple(resolved.overridden[0]))
            assert repr(following.overridden) == repr(resolved.overridden[1:])
        else:
            assert following.value is None
        resolved = following


@given(st.lists(st.tuples(legal_names, legal_names), min_size=1, max_size=5, unique=True))
def test_any_legal_name_is_matched_exactly(clients: list[tuple[str, str]]) -> None:
    snapshot = {ClientQuotaEntity({USER: u, CLIENT_ID: c}): {P: i + 1.0} for i, (u, c) in enumerate(clients)}
    resolver = QuotaResolver(snapshot)
    for i, (user, client_id) in enumerate(clients):
        assert resolver.resolve_key(P, user, client_id).value == i + 1.0
        assert resolver.resolve_key(P, user + "x" * 20, client_id).value is None
