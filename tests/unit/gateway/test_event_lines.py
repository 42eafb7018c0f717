"""The log's lines: one for each event, and not more than somebody can read."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from kquota.cli import run
from kquota.errors import KafkaErrorCode, ProtocolError
from kquota.gateway.event_lines import EventLines
from kquota.gateway.identity.connection_identity import Identities
from kquota.gateway.identity.sasl import Progress
from kquota.gateway.identity.sasl_observer import IdentitySettings
from kquota.gateway.relay.stats import RelayStats
from kquota.gateway.topology import Node
from kquota.net.listener import Peer
from tests.kit.relayed import Relayed, answer, request
from tests.kit.virtual_loop import run_virtually

PEER = Peer("10.0.0.7:50000", "10.0.0.1:9192")
SASL = Identities("SASL_PLAINTEXT", IdentitySettings())


def lines_of(act: Callable[[EventLines], None]) -> list[dict[str, Any]]:
    async def scenario() -> list[dict[str, Any]]:
        with capture_logs() as lines:
            act(EventLines(RelayStats()))
        return [dict(line) for line in lines]

    return run_virtually(scenario())


def test_brokers_that_are_elsewhere_gone_or_back_have_a_line_each() -> None:
    before = [Node(1, "a", 9092, 1), Node(2, "b", 9092, 2), Node(3, "c", 9092, 3), Node(4, "d", 9092, 4)]
    after = [before[0]._replace(host="::1"), *before[1:], Node(5, "e", 9092, 5)]
    found = lines_of(lambda lines: lines.brokers_followed(before, {1, 2, 4}, after, {1, 3, 4, 5}))
    assert [(line["event"], line["broker"], line["address"]) for line in found] == [
        ("broker changed", 1, "[::1]:9092"),
        ("broker gone", 2, "b:9092"),
        ("broker back", 3, "c:9092"),
    ]


def test_connections_that_were_closed_are_counted_and_five_of_a_host_have_a_line() -> None:
    stats = RelayStats()

    def act(lines: EventLines) -> None:
        lines.stats = stats
        for _ in range(20):
            lines.connection_ended(PEER, ProtocolError("nonsense"))
        lines.connection_ended(PEER, ConnectionResetError())
        lines.connection_ended(PEER, None)

    found = lines_of(act)
    assert [(line["event"], line["reason"]) for line in found] == [("connection closed", "nonsense")] * 5
    assert stats.closed == {"ProtocolError": 20, "ConnectionResetError": 1}


def handshake(mechanism: bytes) -> bytes:
    return request(17, 1, 1, len(mechanism).to_bytes(2, "big") + mechanism)


def authenticate(token: bytes) -> bytes:
    return request(36, 0, 2, len(token).to_bytes(4, "big") + token)


@pytest.mark.parametrize("succeeds", [True, False])
def test_logins_are_counted_and_a_failed_one_has_a_line_without_a_name_or_password(succeeds: bool) -> None:
    async def scenario() -> tuple[RelayStats, list[Any]]:
        with capture_logs() as lines:
            relayed = Relayed(SASL)
            await relayed.connect()
            relayed.client_sends(handshake(b"PLAIN"))
            await relayed.settle()
            relayed.broker_sends(answer(1, b"\0\0\0\0\0\1\0\5PLAIN"))
            await relayed.settle()
            relayed.client_sends(authenticate(b"\0alice\0password"))
            await relayed.settle()
            code = KafkaErrorCode.NONE if succeeds else KafkaErrorCode.SASL_AUTHENTICATION_FAILED
            relayed.broker_sends(answer(2, int(code).to_bytes(2, "big") + b"\xff\xff\0\0\0\0"))
            await relayed.settle()
            relayed.close()
            return relayed.relay.stats, list(lines)

    stats, lines = run_virtually(scenario())
    assert stats.logins == {("PLAIN", succeeds): 1}
    assert [line["event"] for line in lines] == ([] if succeeds else ["login failed"])
    assert not [line for line in lines if "alice" in str(line) or "password" in str(line)]


def test_the_steps_of_a_login_are_no_logins() -> None:
    async def scenario() -> RelayStats:
        relayed = Relayed()
        relayed.relay.note_login(PEER, "SCRAM-SHA-256", Progress.CONTINUES)
        relayed.relay.note_login(PEER, "SCRAM-SHA-256", Progress.SUCCEEDED)
        return relayed.relay.stats

    assert run_virtually(scenario()).logins == {("SCRAM-SHA-256", True): 1}


class TestCommand:
    """``kquota gateway --metrics``"""

    def gateway(self, tmp_path: Path, metrics: str) -> int:
        quotas = tmp_path / "quotas.yaml"
        quotas.write_text("quotas: []\n")
        return run(["gateway", "--upstream", "127.0.0.1:1", "--quotas", str(quotas), "--metrics", metrics])

    def test_a_port_that_is_taken_is_exit_1(self, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            address = f"127.0.0.1:{taken.getsockname()[1]}"
            assert self.gateway(tmp_path, address) == 1
        found = capfd.readouterr()
        assert f"cannot serve metrics on {address}" in found.err
        assert found.out == ""

    def test_an_address_that_is_none_is_exit_2(self, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
        assert self.gateway(tmp_path, "9404") == 2
        assert "--metrics 9404: write it as host:port" in capfd.readouterr().err
