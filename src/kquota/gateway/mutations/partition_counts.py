"""How many partitions topics have: what adding partitions and deleting topics costs follows from it (KIP-599)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final

import structlog

from kquota.errors import KquotaError
from kquota.wire.messages.metadata import MetadataRequestTopic, MetadataTopic

__all__ = ["BEHIND_MS", "FetchTopics", "PartitionCounts"]

_log = structlog.get_logger("kquota.gateway")

FetchTopics = Callable[[Sequence[MetadataRequestTopic]], Awaitable[Iterable[MetadataTopic]]]
"""Asks a broker for these topics, by name or id. It must not let the broker create any
(``allow_auto_topic_creation``). It raises a :class:`~kquota.errors.KquotaError` where it gets no answer."""


BEHIND_MS: Final = 10_000
"""By how much brokers' metadata may be behind what the controller has answered: mostly it is less than 0.1 s."""


class PartitionCounts:
    """The partitions of topics, asked for each time they are needed: anybody may change them without the gateway.

    What was changed through it is known before the brokers show it. Any other topic that they do not know, or cannot be
    asked for now, has no count.
    """

    def __init__(self, fetch: FetchTopics, *, default_partitions: int = 1) -> None:
        """Take what asks for topics.

        :param default_partitions: the brokers' ``num.partitions``, as far as it is known.
        """
        self.default_partitions = default_partitions
        """For a new topic that leaves the number to the brokers. Each answer that gives it corrects it."""
        self._fetch = fetch
        self._has_failed = False
        self._changed: dict[str | bytes, tuple[int, int]] = {}  # how many, and when; the oldest first

    def put(self, keys: Iterable[str | bytes], partitions: int, now_ms: int) -> None:
        """A topic, by its name and its id as far as they are known, was given so many partitions, or deleted: 0."""
        self._forget(now_ms)
        for key in keys:
            self._changed.pop(key, None)
            self._changed[key] = partitions, now_ms

    async def get(self, keys: Iterable[str | bytes], now_ms: int) -> Mapping[str | bytes, int]:
        """The counts of these topics, by name (``str``) or id (16 ``bytes``); those that nobody knows are left out."""
        asked = dict.fromkeys(key for key in keys if key)
        found = []
        for together in (str, bytes):  # a broker that is asked for ids passes over names in the same request
            request = [_request(key) for key in asked if isinstance(key, together)]
            found += [topic for topic in await self._ask(request) if not topic.error_code] if request else []
        self._forget(now_ms)
        counts = {key: self._changed[key][0] for key in asked if key in self._changed}
        for topic in found:
            here, _ = self._changed.get(topic.name or "", (len(topic.partitions), 0))
            counts |= {key: here for key in (topic.name, topic.topic_id) if key in asked}
        return {key: count for key, count in counts.items() if count}

    def _forget(self, now_ms: int) -> None:
        """What brokers show by now."""
        while self._changed:
            key, (_, changed_ms) = next(iter(self._changed.items()))
            if changed_ms > now_ms - BEHIND_MS:
                break
            del self._changed[key]

    async def _ask(self, topics: Sequence[MetadataRequestTopic]) -> Iterable[MetadataTopic]:
        try:
            found = await self._fetch(topics)
        except KquotaError as error:
            if not self._has_failed:  # a line for each request would be one that clients can cause
                _log.warning("topics cannot be asked for, and changes of them are not charged", reason=str(error))
            self._has_failed = True
            return ()
        if self._has_failed:
            _log.info("topics can be asked for again")
        self._has_failed = False
        return found


def _request(key: str | bytes) -> MetadataRequestTopic:
    return MetadataRequestTopic(name=key) if isinstance(key, str) else MetadataRequestTopic(topic_id=key)
