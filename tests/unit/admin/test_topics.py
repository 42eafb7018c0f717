"""Changes of topics on a cluster without sockets, with a clock by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from itertools import pairwise
from typing import Any, TypeVar
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kquota.admin import (
    AsyncTopicAdmin,
    CreatedTopic,
    CreatePartitionsOptions,
    CreateTopicsOptions,
    DeleteTopicsOptions,
    NewPartitions,
    NewTopic,
    QuotaAdmin,
)
from kquota.errors import (
    ApiError,
    ConnectionFailedError,
    IllegalArgumentError,
    KafkaErrorCode,
    KquotaError,
    MalformedMessageError,
    NotAuthorizedError,
    NotSupportedError,
    ThrottlingQuotaExceededError,
)
from kquota.wire.apis import CREATE_PARTITIONS, CREATE_TOPICS, DELETE_TOPICS
from kquota.wire.messages.topics import CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig
from tests.kit.manual_clock import ManualClock
from tests.kit.topic_cluster import LOST_ANSWER, NOT_CONTROLLER, SILENT, Fault, TopicCluster

START = 1_800_000_000_000
T = TypeVar("T")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START)


def admin_of(cluster: TopicCluster, timeout_ms: int = 60_000) -> AsyncTopicAdmin:
    return AsyncTopicAdmin(cluster, timeout_ms=timeout_ms, clock=cluster.clock, sleep=cluster.sleep)


def done(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


def codes(values: Any) -> dict[str, int]:
    return {topic: error.code if error else 0 for topic, error in values.items()}


def new(*partitions: int) -> list[NewTopic]:
    return [NewTopic(f"t{number}", count, 1) for number, count in enumerate(partitions)]


def test_topics_come_and_grow_and_go(clock: ManualClock) -> None:
    """Each request in its newest version, each topic with its own result."""
    cluster = TopicCluster(clock)
    topics = admin_of(cluster)
    created = done(topics.create_topics([*new(3), NewTopic("plain")]))
    created.all()
    assert created.created()["t0"] == CreatedTopic(UUID(int=1), 3, 1)
    assert cluster.topics == {"t0": 3, "plain": -1}
    more = done(topics.create_partitions({"t0": NewPartitions.increase_to(5), "absent": NewPartitions(2)}))
    assert codes(more.values()) == {"t0": 0, "absent": KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert codes(done(topics.create_topics(new(3))).values()) == {"t0": KafkaErrorCode.TOPIC_ALREADY_EXISTS}
    assert cluster.topics["t0"] == 5
    gone = done(topics.delete_topics(["t0", "absent"]))
    assert codes(gone.values()) == {"t0": 0, "absent": KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert cluster.topics == {"plain": -1}
    assert [(one.api, one.version) for one in cluster.sent] == [
        (CREATE_TOPICS, 7), (CREATE_PARTITIONS, 3), (CREATE_TOPICS, 7), (DELETE_TOPICS, 6),
    ]  # fmt: skip


def test_code_without_an_event_loop_has_the_same(clock: ManualClock) -> None:
    """On the client that asks for quotas."""
    cluster = TopicCluster(clock)
    with QuotaAdmin(transport=cluster) as admin:
        admin.topics.create_topics(new(2)).all()
        admin.topics.create_partitions({"t0": NewPartitions(4)}).all()
        assert cluster.topics == {"t0": 4}
        admin.topics.delete_topics(["t0"]).all()
        assert cluster.topics == {}


def test_what_the_quota_refuses_is_sent_again_alone(clock: ManualClock) -> None:
    """One a second are allowed, and one at once: 4 partitions cost 3 seconds, and one a second after that."""
    cluster = TopicCluster(clock, rate=1, samples=1)
    done(admin_of(cluster).create_topics(new(4, 1, 1))).all()
    assert [(one.at_ms - START, one.topics) for one in cluster.sent] == [
        (0, ("t0", "t1", "t2")),
        (3_000, ("t1", "t2")),
        (4_000, ("t2",)),
    ]
    assert cluster.topics == {"t0": 4, "t1": 1, "t2": 1}


def test_without_retries_the_refusal_is_told(clock: ManualClock) -> None:
    """At once, with the broker's time; what was done before it in the same request is done."""
    cluster = TopicCluster(clock, rate=1, samples=1)
    options = CreateTopicsOptions(retry_on_quota_violation=False)
    result = done(admin_of(cluster).create_topics(new(4, 1), options))
    assert list(result.created()) == ["t0"]
    refused = result.values()["t1"]
    assert refused is not None
    assert (refused.name, refused.throttle_time_ms) == ("THROTTLING_QUOTA_EXCEEDED", 3_000)
    with pytest.raises(ThrottlingQuotaExceededError, match="Try again in 3000 ms"):
        result.all()
    assert clock.now_ms() == START


