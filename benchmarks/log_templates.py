"""The lines that `generate_log` writes, as templates: one client's line of one API, with slots for what varies.

A template is a line as bytes with ``%`` slots, in the line's order. The keys and their order are those of Kafka 4.3.
Where bytes are charged, a template comes with what the broker charges besides records: for a produce the request frame
without its 4 size bytes, for a fetch 4 and the body of the response.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

__all__ = [
    "Client",
    "Topic",
    "api_versions",
    "create_topics",
    "fetch",
    "find_coordinator",
    "heartbeat",
    "metadata",
    "offset_commit",
    "produce",
]

PREFIX: Final = b"[%b] DEBUG Completed request:"
SUFFIX: Final = b" (kafka.request.logger)"

# JSON strings that stand for a value drawn for every line.
INT: Final = "@int@"
MS: Final = "@ms@"
TEXT: Final = "@text@"

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


def _template(
    client: Client, api: tuple[int, str, int], request: Json, response: Json | str, *, forwarded: bool = False
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


@dataclass(frozen=True, slots=True)
class Topic:
    name: str
    id: str

    def field(self, named: bool, name: str) -> Json:
        return {name: self.name} if named else {"topicId": self.id}

    def wire_bytes(self, named: bool) -> int:
        return _compact_bytes(self.name) if named else 16


def produce(client: Client, layout: list[tuple[Topic, int]], acks: int, number: int) -> tuple[bytes, int]:
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
    return _template(client, api, request, "" if acks == 0 else response), header + body


def _fetch_request(version: int, topics: list[Json], replica: int, session: tuple[int, object]) -> Json:
    request: Json = {}
    if version < 15:
        request["replicaId"] = replica
    elif replica >= 0:
        request["replicaState"] = {"replicaId": replica, "replicaEpoch": 7}
    request |= {"maxWaitMs": 500, "minBytes": 1, "maxBytes": 52428800, "isolationLevel": 0}
    request |= {"sessionId": session[0], "sessionEpoch": session[1]}
    return request | {"topics": topics, "forgottenTopicsData": [], "rackId": ""}


def fetch(
    client: Client, asked: list[tuple[Topic, int]], answered: list[tuple[Topic, int]], number: int, replica: int = -1
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


def metadata(client: Client, number: int) -> bytes:
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
        for index in range(3)
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


def api_versions(client: Client, number: int) -> bytes:
    request = {"clientSoftwareName": client.software[0], "clientSoftwareVersion": client.software[1]}
    supported = [{"apiKey": key, "minVersion": key % 4, "maxVersion": key % 4 + 3} for key in range(75)]
    features = ("group.version", "kraft.version", "metadata.version", "share.version", "transaction.version")
    response = {
        "errorCode": 0,
        "apiKeys": supported,
        "throttleTimeMs": INT,
        "supportedFeatures": [{"name": name, "minVersion": 0, "maxVersion": 1} for name in features],
        "finalizedFeaturesEpoch": 1204,
        "finalizedFeatures": [{"name": name, "maxVersionLevel": 1, "minVersionLevel": 1} for name in features],
    }
    return _template(client, (18, "API_VERSIONS", 4), request, response)


def find_coordinator(client: Client, number: int) -> bytes:
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


def heartbeat(client: Client, number: int) -> bytes:
    request = {
        "groupId": f"group-{client.user}",
        "generationId": 4 + number % 90,
        "memberId": f"{client.client_id}-8f0c2a5e-61b7-4f0c-b1f6-{number:012d}",
        "groupInstanceId": None,
    }
    return _template(client, (12, "HEARTBEAT", 4), request, {"throttleTimeMs": INT, "errorCode": 0})


def offset_commit(client: Client, number: int) -> bytes:
    topic_id = "m1Zc7s5tS0G9v3aWn4x8Rg"
    request = {
        "groupId": f"group-{client.user}",
        "generationIdOrMemberEpoch": 4 + number % 90,
        "memberId": f"{client.client_id}-8f0c2a5e-61b7-4f0c-b1f6-{number:012d}",
        "groupInstanceId": None,
        "topics": [
            {
                "topicId": topic_id,
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
    topic = {"topicId": topic_id, "partitions": [{"partitionIndex": 0, "errorCode": 0}]}
    return _template(client, (8, "OFFSET_COMMIT", 10), request, {"throttleTimeMs": INT, "topics": [topic]})


def create_topics(client: Client, *, refused: bool = False, forwarded: bool = False) -> bytes:
    """One topic created, or refused with THROTTLING_QUOTA_EXCEEDED (89), which costs nothing."""
    topic = {"name": TEXT, "numPartitions": INT, "replicationFactor": 3, "assignments": [], "configs": []}
    configs = [
        {"name": name, "value": value, "readOnly": False, "configSource": 5, "isSensitive": False}
        for name, value in (
            ("cleanup.policy", "delete"),
            ("retention.ms", "604800000"),
            ("segment.bytes", "1073741824"),
        )
    ]
    answer = {
        "name": TEXT,
        "topicId": "AAAAAAAAAAAAAAAAAAAAAA" if refused else "m1Zc7s5tS0G9v3aWn4x8Rg",
        "errorCode": 89 if refused else 0,
        "errorMessage": None,
        "numPartitions": -1 if refused else INT,
        "replicationFactor": -1 if refused else 3,
        "configs": [] if refused else configs,
    }
    request = {"topics": [topic], "timeoutMs": 30000, "validateOnly": False}
    response = {"throttleTimeMs": INT, "topics": [answer]}
    return _template(client, (19, "CREATE_TOPICS", 7), request, response, forwarded=forwarded)
