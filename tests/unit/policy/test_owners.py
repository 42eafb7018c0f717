"""Owner maps: how they are read, and whose a client is."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kquota.errors import InputError
from kquota.files import QuotaFile, QuotaFileEntry, read_quota_file
from kquota.policy import UNOWNED, OwnerMap, OwnerRule, read_owner_rules
from kquota.quotas import CLIENT_ID, IP, USER, ClientQuotaEntity, QuotaResolver

CSV = b"""\xef\xbb\xbfowner,user,user-prefix,client-id,client-id-prefix,ip
payments,alice,,,,
search,,search-,,indexer-,
"big, loud",,,etl*,,
,bob,,,,
cloud,,,,,10.0.0.1

late,alice,,,,
"""
YAML = """\
owners:
  - {owner: payments, user: alice}
  - owner: search
    user-prefix: search-
    client-id-prefix: indexer-
  - {owner: "big, loud", client-id: etl*}
  - {owner: "", user: bob}
  - {owner: cloud, ip: 10.0.0.1}
  - {owner: late, user: alice}
"""
JSON = '[{"owner": "nameless", "user": "carl", "client-id": ""}]'


def rules(text: str | bytes, name: str = "owners.csv") -> list[OwnerRule]:
    return read_owner_rules(text if isinstance(text, bytes) else text.encode(), name=name)


def test_csv_and_yaml_say_the_same() -> None:
    assert rules(CSV) == rules(YAML, "owners.yaml") == rules(YAML.replace("owners:\n", ""), "o.yml")
    assert rules(CSV)[1] == OwnerRule("search", {}, {USER: "search-", CLIENT_ID: "indexer-"})


@pytest.mark.parametrize(
    ("user", "client_id", "ip", "owner"),
    [
        ("alice", "etl*", None, "payments"),
        ("alice", "", None, "payments"),
        ("Alice", "x", None, UNOWNED),
        ("search-eu", "indexer-1", None, "search"),
        ("search-eu", "reader", None, UNOWNED),
        ("", "indexer-1", None, UNOWNED),
        ("x", "etl*", None, "big, loud"),
        ("x", "etl1", None, UNOWNED),
        ("bob", "x", None, UNOWNED),
        (None, None, "10.0.0.1", "cloud"),
        (None, None, "10.0.0.2", UNOWNED),
        (None, "etl*", None, UNOWNED),
        ("bert", None, None, UNOWNED),
    ],
)
def test_the_first_rule_that_matches_wins(user: str | None, client_id: str | None, ip: str | None, owner: str) -> None:
    """An address is no client, and a client none; of a name that is not known it is not known which rules it fits."""
    assert OwnerMap(rules(CSV)).owner(user, client_id, ip) == owner


def test_addresses_and_clients_without_an_id() -> None:
    assert OwnerMap(rules("owner,ip-prefix\ncloud,10.0.\n")).owner(None, None, "10.0.7.7") == "cloud"
    nameless = OwnerMap(rules(JSON, "o.json"))
    assert [nameless.owner("carl", client, None) for client in ("", "x", None)] == ["nameless", UNOWNED, UNOWNED]


QUOTAS = """\
- {entity: {user: alice}, values: {producer_byte_rate: 1}, owner: payments}
- {entity: {user: alice, client-id: etl}, values: {producer_byte_rate: 1}, owner: data}
- {entity: {user: alice, client-id: web}, values: {producer_byte_rate: 1}}
- {entity: {client-id: null}, values: {request_percentage: 1}, owner: platform}
- {entity: {ip: 10.0.0.1}, values: {connection_creation_rate: 1}, owner: cloud}
"""


def test_quota_files_name_owners_too() -> None:
    """The most specific entity that has one counts, as for limits; rules of the owner map go before."""
    quotas = read_quota_file(QUOTAS, name="q.yaml")
    owners = OwnerMap([OwnerRule("search", {CLIENT_ID: "indexer"}, {})], quotas)
    clients = [("alice", "etl"), ("alice", "web"), ("bob", "etl"), ("bob", ""), ("alice", "indexer")]
    assert [owners.owner(*client, None) for client in clients] == ["data", "payments", "platform", UNOWNED, "search"]
    assert OwnerMap([], quotas).owner(None, None, "10.0.0.1") == "cloud"
    assert OwnerMap([], quotas).owner("alice", None, None) == UNOWNED
    assert bool(OwnerMap([], quotas))
    assert not OwnerMap([], QuotaFile(()))


@pytest.mark.parametrize(
    ("entity", "owner"),
    [
        ({USER: "alice"}, "payments"),
        ({USER: "alice", CLIENT_ID: None}, "payments"),
        ({USER: "alice", CLIENT_ID: "etl*"}, "payments"),
        ({CLIENT_ID: "etl*"}, "big, loud"),
        ({USER: None, CLIENT_ID: "etl*"}, "big, loud"),
        ({USER: "search-eu"}, UNOWNED),
        ({USER: "search-eu", CLIENT_ID: "indexer-1"}, "search"),
        ({USER: "bob"}, UNOWNED),
        ({USER: None}, UNOWNED),
        ({CLIENT_ID: None}, UNOWNED),
        ({IP: "10.0.0.1"}, "cloud"),
        ({IP: None}, UNOWNED),
    ],
)
def test_the_owner_of_a_limit_goes_by_the_names_that_its_entity_has(entity: dict[str, str | None], owner: str) -> None:
    """A rule that asks for a name which the entity leaves open says nothing of it."""
    assert OwnerMap(rules(CSV)).owner_of_entity(ClientQuotaEntity(entity)) == owner


def test_a_limit_is_whose_the_quota_file_says_before_the_map_is_asked() -> None:
    owners = OwnerMap([OwnerRule("search", {USER: "alice"}, {})], read_quota_file(QUOTAS, name="q.yaml"))
    limits = {
        "user=alice": "payments",
        "user=alice,client-id=etl": "data",
        "user=alice,client-id=web": "search",
        "client-id=<default>": "platform",
        "user=bob,client-id=etl": "platform",
        "user=bob": UNOWNED,
        "ip=10.0.0.1": "cloud",
    }
    assert {text: owners.owner_of_entity(ClientQuotaEntity.from_text(text)) for text in limits} == limits
    assert owners.owners == {"search", "payments", "data", "platform", "cloud"}
    assert OwnerMap([OwnerRule("", {USER: "x"}, {})]).owners == frozenset()


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("o.csv", "", "o.csv:1: the header must name owner"),
        ("o.csv", "user\nalice\n", "o.csv:1: the header must name owner"),
        ("o.csv", "owner,username\n", "o.csv:1: there is no field 'username'"),
        ("o.csv", "owner,user,user\n", "o.csv:1: a field appears twice"),
        ("o.csv", "owner,user\nx,a,b\n", "o.csv:2: 3 cells under a header of 2"),
        ("o.csv", "owner,user\nx,a\npay,\n", "o.csv:3: the rule for 'pay' names no user"),
        ("o.csv", "owner,user\nunowned,a\n", "o.csv:2: unowned is what"),
        ("o.csv", "owner,user,ip\nx,a,::1\n", "o.csv:2: give the address a rule of its own"),
        ("o.csv", 'owner,user\nx,"a\n', "o.csv: not CSV"),
        ("o.csv", b"owner\n\xff\n", "o.csv: not UTF-8"),
        ("o.yaml", "a: b", "o.yaml: an owner map is a list"),
        ("o.yaml", "- x", "o.yaml:1: a rule is expected"),
        ("o.yaml", "- {owner: x, user: [a]}", "o.yaml:1: text is expected as the user"),
        ("o.yaml", "- {owner: x, user: null}", "o.yaml:1: text is expected as the user"),
        ("o.yaml", "- {user: a}", "o.yaml:1: a rule must name its owner"),
        ("o.yaml", "- {owner: x, user: a, user: b}", "o.yaml:1: a field appears twice"),
        ("o.yaml", "- {owner: x,", "o.yaml:1: "),
        ("o.yaml", "- {owner: x, user: a}\n---\n- {owner: y, user: b}\n", "o.yaml:2: a second document begins here"),
        ("o.yaml", "# nothing", "o.yaml: an owner map is a list"),
        ("o.json", "{", "o.json:1: "),
    ],
)
def test_maps_that_cannot_be_used(name: str, text: str | bytes, message: str) -> None:
    with pytest.raises(InputError) as caught:
        rules(text, name)
    assert str(caught.value).startswith(message)


names = st.sampled_from(["", "a", "ab", "abc", "b", "B"])
owner_rules = st.builds(
    OwnerRule,
    st.sampled_from(["", "x", "y", "z"]),
    st.dictionaries(st.sampled_from([USER, CLIENT_ID, IP]), names, max_size=2),
    st.dictionaries(st.sampled_from([USER, CLIENT_ID, IP]), names, max_size=2),
)


@given(st.lists(owner_rules, max_size=5), names, names, names)
def test_an_unknown_name_never_leads_to_another_owner(
    rules: list[OwnerRule], user: str, client_id: str, ip: str
) -> None:
    """Whoever is found without knowing a name is who is found knowing it, whatever it is; a map travels to workers."""
    owners = pickle.loads(pickle.dumps(OwnerMap(rules)))
    for partly in ((None, client_id), (user, None), (None, None)):
        assert owners.owner(*partly, None) in (UNOWNED, owners.owner(user, client_id, None))


@given(st.lists(owner_rules, max_size=5), names, names)
def test_a_limit_is_whose_the_clients_are_that_it_is_for(rules: list[OwnerRule], user: str, client_id: str) -> None:
    """Of a user, whose those are that no rule knows by their client-id; of one client, whose that is."""
    owners = OwnerMap(rules)
    both = ClientQuotaEntity({USER: user, CLIENT_ID: client_id})
    assert owners.owner_of_entity(both) == owners.owner(user, client_id, None)
    about_users = OwnerMap(rule for rule in rules if CLIENT_ID not in rule.names.keys() | rule.prefixes.keys())
    assert owners.owner_of_entity(ClientQuotaEntity({USER: user})) == about_users.owner(user, client_id, None)


entities = st.builds(
    ClientQuotaEntity,
    st.dictionaries(st.sampled_from([USER, CLIENT_ID]), st.sampled_from([None, "a", "b"]), min_size=1),
)


@given(st.dictionaries(entities, st.sampled_from("xyz")), names, names)
def test_the_owner_is_that_of_the_entity_that_would_bind(
    of_entity: dict[ClientQuotaEntity, str], user: str, client_id: str
) -> None:
    quotas = QuotaFile(
        tuple(QuotaFileEntry(one, {"consumer_byte_rate": 1.0}, owner) for one, owner in of_entity.items())
    )
    found = QuotaResolver(quotas.snapshot()).resolve_key("consumer_byte_rate", user, client_id)
    expected = of_entity[found.source] if isinstance(found.source, ClientQuotaEntity) else UNOWNED
    assert OwnerMap([], quotas).owner(user, client_id, None) == expected
