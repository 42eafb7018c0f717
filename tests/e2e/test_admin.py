"""``QuotaAdmin`` against a server of ours: KIP-546's methods, bulk, and what goes wrong on the way."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from kquota.admin import (
    AlterClientQuotasOptions,
    AsyncQuotaAdmin,
    Entry,
    NewTopic,
    QuotaAdmin,
    ResolveClientQuotasOptions,
    Value,
)
from kquota.admin.client import CHUNK_ENTITIES
from kquota.errors import (
    ApiError,
    ApiFailedError,
    ConnectionFailedError,
    IllegalArgumentError,
    KafkaErrorCode,
    KquotaError,
    NotSupportedError,
    RequestTimeoutError,
)
from kquota.quotas import (
    CLIENT_ID,
    STATIC,
    USER,
    ClientQuotaAlteration,
    ClientQuotaEntity,
    ClientQuotaFilter,
    ClientQuotaFilterComponent,
    MeterKey,
)
from kquota.stores import open_store
from kquota.stores.local import LocalStore
from kquota.wire.apis import APIS, RESOLVE_QUOTAS
from kquota.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from tests.kit.quota_server import running_server

Op = ClientQuotaAlteration.Op
ALICE = ClientQuotaEntity({USER: "alice"})
DEFAULT_ETL = ClientQuotaEntity({USER: None, CLIENT_ID: "etl"})
ALICE_ETL = ClientQuotaEntity({USER: "alice", CLIENT_ID: "etl"})
PRODUCE = "producer_byte_rate"


@pytest.fixture
def store() -> Iterator[LocalStore]:
    with open_store("memory:") as opened:
        yield opened


@pytest.fixture
def admin(store: LocalStore) -> Iterator[QuotaAdmin]:
    with running_server(store) as address, QuotaAdmin(str(address), timeout_ms=20_000) as opened:
        yield opened


def set_to(entity: ClientQuotaEntity, value: float | None, key: str = PRODUCE) -> ClientQuotaAlteration:
    return ClientQuotaAlteration(entity, [Op(key, value)])


def test_altered_quotas_are_described(admin: QuotaAdmin, store: LocalStore) -> None:
    """Each entity has its own result; validating changes nothing; awkward names arrive as they are."""
    awkward = ClientQuotaEntity({USER: "<default>", CLIENT_ID: "a,b=c \u00e9\U0001f600"})
    alterations = [set_to(ALICE, 5), set_to(ClientQuotaEntity({USER: None}), -1), set_to(awkward, 7)]
    for validate_only in (True, False):
        result = admin.alter_client_quotas(alterations, AlterClientQuotasOptions(validate_only=validate_only))
        refused = ApiError(KafkaErrorCode.INVALID_REQUEST, "Quota producer_byte_rate must be greater than 0")
        assert list(result.values().values()) == [None, refused, None]
        with pytest.raises(ApiFailedError, match="must be greater than 0"):
            result.all()
        assert len(store.index().snapshot) == (0 if validate_only else 2)
    entities = admin.describe_client_quotas(ClientQuotaFilter.all()).entities()
    assert entities == {ALICE: {PRODUCE: 5.0}, awkward: {PRODUCE: 7.0}}
    only = ClientQuotaFilter.contains_only([ClientQuotaFilterComponent.of_entity(USER, "alice")])
    assert list(admin.describe_client_quotas(only).entities()) == [ALICE]
    admin.alter_client_quotas([set_to(ALICE, None)]).all()
    assert list(admin.describe_client_quotas(only).entities()) == []


def test_what_is_unknown_is_sent_and_refused_by_the_broker(admin: QuotaAdmin) -> None:
    """Types and keys are the broker's to judge."""
    group = ClientQuotaFilter.contains([ClientQuotaFilterComponent.of_entity_type("group")])
    with pytest.raises(NotSupportedError, match="Unsupported entity type group"):
        admin.describe_client_quotas(group).entities()
    [error] = admin.alter_client_quotas([set_to(ALICE, 1, key="nonsense")]).values().values()
    assert error == ApiError(KafkaErrorCode.INVALID_REQUEST, "Invalid configuration key nonsense")


