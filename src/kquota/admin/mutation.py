"""A change of topics that brokers may take in parts (KIP-599): what to send, when, and what came of each topic.

Nothing here sends or waits, and the time is an argument. Source: ``KafkaAdminClient``, ``getCreateTopicsCall`` and its
like for deleting topics and adding partitions. Where Java's client says of a topic that was under way when the time was
over that the quota refused it, here that topic is unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from kquota.errors import ApiError, KafkaErrorCode

__all__ = ["FindController", "Mutation", "Send", "Wait"]

RETRY_BACKOFF_MS: Final = 100
"""``retry.backoff.ms``, where a broker's answer has no throttle time."""

_THROTTLED: Final = KafkaErrorCode.THROTTLING_QUOTA_EXCEEDED
_QUOTA_EXCEEDED: Final = "The throttling quota has been exceeded."
"""Kafka's own text. Brokers leave it to the client."""


class Send(NamedTuple):
    """Ask for these topics."""

    topics: tuple[str, ...]
    timeout_ms: float


class Wait(NamedTuple):
    """Do nothing for so long."""

    wait_ms: float


class FindController(NamedTuple):
    """Who was asked last is not the controller any more."""

    timeout_ms: float


class _Refusal(NamedTuple):
    """An answer after which a topic may be asked for again."""

    error: ApiError
    throttle_time_ms: int
    at_ms: float

    def at_timeout(self, now_ms: float) -> ApiError:
        """What is left of the throttle time."""
        if self.error.code != _THROTTLED:
            return self.error
        left_ms = max(0, self.throttle_time_ms - round(now_ms - self.at_ms))
        return ApiError(_THROTTLED, self.error.message, throttle_time_ms=left_ms)


class Mutation:
    """One call: :meth:`step` says what to do next, until every topic has its result."""

    def __init__(
        self, topics: Iterable[str], *, now_ms: float, timeout_ms: float, retry_on_quota_violation: bool = True
    ) -> None:
        """Take the names, each once, and until when they may be asked for."""
        self._topics = tuple(topics)
        self._deadline_ms = now_ms + timeout_ms
        self._retries = retry_on_quota_violation
        self._results: dict[str, ApiError | None] = {}
        self._refusals: dict[str, _Refusal] = {}
        self._not_before_ms = now_ms
        self._controller_moved = False

    @property
    def was_answered(self) -> bool:
        """Whether any answer has come yet."""
        return bool(self._results or self._refusals)

    @property
    def results(self) -> Mapping[str, ApiError | None]:
        """By topic, in the order asked for: None where it was done. Complete when :meth:`step` gives None."""
        return {topic: self._results[topic] for topic in self._topics if topic in self._results}

    def step(self, now_ms: float) -> Send | Wait | FindController | None:
        """What to do next; None when nothing is left to be done."""
        left_ms = self._deadline_ms - now_ms
        if left_ms <= 0:
            for topic, refusal in self._refusals.items():
                self._results[topic] = refusal.at_timeout(now_ms)
            self._refusals.clear()
        topics = self._open()
        if not topics:
            return None
        wait_ms = self._not_before_ms - now_ms
        if wait_ms > 0:
            return Wait(min(wait_ms, left_ms))
        if self._controller_moved:
            self._controller_moved = False
            return FindController(left_ms)
        return Send(topics, max(0, left_ms))

    def answered(self, now_ms: float, throttle_time_ms: int, errors: Mapping[str, ApiError | None]) -> None:
        """The brokers answered the last :class:`Send`: by topic, None where it was done."""
        missing = ApiError(KafkaErrorCode.UNKNOWN_SERVER_ERROR, "the answer says nothing about this topic")
        throttle_time_ms = max(0, throttle_time_ms)
        for topic in self._open():
            self._refusals.pop(topic, None)
            error = errors.get(topic, missing)
            if error is not None and error.code == _THROTTLED:
                error = ApiError(_THROTTLED, error.message or _QUOTA_EXCEEDED, throttle_time_ms=throttle_time_ms)
            if error is None or not self._may_be_retried(error):
                self._results[topic] = error
                continue
            self._refusals[topic] = _Refusal(error, throttle_time_ms, now_ms)
            self._controller_moved |= error.code == KafkaErrorCode.NOT_CONTROLLER
        self._not_before_ms = now_ms + (throttle_time_ms or RETRY_BACKOFF_MS)

    def not_sent(self, now_ms: float) -> None:
        """The last :class:`Send` did not reach a broker; a later one may."""
        self._not_before_ms = now_ms + RETRY_BACKOFF_MS

    def gave_up(self, error: ApiError) -> None:
        """The last :class:`Send` has no answer, and nothing more is to be sent."""
        for topic in self._open():
            self._results[topic] = error
        self._refusals.clear()

    def _may_be_retried(self, error: ApiError) -> bool:
        return error.code == KafkaErrorCode.NOT_CONTROLLER or (error.code == _THROTTLED and self._retries)

    def _open(self) -> tuple[str, ...]:
        return tuple(topic for topic in self._topics if topic not in self._results)
