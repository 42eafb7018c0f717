"""Changes of topics under a mutation quota of a real Kafka (KIP-599): refused, retried, delayed, and nobody else hurt.

The quotas are of one partition a second, with Kafka's own windows: eleven may be used at once, and more than that is
owed. So twelve partitions make the next request wait for a second.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from kafka.net.connection import KafkaConnection
from kafka.net.transport import KafkaTCPTransport

from examples.capture.broker import Broker
from kquota.admin import (
    AsyncQuotaAdmin,
    CreatePartitionsOptions,
    CreateTopicsOptions,
    DeleteTopicsOptions,
    DescribeClientQuotasOptions,
    NewPartitions,
    NewTopic,
    QuotaAdmin,
)
from kquota.admin.properties import load_client_properties
from kquota.errors import ConnectionFailedError, KafkaErrorCode, ThrottlingQuotaExceededError
from kquota.quotas import ClientQuotaAlteration, ClientQuotaEntity, ClientQuotaFilter
from kquota.wire.apis import CREATE_PARTITIONS, CREATE_TOPICS, DELETE_TOPICS, METADATA
from kquota.wire.messages.metadata import MetadataRequest
from tests.kit.eventually import eventually
from tests.kit.kafka import NEW, OLD, PASSWORDS

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
KEY = "controller_mutation_rate"
AT_ONCE = 11
"""What a quota of one a second allows at once (``controller.quota.window.num``)."""

_numbers = itertools.count()


@pytest.fixture(scope="module")
def kafka(broker: Callable[[str], Broker]) -> Broker:
    return broker(NEW)


@pytest.fixture(scope="module")
def operator(kafka: Broker) -> Iterator[QuotaAdmin]:
    """Somebody without limits."""
    with QuotaAdmin(kafka.plaintext, timeout_ms=30_000) as admin:
        yield admin


@pytest.fixture
def prefix(operator: QuotaAdmin) -> Iterator[str]:
    """What the names of a test's topics begin with; they are deleted at its end."""
    prefix = f"mutations-{next(_numbers)}-"
    yield prefix
    operator.topics.delete_topics(partitions(operator, prefix)).all()


def partitions(admin: QuotaAdmin, prefix: str) -> dict[str, int]:
    """How many each topic has."""
    send = admin._admin._transport.send
    answer = admin._wait(send(METADATA, MetadataRequest(None), timeout_ms=30_000))
    return {one.name: len(one.partitions) for one in answer.topics if one.name.startswith(prefix)}


def login(kafka: Broker, user: str, client_id: str) -> QuotaAdmin:
    jaas = f'{SCRAM} required username="{user}" password="{PASSWORDS[user]}";'
    settings = ["security.protocol=SASL_PLAINTEXT", "sasl.mechanism=SCRAM-SHA-256", f"sasl.jaas.config={jaas}"]
    connection = load_client_properties(None, settings).connection
    return QuotaAdmin(kafka.sasl, timeout_ms=60_000, client_id=client_id, **connection)


@contextmanager
def quota(operator: QuotaAdmin, entity: ClientQuotaEntity, rate: float) -> Iterator[None]:
    def set_to(value: float | None) -> None:
        operator.alter_client_quotas([ClientQuotaAlteration(entity, [ClientQuotaAlteration.Op(KEY, value)])]).all()
        expected = {} if value is None else {KEY: value}
        eventually(
            lambda: operator.describe_client_quotas(ClientQuotaFilter.all()).entities().get(entity, {}), expected
        )

    set_to(rate)
    try:
        yield
    finally:
        set_to(None)


@contextmanager
def limited(kafka: Broker, operator: QuotaAdmin, rate: float = 1.0) -> Iterator[QuotaAdmin]:
    """A client of Alice's with a quota, and a bucket, of its own."""
    client_id = f"topics-{next(_numbers)}"
    with (
        quota(operator, ClientQuotaEntity({"user": "alice", "client-id": client_id}), rate),
        login(kafka, "alice", client_id) as admin,
    ):
        yield admin


@dataclass(frozen=True, slots=True)
class Sent:
    """Something was written to a connection."""

    connection: int
    at_s: float
    request: tuple[int, int]
    """API key and version of the first request in it."""