def test_what_stands_twice_is_not_sent(admin: QuotaAdmin) -> None:
    """Kafka would do the first and say that it failed."""
    with pytest.raises(IllegalArgumentError, match="user=alice is given twice"):
        admin.alter_client_quotas([set_to(ALICE, 1), set_to(ALICE, 2)])
    with pytest.raises(IllegalArgumentError, match="no client"):
        admin.resolve_client_quotas([DEFAULT_ETL])


@pytest.mark.parametrize(
    "name, key, reason",
    [
        ("x" * 32_768, PRODUCE, "32768 bytes cannot be sent"),
        ("é" * 16_384, PRODUCE, "32768 bytes cannot be sent"),
        ("a", "k" * 40_000, "40000 bytes cannot be sent"),
    ],
    ids=["name", "name-in-bytes", "key"],
)
def test_what_no_request_can_hold_is_refused_before_anything_is_sent(
    name: str, key: str, reason: str, admin: QuotaAdmin, store: LocalStore
) -> None:
    """Also of what would be sent before it: the first chunk is not done."""
    first = [ClientQuotaAlteration(ClientQuotaEntity({USER: f"u{n}"}), [Op(PRODUCE, 1.0)]) for n in range(1_001)]
    last = ClientQuotaAlteration(ClientQuotaEntity({USER: name}), [Op(key, 1.0)])
    with pytest.raises(IllegalArgumentError, match=reason) as refused:
        admin.alter_client_quotas([*first, last])
    assert refused.value.exit_code == 2
    assert store.describe(ClientQuotaFilter.all()) == {}
    if name != "a":
        long = ClientQuotaFilter.contains([ClientQuotaFilterComponent.of_entity(USER, name)])
        with pytest.raises(IllegalArgumentError, match=reason):
            admin.describe_client_quotas(long)
        with pytest.raises(IllegalArgumentError, match=reason):
            admin.resolve_client_quotas([ClientQuotaEntity({USER: name})])
    assert admin.describe_client_quotas(ClientQuotaFilter.all()).entities() == {}, "the connection is as it was"


def test_names_as_long_as_a_request_can_hold_are_sent(admin: QuotaAdmin) -> None:
    longest = ClientQuotaEntity({USER: "é" * 16_383 + "x"})
    alteration = ClientQuotaAlteration(longest, [Op(PRODUCE, 1.0)])
    result = admin.alter_client_quotas([alteration], AlterClientQuotasOptions(validate_only=True))
    assert result.values().keys() == {longest}


def test_a_client_id_that_no_request_can_hold() -> None:
    with pytest.raises(IllegalArgumentError, match="cannot be sent"):
        QuotaAdmin(client_id="x" * 40_000)


