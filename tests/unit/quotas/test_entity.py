"""ClientQuotaEntity, MeterKey and their canonical text."""

import copy
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kquota
from kquota.errors import IllegalArgumentError, KafkaErrorCode
from kquota.quotas import CLIENT_ID, IP, USER, ClientQuotaEntity, MeterKey
from tests.kit.strategies import any_names, arbitrary_entities


def test_equality_is_map_equality() -> None:
    """The order of the types does not matter; a default is not a name, and not an absent type."""
    one = ClientQuotaEntity({USER: "a", CLIENT_ID: "b"})
    other = ClientQuotaEntity({CLIENT_ID: "b", USER: "a"})
    assert one == other
    assert hash(one) == hash(other)
    assert len({one, other}) == 1
    different = [
        ClientQuotaEntity({USER: "a"}),
        ClientQuotaEntity({USER: None}),
        ClientQuotaEntity({USER: "<default>"}),
        ClientQuotaEntity({USER: "null"}),
        ClientQuotaEntity({USER: ""}),
        ClientQuotaEntity({USER: "a", CLIENT_ID: None}),
        ClientQuotaEntity({}),
    ]
    assert len(set(different)) == len(different)


def test_parts_as_a_request_lists_them() -> None:
    """Of a type that stands several times the last name counts; a broker prints such an entity in another order."""
    parts = [(USER, "x"), (CLIENT_ID, "e"), (CLIENT_ID, "e"), (CLIENT_ID, "etl"), (USER, "bob"), ("clientid", "x")]
    entity = ClientQuotaEntity.of_parts(parts)
    assert entity == ClientQuotaEntity({USER: "bob", CLIENT_ID: "etl", "clientid": "x"})
    assert str(entity) == "ClientQuotaEntity(entries={clientid=x, client-id=etl, user=bob})"
    assert str(ClientQuotaEntity(entity.entries)) == "ClientQuotaEntity(entries={client-id=etl, user=bob, clientid=x})"
    assert pickle.loads(pickle.dumps(entity)) == entity


def test_it_is_frozen_and_keeps_its_own_copy() -> None:
    entries: dict[str, str | None] = {USER: "a"}
    entity = ClientQuotaEntity(entries)
    entries[USER] = "b"
    assert entity.entries == {USER: "a"}
    with pytest.raises(TypeError):
        entity.entries[USER] = "c"  # type: ignore[index]
    with pytest.raises(AttributeError):
        entity.entries = {}
    with pytest.raises(AttributeError):
        del entity.entries


@given(arbitrary_entities)
def test_it_survives_pickle_and_copy(entity: ClientQuotaEntity) -> None:
    assert pickle.loads(pickle.dumps(entity)) == entity
    assert copy.deepcopy(entity) == entity
    assert eval(repr(entity)) == entity


@pytest.mark.parametrize("entries", [{None: "a"}, {USER: 1}, {USER: b"a"}, {USER: "\ud800"}, {"\udc00": "a"}])
def test_what_no_request_can_carry_is_an_illegal_argument(entries: dict[str, str | None]) -> None:
    """It is a ValueError that carries the code a broker would answer (upstream: a null type is INVALID_REQUEST)."""
    with pytest.raises(ValueError, match=r"text|surrogate") as caught:
        ClientQuotaEntity(entries)
    assert isinstance(caught.value, IllegalArgumentError)
    assert caught.value.code == KafkaErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    "entries, text",
    [
        ({USER: "user-1"}, "ClientQuotaEntity(entries={user=user-1})"),
        ({USER: None}, "ClientQuotaEntity(entries={user=null})"),
        ({USER: "u", CLIENT_ID: "c"}, "ClientQuotaEntity(entries={client-id=c, user=u})"),
        ({CLIENT_ID: "c", USER: "u"}, "ClientQuotaEntity(entries={client-id=c, user=u})"),
        ({IP: "1.2.3.4", USER: "u"}, "ClientQuotaEntity(entries={user=u, ip=1.2.3.4})"),
        ({}, "ClientQuotaEntity(entries={})"),
    ],
)
def test_str_is_what_java_prints(entries: dict[str, str | None], text: str) -> None:
    """As printed by a JVM from the HashMap that the request fills."""
    assert str(ClientQuotaEntity(entries)) == text


