"""Requests about quotas that the gateway answers itself, on a client's connection from end to end."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from kquota.cli import run as kquota
from kquota.errors import KafkaErrorCode
from kquota.files import QuotaFile, write_yaml
from kquota.gateway.quotas.own_quotas import OwnQuotas
from kquota.metering.callback import KafkaPrincipal
from kquota.quotas import CLIENT_ID, PRODUCER_BYTE_RATE, USER, ClientQuotaAlteration, ClientQuotaEntity
from kquota.stores import QuotaFeed, Servable, open_store
from kquota.stores.file import FileStore
from kquota.stores.local import LocalStore
from kquota.wire.apis import (
    ALTER_CLIENT_QUOTAS,
    API_VERSIONS,
    DESCRIBE_CLIENT_QUOTAS,
    DESCRIBE_CLUSTER,
    DESCRIBE_USER_SCRAM_CREDENTIALS,
    RESOLVE_CLIENT_QUOTAS,
    RESOLVE_QUOTAS,
    Api,
    read_header,
    read_response,
    write_request,
    write_response,
)
from kquota.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from kquota.wire.messages.client_quotas import (
    Alteration,
    AlterClientQuotasRequest,
    DescribeClientQuotasRequest,
    EntityPart,
    Op,
)
from kquota.wire.messages.describe_cluster import DescribeClusterResponse
from kquota.wire.messages.resolve_client_quotas import NamedPart, ResolveClientQuotasRequest, ResolveQuotasRequest
from kquota.wire.messages.scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    UserName,
)
from tests.kit.relayed import Relayed, answer, frames, request

ALICE = ClientQuotaEntity({USER: "alice"})
MAY_DESCRIBE = 1 << 8 | 1 << 10
MAY_ALTER = 1 << 8 | 1 << 11
DENIED = (KafkaErrorCode.CLUSTER_AUTHORIZATION_FAILED, None)
DENIED_TO_ALTER = (KafkaErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed.")
SPOKEN = {18: (0, 4), 50: (0, 0), 60: (0, 1), 3: (0, 12)}


class Gateway:
    """A client's connection, whose broker shows the rights given, and the requests that reach the broker."""

    def __init__(self, relayed: Relayed, operations: int, spoken: dict[int, tuple[int, int]]) -> None:
        self.relayed = relayed
        self.operations = operations
        self.spoken = spoken
        self.passed_on: list[bytes] = []

    async def ask(self, api: Api, version: int, body: Struct) -> Any:
        """The answer to the client, read."""
        found = await self.ask_bytes(write_request(api, version, 7, "c", body))
        correlation_id, read = read_response(api, version, found[4:])
        assert correlation_id == 7
        return read

    async def ask_bytes(self, frame: bytes) -> bytes:
        """The frame that the client gets."""
        self.relayed.client_sends(frame)
        async with asyncio.timeout(20):
            while not self.relayed.to_client.written:
                self.broker_answers()
                await asyncio.sleep(0)
        [found] = frames(self.relayed.to_client.take())
        return found

    def broker_answers(self) -> None:
        """What has reached the broker."""
        for frame in frames(self.relayed.to_broker.take()):
            self.passed_on.append(frame)
            header, _ = read_header(frame[4:])
            self.relayed.broker_sends(self._answer(header.api_key, header.api_version, header.correlation_id))

    def _answer(self, key: int, version: int, correlation_id: int) -> bytes:
        if key == 18:
            versions = ApiVersionsResponse(0, [ApiVersion(api, *both) for api, both in self.spoken.items()])
            return write_response(API_VERSIONS, version, correlation_id, versions)
        if key == 60:
            cluster = DescribeClusterResponse(0, 0, None, cluster_authorized_operations=self.operations)
            return write_response(DESCRIBE_CLUSTER, version, correlation_id, cluster)
        assert key == 50, f"{key} reached the broker"
        return answer(correlation_id, b"\0as the broker says")


@pytest.fixture
def store() -> Iterator[LocalStore]:
    with open_store("memory:") as opened:
        opened.alter([ClientQuotaAlteration(ALICE, (ClientQuotaAlteration.Op(PRODUCER_BYTE_RATE, 1000.0),))])
        yield opened


