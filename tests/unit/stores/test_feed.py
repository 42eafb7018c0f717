"""The feed: what differs reaches everybody who is driven, once, in order, also after a failure."""

import asyncio
import math
from collections.abc import Callable, Iterator, Mapping
from queue import SimpleQueue
from threading import Event, current_thread

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kquota.config import BrokerConfig
from kquota.errors import KquotaError, NotAuthorizedError, RequestTimeoutError, StoreError, UnreachableError
from kquota.metering.engine import QuotaManagers
from kquota.quotas import (
    CLIENT_ID,
    CONNECTION_CREATION_RATE,
    IP,
    USER,
    ClientQuotaEntity,
    QuotaSnapshot,
    is_same_value,
)
from kquota.stores import QuotaFeed, QuotaWatch, open_store, quota_changes
from kquota.stores.feed import Change
from tests.kit.eventually import PATIENCE_S, eventually
from tests.kit.manual_clock import ManualClock
from tests.kit.store_contract import ALICE, BOB, CONSUME, PRODUCE, set_to
from tests.kit.strategies import crowded_entities

HOUR_MS = 3_600_000
GROUP = ClientQuotaEntity({"group": "staff"})
ADDRESS = ClientQuotaEntity({IP: "10.0.0.1"})


class Source:
    """Quotas, or an error, that are looked at when the test says so, and not before."""

    def __init__(self, seen: QuotaSnapshot | KquotaError, clock: ManualClock | None = None) -> None:
        self.seen = seen
        self.clock = clock
        self.opened: list[QuotaWatch] = []

    def watch(self) -> QuotaWatch:
        self.opened.append(QuotaWatch(self._look, every_ms=HOUR_MS, clock=self.clock))
        return self.opened[-1]

    def _look(self) -> QuotaSnapshot:
        if isinstance(self.seen, KquotaError):
            raise self.seen
        return self.seen

    def shows(self, seen: QuotaSnapshot | KquotaError, feed: QuotaFeed) -> None:
        """The feed has seen this when it returns."""
        looks = feed.looks
        self.seen = seen
        feed.look_now()
        eventually(lambda: feed.looks > looks, expected=True)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def source(clock: ManualClock) -> Source:
    return Source({ALICE: {PRODUCE: 5.0}}, clock)


@pytest.fixture
def warnings() -> list[str]:
    return []


@pytest.fixture
def feed(source: Source, clock: ManualClock, warnings: list[str]) -> Iterator[QuotaFeed]:
    with QuotaFeed(source, clock=clock, warn=warnings.append) as started:
        yield started


snapshots = st.dictionaries(
    crowded_entities, st.dictionaries(st.sampled_from([PRODUCE, CONSUME]), st.floats() | st.just(1.0), min_size=1)
)


Values = Mapping[tuple[ClientQuotaEntity, str], float]


def as_applied(changes: list[Change], quotas: QuotaSnapshot) -> Values:
    """By entity and key."""
    found = {(entity, key): value for entity, own in quotas.items() for key, value in own.items()}
    for key, entity, value in changes:
        if value is None:
            del found[entity, key]
        else:
            found[entity, key] = value
    return found


def is_same(one: Values, other: Values) -> bool:
    return one.keys() == other.keys() and all(is_same_value(value, other[key]) for key, value in one.items())


class TestQuotaChanges:
    """The pure part."""

    @given(before=snapshots, after=snapshots)
    def test_they_lead_from_one_state_to_the_other(self, before: QuotaSnapshot, after: QuotaSnapshot) -> None:
        """Nothing that is as it was is among them, and nothing appears twice. NaN is as NaN was."""
        before = {one: own for one, own in before.items() if one.entries.keys() <= {USER, CLIENT_ID}}
        after = {one: own for one, own in after.items() if one.entries.keys() <= {USER, CLIENT_ID}}
        changes = quota_changes(before, after)
        assert is_same(as_applied(changes, before), as_applied([], after))
        assert len({(key, entity) for key, entity, _ in changes}) == len(changes)
        assert all(not is_same_value(before.get(entity, {}).get(key), value) for key, entity, value in changes)
        assert quota_changes(after, {one: dict(own) for one, own in after.items()}) == []

    def test_nan_is_not_changed_by_nan(self) -> None:
        quotas = {ALICE: {PRODUCE: float("nan")}}
        assert quota_changes(quotas, {ALICE: {PRODUCE: float("nan")}}) == []
        [(key, entity, value)] = quota_changes({}, quotas)
        assert (key, entity) == (PRODUCE, ALICE)
        assert value is not None
        assert math.isnan(value)

    def test_what_kafka_does_not_have_is_no_change(self) -> None:
        """Another key, another type, a key where it cannot be set; connections of an address are Kafka's."""
        after = {
            ALICE: {"nonsense": 1.0, PRODUCE: 2.0},
            GROUP: {PRODUCE: 1.0},
            ADDRESS: {PRODUCE: 1.0, CONNECTION_CREATION_RATE: 3.0},
        }
        changes = [(PRODUCE, ALICE, 2.0), (CONNECTION_CREATION_RATE, ADDRESS, 3.0)]
        assert quota_changes({}, after) == changes
        assert quota_changes(after, {}) == [(key, entity, None) for key, entity, _ in changes]


