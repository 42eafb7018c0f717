"""A principal by a client's address, where clients do not authenticate: a principal builder (KIP-55).

    principal.builder.class=kquota.gateway.identity.principals_by_address:PrincipalsByAddress
    principal.builder.addresses.file=/etc/kquota/addresses

The file has a network and a principal a line; the narrowest network that has the address counts, whatever their
order::

    # hosts of the nightly jobs, one of which is known better
    10.20.0.0/16    User:batch
    10.20.3.7       User:reports
    fd00:20::/32    User:batch

Clients that did authenticate, by SASL or a certificate, keep their own principals; one whose address is in no network
is ``User:ANONYMOUS``, or another one that a line for ``0.0.0.0/0`` and one for ``::/0`` name. The file is read once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from ipaddress import IPv6Address, ip_address, ip_network
from pathlib import Path
from typing import Final

from kquota.errors import InputError
from kquota.gateway.identity.principals import ANONYMOUS, AuthenticationContext, parse_principal
from kquota.metering.callback import KafkaPrincipal

__all__ = ["FILE_SETTING", "PrincipalsByAddress"]

FILE_SETTING: Final = "principal.builder.addresses.file"


class PrincipalsByAddress:
    """Looks up an address in one step for each length of prefix that the file has."""

    def __init__(self) -> None:
        self._principals: dict[tuple[int, int, int], KafkaPrincipal] = {}
        """By version of IP, length of the prefix, and the prefix as a number."""
        self._lengths: dict[int, list[int]] = {4: [], 6: []}
        """By version of IP, longest first."""

    def configure(self, configs: Mapping[str, str]) -> None:
        """Read the file.

        :raises InputError: it is not named, cannot be read or has a line that is not understood; another setting.
        """
        for name in configs:
            if name != FILE_SETTING:
                raise InputError(f"{name}: there is no such setting; {FILE_SETTING} is the only one")
        path = configs.get(FILE_SETTING)
        if not path:
            raise InputError(f"{FILE_SETTING} is to name the file of networks and principals")
        try:
            text = Path(path).read_text("utf-8")
        except OSError as error:
            raise InputError(f"{path}: cannot read the principals: {error.strerror}") from None
        except ValueError:
            raise InputError(f"{path}: the principals are not UTF-8 text") from None
        self.use(text.split("\n"), path)

    def use(self, lines: Iterable[str], path: str) -> None:
        """Take the lines of a file; `path` is for errors. Raises as :meth:`configure`."""
        for number, line in enumerate(lines, 1):
            words = line.split(maxsplit=1)
            if not words or words[0].startswith("#"):
                continue
            where = f"{path}:{number}"
            try:
                network = ip_network(words[0])
            except ValueError as error:
                raise InputError(f"{where}: {error}") from None
            if len(words) < 2:
                raise InputError(f"{where}: {words[0]} has no principal; write User:name after it")
            try:
                principal = parse_principal(words[1].rstrip())
            except InputError as error:
                raise InputError(f"{where}: {error}") from None
            bits = int(network.network_address) >> (network.max_prefixlen - network.prefixlen)
            if self._principals.setdefault((network.version, network.prefixlen, bits), principal) is not principal:
                raise InputError(f"{where}: {network} has a principal already")
        self._lengths = {4: [], 6: []}
        for version, length in sorted({key[:2] for key in self._principals}, reverse=True):
            self._lengths[version].append(length)

    def __call__(self, context: AuthenticationContext) -> KafkaPrincipal:
        """The principal of the connection. Raises ValueError for an address that is none, such as a path."""
        principal = context.default_principal()
        if principal != ANONYMOUS:
            return principal
        address = ip_address(context.client_address.partition("%")[0])
        if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        for length in self._lengths[address.version]:
            bits = int(address) >> (address.max_prefixlen - length)
            found = self._principals.get((address.version, length, bits))
            if found is not None:
                return found
        return principal
