"""How many partitions topics have, as far as the brokers say it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from structlog.testing import capture_logs

from kquota.errors import RequestTimeoutError
from kquota.gateway.mutations.partition_counts import BEHIND_MS, PartitionCounts
from kquota.wire.messages.metadata import MetadataRequestTopic, MetadataTopic
from tests.kit.manual_clock import ManualClock
from tests.kit.mutation_broker import MutationBroker, run

NOW = 1_700_000_000_000


def get(counts: PartitionCounts, *keys: str | bytes, now_ms: int = NOW) -> Mapping[str | bytes, int]:
    return run(counts.get(keys, now_ms))


def broker(**topics: int) -> MutationBroker:
    return MutationBroker(ManualClock(), topics)


def test_topics_are_asked_for_each_time() -> None:
    """By name and by id, each once; one that is not there has no count."""
    cluster = broker(a=3, b=4)
    counts = PartitionCounts(cluster.fetch)
    a_id, b_id = cluster.topic_id("a"), cluster.topic_id("b")
    assert get(counts, "a", "b", "a", "nowhere") == {"a": 3, "b": 4}
    cluster.topics["b"] = 9
    nowhere_id = bytes(15) + b"\1"
    assert get(counts, b_id, "a", nowhere_id, a_id, "b") == {b_id: 9, "a": 3, a_id: 3, "b": 9}
    assert cluster.fetches == [["a", "b", "nowhere"], ["a", "b"], [b_id, nowhere_id, a_id]]


def test_what_was_put_counts_until_brokers_show_it() -> None:
    """By each of its keys, and by the name that an id is shown with; 0 is for a topic that was deleted."""
    cluster = broker(a=3, b=4)
    a_id, b_id, new_id = cluster.topic_id("a"), cluster.topic_id("b"), bytes(15) + b"\1"
    counts = PartitionCounts(cluster.fetch)
    counts.put(["a"], 5, NOW)
    counts.put(["new", new_id], 6, NOW + 1)
    counts.put(["a"], 7, NOW + 2)
    counts.put(["b", b_id], 0, NOW + 3)
    keys = ("a", a_id, "b", b_id, "new", new_id)
    assert get(counts, *keys, now_ms=NOW + BEHIND_MS) == {"a": 7, a_id: 7, "new": 6, new_id: 6}
    assert get(counts, *keys, now_ms=NOW + BEHIND_MS + 1) == {"a": 7, a_id: 7}
    assert get(counts, *keys, now_ms=NOW + BEHIND_MS + 3) == {"a": 3, a_id: 3, "b": 4, b_id: 4}


def test_a_topic_with_neither_name_nor_id_is_nobodys() -> None:
    cluster = broker()
    assert get(PartitionCounts(cluster.fetch), "", "") == {}
    assert cluster.fetches == []


def test_nobody_has_a_count_while_brokers_cannot_be_asked() -> None:
    """And the log says since when such changes cost nothing, and until when: not for each of them."""
    cluster = broker(a=3)
    can_be_asked = False

    async def fetch(topics: Sequence[MetadataRequestTopic]) -> Iterable[MetadataTopic]:
        if not can_be_asked:
            raise RequestTimeoutError("no answer")
        return await cluster.fetch(topics)

    counts = PartitionCounts(fetch)
    with capture_logs() as lines:
        assert get(counts, "a") == get(counts, "a", b"b" * 16) == {}
        can_be_asked = True
        assert get(counts, "a") == get(counts, "a") == {"a": 3}
    assert [(line["log_level"], line.get("reason")) for line in lines] == [("warning", "no answer"), ("info", None)]
