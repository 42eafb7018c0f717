"""Clients over their quota are answered at once, and nothing further of theirs reaches the broker (KIP-219)."""

from __future__ import annotations

import asyncio
import struct
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kquota.gateway.quotas.request_time import RequestTimes
from kquota.gateway.relay.actions import Kind
from tests.kit.relayed import Relayed, answer, fetch_request, frames, produce_request, request
from tests.kit.relayed_exchanges import any_exchanges, exchanged
from tests.kit.virtual_loop import run_virtually

HEARTBEAT = 12
NO_TOPICS = b"\0\1"


def produced(correlation_id: int, throttle_ms: int = 0) -> bytes:
    """An answer to Produce version 9."""
    return answer(correlation_id, NO_TOPICS + struct.pack(">i", throttle_ms) + b"\0")


def fetched(correlation_id: int, size: int, throttle_ms: int = 0) -> bytes:
    """An answer to Fetch version 12."""
    return answer(correlation_id, b"\0" + struct.pack(">i", throttle_ms) + bytes(size - 9))


def throttle_of_produced(frame: bytes) -> int:
    [found] = struct.unpack_from(">i", frame, len(frame) - 5)
    return int(found)


def throttle_of_fetched(frame: bytes) -> int:
    [found] = struct.unpack_from(">i", frame, 9)
    return int(found)


async def limited(key: str, value: float, **options: object) -> Relayed:
    relayed = Relayed(**options)  # type: ignore[arg-type]
    relayed.limit(key, value, client_id="c")
    await relayed.connect()
    return relayed


def test_what_was_sent_after_a_throttled_request_comes_in_order_when_the_wait_is_over() -> None:
    async def work() -> None:
        relayed = await limited("producer_byte_rate", 1000.0)
        sent = [produce_request(1, bytes(30_000)), *(request(HEARTBEAT, 4, n, b"\0xyz") for n in range(2, 40))]
        relayed.client_sends(b"".join(sent) + sent[1][:9])
        assert relayed.to_broker.take() == sent[0]
        relayed.broker_sends(produced(1))
        [one] = frames(relayed.to_client.take())
        wait_s = throttle_of_produced(one) / 1000
        assert wait_s > 10
        assert relayed.to_client.is_paused
        await asyncio.sleep(wait_s - 0.002)
        assert relayed.to_broker.take() == b""
        assert relayed.to_client.is_paused
        await asyncio.sleep(0.004)
        assert relayed.to_broker.take() == b"".join(sent[1:])
        assert not relayed.to_client.is_paused
        relayed.client_sends(sent[1][9:])
        assert relayed.to_broker.take() == sent[1]
        relayed.close()

    run_virtually(work())


def test_a_throttled_request_is_passed_on_to_its_end() -> None:
    """What a client sends is read on until then, also while it has to wait."""

    async def work() -> None:
        relayed = await limited("producer_byte_rate", 1000.0)
        first, second = produce_request(1, bytes(30_000)), produce_request(2, bytes(30_000))
        relayed.client_sends(first[:100])
        assert not relayed.to_client.is_paused
        relayed.client_sends(first[100:] + second[:50])
        assert relayed.to_broker.take() == first
        assert relayed.to_client.is_paused
        relayed.close()

    run_virtually(work())


def test_several_waits_are_the_longest_of_them() -> None:
    async def work() -> None:
        relayed = await limited("consumer_byte_rate", 1_000.0)
        relayed.client_sends(b"".join(fetch_request(number, 100) for number in (1, 2, 3)))
        relayed.broker_sends(fetched(1, 50_000) + fetched(2, 20_000) + fetched(3, 100))
        waits_ms = [throttle_of_fetched(one) for one in frames(relayed.to_client.take())]
        assert min(waits_ms) > 10_000
        assert waits_ms[0] < waits_ms[1] <= waits_ms[2]
        relayed.to_broker.take()
        await asyncio.sleep(max(waits_ms) / 1000 - 0.01)
        assert relayed.to_client.is_paused
        await asyncio.sleep(0.02)
        assert not relayed.to_client.is_paused
        relayed.close()

    run_virtually(work())


