"""The gateway's settings, as ``-D gateway...`` and a broker's properties file give them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

from kquota.config import read_properties
from kquota.errors import InputError
from kquota.metering.callback import KafkaPrincipal

__all__ = ["GatewaySettings", "load_gateway_settings", "parse_principal"]

_PREFIX: Final = "gateway."


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """What the gateway does beyond a broker's settings. A field is called like its setting, without ``gateway.``."""

    exempt_principals: frozenset[KafkaPrincipal] = frozenset()
    """Who is never charged, nor made to wait: ``User:admin;User:mirror``, as ``super.users`` is written."""
    request_time: bool = False
    """``estimate`` charges requests for an estimate of a broker's time; by default only brokers themselves count it."""
    unknown_principal: KafkaPrincipal | None = None
    """Who is charged where a login does not say who it is (GSSAPI, delegation tokens); by default it is refused."""
    principal_builder: str | None = None
    """``module:name`` of what makes a principal of a connection, as Kafka's ``principal.builder.class``."""
    use_certificate_for_all: bool = False
    """Let all clients do at the brokers what the certificate of ``--command-config`` may do."""
    metadata_max_age_ms: int = 5_000
    """How old the gateway's knowledge of the brokers may become."""
    drain_ms: int = 10_000
    """How long requests under way may take once the gateway is to end."""


def load_gateway_settings(path: str | None = None, defines: Iterable[str] = ()) -> GatewaySettings:
    """The settings that begin with ``gateway.`` in a properties file and in ``key=value`` texts.

    :raises InputError: there is no such setting, or it cannot have the value.
    """
    given: dict[str, str] = {}
    if path is not None:
        given.update(
            {key: text.strip() for key, text in read_properties(path, "the settings").items() if key.startswith(_PREFIX)}
        )
    for define in defines:
        key, _, text = define.partition("=")
        if key.strip().startswith(_PREFIX):
            given[key.strip()] = text.strip()
    values: dict[str, object] = {}
    for key, text in given.items():
        if key not in _READERS:
            close = get_close_matches(key, _READERS, 1)
            raise InputError(f"{key}: there is no such setting" + (f"; did you mean {close[0]}?" if close else ""))
        name, read = _READERS[key]
        try:
            values[name] = read(text)
        except ValueError as error:
            raise InputError(f"{key}={text}: {error}") from None
    return GatewaySettings(**values)  # type: ignore[arg-type] # each reader gives what its field takes


def parse_principal(text: str) -> KafkaPrincipal:
    """Read ``User:alice``.

    :raises ValueError: it is not written so.
    """
    kind, colon, name = text.strip().partition(":")
    if not colon or not kind or not name:
        raise ValueError("write a principal as User:name")
    return KafkaPrincipal(kind, name)


def _principals(text: str) -> frozenset[KafkaPrincipal]:
    return frozenset(parse_principal(one) for one in text.split(";") if one.strip())


def _unknown(text: str) -> KafkaPrincipal | None:
    return None if text == "refuse" else parse_principal(text)


def _estimate(text: str) -> bool:
    if text not in ("off", "estimate"):
        raise ValueError("write off or estimate")
    return text == "estimate"


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("write true or false")
    return text.lower() == "true"


def _milliseconds(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 2**31 - 1:
        raise ValueError("write a whole number of milliseconds from 1 on")
    return int(text)


_READERS: Final[Mapping[str, tuple[str, Callable[[str], object]]]] = {
    "gateway.exempt.principals": ("exempt_principals", _principals),
    "gateway.request.time": ("request_time", _estimate),
    "gateway.unknown.principal": ("unknown_principal", _unknown),
    "gateway.principal.builder": ("principal_builder", str),
    "gateway.use.certificate.for.all": ("use_certificate_for_all", _boolean),
    "gateway.metadata.max.age.ms": ("metadata_max_age_ms", _milliseconds),
    "gateway.drain.ms": ("drain_ms", _milliseconds),
}
