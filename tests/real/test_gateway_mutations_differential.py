"""The same changes of topics at a broker with a mutation quota, and through a gateway that has it (KIP-599).

One broker serves both: the quota of one client id is its own, that of the other one the gateway's. Two partitions a
second make a full bucket of 22 (Kafka's windows). A few seconds more or less refuse no other topic.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

import pytest

from examples.capture.broker import Broker
from tests.kit.eventually import eventually
from tests.kit.kafka import NEW
from tests.real.gateways import client_ids, gateway, set_quota, topic_names
from tests.real.raw_kafka import CREATE_TOPICS, DELETE_TOPICS, Connection

RATE: Final = 2.0
FULL: Final = 22
KEY: Final = "controller_mutation_rate"
METADATA: Final = 3
CREATE_PARTITIONS: Final = 37
REFUSED: Final = 89
"""THROTTLING_QUOTA_EXCEEDED."""


@dataclass
class Answer:
    """What came of a request."""

    results: list[tuple[str, int]]
    """Topic, as its place among the topics of the test, and error code, in the order of the answer."""
    messages: set[Any]
    """What was said about the topics that were refused."""
    throttle_ms: int
    sent_s: float
    took_s: float


@dataclass
class Lane:
    """A client at one of the two."""

    address: str
    client_id: str
    topics: list[str]
    started_s: float = field(default_factory=time.monotonic)

    def ask(self, api_key: int, version: int, values: dict[str, Any], *, client_id: str | None = None) -> Any:
        """On a connection of its own: one that is throttled is muted."""
        with Connection(self.address) as connection:
            return connection.request(api_key, version, values, client_id=client_id or self.client_id).decoded()

    def change(self, api_key: int, version: int, values: dict[str, Any]) -> Answer:
        sent_s = time.monotonic()
        decoded = self.ask(api_key, version, values)
        took_s = time.monotonic() - sent_s
        found = next(getattr(decoded, name) for name in ("topics", "results", "responses") if hasattr(decoded, name))
        names = {name: f"#{index}" for index, name in enumerate(self.topics)}
        return Answer(
            [(names.get(one.name, str(one.name)), one.error_code.value) for one in found],
            {getattr(one, "error_message", None) for one in found if one.error_code.value == REFUSED},
            round(decoded.throttle_time.total_seconds() * 1000),
            sent_s,
            took_s,
        )

    def create(self, *partitions: tuple[int, int], version: int = 7, validate_only: bool = False) -> Answer:
        """Topics by their place, each with its partitions."""
        topics = [
            {
                "name": self.topics[at],
                "num_partitions": count,
                "replication_factor": 1,
                "assignments": [],
                "configs": [],
            }
            for at, count in partitions
        ]
        values = {"topics": topics, "timeout": 30_000, "validate_only": validate_only}
        return self.change(CREATE_TOPICS, version, values)

    def grow(self, *partitions: tuple[int, int], version: int = 3, validate_only: bool = False) -> Answer:
        topics = [{"name": self.topics[at], "count": count, "assignments": None} for at, count in partitions]
        values = {"topics": topics, "timeout": 30_000, "validate_only": validate_only}
        return self.change(CREATE_PARTITIONS, version, values)

    def delete(self, *places: int, version: int = 6) -> Answer:
        names = [self.topics[at] for at in places]
        values = {"topic_names": names, "topics": [{"name": one, "topic_id": None} for one in names], "timeout": 30_000}
        return self.change(DELETE_TOPICS, version, values)

    def delete_by_id(self, *places: int, by_name: Sequence[int] = ()) -> Answer:
        known = self.known()
        topics: list[dict[str, Any]] = [{"name": None, "topic_id": UUID(str(known[at].topic_id))} for at in places]
        topics += [{"name": self.topics[at], "topic_id": None} for at in by_name]
        return self.change(DELETE_TOPICS, 6, {"topics": topics, "timeout": 30_000})

    def known(self) -> dict[int, Any]:
        """What the broker knows of the topics that there are, by their place."""
        asked = [{"topic_id": None, "name": name} for name in self.topics]
        values = {"allow_auto_topic_creation": False, "include_topic_authorized_operations": False}
        answer = self.ask(METADATA, 12, {"topics": asked, **values}, client_id="looker")
        return {self.topics.index(one.name): one for one in answer.topics if one.error_code.value == 0}

    def there(self, *partitions: tuple[int, int]) -> None:
        """Topics that somebody without a limit has created. A broker learns a moment later what its controller did."""
        other = Lane(self.address, "creator", self.topics)
        assert {code for _, code in other.create(*partitions).results} == {0}
        eventually(lambda: {at: len(one.partitions) for at, one in self.known().items()}, dict(partitions))


@dataclass
class Lanes:
    broker: Lane
    gateway: Lane

    def __iter__(self) -> Iterator[Lane]:
        return iter((self.broker, self.gateway))

    def both(self, work: Callable[[Lane], Answer], *, in_order: bool = True) -> Answer:
        """The answers of both are the same, throttle times as far as time passed differently; the gateway's.

        :param in_order: the broker answers, and charges, in the order of the request: only where topics are created.
        """
        real, ours = work(self.broker), work(self.gateway)
        if in_order:
            assert ours.results == real.results
        else:
            assert sorted(codes(ours)) == sorted(codes(real)), (ours, real)
        assert ours.messages == real.messages
        assert (ours.throttle_ms > 0) == (real.throttle_ms > 0), (ours, real)
        passed = [one.sent_s + one.took_s - lane.started_s for one, lane in ((ours, self.gateway), (real, self.broker))]
        # Tokens come with time: at the most, the two differ by what came in between and while they were asked.
        tolerance_ms = (abs(passed[0] - passed[1]) + ours.took_s + real.took_s + self.slack_s) * 1000 + 5
        assert abs(ours.throttle_ms - real.throttle_ms) <= tolerance_ms, (ours, real)
        self.slack_s += ours.took_s + real.took_s
        return ours

    slack_s: float = 0.0

    def set_rate(self, rate: float) -> None:
        for lane in self:
            set_quota(lane.address, {"client-id": lane.client_id}, {KEY: rate})


@pytest.fixture(scope="module")
def addresses(broker: Callable[[str], Broker], tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Of the broker, and of a gateway in front of it."""
    real = broker(NEW).plaintext
    with gateway(real, tmp_path_factory.mktemp("mutations")) as running:
        yield real, running.bootstrap


