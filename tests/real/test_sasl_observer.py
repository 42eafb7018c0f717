"""Real clients that authenticate at a real broker, as the gateway reads them: it believes what the broker believes."""

from __future__ import annotations

import json
import socket
import struct
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

import confluent_kafka.admin
import pytest

from examples.capture.broker import Broker
from kquota.admin import QuotaAdmin
from kquota.admin.properties import load_client_properties
from kquota.gateway.identity.principals import AuthenticationContext
from kquota.gateway.identity.sasl_frames import SASL_AUTHENTICATE_KEY, SASL_HANDSHAKE_KEY
from kquota.gateway.identity.sasl_observer import IdentitySettings, SaslObserver
from kquota.metering.callback import KafkaPrincipal
from kquota.quotas import ClientQuotaFilter
from kquota.wire.apis import read_header
from kquota.wire.frames import FrameSplitter
from tests.kit.eventually import eventually
from tests.kit.kafka import NEW, PASSWORDS
from tests.kit.sasl_exchanges import handshake_request, scram_client

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
ODD = "a,b=c =2C"
TOKEN = "zo\u00eb, ="
LOGINS = {
    ODD: ("SCRAM-SHA-256", f'{SCRAM} required username="{ODD}" password="odd-secret";'),
    TOKEN: ("OAUTHBEARER", f'{OAUTH} required unsecuredLoginStringClaim_sub="{TOKEN}";'),
}
PYTHON_LOGINS = {  # kafka-python does not escape names
    "alice": ("SCRAM-SHA-256", f'{SCRAM} required username="alice" password="{PASSWORDS["alice"]}";'),
    TOKEN: LOGINS[TOKEN],
}


@dataclass
class Recording:
    """What passed on one connection: frames without their sizes."""

    requests: list[bytes] = field(default_factory=list)
    responses: list[bytes] = field(default_factory=list)


class Forwarder:
    """An address that leads to `target`; what passed on each connection is recorded. Use as a context manager."""

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = host, int(port)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"
        self.recordings: list[Recording] = []

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is recorded any more when it returns."""
        self._listening.shutdown(socket.SHUT_RDWR)
        self._threads[0].join()
        for one in self._sockets:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for one in (self._listening, *self._sockets):
            one.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                broker = socket.create_connection(self._target)
                self._sockets += [client, broker]
                recording = Recording()
                self.recordings.append(recording)
                for ends in ((client, broker, recording.requests), (broker, client, recording.responses)):
                    self._threads.append(threading.Thread(target=self._pump, args=ends, daemon=True))
                    self._threads[-1].start()

    def _pump(self, source: socket.socket, sink: socket.socket, frames: list[bytes]) -> None:
        splitter = FrameSplitter()
        with suppress(OSError):
            while data := source.recv(65536):
                splitter.feed(data)
                while (frame := splitter.next_frame()) is not None:
                    frames.append(frame)
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)


def observed(recording: Recording) -> SaslObserver:
    """An observer that saw the connection as a relay shows it: each request, then its response."""
    seen = SaslObserver(IdentitySettings(), AuthenticationContext("SASL_PLAINTEXT", "SASL_PLAINTEXT", "127.0.0.1"))
    for request, response in zip(recording.requests, recording.responses, strict=False):
        if seen.expects_raw_tokens:
            seen.raw_request(request)
            seen.raw_response(response)
            continue
        header, _ = read_header(request)
        if header.api_key == SASL_HANDSHAKE_KEY:
            seen.handshake_request(request, header.api_version)
            seen.handshake_response(response, header.api_version)
        elif header.api_key == SASL_AUTHENTICATE_KEY:
            seen.authenticate_request(request, header.api_version)
            seen.authenticate_response(response, header.api_version)
    return seen


def principals_at_the_broker(broker: Broker, client_id: str) -> set[str]:
    """By its request log."""
    found = set()
    for line in broker.request_log.read_text("utf-8").splitlines():
        if client_id in line and "Completed request:" in line:
            found.add(json.loads(line.partition("Completed request:")[2].rpartition("}")[0] + "}")["principal"])
    return found


def check(broker: Broker, recordings: list[Recording], client_id: str, user: str) -> None:
    eventually(lambda: principals_at_the_broker(broker, client_id), {f"User:{user}"})
    believed = [seen.principal for one in recordings if (seen := observed(one)).principal is not None]
    assert believed
    assert set(believed) == {KafkaPrincipal("User", user)}


@pytest.fixture(scope="module")
def sasl_broker(broker: Callable[[str], Broker]) -> Iterator[Broker]:
    """A broker that has the user of an odd name."""
    there = broker(NEW)
    user = ("--alter", "--entity-type", "users", "--entity-name", ODD)
    there.configs(*user, "--add-config", "SCRAM-SHA-256=[iterations=4096,password=odd-secret]")
    yield there
    there.configs(*user, "--delete-config", "SCRAM-SHA-256")


def test_java(sasl_broker: Broker, tmp_path: Path) -> None:
    """Kafka's own tools escape what a name must not hold."""
    for user, (mechanism, jaas) in LOGINS.items():
        client_id = f"java-{uuid.uuid4()}"
        config = tmp_path / "client.properties"
        # Java reads the file as Latin-1.
        config.write_text(
            f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\nsasl.jaas.config={jaas}\n"
            f"client.id={client_id}\n",
            encoding="latin-1",
        )
        with Forwarder(sasl_broker.sasl) as forwarder:
            through = replace(sasl_broker, plaintext=forwarder.address)
            through.configs("--command-config", str(config), "--describe", "--entity-type", "users")
        check(sasl_broker, forwarder.recordings, client_id, user)


