"""Errors and their texts in answers."""

from __future__ import annotations

from typing import Final, overload

import structlog

from kquota.errors import ApiError, KafkaErrorCode, StoreError
from kquota.quotas import MAX_NAME_BYTES

__all__ = ["NO_MESSAGE", "failure", "sendable"]

_log = structlog.get_logger("kquota.server")
NO_MESSAGE: Final = ""
"""What brokers send with a description that succeeded, although the field may be null."""


def failure(error: StoreError) -> ApiError:
    """The answer where the store failed: what clients may know of it; the log has the rest."""
    _log.error("the store failed", reason=str(error))
    # A client takes a timeout for what it is: the change may have been made or not.
    code = KafkaErrorCode.REQUEST_TIMED_OUT if error.is_unknown else KafkaErrorCode.UNKNOWN_SERVER_ERROR
    return ApiError(code, error.for_clients)


@overload
def sendable(text: str) -> str: ...


@overload
def sendable(text: str | None) -> str | None: ...


def sendable(text: str | None) -> str | None:
    """A message or a name, cut to what fits into an answer: a name that was not UTF-8 is longer than it came."""
    if text is None or len(text) * 4 <= MAX_NAME_BYTES:
        return text
    raw = text.encode()
    return text if len(raw) <= MAX_NAME_BYTES else raw[: MAX_NAME_BYTES - 3].decode(errors="ignore") + "..."
