"""Which host names a store takes as an ip, how long that may take, and who waits for it."""

import socket
from collections.abc import Iterator
from threading import Event

import pytest

from kquota.errors import KafkaErrorCode
from kquota.quotas import IP, ClientQuotaEntity, is_literal_ip
from kquota.stores.host_names import HostNames, hosts_of
from kquota.stores.local import LocalStore
from kquota.stores.memory import MemoryKeeper
from tests.kit.manual_clock import ManualClock
from tests.kit.store_contract import ALICE, everything, set_to


def of_hosts(*names: str) -> list[ClientQuotaEntity]:
    return [ClientQuotaEntity({IP: name}) for name in names]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The host names that a name server is asked for; all of them are found."""
    names: list[str] = []

    def getaddrinfo(name: str, _port: None) -> list[str]:
        names.append(name)
        return ["found"]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return names


@pytest.mark.parametrize("name", ["10.0.0.1", "10.1", "2001:db8::1", "[::1]", "fe80::1%1"])
def test_an_address_is_taken_without_asking(name: str) -> None:
    assert is_literal_ip(name)
    assert hosts_of([set_to(ClientQuotaEntity({IP: name}))]) == []


@pytest.mark.parametrize("name", ["localhost", "broker.example", "1.example", "0x7f.example", "fe80::1%eth0"])
def test_a_host_name_is_asked_for(asked: list[str], name: str) -> None:
    assert hosts_of([set_to(ClientQuotaEntity({IP: name}))] * 2) == [name]
    assert HostNames().look_up([name]) == {name: True}
    assert asked == [name]


@pytest.mark.parametrize(
    "name",
    [
        "0x7f.0.0.1",
        "0xa.8.8.8",
        "00000000000000010.1.1.1",
        "1.2.3.0000000000000004",
        "fe80::1%99999999999",
        "::ffff:10.0.0.1%1",
        "10.0.0.1\0",
        "localhost\0",
        "１０.0.0.1",
        "localhost\u3002",
        "localhost\u200b",
    ],
)
def test_what_only_the_c_library_or_python_would_read_is_refused(asked: list[str], name: str) -> None:
    """Other notations of numbers, texts that C cuts at a zero, and names that are something else in ASCII.

    A 4.3.0 was asked.
    """
    assert not is_literal_ip(name)
    assert HostNames().look_up([name]) == {name: False}
    assert asked == []


def test_what_was_found_is_remembered_for_a_while() -> None:
    """As long as a JVM does: half a minute, and ten seconds what was not found."""
    clock, asked = ManualClock(), list[str]()

    def is_found(name: str) -> bool:
        asked.append(name)
        return name == "there"

    names = HostNames(is_found=is_found, clock=clock)
    for wait_ms, expected in ((0, 2), (9_999, 2), (1, 3), (19_999, 4), (1, 5)):
        clock.advance(wait_ms)
        assert names.look_up(["there", "gone"]) == {"there": True, "gone": False}
        assert len(asked) == expected, wait_ms


def test_of_one_request_only_so_many_names_are_looked_up() -> None:
    """Those that are known do not count."""
    names = HostNames(is_found=lambda _: True, most_names=2)
    assert names.look_up(["a", "b", "c"]) == {"a": True, "b": True, "c": None}
    assert names.look_up(["a", "b", "c"]) == {"a": True, "b": True, "c": True}


class Silent:
    """A name server that does not answer until the test is over."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.over = Event()

    def is_found(self, name: str) -> bool:
        self.asked.append(name)
        self.over.wait(60)
        return True


@pytest.fixture
def silent() -> Iterator[Silent]:
    server = Silent()
    yield server
    server.over.set()


def test_a_name_server_that_does_not_answer_holds_up_nobody_else(silent: Silent) -> None:
    """What names a host is refused after the deadline, and says why; what names none is changed."""
    store = LocalStore(MemoryKeeper(), host_names=HostNames(deadline_ms=20, is_found=silent.is_found))
    entities = of_hosts(*(f"h{number}.example" for number in range(50)))
    alterations = [set_to(one, connection_creation_rate=1) for one in entities]
    for validate_only in (True, False):
        results = store.alter([*alterations, set_to(ALICE, producer_byte_rate=5)], validate_only=validate_only)
        assert results[ALICE] is None
        for entity in entities:
            error = results[entity]
            assert error is not None
            assert error.code == KafkaErrorCode.INVALID_REQUEST
            assert "not a valid IP or resolvable host. It could not be looked up in time" in str(error)
    assert everything(store).keys() == {ALICE}
    assert len(silent.asked) <= 4


def test_a_commit_waits_for_no_name_server(silent: Silent) -> None:
    """Names are looked up before anything is decided, and nothing is locked meanwhile."""
    changed: list[object] = []
    keeper = MemoryKeeper()

    def is_found(_name: str) -> bool:
        changed.append(LocalStore(keeper).alter([set_to(ALICE, producer_byte_rate=5)]))
        return True

    [host] = of_hosts("h.example")
    store = LocalStore(keeper, host_names=HostNames(is_found=is_found))
    assert store.alter([set_to(host, connection_creation_rate=1)]) == {host: None}
    assert changed == [{ALICE: None}]
    assert everything(store).keys() == {ALICE, host}


def test_without_look_ups_only_addresses_are_taken() -> None:
    """As a server that asks no name server for strangers."""
    host, address = of_hosts("localhost", "127.0.0.1")
    results = LocalStore(MemoryKeeper()).alter([set_to(one, connection_creation_rate=1) for one in (host, address)])
    assert [str(error) if error else None for error in results.values()] == [
        "INVALID_REQUEST: localhost is not a valid IP or resolvable host.",
        None,
    ]
