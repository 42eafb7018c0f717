"""What lint finds in quotas, held against the resolver and the engine, which follow Kafka."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kquota.config import BrokerConfig
from kquota.files import QuotaFile
from kquota.metering.engine import QuotaManagers
from kquota.metering.requests import RequestQuotas
from kquota.policy import Finding, Severity, lint
from kquota.quotas import CLIENT_ID, IP, USER, ClientQuotaEntity, QuotaResolver
from tests.kit.mutations import charge_mutation
from tests.kit.strategies import FEW_NAMES, any_names, crowded_entities, snapshots

KEY = "producer_byte_rate"
ENOUGH = 1e9
"""A limit that no rule about sizes minds."""
USERS = [*FEW_NAMES, "other"]
CLIENT_IDS = [*USERS, ""]


def entity(text: str) -> ClientQuotaEntity:
    return ClientQuotaEntity.from_text(text)


def found(*rules: str, key: str = KEY, value: float = ENOUGH, broker: BrokerConfig | None = None) -> list[Finding]:
    file = QuotaFile.of({entity(rule): {key: value} for rule in rules})
    return list(lint(file) if broker is None else lint(file, broker=broker))


def told(*rules: str) -> set[tuple[str, str, str]]:
    return {(one.rule, one.severity.value, one.entity.to_text() if one.entity else "") for one in found(*rules)}


def bound_by(rule: ClientQuotaEntity, resolver: QuotaResolver) -> set[tuple[str, str]]:
    """Every client of the small world that the rule binds."""
    return {
        (user, client_id)
        for user in USERS
        for client_id in CLIENT_IDS
        if resolver.resolve_key(KEY, user, client_id).source == rule
    }


@given(st.sets(crowded_entities, max_size=8))
def test_a_rule_is_unreachable_exactly_where_the_resolver_gives_it_nobody(rules: set[ClientQuotaEntity]) -> None:
    """And `overridden` as a warning exactly where it gives it only clients without a client id."""
    snapshot = {rule: {KEY: ENOUGH} for rule in rules}
    resolver = QuotaResolver(snapshot)
    findings = lint(QuotaFile.of(snapshot))
    unreachable = {one.entity for one in findings if one.rule == "unreachable"}
    leftover = {one.entity for one in findings if one.rule == "overridden" and one.severity is Severity.WARNING}
    for rule in rules:
        bound = bound_by(rule, resolver)
        assert (rule in unreachable) == (not bound)
        assert (rule in leftover) == (bool(bound) and all(client_id == "" for _, client_id in bound))


@given(st.sets(crowded_entities, max_size=8))
def test_a_rule_is_overridden_for_the_users_whose_own_rule_binds_instead(rules: set[ClientQuotaEntity]) -> None:
    resolver = QuotaResolver({rule: {KEY: ENOUGH} for rule in rules})
    findings = lint(QuotaFile.of({rule: {KEY: ENOUGH} for rule in rules}))
    noted = {one.entity: one.message for one in findings if one.rule == "overridden" and one.severity is Severity.INFO}
    unreachable = {one.entity for one in findings if one.rule == "unreachable"}
    for rule in rules - unreachable:
        client_id = rule.entries.get(CLIENT_ID)
        lost = []
        if client_id is not None and rule.entries.get(USER) is None:
            sources = {user: resolver.resolve_key(KEY, user, client_id).source for user in USERS}
            lost = [u for u, s in sources.items() if isinstance(s, ClientQuotaEntity) and s.entries.get(USER) == u]
            lost = [user for user in lost if ClientQuotaEntity({USER: user, CLIENT_ID: client_id}) not in rules]
        assert (rule in noted) == bool(lost)
        if lost:
            names = [ClientQuotaEntity({USER: user}).to_text().removeprefix("user=") for user in sorted(lost)]
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            assert f"user{'s' if len(names) > 1 else ''} {', '.join(names[:3])}{more}:" in noted[rule]


@given(snapshots())
def test_every_finding_is_about_a_rule_that_is_there(snapshot: dict[ClientQuotaEntity, dict[str, float]]) -> None:
    """Whatever the names; in order, each once, and with something to say."""
    findings = lint(QuotaFile.of(snapshot))
    assert len(set(findings)) == len(findings)
    entities = [one.entity for one in findings if one.entity is not None]
    assert entities == sorted(entities, key=ClientQuotaEntity.sort_key)
    for one in findings:
        assert one.entity in snapshot
        assert one.key is None or one.key in snapshot[one.entity]
        assert one.message


def test_each_key_is_looked_at_on_its_own() -> None:
    rules = {entity("user=<default>"): {KEY: ENOUGH}, entity("client-id=etl"): {"consumer_byte_rate": ENOUGH}}
    assert lint(QuotaFile.of(rules)) == ()


@pytest.mark.parametrize(
    "rules, advice",
    [
        (["client-id=etl", "user=<default>"], "remove it, or set it on user=<default>,client-id=etl"),
        (["client-id=etl", "user=<default>,client-id=<default>"], "or set it on user=<default>,client-id=etl"),
        (["client-id=etl", "user=<default>,client-id=etl"], "ANONYMOUS included; remove it"),
        (["client-id=<default>", "user=<default>"], "ANONYMOUS included; remove it"),
    ],
)
def test_what_to_do_about_a_rule_that_binds_nobody_helps(rules: list[str], advice: str) -> None:
    (one,) = found(*rules)
    assert one.entity == entity(rules[0])
    assert one.message.endswith(advice)
    if " or set it on " in advice:
        moved = entity(advice.rpartition(" ")[2])
        resolver = QuotaResolver({moved: {KEY: 1.0}, entity(rules[1]): {KEY: 1.0}})
        assert resolver.resolve_key(KEY, "anyone", "etl").source == moved


@pytest.mark.parametrize(
    "key, value, rule, severity, message",
    [
        ("producer_byte_rate", 0.0, "not-positive", Severity.ERROR, "0 is refused"),
        ("request_percentage", -1.5, "not-positive", Severity.ERROR, "-1.5 is refused"),
        ("request_percentage", -math.inf, "not-positive", Severity.ERROR, "-Infinity is refused"),
        ("producer_byte_rate", 1e6 + 0.5, "fractional-byte-rate", Severity.ERROR, "write 1000000"),
        ("consumer_byte_rate", 0.25, "fractional-byte-rate", Severity.ERROR, "write 1"),
        ("consumer_byte_rate", 2e6 - 1e-7, "fractional-byte-rate", Severity.ERROR, "write 2000000"),
        ("consumer_byte_rate", 2e6 + 5e-7, "fractional-byte-rate", Severity.WARNING, "is no whole number, and kept"),
        ("producer_byte_rate", 1e19, "refused", Severity.ERROR, "10000000000000000000 is refused: Proposed value for"),
        ("producer_byte_rate", math.inf, "refused", Severity.ERROR, "too large for a LONG"),
        ("consumer_byte_rate", math.nan, "nan-limit", Severity.WARNING, "NaN limits nobody"),
        ("request_percentage", 1101.0, "above-capacity", Severity.INFO, "11 threads"),
        ("request_percentage", math.inf, "above-capacity", Severity.INFO, "this is Infinity %"),
    ],
)
def test_values(key: str, value: float, rule: str, severity: Severity, message: str) -> None:
    (one,) = found("user=a", key=key, value=value)
    assert (one.rule, one.severity, one.entity, one.key) == (rule, severity, entity("user=a"), key)
    assert message in one.message


def test_nan_is_no_limit_but_for_connections() -> None:
    """Asked of the engine."""
    managers = QuotaManagers(BrokerConfig())
    for key, rule in (("producer_byte_rate", "user=a"), ("connection_creation_rate", "ip=10.0.0.1")):
        managers.update_quota(key, entity(rule), math.nan)
    assert RequestQuotas(managers).produce("a", "c", 10**9, 0.0, 10**12).throttle_ms == 0
    assert managers.connections.accept("L", "10.0.0.1", 10**12) is not None
    (one,) = found("ip=10.0.0.1", key="connection_creation_rate", value=math.nan)
    assert (one.rule, one.severity) == ("nan-limit", Severity.ERROR)


def test_a_fraction_is_no_fault_where_kafka_takes_one() -> None:
    assert found("user=a", key="request_percentage", value=12.5) == []
    assert found("user=a", key="controller_mutation_rate", value=0.5) == []
    (one,) = found("ip=10.0.0.1", key="connection_creation_rate", value=0.5)
    assert (one.rule, one.severity) == ("refused", Severity.ERROR)


def requests(key: str, value: float, broker: BrokerConfig) -> RequestQuotas:
    managers = QuotaManagers(broker)
    managers.update_quota(key, entity("user=a"), value)
    return RequestQuotas(managers)


BROKERS = st.builds(
    BrokerConfig,
    quota_window_num=st.integers(2, 20),
    quota_window_size_seconds=st.integers(1, 5),
    message_max_bytes=st.integers(1000, 10**8),
)


@given(BROKERS, st.integers(1, 10**7))
def test_a_fetch_limit_is_too_low_where_a_broker_would_not_let_the_largest_batch_pass(
    broker: BrokerConfig, limit: int
) -> None:
    """Asked of the engine: a limit without a finding lets the batch pass at once. One that is lower than the batch over
    all windows never does, however often the consumer comes back after the time that it was told."""
    is_noted = bool(found("user=a", key="consumer_byte_rate", value=limit, broker=broker))
    engine = requests("consumer_byte_rate", limit, broker)
    now_ms = 10**12
    wait = engine.fetch("a", "c", broker.message_max_bytes, 0.0, now_ms)
    windows_s = broker.quota_window_num * broker.quota_window_size_seconds
    excess_ms = (broker.message_max_bytes / limit - windows_s + broker.quota_window_size_seconds) * 1000
    if not 0 < excess_ms < 1:  # a wait of less than half a millisecond is none
        assert is_noted == (wait.throttle_ms > 0)
    if broker.message_max_bytes > limit * (windows_s + 1):
        for _ in range(10):
            assert wait.throttle_ms > 0
            now_ms += wait.throttle_ms
            wait = engine.fetch("a", "c", broker.message_max_bytes, 0.0, now_ms)


@given(BROKERS, st.integers(1, 10**7))
def test_a_produce_limit_is_too_low_where_one_request_waits_longer_than_clients_do(
    broker: BrokerConfig, limit: int
) -> None:
    findings = found("user=a", key="producer_byte_rate", value=limit, broker=broker)
    wait = requests("producer_byte_rate", limit, broker).produce("a", "c", broker.message_max_bytes, 0.0, 10**12)
    if abs(wait.throttle_ms - 30_000) > 1:
        assert bool(findings) == (wait.throttle_ms > 30_000)
    if findings:
        enough = int(findings[0].message.rpartition("; set ")[2].split()[0])
        better = requests("producer_byte_rate", enough, broker).produce("a", "c", broker.message_max_bytes, 0.0, 10**12)
        assert better.throttle_ms <= 30_000


@given(st.integers(1, 30), st.integers(1, 5), st.floats(1e-4, 2))
def test_a_mutation_limit_is_too_low_where_a_full_bucket_holds_no_partition(num: int, size: int, limit: float) -> None:
    broker = BrokerConfig(controller_quota_window_num=num, controller_quota_window_size_seconds=size)
    findings = found("user=a", key="controller_mutation_rate", value=limit, broker=broker)
    managers = QuotaManagers(broker)
    managers.update_quota("controller_mutation_rate", entity("user=a"), limit)
    mutations = managers.controller_mutation
    assert charge_mutation(mutations, "a", "c", 1, 10**12, strict=True).accepted
    second = charge_mutation(mutations, "a", "c", 1, 10**12, strict=True)
    assert bool(findings) == (not second.accepted)
    if findings:
        enough = float(findings[0].message.rpartition("; set ")[2].split()[0])
        assert not found("user=a", key="controller_mutation_rate", value=enough, broker=broker)


def test_settings_of_the_broker_count() -> None:
    assert [one.rule for one in found("user=a", key="consumer_byte_rate", value=104858)] == ["under-one-fetch"]
    assert found("user=a", key="consumer_byte_rate", value=104859) == []
    small = BrokerConfig(message_max_bytes=1000)
    assert found("user=a", key="consumer_byte_rate", value=100, broker=small) == []
    (one,) = found("user=a", key="consumer_byte_rate", value=1e9, broker=BrokerConfig(quota_window_num=1))
    assert one.message.endswith("set quota.window.num to 2 or more")
    many = BrokerConfig(num_io_threads=64, num_network_threads=16)
    assert found("user=a", key="request_percentage", value=8000, broker=many) == []


@pytest.mark.parametrize(
    "first, second, severity, why",
    [
        ("a b", "a%20b", "warning", "differ only in URL encoding"),
        ("CN=a", "CN%3Da", "warning", "differ only in URL encoding"),
        ("CN%3da", "CN%3Da", "warning", "differ only in URL encoding"),
        ("Alice", "alice", "info", "upper and lower case"),
        ("alice", " alice ", "info", "spaces"),
        ("caf\u00e9", "cafe\u0301", "info", "composed and decomposed letters"),
        ("\uff41lice", "alice", "info", "other forms of the same letters"),
        ("STRASSE", "stra\u00dfe", "info", "upper and lower case"),
    ],
)
def test_names_that_are_taken_for_each_other(first: str, second: str, severity: str, why: str) -> None:
    """Also where they stand in entities of different shapes; told once, at the later one."""
    one, other = ClientQuotaEntity({USER: first}), ClientQuotaEntity({USER: second, CLIENT_ID: "c"})
    for pair in ([one, other], [other, one]):
        findings = lint(QuotaFile.of({named: {KEY: ENOUGH} for named in pair}))
        assert [(f.rule, f.severity) for f in findings] == [("duplicate-by-encoding", severity)]
        assert why in findings[0].message
        assert repr(first) in findings[0].message
        assert repr(second) in findings[0].message


def test_the_same_name_of_two_types_is_no_duplicate() -> None:
    assert told("user=etl", "client-id=ETL", "ip=10.0.0.1") == {
        ("overridden", "info", "client-id=ETL"),
    }


def test_two_texts_of_one_address() -> None:
    rules = {ClientQuotaEntity({IP: name}): {"connection_creation_rate": 5.0} for name in ("127.0.0.1", "127.1", "::1")}
    (one,) = lint(QuotaFile.of(rules))
    assert (one.rule, one.severity) == ("duplicate-by-encoding", Severity.WARNING)
    assert "'127.0.0.1' and '127.1' are one address" in one.message


@pytest.mark.parametrize(
    "name, rule, advice",
    [
        ("<default>", "default-as-name", "for the default of all write null"),
        ("%3Cdefault%3E", "default-as-name", "for the default of all write null"),
        ("User:alice", "principal-type", "write 'alice' instead of 'User:alice'"),
        ("CN%3Dalice", "encoded-name", "write 'CN=alice' if that is meant"),
        ("a%20b", "encoded-name", "write 'a b'"),
    ],
)
def test_names_that_probably_match_nobody(name: str, rule: str, advice: str) -> None:
    named = ClientQuotaEntity({USER: name})
    (one,) = lint(QuotaFile.of({named: {KEY: ENOUGH}}))
    assert (one.rule, one.severity, one.entity, one.key) == (rule, Severity.WARNING, named, None)
    assert advice in one.message


@pytest.mark.parametrize("name", ["100%", "a+b", "%zz", "50%25off!", "a%20 b", "Username", "User", "default"])
def test_names_that_are_nothing_to_speak_of(name: str) -> None:
    assert lint(QuotaFile.of({ClientQuotaEntity({USER: name}): {KEY: ENOUGH}})) == ()


def test_a_client_id_may_begin_like_a_principal() -> None:
    assert found("client-id=User%3Aalice") == []


@given(st.sets(any_names.filter(bool), max_size=6))
def test_any_names_are_compared_without_an_error(names: set[str]) -> None:
    lint(QuotaFile.of({ClientQuotaEntity({USER: name}): {KEY: ENOUGH} for name in names}))


def test_static_defaults_that_newer_brokers_do_not_have() -> None:
    """Kafka before 3.0 has them: lint cannot know which one it is."""
    told = lint(QuotaFile(()), broker=BrokerConfig(quota_producer_default=1_000))
    assert [(one.rule, one.severity, one.entity, one.key) for one in told] == [
        ("static-default", Severity.INFO, None, "producer_byte_rate")
    ]
    assert "quota.producer.default=1000 " in told[0].message
    assert "set producer_byte_rate on client-id=<default>" in told[0].message
    replaced = QuotaFile.of({entity("client-id=<default>"): {KEY: ENOUGH}})
    assert not lint(replaced, broker=BrokerConfig(quota_producer_default=1_000))
