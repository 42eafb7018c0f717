"""What a broker's metrics say about client quotas: which series are usage or throttle times, and of which meter.

The MBeans are Kafka's (``ClientQuotaManager``, ``ConnectionQuotas``); exporters write them to Prometheus in five
dialects: names differ in letters' case, dashes and underscores, and in the place of the kind of request. Series of
other systems are recognised by a :class:`~kquota.pipeline.ingest.metrics.mapping.MetricRule`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from kquota.errors import IllegalArgumentError
from kquota.pipeline.ingest.metrics.mapping import MetricRule, Reading
from kquota.pipeline.ingest.metrics.mbean_names import MBean, jmx_unquote
from kquota.pipeline.ingest.request_log.line import RejectedLineError
from kquota.quotas import (
    CLIENT_ID,
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    IP,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    USER,
    desanitize,
    jmx_sanitize,
)

__all__ = ["NotUsage", "NotUsageError", "QuotaSeries", "SeriesNames", "series_of_mbean"]


class QuotaSeries(NamedTuple):
    """A series of usage or of throttle times, and the meter that it is of.

    `user` and `client_id` are raw names; None is not known: a meter of a user alone adds up all client ids that have
    no narrower rule. `grain` says it in a word: client, user, client-id, and meter for an address.
    """

    reading: Reading
    key: str
    grain: str
    user: str | None
    client_id: str | None
    ip: str | None = None


class NotUsage(IntEnum):
    """Why a series is no usage although it belongs to the quota metrics."""

    RELATED = 1
    """Queue sizes, tokens, limits and the like."""
    UNTAGGED = 2
    """Neither user nor client-id: a sum, or a meter of a callback's own."""
    FOREIGN_TAGS = 3
    """Tags that are not Kafka's own."""


class NotUsageError(Exception):
    """A series belongs to the quota metrics and is no usage."""

    def __init__(self, why: NotUsage) -> None:
        super().__init__(why.name)
        self.why = why


class _Meaning(NamedTuple):
    reading: Reading
    key: str


_GROUPS: Final = {
    "produce": (PRODUCER_BYTE_RATE, "byterate"),
    "fetch": (CONSUMER_BYTE_RATE, "byterate"),
    "request": (REQUEST_PERCENTAGE, "requesttime"),
    "controllermutation": (CONTROLLER_MUTATION_RATE, "mutationrate"),
}
_MEANINGS: Final = {
    **{(group, usage): _Meaning(Reading.RATE, key) for group, (key, usage) in _GROUPS.items()},
    **{(group, "throttletime"): _Meaning(Reading.THROTTLE_TIME, key) for group, (key, _) in _GROUPS.items()},
    ("socketservermetrics", "connectionacceptrate"): _Meaning(Reading.RATE, CONNECTION_CREATION_RATE),
}
"""By type of MBean and attribute, folded."""
_RELATED: Final = {
    *((group, name) for group in _GROUPS for name in ("queuesize", "quotalimit", "quotautilization", "tokens")),
    ("request", "exemptrequesttime"),
    ("request", "exemptthrottletime"),
    *(
        ("socketservermetrics", name)
        for name in (
            "brokerconnectionacceptrate",
            "connectionacceptthrottletime",
            "ipconnectionacceptthrottletime",
            "quotalimit",
        )
    ),
}
_PREFIX: Final = "kafkaserver"
_SERIES: Final = {_PREFIX + group + attribute: (group, attribute) for group, attribute in [*_MEANINGS, *_RELATED]}
_BY_RESOURCE: Final = {f"{_PREFIX}quota{attribute}": attribute for _, attribute in [*_MEANINGS, *_RELATED]}
"""The name has no kind of request; the label `resource` has it."""

_USER_LABELS: Final = ("user", "principal")
_CLIENT_LABELS: Final = ("clientid",)
_OWN_LABELS: Final = frozenset({"resource", "listener", IP, *_USER_LABELS, *_CLIENT_LABELS})
"""Folded: the labels that are read; others do not identify a meter."""


def _folded(name: str) -> str:
    return name.replace("_", "").replace("-", "").lower()


def series_of_mbean(bean: MBean, attribute: str) -> QuotaSeries | None:
    """What an attribute of an MBean is; None where it is none of a quota.

    :raises NotUsageError: it is a quota's, and no usage.
    :raises RejectedLineError: the user is not encoded as Kafka does.
    """
    if bean.domain != "kafka.server":
        return None
    found = _folded(bean.type), _folded(attribute)
    if found in _RELATED:
        raise NotUsageError(NotUsage.RELATED)
    meaning = _MEANINGS.get(found)
    if meaning is None:
        return None
    if meaning.key == CONNECTION_CREATION_RATE:
        return _of_address(meaning, bean.tags.get(IP))
    if not bean.tags.keys() <= {USER, CLIENT_ID}:
        raise NotUsageError(NotUsage.FOREIGN_TAGS)
    user = _decoded(bean.tags.get(USER, ""))
    client_id = bean.tags.get(CLIENT_ID, "")
    # Kafka leaves out a tag that is empty: without tags it is the meter of clients that send no client id.
    return _of_tags(meaning, user, client_id) or QuotaSeries(*meaning, CLIENT_ID, None, "")


