"""A gateway that keeps the quotas itself, before a real Kafka that says who may describe and alter them."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from kafka import KafkaAdminClient, KafkaProducer
from kafka.admin import (
    ACL,
    ACLOperation,
    ACLPermissionType,
    NewTopic,
    ResourcePattern,
    ResourceType,
)

from benchmarks.gateway_process import GatewayProcess, gateway_process
from examples.capture.broker import Broker, running_broker
from examples.capture.processes import BrokerFailed, run_class, write_properties
from kquota.cli import run
from kquota.gateway.quotas.cluster_rights import AclOperation, Ask, ClusterRights
from kquota.quotas import ClientQuotaEntity
from kquota.stores import Access, open_store
from kquota.wire.apis import API_VERSIONS, read_header, write_response
from kquota.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from tests.kit.kafka import NEW, needs_kafka
from tests.kit.server_process import KQUOTA
from tests.real.raw_kafka import Connection

SCRAM: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
PASSWORDS: Final = {user: f"{user}-secret" for user in ("admin", "alice", "auditor", "gateway")}
"""The super user; a client that may only write; one that may look; and the gateway's own user, without any rights."""
AUTHORIZER: Final = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin;User:ANONYMOUS",  # whom the broker is to itself
}
TOPIC: Final = "orders"
LIMIT: Final = 5_000
RECORD_BYTES: Final = 100_000  # in the ten seconds that a rate counts at least: twice the limit
DENIED: Final = "Cluster authorization failed"


@dataclass(frozen=True, slots=True)
class Setup:
    """A broker with an authorizer, a gateway before its SASL listener, and the store of its quotas."""

    broker: Broker
    gateway: GatewayProcess
    store: str
    folder: Path

    def login(self, user: str) -> str:
        """A file with the settings of a client."""
        return str(login(self.folder, user))

    def configs(self, user: str, *arguments: str) -> str:
        """What kafka-configs prints. Raises BrokerFailed."""
        command = ("kafka.admin.ConfigCommand", "--bootstrap-server", self.gateway.bootstrap)
        return run_class(self.broker.jars, *command, "--command-config", self.login(user), *arguments)


def login(folder: Path, user: str) -> Path:
    jaas = f'{SCRAM} required username="{user}" password="{PASSWORDS[user]}";'
    settings = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.jaas.config": jaas,
    }
    path = write_properties(folder / f"{user}.properties", settings)
    path.chmod(0o600)
    return path


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    needs_kafka(NEW)
    folder = tmp_path_factory.mktemp("authorized")
    with running_broker(NEW, folder, passwords=PASSWORDS, properties=AUTHORIZER, log_requests=False) as started:
        with contextlib.closing(KafkaAdminClient(bootstrap_servers=started.plaintext)) as admin:
            admin.create_topics([NewTopic(TOPIC, 1, 1)])
            admin.create_acls(
                [
                    *(_may("auditor", one, ResourceType.CLUSTER) for one in ("DESCRIBE", "DESCRIBE_CONFIGS")),
                    _may("alice", "WRITE", ResourceType.TOPIC),
                ]
            )
        yield started


def _may(user: str, operation: str, resource: ResourceType) -> ACL:
    pattern = ResourcePattern(resource, "kafka-cluster" if resource is ResourceType.CLUSTER else TOPIC)
    return ACL(f"User:{user}", "*", ACLOperation[operation], ACLPermissionType.ALLOW, pattern)


@pytest.fixture
def setup(broker: Broker, tmp_path: Path) -> Iterator[Setup]:
    store = f"sqlite:///{tmp_path}/quotas.db"
    with started(broker, tmp_path, store) as gateway:
        yield Setup(broker, gateway, store, tmp_path)


@contextlib.contextmanager
def started(broker: Broker, folder: Path, quotas: str) -> Iterator[GatewayProcess]:
    own = ("--command-config", str(login(folder, "gateway")), "-D", "quota.consumer.default=7000000")
    log = folder / "gateway.log"
    with gateway_process(broker.sasl, *own, quotas=quotas, log=log, command=(*KQUOTA, "gateway")) as gateway:
        yield gateway
    text = log.read_text(encoding="utf-8")
    assert "Traceback" not in text, text
    assert "a mistake of the gateway" not in text, text


def test_kafka_configs_alters_them_and_they_are_in_force(setup: Setup) -> None:
    """The admin's alteration throttles alice's next request; what alice and the auditor may not do they cannot."""
    alice = ("--entity-type", "users", "--entity-name", "alice")
    to_limit = ("--alter", *alice, "--add-config", f"producer_byte_rate={LIMIT}")
    for user in ("alice", "auditor"):
        with pytest.raises(BrokerFailed, match=DENIED):
            setup.configs(user, *to_limit)
    with producer(setup, "alice") as client:
        assert throttled_ms(client) == 0
        assert "Completed updating config for user alice." in setup.configs("admin", *to_limit)
        assert throttled_ms(client) > 1_000
    for user in ("admin", "auditor"):
        assert f"producer_byte_rate={LIMIT}" in setup.configs(user, "--describe", *alice).replace(".0", "")
    with pytest.raises(BrokerFailed, match=DENIED):
        setup.configs("alice", "--describe", *alice)
    # The brokers' own quotas are as they were.
    assert "producer_byte_rate" not in setup.broker.configs("--describe", *alice)
    with open_store(setup.store, access=Access.READ) as store:
        assert [(one.principal, [(c.entity, c.key, c.after) for c in one.changes]) for one in store.history()] == [
            ("User:admin", [(ClientQuotaEntity({"user": "alice"}), "producer_byte_rate", float(LIMIT))])
        ]


