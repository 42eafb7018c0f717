"""Addresses as they are given, bound and advertised."""

import socket

import pytest

from kquota.net.addresses import bind, host_and_port, is_connectable, is_loopback, is_unspecified


@pytest.mark.parametrize("host", ["0.0.0.0", "0", "0x0", "0.0", "00.00.00.00", "::", "::0", "0:0:0:0:0:0:0:0"])
def test_every_address_is_known_by_what_is_bound(host: str) -> None:
    """And not by its spelling."""
    for one in bind(host, 0):
        with one:
            assert is_unspecified(one.getsockname()[0])


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1", "0x7f.1", "::1", "localhost"])
def test_loopback_is_known_by_what_is_bound(host: str) -> None:
    for one in bind(host, 0):
        with one:
            assert is_loopback(one.getsockname()[0])
            assert not is_unspecified(one.getsockname()[0])


def test_every_ipv6_address_takes_ipv4_too() -> None:
    """A client that connects by IPv4 is known by its IPv4 address."""
    [listening] = bind("::", 0)
    with listening:
        listening.listen()
        with socket.create_connection(("127.0.0.1", listening.getsockname()[1])):
            accepted, peer = listening.accept()
            accepted.close()
    assert host_and_port(peer)[0] == "127.0.0.1"


def test_all_addresses_of_a_name_get_one_port(monkeypatch: pytest.MonkeyPatch) -> None:
    """And an address that this machine does not have is left out."""
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, 0)) for host in ("192.0.2.1", "127.0.0.2", "127.0.0.3")]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_args, **_options: found)
    sockets = bind("three.example.com", 0)
    addresses = [one.getsockname() for one in sockets]
    for one in sockets:
        one.close()
    assert [host for host, _ in addresses] == ["127.0.0.2", "127.0.0.3"]
    assert len({port for _, port in addresses}) == 1


def test_what_cannot_be_bound() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(OSError, match="in use"):
        bind("127.0.0.1", taken.getsockname()[1])
    with pytest.raises(OSError, match="not a host name"):
        bind("a" * 64, 0)


@pytest.mark.parametrize(
    ("host", "is_one"),
    [
        ("quotas.example.com", True),
        ("localhost", True),
        ("broker-1_a", True),
        ("10.0.0.1", True),
        ("::1", True),
        ("fe80::1", True),
        ("0.0.0.0", False),
        ("::", False),
        ("224.0.0.1", False),
        ("0", False),
        ("0x7f.1", False),
        ("*", False),
        ("", False),
        ("bad host", False),
        ("bad\nhost", False),
        ("-x", False),
        ("a..b", False),
        ("a" * 64, False),
        (".".join(["abc"] * 80), False),
    ],
)
def test_what_clients_can_be_given(host: str, is_one: bool) -> None:
    assert is_connectable(host) is is_one
