"""Fetches whose client has other quotas than of bytes, or whose header is not the same each time."""

from __future__ import annotations

import struct

from kquota.errors import MalformedMessageError
from kquota.gateway.quotas.request_time import RequestTimes
from tests.kit.relayed import Relayed, answer, fetch_request, frames, request
from tests.kit.virtual_loop import run_virtually

FETCH = 1
NO_ERROR_NO_TOPICS = bytes(11)
NO_HEADER_TAGS = b"\0"
A_HEADER_TAG = b"\1\x63\3abc"


def fetched(correlation_id: int) -> bytes:
    """An answer to Fetch version 12."""
    return answer(correlation_id, b"\0" + struct.pack(">i", 0) + NO_ERROR_NO_TOPICS)


def fetch_body(max_bytes: int) -> bytes:
    """Fetch version 12 of no topics, after its header."""
    return struct.pack(">iiiibii", -1, 500, 1, max_bytes, 0, 0, -1) + b"\1\1\1\0"


def test_fetches_are_charged_their_time_where_nobody_has_a_quota_of_bytes() -> None:
    async def work() -> None:
        relayed = Relayed(request_times=RequestTimes())
        relayed.limit("request_percentage", 0.001, client_id="c")
        await relayed.connect()
        relayed.client_sends(fetch_request(1, 1000))
        relayed.broker_sends(fetched(1))
        [one] = frames(relayed.to_client.take())
        assert struct.unpack_from(">i", one, 9)[0] > 0
        assert relayed.client.is_muted
        relayed.close()

    run_virtually(work())


def test_what_a_fetch_may_ask_for_is_lowered_whatever_the_tags_of_its_header() -> None:
    async def work() -> None:
        relayed = Relayed()
        relayed.limit("consumer_byte_rate", 1000.0, client_id="c")
        await relayed.connect()
        for number, tags in enumerate([NO_HEADER_TAGS, A_HEADER_TAG, NO_HEADER_TAGS]):
            relayed.client_sends(request(FETCH, 12, number, tags + fetch_body(2**31 - 1)))
            assert relayed.to_broker.take() == request(FETCH, 12, number, tags + fetch_body(10_000))
        relayed.close()

    run_virtually(work())


def test_a_fetch_that_ends_before_its_max_bytes_changes_nothing_of_the_request_after_it() -> None:
    async def work() -> None:
        relayed = Relayed()
        relayed.limit("consumer_byte_rate", 1.0, client_id="c")
        await relayed.connect()
        relayed.client_sends(fetch_request(1, 1_000))
        relayed.to_broker.take()
        short = request(1, 12, 2, b"\0" + bytes(4))
        after = fetch_request(3, 5)
        relayed.client_sends(short + after)
        await relayed.settle()
        assert relayed.to_broker.take() == b""
        assert isinstance(relayed.failure, MalformedMessageError)

    run_virtually(work())
