"""What a busy broker's clients do: who they are, the kinds of lines they cause, and the values of each line."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import numpy as np
import numpy.typing as npt

from benchmarks.log_templates import (
    Client,
    Topic,
    api_versions,
    create_topics,
    fetch,
    find_coordinator,
    heartbeat,
    metadata,
    offset_commit,
    produce,
)

__all__ = ["Drawn", "Family", "Ints", "build_clients", "build_families"]

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """What one family draws for one block: columns of the slots between correlation id and times, and their sums."""

    body: Sequence[Sequence[object]]
    record_bytes: Ints | None = None
    mutations: Ints | None = None
    throttle_ms: Ints | None = None
    told_in_response_only: bool = False
    remote_us: Ints | None = None


Draw = Callable[[np.random.Generator, Bools], Drawn]
"""Draws for one line per element; true where the line's client is over its quota."""


@dataclass(slots=True)
class Family:
    """Lines with the same slots: `share` of the log, one template for each client.

    `key` is the quota that its throttle time is counted on, None where the broker charges no client. `exempt` lines
    are not part of request_percentage.
    """

    share: float
    draw: Draw
    key: str | None
    exempt: bool = False
    templates: list[bytes] = field(default_factory=list)
    clients: list[int] = field(default_factory=list)
    fixed_bytes: list[int] = field(default_factory=list)

    def add(self, client: int, template: bytes, fixed_bytes: int = 0) -> None:
        self.templates.append(template)
        self.clients.append(client)
        self.fixed_bytes.append(fixed_bytes)


_SOFTWARE: Final = (  # software, its version, Produce version, Fetch version
    (("apache-kafka-java", "4.3.0"), 13, 18),
    (("apache-kafka-java", "4.3.0"), 13, 18),
    (("apache-kafka-java", "4.0.1"), 12, 17),
    (("apache-kafka-java", "3.9.1"), 11, 17),
    (("apache-kafka-java", "3.7.2"), 10, 16),
    (("apache-kafka-java", "3.5.1"), 9, 15),
    (("apache-kafka-java", "3.3.2"), 9, 13),
    (("apache-kafka-java", "3.0.2"), 9, 12),
    (("librdkafka", "2.12.1"), 10, 16),
    (("kgo", "v1.19.5"), 11, 14),
)
_AWKWARD: Final = ('say "hi"', "zähler-η", "<default>", "a,b=c", None)


