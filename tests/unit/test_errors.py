"""The error tree: what may be tried again."""

from __future__ import annotations

import pytest

from kquota.errors import (
    ApiError,
    ApiFailedError,
    ConnectionFailedError,
    KafkaErrorCode,
    RequestTimeoutError,
    RetriableError,
    ThrottlingQuotaExceededError,
    UnreachableError,
)


@pytest.mark.parametrize("code", KafkaErrorCode)
def test_what_may_be_tried_again_has_one_base(code: KafkaErrorCode) -> None:
    """As in Kafka, ``RetriableException`` (KIP-599 puts its own there)."""
    error = ApiError(code)
    assert isinstance(error.to_exception(), RetriableError) is error.retriable


def test_which_these_are() -> None:
    assert {code.name for code in KafkaErrorCode if ApiError(code).retriable} == {
        "UNKNOWN_TOPIC_OR_PARTITION",
        "REQUEST_TIMED_OUT",
        "NETWORK_EXCEPTION",
        "NOT_CONTROLLER",
        "INVALID_FETCH_SESSION_EPOCH",
        "THROTTLING_QUOTA_EXCEEDED",
        "UNKNOWN_TOPIC_ID",
    }


def test_where_they_stand_in_the_tree() -> None:
    """Each keeps its exit code and its own base."""
    throttled = ApiError(KafkaErrorCode.THROTTLING_QUOTA_EXCEEDED, throttle_time_ms=5).to_exception()
    assert isinstance(throttled, ThrottlingQuotaExceededError)
    assert isinstance(throttled, ApiFailedError)
    assert issubclass(UnreachableError, ConnectionFailedError)
    assert not issubclass(ConnectionFailedError, RetriableError), "a certificate is not trusted the next time either"
    codes = [error.exit_code for error in (throttled, UnreachableError(""), RequestTimeoutError(""))]
    assert codes == [1, 5, 5]
