"""The same requests at a broker with a quota, and through a gateway that has it: throttle times side by side.

All go to one broker, each client id with quotas of its own: at the broker, at the gateway, or at both. Everybody waits
as long as the answer says. With Kafka's windows a client may use ten seconds' worth at once, and
its throttle time is what it used in all, divided by the limit, less the time since it began: so that of two clients
differs by no more than the time by which they differ.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Final

import pytest

from examples.capture.broker import Broker
from tests.kit.kafka import NEW
from tests.real import gateways
from tests.real.gateways import client_ids, fetch, gateway, produce, quota_file, set_quota
from tests.real.raw_kafka import Connection

LIMIT: Final = 20_000.0
"""Bytes per second."""
BATCH: Final = 10_000
AT_ONCE_S: Final = 10
REQUESTS: Final = 25
"""Of which the last are throttled for half a second each."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A request, by the time since the first one was sent."""

    sent_s: float
    answered_s: float
    throttle_ms: int
    size: int = 0


@pytest.fixture(scope="module")
def kafka(broker: Callable[[str], Broker]) -> Broker:
    return broker(NEW)


@pytest.fixture(scope="module")
def topic(kafka: Broker) -> Iterator[str]:
    with gateways.topic(kafka.plaintext) as name, Connection(kafka.plaintext) as connection:
        for _ in range(3):
            produce(connection, name, BATCH, "filler")
        yield name


def run(address: str, work: Callable[[Connection], tuple[int, int]], times: int = REQUESTS) -> list[Asked]:
    """Do it again and again, with a wait of what each answer said."""
    asked: list[Asked] = []
    with Connection(address) as connection:
        start_s = time.monotonic()
        for _ in range(times):
            sent_s = time.monotonic()
            size, throttle_ms = work(connection)
            asked.append(Asked(sent_s - start_s, time.monotonic() - start_s, throttle_ms, size))
            time.sleep(throttle_ms / 1000)
    return asked


def assert_same_throttles(real: list[Asked], ours: list[Asked]) -> None:
    """As far as each was sent and answered at another time."""
    for index, (one, other) in enumerate(zip(real, ours, strict=True)):
        # Each was counted between its sending and its answer, and so was the first one.
        least_s = other.sent_s - ours[0].answered_s - one.answered_s
        most_s = other.answered_s - one.sent_s + real[0].answered_s
        shorter_ms = one.throttle_ms - other.throttle_ms
        if one.throttle_ms and other.throttle_ms:
            assert least_s * 1000 - 5 <= shorter_ms <= most_s * 1000 + 5, (index, one, other)
        else:
            assert abs(shorter_ms) <= max(abs(least_s), abs(most_s)) * 1000 + 5, (index, one, other)


def test_produce_throttle_times_are_the_brokers(kafka: Broker, topic: str, tmp_path: Path) -> None:
    """Whichever of both has the quota; where both have one, the larger time is what the client gets."""
    direct, ours, both, broker_less, gateway_less = client_ids("direct", "ours", "both", "broker-less", "gateway-less")
    at_broker = {direct: LIMIT, both: LIMIT, broker_less: LIMIT, gateway_less: 2 * LIMIT}
    at_gateway = {ours: LIMIT, both: LIMIT, broker_less: 2 * LIMIT, gateway_less: LIMIT}
    quotas = quota_file(
        tmp_path / "quotas.yaml", {one: {"producer_byte_rate": rate} for one, rate in at_gateway.items()}
    )
    for one, rate in at_broker.items():
        set_quota(kafka.plaintext, {"client-id": one}, {"producer_byte_rate": rate})
    try:
        with gateway(kafka.plaintext, tmp_path, quotas=quotas) as running, ThreadPoolExecutor() as pool:

            def work(client_id: str) -> list[Asked]:
                address = kafka.plaintext if client_id == direct else running.brokers[1]
                return run(address, lambda connection: (BATCH, produce(connection, topic, BATCH, client_id)))

            real, *others = pool.map(work, (direct, ours, both, broker_less, gateway_less))
    finally:
        for one in at_broker:
            set_quota(kafka.plaintext, {"client-id": one}, {"producer_byte_rate": None})
    assert max(one.throttle_ms for one in real) > 300
    for found in others:
        assert_same_throttles(real, found)


