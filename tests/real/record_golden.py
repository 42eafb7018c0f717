"""Record golden request-log lines from a real broker, with the bytes that it charges for each.

    python -m tests.real.record_golden 2.8.2 3.9.1 4.3.0

writes ``kafka-request.log`` and ``sizes.jsonl`` into ``tests/data/golden/<version>/``: see the README there.
"""

from __future__ import annotations

import argparse
import json
import re
import struct
import tempfile
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from kio.index import UnknownAPIKey, UnknownEntity

from examples.capture.broker import Broker, running_broker
from tests.real.raw_kafka import (
    API_VERSIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    FETCH,
    FIRST_CORRELATION_ID,
    PRODUCE,
    Connection,
    Exchange,
    is_flexible,
    message_set,
    record_batch,
)

TEXT_FORM_LINES: Final = 40
GOLDEN: Final = Path(__file__).parents[1] / "data" / "golden"
PASSWORDS: Final[Mapping[str, str]] = {"alice": "alice-secret", "CN=a b,O=x*~": "cn-secret"}
USERS: Final = (*PASSWORDS, "CN=Bücher,O=a/b")  # the last one by token
# With one byte per second a meter's first throttle tells, in seconds, all that was recorded, less the ten whole
# windows of one second that a rate counts at least: bytes = throttle_ms / 1000 + 10.
TELLING_LIMIT_BYTES_PER_S: Final = 1
BROKER_PROPERTIES: Final = {"message.max.bytes": "3000000", "quota.window.num": "11", "quota.window.size.seconds": "1"}

LIST_OFFSETS: Final = 2
METADATA: Final = 3
FIRST_WITH_TOPIC_IDS: Final = 13  # of Produce and of Fetch
FIND_COORDINATOR: Final = 10
INIT_PRODUCER_ID: Final = 22
ADD_PARTITIONS_TO_TXN: Final = 24
END_TXN: Final = 26
CREATE_PARTITIONS: Final = 37

# Recorded in the newest version that both the broker and kio know, for the variety of lines.
OTHER_APIS: Final[Mapping[int, Mapping[str, Any]]] = {
    LIST_OFFSETS: {
        "replica_id": -1,
        "isolation_level": 0,
        "timeout": 1_000,
        "topics": [{"name": "orders", "partitions": [{"partition_index": 0, "timestamp": -1}]}],
    },
    8: {
        "group_id": "readers",
        "member_id": "",
        "topics": [
            {
                "name": "orders",
                "topic_id": None,
                "partitions": [{"partition_index": 0, "committed_offset": 3, "committed_metadata": "é"}],
            }
        ],
    },
    9: {
        "group_id": "readers",
        "topics": [{"name": "orders", "topic_id": None, "partition_indexes": [0]}],
        "groups": [{"group_id": "readers", "topics": [{"name": "orders", "topic_id": None, "partition_indexes": [0]}]}],
    },
    12: {"group_id": "nobody", "generation_id": 1, "member_id": "m"},
    16: {"states_filter": [], "types_filter": []},
    48: {"components": [], "strict": False},
    49: {
        "entries": [
            {
                "entity": [{"entity_type": "user", "entity_name": 'a "quoted" é\u2028name'}],
                "ops": [{"key": "producer_byte_rate", "value": 1e9, "remove": False}],
            }
        ],
        "validate_only": True,
    },
    60: {"include_cluster_authorized_operations": False, "include_fenced_brokers": True},
}
# Recorded in every version.
EVERY_VERSION: Final[Mapping[int, Mapping[str, Any]]] = {
    METADATA: {
        "topics": [{"name": "orders", "topic_id": None}],
        "allow_auto_topic_creation": False,
        "include_cluster_authorized_operations": False,
        "include_topic_authorized_operations": False,
    },
    API_VERSIONS: {"client_software_name": "kquota-golden", "client_software_version": "1.0"},
    FIND_COORDINATOR: {"key": "readers", "key_type": 0, "coordinator_keys": ["readers", "writers"]},
    32: {"resources": [{"resource_type": 2, "resource_name": "orders", "configuration_keys": ["retention.ms"]}]},
}