def test_a_refusal_at_the_timeout_tells_what_is_left(clock: ManualClock) -> None:
    """30 seconds were told, and 10 waited."""
    cluster = TopicCluster(clock, rate=1, samples=1)
    result = done(admin_of(cluster).create_topics(new(31, 1), CreateTopicsOptions(timeout_ms=10_000)))
    refused = result.values()["t1"]
    assert refused is not None
    assert (refused.name, refused.throttle_time_ms) == ("THROTTLING_QUOTA_EXCEEDED", 20_000)
    assert (clock.now_ms() - START, len(cluster.sent)) == (10_000, 1)


def test_a_retry_without_an_answer_is_unknown(clock: ManualClock) -> None:
    """Where Java's client would say that the quota refused it: here it was created."""
    cluster = TopicCluster(clock, rate=1, samples=1)
    cluster.faults.extend([None, LOST_ANSWER])
    result = done(admin_of(cluster).create_topics(new(4, 1)))
    assert "t1" in cluster.topics
    unknown = result.values()["t1"]
    assert unknown is not None
    assert unknown.is_unknown
    assert result.values()["t0"] is None


@pytest.mark.parametrize("fault", [LOST_ANSWER, MalformedMessageError("it ends too early")])
def test_no_answer_at_all_is_unknown(clock: ManualClock, fault: Fault) -> None:
    """An answer that cannot be read is none either."""
    cluster = TopicCluster(clock)
    cluster.faults.append(fault)
    result = done(admin_of(cluster).delete_topics(["a", "b"]))
    assert all(error is not None and error.is_unknown for error in result.values().values())


@pytest.mark.parametrize("error", [ConnectionFailedError("nobody"), NotSupportedError("old"), NotAuthorizedError("no")])
def test_what_was_never_sent_is_raised(clock: ManualClock, error: KquotaError) -> None:
    """There is nothing to tell about any topic."""
    cluster = TopicCluster(clock)
    cluster.faults.append(error)
    with pytest.raises(type(error)):
        done(admin_of(cluster).create_topics(new(1)))


def test_a_broker_that_is_away_for_a_while(clock: ManualClock) -> None:
    """The refused topic is tried again until somebody answers."""
    cluster = TopicCluster(clock, rate=1, samples=1)
    cluster.faults.extend([None, ConnectionFailedError("restarting"), ConnectionFailedError("restarting")])
    done(admin_of(cluster).create_topics(new(4, 1))).all()
    assert [one.at_ms - START for one in cluster.sent] == [0, 3_200]


def test_a_broker_that_lets_nobody_in_any_more(clock: ManualClock) -> None:
    """What was done before is still told."""
    cluster = TopicCluster(clock, rate=1, samples=1)
    cluster.faults.extend([None, NotAuthorizedError("the password was changed")])
    result = done(admin_of(cluster).create_topics(new(4, 1)))
    assert result.values() == {
        "t0": None,
        "t1": ApiError(KafkaErrorCode.NETWORK_EXCEPTION, "not sent again: the password was changed"),
    }


def test_the_controller_is_looked_for(clock: ManualClock) -> None:
    """And asked then."""
    cluster = TopicCluster(clock)
    cluster.faults.extend([NOT_CONTROLLER, NOT_CONTROLLER])
    done(admin_of(cluster).create_topics(new(1))).all()
    assert [at_ms - START for at_ms in cluster.searches] == [100, 200]
    assert len(cluster.sent) == 3


def test_a_topic_that_the_answer_leaves_out(clock: ManualClock) -> None:
    """Is not reported as created, though it was."""
    cluster = TopicCluster(clock)
    cluster.faults.append(SILENT)
    result = done(admin_of(cluster).create_topics(new(1, 1)))
    assert codes(result.values()) == {"t0": KafkaErrorCode.UNKNOWN_SERVER_ERROR, "t1": 0}
    assert list(result.created()) == ["t1"]


def test_permissive_versions_are_never_refused(clock: ManualClock) -> None:
    """All of it is done at once, and the next request waits."""
    cluster = TopicCluster(clock, rate=1, samples=1)
    topics = admin_of(cluster)
    done(topics.create_topics(new(4, 3), CreateTopicsOptions(permissive=True))).all()
    assert (cluster.topics, clock.now_ms() - START) == ({"t0": 4, "t1": 3}, 0)
    more = {"t0": NewPartitions(5)}
    done(topics.create_partitions(more, CreatePartitionsOptions(permissive=True))).all()
    done(topics.delete_topics(["t0"], DeleteTopicsOptions(permissive=True))).all()
    assert [(one.at_ms - START, one.version) for one in cluster.sent] == [(0, 5), (6_000, 2), (7_000, 4)]


