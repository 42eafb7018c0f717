"""What one connection may keep in memory: little, whatever is sent; and nothing is read that cannot be sent on.

At most the larger of a read and 128 KiB of requests that are passed on, 16 MiB of one that is read whole, as much of an
answer, and of a list of brokers 1 MiB and a read. What waits to be sent is at most 1 MiB and a read, each way.
"""

from __future__ import annotations

import struct

import pytest

from kquota.errors import FrameSizeError, ProtocolError
from kquota.gateway.relay.client_channel import MOST_UNANSWERED
from kquota.wire.primitives import uvarint
from tests.kit.relayed import Relayed, answer, produce_request, request
from tests.kit.virtual_loop import run_virtually

READ = 10_000
HEARTBEAT = 12
LONGEST = 2**27


def kept(relayed: Relayed) -> int:
    client, broker = relayed.client, relayed.broker
    assert broker is not None
    found = [client._rest, client._whole or b"", broker._rest, broker._whole or b""]
    return sum(len(one) for one in found)


async def connected() -> Relayed:
    relayed = Relayed()
    relayed.limit("consumer_byte_rate", 1e6, client_id="c")
    await relayed.connect()
    return relayed


def announced(api_key: int, version: int, body: bytes) -> bytes:
    """The beginning of a request of 4 MiB, which may go on."""
    frame = request(api_key, version, 1, body)
    return struct.pack(">i", 4 * 2**20) + frame[4:]


@pytest.mark.parametrize(
    "begin",
    [
        pytest.param(announced(0, 9, b"\0" + uvarint(LONGEST)), id="transactional id"),
        pytest.param(announced(0, 9, b"\1\7" + uvarint(LONGEST)), id="tag of a produce"),
        pytest.param(announced(1, 12, b"\1\7" + uvarint(LONGEST)), id="tag of a fetch"),
    ],
)
def test_a_header_without_end_is_not_waited_for(begin: bytes) -> None:
    async def work() -> None:
        relayed = await connected()
        relayed.client_sends(begin)
        sent = 0
        while not relayed.to_client.has_closed and sent < 10**6:
            relayed.client.data_received(bytes(READ))
            sent += READ
            assert kept(relayed) <= 128 * 1024 + READ
        await relayed.settle()
        assert sent < 200_000
        assert isinstance(relayed.failure, ProtocolError)

    run_virtually(work())


def test_headers_as_long_as_they_may_be_are_waited_for() -> None:
    async def work() -> None:
        relayed = await connected()
        name = "t" * 32_767
        body = b"\0" + uvarint(len(name) + 1) + name.encode() + struct.pack(">hi", 0, 1) + b"records"
        frame = request(0, 9, 1, body, name)
        relayed.client_sends(frame, lambda: READ)
        assert relayed.to_broker.take() == frame
        relayed.close()

    run_virtually(work())


def test_requests_that_wait_are_no_more_than_was_read_at_once() -> None:
    async def work() -> None:
        relayed = Relayed()
        relayed.limit("producer_byte_rate", 1000.0, client_id="c")
        await relayed.connect()
        relayed.client_sends(produce_request(1, bytes(30_000)) + bytes(READ))
        assert relayed.to_client.is_paused
        assert kept(relayed) <= READ
        relayed.close()

    run_virtually(work())


