"""Changes of topics by admin clients of others, under a mutation quota of the gateway's (KIP-599).

Ten partitions a second make a full bucket of 110: of two topics of 120 partitions, one is created and the other refused
for a second.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import KafkaException
from confluent_kafka import admin as confluent
from kafka import KafkaAdminClient
from kafka.errors import NodeNotReadyError

from examples.capture.broker import Broker
from kquota.admin import CreateTopicsOptions, NewPartitions, NewTopic, QuotaAdmin
from kquota.errors import KafkaErrorCode
from tests.kit.eventually import eventually
from tests.kit.kafka import NEW, needs_compiler
from tests.kit.line_program import LineProgram, java_command
from tests.real.gateways import Gateway, client_ids, gateway, set_quota, topic_names

RATE: Final = 10.0
FULL: Final = 110
TOPICS: Final = Path(__file__).parent / "java" / "TopicLines.java"


@pytest.fixture(scope="module")
def kafka(broker: Callable[[str], Broker]) -> Broker:
    return broker(NEW)


@pytest.fixture(scope="module")
def running(kafka: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with gateway(kafka.plaintext, tmp_path_factory.mktemp("mutations")) as made:
        yield made


@pytest.fixture
def client_id(running: Gateway) -> Iterator[str]:
    """One with a quota of its own."""
    [name] = client_ids("limited")
    set_quota(running.bootstrap, {"client-id": name}, {"controller_mutation_rate": RATE})
    yield name
    set_quota(running.bootstrap, {"client-id": name}, {"controller_mutation_rate": None})


@pytest.fixture
def topics(kafka: Broker) -> Iterator[list[str]]:
    """Names for topics, which are deleted at the end."""
    names = topic_names(4)
    yield names
    with QuotaAdmin(kafka.plaintext, timeout_ms=30_000) as admin:
        admin.topics.delete_topics(partitions(kafka, names)).all()


def partitions(kafka: Broker, names: list[str]) -> dict[str, int]:
    """How many each of these topics has, where it is there."""
    found = confluent.AdminClient({"bootstrap.servers": kafka.plaintext}).list_topics(timeout=30).topics
    return {name: len(found[name].partitions) for name in names if name in found}


def test_the_java_admin_retries_after_the_wait(
    kafka: Broker, running: Gateway, client_id: str, topics: list[str], tmp_path: Path
) -> None:
    """Where it may; otherwise the refused topic has Kafka's own exception, with the throttle time."""
    needs_compiler()
    command = java_command(kafka.jars, TOPICS, running.bootstrap, client_id)
    with LineProgram(command, errors=tmp_path / "java.err") as java:

        def change(what: str, counts: dict[str, int], *, retries: bool) -> tuple[dict[str, Any], float]:
            began_s = time.monotonic()
            answer = java.ask({"change": what, "topics": counts, "retries": retries})
            return answer, time.monotonic() - began_s

        both = dict.fromkeys(topics[:2], FULL + 10)
        errors, _ = change("create", both, retries=False)
        [(refused, (name, throttle_ms))] = [(topic, error) for topic, error in errors.items() if error]
        assert name == "ThrottlingQuotaExceededException"
        assert 0 < throttle_ms <= 1_000
        created = next(topic for topic in both if topic != refused)
        eventually(lambda: partitions(kafka, topics), {created: FULL + 10})

        # It is 10 partitions in debt: what comes now is refused at first, and done a second later without further help.
        errors, took_s = change("create", {refused: 15, topics[2]: 1}, retries=True)
        assert errors == {refused: None, topics[2]: None}
        assert took_s < 10
        errors, _ = change("grow", {refused: 20, topics[2]: 8}, retries=True)
        assert set(errors.values()) == {None}
        eventually(lambda: partitions(kafka, topics), {created: FULL + 10, refused: 20, topics[2]: 8})
        errors, _ = change("delete", {refused: 0, topics[2]: 0}, retries=True)
        assert set(errors.values()) == {None}
        eventually(lambda: partitions(kafka, topics), {created: FULL + 10})


def test_the_admin_of_kafka_python_succeeds_after_the_wait(
    kafka: Broker, running: Gateway, client_id: str, topics: list[str]
) -> None:
    """It does not retry by itself: until the throttle time is over, it refuses to send anything more."""
    admin = KafkaAdminClient(bootstrap_servers=running.bootstrap, client_id=client_id)

    def create(counts: dict[str, int]) -> list[tuple[str, int]] | None:
        new = {name: {"num_partitions": count, "replication_factor": 1} for name, count in counts.items()}
        try:
            answer = admin.create_topics(new, raise_errors=False)
        except NodeNotReadyError:
            return None
        return [(one["name"], one["error_code"]) for one in answer["topics"]]

    try:
        assert create(dict.fromkeys(topics[:2], FULL + 10)) == [(topics[0], 0), (topics[1], 89)]
        assert create({topics[1]: 2}) is None
        eventually(lambda: create({topics[1]: 2}), [(topics[1], 0)])
    finally:
        admin.close()
    eventually(lambda: partitions(kafka, topics), {topics[0]: FULL + 10, topics[1]: 2})


def test_the_admin_of_librdkafka_is_slowed_down(
    kafka: Broker, running: Gateway, client_id: str, topics: list[str]
) -> None:
    """It sends permissive versions: all is done, and the next change waits for what is owed."""
    admin = confluent.AdminClient({"bootstrap.servers": running.bootstrap, "client.id": client_id})

    def create(*counts: int) -> list[str]:
        new = [
            confluent.NewTopic(name, count, 1)  # type: ignore[attr-defined]
            for name, count in zip(topics, counts, strict=False)
        ]
        errors = []
        for future in admin.create_topics(new, operation_timeout=20).values():
            try:
                future.result()
                errors.append("")
            except KafkaException as error:
                errors.append(error.args[0].name())
        return errors

    began_s = time.monotonic()
    assert create(FULL + 5, 10) == ["", ""]
    assert time.monotonic() - began_s < 1.5
    assert create(1) == ["TOPIC_ALREADY_EXISTS"]
    assert time.monotonic() - began_s > 1.2  # 15 partitions are owed, less what the first request took
    eventually(lambda: partitions(kafka, topics), {topics[0]: FULL + 5, topics[1]: 10})


def test_our_own_admin_retries_after_the_wait(
    kafka: Broker, running: Gateway, client_id: str, topics: list[str]
) -> None:
    """And says the throttle time where it is not to retry."""
    with QuotaAdmin(running.bootstrap, client_id=client_id, timeout_ms=30_000) as admin:
        new = [NewTopic(name, FULL + 10, 1) for name in topics[:2]]
        refused = admin.topics.create_topics(new, CreateTopicsOptions(retry_on_quota_violation=False)).values()
        assert refused[topics[0]] is None
        error = refused[topics[1]]
        assert error is not None
        assert error.code == KafkaErrorCode.THROTTLING_QUOTA_EXCEEDED
        assert 0 < error.throttle_time_ms <= 1_000
        admin.topics.create_topics([NewTopic(topics[1], 15, 1), NewTopic(topics[2], 2, 1)]).all()
        admin.topics.create_partitions({topics[2]: NewPartitions(4)}).all()
        eventually(lambda: partitions(kafka, topics), {topics[0]: FULL + 10, topics[1]: 15, topics[2]: 4})
        admin.topics.delete_topics(topics[1:3]).all()
    eventually(lambda: partitions(kafka, topics), {topics[0]: FULL + 10})
