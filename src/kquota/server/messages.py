"""Errors and their texts in answers."""

from __future__ import annotations

from typing import Final

import structlog

from kquota.errors import ApiError, KafkaErrorCode, StoreError

__all__ = ["NO_MESSAGE", "failure", "sendable"]

_log = structlog.get_logger("kquota.server")
MAX_BYTES: Final = 32_767
NO_MESSAGE: Final = ""
"""What brokers send with a description that succeeded, although the field may be null."""


def failure(error: StoreError) -> ApiError:
    """The answer where the store failed: it says why, and the log does, too."""
    _log.error("the store failed", reason=str(error))
    return ApiError(KafkaErrorCode.UNKNOWN_SERVER_ERROR, str(error))


def sendable(message: str | None) -> str | None:
    """The message, cut to what fits into an answer: names in it may be as long as a request allows."""
    if message is None or len(message) * 4 <= MAX_BYTES:
        return message
    raw = message.encode()
    return message if len(raw) <= MAX_BYTES else raw[: MAX_BYTES - 3].decode(errors="ignore") + "..."
