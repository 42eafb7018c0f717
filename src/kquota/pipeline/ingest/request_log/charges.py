"""On which quota keys Kafka counts a logged request, and with how much.

Source: ``KafkaApis``, ``ControllerApis``, ``RequestHandlerHelper``, ``ClientRequestQuotaManager``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

from kquota.pipeline.ingest.request_log.cells import CELL_KEYS
from kquota.pipeline.ingest.request_log.charged_size import fetch_charge, produce_charge, share_fetch_charge
from kquota.pipeline.ingest.request_log.line import (
    CreatePartitionsLine,
    CreateTopicsLine,
    DeleteTopicsLine,
    FetchLine,
    FetchResponse,
    LogLine,
    OtherLine,
    ProduceLine,
    RejectedLineError,
    ShareFetchLine,
    ShareFetchResponse,
)

__all__ = [
    "CONSUMER",
    "FOLLOWER",
    "MUTATION",
    "NO_KEY",
    "PERCENTAGE",
    "PERCENT_SECONDS_PER_MS",
    "PRODUCER",
    "charge_requests",
]

PRODUCER, CONSUMER, PERCENTAGE = range(len(CELL_KEYS))
NO_KEY: Final = -1
"""An API that counts on no key of its own."""
MUTATION: Final = -2
"""Counts on controller_mutation_rate, with an amount that the line alone may not say."""
FOLLOWER: Final = -3
"""Replication, which no client quota counts."""

PERCENT_SECONDS_PER_MS: Final = 0.1
"""One thread busy for 10 ms is one per cent of a second."""

# Not counted on request_percentage: traffic between brokers and controllers; an envelope is counted as what is in it.
# Exempt produce (acks=0) and followers' fetches are recognised by their bodies.
EXEMPT_APIS: Final = frozenset({4, 5, 6, 7, 27, 52, 53, 54, 55, 56, 58, 59, 80, 81, 82})


def charge_requests(requests: Sequence[LogLine]) -> list[tuple[int, float, bool]]:
    """What requests count on besides the request percentage, with how much, and whether they count on that.

    :returns: by request: position in :data:`CELL_KEYS`, or one of :data:`NO_KEY`, :data:`MUTATION` and
        :data:`FOLLOWER`; bytes (NaN where the line does not say); and whether its time counts on request_percentage.
    :raises RejectedLineError: a body lacks a size.
    """
    try:
        return [_CHARGES[request.__class__](request) for request in requests]
    except ValueError as error:
        raise RejectedLineError(f"not the request that Kafka logs: {error}") from None


def _of_produce(line: ProduceLine) -> tuple[int, float, bool]:
    header, request = line.requestHeader, line.request
    return PRODUCER, produce_charge(request, header.requestApiVersion, header.clientId), request.acks != 0


def _of_fetch(line: FetchLine) -> tuple[int, float, bool]:
    if line.is_follower:
        return FOLLOWER, math.nan, False
    if line.throttleTimeMs:
        return CONSUMER, 0, True  # taken back: the client is sent an empty answer
    if line.response.__class__ is not FetchResponse:
        return CONSUMER, math.nan, True
    return CONSUMER, fetch_charge(line.response, line.requestHeader.requestApiVersion), True


def _of_share_fetch(line: ShareFetchLine) -> tuple[int, float, bool]:
    if line.throttleTimeMs:
        return CONSUMER, 0, True
    if not isinstance(line.response, ShareFetchResponse):
        return CONSUMER, math.nan, True
    return CONSUMER, share_fetch_charge(line.response, line.requestHeader.requestApiVersion), True


def _of_mutation(_line: LogLine) -> tuple[int, float, bool]:
    return MUTATION, math.nan, True


def _of_other(line: OtherLine) -> tuple[int, float, bool]:
    return NO_KEY, math.nan, line.requestHeader.requestApiKey not in EXEMPT_APIS


# By class, because this runs for every line.
_CHARGES: Final[dict[type[LogLine], Callable[[Any], tuple[int, float, bool]]]] = {
    ProduceLine: _of_produce,
    FetchLine: _of_fetch,
    ShareFetchLine: _of_share_fetch,
    CreateTopicsLine: _of_mutation,
    CreatePartitionsLine: _of_mutation,
    DeleteTopicsLine: _of_mutation,
    OtherLine: _of_other,
}
