"""The quota server on real sockets: order, limits, hostile peers, and how it stops."""

import asyncio
import contextlib
import fcntl
import os
import resource
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from threading import Event
from typing import Any

import pytest
import structlog

from kquota.admin import QuotaAdmin
from kquota.config import ConnectionLimits
from kquota.errors import KafkaErrorCode, StoreError
from kquota.net.addresses import Address
from kquota.quotas import USER, ClientQuotaAlteration, ClientQuotaEntity, ClientQuotaFilter
from kquota.server.app import OTHER_FILES, QuotaServer, ServerSettings
from kquota.server.writer import Writer
from kquota.stores import open_store
from kquota.stores.host_names import HostNames
from kquota.stores.local import LocalStore
from kquota.stores.memory import MemoryKeeper
from kquota.wire.apis import (
    ALTER_CLIENT_QUOTAS,
    API_VERSIONS,
    DESCRIBE_CLIENT_QUOTAS,
    DESCRIBE_CLUSTER,
    DESCRIBE_USER_SCRAM_CREDENTIALS,
    METADATA,
    RESOLVE_CLIENT_QUOTAS,
    RESOLVE_QUOTAS,
    Api,
    read_response,
    write_request,
)
from kquota.wire.messages.api_versions import ApiVersionsRequest
from kquota.wire.messages.client_quotas import (
    Alteration,
    AlterClientQuotasRequest,
    Component,
    DescribeClientQuotasRequest,
    EntityPart,
    Op,
)
from kquota.wire.messages.describe_cluster import DescribeClusterRequest
from kquota.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from kquota.wire.messages.resolve_client_quotas import NamedPart, ResolveClientQuotasRequest, ResolveQuotasRequest
from kquota.wire.messages.scram_credentials import DescribeUserScramCredentialsRequest, UserName
from tests.kit.eventually import eventually
from tests.kit.hostile import costly_requests, rules_for_costly_requests, send_and_end
from tests.kit.server_process import ServerProcess, server_process

KQUOTA = str(Path(sys.executable).parent / "kquota")
LONG_NAMED = ResolveClientQuotasRequest([NamedPart("user", "?" * 20_000)])
EVERYTHING = DescribeClientQuotasRequest([], strict=False)