class SeriesNames:
    """Reads the names and labels of Prometheus' series, with the rules of a mapping before the built-in ones."""

    def __init__(self, rules: Sequence[MetricRule] = ()) -> None:
        self._rules: dict[str, list[MetricRule]] = {}
        for rule in rules:
            for name in rule.series_names:
                self._rules.setdefault(name, []).append(rule)

    def know(self, name: str) -> bool:
        """Whether series of this name may be of a quota, depending on their labels."""
        return name in self._rules or _folded(name) in _SERIES or _folded(name) in _BY_RESOURCE

    def read(self, labels: Mapping[str, str]) -> tuple[QuotaSeries, dict[str, str]] | None:
        """What a series is, and the labels that others gave it; None where it is none of a quota.

        :param labels: all of them, with `__name__`.
        :raises NotUsageError: it is a quota's, and no usage.
        :raises RejectedLineError: the user is not encoded as Kafka does.
        """
        name = labels["__name__"]
        for rule in self._rules.get(name, ()):
            series = _of_rule(rule, labels)
            own = rule.own_labels | {"__name__"}
            return series, {label: value for label, value in labels.items() if value and label not in own}
        by_fold = {_folded(label): value for label, value in labels.items() if value}
        group, attribute = _SERIES.get(_folded(name), ("", ""))
        if not group and (found := _BY_RESOURCE.get(_folded(name))):
            group, attribute = _folded(by_fold.get("resource", "")), found
        if (group, attribute) in _RELATED:
            raise NotUsageError(NotUsage.RELATED)
        meaning = _MEANINGS.get((group, attribute))
        if meaning is None:
            return None
        if meaning.key == CONNECTION_CREATION_RATE:
            series = _of_address(meaning, None if by_fold.get("listener") else _exported(by_fold.get(IP, "")))
        else:
            user = _decoded(_first(by_fold, _USER_LABELS))
            found_series = _of_tags(meaning, user, _exported(_first(by_fold, _CLIENT_LABELS)))
            if found_series is None:
                raise NotUsageError(NotUsage.UNTAGGED)
            series = found_series
        return series, {
            label: value
            for label, value in labels.items()
            if value and label != "__name__" and _folded(label) not in _OWN_LABELS
        }


def _of_rule(rule: MetricRule, labels: Mapping[str, str]) -> QuotaSeries:
    if any(labels.get(label) for label in rule.leave_out_where):
        raise NotUsageError(NotUsage.FOREIGN_TAGS)
    key = rule.key or rule.keys.get(labels.get(rule.key_label or "", ""))
    if key is None:
        raise NotUsageError(NotUsage.RELATED)
    meaning = _Meaning(rule.reading, key)
    if key == CONNECTION_CREATION_RATE:
        return _of_address(meaning, labels.get(rule.ip_label) or None)
    user = labels.get(rule.user_label, "")
    series = _of_tags(meaning, _decoded(user) if rule.user_is_encoded else user, labels.get(rule.client_id_label, ""))
    if series is None:
        raise NotUsageError(NotUsage.UNTAGGED)
    return series


def _of_tags(meaning: _Meaning, user: str, client_id: str) -> QuotaSeries | None:
    if user and client_id:
        return QuotaSeries(*meaning, "client", user, client_id)
    if user:
        return QuotaSeries(*meaning, USER, user, None)
    if client_id:
        return QuotaSeries(*meaning, CLIENT_ID, None, client_id)
    return None


def _of_address(meaning: _Meaning, ip: str | None) -> QuotaSeries:
    if not ip:  # of a listener, or of all
        raise NotUsageError(NotUsage.RELATED)
    return QuotaSeries(*meaning, "meter", None, None, ip)


def _first(labels: Mapping[str, str], names: Sequence[str]) -> str:
    return next((labels[name] for name in names if name in labels), "")


def _decoded(user: str) -> str:
    try:
        return desanitize(user)
    except IllegalArgumentError:
        raise RejectedLineError("the user is not URL-encoded, as Kafka encodes it") from None


def _exported(value: str) -> str:
    """A label's value without the quotes of an MBean's name, which some exporters leave on it."""
    plain = jmx_unquote(value)
    return plain if plain != value and jmx_sanitize(plain) == value else value