class TestStart:
    """The first quotas are waited for."""

    def test_what_is_driven_has_the_quotas_when_it_has_started(self, source: Source) -> None:
        applied: list[list[Change]] = []
        feed = QuotaFeed(source)
        feed.drive(applied.append)
        assert applied == []
        with feed:
            assert applied == [[(PRODUCE, ALICE, 5.0)]]
            assert feed.quotas == {ALICE: {PRODUCE: 5.0}}

    def test_no_quotas_are_quotas_too(self, source: Source) -> None:
        """Nothing is applied, and nothing is missing."""
        source.seen = {}
        applied: list[list[Change]] = []
        with QuotaFeed(source) as feed:
            feed.drive(applied.append)
            assert (feed.quotas, applied, feed.last_error) == ({}, [], None)

    def test_what_will_not_get_better_is_raised_at_once(self, source: Source) -> None:
        """And the feed is closed: nothing goes on behind."""
        source.seen = NotAuthorizedError("you may not describe")
        feed = QuotaFeed(source)
        with pytest.raises(NotAuthorizedError, match="may not describe"):
            feed.start(HOUR_MS)
        assert [watch.is_closed for watch in source.opened] == [True]

    def test_what_may_get_better_is_tried_until_the_time_is_over(self, source: Source) -> None:
        source.seen = UnreachableError("nobody is there")
        with pytest.raises(UnreachableError, match="nobody is there"):
            QuotaFeed(source).start(20)
        assert [watch.is_closed for watch in source.opened] == [True]

    def test_what_gets_better_in_time_is_waited_for(self, source: Source) -> None:
        """Without a word about it."""
        quotas, warnings = {ALICE: {PRODUCE: 6.0}}, list[str]()

        def look() -> QuotaSnapshot:
            if late.looks == 0:
                late.look_now()
                raise UnreachableError("not yet")
            return quotas

        source._look = look  # type: ignore[method-assign]
        late = QuotaFeed(source, warn=warnings.append)
        late.start(HOUR_MS)
        late.close()
        assert late.quotas == quotas
        assert warnings == []

    def test_a_look_that_does_not_end_is_not_waited_for(self, source: Source) -> None:
        go = Event()

        def look() -> QuotaSnapshot:
            assert go.wait(PATIENCE_S)
            return {}

        source._look = look  # type: ignore[method-assign]
        try:
            with pytest.raises(RequestTimeoutError, match="within 20 ms"):
                QuotaFeed(source).start(20)
        finally:
            go.set()

    def test_a_store_that_is_closed_under_it(self, source: Source) -> None:
        feed = QuotaFeed(source)
        source.opened[0].close()
        with pytest.raises(StoreError, match="was closed"):
            feed.start(HOUR_MS)