class Client:
    """One connection, one request after the other."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.correlation_id = 0

    async def ask(self, api: Api, version: int, body: Any) -> Any:
        self.correlation_id += 1
        self.writer.write(write_request(api, version, self.correlation_id, "test", body))
        correlation_id, answer = read_response(api, version, await self.frame())
        assert correlation_id == self.correlation_id
        return answer

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()

    async def frame(self) -> bytes:
        [size] = struct.unpack(">i", await self.reader.readexactly(4))
        return await self.reader.readexactly(size)


@contextlib.asynccontextmanager
async def serving(store: LocalStore, **settings: Any) -> AsyncIterator[Callable[[], Awaitable[Client]]]:
    clients: list[Client] = []
    async with QuotaServer(store, ServerSettings(Address("127.0.0.1", 0), **settings)) as server:
        address = server.address

        async def connect() -> Client:
            clients.append(Client(*await asyncio.open_connection(address.host, address.port)))
            return clients[-1]

        yield connect
        for client in clients:
            await client.close()


@pytest.fixture
def store() -> Iterator[LocalStore]:
    with open_store("memory:") as opened:
        yield opened


def user(name: str | None, *ops: tuple[str, float | None]) -> Alteration:
    return Alteration([EntityPart("user", name)], [Op(key, value or 0.0, value is None) for key, value in ops])


def test_a_client_finds_its_way(store: LocalStore) -> None:
    """Versions, metadata, the cluster, and credentials, as stock clients ask for them."""

    async def scenario() -> None:
        async with serving(store, advertise=Address("quotas.example.com", 0)) as connect:
            client = await connect()
            for version in range(5):
                answer = await client.ask(API_VERSIONS, version, ApiVersionsRequest("test", "1"))
                spoken = {one.api_key: (one.min_version, one.max_version) for one in answer.api_keys}
                assert spoken == {3: (9, 13), 18: (0, 4), 48: (0, 1), 49: (0, 1), 50: (0, 0), 60: (0, 2), 10546: (0, 0)}
            for version in range(9, 14):
                answer = await client.ask(METADATA, version, MetadataRequest([MetadataRequestTopic(name="t")]))
                [broker] = answer.brokers
                assert (broker.host, broker.node_id) == ("quotas.example.com", answer.controller_id)
                assert broker.port == client.writer.get_extra_info("peername")[1]
                assert answer.cluster_id == store.identity
                assert [(topic.name, topic.error_code) for topic in answer.topics] == [("t", 3)]
            for version in range(3):
                answer = await client.ask(DESCRIBE_CLUSTER, version, DescribeClusterRequest())
                assert (answer.error_code, answer.cluster_id, len(answer.brokers)) == (0, store.identity, 1)
            for endpoint_type, error_code in ((2, 114), (3, 115)):
                answer = await client.ask(DESCRIBE_CLUSTER, 1, DescribeClusterRequest(endpoint_type=endpoint_type))
                assert (answer.error_code, answer.endpoint_type) == (error_code, 1)
            answer = await client.ask(DESCRIBE_USER_SCRAM_CREDENTIALS, 0, DescribeUserScramCredentialsRequest(None))
            assert (answer.error_code, answer.error_message, answer.results) == (0, "", [])
            asked = DescribeUserScramCredentialsRequest([UserName("a"), UserName("b"), UserName("b")])
            answer = await client.ask(DESCRIBE_USER_SCRAM_CREDENTIALS, 0, asked)
            assert [(one.user, one.error_code) for one in answer.results] == [("a", 91), ("b", 92)]

    asyncio.run(scenario())


@pytest.mark.parametrize("version", [0, 1])
def test_quotas_are_altered_and_described(store: LocalStore, version: int) -> None:
    """With a result for each entity, and Kafka's words for what is refused."""

    async def scenario() -> None:
        async with serving(store) as connect:
            client = await connect()
            changes = [
                user("alice", ("producer_byte_rate", 1024.0), ("request_percentage", 12.5)),
                user(None, ("producer_byte_rate", -1.0)),
                user("bob", ("consumer_byte_rate", None)),
            ]
            answer: Any = None
            for validate_only in (True, False):
                request = AlterClientQuotasRequest(changes, validate_only=validate_only)
                answer = await client.ask(ALTER_CLIENT_QUOTAS, version, request)
                assert [(one.error_code, one.error_message) for one in answer.entries] == [
                    (0, None),
                    (42, "Quota producer_byte_rate must be greater than 0"),
                    (0, None),
                ]
                assert [one.entity for one in answer.entries] == [one.entity for one in changes]
                answer = await client.ask(DESCRIBE_CLIENT_QUOTAS, version, EVERYTHING)
                assert (answer.error_code, answer.error_message) == (0, "")
                assert len(answer.entries) == (0 if validate_only else 1)
            [entry] = answer.entries
            assert entry.entity == [EntityPart("user", "alice")]
            assert {one.key: one.value for one in entry.values} == {
                "producer_byte_rate": 1024.0,
                "request_percentage": 12.5,
            }
            refused = DescribeClientQuotasRequest([Component("user", 0, None)], strict=False)
            answer = await client.ask(DESCRIBE_CLIENT_QUOTAS, version, refused)
            assert (answer.error_code, answer.entries) == (42, None)
            assert "MATCH_TYPE_EXACT" in answer.error_message

    asyncio.run(scenario())


