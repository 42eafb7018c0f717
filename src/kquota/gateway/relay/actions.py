"""What the gateway does with each version of each API that it forwards, and where its throttle time is.

What is not in :data:`ACTIONS` is refused, and taken out of what brokers answer to ApiVersions: APIs of brokers and
controllers, versions that this table does not know yet, Fetch after version 15, and ShareFetch and ShareAcknowledge
(their answers may carry addresses of brokers).

Source: Kafka's message definitions (``clients/src/main/resources/common/message``), by way of
:mod:`kquota.gateway.relay.action_table`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from types import MappingProxyType
from typing import Final

from kquota.gateway.relay.action_table import ROWS, Row

__all__ = ["ACTIONS", "Action", "Kind"]

_SIZE_AND_CORRELATION_ID: Final = 8


class Kind(Enum):
    """What the gateway does with a request and its answer, beyond the throttle time."""

    PASS = auto()
    PRODUCE = auto()
    FETCH = auto()
    SASL_HANDSHAKE = auto()
    SASL_AUTHENTICATE = auto()
    API_VERSIONS = auto()
    BROKERS = auto()
    """Metadata, DescribeCluster: the answer has a list of brokers at its head."""
    COORDINATOR = auto()
    """FindCoordinator: the answer has addresses of brokers anywhere."""
    MUTATION = auto()
    """CreateTopics, CreatePartitions, DeleteTopics: what ``controller_mutation_rate`` is about (KIP-599)."""
    QUOTAS = auto()
    """What the gateway may answer itself: DescribeClientQuotas, AlterClientQuotas, DescribeUserScramCredentials and
    kquota's ResolveQuotas."""


_KINDS: Final = {
    0: Kind.PRODUCE,
    1: Kind.FETCH,
    3: Kind.BROKERS,
    10: Kind.COORDINATOR,
    17: Kind.SASL_HANDSHAKE,
    18: Kind.API_VERSIONS,
    19: Kind.MUTATION,
    20: Kind.MUTATION,
    36: Kind.SASL_AUTHENTICATE,
    37: Kind.MUTATION,
    48: Kind.QUOTAS,
    49: Kind.QUOTAS,
    50: Kind.QUOTAS,
    60: Kind.BROKERS,
    10546: Kind.QUOTAS,
}


@dataclass(frozen=True, slots=True)
class Action:
    """One version of one API. Offsets count from the first of the 4 size bytes of a frame.

    `is_flexible` is about the body, and the request's header, which then ends with a tag section (KIP-482).
    `body_at` is where the body of a response begins: after a tag section of one byte, where `has_tagged_header`, which
    is right as long as that section is empty. `throttle_at` is the offset of ``throttle_time_ms`` under the same
    condition, None where there is no such field or none at a fixed place. `has_throttle` is true in the latter case too
    (Produce, ApiVersions, delegation tokens).
    """

    api_key: int
    version: int
    name: str
    kind: Kind
    is_flexible: bool
    has_tagged_header: bool
    body_at: int
    throttle_at: int | None
    has_throttle: bool


def _is_since(version: int, since: int | None) -> bool:
    return since is not None and version >= since


def _actions_of(row: Row) -> Iterator[Action]:
    key, name, first, last, flexible_since, tagged_header_since, throttle_since, throttle_place = row
    for version in range(first, last + 1):
        has_tagged_header = _is_since(version, tagged_header_since)
        body_at = _SIZE_AND_CORRELATION_ID + has_tagged_header
        has_throttle = _is_since(version, throttle_since)
        offset = {"first": 0, "after error code": 2, "last": None}[throttle_place]
        yield Action(
            api_key=key,
            version=version,
            name=name,
            kind=_KINDS.get(key, Kind.PASS),
            is_flexible=_is_since(version, flexible_since),
            has_tagged_header=has_tagged_header,
            body_at=body_at,
            throttle_at=body_at + offset if has_throttle and offset is not None else None,
            has_throttle=has_throttle,
        )


ACTIONS: Final[Mapping[int, Action]] = MappingProxyType(
    {action.api_key << 16 | action.version: action for row in ROWS for action in _actions_of(row)}
)
"""By ``api_key << 16 | version``: the first four bytes of a request, after its size, as one number."""