@pytest.mark.parametrize(
    "entries, text",
    [
        ({USER: "alice", CLIENT_ID: "etl"}, "user=alice,client-id=etl"),
        ({CLIENT_ID: None, USER: "alice"}, "user=alice,client-id=<default>"),
        ({USER: "<default>"}, "user=%3Cdefault%3E"),
        ({IP: "10.0.0.1"}, "ip=10.0.0.1"),
        ({IP: "::1"}, "ip=%3A%3A1"),
        ({CLIENT_ID: ""}, "client-id="),
        (
            {"zone": "z", "group": "g", USER: "u", IP: None, CLIENT_ID: "c"},
            "user=u,client-id=c,ip=<default>,group=g,zone=z",
        ),
        ({USER: "O=A client,CN=localhost"}, "user=O%3DA%20client%2CCN%3Dlocalhost"),
        ({}, ""),
    ],
)
def test_canonical_text(entries: dict[str, str | None], text: str) -> None:
    entity = ClientQuotaEntity(entries)
    assert entity.to_text() == text
    assert ClientQuotaEntity.from_text(text) == entity


@given(arbitrary_entities)
def test_canonical_text_round_trips(entity: ClientQuotaEntity) -> None:
    text = entity.to_text()
    assert ClientQuotaEntity.from_text(text) == entity
    assert text.isascii()


@given(arbitrary_entities, arbitrary_entities)
def test_canonical_text_and_order_tell_entities_apart(one: ClientQuotaEntity, other: ClientQuotaEntity) -> None:
    assert (one.to_text() == other.to_text()) == (one == other)
    assert (one.sort_key() == other.sort_key()) == (one == other)


@pytest.mark.parametrize("text", ["user", "user=a,", ",", "user=a,user=b", "user=%", "user=%zz"])
def test_text_that_is_no_entity_is_refused(text: str) -> None:
    with pytest.raises(IllegalArgumentError):
        ClientQuotaEntity.from_text(text)


def test_entities_sort_by_type_then_name_with_the_default_last() -> None:
    """Names by code point; a user before its clients."""
    ordered = [
        ClientQuotaEntity({USER: "B"}),
        ClientQuotaEntity({USER: "a"}),
        ClientQuotaEntity({USER: "a", CLIENT_ID: "x"}),
        ClientQuotaEntity({USER: "a", CLIENT_ID: None}),
        ClientQuotaEntity({USER: None}),
        ClientQuotaEntity({USER: None, CLIENT_ID: "x"}),
        ClientQuotaEntity({CLIENT_ID: "x"}),
        ClientQuotaEntity({CLIENT_ID: None}),
        ClientQuotaEntity({IP: "1.1.1.1"}),
        ClientQuotaEntity({"group": "g"}),
    ]
    assert sorted(set(ordered), key=ClientQuotaEntity.sort_key) == ordered


def test_meter_key_holds_only_tags_with_names() -> None:
    assert MeterKey({USER: "alice", CLIENT_ID: ""}) == MeterKey({USER: "alice"})
    assert MeterKey({USER: "alice", CLIENT_ID: ""}).tags == {USER: "alice"}
    assert MeterKey({}).to_text() == ""


def test_meter_key_is_not_an_entity() -> None:
    """Where a limit is set and what usage is counted against never mix, also when they read alike."""
    assert MeterKey({USER: "alice"}) != ClientQuotaEntity({USER: "alice"})
    assert not isinstance(MeterKey({}), ClientQuotaEntity)


@given(st.dictionaries(st.one_of(st.sampled_from([USER, CLIENT_ID, IP])), any_names))
def test_meter_key_text_round_trips(tags: dict[str, str]) -> None:
    meter = MeterKey(tags)
    assert MeterKey.from_text(meter.to_text()) == meter
    assert pickle.loads(pickle.dumps(meter)) == meter
    assert hash(meter) == hash(MeterKey(dict(reversed(tags.items()))))


@pytest.mark.parametrize("text", ["user=<default>", "user=", "user", "user=a,user=b"])
def test_text_that_is_no_meter_is_refused(text: str) -> None:
    with pytest.raises(IllegalArgumentError):
        MeterKey.from_text(text)


def test_meter_key_is_frozen() -> None:
    meter = MeterKey({USER: "a"})
    with pytest.raises(AttributeError):
        meter.tags = {}
    with pytest.raises(AttributeError):
        del meter.tags


def test_kip_546_types_are_found_in_the_package_itself() -> None:
    assert kquota.ClientQuotaEntity is ClientQuotaEntity
    assert set(kquota.__all__) <= set(dir(kquota)) | {
        "CLIENT_ID",
        "IP",
        "USER",
        "ClientQuotaAlteration",
        "ClientQuotaEntity",
        "ClientQuotaFilter",
        "ClientQuotaFilterComponent",
    }
    assert kquota.ClientQuotaAlteration.Op("k", 1).value == 1.0
    with pytest.raises(AttributeError):
        kquota.Nonsense  # noqa: B018