class TestFollowing:
    """What changes later."""

    def test_only_what_differs_is_applied(self, source: Source, feed: QuotaFeed) -> None:
        """In the thread of the feed; where nothing differs nobody is called."""
        applied: list[tuple[str, list[Change]]] = []
        feed.drive(lambda changes: applied.append((current_thread().name, changes)))
        source.shows({ALICE: {PRODUCE: 5.0}, BOB: {PRODUCE: 6.0}}, feed)
        source.shows({ALICE: {PRODUCE: 5.0}, BOB: {PRODUCE: 6.0}}, feed)
        source.shows({BOB: {PRODUCE: 7.0, CONSUME: 8.0}}, feed)
        assert applied == [
            (current_thread().name, [(PRODUCE, ALICE, 5.0)]),
            ("quota-feed", [(PRODUCE, BOB, 6.0)]),
            ("quota-feed", [(PRODUCE, ALICE, None), (CONSUME, BOB, 8.0), (PRODUCE, BOB, 7.0)]),
        ]
        assert feed.changes == 5

    def test_who_comes_later_has_all_of_it(self, source: Source, feed: QuotaFeed) -> None:
        """Also while the source is down."""
        source.shows({ALICE: {PRODUCE: 6.0}, BOB: {PRODUCE: 7.0}}, feed)
        source.shows(UnreachableError("gone"), feed)
        early, late = list[list[Change]](), list[list[Change]]()
        feed.drive(early.append)
        feed.drive(late.append)
        source.shows({ALICE: {PRODUCE: 6.0}}, feed)
        assert early == late == [[(PRODUCE, ALICE, 6.0), (PRODUCE, BOB, 7.0)], [(PRODUCE, BOB, None)]]

    def test_the_last_quotas_stay_while_the_source_is_down(
        self, source: Source, feed: QuotaFeed, clock: ManualClock, warnings: list[str]
    ) -> None:
        """It is known since when, how old they are, and said when it begins and when it ends."""
        applied: list[list[Change]] = []
        feed.drive(applied.append)
        began_ms = clock.monotonic_ms()
        clock.advance(1_000)
        assert (feed.age_ms(), feed.is_stale(), feed.last_error) == (1_000.0, False, None)
        for _ in range(3):
            source.shows(UnreachableError("gone"), feed)
            clock.advance(4_000)
        assert isinstance(feed.last_error, UnreachableError)
        assert feed.failing_since_ms == began_ms + 1_000
        assert (feed.age_ms(), feed.age_ms(began_ms + 5), feed.is_stale()) == (13_000.0, 5.0, True)
        assert feed.is_stale(began_ms + 10_000) is False
        assert feed.quotas == {ALICE: {PRODUCE: 5.0}}
        assert len(applied) == 1
        source.shows({ALICE: {PRODUCE: 9.0}}, feed)
        assert applied[1:] == [[(PRODUCE, ALICE, 9.0)]]
        assert (feed.age_ms(), feed.is_stale()) == (0.0, False)
        assert [feed.last_error, feed.failing_since_ms] == [None, None]
        assert warnings == [
            "the quotas cannot be read, the last ones stay in force: gone",
            "the quotas can be read again",
        ]

    def test_who_catches_up_has_what_the_store_has_now(
        self, source: Source, clock: ManualClock, feed: QuotaFeed
    ) -> None:
        """Those who are driven have it, too."""
        applied: list[Change] = []
        feed.drive(applied.extend)
        clock.advance(1)
        source.seen = {ALICE: {PRODUCE: 6.0}}
        assert feed.catch_up(60_000)
        assert applied == [(PRODUCE, ALICE, 5.0), (PRODUCE, ALICE, 6.0)]

    def test_nobody_catches_up_with_what_cannot_be_read(
        self, source: Source, clock: ManualClock, feed: QuotaFeed
    ) -> None:
        clock.advance(1)
        source.seen = StoreError("it is gone")
        assert not feed.catch_up(0)
        feed.close()
        assert not feed.catch_up(60_000)

    def test_an_age_without_quotas_is_infinite(self, source: Source) -> None:
        feed = QuotaFeed(source)
        assert feed.age_ms() == math.inf
        assert feed.is_stale()
        feed.close()

    def test_what_cannot_be_applied_is_tried_again(self, source: Source, feed: QuotaFeed, warnings: list[str]) -> None:
        """With what changed since; the others have theirs at once, and it is said once."""
        applied, others = list[list[Change]](), list[list[Change]]()
        faults = [ValueError("first"), ValueError("second")]

        def apply(changes: list[Change]) -> None:
            if faults:
                raise faults.pop()
            applied.append(changes)

        feed.drive(apply)
        feed.drive(others.append)
        source.shows({BOB: {PRODUCE: 6.0}}, feed)
        source.shows(UnreachableError("gone"), feed)
        assert applied == [[(PRODUCE, BOB, 6.0)]]
        assert others == [[(PRODUCE, ALICE, 5.0)], [(PRODUCE, ALICE, None), (PRODUCE, BOB, 6.0)]]
        assert [text for text in warnings if "could not be applied" in text] == [
            "quotas could not be applied, and will be tried again: ValueError('second')"
        ]

    def test_what_kafka_does_not_have_is_left_aside(self, source: Source, feed: QuotaFeed, warnings: list[str]) -> None:
        """Counted, and named once for each kind."""
        applied: list[list[Change]] = []
        feed.drive(applied.append)
        staff = {ClientQuotaEntity({"group": f"staff-{number}"}): {PRODUCE: 1.0} for number in range(50)}
        source.shows({ALICE: {PRODUCE: 5.0, "new_rate": 1.0}, **staff}, feed)
        source.shows({ALICE: {PRODUCE: 5.0, "new_rate": 2.0}, **staff}, feed)
        assert feed.left_aside == 51
        source.shows({ALICE: {PRODUCE: 6.0, "new_rate": 2.0}}, feed)
        assert feed.left_aside == 1
        assert applied == [[(PRODUCE, ALICE, 5.0)], [(PRODUCE, ALICE, 6.0)]]
        assert (feed.changes, len(warnings)) == (2, 2)
        assert any(text.startswith("new_rate of user=alice is left aside") for text in warnings)

    def test_nothing_is_applied_after_the_end(self, source: Source, feed: QuotaFeed) -> None:
        """And nobody follows the store any more."""
        applied: list[list[Change]] = []
        feed.drive(applied.append)
        feed.close()
        feed.close()
        assert [watch.is_closed for watch in source.opened] == [True]
        assert len(applied) == 1

    def test_a_source_that_was_closed_is_not_silent(self, source: Source, feed: QuotaFeed) -> None:
        source.opened[0].close()
        eventually(lambda: isinstance(feed.last_error, StoreError), expected=True)
        assert feed.quotas == {ALICE: {PRODUCE: 5.0}}


