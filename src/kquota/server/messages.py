"""Errors and their texts in answers."""

from __future__ import annotations

from typing import Final, overload

import structlog

from kquota.clock import SystemClock
from kquota.errors import ApiError, KafkaErrorCode, StoreError
from kquota.net.event_log import LineLimit
from kquota.quotas import MAX_NAME_BYTES

__all__ = ["NO_MESSAGE", "Messages", "failure", "sendable", "sendable_name"]

_log = structlog.get_logger("kquota.server")
_lines = LineLimit(1, window_s=10)
MAX_MESSAGES_BYTES: Final = 1024 * 1024
SHORT_MESSAGE_BYTES: Final = 500
NO_MESSAGE: Final = ""
"""What brokers send with a description that succeeded, although the field may be null."""


def failure(error: StoreError) -> ApiError:
    """The answer where the store failed: what clients may know of it; the log has the rest."""
    left_out = _lines.allows(str(error), SystemClock().monotonic_ms() / 1000)
    if left_out is not None:
        _log.error("the store failed", reason=str(error), **({"left_out": left_out} if left_out else {}))
    # A client takes a timeout for what it is: the change may have been made or not.
    code = KafkaErrorCode.REQUEST_TIMED_OUT if error.is_unknown else KafkaErrorCode.UNKNOWN_SERVER_ERROR
    return ApiError(code, error.for_clients)


def sendable(message: str | None) -> str | None:
    """A message, cut to what fits into an answer: names in it may be as long as a request allows."""
    return None if message is None else _cut(message, MAX_NAME_BYTES)


class Messages:
    """The messages of one answer: whole, as Kafka's, until they are a MiB together, and short from then on.

    Each may quote a name of its request, so that without this an answer could be several times its request.
    """

    def __init__(self) -> None:
        self._left_bytes = MAX_MESSAGES_BYTES

    def sendable(self, message: str | None) -> str | None:
        """As :func:`sendable`, for the next message."""
        if message is None:
            return None
        cut = _cut(message, MAX_NAME_BYTES if self._left_bytes > 0 else SHORT_MESSAGE_BYTES)
        self._left_bytes -= len(cut.encode())
        return cut


@overload
def sendable_name(name: str) -> str: ...


@overload
def sendable_name(name: str | None) -> str | None: ...


def sendable_name(name: str | None) -> str | None:
    """A name, cut to what fits into an answer: one that was not UTF-8 is longer than it came."""
    return None if name is None else _cut(name, MAX_NAME_BYTES)


def _cut(text: str, most_bytes: int) -> str:
    if len(text) * 4 <= most_bytes:
        return text
    raw = text.encode()
    return text if len(raw) <= most_bytes else raw[: most_bytes - 3].decode(errors="ignore") + "..."
