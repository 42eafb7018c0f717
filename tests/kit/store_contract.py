"""What every store of quotas does, whoever keeps them: to be inherited by tests with a fixture called `store`."""

import math
import re
import struct
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from operator import eq

from kquota.errors import ApiError, KafkaErrorCode, KquotaError
from kquota.quotas import (
    CLIENT_ID,
    IP,
    MAX_NAME_BYTES,
    USER,
    ClientQuotaAlteration,
    ClientQuotaEntity,
    ClientQuotaFilter,
    ClientQuotaFilterComponent,
)
from kquota.stores import ComparesAndSets, QuotaStore, QuotaWatch, Watchable
from tests.kit.eventually import PATIENCE_S
from tests.kit.strategies import AWKWARD_NAMES

__all__ = [
    "ALICE",
    "BOB",
    "CONSUME",
    "PRODUCE",
    "TOO_LONG_NAMES",
    "ComparesAndSetsContract",
    "DecidesHereContract",
    "StoreContract",
    "WatchableContract",
    "Watched",
    "everything",
    "set_to",
]

ALICE, BOB = ClientQuotaEntity({USER: "alice"}), ClientQuotaEntity({USER: "bob"})
PRODUCE, CONSUME = "producer_byte_rate", "consumer_byte_rate"
TOO_LONG_NAMES = ("x" * 32_768, "é" * 16_384, "\ufffd" * 10_923, "\ufffd" * 32_767)
"""A byte more than can be sent; and the shortest and the longest that a request brings as bytes that are not UTF-8."""


def set_to(entity: ClientQuotaEntity, **values: float | None) -> ClientQuotaAlteration:
    """Values to set, and to remove where they are None."""
    return ClientQuotaAlteration(entity, [ClientQuotaAlteration.Op(key, value) for key, value in values.items()])


def everything(store: QuotaStore) -> dict[ClientQuotaEntity, dict[str, float]]:
    """All quotas."""
    found = store.describe(ClientQuotaFilter.all())
    assert not isinstance(found, ApiError)
    return {entity: dict(values) for entity, values in found.items()}


class StoreContract:
    """The port: describe a filter, alter entities."""

    def test_what_was_set_is_described(self, store: QuotaStore) -> None:
        """And what was removed is not; an entity goes with its last value."""
        assert store.alter(
            [set_to(ALICE, producer_byte_rate=5, consumer_byte_rate=6), set_to(BOB, producer_byte_rate=7)]
        ) == {
            ALICE: None,
            BOB: None,
        }
        assert everything(store) == {ALICE: {PRODUCE: 5.0, CONSUME: 6.0}, BOB: {PRODUCE: 7.0}}
        only = ClientQuotaFilter.contains_only([ClientQuotaFilterComponent.of_entity(USER, "bob")])
        assert store.describe(only) == {BOB: {PRODUCE: 7.0}}
        store.alter(
            [set_to(ALICE, producer_byte_rate=None), set_to(BOB, producer_byte_rate=None, consumer_byte_rate=None)]
        )
        assert everything(store) == {ALICE: {CONSUME: 6.0}}

    def test_each_entity_has_its_own_result(self, store: QuotaStore) -> None:
        """One that is refused keeps no other from being changed, and is not changed itself."""
        mixed = ClientQuotaEntity({USER: "a", IP: "10.0.0.1"})
        results = store.alter(
            [
                set_to(mixed, producer_byte_rate=1),
                set_to(ALICE, producer_byte_rate=5, nonsense=1),
                set_to(BOB, producer_byte_rate=7),
            ]
        )
        assert [error.code if error else None for error in results.values()] == [
            KafkaErrorCode.INVALID_REQUEST,
            KafkaErrorCode.INVALID_REQUEST,
            None,
        ]
        assert everything(store) == {BOB: {PRODUCE: 7.0}}

    def test_validating_changes_nothing(self, store: QuotaStore) -> None:
        """The results are those that altering would have."""
        alterations = [set_to(ALICE, producer_byte_rate=5), set_to(BOB, producer_byte_rate=-1)]
        validated = store.alter(alterations, validate_only=True)
        assert everything(store) == {}
        assert store.alter(alterations) == validated
        assert everything(store) == {ALICE: {PRODUCE: 5.0}}

    def test_a_filter_that_is_refused_is_a_value(self, store: QuotaStore) -> None:
        """With Kafka's code and message."""
        found = store.describe(ClientQuotaFilter.contains([ClientQuotaFilterComponent.of_entity_type("group")]))
        assert found == ApiError(KafkaErrorCode.UNSUPPORTED_VERSION, "Unsupported entity type group")

    def test_it_says_whose_quotas_they_are(self, store: QuotaStore) -> None:
        """The same for as long as they live, and as Kafka writes the ids of clusters."""
        identity = store.identity
        assert identity is not None
        assert re.fullmatch(r"[A-Za-z0-9_-]{22}", identity)
        store.alter([set_to(ALICE, producer_byte_rate=5)])
        assert store.identity == identity

    def test_removing_what_is_not_there_is_done(self, store: QuotaStore) -> None:
        """As Kafka has it: nothing to do is no mistake."""
        assert store.alter([set_to(ALICE, producer_byte_rate=None, no_such_key=None)]) == {ALICE: None}
        assert everything(store) == {}

    def test_every_name_and_every_double_comes_back(self, store: QuotaStore) -> None:
        """Names as they are, doubles to the bit, entities in order."""
        values = [5e-324, 0.1, math.pi, math.inf, math.nan]
        names = [None, *AWKWARD_NAMES]
        pairs = [(user, client_id) for user in names for client_id in names]
        given = {
            ClientQuotaEntity({USER: user, CLIENT_ID: client_id}): values[number % len(values)]
            for number, (user, client_id) in enumerate(pairs)
        }
        results = store.alter([set_to(entity, request_percentage=value) for entity, value in given.items()])
        assert set(results.values()) == {None}
        found = everything(store)
        assert list(found) == sorted(given, key=ClientQuotaEntity.sort_key)
        for entity, value in given.items():
            assert struct.pack(">d", found[entity]["request_percentage"]) == struct.pack(">d", value)