def test_a_shorter_wait_does_not_end_a_longer_one() -> None:
    async def work() -> None:
        relayed = Relayed()
        await relayed.connect()
        now_ms = relayed.client.now_ms
        relayed.client.mute(5_000, now_ms)
        relayed.client.mute(1_000, now_ms)
        await asyncio.sleep(4.9)
        assert relayed.to_client.is_paused
        await asyncio.sleep(0.2)
        assert not relayed.to_client.is_paused
        relayed.close()

    run_virtually(work())


def test_a_throttled_fetch_is_answered_with_its_records_and_the_next_one_waits() -> None:
    async def work() -> None:
        relayed = await limited("consumer_byte_rate", 1_000.0)
        relayed.client_sends(fetch_request(1, 100))
        relayed.broker_sends(fetched(1, 50_000), iter((5, 8, 3, 60_000)).__next__)
        [one] = frames(relayed.to_client.take())
        assert throttle_of_fetched(one) > 10_000
        assert one == fetched(1, 50_000, throttle_of_fetched(one))
        relayed.to_broker.take()
        assert relayed.to_client.is_paused
        relayed.close()

    run_virtually(work())


def test_a_longer_wait_of_the_brokers_stays() -> None:
    async def work() -> None:
        relayed = await limited("consumer_byte_rate", 1_000.0)
        relayed.limit("producer_byte_rate", 1_000.0, client_id="c")
        relayed.client_sends(fetch_request(1, 100) + produce_request(2, bytes(30_000)))
        relayed.broker_sends(fetched(1, 50_000, 2**31 - 1) + produced(2, 2**31 - 1))
        first, second = frames(relayed.to_client.take())
        assert first == fetched(1, 50_000, 2**31 - 1)
        assert second == produced(2, 2**31 - 1)
        relayed.close()

    run_virtually(work())


def test_the_longest_wait_fits_its_field() -> None:
    async def work() -> None:
        relayed = await limited("consumer_byte_rate", 1e-9)
        relayed.limit("producer_byte_rate", 1e-9, client_id="c")
        relayed.client_sends(fetch_request(1, 100) + produce_request(2, bytes(30_000)))
        relayed.broker_sends(fetched(1, 50_000) + produced(2))
        first, second = frames(relayed.to_client.take())
        assert throttle_of_fetched(first) == throttle_of_produced(second) == 2**31 - 1
        relayed.close()

    run_virtually(work())


def test_a_produce_without_acks_makes_its_client_wait_without_an_answer() -> None:
    async def work() -> None:
        relayed = await limited("producer_byte_rate", 1000.0)
        first, second = produce_request(1, bytes(30_000), acks=0), produce_request(2, bytes(10))
        relayed.client_sends(first + second)
        assert relayed.to_broker.take() == first
        assert not relayed.client.expected
        assert relayed.to_client.is_paused
        await asyncio.sleep(100)
        assert relayed.to_broker.take() == second
        relayed.broker_sends(produced(2))
        assert len(frames(relayed.to_client.take())) == 1
        relayed.close()

    run_virtually(work())


def test_a_fetch_asks_for_no_more_than_its_quota_wherever_it_is_cut() -> None:
    """Its max_bytes is lowered, and nothing else."""

    async def work() -> None:
        relayed = await limited("consumer_byte_rate", 1_000.0)
        asked, lowered = fetch_request(1, 50_000_000), fetch_request(1, 10_000)
        for at in range(1, len(asked)):
            relayed.client_sends(asked[:at])
            relayed.client_sends(asked[at:])
            assert relayed.to_broker.take() == lowered, at
            relayed.broker_sends(fetched(1, 9))
        assert not relayed.listener.failures
        relayed.close()

    run_virtually(work())


