"""Entity types beyond Kafka's own: where their rules stand among Kafka's levels, and what is counted on them."""

import pickle

import pytest

from kquota.errors import ApiError, IllegalArgumentError
from kquota.quotas import (
    CLIENT_ID,
    IP,
    KAFKA,
    STATIC,
    USER,
    Candidate,
    ClientQuotaEntity,
    MeterKey,
    QuotaKey,
    QuotaModel,
    QuotaResolver,
    ResolvedQuota,
    ValueType,
)

P, C = "producer_byte_rate", "consumer_byte_rate"
CONNECTIONS = "connection_creation_rate"
PAY = ClientQuotaEntity({"group": "pay"})
ANY_GROUP = ClientQuotaEntity({"group": None})
CLIENT = {USER: "U", CLIENT_ID: "C", "group": "pay"}

KAFKAS = [
    ClientQuotaEntity({USER: "U", CLIENT_ID: "C"}),
    ClientQuotaEntity({USER: "U", CLIENT_ID: None}),
    ClientQuotaEntity({USER: "U"}),
    ClientQuotaEntity({USER: None, CLIENT_ID: "C"}),
    ClientQuotaEntity({USER: None, CLIENT_ID: None}),
    ClientQuotaEntity({USER: None}),
    ClientQuotaEntity({CLIENT_ID: "C"}),
    ClientQuotaEntity({CLIENT_ID: None}),
]
ALL = {entity: {P: 1.0} for entity in (*KAFKAS, PAY, ANY_GROUP)}


def with_group(level: int, meter_tag: str | None = None, model: QuotaModel = KAFKA) -> QuotaModel:
    return model.with_entity_type("group", keys=[P], level=level, meter_tag=meter_tag)


def resolved(resolver: QuotaResolver, client: dict[str, str], key: str = P) -> ResolvedQuota:
    found = resolver.resolve_client(client)
    assert not isinstance(found, ApiError)
    return found[key]


@pytest.mark.parametrize("level", range(1, 10))
def test_rules_stand_above_the_level_that_is_said(level: int) -> None:
    """The name before the default, then Kafka's rules from that level on; the static default stays the last."""
    resolver = QuotaResolver(ALL, static_defaults={P: 1.0}, model=with_group(level))
    found = resolved(resolver, CLIENT)
    order = [found.source, *(rule.source for rule in found.overridden)]
    assert order == [*KAFKAS[: level - 1], PAY, ANY_GROUP, *KAFKAS[level - 1 :], STATIC]
    assert [found.level, *(rule.level for rule in found.overridden)] == list(range(1, 12))


def test_several_types_stand_in_the_order_of_their_levels_and_then_in_that_of_adding() -> None:
    model = with_group(7).with_entity_type("tenant", keys=[P], level=3).with_entity_type("team", keys=[P], level=7)
    names = {"tenant": "t", "group": "pay", "team": "a"}
    own = {ClientQuotaEntity({kind: name}): {P: 1.0} for kind, name in names.items()}
    found = resolved(QuotaResolver({**ALL, **own}, model=model), {USER: "U", CLIENT_ID: "C", **names})
    rules = {rule.source: rule.level for rule in (Candidate(found.source or STATIC, 1, 0.0), *found.overridden)}
    assert [rules[ClientQuotaEntity({kind: name})] for kind, name in names.items()] == [3, 9, 11]
    assert rules[KAFKAS[2]] == 5
    assert rules[KAFKAS[6]] == 13


def test_usage_is_counted_on_the_name_also_under_the_default() -> None:
    """The tag is the type, if none is said. A rule of Kafka's keeps the meter that it has."""
    assert resolved(QuotaResolver({PAY: {P: 5.0}}, model=with_group(1)), CLIENT) == ResolvedQuota(
        P, 5.0, PAY, 1, MeterKey({"group": "pay"}), ()
    )
    resolver = QuotaResolver({ANY_GROUP: {P: 5.0}, KAFKAS[7]: {P: 6.0}}, model=with_group(7, "consumer-group"))
    assert resolved(resolver, CLIENT) == ResolvedQuota(
        P, 5.0, ANY_GROUP, 8, MeterKey({"consumer-group": "pay"}), (Candidate(KAFKAS[7], 10, 6.0),)
    )
    assert resolved(resolver, {CLIENT_ID: "C"}).meter == MeterKey({CLIENT_ID: "C"})


