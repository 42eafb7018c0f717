"""Whose quotas a client gets at the gateway: the brokers, or a certificate, say who it is.

The gateway enforces what is in a quota file; the broker has no quotas. With Kafka's windows, ten seconds' worth may be
used at once; the throttle time of a batch that is larger says by which limit it was measured.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Message, Producer

from tests.kit import tls
from tests.kit.kafka import PASSWORDS
from tests.kit.kafka_cluster import KafkaCluster
from tests.real import gateways
from tests.real.gateways import Gateway, client_ids, gateway, produce, throttle_ms
from tests.real.raw_kafka import API_VERSIONS, CREATE_TOPICS, SASL_AUTHENTICATE, SASL_HANDSHAKE, Connection

SCRAM: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
BATCH: Final = 200_000
KEY: Final = "producer_byte_rate"
THROTTLED_S: Final = {"alice": 1, "bob": 2, "pair": 3, "default": 4, "certificate": 5}
"""For how long the batch makes each wait who is limited so; nobody is limited alike."""


def limit_for(throttled_s: float) -> int:
    return round(BATCH / (10 + throttled_s))


@pytest.fixture(scope="module")
def topic(lone_broker: KafkaCluster) -> Iterator[str]:
    with gateways.topic(lone_broker.bootstrap()) as name:
        yield name


@contextmanager
def behind_sasl(broker: KafkaCluster, folder: Path, *arguments: str, quotas: Path) -> Iterator[Gateway]:
    config = folder / "client.properties"
    jaas = f'{SCRAM} required username="bob" password="{PASSWORDS["bob"]}";'
    config.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\nsasl.jaas.config={jaas}\n", encoding="utf-8"
    )
    upstream = broker.bootstrap("SASL_PLAINTEXT")
    with gateway(upstream, folder, "--command-config", str(config), *arguments, quotas=quotas) as running:
        yield running


def quotas_of_users(folder: Path, limits: Mapping[str, float]) -> Path:
    """By entity, as YAML writes it, for how many seconds the batch makes it wait."""
    path = folder / "quotas.yaml"
    lines = [f"- entity: {entity}\n  values: {{{KEY}: {limit_for(s)}}}\n" for entity, s in limits.items()]
    path.write_text("quotas:\n" + "".join(lines), encoding="utf-8")
    return path


def plain_login(connection: Connection, user: str, password: str) -> Any:
    """Log in by PLAIN, or again; the answer of the broker."""
    connection.request(SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"}, client_id=None)
    token = {"auth_bytes": f"\0{user}\0{password}".encode()}
    return connection.request(SASL_AUTHENTICATE, 1, token, client_id=None).decoded()


def test_users_have_their_own_quotas(lone_broker: KafkaCluster, topic: str, tmp_path: Path) -> None:
    """By SCRAM, OAUTHBEARER and PLAIN, with the client id that there is."""
    [job] = client_ids("job")
    limits = {
        "{user: alice}": THROTTLED_S["alice"],
        "{user: bob}": THROTTLED_S["bob"],
        f"{{user: bob, client-id: {job}}}": THROTTLED_S["pair"],
        "{user: null}": THROTTLED_S["default"],
    }
    with behind_sasl(lone_broker, tmp_path, quotas=quotas_of_users(tmp_path, limits)) as running:
        address = running.brokers[1]

        def seconds(user: str, client_id: str, password: str | None = None) -> int:
            wait = throttle_ms(address, topic, client_id, batch_bytes=BATCH, user=user, password=password)
            return round(wait / 1000)

        assert seconds("alice", "any", PASSWORDS["alice"]) == THROTTLED_S["alice"]
        assert seconds("bob", "any", PASSWORDS["bob"]) == THROTTLED_S["bob"]
        assert seconds("bob", job, PASSWORDS["bob"]) == THROTTLED_S["pair"]
        assert seconds("zo\u00eb", job) == THROTTLED_S["default"]
        with Connection(address) as connection:
            assert plain_login(connection, "alice", PASSWORDS["alice"]).error_code.value == 0
            assert produce(connection, topic, 1_000, "other") > 500  # Alice's, who has used it up


def test_who_logs_in_again_goes_on(lone_broker: KafkaCluster, topic: str, tmp_path: Path) -> None:
    """The broker's sessions last for two seconds; it closes the connections of those who do not log in again."""
    quotas = quotas_of_users(tmp_path, {"{user: alice}": THROTTLED_S["alice"]})
    with behind_sasl(lone_broker, tmp_path, quotas=quotas) as running:
        address = running.brokers[1]
        with Connection(address) as one, Connection(address) as other:
            for connection in (one, other):
                answer = plain_login(connection, "alice", PASSWORDS["alice"])
                assert 0 < answer.session_lifetime.total_seconds() <= 2
            for _ in range(2):
                time.sleep(1.1)  # it does not let them sooner than after a second
                assert plain_login(one, "alice", PASSWORDS["alice"]).error_code.value == 0
                assert produce(one, topic, 1_000, "any") == 0
            with pytest.raises(ConnectionError):
                produce(other, topic, 1_000, "any")
            assert produce(one, topic, BATCH, "any") > 500