def test_resolving_says_what_binds_and_why(store: LocalStore) -> None:
    """KIP-546's own request, and the batch form with what is overridden and the meter."""

    async def scenario() -> None:
        async with serving(store, static_defaults=(("consumer_byte_rate", 99.0),)) as connect:
            client = await connect()
            both = Alteration(
                [EntityPart("user", None), EntityPart("client-id", "etl")],
                [Op("producer_byte_rate", 7.0, remove=False)],
            )
            changes = [user("alice", ("producer_byte_rate", 1024.0)), both]
            await client.ask(ALTER_CLIENT_QUOTAS, 1, AlterClientQuotasRequest(changes, validate_only=False))
            entity = [NamedPart("user", "bob"), NamedPart("client-id", "etl")]
            answer = await client.ask(RESOLVE_CLIENT_QUOTAS, 0, ResolveClientQuotasRequest(entity))
            [entry] = answer.entry
            assert (entry.error_code, entry.quota_entity) == (0, entity)
            found = {one.type: (one.entry[0].value, one.entry[0].quota_entity) for one in entry.quota_values}
            assert found == {
                "producer_byte_rate": (7.0, [NamedPart("user", "<default>"), NamedPart("client-id", "etl")]),
                "consumer_byte_rate": (99.0, []),
            }
            clients = [
                ResolveClientQuotasRequest([NamedPart("user", "alice"), NamedPart("client-id", "etl")]),
                ResolveClientQuotasRequest([NamedPart("group", "x")]),
            ]
            answer = await client.ask(RESOLVE_QUOTAS, 0, ResolveQuotasRequest(clients, include_overridden=True))
            alice, unknown = answer.results
            assert (unknown.error_code, unknown.values) == (42, [])
            produce = next(one for one in alice.values if one.key == "producer_byte_rate")
            assert (produce.rule.value, produce.rule.level, produce.rule.source) == (
                1024.0,
                3,
                [EntityPart("user", "alice")],
            )
            assert produce.meter == [NamedPart("user", "alice")]
            assert [(one.value, one.level) for one in produce.overridden] == [(7.0, 4)]

    asyncio.run(scenario())


def test_pipelined_requests_are_answered_in_order(store: LocalStore) -> None:
    """Also where a slow one is followed by quick ones, and where the client then closes its side."""

    async def scenario() -> None:
        async with serving(store) as connect:
            client = await connect()
            requests = b""
            for number in range(1, 301):
                if number % 3:
                    requests += write_request(DESCRIBE_CLIENT_QUOTAS, 1, number, None, EVERYTHING)
                else:
                    change = AlterClientQuotasRequest(
                        [user(f"u{number}", ("producer_byte_rate", 1.0))], validate_only=False
                    )
                    requests += write_request(ALTER_CLIENT_QUOTAS, 1, number, None, change)
            client.writer.write(requests)
            client.writer.write_eof()
            known = 0
            for number in range(1, 301):
                api = DESCRIBE_CLIENT_QUOTAS if number % 3 else ALTER_CLIENT_QUOTAS
                correlation_id, answer = read_response(api, 1, await client.frame())
                assert correlation_id == number
                if number % 3:
                    assert len(answer.entries) == known
                else:
                    known += 1
            assert await client.reader.read() == b""

    asyncio.run(scenario())


def test_a_client_that_does_not_read_costs_little(store: LocalStore) -> None:
    """Nothing more is read from it once about a mebibyte waits for it; others are served; in the end it gets it all."""

    async def scenario() -> None:
        many = [user(f"user-{number:04}", ("producer_byte_rate", 1.0)) for number in range(2000)]
        async with serving(store) as connect:
            client = await connect()
            await client.ask(ALTER_CLIENT_QUOTAS, 1, AlterClientQuotasRequest(many, validate_only=False))
            greedy = socket.create_connection(client.writer.get_extra_info("peername"))
            greedy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            greedy.setblocking(False)
            request = write_request(DESCRIBE_CLIENT_QUOTAS, 1, 1, None, EVERYTHING)
            sent, before_mb = 0, _rss_mb()
            for _ in range(60):
                with contextlib.suppress(BlockingIOError):
                    sent += greedy.send(request * 1000)
                answer = await client.ask(DESCRIBE_CLIENT_QUOTAS, 1, EVERYTHING)
                assert len(answer.entries) == 2000
            # Each request is answered with 100 kB: what was sent stands for gigabytes.
            assert sent > 20_000 * 10
            assert _rss_mb() - before_mb < 100
            greedy.setblocking(True)
            received = await asyncio.to_thread(_receive, greedy, 120_000)
            assert len(received) >= 120_000
            greedy.close()

    asyncio.run(scenario())