@dataclass
class Recorder:
    """Drives one broker. ``exchanges`` holds all requests by correlation id; ``measured`` what the broker told."""

    broker: Broker
    exchanges: dict[int, Exchange] = field(default_factory=dict)
    followers: set[int] = field(default_factory=set)
    measured: dict[int, int] = field(default_factory=dict)
    topic_ids: dict[str, uuid.UUID] = field(default_factory=dict)
    supported: dict[int, tuple[int, int]] = field(default_factory=dict)

    # Connections

    def connection(self, *, user: str | None = None) -> Recording:
        address = self.broker.plaintext if user is None else self.broker.sasl
        return Recording(self, Connection(address, user=user, password=PASSWORDS.get(user or "")))

    def versions(self, api_key: int) -> range:
        """The versions that the broker serves and kio, or its lowest version cut down, can encode."""
        if api_key not in self.supported:
            return range(0)
        low, high = self.supported[api_key]
        if api_key == PRODUCE and self.broker.version.startswith("4."):
            low = 3  # 0 to 2 are announced for old clients' sake and not served
        known = [version for version in range(low, high + 1) if _kio_knows(api_key, version)]
        return range(min(known), max(known) + 1)

    def turns(self, api_key: int) -> set[int]:
        """The versions around which the layout changes much: the variety of lines is recorded for these."""
        versions = self.versions(api_key)
        flexible = next((version for version in versions if is_flexible(api_key, version)), versions[-1])
        return {versions[0], flexible - 1, flexible, FIRST_WITH_TOPIC_IDS, versions[-1]} & set(versions)

    # What is asked

    def record(self) -> None:
        """Everything, without limits first and then with telling ones."""
        self.ask_versions()
        self.create_topics()
        for version in self.versions(PRODUCE):
            self.produce(version)
        self.abort_a_transaction()
        for version in self.versions(FETCH):
            self.fetch(version)
        self.other_apis()
        self.mutations()
        self.throttled_bytes()
        self.throttled_mutations()
        self.throttled_requests()

    def ask_versions(self) -> None:
        with self.connection() as connection:
            answer = connection.ask(API_VERSIONS, 0, {}).decoded()
        self.supported = {int(one.api_key): (int(one.min_version), int(one.max_version)) for one in answer.api_keys}

    def create_topics(self) -> None:
        sizes = {"orders": 4, "payments": 2, "edges": 6, "transactions": 1, "wide": 130}
        sizes |= {"n" * length: 1 for length in (126, 127, 128)}
        with self.connection() as connection:
            answer = connection.ask(CREATE_TOPICS, 4, _new_topics(sizes)).decoded()
            assert all(topic.error_code.value == 0 for topic in answer.topics), answer
            self.hasty_fetches(connection)
            self.wait_for_topics(sizes)
            for partition, size in enumerate((126, 127, 16_382, 16_383, 2_097_150, 2_097_151)):
                values = _produce("edges", {partition: record_batch(size)}, self.topic_ids)
                connection.ask(PRODUCE, self.versions(PRODUCE)[-1], values, client_id="edges")

    def hasty_fetches(self, connection: Recording) -> None:
        """Fetches of partitions that may not be open yet: their errors name the leader and its address."""
        self.learn_topic_ids(["wide"])
        for version in self.versions(FETCH):
            if version in (12, 16, self.versions(FETCH)[-1]):
                values = _fetch("wide", dict.fromkeys((3, 80, 129), 0), self.topic_ids)
                connection.ask(FETCH, version, values, client_id="hasty")

    def learn_topic_ids(self, names: Collection[str]) -> None:
        values = {**EVERY_VERSION[METADATA], "topics": [{"name": name, "topic_id": None} for name in names]}

        def known() -> bool:
            with Connection(self.broker.plaintext) as connection:
                answer = connection.request(
                    METADATA, self.versions(METADATA)[-1], values, client_id="waiting"
                ).decoded()
            self.topic_ids |= {str(topic.name): topic.topic_id for topic in answer.topics if hasattr(topic, "topic_id")}
            return all(topic.error_code.value == 0 for topic in answer.topics)

        until(known, f"the metadata of {names}")

    def wait_for_topics(self, sizes: Mapping[str, int]) -> None:
        """Until every partition is led and open."""
        self.learn_topic_ids(sizes)
        topics = [
            {"name": name, "partitions": [{"partition_index": at, "timestamp": -1} for at in range(count)]}
            for name, count in sizes.items()
        ]
        values = {"replica_id": -1, "isolation_level": 0, "topics": topics}

        def opened() -> bool:
            with Connection(self.broker.plaintext) as connection:
                answer = connection.request(LIST_OFFSETS, 5, values, client_id="waiting").decoded()
            return all(one.error_code.value == 0 for topic in answer.topics for one in topic.partitions)

        until(opened, f"the partitions of {sizes}")

    def produce(self, version: int) -> None:
        records = _records(version)
        one = _produce("orders", {0: records(200)}, self.topic_ids)
        with self.connection() as connection:
            connection.ask(PRODUCE, version, _produce("orders", {0: records(120)}, self.topic_ids), client_id="etl")
            several = self.several(("orders", {0: records(100), 3: records(5000)}), ("payments", {1: records(99)}))
            connection.ask(PRODUCE, version, {**several, "acks": -1}, client_id="büro-☃")
            connection.ask(PRODUCE, version, {**one, "acks": 0}, client_id=None, answered=False)
            if version >= 3:
                values = {**one, "acks": -1, "transactional_id": f"tx-{version}-é"}
                connection.ask(PRODUCE, version, values, client_id='say "hi"\\')
            if version in self.turns(PRODUCE):
                self.produce_variety(connection, version)
        if version in self.turns(PRODUCE):
            for user in USERS:
                with self.connection(user=user) as connection:
                    values = _produce("payments", {0: records(130)}, self.topic_ids)
                    connection.ask(PRODUCE, version, values, client_id="shared")

    def produce_variety(self, connection: Recording, version: int) -> None:
        records = _records(version)
        one = _produce("orders", {0: records(200)}, self.topic_ids)
        connection.ask(PRODUCE, version, {**one, "acks": -1}, client_id="")
        connection.ask(PRODUCE, version, {**one, "topic_data": []}, client_id="no topics")
        names = self.several(*(("n" * length, {0: records(80)}) for length in (126, 127, 128)))
        connection.ask(PRODUCE, version, names, client_id="l" * 200)
        unknown = _produce("bücher" if version < 13 else "no such", {0: records(70)}, {"no such": uuid.uuid4()})
        connection.ask(PRODUCE, version, unknown, client_id="etl, a=b")
        if version >= 9:
            batches = {at: record_batch(size) for at, size in enumerate((126, 127, 16_382, 16_383))}
            connection.ask(PRODUCE, version, _produce("orders", batches, self.topic_ids), client_id="edges")
        if version == self.versions(PRODUCE)[-1]:
            wide = {partition: record_batch(80) for partition in range(127)}
            connection.ask(PRODUCE, version, _produce("wide", wide, self.topic_ids), client_id="wide")
            torn = record_batch(90)[:-1] + b"\xff"
            connection.ask(PRODUCE, version, _produce("orders", {0: torn}, self.topic_ids), client_id="torn")

    def several(self, *topics: tuple[str, Mapping[int, bytes]]) -> dict[str, Any]:
        parts = [_produce(name, batches, self.topic_ids) for name, batches in topics]
        return {**parts[0], "topic_data": [topic for part in parts for topic in part["topic_data"]]}

    def abort_a_transaction(self) -> None:
        """Leaves an aborted transaction in the topic, which fetches at read_committed then name."""
        name = "golden-tx"
        with self.connection() as connection:
            key = {"key": name, "key_type": 1}
            until(
                lambda: connection.ask(FIND_COORDINATOR, 3, key).decoded().error_code.value == 0,
                "a transaction coordinator",
            )
            init = {"transactional_id": name, "transaction_timeout": 60_000}
            until(lambda: connection.ask(INIT_PRODUCER_ID, 3, init).decoded().error_code.value == 0, "a producer id")
            producer = connection.last.decoded()
            identity = {"producer_id": int(producer.producer_id), "producer_epoch": int(producer.producer_epoch)}
            partitions = {
                "v3_and_below_transactional_id": name,
                **{f"v3_and_below_{field_name}": value for field_name, value in identity.items()},
                "v3_and_below_topics": [{"name": "transactions", "partitions": [0]}],
            }
            end = {"transactional_id": name, **identity, "committed": False}
            version = min(self.versions(PRODUCE)[-1], 8)
            for sequence in (0, 1):

                def added() -> bool:
                    answer = connection.ask(ADD_PARTITIONS_TO_TXN, 2, partitions).decoded()
                    (topic,) = answer.results_by_topic_v3_and_below
                    return bool(topic.results_by_partition[0].partition_error_code.value == 0)

                until(added, "the end of the transaction before")
                batch = record_batch(
                    150 + sequence,
                    producer_id=identity["producer_id"],
                    epoch=identity["producer_epoch"],
                    sequence=sequence,
                    transactional=True,
                )
                values = _produce("transactions", {0: batch}, self.topic_ids)
                answer = connection.ask(
                    PRODUCE, version, {**values, "acks": -1, "transactional_id": name}, client_id="tx"
                ).decoded()
                assert answer.responses[0].partition_responses[0].error_code.value == 0, answer
                until(lambda: connection.ask(END_TXN, 2, end).decoded().error_code.value == 0, "the abort")
        # The markers are written after EndTxn has answered.
        version = min(self.versions(FETCH)[-1], 11)

        def both_listed() -> bool:
            with Connection(self.broker.plaintext) as waiting:
                values = _fetch("transactions", {0: 0}, self.topic_ids, isolation_level=1)
                answer = waiting.request(FETCH, version, values, client_id="waiting").decoded()
            return len(answer.responses[0].partitions[0].aborted_transactions or ()) == 2

        until(both_listed, "the markers of the aborted transactions")

    def fetch(self, version: int) -> None:
        ids = self.topic_ids
        with self.connection() as connection:
            connection.ask(FETCH, version, _fetch("orders", {0: 0}, ids), client_id="reader")
            aborted = _fetch("transactions", {0: 0}, ids, isolation_level=1)
            connection.ask(FETCH, version, aborted, client_id="")
            self.follow(connection, version)
            if version in (7, 12, self.versions(FETCH)[-1]):
                self.fetch_in_a_session(connection, version)
            if version in self.turns(FETCH):
                self.fetch_variety(connection, version)
        if version in self.turns(FETCH):
            for user in USERS:
                with self.connection(user=user) as connection:
                    connection.ask(FETCH, version, _fetch("payments", {0: 0}, ids), client_id="shared")

    def fetch_variety(self, connection: Recording, version: int) -> None:
        ids = self.topic_ids
        many = _fetch("orders", {0: 2, 1: 0, 3: 1}, ids)
        many["topics"] += _fetch("payments", {0: 0}, ids)["topics"]
        connection.ask(FETCH, version, many, client_id="lesen-☃")
        connection.ask(FETCH, version, _fetch("edges", dict.fromkeys(range(4), 0), ids), client_id=None)
        names = _fetch("n" * 126, {0: 0}, ids)
        for length in (127, 128):
            names["topics"] += _fetch("n" * length, {0: 0}, ids)["topics"]
        connection.ask(FETCH, version, names, client_id="names")
        unknown = _fetch("bücher" if version < 13 else "no such", {0: 0}, {"no such": uuid.uuid4()})
        connection.ask(FETCH, version, unknown, client_id="etl, a=b")
        connection.ask(FETCH, version, _fetch("orders", {0: 10_000_000}, ids), client_id="beyond the end")
        connection.ask(FETCH, version, {**names, "topics": []}, client_id="no topics")
        if version >= 12:
            diverging = _fetch("orders", {0: 1_000_000}, ids, last_fetched_epoch=0)
            connection.ask(FETCH, version, diverging, client_id="diverging")
        if version == self.versions(FETCH)[-1]:
            connection.ask(FETCH, version, _fetch("wide", dict.fromkeys(range(127), 0), ids), client_id="wide")
            connection.ask(FETCH, version, _fetch("edges", {4: 0, 5: 0}, ids), client_id="large")

    def follow(self, connection: Recording, version: int) -> None:
        """A fetch as a replica sends it: the broker does not charge it to a client."""
        replica = {"replica_id": 2, "replica_state": {"replica_id": 2, "replica_epoch": 1}}
        values = {**_fetch("orders", {0: 0}, self.topic_ids), **replica}
        exchange = connection.ask(FETCH, version, values, client_id="broker-2-fetcher-0")
        self.followers.add(exchange.correlation_id)

    def fetch_in_a_session(self, connection: Recording, version: int) -> None:
        """A session's full fetch, an empty answer, one with data, one that forgets the topic, one of a lost session."""
        full = {**_fetch("orders", {2: 0}, self.topic_ids), "session_epoch": 0}
        opened = connection.ask(FETCH, version, full, client_id="session")
        assert opened.response is not None
        (session_id,) = struct.unpack(">i", opened.response[6:10])
        assert session_id > 0
        same = {**full, "session_id": session_id, "topics": [], "max_wait": 0}
        connection.ask(FETCH, version, {**same, "session_epoch": 1}, client_id="session")
        data = _produce("orders", {2: record_batch(400)}, self.topic_ids)
        connection.ask(PRODUCE, min(self.versions(PRODUCE)[-1], 8), data, client_id="session")
        connection.ask(FETCH, version, {**same, "session_epoch": 2}, client_id="session")
        forgotten = {"topic": "orders", "topic_id": self.topic_ids.get("orders"), "partitions": [2]}
        last = {**same, "session_epoch": 3, "forgotten_topics_data": [forgotten]}
        connection.ask(FETCH, version, last, client_id="session")
        connection.ask(FETCH, version, {**same, "session_epoch": 9}, client_id="session")

    def other_apis(self) -> None:
        with self.connection(user="alice") as connection:
            for api_key, values in EVERY_VERSION.items():
                for version in self.versions(api_key):
                    connection.ask(api_key, version, values, client_id="curious")
            for api_key, values in OTHER_APIS.items():
                if versions := self.versions(api_key):
                    connection.ask(api_key, versions[-1], values, client_id="curious")

    def mutations(self) -> None:
        with self.connection(user="alice") as connection:
            for version in self.versions(CREATE_TOPICS):
                name = f"made-{version}"
                some = _new_topics({name: 3, f"{name}-assigned": -1, "orders": 5, "bad name!": 2, f"{name}-none": 0})
                some["topics"][0]["configs"] = [{"name": "retention.ms", "value": "60000"}]
                some["topics"][1] |= {
                    "replication_factor": -1,
                    "assignments": [{"partition_index": at, "broker_ids": [1]} for at in range(2)],
                }
                connection.ask(CREATE_TOPICS, version, some, client_id="maker")
                if version >= 1:
                    valid = {**_new_topics({f"{name}-valid": 7}), "validate_only": True}
                    connection.ask(CREATE_TOPICS, version, valid, client_id="maker")
                if version == 4:
                    defaults = _new_topics({f"{name}-default": -1})
                    defaults["topics"][0]["replication_factor"] = -1
                    connection.ask(CREATE_TOPICS, version, defaults, client_id="maker")
            self.wait_for_topics({f"made-{version}": 3 for version in self.versions(CREATE_TOPICS)})
            for version in self.versions(CREATE_PARTITIONS):
                more = _more_partitions({f"made-{version}": 5, "no-such-topic": 3})
                connection.ask(CREATE_PARTITIONS, version, more, client_id="maker")
                valid = {**_more_partitions({f"made-{version}": 6}), "validate_only": True}
                connection.ask(CREATE_PARTITIONS, version, valid, client_id="maker")
            for version in self.versions(DELETE_TOPICS):
                gone = _gone_topics([f"made-{version}", "no-such-topic"])
                connection.ask(DELETE_TOPICS, version, gone, client_id="maker")

    def throttled_bytes(self) -> None:
        """Each request under a client id, and so a meter, of its own, whose first throttle tells the bytes."""
        limit = f"producer_byte_rate={TELLING_LIMIT_BYTES_PER_S},consumer_byte_rate={TELLING_LIMIT_BYTES_PER_S}"
        self.broker.configs("--alter", "--entity-type", "clients", "--entity-default", "--add-config", limit)

        def limited() -> bool:
            with Connection(self.broker.plaintext) as connection:
                values = _produce("payments", {0: record_batch(100)}, self.topic_ids)
                answer = connection.request(PRODUCE, 3, values, client_id=f"probe-{uuid.uuid4()}").response
            assert answer is not None
            return bool(_told_ms(PRODUCE, 3, answer))

        until(limited, "the limits of bytes")
        for version in self.versions(PRODUCE):
            records = _records(version)
            for at, user in enumerate((None, *USERS) if version in self.turns(PRODUCE) else (None,)):
                batches = {0: records(120 + at), 1: records(16_000 + at)}
                values = _produce("orders", batches, self.topic_ids)
                self.tell(PRODUCE, version, values, client_id=f"told-p{version}-{at}-ü", user=user)
        for version in self.versions(FETCH):
            values = _fetch("transactions", {0: 0}, self.topic_ids, isolation_level=1)
            values["topics"] += _fetch("edges", {2: 0}, self.topic_ids)["topics"]
            self.tell(FETCH, version, values, client_id=f"told-{version}-ü", user=None)
        # An incremental fetch that is throttled keeps its session.
        with self.connection() as connection:
            version = self.versions(FETCH)[-1]
            opening = {**_fetch("orders", {2: 1_000}, self.topic_ids), "session_epoch": 0, "max_wait": 0}
            connection.ask(FETCH, version, opening, client_id="told-session")

    def tell(self, api_key: int, version: int, values: Mapping[str, Any], *, client_id: str, user: str | None) -> None:
        """Ask under a fresh meter, and note the bytes that its first throttle tells."""
        with self.connection(user=user) as connection:
            exchange = connection.ask(api_key, version, values, client_id=client_id)
        assert exchange.response is not None
        told_ms = _told_ms(api_key, version, exchange.response)
        if told_ms is not None:
            assert told_ms > 0, exchange
            self.measured[exchange.correlation_id] = told_ms // 1000 + 10

    def throttled_mutations(self) -> None:
        """Per version one request that empties the bucket of its client id, and one that finds it empty."""
        limit = ("--add-config", "controller_mutation_rate=0.5")
        self.broker.configs("--alter", "--entity-type", "clients", "--entity-default", *limit)

        def limited() -> bool:
            name = f"probe-{uuid.uuid4()}"
            version = self.versions(CREATE_TOPICS)[-1]
            with Connection(self.broker.plaintext) as connection:
                connection.request(CREATE_TOPICS, version, _new_topics({name: 20}), client_id=name)
                second = connection.request(CREATE_TOPICS, version, _new_topics({f"{name}-2": 20}), client_id=name)
            return bool(second.decoded().topics[0].error_code.value == 89)

        until(limited, "the limit of mutations")
        for version in self.versions(CREATE_TOPICS):
            for at in range(2):
                self.storm(CREATE_TOPICS, version, _new_topics({f"storm-{version}-{at}": 20}))
        self.wait_for_topics({f"storm-{version}-0": 20 for version in self.versions(CREATE_TOPICS)})
        for version in self.versions(CREATE_PARTITIONS):
            for more in (30, 50):
                self.storm(CREATE_PARTITIONS, version, _more_partitions({f"storm-{version}-0": more}))
        for version in self.versions(DELETE_TOPICS):
            self.storm(DELETE_TOPICS, version, _gone_topics([f"storm-{version}-0"]))
            self.storm(DELETE_TOPICS, version, _gone_topics([f"storm-{version}-1", "wide"]))

    def storm(self, api_key: int, version: int, values: Mapping[str, Any]) -> None:
        with self.connection(user="alice") as connection:
            connection.ask(api_key, version, values, client_id=f"storm-{api_key}-{version}")

    def throttled_requests(self) -> None:
        """Ordinary requests of a client whose share of time is used up at once."""
        limit = ("--add-config", "request_percentage=0.01")
        self.broker.configs("--alter", "--entity-type", "clients", "--entity-name", "busy", *limit)

        def limited() -> bool:
            with Connection(self.broker.plaintext) as connection:
                exchange = connection.request(METADATA, 3, EVERY_VERSION[METADATA], client_id="busy")
            return int(exchange.decoded().throttle_time.total_seconds() * 1000) > 0

        until(limited, "the limit of request time")
        apis = {key: EVERY_VERSION[key] for key in (METADATA, API_VERSIONS, FIND_COORDINATOR, 32)} | dict(OTHER_APIS)
        for api_key, values in apis.items():
            if versions := self.versions(api_key):
                with self.connection(user="alice") as connection:
                    connection.ask(api_key, versions[-1], values, client_id="busy")


