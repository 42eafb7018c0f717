"""Quotas as other programs write them, for reading them back: written out here from their documentation and code."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from kquota.quotas import CLIENT_ID, IP, USER, QuotaSnapshot, format_number

__all__ = ["as_json", "as_list", "as_yaml", "described_today", "described_with_zookeeper", "jikkou", "rpk", "strimzi"]

_CAMEL = {
    "producer_byte_rate": "producerByteRate",
    "consumer_byte_rate": "consumerByteRate",
    "request_percentage": "requestPercentage",
    "controller_mutation_rate": "controllerMutationRate",
}
_LABELS = {USER: "user-principal", CLIENT_ID: "client-id", IP: "ip"}
_JIKKOU_TYPES = {
    (True, None): "USER",
    (False, None): "USERS_DEFAULT",
    (True, True): "USER_CLIENT",
    (True, False): "USER_ALL_CLIENTS",
    (None, True): "CLIENT",
    (None, False): "CLIENTS_DEFAULT",
}


def rpk(snapshot: QuotaSnapshot) -> dict[str, Any]:
    """``rpk cluster quotas describe``: parts sorted by type, a default called ``<default>``, values as text."""
    return {
        "quotas": [
            {
                "entity": [
                    {"name": "<default>" if name is None else name, "type": entity_type}
                    for entity_type, name in sorted(entity.entries.items())
                ],
                "values": [{"key": key, "values": format_number(value)} for key, value in values.items()],
            }
            for entity, values in snapshot.items()
        ]
    }


def strimzi(users: Mapping[str, tuple[str | None, Mapping[str, float]]]) -> list[dict[str, Any]]:
    """A ``KafkaUser`` for each name of a resource, with its type of authentication and its quotas."""
    return [
        {
            "apiVersion": "kafka.strimzi.io/v1beta2",
            "kind": "KafkaUser",
            "metadata": {"name": name, "labels": {"strimzi.io/cluster": "c"}},
            "spec": {
                **({} if authentication is None else {"authentication": {"type": authentication}}),
                "quotas": {_CAMEL[key]: _plain(value) for key, value in values.items()},
            },
        }
        for name, (authentication, values) in users.items()
    ]


def jikkou(snapshot: QuotaSnapshot) -> list[dict[str, Any]]:
    """A ``KafkaClientQuota`` for each entity."""
    found = []
    for entity, values in snapshot.items():
        entries = entity.entries
        user, client_id = (None if t not in entries else entries[t] is not None for t in (USER, CLIENT_ID))
        names = {field: entries[t] for t, field in ((USER, "user"), (CLIENT_ID, "clientId")) if entries.get(t)}
        found.append(
            {
                "apiVersion": "kafka.jikkou.io/v1beta2",
                "kind": "KafkaClientQuota",
                "metadata": {"labels": {}, "annotations": {}},
                "spec": {
                    "type": _JIKKOU_TYPES[user, client_id],
                    "entity": names,
                    "configs": {_CAMEL[key]: _plain(value) for key, value in values.items()},
                },
            }
        )
    return found


def described_today(snapshot: QuotaSnapshot) -> str:
    """``kafka-configs --bootstrap-server ... --describe``, since Kafka 2.7."""
    lines = []
    for entity, values in snapshot.items():
        parts = [
            f"the default {_LABELS[t]}" if entity.entries[t] is None else f"{_LABELS[t]} '{entity.entries[t]}'"
            for t in (USER, CLIENT_ID, IP)
            if t in entity.entries
        ]
        pairs = ", ".join(f"{key}={_java_text(value)}" for key, value in values.items())
        lines.append(f"Quota configs for {', '.join(parts)} are {pairs}\n")
    return "".join(lines)


def described_with_zookeeper(snapshot: QuotaSnapshot) -> str:
    """``kafka-configs --zookeeper ... --describe``: other words for defaults, whole numbers as such, no spaces."""
    lines = []
    for entity, values in snapshot.items():
        parts = [
            f"default {_LABELS[t]}" if entity.entries[t] is None else f"{_LABELS[t]} '{entity.entries[t]}'"
            for t in (USER, CLIENT_ID)
            if t in entity.entries
        ]
        pairs = ",".join(f"{key}={format_number(value)}" for key, value in values.items())
        lines.append(f"Configs for {', '.join(parts)} are {pairs}\n")
    return "".join(lines)


def _java_text(value: float) -> str:
    """``Double.toString``."""
    if not math.isfinite(value):
        return format_number(value)
    digits = f"{value!r}"
    if 1e-3 <= abs(value) < 1e7:
        return digits
    whole, _, fraction = format_number(value).partition(".")
    significant = (whole + fraction).lstrip("0")
    power = len(whole) - 1 if whole != "0" else -(len(fraction) - len(fraction.lstrip("0"))) - 1
    return f"{significant[0]}.{significant[1:].rstrip('0') or '0'}E{power}"


def _plain(value: float) -> int | float | str:
    """A number as resources have it."""
    if not math.isfinite(value):
        return format_number(value)
    return int(value) if value.is_integer() else value


def as_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def as_yaml(documents: Sequence[object]) -> str:
    """Documents as PyYAML writes them, which is not how we do."""
    # Everything beyond ASCII escaped: what PyYAML writes of a name with U+0085 is not read back by anyone otherwise.
    text: str = yaml.dump_all(documents, Dumper=getattr(yaml, "CSafeDumper", yaml.SafeDumper), sort_keys=False)
    return text


def as_list(resources: Sequence[object]) -> dict[str, Any]:
    """As ``kubectl get -o yaml`` has several."""
    return {"apiVersion": "v1", "kind": "List", "items": list(resources), "metadata": {"resourceVersion": ""}}