def test_what_is_told_to_wait_beyond_its_time_is_not_sent(clock: ManualClock) -> None:
    """Nothing is sent, and that is said."""
    cluster = TopicCluster(clock, rate=1, samples=1)
    topics = admin_of(cluster)
    done(topics.create_topics(new(31), CreateTopicsOptions(permissive=True))).all()
    with pytest.raises(ConnectionFailedError, match="longer than there is time"):
        done(topics.delete_topics(["t0"], DeleteTopicsOptions(timeout_ms=10_000)))
    assert "t0" in cluster.topics


def test_validating_changes_nothing(clock: ManualClock) -> None:
    """And tells what creating would give."""
    cluster = TopicCluster(clock)
    topics = admin_of(cluster)
    result = done(topics.create_topics(new(1), CreateTopicsOptions(validate_only=True)))
    assert result.created() == {"t0": CreatedTopic(UUID(int=1), 3, 1)}
    assert cluster.topics == {}
    assert [one.validate_only for one in cluster.sent] == [True]


def test_what_no_request_can_hold_is_refused_here(clock: ManualClock) -> None:
    """Before anything is sent."""
    topics = admin_of(TopicCluster(clock))
    with pytest.raises(IllegalArgumentError, match="topic t0 appears twice"):
        done(topics.create_topics([*new(1), *new(2)]))
    with pytest.raises(IllegalArgumentError, match="topic a appears twice"):
        done(topics.delete_topics(["a", "a"]))
    with pytest.raises(IllegalArgumentError, match="numbers or assignments"):
        NewTopic("a", 1, replicas_assignments={0: [1]})
    for numbers in ((2**31, 1), (1, 2**15), (-(2**31) - 1, 1)):
        with pytest.raises(IllegalArgumentError, match="no request can hold these numbers"):
            NewTopic("a", *numbers)
    NewTopic("a", 2**31 - 1, -(2**15))
    with pytest.raises(IllegalArgumentError, match="no request can hold this number"):
        NewPartitions.increase_to(2**31)


def test_places_and_settings_are_sent(clock: ManualClock) -> None:
    """As Kafka's own types have them."""

    class Recording(TopicCluster):
        async def send(self, api: Any, body: Any, **options: Any) -> Any:
            self.body = body
            return await super().send(api, body, **options)

    cluster = Recording(clock)
    topics = admin_of(cluster)
    topic = NewTopic("a", replicas_assignments={0: [1, 2], 1: [2, 1]}, configs={"retention.ms": "1000"})
    done(topics.create_topics([topic])).all()
    assert cluster.body.topics == [
        CreatableTopic(
            "a",
            -1,
            -1,
            [CreatableReplicaAssignment(0, [1, 2]), CreatableReplicaAssignment(1, [2, 1])],
            [CreatableTopicConfig("retention.ms", "1000")],
        )
    ]
    done(topics.create_partitions({"a": NewPartitions.increase_to(3, [[2, 1]])})).all()
    assert [one.broker_ids for one in cluster.body.topics[0].assignments] == [[2, 1]]


@given(
    partitions=st.lists(st.integers(1, 30), min_size=1, max_size=6),
    rate=st.sampled_from([0.5, 1.0, 3.0, 10.0]),
    latency_ms=st.integers(0, 300),
    timeout_ms=st.integers(1, 40_000),
    faults=st.lists(
        st.sampled_from(
            [None, None, None, LOST_ANSWER, NOT_CONTROLLER, SILENT, ConnectionFailedError("x"), NotAuthorizedError("x")]
        ),
        max_size=5,
    ),
)
def test_whatever_happens_each_topic_has_its_one_true_result(
    partitions: list[int], rate: float, latency_ms: int, timeout_ms: int, faults: list[Fault]
) -> None:
    """Nothing is reported done that is not, nor refused that is done; nothing is sent too early, too late or twice."""
    cluster = TopicCluster(ManualClock(START), rate=rate, samples=2, latency_ms=latency_ms)
    cluster.faults.extend(faults)
    asked = new(*partitions)
    try:
        result = done(admin_of(cluster, timeout_ms).create_topics(asked))
    except KquotaError:
        assert cluster.topics == {}
        return
    assert list(result.values()) == [topic.name for topic in asked]
    for topic, error in result.values().items():
        if error is None:
            assert topic in cluster.topics
        elif error.code in (KafkaErrorCode.THROTTLING_QUOTA_EXCEEDED, KafkaErrorCode.NOT_CONTROLLER):
            assert topic not in cluster.topics
            assert cluster.clock.now_ms() >= START + timeout_ms
        else:
            assert error.is_unknown or error.code in (
                KafkaErrorCode.UNKNOWN_SERVER_ERROR, KafkaErrorCode.NETWORK_EXCEPTION,
            )  # fmt: skip
    assert cluster.held_back_ms == 0
    for earlier, later in pairwise(cluster.sent):
        assert set(later.topics) <= set(earlier.topics)
        assert later.at_ms < START + timeout_ms