def test_kafka_python(sasl_broker: Broker) -> None:
    for user, (mechanism, jaas) in PYTHON_LOGINS.items():
        client_id = f"python-{uuid.uuid4()}"
        properties = load_client_properties(
            None,
            [
                "security.protocol=SASL_PLAINTEXT",
                f"sasl.mechanism={mechanism}",
                f"sasl.jaas.config={jaas}",
                f"client.id={client_id}",
            ],
        )
        options = {"client_id": client_id, "timeout_ms": 30_000, **properties.connection}
        with Forwarder(sasl_broker.sasl) as forwarder, QuotaAdmin(forwarder.address, **options) as admin:
            admin.describe_client_quotas(ClientQuotaFilter.all()).entities()
        check(sasl_broker, forwarder.recordings, client_id, user)


@pytest.mark.parametrize(
    "user, login",
    [
        ("alice", {"sasl.mechanism": "SCRAM-SHA-256", "sasl.username": "alice", "sasl.password": PASSWORDS["alice"]}),
        (ODD, {"sasl.mechanism": "SCRAM-SHA-256", "sasl.username": ODD, "sasl.password": "odd-secret"}),
        (
            "zoe",
            {
                "sasl.mechanism": "OAUTHBEARER",
                "enable.sasl.oauthbearer.unsecure.jwt": True,
                "sasl.oauthbearer.config": "principal=zoe",
            },
        ),
    ],
    ids=["alice", "odd", "token"],
)
def test_librdkafka(sasl_broker: Broker, user: str, login: dict[str, str | bool]) -> None:
    client_id = f"librdkafka-{uuid.uuid4()}"
    with Forwarder(sasl_broker.sasl) as forwarder:
        admin = confluent_kafka.admin.AdminClient(
            {
                "bootstrap.servers": forwarder.address,
                "security.protocol": "SASL_PLAINTEXT",
                "client.id": client_id,
                **login,
            }
        )
        admin.list_topics(timeout=30)
        del admin
    check(sasl_broker, forwarder.recordings, client_id, user)


@pytest.mark.parametrize("password", [PASSWORDS["alice"], "wrong"])
def test_tokens_without_headers(sasl_broker: Broker, password: str) -> None:
    """SaslHandshake v0, as old clients send it; a broker answers a failure by closing the connection."""
    client_id = f"bare-{uuid.uuid4()}"
    client = scram_client("alice", password)
    metadata = struct.pack(">hhih", 3, 1, 7, len(client_id)) + client_id.encode() + struct.pack(">i", 0)

    def ask(frame: bytes) -> bytes:
        connection.sendall(struct.pack(">i", len(frame)) + frame)
        size = stream.read(4)
        return stream.read(*struct.unpack(">i", size)) if size else b""

    with Forwarder(sasl_broker.sasl) as forwarder:
        host, _, port = forwarder.address.rpartition(":")
        connection = socket.create_connection((host, int(port)), timeout=30)
        with connection, connection.makefile("rb") as stream:
            ask(handshake_request("SCRAM-SHA-256", 0))
            client.receive(ask(client.auth_bytes()))
            last = ask(client.auth_bytes())
            if last:
                client.receive(last)
                ask(metadata)
    if password == "wrong":
        assert last == b""
        assert [observed(one).principal for one in forwarder.recordings] == [None]
    else:
        check(sasl_broker, forwarder.recordings, client_id, "alice")
