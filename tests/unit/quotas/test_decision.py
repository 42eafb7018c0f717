"""``decide``: Kafka's validation rules, messages and order (ClientQuotaControlManager)."""

import math
import pickle
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kquota.errors import ApiError, IllegalArgumentError
from kquota.quotas import (
    CLIENT_ID,
    CONNECTION_CREATION_RATE,
    IP,
    KAFKA,
    USER,
    ClientQuotaAlteration,
    ClientQuotaEntity,
    Decision,
    QuotaChange,
    QuotaKey,
    QuotaModel,
    QuotaSnapshot,
    ValueType,
    decide,
)
from tests.kit.strategies import entities, quotas_of, snapshots

Op = ClientQuotaAlteration.Op
ALICE = ClientQuotaEntity({USER: "alice"})
BOB = ClientQuotaEntity({USER: "bob"})
IP_DEFAULT = ClientQuotaEntity({IP: None})

PRODUCE = "producer_byte_rate"
OWN_KEYS = {"producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate"}


def alteration(entries: Mapping[str, str | None], **values: float | None) -> ClientQuotaAlteration:
    return ClientQuotaAlteration(ClientQuotaEntity(entries), [Op(key, value) for key, value in values.items()])


def refusal(
    entries: dict[str, str | None], ops: dict[str, float | None] | None = None, snapshot: QuotaSnapshot | None = None
) -> ApiError | None:
    """The result of one alteration; what is refused must not change anything."""
    decision = decide(snapshot or {}, [alteration(entries, **(ops if ops is not None else {"producer_byte_rate": 1}))])
    (result,) = decision.results.values()
    if result is not None:
        assert decision.changes == ()
        assert not decision.accepted
    return result


INVALID_IP = "{} is not a valid IP or resolvable host."
LONG = "\ufffd" * 10_923
COMBINATION = "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId"


@pytest.mark.parametrize(
    "entries, message",
    [
        ({}, "Invalid empty client quota entity"),
        ({"foo": "a"}, "Unhandled client quota entity type: foo"),
        ({"": "a"}, "Unhandled client quota entity type: "),
        ({"User": "a"}, "Unhandled client quota entity type: User"),
        ({USER: "a", "foo": "b"}, "Unhandled client quota entity type: foo"),
        ({"foo": "b", IP: "1.1.1.1"}, "Unhandled client quota entity type: foo"),
        ({USER: ""}, "Empty user not supported"),
        ({CLIENT_ID: ""}, "Empty client-id not supported"),
        ({IP: ""}, "Empty ip not supported"),
        ({USER: "a", CLIENT_ID: ""}, "Empty client-id not supported"),
        ({USER: "", CLIENT_ID: ""}, "Empty client-id not supported"),
        ({USER: "", "foo": "x"}, "Empty user not supported"),
        ({USER: "", IP: ""}, "Empty user not supported"),
        ({USER: "a", IP: "1.1.1.1"}, COMBINATION),
        ({CLIENT_ID: "a", IP: "1.1.1.1"}, COMBINATION),
        ({USER: "a", CLIENT_ID: "b", IP: "1.1.1.1"}, COMBINATION),
        ({USER: None, IP: None}, COMBINATION),
        ({USER: "a", IP: "no such host"}, COMBINATION),
        ({IP: "example.invalid"}, INVALID_IP.format("example.invalid")),
        ({IP: "a name with spaces"}, INVALID_IP.format("a name with spaces")),
        ({IP: "1.2.3.4.5"}, INVALID_IP.format("1.2.3.4.5")),
    ],
)
@pytest.mark.parametrize("ops", [{}, {"producer_byte_rate": 1.0}, {"bad": -1.0}, {"bad": None}])
def test_entities_that_are_refused(entries: dict[str, str | None], message: str, ops: dict[str, float | None]) -> None:
    """Rows a to e of the rules, in the order of Kafka's hash map, before any key is looked at."""
    assert refusal(entries, ops) == ApiError(42, message)


