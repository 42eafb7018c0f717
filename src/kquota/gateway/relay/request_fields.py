"""The few fields of requests that quotas are about, read without decoding the rest.

Frames come with their size; offsets count from its first byte.
"""

from __future__ import annotations

from typing import Final

from kquota.errors import MalformedMessageError
from kquota.gateway.relay.actions import Action
from kquota.gateway.relay.fields import (
    after_tags,
    after_text,
    announced_end,
    forward,
)

__all__ = ["fetch_max_bytes_at", "produce_acks_at", "request_header_end"]

_CLIENT_ID_AT: Final = 12
_TRANSACTIONAL_ID_SINCE: Final = 3
_MAX_BYTES_SINCE: Final = 3
_REPLICA_STATE_SINCE: Final = 15


def request_header_end(frame: bytes, action: Action) -> int:
    """Where the header of a request ends: after its client id and its tag section.

    :param frame: the beginning of it does, if the header is in it.
    :raises MalformedMessageError: the bytes end before the header does.
    """
    try:
        return _after_header(frame, action)
    except IndexError:
        raise _too_short(action) from None


def _too_short(action: Action) -> MalformedMessageError:
    return MalformedMessageError(f"a request of {action.name} ends too early")


def _after_header(frame: bytes, action: Action) -> int:
    at = after_text(frame, _CLIENT_ID_AT, is_compact=False)  # in all versions, so that every broker can read it
    return after_tags(frame, at) if action.is_flexible else at


def produce_acks_at(frame_prefix: bytes, action: Action) -> int | None:
    """Where the acks of a Produce request are, two bytes; None: more bytes are needed.

    :param frame_prefix: the beginning of the frame; what follows the frame is not looked at.
    :raises MalformedMessageError: these bytes are no such request.
    """
    frame_end = None
    try:
        frame_end = announced_end(frame_prefix)
        at = _after_header(frame_prefix, action)
        if action.version >= _TRANSACTIONAL_ID_SINCE:
            at = after_text(frame_prefix, at, is_compact=action.is_flexible)
        forward(frame_prefix, at, 2)
    except IndexError:
        if frame_end is not None and frame_end <= len(frame_prefix):
            raise _too_short(action) from None
        return None
    if at + 2 > frame_end:
        raise _too_short(action)
    return at


def fetch_max_bytes_at(frame: bytes, action: Action) -> int | None:
    """Where ``max_bytes`` of a Fetch request is, four bytes; None in versions before 3, which have none.

    :param frame: the beginning of it does, if the field is in it.
    :raises MalformedMessageError: the bytes end before the field does.
    """
    if action.version < _MAX_BYTES_SINCE:
        return None
    try:
        at = _after_header(frame, action) + (8 if action.version >= _REPLICA_STATE_SINCE else 12)
        forward(frame, at, 4)
    except IndexError:
        raise _too_short(action) from None
    return at