def _receive(peer: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        received += peer.recv(65536)
    return bytes(received)


def _rss_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


@pytest.mark.parametrize(
    "hostile",
    [
        b"\xff\xff\xff\xff",
        struct.pack(">i", 2**31 - 1) + b"x",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        struct.pack(">i", 4) + b"\0\x30\0\0",
        struct.pack(">ihhih", 10, 48, 2, 1, -1),
        struct.pack(">ihhih", 10, 999, 0, 1, -1),
        struct.pack(">ihhihB", 11, 48, 1, 1, -1, 0),
        struct.pack(">ihhihi", 14, 48, 0, 1, -1, 2**31 - 1),
    ],
    ids=["negative", "huge", "tls", "http", "no-header", "version", "api", "no-body", "huge-array"],
)
def test_what_is_no_request_ends_its_connection_alone(store: LocalStore, hostile: bytes) -> None:
    """What came before it is answered, there is no answer to it, and others notice nothing."""

    async def scenario() -> None:
        async with serving(store, limits=ConnectionLimits(socket_request_max_bytes=1_000_000)) as connect:
            other, client = await connect(), await connect()
            client.writer.write(write_request(DESCRIBE_CLIENT_QUOTAS, 1, 5, None, EVERYTHING) + hostile)
            assert read_response(DESCRIBE_CLIENT_QUOTAS, 1, await client.frame())[0] == 5
            assert await client.reader.read() == b""
            assert (await other.ask(DESCRIBE_CLIENT_QUOTAS, 1, EVERYTHING)).error_code == 0

    asyncio.run(scenario())


@pytest.mark.parametrize("version", [5, 32767, -1])
def test_another_version_of_api_versions_is_told_which_there_are(store: LocalStore, version: int) -> None:
    """In version 0, with error 35 and its own range alone; the connection stays (KIP-511)."""

    async def scenario() -> None:
        async with serving(store) as connect:
            client = await connect()
            client.writer.write(struct.pack(">ihhih", 10 + 8, 18, version, 77, -1) + b"\0\2a\2b\0\0\0"[:8])
            correlation_id, answer = read_response(API_VERSIONS, 0, await client.frame())
            assert (correlation_id, answer.error_code) == (77, 35)
            assert [(one.api_key, one.min_version, one.max_version) for one in answer.api_keys] == [(18, 0, 4)]
            assert (await client.ask(API_VERSIONS, 4, ApiVersionsRequest("test", "1"))).error_code == 0

    asyncio.run(scenario())


def test_idle_connections_are_closed(store: LocalStore) -> None:
    """After ``connections.max.idle.ms``."""

    async def scenario() -> None:
        async with serving(store, limits=ConnectionLimits(connections_max_idle_ms=100)) as connect:
            client = await connect()
            async with asyncio.timeout(10):
                with contextlib.suppress(ConnectionError):
                    assert await client.reader.read() == b""

    asyncio.run(scenario())


def test_long_names_do_not_make_it_mute(store: LocalStore) -> None:
    """A message that would not fit into an answer is cut."""

    async def scenario() -> None:
        async with serving(store) as connect:
            client = await connect()
            long = Alteration([EntityPart("ip", "é" * 16_000)], [])
            answer = await client.ask(ALTER_CLIENT_QUOTAS, 1, AlterClientQuotasRequest([long], validate_only=True))
            assert answer.entries[0].error_code == 42
            assert len(answer.entries[0].error_message.encode()) <= 32_767

    asyncio.run(scenario())


@pytest.mark.parametrize("version", [0, 1])
def test_a_name_that_cannot_be_sent_back_costs_itself(store: LocalStore, version: int) -> None:
    """Bytes that are not UTF-8 are read as three each: refused, answered, and of no harm to others."""

    async def scenario() -> None:
        async with serving(store) as connect:
            client = await connect()
            change = AlterClientQuotasRequest(
                [user("?" * 20_000, ("producer_byte_rate", 1.0)), user("alice", ("producer_byte_rate", 5.0))],
                validate_only=False,
            )
            frame = write_request(ALTER_CLIENT_QUOTAS, version, 1, "test", change)
            client.writer.write(frame.replace(b"?" * 20_000, b"\xff" * 20_000))
            _, answer = read_response(ALTER_CLIENT_QUOTAS, version, await client.frame())
            assert [one.error_code for one in answer.entries] == [42, 0]
            assert answer.entries[0].error_message == "The name of the user has 60000 bytes, 32767 are the most"
            assert answer.entries[0].entity[0].entity_name.startswith("\ufffd" * 10_000)
            client.correlation_id = 1
            for one in (client, await connect()):
                described = await one.ask(DESCRIBE_CLIENT_QUOTAS, version, EVERYTHING)
                assert [entry.entity[0].entity_name for entry in described.entries] == ["alice"]

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "api, version, body",
    [
        (DESCRIBE_USER_SCRAM_CREDENTIALS, 0, DescribeUserScramCredentialsRequest([UserName("?" * 20_000)])),
        (METADATA, 9, MetadataRequest([MetadataRequestTopic(name="?" * 20_000)])),
        (RESOLVE_CLIENT_QUOTAS, 0, LONG_NAMED),
        (RESOLVE_QUOTAS, 0, ResolveQuotasRequest([LONG_NAMED], include_overridden=False)),
    ],
)
def test_other_names_that_cannot_be_sent_back_are_cut(store: LocalStore, api: Api, version: int, body: Any) -> None:
    """What is asked for by such a name is not there, and that is the answer."""

    async def scenario() -> None:
        async with serving(store) as connect:
            client = await connect()
            client.writer.write(write_request(api, version, 1, "test", body).replace(b"?" * 20_000, b"\xff" * 20_000))
            _, answer = read_response(api, version, await client.frame())
            assert "\ufffd" * 10_000 in str(answer)

    asyncio.run(scenario())