@dataclass(frozen=True, slots=True)
class Told:
    """An answer arrived that tells to wait."""

    connection: int
    at_s: float
    wait_ms: int


@dataclass
class Wire:
    """All that the clients of this process write, kafka-python's own requests included, and what they are told."""

    events: list[Sent | Told] = field(default_factory=list)

    def told_ms(self) -> list[int]:
        return [event.wait_ms for event in self.events if isinstance(event, Told)]

    def sent_too_early(self) -> list[tuple[Told, Sent]]:
        return [
            (told, sent)
            for at, told in enumerate(self.events)
            if isinstance(told, Told)
            for sent in self.events[at:]
            if isinstance(sent, Sent) and sent.connection == told.connection
            if sent.at_s < told.at_s + told.wait_ms / 1000
        ]

    def versions(self, *keys: int) -> list[tuple[int, int]]:
        return [one.request for one in self.events if isinstance(one, Sent) and one.request[0] in keys]


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Wire:
    seen = Wire()
    write, throttle = KafkaTCPTransport.write, KafkaConnection._maybe_throttle

    def recorded_write(transport: Any, data: bytes) -> Any:
        request = (int.from_bytes(data[4:6]), int.from_bytes(data[6:8]))
        seen.events.append(Sent(id(transport.get_protocol()), time.monotonic(), request))
        return write(transport, data)

    def recorded_throttle(connection: Any, answer: Any) -> Any:
        wait_ms = getattr(answer, "throttle_time_ms", 0)
        if wait_ms:
            seen.events.append(Told(id(connection), time.monotonic(), wait_ms))
        return throttle(connection, answer)

    monkeypatch.setattr(KafkaTCPTransport, "write", recorded_write)
    monkeypatch.setattr(KafkaConnection, "_maybe_throttle", recorded_throttle)
    return seen


def new(prefix: str, *partitions: int) -> list[NewTopic]:
    return [NewTopic(f"{prefix}{number}", count, 1) for number, count in enumerate(partitions)]


def codes(values: Any) -> list[int]:
    return [error.code if error else 0 for error in values.values()]


def test_without_retries_a_quota_refuses(kafka: Broker, operator: QuotaAdmin, prefix: str, wire: Wire) -> None:
    """The first topic of the request is done, the others are not, and the time told is the broker's; a user's quota."""
    options = CreateTopicsOptions(retry_on_quota_violation=False)
    with quota(operator, ClientQuotaEntity({"user": "bob"}), 1.0), login(kafka, "bob", "any") as admin:
        result = admin.topics.create_topics(new(prefix, AT_ONCE + 2, 1, 1), options)
    assert codes(result.values()) == [
        0,
        KafkaErrorCode.THROTTLING_QUOTA_EXCEEDED,
        KafkaErrorCode.THROTTLING_QUOTA_EXCEEDED,
    ]
    assert list(result.created()) == [f"{prefix}0"]
    with pytest.raises(ThrottlingQuotaExceededError, match="The throttling quota has been exceeded") as refused:
        result.all()
    assert [refused.value.throttle_time_ms] == wire.told_ms()
    assert 0 < refused.value.throttle_time_ms <= 2_000
    eventually(lambda: partitions(operator, prefix), {f"{prefix}0": AT_ONCE + 2})


def test_retried_until_all_is_done(kafka: Broker, operator: QuotaAdmin, prefix: str, wire: Wire) -> None:
    """No sooner than the bucket allows: one second for the partition that was owed, and one for each that follows."""
    with limited(kafka, operator) as admin:
        begin = time.monotonic()
        result = admin.topics.create_topics(new(prefix, AT_ONCE + 1, 1, 1))
        took_s = time.monotonic() - begin
    result.all()
    assert [created.num_partitions for created in result.created().values()] == [AT_ONCE + 1, 1, 1]
    assert all(created.topic_id and created.replication_factor == 1 for created in result.created().values())
    assert took_s > 2 - 0.01
    assert len(wire.told_ms()) >= 1
    assert wire.sent_too_early() == []
    eventually(lambda: sorted(partitions(operator, prefix).values()), [1, 1, AT_ONCE + 1])


