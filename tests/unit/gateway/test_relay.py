"""A client's connection through the gateway, both ways, however the bytes are cut."""

from __future__ import annotations

import asyncio
import struct

from kquota.gateway.relay.client_channel import CLOSE_AFTER_S, LINGER_S
from tests.kit.relayed import Relayed, answer, frames, produce_request, request
from tests.kit.virtual_loop import run_virtually

HEARTBEAT = 12


def test_requests_and_answers_pass_unchanged() -> None:
    async def work() -> None:
        relayed = Relayed()
        await relayed.connect()
        asked = request(HEARTBEAT, 3, 7, b"anything")
        relayed.client_sends(asked)
        assert relayed.to_broker.take() == asked
        answered = answer(7, struct.pack(">ih", 0, 0))
        relayed.broker_sends(answered)
        assert relayed.to_client.take() == answered
        relayed.close()

    run_virtually(work())


def test_a_produce_over_its_quota_is_answered_with_the_wait_and_the_next_one_waits() -> None:
    async def work() -> None:
        relayed = Relayed()
        relayed.limit("producer_byte_rate", 1000.0, client_id="c")
        await relayed.connect()
        first, second = produce_request(1, bytes(30_000)), produce_request(2, bytes(10))
        relayed.client_sends(first + second)
        assert relayed.to_broker.take() == first
        relayed.broker_sends(answer(1, b"\0\1" + struct.pack(">i", 0) + b"\0"))
        [told] = frames(relayed.to_client.take())
        wait_ms = struct.unpack_from(">i", told, len(told) - 5)[0]
        assert wait_ms > 10_000
        assert relayed.to_client.is_paused

        relayed.close()

    run_virtually(work())


def test_a_drained_connection_is_closed_after_its_last_answer_and_what_comes_then_is_thrown_away() -> None:
    """What is unread when a socket is closed resets it, and the client loses answers that it has not read yet."""

    async def work() -> None:
        relayed = Relayed()
        await relayed.connect()
        asked = request(HEARTBEAT, 3, 7, b"anything")
        relayed.client_sends(asked)
        relayed.client.end()
        assert not relayed.to_client.has_sent_eof
        relayed.client_sends(request(HEARTBEAT, 3, 8, b"too late"))
        answered = answer(7, struct.pack(">ih", 0, 0))
        relayed.broker_sends(answered)
        assert relayed.to_client.take() == answered
        assert not relayed.to_client.is_paused
        assert not relayed.to_client.has_sent_eof
        await asyncio.sleep(CLOSE_AFTER_S)
        assert relayed.to_client.has_sent_eof
        relayed.client_sends(request(HEARTBEAT, 3, 9, b"later still"))
        assert relayed.to_broker.take() == asked
        assert not relayed.to_client.has_closed
        assert relayed.client.eof_received() is False  # the event loop closes it
        relayed.close()

    run_virtually(work())


def test_a_drained_client_that_does_not_close_its_side_is_closed_all_the_same() -> None:
    async def work() -> None:
        relayed = Relayed()
        await relayed.connect()
        relayed.client.end()
        assert not relayed.to_client.has_closed
        await asyncio.sleep(2 * LINGER_S)
        assert relayed.to_client.was_aborted
        relayed.close()

    run_virtually(work())
