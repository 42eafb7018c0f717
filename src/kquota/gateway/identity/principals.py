"""Who a connection is charged to: Kafka's default principals, and a builder of one's own in their place (KIP-55).

A builder is what ``principal.builder.class`` is in Kafka: it is asked once per successful authentication of a
connection, never per request, and its principal is kept. ``module:callable`` names one: a function that takes an
:class:`AuthenticationContext` and returns a principal, or a class of such objects, made without arguments::

    # addresses.py
    def by_port(context):
        if context.listener == "BATCH":
            return KafkaPrincipal("User", "batch")
        return context.default_principal()

    principal.builder.class=addresses:by_port

Settings whose names begin with ``principal.builder.`` are handed to its method ``configure``, once, as in Kafka.
A builder is called by the event loop: one that waits, makes all connections wait.
Source: ``KafkaPrincipalBuilder``, ``DefaultKafkaPrincipalBuilder``, ``AuthenticationContext``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Final, TypeAlias

from kquota.errors import InputError, KquotaError, NotAuthorizedError
from kquota.metering.callback import KafkaPrincipal
from kquota.net.listener_config import SecurityProtocol
from kquota.net.principals import ANONYMOUS as ANONYMOUS_NAME

__all__ = [
    "ANONYMOUS",
    "BUILDER_SETTING",
    "AuthenticationContext",
    "PrincipalBuilder",
    "PrincipalRefusedError",
    "build_principal",
    "load_principal_builder",
    "parse_principal",
]

ANONYMOUS: Final = KafkaPrincipal("User", ANONYMOUS_NAME)
"""Kafka's ``KafkaPrincipal.ANONYMOUS``: a client that did not authenticate, where none needs to."""

BUILDER_SETTING: Final = "principal.builder.class"


class PrincipalRefusedError(NotAuthorizedError):
    """A client that cannot be charged to anybody; its connection is closed.

    `answer` is what it is sent before that: a whole frame with its size, in place of the broker's response or, where
    the error was raised by a request, of that request; None where the protocol has no room for one. The text is for
    the log, and repeats nothing of a token.
    """

    def __init__(self, reason: str, *, mechanism: str | None = None, answer: bytes | None = None) -> None:
        self.reason = reason
        self.mechanism = mechanism
        self.answer = answer
        super().__init__(reason)

    def __str__(self) -> str:
        return self.reason if self.mechanism is None else f"SASL mechanism {self.mechanism}: {self.reason}"


@dataclass(frozen=True, slots=True)
class AuthenticationContext:
    """What is known of a connection when its client has authenticated, or needs not to."""

    listener: str
    """The name of the listener that took the connection."""
    security_protocol: SecurityProtocol
    client_address: str
    """The address in numbers, without the port."""
    mechanism: str | None = None
    """The SASL mechanism; None without SASL."""
    sasl_principal: KafkaPrincipal | None = None
    """Who authenticated by SASL; None without SASL."""
    certificate_der: bytes | None = field(default=None, repr=False)
    """The client's certificate; None where it showed none. With SASL only for builders of one's own (KIP-684)."""
    ssl_principal: KafkaPrincipal | None = None
    """The certificate's subject, by ``ssl.principal.mapping.rules``; None without a certificate, and with SASL."""

    def default_principal(self) -> KafkaPrincipal:
        """The principal that Kafka would build: the SASL one, else that of the certificate, else ANONYMOUS."""
        found = self.sasl_principal if self.security_protocol.startswith("SASL_") else self.ssl_principal
        return found or ANONYMOUS


PrincipalBuilder: TypeAlias = Callable[[AuthenticationContext], KafkaPrincipal]


def build_principal(builder: PrincipalBuilder, context: AuthenticationContext) -> KafkaPrincipal:
    """The builder's principal of this connection.

    :raises PrincipalRefusedError: it raised something, or returned something else. Of kquota's own errors the text is
        repeated, as it was written for people; of others the class and the line alone, as a text may hold anything.
    """
    try:
        principal = builder(context)
    except Exception as error:  # noqa: BLE001 - whatever it is, the connection is refused
        reason = f"the principal builder failed: {_described(error)}"
    else:
        if isinstance(principal, KafkaPrincipal):
            return principal
        reason = f"the principal builder returned a {type(principal).__name__}, which is no KafkaPrincipal"
    # Raised out here, the error does not carry the builder's own, nor the variables of its frames.
    raise PrincipalRefusedError(reason, mechanism=context.mechanism)


def _described(error: Exception) -> str:
    if isinstance(error, KquotaError):
        return str(error)
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    where = "" if at is None else f" in {at.tb_frame.f_code.co_name}, line {at.tb_lineno}"
    return f"{type(error).__name__}{where}"


def parse_principal(text: str) -> KafkaPrincipal:
    """``User:alice`` as a principal; the name may have colons.

    :raises InputError: it has no type or no name. Source: ``SecurityUtils.parseKafkaPrincipal``.
    """
    principal_type, colon, name = text.partition(":")
    if not colon or not principal_type or not name:
        raise InputError(f"{text}: write a principal as type:name, such as User:alice")
    return KafkaPrincipal(principal_type, name)


def load_principal_builder(name: str, configs: Mapping[str, str]) -> PrincipalBuilder:
    """The builder ``module:callable``, configured.

    :param configs: its own settings, with their whole names.
    :raises InputError: there is no such callable, it cannot be made or configured, or it takes no settings and is given
        some.
    """
    builder = _callable(name)
    try:
        if isinstance(builder, type):
            builder = builder()
        configure = getattr(builder, "configure", None)
        if configure is not None:
            configure(configs)
    except InputError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever it is, it may quote a setting that is a secret
        raise InputError(f"{BUILDER_SETTING}={name}: it cannot be made: {_described(error)}") from None
    if configs and configure is None:
        raise InputError(f"{BUILDER_SETTING}={name}: it has no settings, such as {min(configs)}")
    if not callable(builder):
        raise InputError(f"{BUILDER_SETTING}={name}: it cannot be called with an AuthenticationContext")
    found: PrincipalBuilder = builder
    return found


def _callable(name: str) -> Any:
    module_name, colon, attribute = name.partition(":")
    if not colon or not attribute:
        raise InputError(f"{BUILDER_SETTING}={name}: write it as package.module:callable")
    try:
        return getattr(import_module(module_name), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError(f"{BUILDER_SETTING}={name}: there is no such callable: {error}") from error
    except Exception as error:
        raise InputError(f"{BUILDER_SETTING}={name}: {module_name} cannot be imported: {error!r}") from error
