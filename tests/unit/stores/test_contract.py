"""What every store does, whoever keeps its quotas."""

import math
import struct
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kquota.quotas import (
    CLIENT_ID,
    USER,
    ClientQuotaAlteration,
    ClientQuotaEntity,
    ClientQuotaFilter,
    QuotaChange,
    QuotaIndex,
    decide,
)
from kquota.stores import Commit, HasHistory
from kquota.stores.local import LocalStore, StoreBackend
from kquota.stores.memory import MemoryKeeper
from kquota.stores.sqlite import SqliteKeeper
from tests.kit.manual_clock import ManualClock
from tests.kit.store_contract import (
    ALICE,
    BOB,
    CONSUME,
    PRODUCE,
    ComparesAndSetsContract,
    DecidesHereContract,
    StoreContract,
    everything,
    set_to,
)
from tests.kit.strategies import AWKWARD_NAMES, arbitrary_entities, crowded_entities, entities

Op = ClientQuotaAlteration.Op

Open = Callable[[], LocalStore]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=["memory", "sqlite"])
def reopen(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> Iterator[Open]:
    """Opens the same store again each time; the one in memory is the same for as long as the test runs."""
    keepers: list[StoreBackend] = []
    memory = MemoryKeeper()

    def open_again() -> LocalStore:
        keeper = memory if request.param == "memory" else SqliteKeeper(tmp_path / "quotas.db")
        keepers.append(keeper)
        return LocalStore(keeper, clock=clock)

    yield open_again
    for keeper in keepers:
        keeper.close()


@pytest.fixture
def store(reopen: Open) -> LocalStore:
    return reopen()


class TestContract(StoreContract, ComparesAndSetsContract, DecidesHereContract):
    """The port, on those that keep quotas here."""


def test_what_was_kept_is_there_when_opened_again(reopen: Open) -> None:
    """Every name and every double, to the bit."""
    values = [5e-324, 0.1, math.pi, math.inf, math.nan]
    names = [None, *AWKWARD_NAMES]
    with reopen() as store:
        results = store.alter(
            set_to(
                ClientQuotaEntity({USER: user, CLIENT_ID: client_id}), request_percentage=values[number % len(values)]
            )
            for number, (user, client_id) in enumerate((user, client_id) for user in names for client_id in names)
        )
        assert set(results.values()) == {None}
        before = everything(store)
    with reopen() as store:
        after = everything(store)
    assert list(after) == list(before)
    assert len(after) == len(names) ** 2
    assert [struct.pack(">d", one["request_percentage"]) for one in after.values()] == [
        struct.pack(">d", one["request_percentage"]) for one in before.values()
    ]


def test_history_tells_what_was_changed_when_and_by_whom(store: LocalStore, clock: ManualClock) -> None:
    """One commit for each request that changed something, in order."""
    assert isinstance(store, HasHistory)
    first, second = clock.now_ms(), clock.now_ms() + 250
    store.alter([set_to(ALICE, producer_byte_rate=5), set_to(BOB, producer_byte_rate=-1)], principal="User:admin")
    store.alter([set_to(ALICE, producer_byte_rate=5)])
    store.alter([set_to(ALICE, producer_byte_rate=6)], validate_only=True)
    clock.advance(250)
    store.alter([set_to(ALICE, producer_byte_rate=None, consumer_byte_rate=1)], principal="User:ops")
    commits = [
        Commit(1, first, "User:admin", (QuotaChange(ALICE, PRODUCE, None, 5.0),)),
        Commit(2, second, "User:ops", (QuotaChange(ALICE, PRODUCE, 5.0, None), QuotaChange(ALICE, CONSUME, None, 1.0))),
    ]
    found = list(store.history())
    assert [(one.number, one.at_ms, one.principal, set(one.changes)) for one in found] == [
        (one.number, one.at_ms, one.principal, set(one.changes)) for one in commits
    ]
    assert [one.number for one in store.history(since=1)] == [2]


def test_an_entity_named_twice_is_changed_once(store: LocalStore) -> None:
    """Kafka refuses it, and does what the first alteration asked for all the same; history has that once."""
    results = store.alter([set_to(ALICE, producer_byte_rate=5), set_to(ALICE, producer_byte_rate=6)])
    assert results[ALICE] is not None
    assert everything(store) == {ALICE: {PRODUCE: 5.0}}
    assert [one.changes for one in store.history()] == [(QuotaChange(ALICE, PRODUCE, None, 5.0),)]


def test_two_openings_see_each_other(reopen: Open) -> None:
    """What one changes the other describes, and neither undoes what the other did."""
    one, other = reopen(), reopen()
    one.alter([set_to(ALICE, producer_byte_rate=5)])
    assert everything(other) == {ALICE: {PRODUCE: 5.0}}
    other.alter([set_to(BOB, producer_byte_rate=7)])
    one.alter([set_to(ALICE, consumer_byte_rate=6)])
    assert everything(one) == everything(other) == {ALICE: {PRODUCE: 5.0, CONSUME: 6.0}, BOB: {PRODUCE: 7.0}}


def test_changes_from_many_sides_are_all_kept(reopen: Open) -> None:
    """Each decides on what is there when it commits: no change is lost, and history leads from nothing to the end."""
    stores = [reopen() for _ in range(4)]

    def change(number: int) -> None:
        entity = ClientQuotaEntity({USER: f"user-{number % 5}"})
        results = stores[number % 4].alter([set_to(entity, **{(PRODUCE, CONSUME)[number % 2]: float(number + 1)})])
        assert set(results.values()) == {None}

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(change, range(60)))
    last = everything(stores[0])
    assert [everything(store) for store in stores] == [last] * 4
    replayed: dict[ClientQuotaEntity, dict[str, float]] = {}
    commits = list(stores[0].history())
    assert [one.number for one in commits] == list(range(1, 61))
    for change_ in (change_ for one in commits for change_ in one.changes):
        values = replayed.setdefault(change_.entity, {})
        assert values.get(change_.key) == change_.before
        assert change_.after is not None
        values[change_.key] = change_.after
    assert replayed == last
    assert len(last) == 5


