"""Quotas in the formats of other programs: read to the same quotas, or refused with the place and what to do."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kquota.errors import QuotaFileError
from kquota.files import QuotaFile, read_quota_file
from kquota.quotas import CLIENT_ID, IP, KAFKA, USER, ClientQuotaEntity
from tests.kit.foreign_quotas import (
    as_json,
    as_list,
    as_yaml,
    described_today,
    described_with_zookeeper,
    jikkou,
    rpk,
    strimzi,
)
from tests.kit.strategies import legal_names, snapshots, user_client_entities

FILES = Path(__file__).parents[2] / "data" / "quota_files"

Snapshot = dict[ClientQuotaEntity, dict[str, float]]


def read(text: str, name: str = "<stdin>") -> QuotaFile:
    return read_quota_file(text, name=name)


def problems(text: str, name: str = "<stdin>") -> list[tuple[int | None, str, str]]:
    """(line, path, reason) of everything that is wrong."""
    with pytest.raises(QuotaFileError) as caught:
        read(text, name)
    return [(p.line, p.where, p.reason) for p in caught.value.problems]


def comparable(snapshot: object) -> str:
    """As text, so that NaN equals NaN."""
    assert isinstance(snapshot, dict)
    return repr(sorted((e.to_text(), sorted(values.items())) for e, values in snapshot.items()))


def expected(text: str) -> str:
    """Lines of an entity and its values."""
    snapshot: Snapshot = {}
    for line in text.strip().splitlines():
        entity, *pairs = line.split()
        values = dict(pair.split("=") for pair in pairs)
        snapshot.setdefault(ClientQuotaEntity.from_text(entity), {}).update({k: float(v) for k, v in values.items()})
    return comparable(snapshot)


RPK = """
client-id=payments-app consumer_byte_rate=4194304 producer_byte_rate=2097152
client-id=<default> producer_byte_rate=1048576
user=ann,client-id=dashboards controller_mutation_rate=0.5
"""


@pytest.mark.parametrize(
    "name, quotas, left_out",
    [
        ("rpk.yaml", RPK, [(16, "quotas[2]", "Kafka has no quotas by prefix (client-id-prefix 'reports-')")]),
        ("rpk.json", RPK, [(1, "quotas[2]", "Kafka has no quotas by prefix (client-id-prefix 'reports-')")]),
        (
            "strimzi.yaml",
            """
            user=CN%3Dshop producer_byte_rate=1048576 consumer_byte_rate=2097152
            user=CN%3Dshop request_percentage=55 controller_mutation_rate=10
            user=reports consumer_byte_rate=500000 controller_mutation_rate=0.5
            user=<default> producer_byte_rate=3000000
            """,
            [],
        ),
        (
            "strimzi_plugin.yaml",
            "user=plain producer_byte_rate=7",
            [(6, "spec.kafka.quotas", "those of KafkaUser included, limit nobody")],
        ),
        (
            "strimzi_list.json",
            "user=CN%3Dshop request_percentage=20\nuser=reports consumer_byte_rate=500000",
            [],
        ),
        (
            "jikkou.yaml",
            """
            client-id=etl producer_byte_rate=1024 consumer_byte_rate=2048 request_percentage=10
            user=ann,client-id=<default> producer_byte_rate=4096
            """,
            [(19, "", "it is marked jikkou.io/delete")],
        ),
        (
            "jikkou_list.yaml",
            """
            user=<default> consumer_byte_rate=10000000
            client-id=<default> producer_byte_rate=5000
            user=ann,client-id=etl request_percentage=12.5
            user=bob request_percentage=1
            """,
            [],
        ),
        (
            "kafka_configs.txt",
            """
            user=ann producer_byte_rate=1024
            user=ann,client-id=a%2C%20b consumer_byte_rate=2048 request_percentage=200
            user=<default> producer_byte_rate=10000000
            user=ann,client-id=<default> consumer_byte_rate=50000000
            user=<default>,client-id=it%27s controller_mutation_rate=0.0001
            user=<default>,client-id=<default> request_percentage=nan
            client-id=<default> request_percentage=50
            ip=10.1.2.3 connection_creation_rate=100
            ip=<default> connection_creation_rate=20
            """,
            [],
        ),
        (
            "kafka_configs_zookeeper.txt",
            """
            user=ann producer_byte_rate=1024 consumer_byte_rate=2048
            user=<default> request_percentage=12.34
            user=ann,client-id=etl producer_byte_rate=1
            user=ann,client-id=<default> producer_byte_rate=2
            user=<default>,client-id=<default> producer_byte_rate=3
            client-id=<default> producer_byte_rate=4
            """,
            [],
        ),
    ],
)
def test_files_of_other_programs(name: str, quotas: str, left_out: list[tuple[int, str, str]]) -> None:
    """By their content alone: the name of the file says nothing."""
    for called in (name, "<stdin>"):
        file = read((FILES / name).read_text(encoding="utf-8"), called)
        assert comparable(file.snapshot()) == expected(quotas)
        assert [(one.line, one.where) for one in file.left_out] == [(line, where) for line, where, _ in left_out]
        assert all(reason in one.reason for one, (_, _, reason) in zip(file.left_out, left_out, strict=True))


def test_entries_know_their_lines() -> None:
    lines = [entry.line for entry in read((FILES / "strimzi.yaml").read_text()).entries]
    assert lines == [2, 20, 46]
    assert [entry.line for entry in read((FILES / "kafka_configs.txt").read_text()).entries] == [
        1,
        3,
        4,
        5,
        *range(7, 12),
    ]


def without_default_as_name(snapshot: Snapshot) -> bool:
    """rpk writes a default as ``<default>``, so a name like that cannot be told from it."""
    return all("<default>" not in entity.entries.values() for entity in snapshot)


@pytest.mark.parametrize("write", [as_json, lambda value: as_yaml([value])])
@given(snapshots().filter(without_default_as_name))
def test_an_export_of_rpk_is_read_back(write: Callable[[object], str], snapshot: Snapshot) -> None:
    text = write(rpk(snapshot)) if snapshot else '{"quotas": []}'
    assert comparable(read(text).snapshot()) == comparable(snapshot)


_UNSEEN_BY_JIKKOU = ClientQuotaEntity({USER: None, CLIENT_ID: "x"}).entries.keys()


def known_to_jikkou(snapshot: Snapshot) -> Snapshot:
    """No addresses, no default user with a client id, no controller_mutation_rate."""
    kept = {
        entity: {key: value for key, value in values.items() if key != "controller_mutation_rate"}
        for entity, values in snapshot.items()
        if IP not in entity.entries
        and not (entity.entries.keys() == _UNSEEN_BY_JIKKOU and entity.entries[USER] is None)
    }
    return {entity: values for entity, values in kept.items() if values}


@given(snapshots().map(known_to_jikkou).filter(bool))
def test_resources_of_jikkou_are_read_back(snapshot: Snapshot) -> None:
    resources = jikkou(snapshot)
    bare = [{"spec": one["spec"]} for one in resources]
    listed = {"apiVersion": "kafka.jikkou.io/v1", "kind": "KafkaClientQuotaList", "items": bare}
    for text in (as_yaml(resources), as_json(resources), as_json(listed), as_yaml([as_list(resources)])):
        assert comparable(read(text).snapshot()) == comparable(snapshot)


user_values = st.dictionaries(
    st.from_regex(r"[a-z0-9]([a-z0-9.-]{0,20}[a-z0-9])?", fullmatch=True),
    st.tuples(
        st.sampled_from([None, "tls", "tls-external", "scram-sha-512"]),
        st.fixed_dictionaries({"request_percentage": st.floats(0, exclude_min=True)}).map(dict),
    ),
    min_size=1,
    max_size=4,
)


@given(user_values)
def test_users_of_strimzi_are_read_back(users: dict[str, tuple[str | None, dict[str, float]]]) -> None:
    wanted = {
        ClientQuotaEntity({USER: f"CN={name}" if (authentication or "").startswith("tls") else name}): values
        for name, (authentication, values) in users.items()
    }
    resources = strimzi(users)
    for text in (as_yaml(resources), as_json(as_list(resources)), as_yaml([as_list(resources)])):
        assert comparable(read(text).snapshot()) == comparable(wanted)


def can_be_told(snapshot: Snapshot) -> bool:
    """Names that no reader of unescaped text could tell apart, and NUL, which makes a file no text."""
    names = [name for entity in snapshot for name in entity.entries.values() if name is not None]
    return not any(re.search(r"\x00|', |(^|\n)(Quota configs|Configs) for | are ", name) for name in names)


@given(snapshots().filter(can_be_told))
@example({ClientQuotaEntity({USER: "line\nbreak", CLIENT_ID: "\r\n"}): {"request_percentage": 5e-324}})
@example({ClientQuotaEntity({USER: "'", CLIENT_ID: "a', b"}): {"request_percentage": 1.0}})
def test_what_kafka_configs_prints_is_read_back(snapshot: Snapshot) -> None:
    text = described_today(snapshot)
    if snapshot:
        assert comparable(read(text).snapshot()) == comparable(snapshot)
        assert comparable(read(f"\n{text}\n").snapshot()) == comparable(snapshot)


@given(snapshots(user_client_entities).filter(can_be_told))
def test_what_kafka_configs_printed_with_zookeeper_is_read_back(snapshot: Snapshot) -> None:
    users = {entity: values for entity, values in snapshot.items() if IP not in entity.entries}
    if users:
        assert comparable(read(described_with_zookeeper(users)).snapshot()) == comparable(users)


@given(st.lists(legal_names, min_size=1, max_size=2), st.booleans())
def test_a_description_is_read_as_one_entity_or_refused(names: list[str], is_default: bool) -> None:
    """Whatever the names hold: never as two entities, never with a value that is not there."""
    entity = ClientQuotaEntity(
        dict(zip((USER, CLIENT_ID), names, strict=False)) | ({CLIENT_ID: None} if is_default else {})
    )
    try:
        file = read(described_today({entity: {"producer_byte_rate": 7.0}}))
    except QuotaFileError:
        return
    if len(file.entries) == 1:
        assert file.entries[0].values == {"producer_byte_rate": 7.0}
    else:
        assert any("\n" in name for name in names)


def test_lines_that_end_as_on_windows() -> None:
    text = (FILES / "kafka_configs.txt").read_text()
    assert read(text.replace("\n", "\r\n")).snapshot().keys() == read(text).snapshot().keys()


RPK_ENTRY = '{"quotas": [{"entity": [{"name": "a", "type": "client-id"}], "values": %s}]}'
USER_A = """\
apiVersion: kafka.strimzi.io/v1beta2
kind: KafkaUser
metadata: {name: a, labels: {strimzi.io/cluster: main}}
spec:
"""
QUOTA = """\
apiVersion: kafka.jikkou.io/v1beta2
kind: KafkaClientQuota
spec:
"""


@pytest.mark.parametrize(
    "text, line, where, reason",
    [
        # rpk
        (RPK_ENTRY % '[{"key": "x", "values": "1"}]', 1, "quotas[0].values[0]", "there is no quota 'x'"),
        (RPK_ENTRY % '[{"key": "producer_byte_rate", "value": "1"}]', 1, "quotas[0].values[0]", "values is missing"),
        (RPK_ENTRY % '[{"key": "producer_byte_rate", "values": "0"}]', 1, "quotas[0].values[0]", "greater than 0"),
        (RPK_ENTRY % '[{"key": "producer_byte_rate", "values": "x"}]', 1, "quotas[0].values[0]", "is not a number"),
        (
            RPK_ENTRY % '[{"key": "producer_byte_rate", "values": "1"}, {"key": "producer_byte_rate", "values": "2"}]',
            1,
            "quotas[0].values[1]",
            "producer_byte_rate appears twice",
        ),
        (RPK_ENTRY % "{}", 1, "quotas[0].values", "a list of values with key and values is expected, not a mapping"),
        (RPK_ENTRY % "[]", 1, "quotas[0].values", "there are no values; leave the entry out"),
        ('{"quotas": [{"entity": []}]}', 1, "quotas[0]", "values is missing"),
        (
            RPK_ENTRY.replace("client-id", "group") % '[{"key": "producer_byte_rate", "values": "1"}]',
            1,
            "quotas[0].entity",
            "Unhandled client quota entity type: group",
        ),
        (
            '{"quotas": [{"entity": [{"name": "a", "type": "user"}, {"name": "b", "type": "user"}], "values": []}]}',
            1,
            "quotas[0].entity[1]",
            "user appears twice",
        ),
        (
            "quotas:\n- {entity: [{name: a, type: user}], values: []}\n- {entity: {user: b}, values: {}}",
            2,
            "quotas",
            "entries of two formats: this entity is a list, as rpk has it, others are mappings",
        ),
        # Strimzi
        (USER_A + "  quotas: {producerByteRat: 1}", 5, "spec.quotas", "did you mean producerByteRate?"),
        (USER_A + "  quotas: {producerByteRate: 0.5}", 5, "spec.quotas.producerByteRate", "cannot be a fraction"),
        (USER_A + "  quota: {producerByteRate: 1}", 5, "spec", "there is no field 'quota'; did you mean quotas?"),
        (USER_A + "quotas: {producerByteRate: 1}", 4, "spec", "a mapping is expected, not nothing"),
        (
            USER_A + "  authentication: {type: kerberos}\n  quotas: {producerByteRate: 1}",
            5,
            "spec.authentication.type",
            "there is no authentication 'kerberos' (there are tls, tls-external, scram-sha-512)",
        ),
        (USER_A.replace("name: a, ", "") + "  quotas: {producerByteRate: 1}", 1, "metadata", "name is missing"),
        (
            f"{USER_A}  quotas: {{producerByteRate: 1}}\n---\n{USER_A}  quotas: {{producerByteRate: 2}}",
            7,
            "",
            "user=a is on line 1 already",
        ),
        (
            f"{USER_A}  quotas: {{producerByteRate: 1}}\n---\n{USER_A.replace('main', 'other')}  quotas: {{}}",
            9,
            "metadata",
            "this is of the cluster 'other', and others are of 'main': a file is of one cluster",
        ),
        (
            "apiVersion: kafka.strimzi.io/v1\nkind: Kafka\nspec: {kafka: {quotas: {type: mine}}}",
            3,
            "spec.kafka.quotas",
            "there is no type 'mine' (there are kafka, strimzi)",
        ),
        (
            "apiVersion: kafka.strimzi.io/v1\nkind: Kafka\nspec: {kafka: {quotas: {producerByteRate: 1}}}",
            3,
            "spec.kafka.quotas",
            "type is missing",
        ),
        # Jikkou
        (QUOTA + "  {type: USERS, configs: {requestPercentage: 1}}", 4, "spec.type", "no type 'USERS' (there are USER"),
        (QUOTA + "  {type: USER, configs: {requestPercentage: 1}}", 4, "spec.entity", "user is missing: USER needs"),
        (
            QUOTA + "  {type: USER, entity: {user: a, clientId: b}, configs: {producerByteRate: 1}}",
            4,
            "spec.entity.clientId",
            "clientId is set, and USER does not use it; leave it out",
        ),
        (
            QUOTA + "  {type: USERS_DEFAULT, entity: {user: a}, configs: {producerByteRate: 1}}",
            4,
            "spec.entity.user",
            "user is set, and USERS_DEFAULT is for a default; leave it out",
        ),
        (
            QUOTA + "  {type: USER, entity: {user: a}, configs: {controllerMutationRate: 1}}",
            4,
            "spec.configs",
            "there is no field 'controllerMutationRate'",
        ),
        (QUOTA + "  {type: USER, entity: {user: a}}", 4, "spec", "configs is missing"),
        (QUOTA.removesuffix("spec:\n"), 1, "", "spec is missing"),
        # Resources at large
        ("kind: KafkaUser", 1, "", "apiVersion is missing"),
        ("apiVersion: v1\nkind: [a]", 2, "kind", "text is expected, not a list"),
        ("apiVersion: v1\nkind: Secret", None, "", "no resource here holds quotas (there are: v1 Secret): kafka"),
        ("apiVersion: v1\nkind: List\nitems: []", None, "", "no resource here holds quotas (there are: none)"),
        (
            f"{USER_A}  quotas: {{producerByteRate: 1}}\n---\n{QUOTA}  {{type: USERS_DEFAULT, configs: {{}}}}",
            7,
            "",
            "resources of Strimzi and of Jikkou stand in one file; keep them apart",
        ),
        (USER_A + "  {}\n---\nquotas: []", 7, "", "apiVersion is missing"),
        # kafka-configs
        ("Quota configs for user-principal 'a' are x=1", 1, "x", "there is no quota 'x'"),
        ("Quota configs for user-principal 'a' are producer_byte_rate=x", 1, "producer_byte_rate", "is not a number"),
        ("Quota configs for user-principal 'a' are producer_byte_rate=0.0", 1, "producer_byte_rate", "greater than 0"),
        ("Quota configs for topic 'a' are retention.ms=1", 1, "", "this is no user-principal, client-id or ip"),
        ("Configs for broker 1 are:\n  a=b sensitive=false synonyms={}", 1, "", "this is not what kafka-configs --"),
        (
            "Quota configs for user-principal 'a' are producer_byte_rate=1.0\nhello",
            2,
            "",
            "this is not what kafka-configs --describe prints about users, clients or ips: 'hello'",
        ),
        (
            "Quota configs for user-principal 'a', client-id 'b', client-id 'c' are producer_byte_rate=1.0",
            1,
            "",
            "this can be read in several ways, because a name holds quotes",
        ),
        (
            "Quota configs for ip '::1' are connection_creation_rate=1.0\n" * 2,
            2,
            "",
            "ip=%3A%3A1 is on line 1 already",
        ),
        (
            "Quota configs for user-principal 'a' are producer_byte_rate=1.0, producer_byte_rate=2.0",
            1,
            "producer_byte_rate",
            "producer_byte_rate appears twice",
        ),
    ],
)  # fmt: skip
def test_what_is_refused(text: str, line: int | None, where: str, reason: str) -> None:
    """With the first problem's place, and a reason that says what to do."""
    found = problems(text)
    assert found[0][:2] == (line, where)
    assert reason in found[0][2]