def test_partitions_and_deletions_are_retried_too(kafka: Broker, operator: QuotaAdmin, prefix: str, wire: Wire) -> None:
    """Each costs what it adds, or what there was. Kafka takes them in no certain order."""
    topics = new(prefix, 1, 1)
    operator.topics.create_topics(topics).all()
    with limited(kafka, operator) as admin:
        more = {topic.name: NewPartitions.increase_to(AT_ONCE + 2) for topic in topics}
        admin.topics.create_partitions(more).all()
    assert len(wire.told_ms()) >= 1
    eventually(lambda: partitions(operator, prefix), {topic.name: AT_ONCE + 2 for topic in topics})
    told = len(wire.told_ms())
    with limited(kafka, operator) as admin:
        admin.topics.delete_topics(topic.name for topic in topics).all()
    assert len(wire.told_ms()) > told
    assert wire.sent_too_early() == []
    eventually(lambda: partitions(operator, prefix), {})


def test_permissive_versions_are_delayed_and_never_refused(
    kafka: Broker, operator: QuotaAdmin, prefix: str, wire: Wire
) -> None:
    """All is done at once; whatever this client asks next, of quotas or topics, waits until the time told is over."""
    with limited(kafka, operator) as admin:
        admin.topics.create_topics(new(prefix, AT_ONCE + 1, 1), CreateTopicsOptions(permissive=True)).all()
        assert len(wire.told_ms()) == 1
        admin.describe_client_quotas(ClientQuotaFilter.all())
        more = {f"{prefix}1": NewPartitions.increase_to(2)}
        admin.topics.create_partitions(more, CreatePartitionsOptions(permissive=True)).all()
        admin.topics.delete_topics([f"{prefix}1"], DeleteTopicsOptions(permissive=True)).all()
    assert wire.sent_too_early() == []
    topics = (CREATE_TOPICS.key, CREATE_PARTITIONS.key, DELETE_TOPICS.key)
    assert wire.versions(*topics)[:3] == [(CREATE_TOPICS.key, 5), (CREATE_PARTITIONS.key, 2), (DELETE_TOPICS.key, 4)]
    eventually(lambda: partitions(operator, prefix), {f"{prefix}0": AT_ONCE + 1})


def test_what_cannot_wait_as_long_as_told_is_not_sent(
    kafka: Broker, operator: QuotaAdmin, prefix: str, wire: Wire
) -> None:
    """Said at once. The same goes for what its caller gave up on while it waited."""
    with limited(kafka, operator, rate=0.1) as admin:
        admin.topics.create_topics(new(prefix, 5), CreateTopicsOptions(permissive=True)).all()
        [told_ms] = wire.told_ms()
        assert told_ms > 30_000
        with pytest.raises(ConnectionFailedError, match="throttles this client"):
            admin.describe_client_quotas(ClientQuotaFilter.all(), DescribeClientQuotasOptions(timeout_ms=5_000))
        with pytest.raises(ConnectionFailedError, match="throttles this client"):
            admin.topics.delete_topics([f"{prefix}0"], DeleteTopicsOptions(timeout_ms=5_000))
    assert wire.sent_too_early() == []


def test_what_nobody_waits_for_any_more_is_not_sent(
    kafka: Broker, operator: QuotaAdmin, prefix: str, wire: Wire
) -> None:
    """A deletion that is cancelled while it waits for the time told."""

    async def scenario(admin: AsyncQuotaAdmin) -> None:
        created = await admin.topics.create_topics(new(prefix, AT_ONCE + 3), CreateTopicsOptions(permissive=True))
        created.all()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(admin.topics.delete_topics([f"{prefix}0"]), 0.2)
        for _ in range(2):  # when the second is answered, the deletion would be long under way
            await admin.describe_client_quotas(ClientQuotaFilter.all())

    with limited(kafka, operator) as admin:
        admin._wait(scenario(admin._admin))
    assert len(wire.told_ms()) == 1
    assert wire.versions(DELETE_TOPICS.key) == []
    eventually(lambda: partitions(operator, prefix), {f"{prefix}0": AT_ONCE + 3})


