"""What holds of every connection through the gateway, whatever is sent, however it is cut, and in whichever turn."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kquota.gateway.identity.connection_identity import Identities
from kquota.gateway.relay.actions import ACTIONS, Action, Kind
from kquota.metering.callback import KafkaPrincipal
from tests.kit.relayed import Relayed, answer, request
from tests.kit.relayed_exchanges import Exchange, any_exchanges, exchange, exchanged
from tests.kit.sasl_exchanges import (
    authenticate_request,
    authenticate_response,
    handshake_request,
    handshake_response,
)
from tests.kit.virtual_loop import run_virtually

PIECES = (1, 7, 60, 1_500, 100_000)
ALL = [
    pytest.param(one, id=f"{one.name}-v{one.version}")
    for one in ACTIONS.values()
    if one.kind not in (Kind.SASL_HANDSHAKE, Kind.SASL_AUTHENTICATE) and one.api_key != 10546
]


def check(exchanges: list[Exchange], seed: int, largest_piece: int, relayed: Relayed | None = None) -> None:
    async def work() -> None:
        one = relayed or Relayed()
        one.topology.learn((node_id, f"b{node_id}", 9092) for node_id in (1, 2, 3))
        await one.connect()
        found = await exchanged(one, exchanges, Random(seed), largest_piece)
        assert found.at_broker == b"".join(each.request for each in exchanges)
        assert found.at_client == b"".join(each.passed_on(one) or b"" for each in exchanges)
        assert not one.listener.failures
        assert not one.client.expected
        one.client.eof_received()
        await one.settle()
        assert one.has_ended
        assert one.failure is None

    run_virtually(work())


@pytest.mark.parametrize("action", ALL)
def test_a_request_of_each_version_and_its_answer_pass_byte_by_byte(action: Action) -> None:
    random = Random(f"{action.api_key} {action.version}")
    check([exchange(action, number, random, largest=40) for number in (1, 2)], 1, 1)


@given(seed=st.integers(0, 2**32), count=st.integers(1, 15), largest_piece=st.sampled_from(PIECES))
@settings(max_examples=40, deadline=None)
def test_all_requests_and_answers_pass_in_order_and_nothing_else(seed: int, count: int, largest_piece: int) -> None:
    """Addresses of brokers apart, not a byte is changed, lost or added; each end reads when it likes."""
    check(any_exchanges(Random(seed), count, largest=max(40, 20 * largest_piece)), seed, largest_piece)


def framed(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "big") + payload


@pytest.mark.parametrize("size", [1, 3, 10_000])
@pytest.mark.parametrize("version", [0, 1])
def test_a_login_passes_and_what_follows_it_is_the_clients(version: int, size: int) -> None:
    """With a handshake of version 0 its tokens have no header; they may even be empty."""

    async def work() -> None:
        relayed = Relayed(Identities("SASL_PLAINTEXT"))
        await relayed.connect()
        token = b"\0alice\0secret"
        turns = [(handshake_request("PLAIN", version), handshake_response(0, version))]
        if version:
            turns += [(authenticate_request(token), authenticate_response(b""))]
        else:
            turns += [(token, b"")]
        beat = request(12, 3, 5, b"x")
        for asked, answered in (*turns, (beat[4:], answer(5, bytes(6))[4:])):
            relayed.client_sends(framed(asked), lambda: size)
            await relayed.settle()
            assert relayed.to_broker.take() == framed(asked)
            relayed.broker_sends(framed(answered), lambda: size)
            await relayed.settle()
            assert relayed.to_client.take() == framed(answered)
        assert relayed.client.identity.principal == KafkaPrincipal("User", "alice")
        relayed.close()

    run_virtually(work())