class ComparesAndSetsContract:
    """Changes that depend on what is there."""

    def test_what_is_as_expected_is_changed(self, store: QuotaStore) -> None:
        """NaN is as expected where NaN is expected, and nothing where nothing is."""
        assert isinstance(store, ComparesAndSets)
        store.alter([set_to(ALICE, request_percentage=math.nan, producer_byte_rate=5)])
        expected = everything(store)
        changes = [set_to(BOB, producer_byte_rate=7), set_to(ALICE, producer_byte_rate=None)]
        assert list(store.compare_and_alter(changes, expected).items()) == [(BOB, None), (ALICE, None)]
        assert everything(store)[BOB] == {PRODUCE: 7.0}
        assert everything(store)[ALICE].keys() == {"request_percentage"}

    def test_an_entity_that_moved_is_left_alone(self, store: QuotaStore) -> None:
        """Whichever of its values it was, and whether it came or went; the others are changed."""
        assert isinstance(store, ComparesAndSets)
        came, went = ClientQuotaEntity({USER: "came"}), ClientQuotaEntity({USER: "went"})
        store.alter([set_to(ALICE, producer_byte_rate=5), set_to(went, producer_byte_rate=5)])
        expected = everything(store)
        store.alter(
            [
                set_to(ALICE, consumer_byte_rate=6),
                set_to(came, producer_byte_rate=5),
                set_to(went, producer_byte_rate=None),
            ]
        )
        moved = everything(store)
        results = store.compare_and_alter(
            [set_to(one, producer_byte_rate=9) for one in (ALICE, came, BOB, went)], expected
        )
        assert {entity: error and error.code for entity, error in results.items()} == {
            ALICE: KafkaErrorCode.INVALID_UPDATE_VERSION,
            came: KafkaErrorCode.INVALID_UPDATE_VERSION,
            BOB: None,
            went: KafkaErrorCode.INVALID_UPDATE_VERSION,
        }
        assert everything(store) == {**moved, BOB: {PRODUCE: 9.0}}

    def test_what_is_refused_is_refused_as_ever(self, store: QuotaStore) -> None:
        """With Kafka's error."""
        assert isinstance(store, ComparesAndSets)
        alterations = [set_to(ALICE, producer_byte_rate=-1), set_to(BOB, producer_byte_rate=5)]
        refused = store.alter(alterations, validate_only=True)
        assert store.compare_and_alter(alterations, {}) == refused
        assert everything(store) == {BOB: {PRODUCE: 5.0}}


class DecidesHereContract:
    """Stores that need no client, and so can be given what no request carries."""

    def test_a_name_that_no_answer_could_hold_is_refused(self, store: QuotaStore) -> None:
        """For itself, and also where it is only validated; what can just be sent is kept."""
        entities = [ClientQuotaEntity({kind: name}) for kind in (USER, CLIENT_ID) for name in TOO_LONG_NAMES]
        alterations = [*(set_to(one, producer_byte_rate=5) for one in entities), set_to(ALICE, producer_byte_rate=5)]
        validated = store.alter(alterations, validate_only=True)
        results = dict(store.alter(alterations))
        assert validated == results
        assert results.pop(ALICE) is None
        assert {error.code if error else 0 for error in results.values()} == {KafkaErrorCode.INVALID_REQUEST}
        assert everything(store) == {ALICE: {PRODUCE: 5.0}}
        longest = [ClientQuotaEntity({USER: name}) for name in ("x" * MAX_NAME_BYTES, "é" * 16_383, "\ufffd" * 10_922)]
        assert set(store.alter([set_to(one, producer_byte_rate=5) for one in longest]).values()) == {None}
        assert everything(store).keys() == {ALICE, *longest}

    def test_a_name_that_no_answer_could_hold_is_refused_here_too(self, store: QuotaStore) -> None:
        """Whatever is expected."""
        assert isinstance(store, ComparesAndSets)
        entities = [ClientQuotaEntity({USER: name}) for name in TOO_LONG_NAMES]
        results = store.compare_and_alter([set_to(one, producer_byte_rate=5) for one in entities], {})
        assert {error.code if error else 0 for error in results.values()} == {KafkaErrorCode.INVALID_REQUEST}
        assert everything(store) == {}


