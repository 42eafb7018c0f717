"""How many partitions topics have, as far as the gateway knows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from hypothesis import given
from hypothesis import strategies as st

from kquota.errors import RequestTimeoutError
from kquota.gateway.partition_counts import PartitionCounts
from kquota.wire.messages.metadata import MetadataRequestTopic, MetadataTopic
from tests.kit.manual_clock import ManualClock
from tests.kit.mutation_broker import MutationBroker, metadata_topic, run

A, B = bytes(15) + b"\1", bytes(15) + b"\2"


def get(counts: PartitionCounts, *keys: str | bytes) -> Mapping[str | bytes, int]:
    return run(counts.get(keys))


def broker(**topics: int) -> MutationBroker:
    return MutationBroker(ManualClock(), topics)


def test_what_is_known_is_not_asked_for() -> None:
    """By name and by id."""
    cluster = broker()
    counts = PartitionCounts(cluster.fetch)
    counts.update([metadata_topic("a", 3, A), metadata_topic("b", 4, B), metadata_topic("gone", 0, error_code=3)])
    assert get(counts, "a", B) == {"a": 3, B: 4}
    assert cluster.fetches == []


def test_what_is_missing_is_asked_for_once_and_kept() -> None:
    """All of it together, each topic once; one that is not there has no count, and is asked for again."""
    cluster = broker(a=3, b=4)
    counts = PartitionCounts(cluster.fetch)
    b_id = cluster.topic_id("b")
    assert get(counts, "a", b_id, "a", "nowhere") == {"a": 3, b_id: 4}
    assert get(counts, "a", "b", b_id, "nowhere") == {"a": 3, "b": 4, b_id: 4}
    assert cluster.fetches == [["a", b_id, "nowhere"], ["nowhere"]]


def test_a_topic_with_neither_name_nor_id_is_nobodys() -> None:
    cluster = broker()
    assert get(PartitionCounts(cluster.fetch), "", "") == {}
    assert cluster.fetches == []


def test_nobody_has_a_count_while_brokers_cannot_be_asked() -> None:
    """But for what is known; and it can be read that they could not."""

    async def fetch(topics: Sequence[MetadataRequestTopic]) -> Iterable[MetadataTopic]:
        raise RequestTimeoutError("no answer")

    counts = PartitionCounts(fetch)
    counts.put("a", 3, A)
    assert get(counts, "a", "b", B) == {"a": 3}
    assert counts.failed_fetches == 1


def test_new_metadata_replace_all() -> None:
    """A topic that is created anew has another id, and the old one is nobody's."""
    counts = PartitionCounts(broker().fetch)
    counts.update([metadata_topic("a", 3, A), metadata_topic("b", 4, B)])
    counts.update([metadata_topic("a", 5, B)])
    assert len(counts) == 1
    assert get(counts, "a", "b", A, B) == {"a": 5, B: 5}


def test_a_change_is_followed() -> None:
    """More partitions leave the id as it is; what is forgotten by one of its names is forgotten by the other."""
    counts = PartitionCounts(broker().fetch)
    counts.put("a", 3, A)
    counts.put("a", 6)
    counts.put("b", 1, B)
    counts.put("b", 2, bytes(16))
    assert get(counts, "a", A, "b", B) == {"a": 6, A: 6, "b": 2, B: 2}
    counts.forget(A)
    counts.forget("b")
    counts.forget("b")
    assert get(counts, "a", A, "b", B) == {}


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(1, 9), st.booleans())), st.integers(1, 4))
def test_no_more_topics_are_kept_than_allowed(puts: list[tuple[str, int, bool]], most: int) -> None:
    """Those that were put last; ids and names are of the same topics."""
    counts = PartitionCounts(broker().fetch, max_topics=most)
    for name, partitions, has_id in puts:
        counts.put(name, partitions, name.encode() * 16 if has_id else None)
    last = list(dict.fromkeys(name for name, _, _ in reversed(puts)))[:most]
    assert len(counts) == len(last)
    found = get(counts, *"abcdef")
    latest = {name: partitions for name, partitions, _ in puts}
    assert found == {name: latest[name] for name in last}
    by_id = get(counts, *(name.encode() * 16 for name in "abcdef"))
    assert {bytes(key)[:1].decode() if isinstance(key, bytes) else key for key in by_id} <= set(last)
