"""A client's connection through the gateway, both ways, however the bytes are cut."""

from __future__ import annotations

import struct

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