def update(managers: QuotaManagers) -> Callable[[list[Change]], None]:
    def apply(changes: list[Change]) -> None:
        for key, entity, value in changes:
            managers.update_quota(key, entity, value)

    return apply


def limits(managers: QuotaManagers) -> tuple[float, float, int]:
    return (
        managers.produce.get_or_create_meter("alice", "").limit,
        managers.produce.get_or_create_meter("bob", "").limit,
        managers.connections.limit("10.0.0.1"),
    )


class TestManagers:
    """Quotas of a store bind who is metered."""

    def test_a_store_drives_two_brokers(self) -> None:
        """Each has the limits of the store when a change has been made, those of addresses too."""
        one, other = QuotaManagers(BrokerConfig()), QuotaManagers(BrokerConfig())
        with open_store("memory:") as store:
            store.alter([set_to(ALICE, producer_byte_rate=5)])
            with QuotaFeed(store) as feed:
                feed.drive(update(one))
                unlimited = limits(one)[1:]
                assert limits(one) == (5.0, *unlimited)
                feed.drive(update(other))
                assert limits(other) == limits(one)
                store.alter([set_to(ALICE, producer_byte_rate=6), set_to(ADDRESS, connection_creation_rate=3)])
                store.alter([set_to(BOB, producer_byte_rate=7)])
                eventually(lambda: (limits(one), limits(other)), ((6.0, 7.0, 3),) * 2)
                store.alter([set_to(BOB, producer_byte_rate=None), set_to(ADDRESS, connection_creation_rate=None)])
                eventually(lambda: (limits(one), limits(other)), ((6.0, *unlimited),) * 2)

    def test_an_event_loop_has_the_changes_in_its_own_thread(self) -> None:
        """In the order in which they were made, the first ones when the feed has started."""
        threads: set[str] = set()

        async def follow() -> float:
            loop = asyncio.get_running_loop()
            managers = QuotaManagers(BrokerConfig())
            is_seen = asyncio.Event()

            def apply(changes: list[Change]) -> None:
                threads.add(current_thread().name)
                update(managers)(changes)
                if len(changes) == 2:
                    is_seen.set()

            with open_store("memory:") as store:
                store.alter([set_to(ALICE, producer_byte_rate=5)])
                feed = QuotaFeed(store)
                feed.drive(lambda changes: loop.call_soon_threadsafe(apply, changes))
                await asyncio.to_thread(feed.start)
                try:
                    assert limits(managers)[0] == 5.0
                    store.alter([set_to(ALICE, producer_byte_rate=6), set_to(BOB, producer_byte_rate=7)])
                    async with asyncio.timeout(PATIENCE_S):
                        await is_seen.wait()
                finally:
                    feed.close()
            return limits(managers)[0]

        assert asyncio.run(follow()) == 6.0
        assert threads == {current_thread().name}

    def test_a_program_without_threads_takes_them_when_it_likes(self) -> None:
        """A queue is enough."""
        managers = QuotaManagers(BrokerConfig())
        waiting: SimpleQueue[list[Change]] = SimpleQueue()
        with open_store("memory:") as store, QuotaFeed(store) as feed:
            feed.drive(waiting.put)
            store.alter([set_to(ALICE, producer_byte_rate=5)])
            update(managers)(waiting.get(timeout=PATIENCE_S))
            assert limits(managers)[0] == 5.0