def test_fetches_are_limited_alike(kafka: Broker, topic: str, tmp_path: Path) -> None:
    """The first throttle time is the same. A broker then answers without records until there is room for them; the
    gateway passes on what is there, and throttles longer, as a broker does with what is produced. Neither goes beyond
    the limit and ten seconds' worth, nor stays behind the limit.
    """
    direct, ours = client_ids("direct", "ours")
    quotas = quota_file(tmp_path / "quotas.yaml", {ours: {"consumer_byte_rate": LIMIT}})
    set_quota(kafka.plaintext, {"client-id": direct}, {"consumer_byte_rate": LIMIT})
    try:
        with gateway(kafka.plaintext, tmp_path, quotas=quotas) as running, ThreadPoolExecutor() as pool:

            def work(client_id: str) -> list[Asked]:
                address = kafka.plaintext if client_id == direct else running.brokers[1]
                return run(address, lambda connection: fetch(connection, topic, BATCH, client_id))

            real, found = pool.map(work, (direct, ours))
    finally:
        set_quota(kafka.plaintext, {"client-id": direct}, {"consumer_byte_rate": None})
    # A broker on a busy machine needs half a second for the first 20, and then throttles for next to nothing.
    first = next(index for index, one in enumerate(real) if one.throttle_ms)
    assert_same_throttles(real[: first + 1], found[: first + 1])
    assert real[first].size == 0
    assert found[first].size > 0
    for asked in (real, found):
        for total, one in zip(accumulate(one.size for one in asked), asked, strict=True):
            assert LIMIT * one.sent_s - 2 * BATCH <= total <= LIMIT * (AT_ONCE_S + one.answered_s) + 2 * BATCH, one


def test_a_batch_that_no_quota_lets_through_at_once(kafka: Broker, tmp_path: Path) -> None:
    """A broker never sends what is larger than ten seconds' worth, and makes its consumer wait again and again. Behind
    the gateway the consumer gets it, and waits as long, once.
    """
    direct, ours = client_ids("direct", "ours")
    large = 15 * int(LIMIT)
    quotas = quota_file(tmp_path / "quotas.yaml", {ours: {"consumer_byte_rate": LIMIT}})
    set_quota(kafka.plaintext, {"client-id": direct}, {"consumer_byte_rate": LIMIT})
    try:
        with gateways.topic(kafka.plaintext) as name, gateway(kafka.plaintext, tmp_path, quotas=quotas) as running:
            with Connection(kafka.plaintext) as connection:
                produce(connection, name, large, "filler")
            for _ in range(3):
                with Connection(kafka.plaintext) as connection:
                    size, wait_ms = fetch(connection, name, BATCH, direct, offset=1)
                assert size == 0
                assert 4_500 < wait_ms < 5_500
            with Connection(running.brokers[1]) as connection:
                size, wait_ms = fetch(connection, name, BATCH, ours, offset=1)
            assert size == large
            assert 4_500 < wait_ms < 5_500
    finally:
        set_quota(kafka.plaintext, {"client-id": direct}, {"consumer_byte_rate": None})


def test_the_longer_of_two_quotas_counts(kafka: Broker, topic: str, tmp_path: Path) -> None:
    """Request time, of which a window is the most that it makes a client wait for, and bytes."""
    time_only, bytes_only, two = client_ids("time", "bytes", "two")
    share = {"request_percentage": 0.001}
    quotas = quota_file(
        tmp_path / "quotas.yaml",
        {time_only: share, bytes_only: {"producer_byte_rate": LIMIT}, two: {**share, "producer_byte_rate": LIMIT}},
    )
    with gateway(kafka.plaintext, tmp_path, "-D", "gateway.request.time=estimate", quotas=quotas) as running:

        def ask(client_id: str, batch_bytes: int) -> int:
            with Connection(running.brokers[1]) as connection:
                return produce(connection, topic, batch_bytes, client_id)

        assert ask(bytes_only, 1_000) == 0
        assert ask(time_only, 1_000) == ask(two, 1_000) == 1_000
        large = AT_ONCE_S * int(LIMIT) + 3 * int(LIMIT)
        assert ask(time_only, large) == 1_000
        assert 2_500 < ask(bytes_only, large) < 3_500
        assert 2_500 < ask(two, large) < 3_500
