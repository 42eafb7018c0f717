"""On which quota keys Kafka counts a logged request, and with how much.

Source: ``KafkaApis``, ``ControllerApis``, ``RequestHandlerHelper``, ``ClientRequestQuotaManager``.
"""

from __future__ import annotations

from typing import Final

from kquota.pipeline.sources.cells import CELL_KEYS
from kquota.pipeline.sources.charged_size import fetch_charge, produce_charge, share_fetch_charge
from kquota.pipeline.sources.request_line import (
    FetchLine,
    FetchResponse,
    LogLine,
    OtherLine,
    ProduceLine,
    RejectedLineError,
    ShareFetchLine,
    ShareFetchResponse,
)

__all__ = ["CONSUMER", "PERCENTAGE", "PERCENT_SECONDS_PER_MS", "PRODUCER", "charge_of"]

PRODUCER, CONSUMER, PERCENTAGE = range(len(CELL_KEYS))

PERCENT_SECONDS_PER_MS: Final = 0.1
"""One thread busy for 10 ms is one per cent of a second."""

# Not counted on request_percentage: traffic between brokers and controllers; an envelope is counted as what is in it.
# Exempt produce (acks=0) and followers' fetches are told apart by their bodies.
EXEMPT_APIS: Final = frozenset({4, 5, 6, 7, 27, 52, 53, 54, 55, 56, 58, 59, 80, 81, 82})


def charge_of(request: LogLine) -> tuple[int | None, float | None, bool]:
    """What a client's request counts on besides the request percentage, with how much, and whether it counts on that.

    :returns: position in :data:`CELL_KEYS` (None for APIs without a byte rate), bytes (None where the line does not
        say), and whether its time counts on request_percentage.
    :raises RejectedLineError: the body lacks a size.
    """
    version = request.requestHeader.requestApiVersion
    try:
        match request:
            case ProduceLine():
                charged = produce_charge(request.request, version, request.requestHeader.clientId)
                return PRODUCER, charged, request.request.acks != 0
            case FetchLine() | ShareFetchLine() if request.throttleTimeMs:
                return CONSUMER, 0, True  # taken back: the client is sent an empty answer
            case FetchLine(response=FetchResponse() as response):
                return CONSUMER, fetch_charge(response, version), True
            case ShareFetchLine(response=ShareFetchResponse() as shared):
                return CONSUMER, share_fetch_charge(shared, version), True
            case FetchLine() | ShareFetchLine():
                return CONSUMER, None, True
            case OtherLine():
                return None, None, request.requestHeader.requestApiKey not in EXEMPT_APIS
            case _:
                return None, None, True
    except ValueError as error:
        raise RejectedLineError(f"not the request that Kafka logs: {error}") from None
