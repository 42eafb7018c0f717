"""The lines that `generate_log` writes: clients, one template for each client and kind, and what a template charges.

A template is a line as bytes with ``%`` slots, in the line's order. The keys and their order are those of Kafka's
`RequestConvertToJson` and of the message schemas. `fixed_bytes` is what the broker charges besides records: for a
produce the request frame without its 4 size bytes, for a fetch 4 and the body of the response.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt

__all__ = ["Client", "Drawn", "Family", "build_clients", "build_families"]

PREFIX: Final = b"[%b] DEBUG Completed request:"
SUFFIX: Final = b" (kafka.request.logger)"

# JSON strings that stand for a value drawn for every line.
INT: Final = "@int@"
MS: Final = "@ms@"
TEXT: Final = "@text@"

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Client:
    """One (user, client id) with the software it pretends to be. `client_id` None is null on the wire."""

    user: str
    client_id: str | None
    address: str
    software: tuple[str, str]
    produce_version: int
    fetch_version: int
    over_quota: bool


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


# ---------------------------------------------------------------- clients

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


# ---------------------------------------------------------------- templates


def _template(
    client: Client, api: tuple[int, str, int], request: Json, response: Json | None, *, forwarded: bool = False
) -> bytes:
    """One client's line of one API, keys in the broker's order."""
    api_key, api_name, api_version = api
    port, protocol, listener = (9093, "PLAINTEXT", "CONTROLLER") if forwarded else (9092, "SASL_PLAINTEXT", "CLIENTS")
    line = {
        "isForwarded": forwarded,
        "requestHeader": {
            "requestApiKey": api_key,
            "requestApiVersion": api_version,
            "correlationId": INT,
            "clientId": client.client_id,
            "requestApiKeyName": api_name,
        },
        "request": request,
        "response": response,
        "connection": f"10.0.0.11:{port}-{client.address}:{TEXT}",
        "totalTimeMs": MS,
        "requestQueueTimeMs": MS,
        "localTimeMs": MS,
        "remoteTimeMs": MS,
        "throttleTimeMs": INT,
        "responseQueueTimeMs": MS,
        "sendTimeMs": MS,
        "securityProtocol": protocol,
        "principal": f"User:{client.user}",
        "listener": listener,
        "clientInformation": {"softwareName": client.software[0], "softwareVersion": client.software[1]},
    }
    text = json.dumps(line, ensure_ascii=False, separators=(",", ":")).replace("%", "%%")
    text = text.replace(f'"{INT}"', "%d").replace(f'"{MS}"', "%b").replace(TEXT, "%b")
    return PREFIX + text.encode() + SUFFIX


def _uvarint_bytes(value: int) -> int:
    return max(1, (value.bit_length() + 6) // 7)


def _compact_bytes(text: str) -> int:
    size = len(text.encode())
    return _uvarint_bytes(size + 1) + size


def _records_bytes(sizes: list[Ints]) -> Ints:
    """Bytes on the wire of several compact `records` fields: each its length as uvarint(size + 1), and its bytes."""
    total = np.zeros_like(sizes[0])
    for size in sizes:
        total += size + 1 + (size + 1 >= 1 << 7) + (size + 1 >= 1 << 14) + (size + 1 >= 1 << 21)
    return total


@dataclass(frozen=True, slots=True)
class _Topic:
    name: str
    id: str

    def field(self, named: bool, name: str) -> Json:
        return {name: self.name} if named else {"topicId": self.id}

    def wire_bytes(self, named: bool) -> int:
        return _compact_bytes(self.name) if named else 16


def _topics(rng: np.random.Generator, count: int) -> list[_Topic]:
    names = ("orders", "payments", "clicks", "audit-log", "inventory.changes", "users")
    return [
        _Topic(
            f"{names[index % len(names)]}.v{index // len(names)}",
            base64.urlsafe_b64encode(rng.bytes(16)).rstrip(b"=").decode(),
        )
        for index in range(count)
    ]


def _produce(client: Client, layout: list[tuple[_Topic, int]], acks: int, number: int) -> tuple[bytes, int]:
    version = client.produce_version
    named = version < 13
    transactional_id = f"txn-{client.user}" if acks == -1 and number % 11 == 0 else None
    request = {
        "transactionalId": transactional_id,
        "acks": acks,
        "timeoutMs": 30000,
        "topicData": [
            {
                **topic.field(named, "name"),
                "partitionData": [{"index": index, "recordsSizeInBytes": INT} for index in range(parts)],
            }
            for topic, parts in layout
        ],
    }
    answered = {"errorCode": 0, "baseOffset": INT, "logAppendTimeMs": -1, "logStartOffset": 0}
    response = {
        "responses": [
            {
                **topic.field(named, "name"),
                "partitionResponses": [
                    {"index": index, **answered, "recordErrors": [], "errorMessage": None} for index in range(parts)
                ],
            }
            for topic, parts in layout
        ],
        "throttleTimeMs": INT,
    }
    header = 2 + 2 + 4 + 2 + len((client.client_id or "").encode()) + 1
    body = (1 if transactional_id is None else _compact_bytes(transactional_id)) + 2 + 4
    body += _uvarint_bytes(len(layout) + 1) + 1
    for topic, parts in layout:
        body += topic.wire_bytes(named) + _uvarint_bytes(parts + 1) + parts * (4 + 1) + 1
    api = (0, "PRODUCE", version)
    return _template(client, api, request, None if acks == 0 else response), header + body


def _fetch_request(version: int, topics: list[Json], replica: int, session: tuple[int, object]) -> Json:
    request: Json = {}
    if version < 15:
        request["replicaId"] = replica
    elif replica >= 0:
        request["replicaState"] = {"replicaId": replica, "replicaEpoch": 7}
    request |= {"maxWaitMs": 500, "minBytes": 1, "maxBytes": 52428800, "isolationLevel": 0}
    request |= {"sessionId": session[0], "sessionEpoch": session[1]}
    return request | {"topics": topics, "forgottenTopicsData": [], "rackId": ""}


def _fetch(
    client: Client, asked: list[tuple[_Topic, int]], answered: list[tuple[_Topic, int]], number: int, replica: int = -1
) -> tuple[bytes, int]:
    version = client.fetch_version
    named = version < 13
    topics = [
        {
            **topic.field(named, "topic"),
            "partitions": [
                {
                    "partition": index,
                    "currentLeaderEpoch": 3,
                    "fetchOffset": INT,
                    "lastFetchedEpoch": -1,
                    "logStartOffset": -1,
                    "partitionMaxBytes": 1048576,
                }
                for index in range(parts)
            ],
        }
        for topic, parts in asked
    ]
    committed = number % 5 == 0
    aborted = [{"producerId": 4000 + number, "firstOffset": 17}] if number % 50 == 0 else []
    responses = [
        {
            **topic.field(named, "topic"),
            "partitions": [
                {
                    "partitionIndex": index,
                    "errorCode": 0,
                    "highWatermark": INT,
                    "lastStableOffset": INT,
                    "logStartOffset": 0,
                    "abortedTransactions": aborted if committed else None,
                    "preferredReadReplica": -1,
                    "recordsSizeInBytes": INT,
                }
                for index in range(parts)
            ],
        }
        for topic, parts in answered
    ]
    request = _fetch_request(version, topics, replica, (100_000 + number * 7919, INT))
    if committed:
        request["isolationLevel"] = 1
    response = {"throttleTimeMs": INT, "errorCode": 0, "sessionId": request["sessionId"], "responses": responses}
    body = 4 + 2 + 4 + _uvarint_bytes(len(answered) + 1) + 1
    partition_bytes = 4 + 2 + 8 + 8 + 8 + 1 + (17 * len(aborted) if committed else 0) + 4 + 1
    for topic, parts in answered:
        body += topic.wire_bytes(named) + _uvarint_bytes(parts + 1) + parts * partition_bytes + 1
    return _template(client, (1, "FETCH", version), request, response), 4 + body


def _metadata(client: Client, number: int) -> bytes:
    request = {
        "topics": [{"topicId": "AAAAAAAAAAAAAAAAAAAAAA", "name": f"orders.v{number % 60}"}],
        "allowAutoTopicCreation": True,
        "includeTopicAuthorizedOperations": False,
    }
    brokers = [{"nodeId": node, "host": f"10.0.0.1{node}", "port": 9092, "rack": None} for node in (1, 2, 3)]
    partitions = [
        {
            "errorCode": 0,
            "partitionIndex": index,
            "leaderId": 1 + index % 3,
            "leaderEpoch": 3,
            "replicaNodes": [1, 2, 3],
            "isrNodes": [1, 2, 3],
            "offlineReplicas": [],
        }
        for index in range(6)
    ]
    topic = {
        "errorCode": 0,
        "name": f"orders.v{number % 60}",
        "topicId": "3k2ZJ8x3QwWc9e0wq0l5mA",
        "isInternal": False,
        "partitions": partitions,
        "topicAuthorizedOperations": -2147483648,
    }
    response = {
        "throttleTimeMs": INT,
        "brokers": brokers,
        "clusterId": "Yp0o4zK3T2m8Vb1rQx7LwA",
        "controllerId": 1,
        "topics": [topic],
    }
    return _template(client, (3, "METADATA", 12), request, response)


def _api_versions(client: Client, number: int) -> bytes:
    request = {"clientSoftwareName": client.software[0], "clientSoftwareVersion": client.software[1]}
    supported = [{"apiKey": key, "minVersion": key % 4, "maxVersion": key % 4 + 3} for key in range(68)]
    response = {
        "errorCode": 0,
        "apiKeys": supported,
        "throttleTimeMs": INT,
        "finalizedFeaturesEpoch": 1204,
        "finalizedFeatures": [{"name": "metadata.version", "maxVersionLevel": 27, "minVersionLevel": 27}],
    }
    return _template(client, (18, "API_VERSIONS", 4), request, response)


def _find_coordinator(client: Client, number: int) -> bytes:
    group = f"group-{client.user}"
    coordinator = {
        "key": group,
        "nodeId": 1,
        "host": "10.0.0.11",
        "port": 9092,
        "errorCode": 0,
        "errorMessage": "",
    }
    request = {"keyType": 0, "coordinatorKeys": [group]}
    response = {"throttleTimeMs": INT, "coordinators": [coordinator]}
    return _template(client, (10, "FIND_COORDINATOR", 6), request, response)


def _heartbeat(client: Client, number: int) -> bytes:
    request = {
        "groupId": f"group-{client.user}",
        "generationId": 4 + number % 90,
        "memberId": f"{client.client_id}-8f0c2a5e-61b7-4f0c-b1f6-{number:012d}",
        "groupInstanceId": None,
    }
    return _template(client, (12, "HEARTBEAT", 4), request, {"throttleTimeMs": INT, "errorCode": 0})


def _offset_commit(client: Client, number: int) -> bytes:
    request = {
        "groupId": f"group-{client.user}",
        "generationIdOrMemberEpoch": 4 + number % 90,
        "memberId": f"{client.client_id}-8f0c2a5e-61b7-4f0c-b1f6-{number:012d}",
        "groupInstanceId": None,
        "topics": [
            {
                "name": f"orders.v{number % 60}",
                "partitions": [
                    {
                        "partitionIndex": 0,
                        "committedOffset": 100 + number,
                        "committedLeaderEpoch": 3,
                        "committedMetadata": "",
                    }
                ],
            }
        ],
    }
    topic = {"name": f"orders.v{number % 60}", "partitions": [{"partitionIndex": 0, "errorCode": 0}]}
    return _template(client, (8, "OFFSET_COMMIT", 9), request, {"throttleTimeMs": INT, "topics": [topic]})


def _create_topics(client: Client, number: int, *, forwarded: bool = False) -> bytes:
    topic = {"name": TEXT, "numPartitions": INT, "replicationFactor": 3, "assignments": [], "configs": []}
    configs = [
        {"name": name, "value": value, "readOnly": False, "configSource": 5, "isSensitive": False}
        for name, value in (("cleanup.policy", "delete"), ("segment.bytes", "1073741824"), ("retention.ms", "604800000"))
    ]
    created = {
        "name": TEXT,
        "topicId": "m1Zc7s5tS0G9v3aWn4x8Rg",
        "errorCode": 0,
        "errorMessage": None,
        "numPartitions": INT,
        "replicationFactor": 3,
        "configs": configs,
    }
    request = {"topics": [topic], "timeoutMs": 30000, "validateOnly": False}
    response = {"throttleTimeMs": INT, "topics": [created]}
    return _template(client, (19, "CREATE_TOPICS", 7), request, response, forwarded=forwarded)


_PLAIN: Final = (  # share of the log, template
    (0.025, _metadata),
    (0.005, _api_versions),
    (0.01, _find_coordinator),
    (0.10, _heartbeat),
    (0.05, _offset_commit),
)


# ---------------------------------------------------------------- values


def _offsets(rng: np.random.Generator, count: int) -> list[int]:
    return rng.integers(1_000, 900_000_000, count).tolist()


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


def _draw_create_topics(rng: np.random.Generator, over: Bools) -> Drawn:
    count = len(over)
    names = [b"job-%012x" % number for number in rng.integers(0, 1 << 47, count).tolist()]
    partitions = rng.integers(1, 64, count)
    throttle_ms = np.where(over & (rng.random(count) < 0.5), rng.integers(1, 9_000, count), 0)
    body = [names, partitions.tolist(), throttle_ms.tolist(), names, partitions.tolist()]
    return Drawn(
        body=body,
        mutations=partitions,
        throttle_ms=throttle_ms,
        told_in_response_only=True,
        remote_us=rng.integers(2_000, 30_000, count),
    )


# ---------------------------------------------------------------- the mix

# Share of the log, and the partitions of each topic of the requests.
_PRODUCE_LAYOUTS: Final = ((0.235, (1,)), (0.06, (2,)), (0.025, (3, 1)))
_FETCH_LAYOUTS: Final = (  # asked and answered: an incremental fetch asks for nothing anew
    (0.15, (1,), (1,)),
    (0.02, (2,), (2,)),
    (0.015, (2, 1), (2, 1)),
    (0.12, (), (1,)),
    (0.03, (), (2, 1)),
)


def build_families(rng: np.random.Generator, clients: list[Client]) -> list[Family]:
    """All kinds of lines, one template for each client, in the shares of a busy broker."""
    topics = _topics(rng, 400)

    def layout(parts: tuple[int, ...]) -> list[tuple[_Topic, int]]:
        chosen = rng.choice(len(topics), len(parts), replace=False)
        return [(topics[int(index)], count) for index, count in zip(chosen, parts, strict=True)]

    produce = [
        (Family(share, partial(_draw_produce, parts=sum(parts)), "producer_byte_rate"), parts)
        for share, parts in _PRODUCE_LAYOUTS
    ]
    unanswered = Family(0.01, partial(_draw_produce, parts=1, acks=0), "producer_byte_rate", exempt=True)
    fetch = [
        (Family(share, partial(_draw_fetch, asked=sum(asked), answered=sum(answered)), "consumer_byte_rate"), asked, answered)
        for share, asked, answered in _FETCH_LAYOUTS
    ]
    idle = Family(0.08, partial(_draw_fetch, asked=0, answered=0), "consumer_byte_rate")
    throttled = Family(0.02, _draw_throttled_fetch, "consumer_byte_rate")
    follower = Family(0.03, partial(_draw_fetch, asked=2, answered=2, replica=True), None)
    plain = [(Family(share, _draw_plain, "request_percentage"), build) for share, build in _PLAIN]
    create = Family(0.002, _draw_create_topics, "controller_mutation_rate")
    forwarded = Family(0.002, _draw_create_topics, None)

    for index, client in enumerate(clients):
        if index % 3 != 1:
            for family, parts in produce:
                family.add(index, *_produce(client, layout(parts), -1, index))
        if index % 3 != 0:
            for family, asked, answered in fetch:
                known = layout(answered)
                family.add(index, *_fetch(client, known if asked else [], known, index))
            idle.add(index, *_fetch(client, [], [], index))
        if index % 12 == 0:
            unanswered.add(index, *_produce(client, layout((1,)), 0, index))
        if client.over_quota:
            throttled.add(index, *_fetch(client, [], [], index))
        for family, build in plain:
            family.add(index, build(client, index))
        if index % 20 == 6:
            create.add(index, _create_topics(client, index))
            forwarded.add(index, _create_topics(client, index, forwarded=True))
    for replica in (2, 3):
        broker = Client(
            "broker", f"broker-{replica}-fetcher-0", f"10.0.0.1{replica}", ("apache-kafka-java", "4.3.0"), 13, 18, False
        )
        follower.add(0, *_fetch(broker, layout((1, 1)), layout((1, 1)), replica, replica))
    families = [family for family, _ in produce] + [family for family, _, _ in fetch] + [family for family, _ in plain]
    return [*families, unanswered, idle, throttled, follower, create, forwarded]