@pytest.mark.parametrize("advertised", [True, False], ids=["asked", "from-describe"])
def test_resolving_is_the_same_wherever_it_is_done(
    store: LocalStore, advertised: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the server where it says that it can, and otherwise here, from one description."""
    if not advertised:
        monkeypatch.setattr("kquota.admin.client.RESOLVE_QUOTAS", None)
        monkeypatch.setattr("kquota.admin.client.AsyncQuotaAdmin._ask_to_resolve", None)
        monkeypatch.setattr("kquota.admin.client.RESOLVE_QUOTAS", type("Nowhere", (), {"key": -1}))
    with running_server(store) as address, QuotaAdmin(str(address)) as admin:
        admin.alter_client_quotas([set_to(ALICE, 5), set_to(DEFAULT_ETL, 7)]).all()
        config = admin.resolve_client_quotas([ALICE_ETL, ClientQuotaEntity({USER: "bob"})]).config()
        assert config == {
            ALICE_ETL: {
                PRODUCE: Value(
                    Entry(ALICE, 5.0, 3), MeterKey({USER: "alice"}), overridden_entries=(Entry(DEFAULT_ETL, 7.0, 4),)
                )
            },
            ClientQuotaEntity({USER: "bob"}): {},
        }
        short = admin.resolve_client_quotas([ALICE_ETL], ResolveClientQuotasOptions(omit_overridden_values=True))
        assert config[ALICE_ETL] != short.config()[ALICE_ETL]
        [value] = [values[PRODUCE] for values in short.config().values() if not isinstance(values, ApiError)]
        assert (value.entry, value.overridden_entries) == (Entry(ALICE, 5.0, 3), ())
        short.all()


def test_a_static_default_is_a_source_of_its_own(store: LocalStore) -> None:
    """Only the server knows its settings."""
    with (
        running_server(store, static_defaults=((PRODUCE, 99.0),)) as address,
        QuotaAdmin(str(address)) as admin,
    ):
        [values] = admin.resolve_client_quotas([ALICE_ETL]).config().values()
        assert not isinstance(values, ApiError)
        assert values[PRODUCE].entry == Entry(STATIC, 99.0, 9)


def test_many_are_sent_in_chunks(admin: QuotaAdmin, store: LocalStore) -> None:
    """More than a request may change, in the order asked for, resolved in bulk too."""
    clients = [ClientQuotaEntity({USER: f"user-{number}"}) for number in range(CHUNK_ENTITIES * 2 + 5)]
    result = admin.alter_client_quotas([set_to(client, number + 1) for number, client in enumerate(clients)])
    assert list(result.values()) == clients
    result.all()
    assert len(store.index().snapshot) == len(clients)
    assert len(list(store.history())) == 3
    config = admin.resolve_client_quotas(clients).config()
    assert list(config) == clients
    last = config[clients[-1]]
    assert not isinstance(last, ApiError)
    assert last[PRODUCE].entry.value == len(clients)


def test_asyncio_has_the_same(store: LocalStore) -> None:
    """Several calls at once on one client."""

    async def scenario(address: str) -> None:
        async with AsyncQuotaAdmin(address) as admin:
            await admin.alter_client_quotas([set_to(ALICE, 5)])
            results = await asyncio.gather(*(admin.describe_client_quotas(ClientQuotaFilter.all()) for _ in range(20)))
            assert [result.entities() for result in results] == [{ALICE: {PRODUCE: 5.0}}] * 20

    with running_server(store) as address:
        asyncio.run(scenario(str(address)))


def test_nobody_there() -> None:
    """Said at once that it cannot be reached, and with the exit code of that."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    with QuotaAdmin(f"127.0.0.1:{port}", timeout_ms=2_000) as admin:
        with pytest.raises((ConnectionFailedError, RequestTimeoutError)) as error:
            admin.describe_client_quotas(ClientQuotaFilter.all())
        assert error.value.exit_code == 5
        assert str(port) in str(error.value)


class _Proxy:
    """Between client and server; from a given request on it passes nothing back, or cuts the connection instead."""

    def __init__(self, host: str, port: int) -> None:
        self._upstream = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.is_silent = False
        self.is_cutting = False
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(self._upstream)
            threading.Thread(target=self._pass, args=(client, server, False), daemon=True).start()
            threading.Thread(target=self._pass, args=(server, client, True), daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, is_answer: bool) -> None:
        while data := source.recv(65536):
            if is_answer and self.is_cutting:
                target.shutdown(socket.SHUT_RDWR)
                return
            if not (is_answer and self.is_silent):
                target.sendall(data)

    def close(self) -> None:
        self._listener.close()


def test_no_answer_means_unknown(store: LocalStore) -> None:
    """It may have been done: here it was, and nothing says that it failed."""
    with running_server(store) as address:
        proxy = _Proxy(address.host, address.port)
        with running_server(store, advertise=type(address)("127.0.0.1", proxy.port)) as through:
            proxy._upstream = (through.host, through.port)
            with QuotaAdmin(f"127.0.0.1:{proxy.port}", timeout_ms=3_000) as admin:
                assert admin.describe_client_quotas(ClientQuotaFilter.all()).entities() == {}
                proxy.is_silent = True
                many = [ClientQuotaEntity({USER: f"user-{number}"}) for number in range(CHUNK_ENTITIES + 1)]
                result = admin.alter_client_quotas([set_to(client, 1) for client in many])
                first, *_, last = result.values().values()
                assert first is not None
                assert first.is_unknown
                assert last is not None
                assert (last.is_unknown, "not sent" in (last.message or "")) == (False, True)
                assert len(store.index().snapshot) == CHUNK_ENTITIES
                with pytest.raises(RequestTimeoutError):
                    result.all()
        proxy.close()


def test_a_connection_lost_before_the_answer_means_unknown(store: LocalStore) -> None:
    """It was sent and, here, done: to say that nothing was sent would be wrong."""
    with running_server(store) as address:
        proxy = _Proxy(address.host, address.port)
        with running_server(store, advertise=type(address)("127.0.0.1", proxy.port)) as through:
            proxy._upstream = (through.host, through.port)
            with QuotaAdmin(f"127.0.0.1:{proxy.port}", timeout_ms=20_000) as admin:
                assert admin.describe_client_quotas(ClientQuotaFilter.all()).entities() == {}
                proxy.is_cutting = True
                [error] = admin.alter_client_quotas([set_to(ALICE, 1)]).values().values()
                assert error is not None
                assert error.is_unknown
                assert "the connection was lost before the answer came" in str(error)
                assert len(store.index().snapshot) == 1
        proxy.close()


def test_the_controller_can_be_looked_for(store: LocalStore) -> None:
    """And where nobody answers, the last one known stays."""
    with running_server(store) as address, QuotaAdmin(str(address), timeout_ms=20_000) as admin:
        admin.describe_client_quotas(ClientQuotaFilter.all())
        transport: Any = admin._admin._transport
        found = transport._manager.cluster.controller
        transport._manager.cluster.controller = None
        admin._wait(transport.find_controller(20_000))
        assert transport._manager.cluster.controller == found
        assert found.port == address.port
        admin._wait(transport.find_controller(0))
        assert transport._manager.cluster.controller == found


def test_a_quota_server_has_no_topics(admin: QuotaAdmin) -> None:
    """And says so."""
    with pytest.raises(NotSupportedError, match="do not speak CreateTopics"):
        admin.topics.create_topics([NewTopic("a", 1, 1)])


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x15\x03\x03\x00\x02\x02\x16"])
def test_something_else_answers(answer: bytes) -> None:
    """A web server, or TLS: an error of ours with the address, not a traceback and not an endless wait."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            client.recv(1000)
            client.sendall(answer)
            client.close()

    threading.Thread(target=serve, daemon=True).start()
    port = listener.getsockname()[1]
    with QuotaAdmin(f"127.0.0.1:{port}", timeout_ms=2_000) as admin:
        with pytest.raises(KquotaError) as error:
            admin.describe_client_quotas(ClientQuotaFilter.all())
        assert error.value.exit_code == 5
        assert str(port) in str(error.value)
    listener.close()


@pytest.mark.parametrize(
    "versions, reason",
    [(None, "as every Kafka since 2.6 does"), ((2, 5), "from version 2 on, this kquota up to 1: upgrade kquota")],
    ids=["older", "newer"],
)
def test_brokers_of_another_time(
    store: LocalStore, versions: tuple[int, int] | None, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Too old to know the API, or so new that they forgot our versions of it: exit code 6."""
    others = [ApiVersion(key, api.min_version, api.max_version) for key, api in APIS.items() if key != 48]
    ours = [] if versions is None else [ApiVersion(48, *versions)]
    monkeypatch.setattr("kquota.server.handlers.api_versions._ANSWER", ApiVersionsResponse(0, [*others, *ours]))
    with running_server(store) as address, QuotaAdmin(str(address)) as admin:
        with pytest.raises(NotSupportedError, match=reason) as error:
            admin.describe_client_quotas(ClientQuotaFilter.all())
        assert error.value.exit_code == 6


def test_the_batch_resolve_is_advertised(store: LocalStore) -> None:
    """Its presence is how a client knows."""
    with running_server(store) as address, QuotaAdmin(str(address)) as admin:
        versions = admin._wait(admin._admin._transport.versions(5_000))
        assert RESOLVE_QUOTAS.key in versions