@pytest.mark.parametrize("version", [0, 1])
def test_a_name_that_is_there_and_cannot_be_sent_costs_itself(version: int) -> None:
    """The others are described; the log names it once. It can be removed, by anybody who can name it."""
    long = ClientQuotaEntity({USER: "x" * 32_768})
    values = {"producer_byte_rate": 1.0}
    snapshot = {long: values, ClientQuotaEntity({USER: "alice"}): values}

    async def scenario(store: LocalStore) -> None:
        async with serving(store) as connect:
            client = await connect()
            for _ in range(3):
                described = await client.ask(DESCRIBE_CLIENT_QUOTAS, version, EVERYTHING)
                assert [entry.entity[0].entity_name for entry in described.entries] == ["alice"]

    with LocalStore(MemoryKeeper(snapshot)) as store, structlog.testing.capture_logs() as logged:
        asyncio.run(scenario(store))
        [line] = [one for one in logged if one["event"].startswith("an entity cannot be sent")]
        assert line["entity"] == "user=" + "x" * 195
        assert store.alter([ClientQuotaAlteration(long, [ClientQuotaAlteration.Op("producer_byte_rate", None)])]) == {
            long: None
        }
        assert long not in store.index().snapshot


def test_a_name_server_that_does_not_answer_holds_up_nobody_else() -> None:
    """Neither those who change quotas of users, nor the end."""
    over, asked = Event(), Event()

    def is_found(_name: str) -> bool:
        asked.set()
        return over.wait(60)

    async def scenario(store: LocalStore) -> None:
        async with serving(store) as connect:
            slow, other = await connect(), await connect()
            alterations = [
                Alteration([EntityPart("ip", f"h{number}.example")], [Op("connection_creation_rate", 1.0, False)])
                for number in range(50)
            ]
            change = AlterClientQuotasRequest(alterations, validate_only=True)
            asking = asyncio.create_task(slow.ask(ALTER_CLIENT_QUOTAS, 1, change))
            await asyncio.to_thread(asked.wait, 60)
            change = AlterClientQuotasRequest([user("alice", ("producer_byte_rate", 5.0))], validate_only=False)
            assert (await other.ask(ALTER_CLIENT_QUOTAS, 1, change)).entries[0].error_code == 0
            assert not asking.done()
            results = (await asking).entries
            assert {one.error_code for one in results} == {42}
            assert "could not be looked up in time" in results[0].error_message

    with LocalStore(MemoryKeeper(), host_names=HostNames(deadline_ms=500, is_found=is_found)) as store:
        asyncio.run(scenario(store))
    over.set()