@asynccontextmanager
async def gateway(
    store: Servable,
    operations: int,
    *,
    in_force: Callable[[], Awaitable[bool]] | None = None,
    spoken: dict[int, tuple[int, int]] = SPOKEN,
    max_elements: int = 1_000,
) -> AsyncIterator[Gateway]:
    async def at_once() -> bool:
        return True

    own = OwnQuotas(
        store,
        max_elements=max_elements,
        static_defaults={"consumer_byte_rate": 9.0},
        in_force=in_force or at_once,
    )
    relayed = Relayed(own_quotas=own)
    await relayed.connect()
    try:
        yield Gateway(relayed, operations, spoken)
    finally:
        relayed.close()
        own.close()


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


def to_alter(*names: str, value: float = 5.0, validate_only: bool = False) -> AlterClientQuotasRequest:
    entries = [Alteration([EntityPart(USER, name)], [Op(PRODUCER_BYTE_RATE, value, remove=False)]) for name in names]
    return AlterClientQuotasRequest(entries, validate_only)


EVERYTHING = DescribeClientQuotasRequest([], strict=False)
CLIENT = ResolveClientQuotasRequest([NamedPart(USER, "alice"), NamedPart(CLIENT_ID, "c")])


def test_who_may_describe_describes_and_resolves(store: LocalStore) -> None:
    async def work() -> None:
        async with gateway(store, MAY_DESCRIBE) as one:
            for version in (0, 1):
                described = await one.ask(DESCRIBE_CLIENT_QUOTAS, version, EVERYTHING)
                assert described.error_code == 0
                [entry] = described.entries
                assert [(value.key, value.value) for value in entry.values] == [(PRODUCER_BYTE_RATE, 1000.0)]
            [of_kip] = (await one.ask(RESOLVE_CLIENT_QUOTAS, 0, CLIENT)).entry
            assert {value.type: value.entry[0].value for value in of_kip.quota_values} == {
                PRODUCER_BYTE_RATE: 1000.0,
                "consumer_byte_rate": 9.0,
            }
            batch = await one.ask(RESOLVE_QUOTAS, 0, ResolveQuotasRequest([CLIENT], include_overridden=True))
            [client] = batch.results
            assert {value.key: value.rule.value for value in client.values} == {
                PRODUCER_BYTE_RATE: 1000.0,
                "consumer_byte_rate": 9.0,
            }
            # Which versions there are once for the connection, and the rights once for all of this.
            assert [frame[4:6] for frame in one.passed_on] == [struct.pack(">h", 18), struct.pack(">h", 60)]

    run(work())


def test_who_may_alter_alters_under_its_own_name(store: LocalStore) -> None:
    async def work() -> None:
        async with gateway(store, MAY_ALTER) as one:
            for version in (0, 1):
                altered = await one.ask(ALTER_CLIENT_QUOTAS, version, to_alter(f"bob-{version}"))
                assert [entry.error_code for entry in altered.entries] == [0]
            refused = await one.ask(ALTER_CLIENT_QUOTAS, 1, to_alter("bob", value=-1.0))
            assert [entry.error_code for entry in refused.entries] == [KafkaErrorCode.INVALID_REQUEST]
            await one.ask(ALTER_CLIENT_QUOTAS, 1, to_alter("bob", validate_only=True))

    run(work())
    _, *commits = store.history()
    assert [commit.principal for commit in commits] == ["User:ANONYMOUS"] * 2


