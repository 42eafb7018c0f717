"""How the series of other systems are read: a file of rules, in TOML.

::

    [[metric]]
    name = "redpanda_kafka_quotas_client_quota_throughput_by_entity"
    is = "total"
    key_label = "redpanda_quota_type"
    keys = { produce_quota = "producer_byte_rate", fetch_quota = "consumer_byte_rate" }
    user_label = "redpanda_quota_user"
    client_id_label = "redpanda_quota_client_id"
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from enum import IntEnum
from typing import Final, Literal

import msgspec
from msgspec import Struct, field

from kquota.errors import InputError
from kquota.quotas import KAFKA

__all__ = ["MetricRule", "Reading", "parse_metric_rules"]


class Reading(IntEnum):
    """What the values of a series are."""

    RATE = 0
    """Used per second, just now."""
    TOTAL = 1
    """Used since a start: it grows."""
    THROTTLE_TIME = 2
    """The average of recent throttle times in ms, NaN without any."""
    THROTTLE_TOTAL = 3
    """Throttle times since a start, summed, in ms."""


_READINGS: Final = {
    "rate": Reading.RATE,
    "total": Reading.TOTAL,
    "throttle-time": Reading.THROTTLE_TIME,
    "throttle-total": Reading.THROTTLE_TOTAL,
}


class MetricRule(Struct, frozen=True, forbid_unknown_fields=True, rename={"is_": "is"}):
    """How series of one name are read; `key`, or `key_label` with `keys`, says the quota."""

    name: str
    is_: Literal["rate", "total", "throttle-time", "throttle-total"]
    key: str | None = None
    key_label: str | None = None
    keys: dict[str, str] = field(default_factory=dict)
    user_label: str = "user"
    client_id_label: str = "client_id"
    ip_label: str = "ip"
    user_is_encoded: bool = False
    leave_out_where: list[str] = field(default_factory=list)
    """Series with any of these labels are of meters that Kafka's quotas do not have."""

    @property
    def reading(self) -> Reading:
        """What the values are."""
        return _READINGS[self.is_]

    @property
    def series_names(self) -> tuple[str, ...]:
        """OpenMetrics appends a word to the names of what grows."""
        grows = self.reading in (Reading.TOTAL, Reading.THROTTLE_TOTAL)
        return (self.name, f"{self.name}_total") if grows else (self.name,)

    @property
    def own_labels(self) -> frozenset[str]:
        """The labels that are read; others do not identify a meter."""
        named = {self.user_label, self.client_id_label, self.ip_label, *self.leave_out_where}
        return frozenset(named | {self.key_label} if self.key_label is not None else named)


class _Mapping(Struct, forbid_unknown_fields=True):
    metric: list[MetricRule]


def parse_metric_rules(text: str, *, name: str) -> Sequence[MetricRule]:
    """Read the rules of a mapping file.

    :param name: of the file, for messages.
    :raises InputError: it is not TOML, or a rule cannot be used.
    """
    try:
        found = msgspec.convert(tomllib.loads(text), _Mapping)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{name}: this is not TOML: {error}") from None
    except msgspec.ValidationError as error:
        raise InputError(f"{name}: {error}: a rule is [[metric]] with name, is, and key or key_label, keys") from None
    known = {key.name for key in KAFKA.keys}
    for rule in found.metric:
        if (rule.key is None) == (rule.key_label is None) or (rule.key_label is None) != (not rule.keys):
            raise InputError(f"{name}: {rule.name}: give either key, or key_label and keys")
        wrong = sorted({rule.key, *rule.keys.values()} - known - {None}, key=str)
        if wrong:
            raise InputError(f"{name}: {rule.name}: {wrong[0]} is no quota: give one of {', '.join(sorted(known))}")
    return found.metric