def test_requests_under_way_are_no_more_than_there_may_be() -> None:
    async def work() -> None:
        relayed = await connected()
        one = request(12, 3, 1, b"")
        relayed.client_sends(one * (MOST_UNANSWERED + 100))
        assert len(relayed.client.expected) == MOST_UNANSWERED
        assert relayed.to_client.is_paused
        assert relayed.to_broker.take() == one * MOST_UNANSWERED
        half = answer(1, b"") * (MOST_UNANSWERED // 2 - 1)
        relayed.broker_sends(half)
        assert relayed.to_client.is_paused
        relayed.broker_sends(answer(1, b""))
        assert not relayed.to_client.is_paused
        assert relayed.to_broker.take() == one * 100
        assert relayed.to_client.take() == half + answer(1, b"")
        relayed.close()

    run_virtually(work())


def test_a_list_of_brokers_comes_through_byte_by_byte() -> None:
    async def work() -> None:
        relayed = await connected()
        relayed.topology.learn([(1, "a", 9092)])
        relayed.client_sends(request(3, 0, 1, bytes(4)))
        brokers = struct.pack(">ih1si", 1, 1, b"a", 9092) * 500
        relayed.broker_sends(answer(1, struct.pack(">i", 500) + brokers + bytes(4)), lambda: 1)
        host, port = relayed.relay.address_of(1, "a", 9092) or ("", 0)
        new = struct.pack(">ih", 1, len(host)) + host.encode() + struct.pack(">i", port)
        assert relayed.to_client.take() == answer(1, struct.pack(">i", 500) + new * 500 + bytes(4))
        assert kept(relayed) == 0
        relayed.close()

    run_virtually(work())


def test_a_list_of_brokers_without_end_is_not_waited_for() -> None:
    async def work() -> None:
        relayed = await connected()
        relayed.client_sends(request(3, 9, 1, b"\0\1\0\0\0"))
        relayed.broker_sends(struct.pack(">ii", 2**29, 1) + b"\0" + bytes(4) + b"\3" + bytes(4) + uvarint(LONGEST))
        while not relayed.to_broker.has_closed:
            relayed.broker_sends(bytes(READ))
            assert kept(relayed) <= 2 * 2**20 + 2 * READ
        await relayed.settle()
        assert isinstance(relayed.failure, ProtocolError)

    run_virtually(work())


@pytest.mark.parametrize(
    ("asked", "begin"),
    [
        pytest.param(request(10, 0, 1, b"\0\1g"), b"", id="FindCoordinator"),
        pytest.param(produce_request(1, b"")[:6] + b"\0\x0a" + produce_request(1, b"")[8:], b"", id="Produce"),
        pytest.param(request(18, 0, 1, b""), b"", id="ApiVersions"),
    ],
)
def test_an_answer_that_is_read_whole_is_no_larger_than_it_may_be(asked: bytes, begin: bytes) -> None:
    async def work() -> None:
        relayed = await connected()
        relayed.client_sends(asked)
        await relayed.settle()
        relayed.broker_sends(struct.pack(">ii", 16 * 2**20 + 1, 1))
        await relayed.settle()
        assert isinstance(relayed.failure, FrameSizeError)

    run_virtually(work())


def test_who_does_not_take_what_is_sent_stops_the_other_from_being_read() -> None:
    async def work() -> None:
        relayed = await connected()
        relayed.client_sends(request(12, 3, 1, b""))
        assert relayed.broker is not None
        relayed.broker.pause_writing()
        assert relayed.to_client.is_paused
        relayed.client.pause_writing()
        assert relayed.to_broker.is_paused
        relayed.broker.resume_writing()
        relayed.client.resume_writing()
        assert not relayed.to_client.is_paused
        assert not relayed.to_broker.is_paused
        relayed.close()

    run_virtually(work())


def test_a_full_broker_stops_its_client_within_a_request_and_a_wait_that_ends_meanwhile_does_not_read_on() -> None:
    async def work() -> None:
        relayed = await connected()
        relayed.client_sends(produce_request(1, bytes(1000))[:500])
        assert relayed.broker is not None
        relayed.client.mute(1000, relayed.client.now_ms)
        assert not relayed.to_client.is_paused
        relayed.broker.pause_writing()
        assert relayed.to_client.is_paused
        relayed.client._wait_is_over()
        assert relayed.to_client.is_paused
        relayed.broker.resume_writing()
        assert not relayed.to_client.is_paused
        relayed.close()

    run_virtually(work())


def test_long_client_ids_are_charged_and_not_remembered() -> None:
    """There may be 100,000 ids; of 32 KiB each, as many as a request can have, they would be 3 GB."""

    async def work() -> None:
        relayed = await connected()
        for number in range(20):
            relayed.client_sends(request(HEARTBEAT, 3, number, b"", f"{number}-" + "x" * 32_000))
            relayed.client_sends(request(HEARTBEAT, 3, number, b"", f"{number}-short"))
        clients = relayed.relay._clients
        assert {client_id for _, client_id in clients} == {f"{number}-short" for number in range(20)}
        long_id = "x" * 32_000
        relayed.limit("producer_byte_rate", 1000.0, client_id=long_id)
        relayed.client_sends(produce_request(1, bytes(30_000), client_id=long_id))
        assert relayed.client.is_muted
        relayed.close()

    run_virtually(work())
