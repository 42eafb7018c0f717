"""Who a new connection is, by what its certificate and its listener say."""

from __future__ import annotations

from typing import Any, Final, cast

import pytest

from kquota.errors import ProtocolError
from kquota.gateway.identity.connection_identity import ConnectionIdentity, Identities
from kquota.gateway.identity.principals import AuthenticationContext
from kquota.gateway.identity.sasl_observer import IdentitySettings
from kquota.metering.callback import KafkaPrincipal
from kquota.net.listener import Peer
from kquota.net.listener_config import SecurityProtocol
from tests.unit.gateway.test_identity import log_in

CERTIFICATE: Final = b"a certificate"
ETL: Final = KafkaPrincipal("User", "etl")


class Tls:
    """A handshake in which the client showed its certificate."""

    def getpeercert(self, *, binary_form: bool) -> bytes:
        assert binary_form
        return CERTIFICATE


def etl(certificate: bytes) -> str:
    assert certificate == CERTIFICATE
    return "etl"


def no_rule_matches(_certificate: bytes) -> str:
    raise ProtocolError("no rule of ssl.principal.mapping.rules matches")


def connected(identities: Identities) -> ConnectionIdentity:
    one = identities.new()
    one.connected(Peer("10.0.0.7:50000", "10.0.0.1:9192"), cast("Any", Tls()))
    return one


def test_with_tls_alone_the_certificate_is_the_principal() -> None:
    assert connected(Identities("SSL", principal_of_certificate=etl)).principal == ETL
    with pytest.raises(ProtocolError, match="no rule"):
        connected(Identities("SSL", principal_of_certificate=no_rule_matches))


def test_with_a_login_the_rules_for_certificates_are_not_asked() -> None:
    """As at a broker: rules that do not match such a certificate keep nobody out who logs in."""
    one = connected(Identities("SASL_SSL", principal_of_certificate=no_rule_matches))
    assert one.sasl is not None
    assert one.principal is None
    assert log_in(one.sasl, "alice")
    assert one.principal == KafkaPrincipal("User", "alice")


@pytest.mark.parametrize("protocol", ["SSL", "SASL_SSL"])
def test_a_principal_builder_sees_the_certificate_with_a_login_too(protocol: SecurityProtocol) -> None:
    """KIP-684."""
    seen: list[AuthenticationContext] = []

    def build(context: AuthenticationContext) -> KafkaPrincipal:
        seen.append(context)
        return ETL

    one = connected(Identities(protocol, IdentitySettings(principal_builder=build), etl))
    if one.sasl is not None:
        assert log_in(one.sasl)
    [context] = seen
    assert one.principal == ETL
    assert context.certificate_der == CERTIFICATE
    assert context.ssl_principal == (ETL if protocol == "SSL" else None)


def test_without_a_builder_who_logs_in_does_not_keep_the_certificate() -> None:
    one = connected(Identities("SASL_SSL", principal_of_certificate=etl))
    assert one.sasl is not None
    assert one.sasl._context.certificate_der is None