@pytest.mark.parametrize(
    "entries, ops, message",
    [
        ({USER: "a"}, {"foobar": 1}, "Invalid configuration key foobar"),
        ({USER: "a"}, {"": 1}, "Invalid configuration key "),
        ({USER: "a"}, {"SCRAM-SHA-256": 1}, "Invalid configuration key SCRAM-SHA-256"),
        ({USER: "a"}, {CONNECTION_CREATION_RATE: 1}, "Invalid configuration key connection_creation_rate"),
        ({IP: "1.1.1.1"}, {"producer_byte_rate": 1}, "Invalid configuration key producer_byte_rate"),
        ({USER: "a"}, {"foobar": -1}, "Invalid configuration key foobar"),
        ({USER: "a"}, {"producer_byte_rate": 0.0}, "Quota producer_byte_rate must be greater than 0"),
        ({USER: "a"}, {"producer_byte_rate": -0.0}, "Quota producer_byte_rate must be greater than 0"),
        ({USER: "a"}, {"consumer_byte_rate": -2.0}, "Quota consumer_byte_rate must be greater than 0"),
        ({USER: "a"}, {"request_percentage": -math.inf}, "Quota request_percentage must be greater than 0"),
        ({IP: None}, {CONNECTION_CREATION_RATE: 0}, "Quota connection_creation_rate must be greater than 0"),
        (
            {USER: "a"},
            {"consumer_byte_rate": 36893488147419103232.4},
            "Proposed value for consumer_byte_rate is too large for a LONG.",
        ),
        (
            {USER: "a"},
            {"producer_byte_rate": math.inf},
            "Proposed value for producer_byte_rate is too large for a LONG.",
        ),
        (
            {IP: "1.1.1.1"},
            {CONNECTION_CREATION_RATE: 2147483648},
            "Proposed value for connection_creation_rate is too large for an INT.",
        ),
        (
            {IP: "1.1.1.1"},
            {CONNECTION_CREATION_RATE: 2147483647.5},
            "Proposed value for connection_creation_rate is too large for an INT.",
        ),
        ({USER: "a"}, {"consumer_byte_rate": 2.245}, "consumer_byte_rate cannot be a fractional value."),
        ({USER: "a"}, {"producer_byte_rate": 10000.5}, "producer_byte_rate cannot be a fractional value."),
        ({USER: "a"}, {"producer_byte_rate": 0.5}, "producer_byte_rate cannot be a fractional value."),
        ({USER: "a"}, {"producer_byte_rate": 99.9999999}, "producer_byte_rate cannot be a fractional value."),
        ({USER: "a"}, {"producer_byte_rate": 100.00001}, "producer_byte_rate cannot be a fractional value."),
        ({IP: None}, {CONNECTION_CREATION_RATE: 1.5}, "connection_creation_rate cannot be a fractional value."),
    ],
)
def test_values_that_are_refused(entries: dict[str, str | None], ops: dict[str, float | None], message: str) -> None:
    """Rows f to j: key, sign, size, fraction, in this order."""
    assert refusal(entries, ops) == ApiError(42, message)


@pytest.mark.parametrize(
    "entries, key, value",
    [
        ({USER: "a"}, "consumer_byte_rate", 1234.0),
        ({USER: "a"}, "consumer_byte_rate", 1235.0000001),
        ({USER: "a"}, "producer_byte_rate", 2.0**63),
        ({USER: "a"}, "request_percentage", 56.62367),
        ({USER: "a"}, "request_percentage", math.inf),
        ({USER: "a"}, "request_percentage", math.nan),
        ({USER: "a"}, "producer_byte_rate", math.nan),
        ({USER: "a"}, "controller_mutation_rate", 1e-9),
        ({IP: "127.0.0.1"}, CONNECTION_CREATION_RATE, 2147483647),
        ({IP: "1.2.3"}, CONNECTION_CREATION_RATE, math.nan),
        ({IP: "::1"}, CONNECTION_CREATION_RATE, 1),
        ({IP: None}, CONNECTION_CREATION_RATE, 1),
        ({USER: "<default>"}, "producer_byte_rate", 1),
        ({USER: None, CLIENT_ID: None}, "producer_byte_rate", 1),
        ({USER: "user with spaces"}, "producer_byte_rate", 20000),
    ],
)
def test_values_that_are_accepted_are_kept_as_they_are(entries: dict[str, str | None], key: str, value: float) -> None:
    """A hair above a whole number is stored unrounded; NaN slips through every check."""
    entity = ClientQuotaEntity(entries)
    decision = decide({}, [alteration(entries, **{key: value})])
    assert decision.results == {entity: None}
    stored = decision.apply({})[entity][key]
    assert stored == value or (math.isnan(stored) and math.isnan(value))


