"""Logging in at a real broker, with the settings that its own tools take."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from examples.capture.broker import Broker
from kquota.admin import QuotaAdmin
from kquota.admin.properties import load_client_properties
from kquota.cli import run
from tests.kit.kafka import NEW, PASSWORDS
from tests.kit.transport_contract import TransportContract

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
LOGINS = {
    "scram": ("SCRAM-SHA-256", f'{SCRAM} required username="alice" password="{PASSWORDS["alice"]}";'),
    "oauthbearer": ("OAUTHBEARER", f'{OAUTH} required unsecuredLoginStringClaim_sub="zo\u00eb";'),
}


def settings(mechanism: str, jaas: str) -> list[str]:
    return ["security.protocol=SASL_PLAINTEXT", f"sasl.mechanism={mechanism}", f"sasl.jaas.config={jaas}"]


class TestSasl(TransportContract):
    """To a real broker."""

    @pytest.fixture(params=list(LOGINS))
    def admin(self, request: pytest.FixtureRequest, broker: Callable[[str], Broker]) -> Iterator[QuotaAdmin]:
        properties = load_client_properties(None, settings(*LOGINS[request.param]))
        with QuotaAdmin(broker(NEW).sasl, timeout_ms=30_000, **properties.connection) as admin:
            yield admin


def test_a_wrong_password_is_not_authenticated(
    broker: Callable[[str], Broker], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Exit code 4, at once, with what the broker says and without the password."""
    config = tmp_path / "admin.properties"
    jaas = f'{SCRAM} required username="alice" password="wrong-secret";'
    config.write_text("\n".join(settings("SCRAM-SHA-256", jaas)))
    code = run(["describe", "--bootstrap-server", broker(NEW).sasl, "--command-config", str(config)])
    out, err = capfd.readouterr()
    assert (code, out) == (4, "")
    assert "did not let this client in" in err
    assert "wrong-secret" not in err
