"""Strimzi's resources: the quotas of a ``KafkaUser``, and the default quotas of users of a ``Kafka``.

Users that authenticate by TLS are called ``CN=<name>`` in Kafka, all others ``<name>``. The quotas plugin of Strimzi
(``type: strimzi`` of a ``Kafka``) is left out: it limits all clients of a broker together, but for some principals.
"""

from collections.abc import Mapping
from typing import Final

from kquota.files.checker import Checker, Field
from kquota.files.foreign.resources import Resource, camel_case, inner, path, text_at, values_of
from kquota.files.nodes import Scalar
from kquota.files.quota_file import QuotaFileEntry
from kquota.quotas import CONSUMER_BYTE_RATE, CONTROLLER_MUTATION_RATE, PRODUCER_BYTE_RATE, REQUEST_PERCENTAGE, USER

__all__ = ["GROUP", "KINDS", "read"]

GROUP: Final = "kafka.strimzi.io"
KINDS: Final = ("KafkaUser", "Kafka")
_KEYS: Final = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE)
_TOP_LEVEL: Final = ("apiVersion", "kind", "metadata", "spec", "status")
_SPEC_OF_USER: Final = ("authentication", "authorization", "quotas", "template")
_IS_TLS: Final = {"tls": True, "tls-external": True, "scram-sha-512": False}
"""Whether a type of authentication makes the name of the certificate that of the user."""
_CLUSTER_LABEL: Final = "strimzi.io/cluster"


def read(found: list[Resource], checker: Checker) -> list[QuotaFileEntry]:
    """The entries of all `found`, which must be of one cluster."""
    entries: list[QuotaFileEntry | None] = []
    first: str | None = None
    for one in found:
        checker.only(one.fields, _TOP_LEVEL, one.where)
        metadata = inner(one.fields, "metadata", one.where, checker)
        cluster = _cluster(one, metadata, checker)
        if cluster is not None:
            first = first or cluster.text
            if cluster.text != first:
                reason = (
                    f"this is of the cluster {cluster.text!r}, and others are of {first!r}: a file is of one cluster"
                )
                checker.report(cluster, path(one.where, "metadata"), reason)
        entries.append(_user(one, metadata, checker) if one.kind == "KafkaUser" else _defaults(one, checker))
    return [entry for entry in entries if entry is not None]


def _cluster(one: Resource, metadata: Mapping[str, Field], checker: Checker) -> Scalar | None:
    if one.kind == "KafkaUser":
        metadata = inner(metadata, "labels", path(one.where, "metadata"), checker)
    name = metadata.get("name" if one.kind == "Kafka" else _CLUSTER_LABEL)
    return name.value if name is not None and isinstance(name.value, Scalar) else None


def _user(one: Resource, metadata: Mapping[str, Field], checker: Checker) -> QuotaFileEntry | None:
    before = len(checker.problems)
    checker.required(metadata, ("name",), one.node, path(one.where, "metadata"))
    name = text_at(metadata, "name", path(one.where, "metadata"), checker)
    where = path(one.where, "spec")
    spec = inner(one.fields, "spec", one.where, checker)
    checker.only(spec, _SPEC_OF_USER, where)
    is_tls = _is_tls(inner(spec, "authentication", where, checker), path(where, "authentication"), checker)
    quotas = inner(spec, "quotas", where, checker)
    values = _values(quotas, path(where, "quotas"), checker)
    if len(checker.problems) > before or name is None or not values:
        return None
    entity = checker.entity({USER: f"CN={name}" if is_tls else name}, one.node, one.where)
    return None if entity is None else checker.entry(entity, values, one.node, one.where)


def _is_tls(authentication: Mapping[str, Field], where: str, checker: Checker) -> bool:
    kind = text_at(authentication, "type", where, checker)
    if kind is not None and kind not in _IS_TLS:
        reason = (
            f"there is no authentication {kind!r} (there are {', '.join(_IS_TLS)}), and what Kafka calls the user "
            "depends on it"
        )
        checker.report(authentication["type"].value, path(where, "type"), reason)
    return _IS_TLS.get(kind or "", False)


def _defaults(one: Resource, checker: Checker) -> QuotaFileEntry | None:
    """The default of all users, where Kafka's own quotas are used."""
    spec = inner(one.fields, "spec", one.where, checker)
    kafka = inner(spec, "kafka", path(one.where, "spec"), checker)
    where = path(one.where, "spec.kafka.quotas")
    quotas = inner(kafka, "quotas", path(one.where, "spec.kafka"), checker)
    if not quotas or not checker.required(quotas, ("type",), kafka["quotas"].value, where):
        return None
    kind = text_at(quotas, "type", where, checker)
    if kind == "strimzi":
        reason = (
            "not carried over: Strimzi's quotas plugin limits all clients of a broker together, but for its "
            "excludedPrincipals, and stops producers when disks are full; no quota of Kafka's does. Where it is used, "
            "Kafka's own quotas, those of KafkaUser included, limit nobody"
        )
        checker.leave_out(kafka["quotas"].key, where, reason)
        return None
    if kind != "kafka":
        if kind is not None:
            checker.report(quotas["type"].value, where, f"there is no type {kind!r} (there are kafka, strimzi)")
        return None
    before = len(checker.problems)
    values = _values({name: field for name, field in quotas.items() if name != "type"}, where, checker)
    key = kafka["quotas"].key
    entity = checker.entity({USER: None}, key, where)
    if len(checker.problems) > before or entity is None or not values:
        return None
    return checker.entry(entity, values, key, where)


def _values(quotas: Mapping[str, Field], where: str, checker: Checker) -> dict[str, float]:
    checker.only(quotas, map(camel_case, _KEYS), where)
    return values_of(quotas, _KEYS, where, checker)