@pytest.fixture
def lanes(addresses: tuple[str, str]) -> Iterator[Lanes]:
    real, ours = addresses
    at_broker, at_gateway = client_ids("at-broker", "at-gateway")
    made = Lanes(Lane(real, at_broker, topic_names(6)), Lane(ours, at_gateway, topic_names(6)))
    made.set_rate(RATE)
    for lane in made:
        lane.started_s = time.monotonic()
    yield made
    for lane in made:
        Lane(lane.address, "cleaner", lane.topics).delete(*range(6))
        set_quota(lane.address, {"client-id": lane.client_id}, {KEY: None})


def codes(answer: Answer) -> list[int]:
    return [code for _, code in answer.results]


def test_a_strict_request_is_done_in_part(lanes: Lanes) -> None:
    """In the order of the request, with the first topics however large; later all are refused."""
    mixed = lanes.both(lambda lane: lane.create((0, 20), (1, 30), (2, 1), (3, 1)))
    assert sorted(codes(mixed)) == [0, 0, REFUSED, REFUSED]
    assert mixed.throttle_ms > 10_000
    assert codes(lanes.both(lambda lane: lane.create((2, 1), (3, 1)))) == [REFUSED, REFUSED]


@pytest.mark.parametrize("version", [2, 4, 5])
def test_a_permissive_request_is_done(lanes: Lanes, version: int) -> None:
    """And its client waits, longer with each."""
    first = lanes.both(lambda lane: lane.create((0, FULL + 10), (1, 2), version=version))
    second = lanes.both(lambda lane: lane.create((2, 10), version=version))
    assert codes(first) + codes(second) == [0, 0, 0]
    assert 4_000 < first.throttle_ms < second.throttle_ms


def test_deletions_cost_what_there_is(lanes: Lanes) -> None:
    """By id and by name, strictly and not. The broker takes them, and answers, in an order of its own.

    It also gives the names of topics that it refused by id. The gateway does not: it cannot know who may see them.
    """
    for lane in lanes:
        lane.there((0, FULL + 8), (1, FULL + 8), (2, 5), (3, 4))
    assert sorted(codes(lanes.both(lambda lane: lane.delete_by_id(0, 1), in_order=False))) == [0, REFUSED]
    assert sorted(codes(lanes.both(lambda lane: lane.delete(2, 5), in_order=False))) == [3, REFUSED]
    longer = lanes.both(lambda lane: lane.delete(2, 3, version=4), in_order=False)
    assert codes(longer) == [0, 0]
    assert longer.throttle_ms > 4_000