class Recording:
    """A connection whose requests are noted by the recorder."""

    def __init__(self, recorder: Recorder, connection: Connection) -> None:
        self._recorder = recorder
        self._connection = connection
        self.last: Exchange

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.__exit__()

    def ask(
        self,
        api_key: int,
        version: int,
        values: Mapping[str, Any],
        *,
        client_id: str | None = "golden",
        answered: bool = True,
    ) -> Exchange:
        self.last = self._connection.request(api_key, version, values, client_id=client_id, answered=answered)
        self._recorder.exchanges[self.last.correlation_id] = self.last
        return self.last


def charged_bytes(recorder: Recorder, exchange: Exchange, line: str) -> int | None:
    """What the broker's byte-rate meter keeps of an exchange; None for requests that it does not meter in bytes.

    Produce: the frame without its size. Fetch: the size and the body of the answer; a throttled one is taken back,
    and a follower's is never charged. Whether it was throttled is read from the line, since version 0 of the answer has
    no field for it.
    """
    if exchange.api_key == PRODUCE:
        return exchange.request_frame_bytes
    if exchange.api_key != FETCH:
        return None
    assert exchange.response is not None
    throttled = json.loads(line[line.index("{") : line.rindex("}") + 1])["throttleTimeMs"] > 0
    return 0 if exchange.correlation_id in recorder.followers or throttled else 4 + len(exchange.response)


