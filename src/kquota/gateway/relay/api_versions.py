"""What a broker answers to ApiVersions, less what the gateway does not forward."""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct
from typing import Final

from kquota.errors import KafkaErrorCode, MalformedMessageError
from kquota.gateway.relay.action_table import ROWS
from kquota.gateway.relay.fields import after_tags, forward, read_count, read_i16
from kquota.wire.primitives import compact_length, length

__all__ = ["FORWARDED", "clamp_api_versions"]

FORWARDED: Final[Mapping[int, tuple[int, int]]] = {row[0]: (row[2], row[3]) for row in ROWS}
"""By API key, the first and the last version that the gateway forwards."""

_RANGE: Final = Struct(">hhh")
_BODY_AT: Final = 8  # the header of this response never has tags, as who asks cannot know what the broker speaks
_FLEXIBLE_SINCE: Final = 3
_NONE: Final[Mapping[int, tuple[int, int]]] = {}


def clamp_api_versions(frame: bytes, version: int, own: Mapping[int, tuple[int, int]] = _NONE) -> bytes:
    """A response of ApiVersions with only those versions that the gateway forwards; APIs with none are left out.

    All else stays as it is, the features among it. Produce is never lowered below version 12, which clients need for
    transactions where the feature ``transaction.version`` is 2 (KIP-890): the table goes beyond.

    The error UNSUPPORTED_VERSION comes with the body of version 0, whatever was asked for (KIP-511).

    :param frame: with its size, as is what is returned.
    :param version: of the request.
    :param own: by API key, the first and the last version that the gateway answers itself. They replace what the broker
        offers, and are added to a list without them unless it comes with an error.
    :raises MalformedMessageError: these bytes are no such response.
    """
    try:
        error_code = read_i16(frame, _BODY_AT)
        is_flexible = version >= _FLEXIBLE_SINCE and error_code != KafkaErrorCode.UNSUPPORTED_VERSION
        count, at = read_count(frame, _BODY_AT + 2, is_compact=is_flexible)
        kept: list[bytes] = []
        offered = set()
        for _ in range(count):
            end = forward(frame, at, _RANGE.size)
            api_key, first, last = _RANGE.unpack_from(frame, at)
            at = after_tags(frame, end) if is_flexible else end
            offered.add(api_key)
            clamped = own.get(api_key) or _intersection(api_key, first, last)
            if clamped is not None:
                kept.append(_RANGE.pack(api_key, *clamped) + frame[end:at])
    except IndexError:
        raise MalformedMessageError("a response of ApiVersions ends too early") from None
    if error_code == KafkaErrorCode.NONE:
        no_tags = b"\0" if is_flexible else b""
        kept += (_RANGE.pack(key, *versions) + no_tags for key, versions in own.items() if key not in offered)
    counted = compact_length(len(kept)) if is_flexible else length(len(kept))
    body = b"".join((frame[4 : _BODY_AT + 2], counted, *kept, frame[at:]))
    return length(len(body)) + body


def _intersection(api_key: int, first: int, last: int) -> tuple[int, int] | None:
    if api_key not in FORWARDED:
        return None
    our_first, our_last = FORWARDED[api_key]
    both = max(first, our_first), min(last, our_last)
    return both if both[0] <= both[1] else None