def test_a_topic_costs_the_same_by_name_beside_another_by_id(lanes: Lanes) -> None:
    """A broker that is asked for both together passes over the name."""
    for lane in lanes:
        lane.there((0, FULL + 8), (1, FULL + 8))
    mixed = lanes.both(lambda lane: lane.delete_by_id(0, by_name=[1]), in_order=False)
    assert sorted(codes(mixed)) == [0, REFUSED]


def test_new_partitions_cost_what_is_added(lanes: Lanes) -> None:
    """What asks for fewer than there are costs nothing. The broker takes them in an order of its own, too."""
    for lane in lanes:
        lane.there((0, 5), (1, 2), (2, 3))
    assert sorted(codes(lanes.both(lambda lane: lane.grow((1, 1), (5, 9)), in_order=False))) == [3, 37]
    mixed = lanes.both(lambda lane: lane.grow((0, FULL + 15), (2, FULL + 13)), in_order=False)
    assert sorted(codes(mixed)) == [0, REFUSED]
    longer = lanes.both(lambda lane: lane.grow((1, 9), version=2))
    assert codes(longer) == [0]
    assert longer.throttle_ms > 4_000


def test_partitions_that_are_added_at_once_cost_as_much(lanes: Lanes) -> None:
    """A broker shows a new topic a moment after the controller has it."""
    for lane in lanes:
        answers = [lane.create((0, 1)), lane.grow((0, FULL + 30)), lane.delete(0)]
        assert [codes(one) for one in answers] == [[0], [0], [REFUSED]]


def test_what_fails_costs_nothing_in_the_end(lanes: Lanes) -> None:
    """The bucket is as full after it as it was before."""
    for lane in lanes:
        lane.there((0, 1))
    for _ in range(3):
        assert codes(lanes.both(lambda lane: lane.create((0, 20), (5, 0)))) == [36, 37]
    assert codes(lanes.both(lambda lane: lane.create((1, FULL + 6), (2, 1)))) == [0, REFUSED]


def test_validation_costs_as_much(lanes: Lanes) -> None:
    """Without ZooKeeper."""
    for lane in lanes:
        lane.there((0, 1))
    assert codes(lanes.both(lambda lane: lane.create((1, FULL + 4), validate_only=True))) == [0]
    assert codes(lanes.both(lambda lane: lane.grow((0, 5), validate_only=True))) == [REFUSED]
    assert codes(lanes.both(lambda lane: lane.create((2, 9), validate_only=True, version=5))) == [0]


def test_the_number_of_partitions_may_be_left_to_the_brokers(lanes: Lanes) -> None:
    """Twelve of one partition each are twelve."""
    many = lanes.both(lambda lane: lane.create((0, -1), (1, -1), (2, FULL + 3), (3, -1)))
    assert sorted(codes(many)) == [0, 0, 0, REFUSED]


def test_a_quota_that_changes_meanwhile(lanes: Lanes) -> None:
    """What is owed stays the same number of partitions, and is worked off at the new rate."""
    slow = lanes.both(lambda lane: lane.create((0, FULL + 40), (1, 1)))
    lanes.set_rate(RATE * 4)
    fast = lanes.both(lambda lane: lane.create((1, 1)))
    assert codes(fast) == [REFUSED]
    assert fast.throttle_ms < slow.throttle_ms / 3


def test_a_large_topic_that_exists_may_have_others_refused_once(lanes: Lanes) -> None:
    """The broker validates a topic before it is charged, the gateway cannot. It says that there is nothing to wait for:
    what was refused is done when it comes again.
    """
    for lane in lanes:
        lane.there((0, 1))
    asked = ((0, FULL + 20), (1, 1))
    assert codes(lanes.broker.create(*asked)) == [36, 0]
    refused = lanes.gateway.create(*asked)
    assert codes(refused) == [36, REFUSED]
    assert refused.throttle_ms == 0
    assert codes(lanes.gateway.create((1, 1))) == [0]