def test_a_host_name_is_for_the_caller_to_resolve() -> None:
    asked: list[str] = []

    def resolvable(name: str) -> bool:
        asked.append(name)
        return name == "broker.example"

    alterations = [
        alteration({IP: name}, connection_creation_rate=5) for name in ("broker.example", "example.invalid", None)
    ]
    decision = decide({}, alterations, is_resolvable_ip=resolvable)
    assert list(decision.results.values()) == [None, ApiError(42, INVALID_IP.format("example.invalid")), None]
    assert asked == ["broker.example", "example.invalid"], "the default is not a name"


def test_with_several_bad_keys_the_first_of_kafkas_hash_map_is_named() -> None:
    """A JVM walks {not.a.quota.key, bad} of four keys with not.a.quota.key first."""
    ops: dict[str, float | None] = {"controller_mutation_rate": 1, "bad": 1, "x5": 1, "not.a.quota.key": 1}
    assert refusal({USER: "a"}, ops) == ApiError(42, "Invalid configuration key not.a.quota.key")


def test_one_bad_value_refuses_the_whole_entity_and_no_other() -> None:
    """Upstream: testInvalidQuotaKeys; atomic per entity, partial success across entities."""
    decision = decide(
        {},
        [alteration({USER: "alice"}, request_percentage=99.9, bad=1), alteration({USER: "bob"}, request_percentage=1)],
    )
    assert decision.results == {ALICE: ApiError(42, "Invalid configuration key bad"), BOB: None}
    assert decision.changes == (QuotaChange(BOB, "request_percentage", None, 1.0),)


def test_removing_is_never_validated() -> None:
    """An unknown key, a key of other entities, a key that is not set: success, and no change."""
    for key in ("nonsense", CONNECTION_CREATION_RATE, "producer_byte_rate"):
        decision = decide({}, [alteration({USER: "alice"}, **{key: None})])
        assert decision == Decision((), {ALICE: None})
    # ... but the entity is
    assert refusal({USER: ""}, {"producer_byte_rate": None}) == ApiError(42, "Empty user not supported")


def test_removing_takes_even_a_key_that_could_not_be_set() -> None:
    snapshot = {ALICE: {"legacy": 1.0}}
    decision = decide(snapshot, [alteration({USER: "alice"}, legacy=None)])
    assert decision.changes == (QuotaChange(ALICE, "legacy", 1.0, None),)
    assert decision.apply(snapshot) == {}


def test_setting_what_is_set_changes_nothing() -> None:
    """Also NaN, which Java's Double.equals takes for equal to itself."""
    snapshot = {ALICE: {"producer_byte_rate": 5.0, "request_percentage": math.nan}}
    decision = decide(snapshot, [alteration({USER: "alice"}, producer_byte_rate=5, request_percentage=math.nan)])
    assert decision == Decision((), {ALICE: None})


def test_no_ops_still_validate_the_entity() -> None:
    assert decide({}, [alteration({USER: "alice"})]) == Decision((), {ALICE: None})
    assert refusal({"foo": "x"}, {}) == ApiError(42, "Unhandled client quota entity type: foo")


def test_no_alterations_no_results() -> None:
    assert decide({}, []) == Decision((), {})


def test_a_duplicate_key_is_reported_as_a_duplicate_entity() -> None:
    """Kafka's own message for duplicate keys is always overwritten by this one."""
    twice = ClientQuotaAlteration(ALICE, [Op("producer_byte_rate", 1), Op("producer_byte_rate", 2)])
    message = "Ignoring duplicate entity ClientQuotaEntity(entries={user=alice})"
    assert decide({}, [twice]) == Decision((), {ALICE: ApiError(42, message)})
    # not even the entity is validated
    bad = ClientQuotaAlteration(ClientQuotaEntity({}), [Op("k", None), Op("k", None)])
    assert decide({}, [bad]).results[bad.entity] == ApiError(
        42, "Ignoring duplicate entity ClientQuotaEntity(entries={})"
    )


