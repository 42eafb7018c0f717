"""A thousand random requests to a quota server, or as many as asked for: valid and invalid, of every class.

Pure: the same seed gives the same bytes. Every class comes equally often, in an order that is random, and so none is
left out of as many requests as there are classes. Names are few, so that requests meet what earlier ones have set.

Left out are errors whose message would have more than 32,767 bytes (a real broker never answers those, ours cuts the
message), scopes of IPv6 addresses that name an interface (what is legal depends on the machine), and APIs other than
those for quotas. Names that are too long to be sent back come only where they are asked for: a real broker that has
taken one describes nothing any more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from tests.kit import alter_requests, broken_requests, describe_requests
from tests.kit.request_parts import Maker, Parts, own_limits

__all__ = ["CLASSES", "LONG_NAME_CLASSES", "OWN_LIMITS", "QuotaRequest", "quota_requests"]

_MAKERS: Final[Mapping[str, Maker]] = {
    **alter_requests.MAKERS,
    **alter_requests.LONG_NAME_MAKERS,
    **describe_requests.MAKERS,
    **broken_requests.MAKERS,
}
LONG_NAME_CLASSES: Final = tuple(alter_requests.LONG_NAME_MAKERS)
CLASSES: Final = tuple(kind for kind in _MAKERS if kind not in LONG_NAME_CLASSES)
OWN_LIMITS: Final = "own limits"
"""The class of the very first request: it sees to it that no later one slows the connection."""


@dataclass(frozen=True, slots=True)
class QuotaRequest:
    """A request as it is sent, the size included. Its correlation id is its number, unless it is no request at all."""

    number: int
    kind: str
    api_key: int
    version: int
    frame: bytes


def quota_requests(count: int, seed: int, classes: Sequence[str] = CLASSES) -> Iterator[QuotaRequest]:
    """`count` requests of `classes`, after one that gives whoever sends them limits of their own."""
    first = own_limits()
    yield QuotaRequest(0, OWN_LIMITS, first.api_key, first.version, first.frame(0))
    random = Random(seed)
    parts = Parts(random)
    number = 0
    while True:
        for kind in random.sample(classes, len(classes)):
            for made in _MAKERS[kind](parts):
                if number == count:
                    return
                number += 1
                yield QuotaRequest(number, kind, made.api_key, made.version, made.frame(number))