def test_estimated_time_makes_clients_wait_at_the_answer() -> None:
    async def work() -> None:
        relayed = await limited("request_percentage", 0.001, request_times=RequestTimes())
        relayed.client_sends(request(HEARTBEAT, 4, 1, b"\0xyz"))
        await asyncio.sleep(5)
        relayed.broker_sends(answer(1, b"\0" + bytes(10)), iter((7, 3, 100)).__next__)
        [one] = frames(relayed.to_client.take())
        assert throttle_of_fetched(one) > 0
        assert relayed.to_client.is_paused
        relayed.close()

    run_virtually(work())


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("size", [1, 5, 1000])
def test_an_answer_about_a_delegation_token_says_how_long_its_client_is_muted(version: int, size: int) -> None:
    """Its throttle time comes last, so all of it is waited for."""

    async def work() -> None:
        relayed = await limited("request_percentage", 0.001, request_times=RequestTimes())
        asked = b"\0\5hmac\1\2\3\4\5\6\7\7\0" if version == 2 else b"\0\0\0\4hmac\1\2\3\4\5\6\7\7"
        relayed.client_sends(request(39, version, 1, b"\0" + asked if version == 2 else asked))
        await asyncio.sleep(5)
        begin = bytes(version == 2) + b"\0\0" + b"\1\2\3\4\5\6\7\7"
        end = bytes(version == 2)
        relayed.broker_sends(answer(1, begin + bytes(4) + end), lambda: size)
        [found] = frames(relayed.to_client.take())
        at = 8 + len(begin)
        assert (found[8:at], found[at + 4 :]) == (begin, end)
        assert int.from_bytes(found[at : at + 4], "big") > 0
        assert relayed.client.is_muted
        relayed.close()

    run_virtually(work())


def test_who_left_is_not_waited_for() -> None:
    """A timer would keep all that the connection has in memory, for as long as its client would have waited."""

    async def work() -> None:
        relayed = await limited("consumer_byte_rate", 1_000.0)
        relayed.client_sends(fetch_request(1, 100))
        relayed.to_client.lose()
        relayed.broker_sends(fetched(1, 50_000))
        assert relayed.client._unmute is None or relayed.client._unmute.cancelled()
        relayed.close()

    run_virtually(work())


@given(seed=st.integers(0, 2**32), largest_piece=st.sampled_from((7, 300, 100_000)))
@settings(max_examples=30, deadline=None)
def test_in_shadow_mode_not_a_byte_is_changed_and_nobody_waits(seed: int, largest_piece: int) -> None:
    async def work() -> None:
        relayed = Relayed(is_shadow=True, request_times=RequestTimes())
        for key in ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate"):
            relayed.limit(key, 0.001, client_id="c")
        await relayed.connect()
        exchanges = any_exchanges(Random(seed), 10, (Kind.PRODUCE, Kind.FETCH, Kind.PASS, Kind.QUOTAS))
        began = relayed.client.now_ms
        found = await exchanged(relayed, exchanges, Random(seed), largest_piece)
        assert found.at_broker == b"".join(one.request for one in exchanges)
        assert found.at_client == b"".join(one.passed_on(relayed) or b"" for one in exchanges)
        assert relayed.client.now_ms == began
        relayed.close()

    run_virtually(work())


@given(seed=st.integers(0, 2**32), largest_piece=st.sampled_from((7, 300, 100_000)))
@settings(max_examples=30, deadline=None)
def test_with_waits_everything_comes_in_its_order_and_a_request_never_before_its_time(
    seed: int, largest_piece: int
) -> None:
    async def work() -> None:
        relayed = Relayed()
        relayed.limit("producer_byte_rate", 500.0, client_id="c")
        relayed.limit("consumer_byte_rate", 500.0, client_id="c")
        await relayed.connect()
        exchanges = any_exchanges(Random(seed), 12, (Kind.PRODUCE, Kind.FETCH, Kind.PASS))
        found = await exchanged(relayed, exchanges, Random(seed), largest_piece, waits=True)
        assert [one[:12] for one in frames(found.at_broker)] == [one.request[:12] for one in exchanges]
        assert len(found.at_broker) == sum(len(one.request) for one in exchanges)
        answers = [passed for one in exchanges if (passed := one.passed_on(relayed)) is not None]
        assert [one[:8] for one in frames(found.at_client)] == [one[:8] for one in answers]
        assert not relayed.listener.failures
        relayed.close()

    run_virtually(work())