def test_validating_costs_permits(kafka: Broker, operator: QuotaAdmin, prefix: str) -> None:
    """Without ZooKeeper nothing is created, and the quota is used all the same."""
    with limited(kafka, operator) as admin:
        options = CreateTopicsOptions(validate_only=True)
        valid = admin.topics.create_topics([NewTopic(f"{prefix}0", AT_ONCE + 1)], options)
        assert [created.num_partitions for created in valid.created().values()] == [AT_ONCE + 1]
        options = CreateTopicsOptions(retry_on_quota_violation=False)
        refused = admin.topics.create_topics(new(prefix, 1), options)
    assert codes(refused.values()) == [KafkaErrorCode.THROTTLING_QUOTA_EXCEEDED]
    assert partitions(operator, prefix) == {}


def test_retrying_ends_with_the_time(kafka: Broker, operator: QuotaAdmin, prefix: str, wire: Wire) -> None:
    """What is left of the time told is said, and nothing was sent again."""
    with limited(kafka, operator, rate=0.1) as admin:
        result = admin.topics.create_topics(new(prefix, 5, 1), CreateTopicsOptions(timeout_ms=1_500))
    done, refused = result.values().values()
    assert done is None
    assert refused is not None
    assert refused.code == KafkaErrorCode.THROTTLING_QUOTA_EXCEEDED
    [told_ms] = wire.told_ms()
    assert 0 < refused.throttle_time_ms < told_ms
    assert len(wire.versions(CREATE_TOPICS.key)) == 1
    eventually(lambda: partitions(operator, prefix), {f"{prefix}0": 5})


def test_others_are_not_limited(kafka: Broker, operator: QuotaAdmin, prefix: str, wire: Wire) -> None:
    """Another user, or another client id, while one has used up all it may."""
    options = CreateTopicsOptions(retry_on_quota_violation=False)
    with limited(kafka, operator) as admin:
        first = admin.topics.create_topics(new(prefix, AT_ONCE + 1, 1), options)
        assert codes(first.values()) == [0, KafkaErrorCode.THROTTLING_QUOTA_EXCEEDED]
        told = wire.told_ms()
        for user in ("alice", "bob"):
            with login(kafka, user, "without-limits") as other:
                other.topics.create_topics(new(f"{prefix}{user}-", AT_ONCE + 1, 2), options).all()
        assert wire.told_ms() == told


@pytest.mark.parametrize("version", [OLD, NEW])
def test_each_topic_has_its_own_error(broker: Callable[[str], Broker], version: str) -> None:
    """As the brokers of any version say it; the others of the request are done."""
    prefix = f"errors-{next(_numbers)}-"
    with QuotaAdmin(broker(version).plaintext, timeout_ms=30_000) as admin:
        admin.topics.create_topics([NewTopic(f"{prefix}there", 2, 1)]).all()
        result = admin.topics.create_topics(
            [
                NewTopic(f"{prefix}there", 1, 1),
                NewTopic("not a name", 1, 1),
                NewTopic(f"{prefix}none", 0, 1),
                NewTopic(f"{prefix}far", 1, 3),
                NewTopic(f"{prefix}odd", 1, 1, configs={"no.such.setting": "1"}),
                NewTopic(f"{prefix}placed", replicas_assignments={0: [1], 1: [1]}, configs={"retention.ms": "1000"}),
            ]
        )
        assert [error.name if error else "" for error in result.values().values()] == [
            "TOPIC_ALREADY_EXISTS", "INVALID_TOPIC_EXCEPTION", "INVALID_PARTITIONS", "INVALID_REPLICATION_FACTOR",
            "INVALID_CONFIG", "",
        ]  # fmt: skip
        assert list(result.created()) == [f"{prefix}placed"]
        # A broker learns a moment later what its controller did.
        eventually(lambda: sorted(partitions(admin, prefix).values()), [2, 2])
        more = {f"{prefix}there": 1, f"{prefix}absent": 3, f"{prefix}placed": 3}
        grown = admin.topics.create_partitions({name: NewPartitions(count) for name, count in more.items()})
        assert codes(grown.values()) == [
            KafkaErrorCode.INVALID_PARTITIONS, KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0,
        ]  # fmt: skip
        gone = admin.topics.delete_topics(more)
        assert codes(gone.values()) == [0, KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0]
