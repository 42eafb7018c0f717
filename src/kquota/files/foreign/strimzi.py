"""Strimzi's resources: the quotas of a ``KafkaUser``, and the default quotas of users of a ``Kafka``.

Users that authenticate by TLS are called ``CN=<name>`` in Kafka, all others ``<name>``. The quotas plugin of Strimzi
(``type: strimzi`` of a ``Kafka``) is left out: it limits all clients of a broker together, but for some principals.
"""

from dataclasses import replace
from typing import Final

from kquota.files.checker import Fields, text_at
from kquota.files.foreign.resources import Resource, camel_case, inner, values_of
from kquota.files.nodes import Scalar
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


def read(found: list[Resource]) -> None:
    """The entries of all `found`, which must be of one cluster."""
    first: str | None = None
    for one in found:
        one.part.only(one.fields, _TOP_LEVEL)
        metadata = inner(one.fields, "metadata")
        cluster = _cluster(one, metadata)
        if cluster is not None:
            first = first or cluster.text
            if cluster.text != first:
                reason = (
                    f"this is of the cluster {cluster.text!r}, and others are of {first!r}: a file is of one cluster"
                )
                one.part.below("metadata").report(reason, at=cluster)
        if one.kind == "KafkaUser":
            _read_user(one, metadata)
        else:
            _read_defaults(one)


def _cluster(one: Resource, metadata: Fields) -> Scalar | None:
    is_user = one.kind == "KafkaUser"
    name = inner(metadata, "labels").get(_CLUSTER_LABEL) if is_user else metadata.get("name")
    return name.node if name is not None and isinstance(name.node, Scalar) else None


def _read_user(one: Resource, metadata: Fields) -> None:
    part, problems = one.part, one.part.checker.problems
    before = len(problems)
    part.below("metadata").required(metadata, "name")
    name = text_at(metadata, "name")
    spec = inner(one.fields, "spec", only=_SPEC_OF_USER)
    is_tls = _is_tls(inner(spec, "authentication"))
    values = values_of(inner(spec, "quotas", only=map(camel_case, _KEYS)), _KEYS)
    if len(problems) > before or name is None or not values:
        return
    entity = part.entity({USER: f"CN={name}" if is_tls else name})
    if entity is not None:
        part.add(entity, values)


def _is_tls(authentication: Fields) -> bool:
    kind = text_at(authentication, "type")
    if kind is not None and kind not in _IS_TLS:
        authentication["type"].report(
            f"there is no authentication {kind!r} (there are {', '.join(_IS_TLS)}), and what Kafka calls the user "
            "depends on it"
        )
    return _IS_TLS.get(kind or "", False)


def _read_defaults(one: Resource) -> None:
    """The default of all users, where Kafka's own quotas are used."""
    kafka = inner(inner(one.fields, "spec"), "kafka")
    quotas = inner(kafka, "quotas")
    if not quotas or not kafka["quotas"].required(quotas, "type"):
        return
    whole = kafka["quotas"]
    kind = text_at(quotas, "type")
    if kind == "strimzi":
        reason = (
            "not carried over: Strimzi's quotas plugin limits all clients of a broker together, but for its "
            "excludedPrincipals, and stops producers when disks are full; no quota of Kafka's does. Where it is used, "
            "Kafka's own quotas, those of KafkaUser included, limit nobody"
        )
        whole.leave_out(reason, at=whole.key)
        return
    if kind != "kafka":
        if kind is not None:
            whole.report(f"there is no type {kind!r} (there are kafka, strimzi)", at=quotas["type"].node)
        return
    problems = whole.checker.problems
    before = len(problems)
    whole.only(quotas, ("type", *map(camel_case, _KEYS)))
    values = values_of(quotas, _KEYS)
    place = replace(whole, node=whole.key or whole.node)
    entity = place.entity({USER: None})
    if len(problems) == before and entity is not None and values:
        place.add(entity, values)