def test_librdkafka_logs_in_again(lone_broker: KafkaCluster, topic: str, tmp_path: Path) -> None:
    """By SCRAM, three times in these five seconds; nothing is lost, or comes twice."""
    quotas = quotas_of_users(tmp_path, {"{user: alice}": THROTTLED_S["alice"]})
    [marker] = client_ids("again")
    delivered: list[int] = []
    lost: list[object] = []

    def report(error: object, message: Message) -> None:
        if error is None:
            delivered.append(message.offset() or 0)
        else:
            lost.append(error)

    with behind_sasl(lone_broker, tmp_path, quotas=quotas) as running:
        login = lone_broker.security("SASL_PLAINTEXT", "alice")
        producer = Producer({"bootstrap.servers": running.bootstrap, **login, "client.id": marker})
        end_s = time.monotonic() + 5
        sent = 0
        while time.monotonic() < end_s:
            producer.produce(topic, marker, partition=0, on_delivery=report)
            sent += 1
            producer.poll(0.1)
        assert producer.flush(30) == 0
    assert lost == []
    assert len(delivered) == sent
    assert delivered == list(range(delivered[0], delivered[0] + sent))


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_a_wrong_password_is_refused_by_the_broker(lone_broker: KafkaCluster, tmp_path: Path, mechanism: str) -> None:
    """With the broker's own answer, and not a word of it in the gateway's log."""

    def refusal(address: str) -> Any:
        with Connection(address) as connection:
            if mechanism == "PLAIN":
                return plain_login(connection, "alice", "wrong-secret")
            with pytest.raises(AssertionError) as refused:
                connection._authenticate("alice", "wrong-secret")
            return str(refused.value)

    with behind_sasl(lone_broker, tmp_path, quotas=quotas_of_users(tmp_path, {"{user: a}": 1})) as running:
        ours = refusal(running.brokers[1])
        assert ours == refusal(lone_broker.bootstrap("SASL_PLAINTEXT"))
        assert "uthentication failed" in str(ours)
        assert "wrong-secret" not in running.log