Quotas = Mapping[ClientQuotaEntity, Mapping[str, float]]


@dataclass(frozen=True)
class Watched:
    """A store to be followed, and what others do to its quotas meanwhile."""

    store: Watchable
    put: Callable[[Quotas], None]
    """Somebody else, who does not use this store, makes these all its quotas."""
    failing: Callable[[], AbstractContextManager[None]]
    """It cannot be read for as long as the block runs."""


def looks_until(watch: QuotaWatch, expected: Callable[[object], bool]) -> object:
    """What the first look sees that sees what is expected."""
    end = time.monotonic() + PATIENCE_S
    watch.look_now()
    for look in watch:
        if expected(look.seen):
            return look.seen
        assert time.monotonic() < end, look
        watch.look_now()
    raise AssertionError("the watch was closed")


class WatchableContract:
    """A store whose changes are followed: by tests with a fixture called `watched`."""

    def test_it_declares_that_it_can_be_followed(self, watched: Watched) -> None:
        assert isinstance(watched.store, Watchable)

    def test_what_is_set_changed_and_removed_is_seen(self, watched: Watched) -> None:
        """Whoever did it; each time as all quotas that there are."""
        with watched.store.watch() as watch:
            for quotas in (
                {ALICE: {PRODUCE: 5.0}},
                {ALICE: {PRODUCE: 6.0, CONSUME: 7.0}, BOB: {PRODUCE: 1.0}},
                {ALICE: {CONSUME: 7.0}, BOB: {PRODUCE: 1.0}},
                {ALICE: {CONSUME: 7.0}},
            ):
                watched.put(quotas)
                assert looks_until(watch, partial(eq, quotas)) == quotas

    def test_a_change_is_seen_without_asking_for_a_look(self, watched: Watched) -> None:
        """Looks come by themselves."""
        with watched.store.watch() as watch:
            first = next(watch).seen
            watched.put({ALICE: {PRODUCE: 5.0}})
            assert next(look.seen for look in islice(watch, 50) if look.seen != first) == {ALICE: {PRODUCE: 5.0}}

    def test_where_nothing_changes_it_is_the_same_object(self, watched: Watched) -> None:
        """Who follows many quotas need not compare them."""
        watched.put({ALICE: {PRODUCE: 5.0}})
        with watched.store.watch() as watch:
            first = looks_until(watch, lambda seen: seen == {ALICE: {PRODUCE: 5.0}})
            for _ in range(3):
                watch.look_now()
                assert next(watch).seen is first

    def test_many_changes_end_with_the_last(self, watched: Watched) -> None:
        """What lay between may be passed over."""
        users = [ClientQuotaEntity({USER: f"user-{number}"}) for number in range(500)]
        with watched.store.watch() as watch:
            next(watch)
            for value in (1.0, 2.0, 3.0):
                watched.put({user: {PRODUCE: value, CONSUME: 9.0} for user in users})
            watched.put(wanted := {user: {PRODUCE: 4.0} for user in users[:250]})
            assert looks_until(watch, lambda seen: seen == wanted) == wanted

    def test_closing_ends_the_wait(self, watched: Watched) -> None:
        """From another thread, and for good."""
        with watched.store.watch() as watch, ThreadPoolExecutor(1) as pool:
            next(watch)
            rest = pool.submit(list, watch)
            watch.close()
            rest.result(PATIENCE_S)
            assert watch.is_closed
            assert list(watch) == []

    def test_several_can_follow(self, watched: Watched) -> None:
        """One that is closed leaves the others alone."""
        with watched.store.watch() as one, watched.store.watch() as other:
            assert next(one).seen == next(other).seen
            one.close()
            watched.put({ALICE: {PRODUCE: 5.0}})
            assert looks_until(other, lambda seen: seen == {ALICE: {PRODUCE: 5.0}})

    def test_a_failure_is_a_look_like_others(self, watched: Watched) -> None:
        """And when it has passed what changed meanwhile is seen."""
        watched.put({ALICE: {PRODUCE: 5.0}})
        with watched.store.watch() as watch:
            looks_until(watch, lambda seen: seen == {ALICE: {PRODUCE: 5.0}})
            with watched.failing():
                for _ in range(2):
                    assert looks_until(watch, lambda seen: isinstance(seen, KquotaError))
            watched.put({BOB: {PRODUCE: 6.0}})
            assert looks_until(watch, lambda seen: seen == {BOB: {PRODUCE: 6.0}})