def test_the_history_has_who_it_was(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    principal = KafkaPrincipal("User", "alice")
    monkeypatch.setattr("kquota.gateway.identity.connection_identity.ConnectionIdentity.principal", principal)

    async def work() -> None:
        async with gateway(store, MAY_ALTER) as one:
            await one.ask(ALTER_CLIENT_QUOTAS, 1, to_alter("bob"))
            await one.ask(ALTER_CLIENT_QUOTAS, 1, to_alter(*(f"user-{i}" for i in range(300))))

    run(work())
    _, *commits = store.history()
    assert [(commit.principal, len(commit.changes)) for commit in commits] == [("User:alice", 1), ("User:alice", 300)]


def test_who_may_not_describe_is_refused(store: LocalStore) -> None:
    """With each API's own shape of an error; AlterConfigs implies DescribeConfigs only where the broker shows both."""

    async def work() -> None:
        async with gateway(store, MAY_ALTER) as one:
            described = await one.ask(DESCRIBE_CLIENT_QUOTAS, 1, EVERYTHING)
            assert (described.error_code, described.error_message) == DENIED
            assert described.entries is None
            batch = await one.ask(RESOLVE_QUOTAS, 0, ResolveQuotasRequest([CLIENT], include_overridden=False))
            assert (batch.error_code, batch.error_message, batch.results) == (*DENIED, [])
            [entry] = (await one.ask(RESOLVE_CLIENT_QUOTAS, 0, CLIENT)).entry
            assert (entry.error_code, entry.error_message) == DENIED
            assert (entry.quota_entity, entry.quota_values) == (CLIENT.entity, [])

    run(work())


@pytest.mark.parametrize("names", [["bob"], ["bob", "carol", "bob"], [f"user-{i}" for i in range(300)], []])
def test_who_may_not_alter_is_refused_for_each_entity(store: LocalStore, names: list[str]) -> None:
    async def work() -> None:
        async with gateway(store, MAY_DESCRIBE) as one:
            altered = await one.ask(ALTER_CLIENT_QUOTAS, 1, to_alter(*names))
            assert [entry.entity[0].entity_name for entry in altered.entries] == names
            assert {(entry.error_code, entry.error_message) for entry in altered.entries} <= {DENIED_TO_ALTER}

    run(work())
    assert len(list(store.history())) == 1


def test_rights_are_of_the_connection_and_not_of_the_gateway(store: LocalStore) -> None:
    async def work() -> None:
        async with gateway(store, MAY_DESCRIBE) as one, gateway(store, 0) as other:
            assert (await one.ask(DESCRIBE_CLIENT_QUOTAS, 1, EVERYTHING)).error_code == 0
            assert (await other.ask(DESCRIBE_CLIENT_QUOTAS, 1, EVERYTHING)).error_code == DENIED[0]

    run(work())


def test_scram_credentials_are_the_brokers(store: LocalStore) -> None:
    """Whatever the client may do: the broker decides that itself. What has the same key and is a resolve is not its."""

    async def work() -> None:
        async with gateway(store, 0) as one:
            for users in (None, [], [UserName("alice")]):
                asked = write_request(
                    DESCRIBE_USER_SCRAM_CREDENTIALS, 0, 7, "c", DescribeUserScramCredentialsRequest(users)
                )
                assert await one.ask_bytes(asked) == answer(7, b"\0as the broker says")
                assert one.passed_on[-1] == asked

    run(work())


def test_a_broker_without_scram_credentials_is_not_asked_for_them(store: LocalStore) -> None:
    """It would close the connection."""

    async def work() -> None:
        async with gateway(store, 0, spoken={18: (0, 3), 3: (0, 9)}) as one:
            body = DescribeUserScramCredentialsRequest(None)
            found: DescribeUserScramCredentialsResponse = await one.ask(DESCRIBE_USER_SCRAM_CREDENTIALS, 0, body)
            assert found.error_code == KafkaErrorCode.UNSUPPORTED_VERSION

    run(work())


def test_the_client_is_shown_what_the_gateway_answers(store: LocalStore) -> None:
    async def work() -> None:
        async with gateway(store, 0, spoken={18: (0, 4), 48: (0, 7)}) as one:
            shown = await one.ask(API_VERSIONS, 4, ApiVersionsRequest("c", "1"))
            versions = {api.api_key: (api.min_version, api.max_version) for api in shown.api_keys}
            assert versions == {18: (0, 4), 48: (0, 1), 49: (0, 1), 50: (0, 0), 10546: (0, 0)}

    run(work())


def test_an_alteration_is_answered_once_it_is_in_force(store: LocalStore) -> None:
    """By the feed's own thread, and not by the next look in a quarter of a second."""
    applied: list[tuple[str, ClientQuotaEntity, float | None]] = []

    async def work() -> None:
        with QuotaFeed(store) as feed:
            loop = asyncio.get_running_loop()
            feed.drive(lambda changes: loop.call_soon_threadsafe(applied.extend, changes))

            async def in_force() -> bool:
                return await asyncio.to_thread(feed.catch_up, 20_000)

            async with gateway(store, MAY_ALTER, in_force=in_force) as one:
                for value in (5.0, 6.0, 7.0):
                    await one.ask(ALTER_CLIENT_QUOTAS, 1, to_alter("alice", value=value))
                    assert applied[-1] == (PRODUCER_BYTE_RATE, ALICE, value)

    run(work())


def test_an_alteration_that_is_not_in_force_in_time_is_answered_all_the_same(store: LocalStore) -> None:
    async def never() -> bool:
        return False

    async def work() -> None:
        async with gateway(store, MAY_ALTER, in_force=never) as one:
            assert [entry.error_code for entry in (await one.ask(ALTER_CLIENT_QUOTAS, 1, to_alter("bob"))).entries] == [
                0
            ]

    run(work())


def test_quotas_of_a_file_are_read_only(tmp_path: Path) -> None:
    path = tmp_path / "quotas.yaml"
    path.write_text(write_yaml(QuotaFile.of({ALICE: {PRODUCER_BYTE_RATE: 1000.0}})))

    async def work() -> None:
        with FileStore(path) as store:
            async with gateway(store, MAY_DESCRIBE | MAY_ALTER) as one:
                described = await one.ask(DESCRIBE_CLIENT_QUOTAS, 1, EVERYTHING)
                assert [entry.values[0].value for entry in described.entries] == [1000.0]
                batch = await one.ask(RESOLVE_QUOTAS, 0, ResolveQuotasRequest([CLIENT], include_overridden=False))
                assert {value.rule.value for value in batch.results[0].values} == {1000.0, 9.0}
                altered = await one.ask(ALTER_CLIENT_QUOTAS, 1, to_alter("alice", "bob"))
                for entry in altered.entries:
                    assert entry.error_code == KafkaErrorCode.POLICY_VIOLATION
                    assert str(path) in entry.error_message

    run(work())


@pytest.mark.parametrize("key", [48, 49, 10546])
def test_what_cannot_be_read_closes_the_connection(store: LocalStore, key: int) -> None:
    """Whether the client may ask or not."""

    async def work(operations: int) -> None:
        async with gateway(store, operations) as one:
            one.relayed.client_sends(request(key, 0, 7, b"\xff" * 8))
            async with asyncio.timeout(20):
                while not one.relayed.to_client.has_closed:
                    one.broker_answers()
                    await asyncio.sleep(0)
            assert not one.relayed.to_client.written

    run(work(0))
    run(work(MAY_DESCRIBE | MAY_ALTER))


def test_more_elements_than_allowed_close_the_connection(store: LocalStore) -> None:
    async def work() -> None:
        async with gateway(store, MAY_ALTER, max_elements=10) as one:
            one.relayed.client_sends(write_request(ALTER_CLIENT_QUOTAS, 1, 7, "c", to_alter(*("bob",) * 11)))
            async with asyncio.timeout(20):
                while not one.relayed.to_client.has_closed:
                    one.broker_answers()
                    await asyncio.sleep(0)

    run(work())
    assert len(list(store.history())) == 1


def test_a_client_that_takes_no_answers_gets_no_more_of_them(store: LocalStore) -> None:
    """Otherwise a few bytes of requests would make the gateway keep all quotas, again and again."""

    async def work() -> None:
        async with gateway(store, MAY_DESCRIBE) as one:
            asked = write_request(DESCRIBE_CLIENT_QUOTAS, 1, 7, "c", EVERYTHING)
            first = await one.ask_bytes(asked)
            one.relayed.client.pause_writing()
            one.relayed.client_sends(asked * 5)
            await one.relayed.settle(50)
            assert one.relayed.to_client.take() == first
            assert one.relayed.to_client.is_paused
            one.relayed.client.resume_writing()
            await one.relayed.settle(50)
            assert one.relayed.to_client.take() == first * 4
            assert not one.relayed.to_client.is_paused

    run(work())


def test_many_quotas_are_sent_in_few_pieces(store: LocalStore) -> None:
    async def work() -> None:
        one_value = (ClientQuotaAlteration.Op(PRODUCER_BYTE_RATE, 1.0),)
        for start in range(0, 5_000, 1_000):
            store.alter(
                ClientQuotaAlteration(ClientQuotaEntity({USER: f"user-{i}"}), one_value)
                for i in range(start, start + 1_000)
            )
        async with gateway(store, MAY_DESCRIBE) as one:
            described = await one.ask(DESCRIBE_CLIENT_QUOTAS, 1, EVERYTHING)
            assert len(described.entries) == 5_001

    run(work())


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ("clutser", "clutser: there is no such file; write cluster, the URL of a store"),
        ("redis://u:secret@host/0", "not the URL of a store; write sqlite:///quotas.db"),
        ("s3a://bucket/quotas.yaml", "not the URL of a store"),
    ],
)
def test_what_names_no_quotas_is_refused_at_the_start(
    place: str, expected: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Before the cluster is asked for anything."""
    assert kquota(["gateway", "--upstream", "127.0.0.1:1", "--quotas", place]) == 2
    error = capfd.readouterr().err
    assert f"kquota: error: --quotas {place[:5]}" in error
    assert expected in error
    assert "secret" not in error