@pytest.mark.parametrize(
    "text",
    [
        "Quota configs for user-principal 'a\n" + "x are y\n" * 200_000,
        "Quota configs for user-principal 'a" + "', client-id 'b" * 100_000 + " are producer_byte_rate=1.0",
        "Quota configs for user-principal 'a" + "', client-id 'b" * 100_000 + "' are producer_byte_rate=1.0",
        "Quota configs for " + " are a=" * 200_000,
        "Quota configs for ip '" + "::1" * 100_000 + "' are connection_creation_rate=1.0" + ", a=1" * 1000,
    ],
    ids=["line breaks", "no end", "many pairs", "many ends", "long"],
)
def test_no_description_takes_more_than_its_length(text: str) -> None:
    """What takes its square would run for hours."""
    assert problems(text)


def test_lines_of_something_else_around_a_description_are_named() -> None:
    text = "[WARN] a log line\nQuota configs for ip '::1' are connection_creation_rate=1.0\n$ exit\n"
    assert [(line, reason[-20:]) for line, _, reason in problems(text)] == [
        (1, "s: '[WARN] a log line'"[-20:]),
        (3, "clients or ips: '$ exit'"[-20:]),
    ]


TEXTS = [path.read_text(encoding="utf-8") for path in sorted(FILES.iterdir())]