def _told_ms(api_key: int, version: int, response: bytes) -> int | None:
    """The throttle time of a produce or fetch response; None in version 0, which has no field for it."""
    if version == 0:
        return None
    if api_key == FETCH:
        return int(struct.unpack(">i", response[:4])[0])
    if version < 9:
        return int(struct.unpack(">i", response[-4:])[0])
    return int(struct.unpack(">i", response[-5:-1])[0])  # before an empty tag section


def _kio_knows(api_key: int, version: int) -> bool:
    try:
        is_flexible(api_key, version)
    except (UnknownAPIKey, UnknownEntity):
        return False
    return True


def _records(version: int) -> Callable[[int], bytes]:
    """Batches in the oldest format that this produce version must carry."""
    return record_batch if version >= 3 else lambda size: message_set(version, size)


def _produce(topic: str, batches: Mapping[int, bytes], topic_ids: Mapping[str, uuid.UUID]) -> dict[str, Any]:
    data = [{"index": partition, "records": records} for partition, records in batches.items()]
    topics = [{"name": topic, "topic_id": topic_ids.get(topic), "partition_data": data}]
    return {"acks": 1, "timeout": 30_000, "topic_data": topics}


def _fetch(
    topic: str,
    offsets: Mapping[int, int],
    topic_ids: Mapping[str, uuid.UUID],
    *,
    isolation_level: int = 0,
    last_fetched_epoch: int = -1,
) -> dict[str, Any]:
    partitions = [
        {
            "partition": partition,
            "fetch_offset": offset,
            "partition_max_bytes": 4_000_000 if topic == "edges" else 2_000,
            "last_fetched_epoch": last_fetched_epoch,
        }
        for partition, offset in offsets.items()
    ]
    return {
        "max_wait": 100,
        "min_bytes": 0,
        "max_bytes": 10_000_000,
        "isolation_level": isolation_level,
        "topics": [{"topic": topic, "topic_id": topic_ids.get(topic), "partitions": partitions}],
        "forgotten_topics_data": [],
    }


