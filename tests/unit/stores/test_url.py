"""Which names a store takes as an ip."""

import socket

import pytest

from kquota.stores.url import is_resolvable_ip


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The host names that are asked for; all of them are found."""
    names: list[str] = []

    def getaddrinfo(name: str, _port: None) -> list[str]:
        names.append(name)
        return ["found"]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return names


@pytest.mark.parametrize("name", ["10.0.0.1", "10.1", "2001:db8::1", "[::1]", "fe80::1%1"])
def test_an_address_is_taken_without_asking(asked: list[str], name: str) -> None:
    assert is_resolvable_ip(name)
    assert asked == []


@pytest.mark.parametrize("name", ["localhost", "broker.example", "1.example", "0x7f.example", "fe80::1%eth0"])
def test_a_host_name_is_asked_for(asked: list[str], name: str) -> None:
    assert is_resolvable_ip(name)
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
    assert not is_resolvable_ip(name)
    assert asked == []
