"""Topic changes through the mutation quota: what is charged, refused, forwarded and given back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import compress
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kquota.config import BrokerConfig
from kquota.errors import ConnectionFailedError, MalformedMessageError, TooManyElementsError
from kquota.gateway.mutations.charging import mutate
from kquota.gateway.mutations.partition_counts import BEHIND_MS, PartitionCounts
from kquota.gateway.quotas.enforcement import Client, Enforcement
from kquota.gateway.relay.actions import ACTIONS
from kquota.metering.callback import Principal
from kquota.metering.engine import QuotaManagers
from kquota.metering.requests import Mutations, RequestQuotas
from kquota.quotas import ClientQuotaEntity
from kquota.wire.apis import CREATE_PARTITIONS, CREATE_TOPICS, DELETE_TOPICS, Api, read_response, write_request
from kquota.wire.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from tests.kit.manual_clock import ManualClock
from tests.kit.mutation_broker import MutationBroker, run

ALICE = Client("alice", "c")
RATE = 2
BURST = 20


class CountedQuotas(RequestQuotas):
    """They count what is charged for mutations, less what is given back."""

    partitions = 0.0

    def mutate(
        self, user: Principal, client_id: str, costs: Sequence[float], now_ms: int, *, strict: bool
    ) -> Mutations:
        found = super().mutate(user, client_id, costs, now_ms, strict=strict)
        self.partitions += sum(compress(costs, found.accepted))
        return found

    def refund(self, user: Principal, client_id: str, partitions: float, now_ms: int) -> None:
        assert partitions > 0
        self.partitions -= partitions
        super().refund(user, client_id, partitions, now_ms)


class Done(NamedTuple):
    """What came of a request, beside its answer."""

    refused: int
    muted_ms: int
    partitions: float
    """What was charged for it in the end."""


class Setup:
    """A client with a quota of 2 partitions a second and a bucket of 20, a gateway, and a broker."""

    def __init__(
        self, *, rate: float | None = RATE, default_partitions: int = 1, is_shadow: bool = False, **topics: int
    ) -> None:
        self.clock = ManualClock()
        self.broker = MutationBroker(self.clock, topics)
        managers = QuotaManagers(BrokerConfig(controller_quota_window_num=10))
        if rate is not None:
            managers.update_quota("controller_mutation_rate", ClientQuotaEntity({"user": "alice"}), rate)
        self.enforcement = Enforcement(managers, is_shadow=is_shadow)
        self.enforcement.requests = self.charged = CountedQuotas(managers)
        self.counts = PartitionCounts(self.broker.fetch, default_partitions=default_partitions)

    def ask(
        self, api: Api, version: int, body: Any, *, now_ms: Callable[[], int] | None = None, max_elements: int = 1000
    ) -> tuple[Done, dict[Any, int], int]:
        """What came of a request: the codes by topic, and the throttle time of the answer."""
        before = self.charged.partitions
        mutated = run(
            mutate(
                write_request(api, version, 42, "c", body)[4:],
                ACTIONS[api.key << 16 | version],
                forward=self.broker.forward,
                enforcement=self.enforcement,
                client=ALICE,
                counts=self.counts,
                now_ms=now_ms or self.clock.now_ms,
                max_elements=max_elements,
            )
        )
        correlation_id, answer = read_response(api, version, bytes(mutated.answer[4:]))
        assert correlation_id == 42
        results = answer.results if api is CREATE_PARTITIONS else answer.topics if api is CREATE_TOPICS else None
        if results is None:
            results = answer.responses
        codes = {one.name if one.name is not None else one.topic_id: one.error_code for one in results}
        assert len(codes) == len(results)
        done = Done(mutated.refused, mutated.throttle_ms, self.charged.partitions - before)
        return done, codes, answer.throttle_time_ms

    def tokens(self) -> float:
        meter = self.enforcement.managers.controller_mutation.meter(*ALICE)
        assert meter is not None
        return meter.measure(self.clock.now_ms())


def create(*topics: tuple[str, int], validate_only: bool = False) -> CreateTopicsRequest:
    created = [CreatableTopic(name, count, 1, [], []) for name, count in topics]
    return CreateTopicsRequest(created, 30_000, validate_only)


def extend(*topics: tuple[str, int], validate_only: bool = False) -> CreatePartitionsRequest:
    asked = [CreatePartitionsTopic(name, count, None) for name, count in topics]
    return CreatePartitionsRequest(asked, 30_000, validate_only)


def delete(*keys: str | bytes) -> DeleteTopicsRequest:
    states = [DeleteTopicState(key) if isinstance(key, str) else DeleteTopicState(None, key) for key in keys]
    return DeleteTopicsRequest(states, [key for key in keys if isinstance(key, str)], 30_000)


def test_the_topic_that_exhausts_the_bucket_is_accepted_and_the_next_refused() -> None:
    """ControllerMutationQuotaTest.testStrictCreateTopicsRequest: 30 of 20 tokens, 5 s until ten are back."""
    setup = Setup()
    done, codes, throttle_ms = setup.ask(CREATE_TOPICS, 6, create(("a", 30), ("b", 1), ("c", 1)))
    assert codes == {"a": 0, "b": 89, "c": 89}
    assert list(codes) == ["a", "b", "c"]
    assert (throttle_ms, done.muted_ms) == (5000, 5000)
    assert (done.refused, done.partitions) == (2, 30)
    assert setup.broker.topics == {"a": 30}
    assert setup.tokens() == BURST - 30


def test_a_request_that_only_exhausts_the_bucket_is_not_throttled() -> None:
    """And passes as it came; the next waits."""
    setup = Setup()
    body = create(("a", 30))
    done, codes, throttle_ms = setup.ask(CREATE_TOPICS, 7, body)
    assert (codes, throttle_ms, done.muted_ms) == ({"a": 0}, 0, 0)
    assert setup.broker.frames == [write_request(CREATE_TOPICS, 7, 42, "c", body)]
    setup.clock.advance(1000)
    done, codes, throttle_ms = setup.ask(CREATE_TOPICS, 7, create(("b", 1)))
    assert (codes, throttle_ms) == ({"b": 89}, 4000)
    assert len(setup.broker.frames) == 1
    setup.clock.advance(4000)
    assert setup.ask(CREATE_TOPICS, 7, create(("b", 1)))[1] == {"b": 0}


@pytest.mark.parametrize("version", range(6))
def test_permissive_versions_do_everything_and_wait_afterwards(version: int) -> None:
    """ControllerMutationQuotaTest.testPermissiveCreateTopicsRequest. Versions 0 and 1 cannot say how long."""
    setup = Setup()
    body = create(("a", 20), ("b", 10))
    done, codes, throttle_ms = setup.ask(CREATE_TOPICS, version, body)
    assert codes == {"a": 0, "b": 0}
    assert done.muted_ms == 5000
    assert throttle_ms == (5000 if version >= 2 else 0)
    assert setup.broker.frames == [write_request(CREATE_TOPICS, version, 42, "c", body)]


@pytest.mark.parametrize(
    ("api", "version", "is_strict"),
    [(CREATE_TOPICS, 5, False), (CREATE_TOPICS, 6, True), (CREATE_PARTITIONS, 2, False), (CREATE_PARTITIONS, 3, True),
     (DELETE_TOPICS, 4, False), (DELETE_TOPICS, 5, True)],
)  # fmt: skip
def test_from_which_version_on_topics_are_refused(api: Api, version: int, is_strict: bool) -> None:
    setup = Setup(a=30, b=30)
    body: Any = delete("a", "b")
    if api is CREATE_TOPICS:
        body = create(("c", 30), ("d", 30))
    elif api is CREATE_PARTITIONS:
        body = extend(("a", 60), ("b", 60))
    _, codes, throttle_ms = setup.ask(api, version, body)
    assert list(codes.values()) == ([0, 89] if is_strict else [0, 0])
    assert throttle_ms == (5000 if is_strict else 20_000)


def test_adding_partitions_costs_those_that_are_added() -> None:
    setup = Setup(a=4)
    assert setup.ask(CREATE_PARTITIONS, 3, extend(("a", 7)))[0].partitions == 3
    assert setup.ask(CREATE_PARTITIONS, 3, extend(("a", 12)))[0].partitions == 5
    assert setup.tokens() == BURST - 8


def test_deleting_costs_what_the_topic_has() -> None:
    """By name and by id."""
    setup = Setup(a=4, b=5)
    setup.ask(CREATE_TOPICS, 7, create(("c", 3)))
    b_id, c_id = setup.broker.topic_id("b"), setup.broker.topic_id("c")
    done, codes, _ = setup.ask(DELETE_TOPICS, 6, delete("a", b_id, c_id))
    assert (codes, done.partitions) == ({"a": 0, "b": 0, "c": 0}, 12)
    assert setup.ask(DELETE_TOPICS, 6, delete("a", c_id))[1] == {"a": 3, c_id: 100}
    assert setup.tokens() == BURST - 3 - 12


def test_the_brokers_answer_for_topics_that_are_not_there() -> None:
    """Recorded of Kafka 4.3: error 3 beside 89, for a client that is over its quota."""
    setup = Setup(a=30, b=1)
    setup.ask(DELETE_TOPICS, 5, delete("a"))
    done, codes, throttle_ms = setup.ask(DELETE_TOPICS, 5, delete("b", "wide"))
    assert (codes, throttle_ms, done.refused) == ({"b": 89, "wide": 3}, 5000, 1)
    assert setup.ask(CREATE_PARTITIONS, 3, extend(("b", 1), ("wide", 9)))[1] == {"b": 37, "wide": 3}


@pytest.mark.parametrize("version", [5, 7])
def test_what_was_not_done_is_given_back_and_nobody_waits_for_it(version: int) -> None:
    """A topic that exists, one that may not be created, and one of no valid size; what timed out may come."""
    setup = Setup(a=1)
    setup.broker.errors = {"b": 29, "slow": 7}
    asked = create(("a", 100), ("b", 50), ("none", 0), ("minus", -5), ("slow", 3))
    _, codes, throttle_ms = setup.ask(CREATE_TOPICS, version, asked)
    strict = {"a": 36, "b": 89, "none": 37, "minus": 37, "slow": 89}
    assert codes == (strict if version == 7 else {"a": 36, "b": 29, "none": 37, "minus": 37, "slow": 7})
    assert throttle_ms == 0
    assert setup.tokens() == (BURST if version == 7 else BURST - 3)


def test_a_broker_with_a_quota_of_its_own_may_refuse_what_ours_accepts() -> None:
    """That costs nothing here, and what was refused here keeps its place."""
    setup = Setup()
    setup.broker.errors = {"b": 89}
    setup.broker.throttle_ms = 3000
    done, codes, throttle_ms = setup.ask(CREATE_TOPICS, 7, create(("a", 15), ("b", 15), ("c", 1)))
    assert (codes, throttle_ms) == ({"a": 0, "b": 89, "c": 89}, 3000)
    assert done == Done(refused=1, muted_ms=0, partitions=15)
    assert setup.tokens() == BURST - 15


def test_what_others_change_is_known_when_it_is_charged() -> None:
    """Past this gateway, or while it had no such quota: two topics were given partitions, and one was deleted."""
    setup = Setup(rate=10, wide=3, grown=3, gone=3)
    setup.ask(CREATE_PARTITIONS, 3, extend(("wide", 4), ("grown", 4), ("gone", 4)))
    setup.clock.advance(BEHIND_MS)
    setup.broker.topics |= {"wide": 40, "grown": 8}
    del setup.broker.topics["gone"]
    assert setup.ask(CREATE_PARTITIONS, 3, extend(("grown", 10)))[0].partitions == 2
    assert setup.ask(CREATE_PARTITIONS, 3, extend(("grown", 9)))[1] == {"grown": 37}
    done, codes, _ = setup.ask(DELETE_TOPICS, 6, delete("wide", "gone"))
    assert (codes, done.partitions) == ({"wide": 0, "gone": 3}, 40)


def test_what_was_changed_here_is_known_before_metadata_shows_it() -> None:
    """Kafka 4.3 on one node shows a new topic up to 90 ms after the answer that it is created."""
    setup = Setup(rate=100)
    setup.broker.in_metadata = {}
    setup.ask(CREATE_TOPICS, 7, create(("a", 1), ("b", -1)))
    setup.ask(CREATE_PARTITIONS, 3, extend(("a", 9), validate_only=True))
    assert setup.ask(CREATE_PARTITIONS, 3, extend(("a", 9)))[0].partitions == 8
    setup.broker.in_metadata = {"a": 1}
    assert setup.ask(CREATE_PARTITIONS, 3, extend(("a", 20)))[0].partitions == 11
    b_id = setup.broker.topic_id("b")
    assert setup.ask(DELETE_TOPICS, 6, delete("a", b_id))[0].partitions == 21
    assert setup.ask(DELETE_TOPICS, 6, delete("a", b_id))[0].partitions == 0
    setup.clock.advance(BEHIND_MS)
    setup.broker.topics["a"] = setup.broker.in_metadata["a"] = 5
    assert setup.ask(DELETE_TOPICS, 6, delete("a"))[0].partitions == 5


def test_a_deleted_topic_is_the_brokers_to_refuse_before_metadata_shows_it() -> None:
    setup = Setup(a=30, b=30)
    setup.broker.in_metadata = {"a": 30, "b": 30}
    setup.ask(DELETE_TOPICS, 6, delete("a"))
    assert setup.ask(DELETE_TOPICS, 6, delete("a", setup.broker.topic_id("b")))[1] == {
        "a": 3,
        setup.broker.topic_id("b"): 89,
    }


def test_the_wait_that_is_left_when_the_answer_comes() -> None:
    """The broker took a second of it, and nothing is given back above a full bucket."""
    setup = Setup()
    setup.broker.latency_ms = 1000
    assert setup.ask(CREATE_TOPICS, 5, create(("a", 30)))[2] == 4000
    setup.clock.advance(10_000)
    before = setup.tokens()
    setup.broker.latency_ms = 60_000
    _, codes, throttle_ms = setup.ask(CREATE_TOPICS, 5, create(("a", 500)))
    assert (before, codes, throttle_ms) == (12, {"a": 36}, 0)
    assert setup.tokens() == BURST


def test_the_longer_throttle_time_is_told_and_ours_is_muted_for() -> None:
    """The broker sees to its own."""
    setup = Setup()
    setup.broker.throttle_ms = 7000
    done, _, throttle_ms = setup.ask(CREATE_TOPICS, 5, create(("a", 30)))
    assert throttle_ms == 7000
    assert done.muted_ms == 5000
    setup.broker.throttle_ms = 100
    assert setup.ask(CREATE_TOPICS, 5, create(("b", 2)))[2] == 6000


@pytest.mark.parametrize("api_version", [4, 5, 7])
def test_the_brokers_default_is_learned_from_an_answer(api_version: int) -> None:
    """Version 4 does not tell: it stays at what is known. What was too little is charged, too much is given back."""
    setup = Setup(default_partitions=10)
    setup.broker.default_partitions = 6
    tells = api_version >= 5
    done, _, throttle_ms = setup.ask(CREATE_TOPICS, api_version, create(("a", -1)))
    assert (done.partitions, throttle_ms) == (6 if tells else 10, 0)
    assert setup.tokens() == BURST - (6 if tells else 10)
    assert setup.counts.default_partitions == (6 if tells else 10)
    setup.broker.default_partitions = 16
    done, _, throttle_ms = setup.ask(CREATE_TOPICS, api_version, create(("b", -1)))
    # 22 of 20 tokens: a strict request does not wait for its own.
    assert (done.partitions, throttle_ms) == (16 if tells else 10, 1000 if api_version == 5 else 0)


def test_assignments_say_how_many_partitions_a_new_topic_has() -> None:
    setup = Setup()
    places = [CreatableReplicaAssignment(index, [1]) for index in range(3)]
    body = CreateTopicsRequest([CreatableTopic("a", -1, -1, places, [])], 30_000)
    assert setup.ask(CREATE_TOPICS, 7, body)[0].partitions == 3


def test_a_request_that_only_validates_is_charged() -> None:
    """As in KRaft."""
    setup = Setup()
    done, codes, _ = setup.ask(CREATE_TOPICS, 7, create(("a", 30), validate_only=True))
    assert (codes, done.partitions) == ({"a": 0}, 30)
    assert setup.ask(CREATE_TOPICS, 7, create(("a", 30), validate_only=True))[1] == {"a": 89}


@pytest.mark.parametrize("api", [CREATE_TOPICS, CREATE_PARTITIONS, DELETE_TOPICS])
def test_an_empty_request_goes_to_the_broker(api: Api) -> None:
    """Also over the quota: it costs nothing."""
    setup = Setup()
    setup.ask(CREATE_TOPICS, 7, create(("a", 30)))
    body = {CREATE_TOPICS: create(), CREATE_PARTITIONS: extend(), DELETE_TOPICS: delete()}[api]
    done, codes, throttle_ms = setup.ask(api, api.max_version, body)
    assert (codes, throttle_ms, done.muted_ms) == ({}, 0, 0)
    assert setup.broker.frames[1:] == [write_request(api, api.max_version, 42, "c", body)]


def test_a_topic_that_is_asked_for_twice_is_charged_once() -> None:
    """The broker answers once, too; refused, it is refused in all its places."""
    setup = Setup(a=15, b=15)
    done, codes, _ = setup.ask(DELETE_TOPICS, 6, delete("a", "a", "b", "a"))
    assert (codes, done.partitions) == ({"a": 0, "b": 0}, 30)
    setup.broker.topics["c"] = 1
    setup.broker.topics["d"] = 1
    assert setup.ask(DELETE_TOPICS, 6, delete("c", "d", "c"))[1] == {"c": 89, "d": 89}
    assert len(setup.broker.frames) == 1


def test_a_topic_without_name_and_id_is_the_brokers_to_refuse() -> None:
    setup = Setup(a=30)
    setup.ask(DELETE_TOPICS, 6, delete("a"))
    setup.ask(DELETE_TOPICS, 6, delete(bytes(16)))
    assert setup.broker.fetches == [["a"]]
    assert len(setup.broker.frames) == 2


@pytest.mark.parametrize("version", [5, 7])
def test_without_a_quota_nothing_is_refused(version: int) -> None:
    setup = Setup(rate=None)
    done, codes, throttle_ms = setup.ask(CREATE_TOPICS, version, create(("a", 10_000), ("b", 10_000)))
    assert (codes, throttle_ms, done.muted_ms) == ({"a": 0, "b": 0}, 0, 0)


def test_where_nothing_is_enforced_everything_is_done() -> None:
    """And it is said what would have been: one topic refused, not charged, and the client throttled."""
    setup = Setup(is_shadow=True)
    body = create(("a", 30), ("b", 5))
    done, codes, throttle_ms = setup.ask(CREATE_TOPICS, 7, body)
    assert (codes, throttle_ms) == ({"a": 0, "b": 0}, 0)
    assert done == Done(refused=1, muted_ms=0, partitions=30)
    assert [count.throttle_ms for *_, count in setup.enforcement.throttles] == [5000]
    assert setup.broker.frames == [write_request(CREATE_TOPICS, 7, 42, "c", body)]
    assert setup.tokens() == BURST - 30


def test_all_topics_are_charged_at_one_moment() -> None:
    """A clock that runs on with every look cannot fill the bucket between them."""
    setup = Setup()
    looks = iter(range(setup.clock.now_ms(), 2**62, 100_000))
    body = create(*((f"t{index}", 15) for index in range(5)))
    done, _, _ = setup.ask(CREATE_TOPICS, 7, body, now_ms=lambda: next(looks))
    assert done.refused == 3
    assert list(setup.broker.topics) == ["t0", "t1"]


def test_a_broker_that_is_lost_may_have_done_it() -> None:
    """Nothing is given back, and the connection's end is the caller's."""
    setup = Setup()

    async def forward(frame: bytes) -> bytes:
        raise ConnectionFailedError("the broker closed the connection")

    setup.broker.forward = forward  # type: ignore[method-assign]
    with pytest.raises(ConnectionFailedError):
        setup.ask(CREATE_TOPICS, 7, create(("a", 3)))
    assert setup.tokens() == BURST - 3


def test_an_answer_that_is_none() -> None:
    setup = Setup()

    async def forward(frame: bytes) -> bytes:
        return b"\0\0\0\x2a\0\0"

    setup.broker.forward = forward  # type: ignore[method-assign]
    with pytest.raises(MalformedMessageError):
        setup.ask(CREATE_TOPICS, 7, create(("a", 3)))


def test_too_many_topics_are_neither_charged_nor_forwarded() -> None:
    setup = Setup()
    with pytest.raises(TooManyElementsError):
        setup.ask(CREATE_TOPICS, 7, create(("a", 3), ("b", 3)), max_elements=1)
    assert setup.broker.frames == []
    assert setup.tokens() == BURST


names = st.sampled_from("abcdef")
some_names = st.lists(names, max_size=6)
requests = st.one_of(
    st.builds(
        lambda topics, version, validate_only: (CREATE_TOPICS, version, create(*topics, validate_only=validate_only)),
        st.lists(st.tuples(names, st.sampled_from([-1, 0, 1, 3, 9, 40])), max_size=6, unique_by=lambda one: one[0]),
        st.integers(4, 7),
        st.booleans(),
    ),
    st.builds(
        lambda topics, version: (CREATE_PARTITIONS, version, extend(*topics)),
        st.lists(st.tuples(names, st.integers(1, 40)), max_size=6, unique_by=lambda one: one[0]),
        st.integers(0, 3),
    ),
    st.builds(lambda topics, version: (DELETE_TOPICS, version, delete(*topics)), some_names, st.integers(0, 5)),
    st.builds(
        lambda topics: (DELETE_TOPICS, 6, delete(*topics)),
        st.lists(
            st.one_of(names, names.map(MutationBroker.topic_id)),
            max_size=6,
            unique_by=lambda key: key if isinstance(key, str) else key[:1].decode(),
        ),
    ),
)
Step = tuple[tuple[Api, int, Any], dict[str, int], int]
steps: st.SearchStrategy[list[Step]] = st.lists(
    st.tuples(requests, st.dictionaries(names, st.sampled_from([29, 42, 44])), st.integers(0, 5000)), max_size=8
)
"""Requests with the topics that the broker does not change, and how long before."""


@given(steps)
@settings(max_examples=150, deadline=None)
def test_what_is_charged_is_what_was_created_and_deleted(taken: Iterable[Step]) -> None:
    """Whatever is refused, whatever fails, and whenever; and the bucket is never more than full."""
    setup = Setup(default_partitions=3)
    setup.broker.default_partitions = 3
    for (api, version, body), errors, passed_ms in taken:
        setup.broker.errors = errors
        setup.broker.latency_ms = passed_ms // 2
        setup.clock.advance(passed_ms)
        before = setup.broker.changed
        done, codes, _ = setup.ask(api, version, body)
        assert done.partitions == setup.broker.changed - before
        assert done.refused == list(codes.values()).count(89)
        assert setup.tokens() <= BURST


@given(steps)
@settings(max_examples=100, deadline=None)
def test_the_bucket_is_full_but_for_what_was_changed(taken: Iterable[Step]) -> None:
    """At one moment, and also where the answers alone say how many partitions topics got: not before version 5."""
    setup = Setup(default_partitions=1)
    setup.broker.default_partitions = 3
    for (api, version, body), errors, _ in taken:
        if api is CREATE_TOPICS and version < 5:
            continue
        setup.broker.errors = errors
        setup.ask(api, version, body)
    assert setup.tokens() == BURST - setup.broker.changed