def test_a_store_that_fails_says_no_more_than_clients_may_know(tmp_path: Path) -> None:
    """The log has the path and the reason, clients have neither."""

    async def scenario(store: LocalStore) -> None:
        async with serving(store) as connect:
            client = await connect()
            change = AlterClientQuotasRequest([user("alice", ("producer_byte_rate", 5.0))], validate_only=False)
            altered = (await client.ask(ALTER_CLIENT_QUOTAS, 1, change)).entries[0]
            described = await client.ask(DESCRIBE_CLIENT_QUOTAS, 1, EVERYTHING)
            for one in (altered, described):
                assert (one.error_code, one.error_message) == (
                    -1,
                    "the store of the quotas failed; the log of the server says why",
                )

    with open_store(f"sqlite:///{tmp_path}/q.db") as store, structlog.testing.capture_logs() as logged:
        for file in tmp_path.iterdir():
            file.unlink()
        asyncio.run(scenario(store))
    failures = [one["reason"] for one in logged if one["event"] == "the store failed"]
    assert failures
    assert all(f"{tmp_path}/q.db or q.db-wal was removed" in reason for reason in failures)


def test_what_is_wrong_with_a_store_is_logged_though_nobody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once when it begins, and when it is over."""
    monkeypatch.setattr("kquota.server.writer._MAINTAIN_EVERY_S", 0.001)
    outcomes = [None, StoreError("gone"), StoreError("gone"), OSError("odd"), None, None]
    over = Event()

    class Failing(LocalStore):
        def maintain(self) -> None:
            if not outcomes:
                over.set()
            elif (outcome := outcomes.pop(0)) is not None:
                raise outcome

    with structlog.testing.capture_logs() as logged, contextlib.closing(Writer(Failing(MemoryKeeper()))):
        assert over.wait(60)
    assert [(one["event"], one.get("reason")) for one in logged] == [
        ("the store failed", "gone"),
        ("the store failed", "OSError('odd')"),
        ("the store can be used again", None),
    ]


def test_what_may_have_been_kept_is_unknown_to_its_client() -> None:
    """A timeout, which Kafka's clients take for that."""

    class Unsure(LocalStore):
        def alter(self, *_: Any, **__: Any) -> Any:
            raise StoreError("the disk failed", for_clients="it is unknown", is_unknown=True)

    async def scenario(store: LocalStore) -> None:
        async with serving(store) as connect:
            change = AlterClientQuotasRequest([user("alice", ("producer_byte_rate", 5.0))], validate_only=False)
            [one] = (await (await connect()).ask(ALTER_CLIENT_QUOTAS, 1, change)).entries
            assert (one.error_code, one.error_message) == (7, "it is unknown")

    asyncio.run(scenario(Unsure(MemoryKeeper())))


def test_changes_are_made_in_the_order_in_which_they_were_asked_for() -> None:
    """However large: none is decided again because a later one was faster."""
    began, go = Event(), Event()
    made: list[int] = []

    class Slow(LocalStore):
        def alter(self, alterations: Any, **options: Any) -> Any:
            began.set()
            assert go.wait(60)
            made.append(len(alterations))
            return super().alter(alterations, **options)

    async def scenario(store: LocalStore) -> None:
        async with serving(store) as connect:
            sizes = [9_000, 1, 2, 3]
            asking = []
            for size in sizes:
                client = await connect()
                change = AlterClientQuotasRequest(
                    [user(f"u{number}", ("producer_byte_rate", 5.0)) for number in range(size)], validate_only=False
                )
                asking.append(asyncio.create_task(client.ask(ALTER_CLIENT_QUOTAS, 1, change)))
                await asyncio.to_thread(began.wait, 60)
            described = await (await connect()).ask(DESCRIBE_CLIENT_QUOTAS, 1, EVERYTHING)
            assert described.entries == []
            go.set()
            answers = [await one for one in asking]
            assert made[0] == 9_000
            assert sorted(made) == sorted(sizes)
            assert {one.error_code for answer in answers for one in answer.entries} == {0}

    with Slow(MemoryKeeper()) as store:
        asyncio.run(scenario(store))


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_the_command_serves_and_stops(tmp_path: Path, stop: signal.Signals) -> None:
    """It keeps what it answered, and ends in order with 0: on SIGHUP, too, as Kafka does."""
    for expected in (0, 1):
        with server_process("--store", f"sqlite:///{tmp_path}/q.db") as server:

            async def scenario(server: ServerProcess = server, expected: int = expected) -> None:
                client = Client(*await asyncio.open_connection(*server.host_and_port))
                assert len((await client.ask(DESCRIBE_CLIENT_QUOTAS, 1, EVERYTHING)).entries) == expected
                change = AlterClientQuotasRequest([user("alice", ("producer_byte_rate", 5.0))], validate_only=False)
                assert (await client.ask(ALTER_CLIENT_QUOTAS, 1, change)).entries[0].error_code == 0
                await client.close()

            asyncio.run(scenario())
            assert server.stop(stop) == 0, server.log
            assert f"{tmp_path}/q.db" in server.log
            assert "stopped" in server.log


