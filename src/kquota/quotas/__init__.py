"""What quotas are: entities, filters, keys, alterations, ``decide``, ``resolve``. Pure: no I/O, no clock.

A *snapshot* is ``Mapping[ClientQuotaEntity, Mapping[str, float]]``. From there:

- ``describe(snapshot, filter)`` selects, ``decide(snapshot, alterations)`` says what a change would do,
  ``QuotaResolver(snapshot).resolve(user, client_id)`` says what binds a client and why.
- An entity is where a limit is *set*; a ``MeterKey`` is what usage is *counted against*. They never mix.
"""

from kquota.quotas.address import canonical_ip, host_address, is_literal_ip
from kquota.quotas.alteration import ClientQuotaAlteration
from kquota.quotas.decision import (
    MAX_CHANGES_PER_REQUEST,
    MAX_NAME_BYTES,
    Decision,
    QuotaChange,
    apply_changes,
    decide,
    is_same_value,
)
from kquota.quotas.entity import CLIENT_ID, IP, USER, ClientQuotaEntity, QuotaSnapshot
from kquota.quotas.filter import ClientQuotaFilter, ClientQuotaFilterComponent, MatchType, describe
from kquota.quotas.index import QuotaIndex
from kquota.quotas.meter import MeterKey
from kquota.quotas.model import (
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    KAFKA,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    QuotaKey,
    QuotaModel,
    ValueType,
)
from kquota.quotas.quantity import format_number, parse_quantity
from kquota.quotas.resolver import STATIC, STATIC_LEVEL, Candidate, QuotaResolver, ResolvedQuota, StaticSource
from kquota.quotas.sanitizer import desanitize, jmx_sanitize, sanitize

__all__ = [
    "CLIENT_ID",
    "CONNECTION_CREATION_RATE",
    "CONSUMER_BYTE_RATE",
    "CONTROLLER_MUTATION_RATE",
    "IP",
    "KAFKA",
    "MAX_CHANGES_PER_REQUEST",
    "MAX_NAME_BYTES",
    "PRODUCER_BYTE_RATE",
    "REQUEST_PERCENTAGE",
    "STATIC",
    "STATIC_LEVEL",
    "USER",
    "Candidate",
    "ClientQuotaAlteration",
    "ClientQuotaEntity",
    "ClientQuotaFilter",
    "ClientQuotaFilterComponent",
    "Decision",
    "MatchType",
    "MeterKey",
    "QuotaChange",
    "QuotaIndex",
    "QuotaKey",
    "QuotaModel",
    "QuotaResolver",
    "QuotaSnapshot",
    "ResolvedQuota",
    "StaticSource",
    "ValueType",
    "apply_changes",
    "canonical_ip",
    "decide",
    "desanitize",
    "describe",
    "format_number",
    "host_address",
    "is_literal_ip",
    "is_same_value",
    "jmx_sanitize",
    "parse_quantity",
    "sanitize",
]