def build_clients(rng: np.random.Generator, count: int) -> list[Client]:
    """`count` different (user, client id): several client ids of a user, one client id of many users, awkward names."""
    users = max(1, count * 2 // 5)
    found: list[Client] = []
    for index in range(count):
        software, produce_version, fetch_version = _SOFTWARE[int(rng.integers(len(_SOFTWARE)))]
        client_id: str | None
        if index < len(_AWKWARD):
            client_id = _AWKWARD[index]
        elif index < users and index % 37 == 0:
            client_id = "kafka-ui"
        else:
            client_id = f"{('orders', 'billing', 'audit', 'search')[index % 4]}-worker-{index // users}-{index % 7}"
        address = f"10.{20 + index // 60_000}.{index // 250 % 240}.{2 + index % 250}"
        user = f"team-{index % users:04d}.svc"
        found.append(Client(user, client_id, address, software, produce_version, fetch_version, index % 25 == 6))
    return found


def _records_bytes(sizes: list[Ints]) -> Ints:
    """Bytes on the wire of several compact `records` fields: each its length as uvarint(size + 1), and its bytes."""
    total = np.zeros_like(sizes[0])
    for size in sizes:
        total += size + 1 + (size + 1 >= 1 << 7) + (size + 1 >= 1 << 14) + (size + 1 >= 1 << 21)
    return total


def _offsets(rng: np.random.Generator, count: int) -> list[int]:
    offsets: list[int] = rng.integers(1_000, 900_000_000, count).tolist()
    return offsets


def _sizes(rng: np.random.Generator, count: int, typical: float) -> Ints:
    return np.minimum(rng.lognormal(np.log(typical), 1.2, count), 4_000_000).astype(np.int64) + 69


def _draw_produce(rng: np.random.Generator, over: Bools, *, parts: int, acks: int = -1) -> Drawn:
    count = len(over)
    sizes = [_sizes(rng, count, 6_000) for _ in range(parts)]
    body: list[Sequence[object]] = [size.tolist() for size in sizes]
    if acks == 0:
        return Drawn(body=body, record_bytes=_records_bytes(sizes))
    throttle_ms = np.where(over & (rng.random(count) < 0.5), rng.integers(1, 4_000, count), 0)
    body += [_offsets(rng, count) for _ in range(parts)]
    body.append(throttle_ms.tolist())
    remote_us = rng.integers(0, 4_000, count)
    return Drawn(body=body, record_bytes=_records_bytes(sizes), throttle_ms=throttle_ms, remote_us=remote_us)


def _draw_fetch(rng: np.random.Generator, over: Bools, *, asked: int, answered: int, replica: bool = False) -> Drawn:
    count = len(over)
    body: list[Sequence[object]] = [rng.integers(1, 90_000, count).tolist()]
    body += [_offsets(rng, count) for _ in range(asked)]
    body.append([0] * count)
    sizes: list[Ints] = []
    for _ in range(answered):
        # Every fifth partition of an answer has nothing new.
        sizes.append(np.where(rng.random(count) < 0.2, 0, _sizes(rng, count, 12_000)))
        high = _offsets(rng, count)
        body += [high, high, sizes[-1].tolist()]
    record_bytes = _records_bytes(sizes) if sizes else np.zeros(count, dtype=np.int64)
    remote_us = rng.integers(500_000, 504_000, count) if not sizes else rng.integers(0, 90_000, count)
    return Drawn(body=body, record_bytes=None if replica else record_bytes, remote_us=remote_us)


def _draw_throttled_fetch(rng: np.random.Generator, over: Bools) -> Drawn:
    count = len(over)
    throttle_ms = rng.integers(1, 6_000, count)
    body = [rng.integers(1, 90_000, count).tolist(), throttle_ms.tolist()]
    return Drawn(body=body, record_bytes=np.zeros(count, dtype=np.int64), throttle_ms=throttle_ms)


def _draw_plain(rng: np.random.Generator, over: Bools) -> Drawn:
    """An API whose only slot is the throttle time of its response: now and then a request-percentage throttle."""
    throttle_ms = np.where(over & (rng.random(len(over)) < 0.2), rng.integers(1, 1_000, len(over)), 0)
    return Drawn(body=[throttle_ms.tolist()], throttle_ms=throttle_ms)


def _draw_create_topics(rng: np.random.Generator, over: Bools, *, refused: bool) -> Drawn:
    count = len(over)
    names = [b"job-%012x" % number for number in rng.integers(0, 1 << 47, count).tolist()]
    partitions = rng.integers(1, 64, count)
    throttle_ms = rng.integers(1, 9_000, count) if refused else np.zeros(count, dtype=np.int64)
    body: list[Sequence[object]] = [names, partitions.tolist(), throttle_ms.tolist(), names]
    return Drawn(
        body=body if refused else [*body, partitions.tolist()],
        mutations=np.zeros_like(partitions) if refused else partitions,
        throttle_ms=throttle_ms,
        told_in_response_only=True,
        remote_us=rng.integers(2_000, 30_000, count),
    )


def _topics(rng: np.random.Generator, count: int) -> list[Topic]:
    names = ("orders", "payments", "clicks", "audit-log", "inventory.changes", "users")
    return [
        Topic(
            f"{names[index % len(names)]}.v{index // len(names)}",
            base64.urlsafe_b64encode(rng.bytes(16)).rstrip(b"=").decode(),
        )
        for index in range(count)
    ]


_PLAIN: Final = (  # share of the log, template
    (0.025, metadata),
    (0.003, api_versions),
    (0.01, find_coordinator),
    (0.16, heartbeat),
    (0.05, offset_commit),
)
# Share of the log, and the partitions of each topic of the requests.
_PRODUCE_LAYOUTS: Final = ((0.235, (1,)), (0.06, (2,)), (0.015, (3, 1)))
_FETCH_LAYOUTS: Final = (  # asked and answered: an incremental fetch asks for nothing anew
    (0.15, (1,), (1,)),
    (0.01, (2,), (2,)),
    (0.005, (2, 1), (2, 1)),
    (0.12, (), (1,)),
    (0.01, (), (2, 1)),
    (0.10, (), ()),
)


def build_families(rng: np.random.Generator, clients: list[Client]) -> list[Family]:
    """All kinds of lines, one template for each client, in the shares of a busy broker."""
    topics = _topics(rng, 400)

    def layout(parts: tuple[int, ...]) -> list[tuple[Topic, int]]:
        chosen = rng.choice(len(topics), len(parts), replace=False)
        return [(topics[int(index)], count) for index, count in zip(chosen, parts, strict=True)]

    return [*_produce_families(clients, layout), *_fetch_families(clients, layout), *_other_families(clients)]


Layout = Callable[[tuple[int, ...]], list[tuple[Topic, int]]]


def _produce_families(clients: list[Client], layout: Layout) -> Iterator[Family]:
    for share, parts in _PRODUCE_LAYOUTS:
        family = Family(share, partial(_draw_produce, parts=sum(parts)), "producer_byte_rate")
        for index, client in enumerate(clients):
            if index % 3 != 1:
                family.add(index, *produce(client, layout(parts), -1, index))
        yield family
    unanswered = Family(0.01, partial(_draw_produce, parts=1, acks=0), "producer_byte_rate", exempt=True)
    for index, client in enumerate(clients):
        if index % 12 == 0:
            unanswered.add(index, *produce(client, layout((1,)), 0, index))
    yield unanswered


def _fetch_families(clients: list[Client], layout: Layout) -> Iterator[Family]:
    for share, asked, answered in _FETCH_LAYOUTS:
        draw = partial(_draw_fetch, asked=sum(asked), answered=sum(answered))
        family = Family(share, draw, "consumer_byte_rate")
        for index, client in enumerate(clients):
            if index % 3 != 0:
                known = layout(answered)
                family.add(index, *fetch(client, known if asked else [], known, index))
        yield family
    throttled = Family(0.02, _draw_throttled_fetch, "consumer_byte_rate")
    for index, client in enumerate(clients):
        if client.over_quota:
            throttled.add(index, *fetch(client, [], [], index))
    yield throttled
    follower = Family(0.03, partial(_draw_fetch, asked=2, answered=2, replica=True), None)
    for replica in (2, 3):
        name, address = f"broker-{replica}-fetcher-0", f"10.0.0.1{replica}"
        broker = Client("broker", name, address, ("apache-kafka-java", "4.3.0"), 13, 18, over_quota=False)
        follower.add(0, *fetch(broker, layout((1, 1)), layout((1, 1)), replica, replica))
    yield follower


def _other_families(clients: list[Client]) -> Iterator[Family]:
    for share, template in _PLAIN:
        family = Family(share, _draw_plain, "request_percentage")
        for index, client in enumerate(clients):
            family.add(index, template(client, index))
        yield family
    create = Family(0.002, partial(_draw_create_topics, refused=False), "controller_mutation_rate")
    refused = Family(0.001, partial(_draw_create_topics, refused=True), "controller_mutation_rate")
    forwarded = Family(0.002, partial(_draw_create_topics, refused=False), None)
    for index, client in enumerate(clients):
        if index % 20 == 6:
            create.add(index, create_topics(client))
            forwarded.add(index, create_topics(client, forwarded=True))
            if client.over_quota:
                refused.add(index, create_topics(client, refused=True))
    yield from (create, refused, forwarded)