def test_a_certificate_says_who_it_is(lone_broker: KafkaCluster, topic: str, tmp_path: Path) -> None:
    """By the mapping rules; the broker sees nobody. Without a certificate the gateway lets nobody in."""
    authority = tls.Authority()
    listener = {
        "security.protocol": "SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": authority.issue("gateway", hosts=("127.0.0.1",)).write_pem(tmp_path / "gateway.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": tmp_path / "ca.pem",
        "ssl.client.auth": "required",
        "ssl.principal.mapping.rules": "RULE:^CN=([a-z-]+)-service$/$1/L,DEFAULT",
    }
    (tmp_path / "ca.pem").write_text(authority.certificate_pem(), encoding="ascii")
    config = tmp_path / "listener.properties"
    config.write_text("".join(f"{key}={value}\n" for key, value in listener.items()), encoding="utf-8")
    quotas = quotas_of_users(tmp_path, {"{user: billing}": THROTTLED_S["certificate"]})
    with gateway(lone_broker.bootstrap(), tmp_path, "--listener-config", str(config), quotas=quotas) as running:

        def seconds(common_name: str | None) -> int:
            context = ssl.create_default_context(cadata=authority.certificate_pem())
            if common_name is not None:
                own = authority.issue(common_name).write_pem(tmp_path / f"{common_name}.pem")
                context.load_cert_chain(own)
            with Connection(running.brokers[1]) as connection:
                connection._socket = context.wrap_socket(connection._socket, server_hostname="127.0.0.1")
                return round(produce(connection, topic, BATCH, "any") / 1000)

        assert seconds("billing-service") == THROTTLED_S["certificate"]
        assert seconds("somebody") == 0
        with pytest.raises((ConnectionError, ssl.SSLError)):
            seconds(None)


def test_connections_of_an_address_are_limited(lone_broker: KafkaCluster, tmp_path: Path) -> None:
    """KIP-612: ten seconds' worth at once; more are closed without an answer, as soon as they may be."""
    path = tmp_path / "quotas.yaml"
    path.write_text("quotas:\n- entity: {ip: 127.0.0.1}\n  values: {connection_creation_rate: 1}\n", encoding="utf-8")
    with gateway(lone_broker.bootstrap(), tmp_path, quotas=path) as running:

        def is_answered() -> bool:
            try:
                with Connection(running.brokers[1]) as connection:
                    connection.request(API_VERSIONS, 0, {}, client_id="any")
            except ConnectionError:
                return False
            return True

        start_s = time.monotonic()
        answered = [is_answered() for _ in range(12)]
        passed_s = time.monotonic() - start_s
    assert all(answered[:10])
    assert answered.count(True) <= 11 + passed_s
    assert False in answered


def test_who_is_exempt_is_not_limited(lone_broker: KafkaCluster, topic: str, tmp_path: Path) -> None:
    """Others are, by the same quota."""
    quotas = quotas_of_users(tmp_path, {"{user: null}": THROTTLED_S["default"]})
    exempt = ("-D", "gateway.exempt.principals=User:admin;User:alice")
    with behind_sasl(lone_broker, tmp_path, *exempt, quotas=quotas) as running:
        waits = [
            throttle_ms(running.brokers[1], topic, "any", batch_bytes=BATCH, user=user, password=password)
            for user, password in PASSWORDS.items()
        ]
    assert waits[0] == 0
    assert waits[1] > 3_000


def test_a_shadow_changes_nothing_for_clients(lone_broker: KafkaCluster, topic: str, tmp_path: Path) -> None:
    """Neither of what is over a quota of bytes nor of what is over one of changes."""
    path = tmp_path / "quotas.yaml"
    path.write_text(
        f"quotas:\n- entity: {{client-id: null}}\n  values: {{{KEY}: 1, controller_mutation_rate: 0.001}}\n",
        encoding="utf-8",
    )
    names = gateways.topic_names(3)
    asked = [
        {"name": one, "num_partitions": 4, "replication_factor": 1, "assignments": [], "configs": []} for one in names
    ]
    values = {"topics": asked, "timeout": 30_000, "validate_only": True}
    with gateway(lone_broker.bootstrap(), tmp_path, "--shadow", quotas=path) as running:
        address = running.brokers[1]
        with Connection(address) as connection:
            assert [produce(connection, topic, BATCH, "any") for _ in range(3)] == [0, 0, 0]
            created = connection.request(CREATE_TOPICS, 7, values, client_id="any").decoded()
    assert [one.error_code.value for one in created.topics] == [0, 0, 0]
    assert created.throttle_time.total_seconds() == 0