def test_a_log_that_nobody_reads_stops_nothing() -> None:
    """Neither the answers nor the end, however many bad connections there were."""
    with subprocess.Popen(
        [KQUOTA, "serve", "--listen", "127.0.0.1:0", "--store", "memory:"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline().rsplit(":", 1)[1])
        address = ("127.0.0.1", port)
        assert process.stderr is not None
        # A pipe of one page, so that few lines fill it.
        fcntl.fcntl(process.stderr.fileno(), fcntl.F_SETPIPE_SZ, 4096)
        for _ in range(100):
            assert send_and_end(address, [b"\xff\xff\xff\xff"], patience_s=30).ended
        asked = write_request(DESCRIBE_CLIENT_QUOTAS, 1, 1, None, EVERYTHING)
        assert send_and_end(address, [asked], patience_s=30).answers == 1
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 0


def test_out_of_files_it_serves_on() -> None:
    """Those who are connected are answered, new ones once there is a file again; the log says it once."""
    asked = write_request(DESCRIBE_CLIENT_QUOTAS, 1, 1, None, EVERYTHING)
    with server_process("--store", "memory:") as server:
        early = socket.create_connection(server.host_and_port, timeout=30)
        early.sendall(asked)
        assert early.recv(4096)
        resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (server.open_files() + 5, 1024))
        others = [socket.create_connection(server.host_and_port, timeout=30) for _ in range(20)]
        for _ in range(3):
            early.sendall(asked)
            assert early.recv(4096)
        eventually(lambda: "Too many open files" in server.log, expected=True)
        for one in (early, *others):
            one.close()
        assert send_and_end(server.host_and_port, [asked], patience_s=60).answers == 1
        assert server.log.count("Too many open files") == 1


def test_no_more_connections_than_open_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a process may open few files, it takes fewer connections than set."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (OTHER_FILES + 2, 4096))

    async def scenario() -> None:
        with open_store("memory:") as store:
            async with serving(store) as connect:
                clients = [await connect() for _ in range(2)]
                for client in clients:
                    await client.ask(DESCRIBE_CLIENT_QUOTAS, 1, EVERYTHING)
                third = await connect()
                with contextlib.suppress(ConnectionError):
                    assert await third.reader.read() == b""

    asyncio.run(scenario())


def test_costly_requests_cost_no_more_than_allowed() -> None:
    """Ten times the memory of the largest request, whatever it holds; others are answered meanwhile."""
    limits = ConnectionLimits()
    requests = costly_requests(limits.socket_request_max_bytes, limits.request_max_elements)
    with server_process("--store", "memory:") as server, QuotaAdmin(server.address) as admin:
        admin.alter_client_quotas(rules_for_costly_requests()).all()
        for what, frame in requests.items():
            before_mb = server.memory_mb()
            server.forget_peak()
            assert send_and_end(server.host_and_port, [frame], patience_s=60).ended
            taken = (server.peak_memory_mb() - before_mb) * 2**20 / limits.socket_request_max_bytes
            assert taken <= 10, (what, taken)
            assert admin.describe_client_quotas(ClientQuotaFilter.all()).entities()


