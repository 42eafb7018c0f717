"""What may be said beside a request (the options of KIP-546 and KIP-599)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = [
    "AlterClientQuotasOptions",
    "CreatePartitionsOptions",
    "CreateTopicsOptions",
    "DeleteTopicsOptions",
    "DescribeClientQuotasOptions",
    "ResolveClientQuotasOptions",
    "TopicsOptions",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeClientQuotasOptions:
    """`timeout_ms`: by default the client's ``default.api.timeout.ms``."""

    timeout_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolveClientQuotasOptions:
    """Without `omit_overridden_values` each value also has those that it overrides.

    `static_defaults` are ``quota.producer.default`` and ``quota.consumer.default`` of the brokers, by quota key
    (``{"producer_byte_rate": 1048576.0}``). Kafka before 3.0 has them (KIP-55), and no request asks for them.
    """

    timeout_ms: int | None = None
    omit_overridden_values: bool = False
    static_defaults: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterClientQuotasOptions:
    """With `validate_only` nothing is changed, and the results are those that changing would have."""

    timeout_ms: int | None = None
    validate_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsOptions:
    """For all changes of topics.

    `retry_on_quota_violation` asks again, until the time is over, for the topics that a quota refused. `permissive`
    sends the newest versions from before KIP-599: with those a quota refuses nothing, and makes the client wait after
    it was done.
    """

    timeout_ms: int | None = None
    retry_on_quota_violation: bool = True
    permissive: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTopicsOptions(TopicsOptions):
    """With `validate_only` nothing is created. On clusters without ZooKeeper that counts on the quota all the same."""

    validate_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTopicsOptions(TopicsOptions):
    """Kafka has nothing more to say about deleting."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatePartitionsOptions(TopicsOptions):
    """With `validate_only` nothing is added. On clusters without ZooKeeper that counts on the quota all the same."""

    validate_only: bool = False
