"""Who the client of a connection is: as its login, its certificate or its address say."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass, field

from kquota.gateway.identity.principals import AuthenticationContext, build_principal
from kquota.gateway.identity.sasl_observer import IdentitySettings, SaslObserver
from kquota.metering.callback import KafkaPrincipal
from kquota.net.listener import Peer
from kquota.net.listener_config import SecurityProtocol

__all__ = ["ConnectionIdentity", "Identities"]


@dataclass(frozen=True, slots=True)
class Identities:
    """How clients of the gateway are known.

    `security_protocol` is how they connect, and the name of their listener. `principal_of_certificate` gives the name
    of a certificate's subject (``ssl.principal.mapping.rules``).
    """

    security_protocol: SecurityProtocol = "PLAINTEXT"
    settings: IdentitySettings = field(default_factory=IdentitySettings)
    principal_of_certificate: Callable[[bytes], str] | None = None

    @property
    def listener(self) -> str:
        """The listener's name in metrics."""
        return self.security_protocol

    def new(self) -> ConnectionIdentity:
        """Of a new connection."""
        return ConnectionIdentity(self)


class ConnectionIdentity:
    """Of one connection."""

    __slots__ = ("_identities", "_principal", "sasl")

    def __init__(self, identities: Identities) -> None:
        self._identities = identities
        self._principal: KafkaPrincipal | None = None
        self.sasl: SaslObserver | None = None
        """What reads the client's logins; None where it does not log in."""

    def connected(self, peer: Peer, tls: ssl.SSLObject | None) -> None:
        """The connection is made, with TLS its handshake is over.

        :raises PrincipalRefusedError: the principal builder refuses this client.
        """
        one = self._identities
        has_login = one.security_protocol.startswith("SASL_")
        builder = one.settings.principal_builder
        certificate = None
        if tls is not None and not (has_login and builder is AuthenticationContext.default_principal):
            certificate = tls.getpeercert(binary_form=True)
        ssl_principal = None
        if certificate is not None and not has_login and one.principal_of_certificate is not None:
            ssl_principal = KafkaPrincipal("User", one.principal_of_certificate(certificate))
        context = AuthenticationContext(
            listener=one.listener,
            security_protocol=one.security_protocol,
            client_address=peer.host,
            certificate_der=certificate,
            ssl_principal=ssl_principal,
        )
        if has_login:
            self.sasl = SaslObserver(one.settings, context)
        else:
            self._principal = build_principal(builder, context)

    @property
    def principal(self) -> KafkaPrincipal | None:
        """Who it is; None while nobody is believed."""
        return self._principal if self.sasl is None else self.sasl.principal

    @property
    def expects_raw_tokens(self) -> bool:
        """Whether the next frames, both ways, are bare tokens."""
        return self.sasl is not None and self.sasl.expects_raw_tokens
