"""How many partitions topics have: what adding partitions and deleting topics costs follows from it (KIP-599)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final

from kquota.errors import KquotaError
from kquota.wire.messages.metadata import NO_UUID, MetadataRequestTopic, MetadataTopic

__all__ = ["FetchTopics", "PartitionCounts"]

MAX_TOPICS: Final = 200_000

FetchTopics = Callable[[Sequence[MetadataRequestTopic]], Awaitable[Iterable[MetadataTopic]]]
"""Asks a broker for these topics, by name or id. It must not let the broker create any
(``allow_auto_topic_creation``). It raises a :class:`~kquota.errors.KquotaError` where it gets no answer."""


class PartitionCounts:
    """The partitions of each topic, from the metadata that the gateway follows, asked for where a topic is missing.

    They are as fresh as the metadata and the changes that went through this gateway. A topic that is not known, or
    cannot be asked for now, has no count.
    """

    def __init__(self, fetch: FetchTopics, *, default_partitions: int = 1, max_topics: int = MAX_TOPICS) -> None:
        """Take what asks for topics, and how many are kept at most: those that were not put for longest go.

        :param default_partitions: the brokers' ``num.partitions``, as far as it is known.
        """
        self.default_partitions = default_partitions
        """For a new topic that leaves the number to the brokers. Each answer that gives it corrects it."""
        self.failed_fetches = 0
        self._fetch = fetch
        self._max_topics = max_topics
        self._topics: dict[str, tuple[int, bytes]] = {}
        self._names: dict[bytes, str] = {}

    def __len__(self) -> int:
        return len(self._topics)

    def update(self, topics: Iterable[MetadataTopic]) -> None:
        """Take all topics of the cluster anew; what is not among them is forgotten."""
        self._topics.clear()
        self._names.clear()
        self._take(topics)

    async def get(self, keys: Iterable[str | bytes]) -> Mapping[str | bytes, int]:
        """The counts of these topics, by name (``str``) or id (16 ``bytes``); those that nobody knows are left out.

        It asks at most once, for all that are missing together.
        """
        asked = [key for key in dict.fromkeys(keys) if key]
        missing = [key for key in asked if self._count(key) is None]
        if missing:
            try:
                self._take(await self._fetch([_request(key) for key in missing]))
            except KquotaError:
                self.failed_fetches += 1
        found = ((key, self._count(key)) for key in asked)
        return {key: count for key, count in found if count is not None}

    def put(self, name: str, partitions: int, topic_id: bytes | None = None) -> None:
        """A topic has so many partitions now.

        :param topic_id: None or zeros where it is not known: then it keeps the one that it has.
        """
        known = self._topics.pop(name, None)
        if known is not None:
            self._names.pop(known[1], None)
            if topic_id is None or not any(topic_id):
                topic_id = known[1]
        topic_id = topic_id or NO_UUID
        while len(self._topics) >= self._max_topics:
            self.forget(next(iter(self._topics)))
        self._topics[name] = (partitions, topic_id)
        if any(topic_id):
            self._names[topic_id] = name

    def forget(self, key: str | bytes) -> None:
        """A topic, by name or id, is deleted, or its count is wrong: the next who needs it asks for it."""
        name = self._names.get(key) if isinstance(key, bytes) else key
        known = None if name is None else self._topics.pop(name, None)
        if known is not None:
            self._names.pop(known[1], None)

    def _count(self, key: str | bytes) -> int | None:
        name = self._names.get(key) if isinstance(key, bytes) else key
        known = None if name is None else self._topics.get(name)
        return None if known is None else known[0]

    def _take(self, topics: Iterable[MetadataTopic]) -> None:
        for topic in topics:
            if not topic.error_code and topic.name is not None:
                self.put(topic.name, len(topic.partitions), topic.topic_id)


def _request(key: str | bytes) -> MetadataRequestTopic:
    return MetadataRequestTopic(name=key) if isinstance(key, str) else MetadataRequestTopic(topic_id=key)