def test_of_a_duplicate_entity_the_first_entry_is_written_although_the_result_is_an_error() -> None:
    pair = {USER: "alice", CLIENT_ID: "x"}
    reversed_pair = {CLIENT_ID: "x", USER: "alice"}
    entity = ClientQuotaEntity(pair)
    decision = decide({}, [alteration(pair, producer_byte_rate=1), alteration(reversed_pair, producer_byte_rate=2)] * 2)
    message = "Ignoring duplicate entity ClientQuotaEntity(entries={client-id=x, user=alice})"
    assert decision.results == {entity: ApiError(42, message)}
    assert decision.changes == (QuotaChange(entity, "producer_byte_rate", None, 1.0),)


def test_a_duplicate_of_a_refused_entity_is_ignored_too() -> None:
    decision = decide({}, [alteration({USER: "alice"}, bad=1), alteration({USER: "alice"}, producer_byte_rate=1)])
    assert decision.changes == ()
    assert str(decision.results[ALICE]).startswith("INVALID_REQUEST: Ignoring duplicate entity")


def many(count: int) -> list[ClientQuotaAlteration]:
    return [alteration({USER: f"u{i}"}, producer_byte_rate=1) for i in range(count)]


def test_more_than_10000_changes_refuse_every_entity() -> None:
    """Code 44 with the generic message, refused entities included; counted after unchanged values are left out."""
    refused = ApiError(44, "Request parameters do not satisfy the configured policy.")
    assert decide({}, many(10_000)).accepted

    over = decide({}, [*many(10_001), alteration({"foo": "x"})])
    assert over.changes == ()
    assert set(over.results.values()) == {refused}
    assert len(over.results) == 10_002

    one_is_set = {ClientQuotaEntity({USER: "u7"}): {"producer_byte_rate": 1.0}}
    assert decide(one_is_set, many(10_001)).accepted
    assert decide({}, many(10_001), max_changes=None).accepted


def test_alter_and_remove_step_by_step() -> None:
    """Upstream: testAlterAndRemove and testAlterClientQuotasRequest."""
    entity = ClientQuotaEntity({USER: "user", CLIENT_ID: "client-id"})
    snapshot: QuotaSnapshot = {}

    def step(expected: dict[str, float], **values: float | None) -> None:
        nonlocal snapshot
        before = {e: dict(v) for e, v in snapshot.items()}
        decision = decide(snapshot, [ClientQuotaAlteration(entity, [Op(k, v) for k, v in values.items()])])
        assert decision.accepted
        assert snapshot == before, "deciding changes nothing"
        snapshot = decision.apply(snapshot)
        assert snapshot == ({entity: expected} if expected else {})

    step({})
    step({"producer_byte_rate": 10000}, producer_byte_rate=10000)
    step({"producer_byte_rate": 10001, "consumer_byte_rate": 20000}, producer_byte_rate=10001, consumer_byte_rate=20000)
    step({"producer_byte_rate": 15000, "consumer_byte_rate": 20000}, producer_byte_rate=15000)
    step({"consumer_byte_rate": 20000}, producer_byte_rate=None)
    step({"consumer_byte_rate": 20000}, request_percentage=None)
    step({"producer_byte_rate": 5000, "consumer_byte_rate": 20000}, producer_byte_rate=5000)
    step(
        {"producer_byte_rate": 20000, "request_percentage": 12.3},
        producer_byte_rate=20000,
        consumer_byte_rate=None,
        request_percentage=12.3,
    )
    step({"request_percentage": 12.3}, producer_byte_rate=None)
    step({}, request_percentage=None)
    step({}, request_percentage=None)


def test_every_level_takes_its_quota() -> None:
    """Upstream: testEntityTypes; null names are kept."""
    shapes: list[dict[str, str | None]] = [
        {USER: "u", CLIENT_ID: "c"},
        {USER: "u", CLIENT_ID: None},
        {USER: "u"},
        {USER: None, CLIENT_ID: "c"},
        {USER: None, CLIENT_ID: None},
        {USER: None},
        {CLIENT_ID: "c"},
        {CLIENT_ID: None},
    ]
    decision = decide(
        {},
        [alteration(shape, producer_byte_rate=i + 1) for i, shape in enumerate(shapes)]
        + [alteration({IP: ip}, connection_creation_rate=9) for ip in ("1.2.3.4", None)],
    )
    assert decision.accepted
    assert len(decision.changes) == 10
    assert [change.entity.entries for change in decision.changes[:8]] == shapes