@given(
    st.sampled_from(TEXTS),
    st.integers(0, 2000),
    st.integers(0, 40),
    st.one_of(st.text(max_size=5), st.sampled_from(TEXTS)),
)
def test_a_damaged_file_is_read_or_refused_with_a_reason(text: str, at: int, length: int, put_in: str) -> None:
    """And nothing else; whatever was read is quotas that Kafka would take."""
    damaged = text[:at] + put_in + text[at + length :]
    try:
        file = read(damaged)
    except QuotaFileError:
        assert all(reason for _, _, reason in problems(damaged))
        return
    for entry in file.entries:
        keys = KAFKA.keys_for(entry.entity.entries)
        assert keys is not None
        assert entry.values
        assert all(keys[key].refusal(value) is None for key, value in entry.values.items())


@pytest.mark.parametrize("text", ["just text", "a: 1", "[1]", "- a: 1", "Quotas for user 'a'", "a: [", "{", "\tx: {"])
def test_an_unknown_file_is_told_what_is_understood(text: str) -> None:
    """Nothing is guessed."""
    reasons = " ".join(reason for _, _, reason in problems(text))
    assert re.search(
        r"a quota file looks like this|there is no field|an entry with entity and values is expected", reasons
    )


@pytest.mark.parametrize("text", ["", "# nothing", "just text"])
def test_the_formats_that_are_read_are_named(text: str) -> None:
    (_, _, reason) = problems(text)[0]
    for program in ("rpk cluster quotas describe", "kafka-configs --describe", "KafkaUser", "KafkaClientQuota"):
        assert program in reason


PAGE = Path(__file__).parents[3] / "docs" / "quota-files.md"


def test_the_examples_of_the_page_are_read() -> None:
    """Ours, and one of every other program, each with the same entities in our own words."""
    blocks = re.findall(r"^```(?:yaml|text)\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    entities = [[entry.entity.to_text() for entry in read(block).entries] for block in blocks]
    assert entities == [
        ["user=alice,client-id=etl", "user=<default>", "ip=10.0.0.1"],
        ["client-id=etl"],
        ["user=CN%3Dshop"],
        ["user=alice,client-id=<default>"],
        ["user=alice,client-id=<default>", "ip=10.0.0.1"],
        ["user=alice,client-id=<default>"],
    ]