class _Racing:
    """A keeper that somebody else changes between a look at it and each commit."""

    is_live = True

    def __init__(self, keeper: StoreBackend) -> None:
        self.keeper = keeper
        self.times = 0
        self.identity = keeper.identity
        self.read, self.history, self.maintain, self.close = keeper.read, keeper.history, keeper.maintain, keeper.close

    def commit(self, made: Callable[[QuotaIndex, int], Commit | None], *, wait_ms: int) -> None:
        self.times += 1

        def faster(index: QuotaIndex, number: int) -> Commit:
            before = index.snapshot.get(BOB, {}).get(PRODUCE)
            return Commit(number, 0, "", (QuotaChange(BOB, PRODUCE, before, float(self.times)),))

        self.keeper.commit(faster, wait_ms=wait_ms)
        self.keeper.commit(made, wait_ms=wait_ms)


def test_a_lost_race_is_decided_again(reopen: Open, clock: ManualClock) -> None:
    """Once, on what is there while nobody else can commit: so nobody loses for ever."""
    keeper = _Racing(reopen()._keeper)
    store = LocalStore(keeper, clock=clock)
    for value in (5.0, 6.0):
        assert store.alter([set_to(ALICE, producer_byte_rate=value)]) == {ALICE: None}
        assert everything(store) == {ALICE: {PRODUCE: value}, BOB: {PRODUCE: float(keeper.times)}}
    assert [one.number for one in store.history()] == [1, 2, 3, 4]


def test_what_a_lost_race_leaves_nothing_to_do_for_is_no_commit(reopen: Open, clock: ManualClock) -> None:
    """Somebody else made the same change."""
    keeper = _Racing(reopen()._keeper)
    store = LocalStore(keeper, clock=clock)
    assert store.alter([set_to(BOB, producer_byte_rate=1)]) == {BOB: None}
    assert [one.number for one in store.history()] == [1]


def test_a_change_is_compared_with_what_is_there_when_it_is_kept(reopen: Open, clock: ManualClock) -> None:
    """Whoever was faster between looking and keeping is not overwritten."""
    store = LocalStore(_Racing(reopen()._keeper), clock=clock)
    results = store.compare_and_alter([set_to(BOB, producer_byte_rate=9), set_to(ALICE, producer_byte_rate=5)], {})
    assert (results[BOB] is not None, results[ALICE]) == (True, None)
    assert everything(store) == {ALICE: {PRODUCE: 5.0}, BOB: {PRODUCE: 1.0}}


alterations = st.lists(
    st.builds(
        ClientQuotaAlteration,
        st.one_of(crowded_entities, entities, arbitrary_entities),
        st.lists(
            st.builds(
                Op,
                st.sampled_from([PRODUCE, CONSUME, "request_percentage", "connection_creation_rate", "x"]),
                st.none() | st.floats() | st.integers(1, 9).map(float),
            ),
            max_size=3,
        ),
    ),
    max_size=4,
)


@given(requests=st.lists(alterations, max_size=4))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
def test_a_store_does_what_the_rules_decide(
    reopen: Open, requests: list[list[ClientQuotaAlteration]], clock: ManualClock
) -> None:
    """Results and quotas are those of the pure rules, request after request."""
    store = reopen()
    snapshot = store.index().snapshot
    for request in requests:
        decision = decide(snapshot, request)
        assert store.alter(request) == decision.results
        snapshot = decision.apply(snapshot)
        assert str(store.index().describe(ClientQuotaFilter.all())) == str(
            {entity: snapshot[entity] for entity in sorted(snapshot, key=ClientQuotaEntity.sort_key)}
        )