def test_requests_beyond_what_may_be_asked_at_once(store: LocalStore) -> None:
    """A thousand clients are resolved at once, not more; clients for whom an answer has no place are refused."""

    async def scenario() -> None:
        async with serving(store, limits=ConnectionLimits(socket_request_max_bytes=40_000)) as connect:
            client = await connect()
            change = AlterClientQuotasRequest([user("u" * 1000, ("producer_byte_rate", 5.0))], validate_only=False)
            await client.ask(ALTER_CLIENT_QUOTAS, 1, change)
            one = ResolveClientQuotasRequest([NamedPart("user", "u" * 1000)])
            answer = await client.ask(RESOLVE_QUOTAS, 0, ResolveQuotasRequest([one] * 20, include_overridden=True))
            codes = [result.error_code for result in answer.results]
            assert (codes[0], codes[-1], len(codes)) == (0, KafkaErrorCode.POLICY_VIOLATION, 20)
            small = ResolveClientQuotasRequest([NamedPart("user", "u")])
            answer = await client.ask(RESOLVE_QUOTAS, 0, ResolveQuotasRequest([small] * 1001, include_overridden=True))
            assert (answer.error_code, answer.results) == (KafkaErrorCode.POLICY_VIOLATION, [])

    asyncio.run(scenario())


def test_what_cannot_be_served(tmp_path: Path) -> None:
    """A port in use, a store that is none, an address nobody can connect to: said, with the right exit code."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        cases = [
            (["--listen", f"127.0.0.1:{port}", "--store", "memory:"], 1, "cannot listen on"),
            (["--listen", "127.0.0.1:0", "--store", f"sqlite:///{tmp_path}/no/q.db"], 1, "cannot be opened"),
            (["--listen", "127.0.0.1:0", "--store", "mysql://x"], 2, "not the URL of a store"),
            (["--listen", "0.0.0.0:0", "--store", "memory:"], 2, "--advertise"),
            (["--listen", "0x0:0", "--store", "memory:"], 2, "--advertise"),
            (["--listen", "[0::0]:0", "--store", "memory:"], 2, "--advertise"),
            (["--listen", "[::]:0", "--advertise", "localhost:0", "--store", "memory:"], 2, "--insecure"),
            (["--listen", "127.0.0.1:0", "--advertise", "0.0.0.0:9092", "--store", "memory:"], 2, "--advertise"),
            (["--listen", "127.0.0.1:0", "--advertise", "bad host\nx:9092", "--store", "memory:"], 2, "--advertise"),
            (["--listen", "127.0.0.1:0", "-D", "max.conections=5", "--store", "memory:"], 2, "max.connections"),
            (["--listen", f"{'a' * 64}:0", "--store", "memory:"], 1, "not a host name"),
            (["--listen", "localhost", "--store", "memory:"], 2, "host:port"),
        ]
        for arguments, code, reason in cases:
            done = subprocess.run([KQUOTA, "serve", *arguments], capture_output=True, text=True, check=False)
            assert (done.returncode, reason in done.stderr) == (code, True), done.stderr
            assert "Traceback" not in done.stderr


def test_every_address_with_leave() -> None:
    """With --insecure, and an address to advertise; by IPv4, too."""
    with server_process(
        "--listen", "[::]:0", "--advertise", "localhost:0", "--insecure", "--store", "memory:"
    ) as server:
        asked = write_request(DESCRIBE_CLIENT_QUOTAS, 1, 1, None, EVERYTHING)
        for host in ("127.0.0.1", "::1"):
            assert send_and_end((host, server.host_and_port[1]), [asked], patience_s=30).answers == 1


def test_an_odd_spelling_is_advertised_as_the_address_it_is(store: LocalStore) -> None:
    async def scenario() -> None:
        async with QuotaServer(store, ServerSettings(Address("0x7f.1", 0))) as server:
            assert server.address.host == "127.0.0.1"
            client = Client(*await asyncio.open_connection(server.address.host, server.address.port))
            answer = await client.ask(METADATA, 12, MetadataRequest([]))
            assert [broker.host for broker in answer.brokers] == ["127.0.0.1"]
            await client.close()

    asyncio.run(scenario())