def _new_topics(sizes: Mapping[str, int], *, configs: list[dict[str, str]] | None = None) -> dict[str, Any]:
    topics = [
        {
            "name": name,
            "num_partitions": partitions,
            "replication_factor": 1,
            "assignments": [],
            "configs": configs or [],
        }
        for name, partitions in sizes.items()
    ]
    return {"topics": topics, "timeout": 30_000, "validate_only": False}


def _more_partitions(counts: Mapping[str, int]) -> dict[str, Any]:
    topics = [{"name": name, "count": count, "assignments": None} for name, count in counts.items()]
    return {"topics": topics, "timeout": 30_000, "validate_only": False}


def _gone_topics(names: list[str]) -> dict[str, Any]:
    topics = [{"name": name, "topic_id": None} for name in names]
    return {"topics": topics, "topic_names": names, "timeout": 30_000}


def until(condition: Callable[[], bool], what: str, timeout_s: float = 30.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {timeout_s} s for {what}")
        time.sleep(0.05)


_CORRELATION: Final = re.compile(r'"?correlationId"?[:=](\d+)')


def own_lines(recorder: Recorder) -> list[str]:
    """The broker's log, once the line of the last request is in it."""
    wanted = f"{max(recorder.exchanges)}"

    def complete() -> bool:
        return wanted in recorder.broker.request_log.read_text(encoding="utf-8")

    until(complete, "the log's last line")
    # Not splitlines(): a name in the log may hold U+2028, which is no line ending to a broker.
    return recorder.broker.request_log.read_text(encoding="utf-8").removesuffix("\n").split("\n")


_KIND: Final = re.compile(r'"isForwarded":(\w+).*?"requestApiKey":(\d+),"requestApiVersion":(\d+)')


def chosen_lines(recorder: Recorder, lines: list[str]) -> Iterator[str]:
    """The lines of the recorder's own requests, and one of each kind of the broker's and its tools' traffic.

    Of the requests that the broker forwarded, and that stand there twice, the second line is kept for the newest
    version of each API only: they are long.
    """
    seen: set[tuple[str, ...]] = set()
    for line in lines:
        found, kind = _CORRELATION.search(line), _KIND.search(line)
        if kind is None:  # the text form of before 2.8
            if found and int(found[1]) in recorder.exchanges:
                yield line
            continue
        forwarded, api_key, version = kind.groups()
        if found and int(found[1]) in recorder.exchanges:
            if forwarded == "false" or int(version) == recorder.versions(int(api_key))[-1]:
                yield line
        elif found and int(found[1]) < FIRST_CORRELATION_ID and kind.groups() not in seen:
            seen.add(kind.groups())
            yield line


def is_json(line: str) -> bool:
    """Whether the line is of the form that brokers write since 2.8."""
    return line.endswith("} (kafka.request.logger)")


def sizes(recorder: Recorder, lines: list[str]) -> Iterator[dict[str, int]]:
    for number, line in enumerate(lines, start=1):
        found = _CORRELATION.search(line)
        exchange = recorder.exchanges.get(int(found[1])) if found else None
        if exchange is None or (charged := charged_bytes(recorder, exchange, line)) is None:
            continue
        row = {"line": number, "api_key": exchange.api_key, "api_version": exchange.version, "charged": charged}
        if (told := recorder.measured.get(exchange.correlation_id)) is not None:
            row["measured"] = told
        yield row


def record(version: str, folder: Path) -> tuple[list[str], list[dict[str, int]]]:
    """Start a broker of ``version`` in ``folder`` and record; its lines, and the sizes of those that have one."""
    with running_broker(version, folder, passwords=PASSWORDS, properties=BROKER_PROPERTIES) as broker:
        recorder = Recorder(broker)
        recorder.record()
        lines = list(chosen_lines(recorder, own_lines(recorder)))
    return lines, list(sizes(recorder, lines)) if is_json(lines[0]) else []


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("versions", nargs="+", metavar="VERSION", help="a Kafka version, such as 4.3.0")
    parser.add_argument("--out", type=Path, default=GOLDEN, help="where the folders of the versions go")
    arguments = parser.parse_args()
    for version in arguments.versions:
        with tempfile.TemporaryDirectory(prefix="golden-") as folder:
            lines, rows = record(version, Path(folder))
        text_form = not is_json(lines[0])
        if text_form:  # only to be recognised, so a few lines will do
            lines = lines[:TEXT_FORM_LINES]
        target = arguments.out / (version.rpartition(".")[0] if text_form else version)
        target.mkdir(parents=True, exist_ok=True)
        (target / "kafka-request.log").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        if rows:
            text = "".join(json.dumps(row) + "\n" for row in rows)
            (target / "sizes.jsonl").write_text(text, encoding="utf-8")
        print(f"{version}: {len(lines)} lines, {sum(map(len, lines)) // 1000} KB, {len(rows)} sizes")


if __name__ == "__main__":
    main()