def test_images_follow_their_changes() -> None:
    """Upstream: ClientQuotasImageTest, IMAGE1 + DELTA1 = IMAGE2 (its second entity is replayed, not validated)."""
    foo, bar = ClientQuotaEntity({USER: "foo"}), ClientQuotaEntity({USER: "bar", IP: "127.0.0.1"})
    image1 = {foo: {"producer_byte_rate": 123.0}, bar: {"consumer_byte_rate": 456.0}}
    delta1 = Decision(
        (
            QuotaChange(bar, "consumer_byte_rate", 456.0, None),
            QuotaChange(foo, "producer_byte_rate", 123.0, 234.0),
            QuotaChange(foo, "consumer_byte_rate", None, 999.0),
        ),
        {},
    )
    assert delta1.apply(image1) == {foo: {"producer_byte_rate": 234.0, "consumer_byte_rate": 999.0}}
    assert image1[foo] == {"producer_byte_rate": 123.0}
    assert delta1.apply({}) == {foo: {"producer_byte_rate": 234.0, "consumer_byte_rate": 999.0}}


@pytest.mark.parametrize(
    "types, keys",
    [
        ({USER}, OWN_KEYS),
        ({CLIENT_ID}, OWN_KEYS),
        ({USER, CLIENT_ID}, OWN_KEYS),
        ({IP}, {CONNECTION_CREATION_RATE}),
    ],
)
def test_keys_of_each_shape(types: set[str], keys: set[str]) -> None:
    found = KAFKA.keys_for(types)
    assert found is not None
    assert set(found) == keys


@pytest.mark.parametrize("types", [set(), {USER, IP}, {CLIENT_ID, IP}, {"foo"}])
def test_other_shapes_have_no_keys(types: set[str]) -> None:
    assert KAFKA.keys_for(types) is None


def test_an_extra_entity_type_takes_its_keys() -> None:
    """The registry is open: a type of one's own, with keys that exist and a new one. Kafka's model stays as it is."""
    connections = QuotaKey("connections", ValueType.INT, "connections", frozenset(), 100.0)
    model = KAFKA.with_entity_type("group", keys=["producer_byte_rate", connections])
    group = ClientQuotaEntity({"group": "g"})

    def result(entries: dict[str, str | None], **values: float) -> ApiError | None:
        return next(iter(decide({}, [alteration(entries, **values)], model=model).results.values()))

    assert result({"group": "g"}, producer_byte_rate=5, connections=3) is None
    assert result({"group": "g"}, connections=1.5) == ApiError(42, "connections cannot be a fractional value.")
    assert result({"group": "g"}, consumer_byte_rate=1) == ApiError(42, "Invalid configuration key consumer_byte_rate")
    assert result({"group": ""}, connections=1) == ApiError(42, "Empty group not supported")
    assert result({"group": "g", USER: "u"}, connections=1) == ApiError(
        42, "Invalid quota entity combination: user, group"
    )
    assert result({USER: "u"}, connections=1) == ApiError(42, "Invalid configuration key connections")
    assert result({USER: "u"}, producer_byte_rate=1) is None
    assert decide({}, [ClientQuotaAlteration(group, [])]).results[group] is not None


def test_a_model_that_contradicts_itself_is_refused() -> None:
    with pytest.raises(IllegalArgumentError):
        KAFKA.with_entity_type(USER, keys=[])
    with pytest.raises(IllegalArgumentError):
        KAFKA.with_entity_type("group", keys=["nonsense"])
    with pytest.raises(IllegalArgumentError):
        QuotaModel((USER,), KAFKA.keys)


@pytest.mark.parametrize("value", ["5", b"5", True, 10**400, object()])
def test_a_value_that_is_no_double_is_an_illegal_argument(value: float) -> None:
    with pytest.raises(ValueError, match="value of producer_byte_rate"):
        Op("producer_byte_rate", value)


def test_alterations_survive_pickle() -> None:
    asked = ClientQuotaAlteration(ALICE, [Op("producer_byte_rate", 1), Op("x", None)])
    assert pickle.loads(pickle.dumps(asked)) == asked
    assert decide({}, pickle.loads(pickle.dumps([asked]))) == decide({}, [asked])