def test_a_client_without_a_name_of_the_type_is_bound_by_none_of_its_rules() -> None:
    """Not by its default either, as with client ids; levels count the same for everybody."""
    resolver = QuotaResolver(ALL, model=with_group(1))
    for client in ({USER: "U", CLIENT_ID: "C"}, {USER: "U", CLIENT_ID: "C", "group": ""}):
        found = resolved(resolver, client)
        assert (found.source, found.level) == (KAFKAS[0], 3)
    assert resolver.resolve("U", "C")[P].level == 3
    assert resolver.resolve_key(P, "U", "C").level == 3


def test_a_type_alone_is_resolved() -> None:
    resolver = QuotaResolver(ALL, model=with_group(9))
    found = resolved(resolver, {"group": "other"})
    assert (found.source, found.level, found.meter) == (ANY_GROUP, 10, MeterKey({"group": "other"}))


def test_other_keys_are_as_without_the_type() -> None:
    quotas = {entity: {C: 1.0} for entity in (*KAFKAS, PAY)}
    found = QuotaResolver(quotas, model=with_group(1)).resolve_client(CLIENT)
    assert not isinstance(found, ApiError)
    assert found[C] == QuotaResolver(quotas).resolve("U", "C")[C]
    assert list(found) == list(QuotaResolver(quotas).resolve("U", "C"))


def test_keys_of_addresses_and_new_keys() -> None:
    """A key has the levels of the types that it may be set on: two for an address, none of Kafka's for a new key."""
    widgets = QuotaKey("widget_rate", ValueType.DOUBLE, "widgets/second", frozenset(), 1.0)
    model = KAFKA.with_entity_type("listener", keys=[CONNECTIONS, widgets], level=9)
    address, listener = ClientQuotaEntity({IP: "10.0.0.1"}), ClientQuotaEntity({"listener": "EXTERNAL"})
    quotas = {address: {CONNECTIONS: 1.0}, listener: {CONNECTIONS: 2.0, "widget_rate": 3.0}}
    resolver = QuotaResolver(quotas, model=model)
    both = {IP: "10.0.0.1", "listener": "EXTERNAL"}
    assert resolved(resolver, both, CONNECTIONS).overridden == (Candidate(listener, 3, 2.0),)
    assert resolved(resolver, {"listener": "EXTERNAL"}, CONNECTIONS).level == 3
    assert resolved(resolver, both, "widget_rate").level == 1
    assert CONNECTIONS not in resolver.resolve("U", "C")


def test_an_unknown_type_has_kafkas_error() -> None:
    expected = ApiError(42, "Unhandled client quota entity type: group")
    assert QuotaResolver(ALL).resolve_client(CLIENT) == expected


def test_a_model_with_types_can_be_pickled() -> None:
    model = with_group(3, "tag")
    assert pickle.loads(pickle.dumps(model)) == model
    assert model != KAFKA


@pytest.mark.parametrize("level", [0, 10, -1, True, 1.5])
def test_a_level_that_is_none_is_refused(level: int) -> None:
    with pytest.raises(IllegalArgumentError, match="level"):
        with_group(level)


def test_there_are_no_more_types_than_levels_can_be_sent() -> None:
    """A level is an int8 in the answer to 10546."""
    model = KAFKA
    for number in range(50):
        model = model.with_entity_type(f"type-{number}", keys=[P], level=1)
    found = resolved(QuotaResolver({}, static_defaults={P: 1.0}, model=model), {CLIENT_ID: "C"})
    assert found.level == 109
    with pytest.raises(IllegalArgumentError, match="there are 50 types already"):
        model.with_entity_type("group", keys=[P])


@pytest.mark.parametrize("tag", [USER, CLIENT_ID, IP, ""])
def test_a_meter_tag_that_others_have_is_refused(tag: str) -> None:
    """Usage of a group would be added to that of the user of the same name."""
    with pytest.raises(IllegalArgumentError, match="meter tag"):
        with_group(1, tag)
    with pytest.raises(IllegalArgumentError, match="meter tag"):
        with_group(1, "mine").with_entity_type("team", keys=[P], meter_tag="mine")