def test_kquota_describes_alters_and_resolves_them(setup: Setup, capfd: pytest.CaptureFixture[str]) -> None:
    def kquota(user: str, *arguments: str) -> tuple[int, str, str]:
        command, *others = arguments
        at = ("--bootstrap-server", setup.gateway.bootstrap, "--command-config", setup.login(user))
        code = run([command, *at, *others])
        out, err = capfd.readouterr()
        return code, out, err

    capfd.readouterr()
    to_limit = ("alter", "--name", "user=alice", "--add", f"producer_byte_rate={LIMIT}")
    code, _, err = kquota("admin", *to_limit)
    assert (code, err) == (0, "")
    code, out, _ = kquota("auditor", "resolve", "--name", "user=alice", "--name", "client-id=etl", "--format", "json")
    assert code == 0
    found = json.dumps(json.loads(out))
    assert f"{LIMIT}" in found
    assert "7000000" in found  # the static default of -D
    code, out, _ = kquota("auditor", "describe", "--format", "json")
    assert code == 0
    assert "alice" in out
    code, _, err = kquota("auditor", *to_limit)
    assert code != 0
    assert DENIED in err
    # Which file it is, and that nobody had put quotas there before.
    log = (setup.folder / "gateway.log").read_text(encoding="utf-8")
    assert "a new store was made" in log
    assert f"{setup.folder}/quotas.db" in log


def test_who_is_refused_is_refused_as_by_the_broker(setup: Setup, capfd: pytest.CaptureFixture[str]) -> None:
    """The same words and exit codes, whether the quotas are the cluster's or the gateway's."""

    def outcomes(address: str) -> list[tuple[int, str, str]]:
        found = []
        for user in ("alice", "auditor"):
            for asked in (["describe"], ["alter", "--name", "user=bob", "--add", "producer_byte_rate=1"]):
                command, *others = asked
                code = run([command, "--bootstrap-server", address, "--command-config", setup.login(user), *others])
                out, err = capfd.readouterr()
                found.append((code, out.replace(address, "HOST:PORT"), err.replace(address, "HOST:PORT")))
        return found

    capfd.readouterr()
    assert outcomes(setup.gateway.bootstrap) == outcomes(setup.broker.sasl)


def test_quotas_of_a_file_are_described_and_not_altered(broker: Broker, tmp_path: Path) -> None:
    path = tmp_path / "quotas.json"
    path.write_text(json.dumps({"quotas": [{"entity": {"user": "alice"}, "values": {"producer_byte_rate": LIMIT}}]}))
    with started(broker, tmp_path, str(path)) as gateway:
        setup = Setup(broker, gateway, str(path), tmp_path)
        alice = ("--entity-type", "users", "--entity-name", "alice")
        assert f"producer_byte_rate={LIMIT}" in setup.configs("admin", "--describe", *alice)
        with pytest.raises(BrokerFailed, match=r"those of the file .*quotas\.json"):
            setup.configs("admin", "--alter", *alice, "--add-config", "producer_byte_rate=1")


@pytest.mark.parametrize(
    ("user", "expected"),
    [
        ("admin", {AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS}),
        ("auditor", {AclOperation.DESCRIBE_CONFIGS}),
        ("alice", set()),
    ],
)
def test_older_brokers_ways_of_showing_rights_show_the_same(
    broker: Broker, user: str, expected: set[AclOperation]
) -> None:
    """This broker has all of them: it is made to look like those that lack the newer ones."""
    for spoken in ({60: (0, 2)}, {60: (0, 1)}, {60: (0, 0)}, {3: (0, 10)}, {3: (0, 9)}, {3: (0, 8)}):
        versions = ApiVersionsResponse(0, [ApiVersion(key, *both) for key, both in spoken.items()])
        with Connection(broker.sasl, user=user, password=PASSWORDS[user]) as connection:
            ask = _old(connection, versions)
            rights = ClusterRights()
            assert {one for one in AclOperation if asyncio.run(rights.allows(one, ask, 0.0))} == expected


def _old(connection: Connection, versions: ApiVersionsResponse) -> Ask:
    async def ask(frame: bytes) -> bytes:
        header, _ = read_header(frame[4:])
        if header.api_key == API_VERSIONS.key:
            return write_response(API_VERSIONS, header.api_version, header.correlation_id, versions)[4:]
        return connection.ask(frame)

    return ask


@contextlib.contextmanager
def producer(setup: Setup, user: str) -> Iterator[KafkaProducer]:
    client = KafkaProducer(
        bootstrap_servers=setup.gateway.bootstrap,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="SCRAM-SHA-256",
        sasl_plain_username=user,
        sasl_plain_password=PASSWORDS[user],
    )
    try:
        yield client
    finally:
        client.close(timeout=0)


def throttled_ms(client: KafkaProducer) -> float:
    """The longest that the client was told to wait so far, after one more record."""
    client.send(TOPIC, bytes(RECORD_BYTES)).get(60)
    found: float = client.metrics()["producer-metrics"]["throttle-time-max"]
    return found
