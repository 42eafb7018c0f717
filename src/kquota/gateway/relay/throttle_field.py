"""``throttle_time_ms`` in a response: where it is, and the larger of it and ours in its place.

A broker does the same with the answer to a request that it forwarded
(``RequestHandlerHelper.sendForwardedResponse``): the larger of the two, never the sum.
"""

from __future__ import annotations

from functools import partial
from struct import Struct
from typing import Final

from kquota.errors import KafkaErrorCode, MalformedMessageError
from kquota.gateway.relay.actions import Action, Kind
from kquota.gateway.relay.fields import (
    after_array,
    after_bytes,
    after_header,
    after_tags,
    after_text,
    forward,
    read_count,
    read_i16,
)

__all__ = ["after_topics_of_produce", "throttle_position", "write_throttle"]

_TIME: Final = Struct(">i")
_MAX_TIME_MS: Final = 2**31 - 1

_CREATE_TOKEN: Final = 38
_DESCRIBE_TOKEN: Final = 41
_REQUESTER_SINCE: Final = 3
_TOPIC_IDS_SINCE: Final = 13
_NO_ERRORS: Final = b"\1\0\0"
"""How most partitions end: no record errors, no message, no tagged fields."""


def write_throttle(frame: bytearray, action: Action, throttle_ms: int) -> None:
    """Raise the throttle time of a response to ours, in place; what is there stays where it is larger.

    :param frame: with its size. Where the field is among the first (`action.throttle_at`), the beginning of a frame
        does, up to and with the field. Where there is no such field, nothing happens.
    :raises MalformedMessageError: these bytes are no such response.
    """
    at = throttle_position(frame, action)
    if at is not None and _TIME.unpack_from(frame, at)[0] < throttle_ms:
        _TIME.pack_into(frame, at, min(throttle_ms, _MAX_TIME_MS))


def throttle_position(frame: bytes | bytearray, action: Action) -> int | None:
    """Where ``throttle_time_ms`` is in a response, given as :func:`write_throttle` takes it; None where it has none.

    The error UNSUPPORTED_VERSION of ApiVersions has none in any version, as its body is that of version 0 (KIP-511).

    :raises MalformedMessageError: these bytes are no such response.
    """
    if not action.has_throttle:
        return None
    at = action.throttle_at
    try:
        if at is None:
            at = _walk(bytes(frame), action)
        elif action.has_tagged_header and frame[action.body_at - 1] != 0:
            at += after_header(bytes(frame), action) - action.body_at
    except IndexError:
        at = len(frame)
    if at is not None and at + _TIME.size > len(frame):
        raise MalformedMessageError(f"a response of {action.name} ends before its throttle time")
    return at


def _walk(frame: bytes, action: Action) -> int | None:
    body = after_header(frame, action)
    is_error_of_version_0 = (
        action.kind is Kind.API_VERSIONS and read_i16(frame, body) == KafkaErrorCode.UNSUPPORTED_VERSION
    )
    if is_error_of_version_0:
        return None
    if not action.is_flexible:  # the last field of a body without tags
        at = len(frame) - _TIME.size
        return at if at >= body else len(frame)
    if action.kind is Kind.PRODUCE:
        return after_topics_of_produce(frame, body, action.version)
    if action.kind is Kind.API_VERSIONS:
        return after_array(frame, forward(frame, body, 2), _after_api, is_compact=True)
    return _after_tokens(frame, forward(frame, body, 2), action)


def after_topics_of_produce(frame: bytes, at: int, version: int) -> int:
    """The position after the topics of a Produce response of version 9 or later, where its throttle time is.

    :raises IndexError: the bytes end before.
    :raises MalformedMessageError: these bytes are no such response.
    """
    topics, at = read_count(frame, at, is_compact=True)
    for _ in range(topics):
        at = forward(frame, at, 16) if version >= _TOPIC_IDS_SINCE else after_text(frame, at, is_compact=True)
        partitions, at = read_count(frame, at, is_compact=True)
        for _ in range(partitions):
            at += 30  # index, error code, base offset, log append time, log start offset
            if frame.startswith(_NO_ERRORS, at):
                at += len(_NO_ERRORS)
            else:
                at = after_array(frame, at, _after_record_error, is_compact=True)
                at = after_tags(frame, after_text(frame, at, is_compact=True))
        at = after_tags(frame, at)
    return at


def _after_record_error(frame: bytes, at: int) -> int:
    return after_tags(frame, after_text(frame, forward(frame, at, 4), is_compact=True))


def _after_api(frame: bytes, at: int) -> int:
    return after_tags(frame, forward(frame, at, 6))


def _after_tokens(frame: bytes, at: int, action: Action) -> int:
    if action.api_key == _CREATE_TOKEN:
        return _after_token(frame, at, names=_names_of(action))
    if action.api_key == _DESCRIBE_TOKEN:
        return after_array(frame, at, partial(_after_described_token, names=_names_of(action)), is_compact=True)
    return forward(frame, at, 8)  # RenewDelegationToken, ExpireDelegationToken: when it expires


def _names_of(action: Action) -> int:
    """How many texts name the owner of a token, and who asked for it."""
    return 4 if action.version >= _REQUESTER_SINCE else 2


def _after_token(frame: bytes, at: int, names: int) -> int:
    for _ in range(names):
        at = after_text(frame, at, is_compact=True)
    at = forward(frame, at, 24)  # three times
    return after_bytes(frame, after_text(frame, at, is_compact=True), is_compact=True)


def _after_described_token(frame: bytes, at: int, names: int) -> int:
    at = after_array(frame, _after_token(frame, at, names), _after_renewer, is_compact=True)
    return after_tags(frame, at)


def _after_renewer(frame: bytes, at: int) -> int:
    return after_tags(frame, after_text(frame, after_text(frame, at, is_compact=True), is_compact=True))
