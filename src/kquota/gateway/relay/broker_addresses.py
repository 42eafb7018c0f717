"""Addresses of brokers in responses, replaced by those of the gateway; all other bytes stay as they are.

Metadata and DescribeCluster begin with the list of brokers, so the beginning of the frame is enough, and the topics
behind it are never looked at. FindCoordinator and Produce (KIP-951) are small, and rewritten whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from kquota.errors import MalformedMessageError
from kquota.gateway.relay.actions import Action
from kquota.gateway.relay.fields import (
    after_header,
    after_tags,
    after_text,
    announced_end,
    forward,
    read_count,
    read_i32,
    read_text,
    read_uvarint,
)
from kquota.gateway.relay.throttle_field import after_topics_of_produce
from kquota.wire.primitives import COMPACT_NULL, NULL_STRING, compact_length, compact_text, length, text, uvarint

__all__ = [
    "NODE_ENDPOINTS_SINCE",
    "NO_NODE_ENDPOINTS",
    "Rewrite",
    "may_have_node_endpoints",
    "rewrite_coordinators",
    "rewrite_head",
    "rewrite_produce",
]

Rewrite = Callable[[int, str, int], tuple[str, int] | None]
"""Node id, host, port: the host and the port at the gateway for that node, or None where it has none."""

NODE_ENDPOINTS_SINCE: Final = 10
"""The version of Produce since which a response may have addresses of brokers (KIP-951)."""
NO_NODE_ENDPOINTS: Final = bytes(4)
"""How a response ends that has none, and no throttle time; see :func:`may_have_node_endpoints`."""
MAX_HEAD_BYTES: Final = 1024 * 1024
MAX_BROKERS: Final = 10_000

_METADATA: Final = 3
_CONTROLLERS: Final = 2  # endpoint type
_COORDINATOR_NOT_AVAILABLE: Final = 15
_NODE_ENDPOINTS: Final = 0  # tag


class _Address(NamedTuple):
    """Node id, host and port as they are at `start` to `end`."""

    start: int
    end: int
    node_id: int
    host: str
    port: int

    def written(self, data: bytes, action: Action, rewrite: Rewrite) -> bytes | None:
        """The bytes of it with the gateway's host and port, None where it has none.

        Nobody, which is node -1 without host and port, stays nobody.
        """
        old = (self.host, self.port)
        new = old if self.node_id == -1 and old == ("", -1) else rewrite(self.node_id, *old)
        if new == old:
            return data[self.start : self.end]
        return None if new is None else _written(self.node_id, *new, action)


def _written(node_id: int, host: str, port: int, action: Action) -> bytes:
    written_host = compact_text(host) if action.is_flexible else text(host)
    return node_id.to_bytes(4, "big", signed=True) + written_host + port.to_bytes(4, "big", signed=True)


class _Listed(NamedTuple):
    """An element of a list, with what follows the address in it until `end`."""

    address: _Address
    end: int


def rewrite_head(action: Action, buffer: bytes, rewrite: Rewrite) -> tuple[bytes, int] | None:
    """The beginning of a response of Metadata or DescribeCluster with the gateway's addresses in it.

    Brokers for which `rewrite` has none are left out, and all controllers, which cannot be reached through the gateway
    (DescribeCluster, endpoint type 2).

    :param buffer: the beginning of the frame, with its size; what follows the frame is not looked at.
    :returns: the new beginning, with the new size of the frame, and how many bytes of `buffer` it replaces. None: the
        list of brokers does not end in `buffer`.
    :raises MalformedMessageError: these bytes are no such response, or the list ends after more than 1 MiB, or has more
        than 10,000 brokers.
    """
    frame_end = None
    try:
        frame_end = announced_end(buffer)
        at, is_of_controllers = _list_of_brokers(buffer, action)
        brokers, end = _read_list(buffer, at, action, _after_broker)
    except IndexError:
        end = len(buffer)
        if frame_end is not None and frame_end <= end:
            raise _too_short(action) from None
        if end > MAX_HEAD_BYTES:
            raise _too_long(action) from None
        return None
    if end > frame_end:
        raise _too_short(action)
    if end > MAX_HEAD_BYTES:
        raise _too_long(action)
    new = _written_list(buffer, () if is_of_controllers else brokers, action, rewrite)
    return b"".join((length(frame_end - 4 + at + len(new) - end), buffer[4:at], new)), end


def _too_short(action: Action) -> MalformedMessageError:
    return MalformedMessageError(f"a response of {action.name} ends too early")


def _too_long(action: Action) -> MalformedMessageError:
    return MalformedMessageError(f"the brokers in a response of {action.name} take more than {MAX_HEAD_BYTES} bytes")


def _list_of_brokers(buffer: bytes, action: Action) -> tuple[int, bool]:
    """Where the list is, and whether it is one of controllers."""
    at = after_header(buffer, action)
    if action.has_throttle:
        at = forward(buffer, at, 4)
    if action.api_key == _METADATA:
        return at, False
    at = after_text(buffer, forward(buffer, at, 2), is_compact=True)  # error code and message
    is_of_controllers = action.version >= 1 and buffer[at] == _CONTROLLERS
    at = after_text(buffer, at + (action.version >= 1), is_compact=True)  # cluster id
    return forward(buffer, at, 4), is_of_controllers  # controller id


def _after_broker(data: bytes, at: int, action: Action) -> int:
    if action.version >= 1 or action.api_key != _METADATA:
        at = after_text(data, at, is_compact=action.is_flexible)  # rack
    if action.version >= 2 and action.api_key != _METADATA:
        at = forward(data, at, 1)  # is fenced
    return after_tags(data, at) if action.is_flexible else at


def _read_list(
    data: bytes, at: int, action: Action, after_rest: Callable[[bytes, int, Action], int]
) -> tuple[list[_Listed], int]:
    """The elements of a list that each begin with an address, and where it ends."""
    count, at = read_count(data, at, is_compact=action.is_flexible)
    if not 0 <= count <= MAX_BROKERS:
        raise MalformedMessageError(f"a response of {action.name} with {count} brokers, {MAX_BROKERS} are the most")
    listed = []
    for _ in range(count):
        address = _read_address(data, at, action)
        at = after_rest(data, address.end, action)
        listed.append(_Listed(address, at))
    return listed, at


def _read_address(data: bytes, at: int, action: Action) -> _Address:
    host, end = read_text(data, at + 4, is_compact=action.is_flexible)
    return _Address(at, end + 4, read_i32(data, at), host, read_i32(data, end))


def _written_list(data: bytes, listed: Iterable[_Listed], action: Action, rewrite: Rewrite) -> bytes:
    parts = [b""]
    for address, end in listed:
        new = address.written(data, action, rewrite)
        if new is not None:
            parts += (new, data[address.end : end])
    count = len(parts) // 2
    parts[0] = compact_length(count) if action.is_flexible else length(count)
    return b"".join(parts)


def rewrite_coordinators(action: Action, frame: bytes, rewrite: Rewrite) -> bytes:
    """A response of FindCoordinator with the gateway's addresses; of one that has none, COORDINATOR_NOT_AVAILABLE.

    :param frame: with its size, as is what is returned.
    :raises MalformedMessageError: these bytes are no such response.
    """
    try:
        coordinators = _coordinators_in(frame, action)
    except IndexError:
        raise _too_short(action) from None
    parts: list[bytes] = []
    at = 4
    for coordinator in coordinators:
        parts += (frame[at : coordinator.start], coordinator.written(frame, action, rewrite))
        at = coordinator.end
    parts.append(frame[at:])
    return length(sum(map(len, parts))) + b"".join(parts)


class _Coordinator(NamedTuple):
    """An address and an error at `start` to `end`, whichever comes first."""

    start: int
    end: int
    address: _Address
    error_at: int
    error_end: int

    def written(self, frame: bytes, action: Action, rewrite: Rewrite) -> bytes:
        address = self.address.written(frame, action, rewrite)
        error = frame[self.error_at : self.error_end]
        if address is None:
            address = _written(-1, "", -1, action)
            if error[:2] == b"\0\0":
                no_message = COMPACT_NULL if action.is_flexible else NULL_STRING
                error = _COORDINATOR_NOT_AVAILABLE.to_bytes(2, "big") + (no_message if action.version >= 1 else b"")
        return error + address if self.error_at < self.address.start else address + error


def _coordinators_in(frame: bytes, action: Action) -> list[_Coordinator]:
    at = after_header(frame, action)
    if action.has_throttle:
        at = forward(frame, at, 4)
    if action.version < 4:  # one, with the error first
        error_end = _after_error(frame, at, action)
        address = _read_address(frame, error_end, action)
        return [_Coordinator(at, address.end, address, at, error_end)]
    count, at = read_count(frame, at, is_compact=True)
    coordinators = []
    for _ in range(count):
        at = after_text(frame, at, is_compact=True)  # key
        address = _read_address(frame, at, action)
        end = _after_error(frame, address.end, action)
        coordinators.append(_Coordinator(at, end, address, address.end, end))
        at = after_tags(frame, end)
    return coordinators


def _after_error(frame: bytes, at: int, action: Action) -> int:
    at = forward(frame, at, 2)
    return after_text(frame, at, is_compact=action.is_flexible) if action.version >= 1 else at


def may_have_node_endpoints(action: Action, frame: bytes) -> bool:
    """Whether a response of Produce may end with addresses of brokers (KIP-951). False only where it does not.

    Their last bytes would be those of a port, a rack and a count of tags. A port is never 0, and no rack ends with NUL
    characters: where the last four bytes are 0, they are of a throttle time and an empty tag section. Tagged fields
    that Kafka does not have yet are not thought of.
    """
    return action.version >= NODE_ENDPOINTS_SINCE and not frame.endswith(NO_NODE_ENDPOINTS)


def rewrite_produce(action: Action, frame: bytes, rewrite: Rewrite) -> bytes:
    """A response of Produce with the gateway's addresses in its tagged field NodeEndpoints (KIP-951).

    Those for which `rewrite` has none are left out; with the last of them, the field is. Clients then ask for metadata.

    :param frame: with its size, as is what is returned: the very same where it has no addresses.
    :raises MalformedMessageError: these bytes are no such response.
    """
    if not may_have_node_endpoints(action, frame):
        return frame
    try:
        fields, start, end = _tagged_fields(frame, action)
        endpoints = [_node_endpoints(raw, action) if tag == _NODE_ENDPOINTS else [] for tag, raw in fields]
    except IndexError:
        raise _too_short(action) from None
    if not any(endpoints):
        return frame
    kept = []
    for (tag, raw), listed in zip(fields, endpoints, strict=True):
        new = _written_list(raw, listed, action, rewrite) if listed else raw
        if not listed or new != compact_length(0):
            kept.append(uvarint(tag) + uvarint(len(new)) + new)
    tags = uvarint(len(kept)) + b"".join(kept)
    return b"".join((length(start - 4 + len(tags) + len(frame) - end), frame[4:start], tags, frame[end:]))


def _tagged_fields(frame: bytes, action: Action) -> tuple[list[tuple[int, bytes]], int, int]:
    """The tagged fields of the response itself, and where their section begins and ends."""
    at = after_topics_of_produce(frame, after_header(frame, action), action.version)
    start = forward(frame, at, 4)  # throttle time
    end = after_tags(frame, start)
    count, at = read_uvarint(frame, start)
    fields = []
    for _ in range(count):
        tag, at = read_uvarint(frame, at)
        size, at = read_uvarint(frame, at)
        fields.append((tag & 0xFFFFFFFF, frame[at : at + size]))
        at += size
    return fields, start, end


def _node_endpoints(raw: bytes, action: Action) -> list[_Listed]:
    listed, end = _read_list(raw, 0, action, _after_node_endpoint)
    if end != len(raw):
        raise MalformedMessageError("the addresses in a response of Produce do not end with their field")
    return listed


def _after_node_endpoint(data: bytes, at: int, _action: Action) -> int:
    return after_tags(data, after_text(data, at, is_compact=True))  # rack
