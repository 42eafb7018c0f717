"""The gateway's settings, as ``-D gateway...`` and a broker's properties file give them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Final

from kquota.errors import InputError
from kquota.gateway.identity.principals import parse_principal
from kquota.gateway.identity.sasl_observer import (
    BUILDER_SETTINGS,
    IDENTITY_SETTINGS,
    IdentitySettings,
    load_identity_settings,
)
from kquota.metering.callback import KafkaPrincipal

__all__ = ["GatewaySettings", "load_gateway_settings"]

_PREFIX: Final = "gateway."
MOST_CLIENTS: Final = 10_000


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """What the gateway does beyond a broker's settings. A field is called like its setting, without ``gateway.``."""

    exempt_principals: frozenset[KafkaPrincipal] = frozenset()
    """Who is never charged, nor made to wait: ``User:admin;User:mirror``, as ``super.users`` is written."""
    request_time: bool = False
    """``estimate`` charges requests for an estimate of a broker's time; by default only brokers themselves count it."""
    identity: IdentitySettings = field(default_factory=IdentitySettings)
    use_certificate_for_all: bool = False
    """Let all clients do at the brokers what the certificate of ``--command-config`` may do."""
    metadata_max_age_ms: int = 5_000
    """How old the gateway's knowledge of the brokers may become."""
    drain_ms: int = 10_000
    """How long requests under way may take once the gateway is to end."""
    metrics_top_clients: int = 100
    """How many clients have series of their own, for each broker and quota type: those who are throttled the longest,
    then those who use the most. The others are added up."""


def load_gateway_settings(given: Mapping[str, str]) -> GatewaySettings:
    """The settings of the gateway among others, which are left aside.

    :raises InputError: there is no such setting, or it cannot have the value.
    """
    values: dict[str, object] = {}
    identity: dict[str, str] = {}
    for key, text in given.items():
        if key in IDENTITY_SETTINGS or key.startswith(BUILDER_SETTINGS):
            identity[key] = text
        elif key in _READERS:
            name, read = _READERS[key]
            try:
                values[name] = read(text.strip())
            except ValueError as error:
                raise InputError(f"{key}={text}: {error}") from None
        elif key.startswith(_PREFIX):
            close = get_close_matches(key, [*_READERS, *IDENTITY_SETTINGS], 1)
            raise InputError(f"{key}: there is no such setting" + (f"; did you mean {close[0]}?" if close else ""))
    return GatewaySettings(identity=load_identity_settings(identity), **values)  # type: ignore[arg-type] # as read


def _principals(text: str) -> frozenset[KafkaPrincipal]:
    return frozenset(parse_principal(one) for one in text.split(";") if one.strip())


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


def _clients(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= MOST_CLIENTS:
        raise ValueError(f"write a whole number from 1 to {MOST_CLIENTS}")
    return int(text)


_READERS: Final[Mapping[str, tuple[str, Callable[[str], object]]]] = {
    "gateway.exempt.principals": ("exempt_principals", _principals),
    "gateway.request.time": ("request_time", _estimate),
    "gateway.use.certificate.for.all": ("use_certificate_for_all", _boolean),
    "gateway.metadata.max.age.ms": ("metadata_max_age_ms", _milliseconds),
    "gateway.drain.ms": ("drain_ms", _milliseconds),
    "gateway.metrics.top.clients": ("metrics_top_clients", _clients),
}
