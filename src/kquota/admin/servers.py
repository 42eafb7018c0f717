"""Addresses of servers as clients are given them: ``host:port``, one or several."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_address

from kquota.errors import IllegalArgumentError

__all__ = ["are_loopback", "bootstrap_addresses", "is_loopback"]


def bootstrap_addresses(servers: str | Sequence[str]) -> list[str]:
    """The addresses in a list that commas separate, or in a sequence.

    :raises IllegalArgumentError: one holds a login, which is not quoted.
    """
    found = [one.strip() for one in (servers.split(",") if isinstance(servers, str) else servers)]
    if any("@" in one for one in found):
        raise IllegalArgumentError(
            "a bootstrap server is host:port, such as localhost:9092, without a user name and password: set "
            "sasl.jaas.config"
        )
    return found


def is_loopback(host: str) -> bool:
    """Whether `host` is this machine itself, as far as its spelling says: nothing is looked up."""
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def are_loopback(servers: str | Sequence[str]) -> bool:
    """Whether all of these bootstrap servers are this machine itself."""
    return all(is_loopback(one.rpartition(":")[0]) for one in bootstrap_addresses(servers))
