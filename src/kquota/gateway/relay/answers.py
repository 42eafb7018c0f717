"""Answers that are not passed on as the broker sent them: with the gateway's addresses, and a time to wait."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kquota.errors import FrameSizeError, MalformedMessageError
from kquota.gateway.relay.actions import Action, Kind
from kquota.gateway.relay.broker_addresses import Rewrite, rewrite_coordinators, rewrite_head, rewrite_produce
from kquota.gateway.relay.throttle_field import write_throttle

if TYPE_CHECKING:
    from kquota.gateway.relay.client_connection import ClientConnection
    from kquota.gateway.relay.request_head import Expected

__all__ = ["answer_with_brokers", "throttled", "whole_answer"]

MAX_REWRITTEN_BYTES: Final = 2**30
"""The largest answer with a list of brokers: with the gateway's addresses its size still has to fit 32 bits."""


def answer_with_brokers(
    action: Action, data: bytes, at: int, total: int, address_of: Rewrite
) -> tuple[bytes, int] | None:
    """The head of an answer of Metadata or DescribeCluster with the gateway's addresses.

    :param data: has the answer from `at` on, of which there are `total` bytes, its size included.
    :returns: the new head, and how many bytes it replaces; None while too little is there.
    :raises FrameSizeError: the answer is too large.
    :raises MalformedMessageError: it is no such answer.
    """
    if total > MAX_REWRITTEN_BYTES:
        raise FrameSizeError(total - 4, MAX_REWRITTEN_BYTES, bytes(data[at : at + 16]))
    found = rewrite_head(action, bytes(memoryview(data)[at : at + total]), address_of)
    if found is None and len(data) - at >= total:
        raise MalformedMessageError(f"an answer to {action.name} ends within its list of brokers")
    return found


def whole_answer(client: ClientConnection, one: Expected, frame: bytearray, address_of: Rewrite) -> bytearray:
    """An answer that was read whole, as its client is to get it; both with their size.

    :raises MalformedMessageError: it is no such answer.
    """
    action = one[1].action
    if action.kind is Kind.COORDINATOR:
        frame = bytearray(rewrite_coordinators(action, bytes(frame), address_of))
    elif action.kind is Kind.PRODUCE:
        frame = bytearray(rewrite_produce(action, bytes(frame), address_of))
    return throttled(client, one, frame)


def throttled(client: ClientConnection, one: Expected, frame: bytearray) -> bytearray:
    """An answer, or its beginning, with the time that its client has to wait; the client is muted, if it is to be."""
    enforcement = client.enforcement
    _, head, sent_ms, throttle = one
    throttle_ms = 0
    if enforcement.estimates_time and head.client is not None:
        throttle_ms = enforcement.complete(one, client.now_ms)
        if throttle_ms > 0:
            client.mute(throttle_ms, client.now_ms)
    elif throttle is not None:
        throttle_ms = throttle.throttle_ms - (client.now_ms - sent_ms)
    if throttle_ms > 0:
        write_throttle(frame, head.action, throttle_ms)
    return frame