def test_a_key_or_an_entity_that_is_none_is_an_illegal_argument() -> None:
    """Upstream: a null quota key is INVALID_REQUEST."""
    with pytest.raises(IllegalArgumentError):
        Op(None, 99.9)  # type: ignore[arg-type]
    with pytest.raises(IllegalArgumentError):
        ClientQuotaAlteration({USER: "a"}, [])  # type: ignore[arg-type]


def alterations_of(entity: ClientQuotaEntity) -> st.SearchStrategy[ClientQuotaAlteration]:
    return quotas_of(entity).map(lambda values: ClientQuotaAlteration(entity, [Op(k, v) for k, v in values.items()]))


legal_alterations = st.lists(entities, unique=True, max_size=6).flatmap(
    lambda chosen: st.tuples(*map(alterations_of, chosen))
)
spoiled = st.sampled_from([Op("nonsense", 1), Op("producer_byte_rate", -1), Op("connection_creation_rate", 0.5)])


@given(snapshots(), legal_alterations, st.sets(st.integers(0, 5)), spoiled)
def test_deciding_is_atomic_per_entity(
    snapshot: dict[ClientQuotaEntity, dict[str, float]],
    alterations: tuple[ClientQuotaAlteration, ...],
    bad: set[int],
    bad_op: ClientQuotaAlteration.Op,
) -> None:
    """Refused entities keep exactly what they had; accepted ones hold all that was asked for; no other is touched."""
    asked = [
        ClientQuotaAlteration(a.entity, [o for o in a.ops if o.key != bad_op.key] + [bad_op]) if i in bad else a
        for i, a in enumerate(alterations)
    ]
    decision = decide(snapshot, asked)
    after = decision.apply(snapshot)
    for i, (a, error) in enumerate(zip(asked, decision.results.values(), strict=True)):
        assert (error is not None) == (i in bad)
        if error is not None:
            assert after.get(a.entity) is snapshot.get(a.entity)
        else:
            wanted = dict(snapshot.get(a.entity, {})) | {o.key: o.value for o in a.ops}
            assert repr(sorted(after[a.entity].items())) == repr(sorted(wanted.items()))
    for entity in snapshot.keys() - {a.entity for a in asked}:
        assert after[entity] is snapshot[entity]
    assert decide(after, [a for i, a in enumerate(asked) if i not in bad]).changes == (), "deciding twice is idle"


@given(snapshots())
def test_removing_everything_leaves_nothing(snapshot: dict[ClientQuotaEntity, dict[str, float]]) -> None:
    removals = [ClientQuotaAlteration(e, [Op(k, None) for k in values]) for e, values in snapshot.items()]
    assert decide(snapshot, removals).apply(snapshot) == {}


def test_ip_default_is_valid_without_asking_anyone() -> None:
    def never(name: str) -> bool:
        raise AssertionError(name)

    assert decide({}, [alteration({IP: None}, connection_creation_rate=1)], is_resolvable_ip=never).results == {
        IP_DEFAULT: None
    }


def test_a_name_that_is_too_long_to_be_sent() -> None:
    """Refused after all that Kafka refuses, and only for setting: what is there can be removed."""
    known = {PRODUCE: 5.0}
    snapshot = {ClientQuotaEntity({USER: LONG}): known}
    message = "The name of the user has 32769 bytes, 32767 are the most"
    assert refusal({USER: LONG}) == ApiError(42, message)
    assert refusal({USER: "a" * 32_767}) is None
    assert refusal({USER: LONG, CLIENT_ID: None}, {PRODUCE: None, "consumer_byte_rate": 1.0}, snapshot) is not None
    assert refusal({USER: LONG}, {"nonsense": 1.0}) == ApiError(42, "Invalid configuration key nonsense")
    assert refusal({LONG: "a"}) == ApiError(42, f"Unhandled client quota entity type: {LONG}")
    assert refusal({USER: LONG}, {PRODUCE: 5.0}, snapshot) == ApiError(42, message)
    assert refusal({USER: LONG}, {}) is None
    removal = decide(snapshot, [alteration({USER: LONG}, producer_byte_rate=None)])
    assert removal.accepted
    assert removal.apply(snapshot) == {}


def test_a_key_with_half_a_surrogate_pair_is_no_key() -> None:
    """It could be neither sent nor kept."""
    with pytest.raises(IllegalArgumentError, match="a quota key holds half a surrogate pair"):
        Op("\ud800", 1.0)
