"""Values of every message, and the same values for the codecs of others."""

import dataclasses
import importlib
import io
from datetime import timedelta
from functools import cache
from typing import Any, get_args, get_type_hints
from uuid import UUID

import msgspec
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

from kquota.wire import schema
from kquota.wire.apis import APIS, RESOLVE_CLIENT_QUOTAS, RESOLVE_QUOTAS, TOPIC_APIS, Api

EVERY_API = (*APIS.values(), *TOPIC_APIS, RESOLVE_CLIENT_QUOTAS)
KAFKAS_OWN = tuple(api for api in (*APIS.values(), *TOPIC_APIS) if api is not RESOLVE_QUOTAS)

_KIO_MODULES = {
    "ApiVersions": "api_versions",
    "Metadata": "metadata",
    "DescribeCluster": "describe_cluster",
    "DescribeClientQuotas": "describe_client_quotas",
    "AlterClientQuotas": "alter_client_quotas",
    "DescribeUserScramCredentials": "describe_user_scram_credentials",
    "CreateTopics": "create_topics",
    "DeleteTopics": "delete_topics",
    "CreatePartitions": "create_partitions",
}

# Around the places where a compact length grows by a byte.
texts = st.one_of(
    st.sampled_from(["user", "client-id", "producer_byte_rate", "", "<default>", "naïve", "日本語", "😀"]),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    st.integers(125, 130).map("x".__mul__),
)
# Times by the names that kio gives them.
_TIMES = {"throttle_time_ms": "throttle_time", "timeout_ms": "timeout"}
_KIO_TIMES = {theirs: ours for ours, theirs in _TIMES.items()}
_NUMBERS = {
    "b": st.integers(-(2**7), 2**7 - 1),
    "h": st.integers(-(2**15), 2**15 - 1),
    "i": st.integers(-(2**31), 2**31 - 1),
    "q": st.integers(-(2**63), 2**63 - 1),
    "d": st.floats(allow_nan=False),
    "?": st.booleans(),
    "16s": st.binary(min_size=16, max_size=16),
}


@cache
def values(message: type[msgspec.Struct], version: int) -> st.SearchStrategy[Any]:
    """Values of a message that the version can carry."""
    fields = {field.name: _value(field, version) for field in schema._fields_in(message, version)}
    return st.builds(message, **fields)


def _value(field: schema._Field, version: int) -> st.SearchStrategy[Any]:
    if field.name == "error_code":
        return st.sampled_from([0, 7, 29, 31, 35, 41, 42, 44, -1])
    if field.name in _TIMES:
        return st.integers(0, 2**31 - 1)
    plain = _of_kind(field.kind, version)
    return st.none() | plain if field.nullable else plain


def _of_kind(kind: Any, version: int) -> st.SearchStrategy[Any]:
    if isinstance(kind, list):
        return st.lists(_of_kind(kind[0], version), max_size=3)
    if isinstance(kind, type):
        return values(kind, version)
    return _NUMBERS[kind.letter] if isinstance(kind, schema._Fixed) else texts


def kio_class(api: Api, version: int, part: str) -> Any:
    """kio's class of a request or response."""
    module = importlib.import_module(f"kio.schema.{_KIO_MODULES[api.name]}.v{version}.{part}")
    return getattr(module, f"{api.name}{part.title()}")


def to_kio(value: msgspec.Struct, kind: Any) -> Any:
    """The same value as kio's class of it."""
    hints = get_type_hints(kind)
    fields = {}
    for field in dataclasses.fields(kind):
        ours = _KIO_TIMES.get(field.name, field.name)
        if hasattr(value, ours):  # otherwise one of the tagged fields, which are at their defaults
            fields[field.name] = _kio_value(getattr(value, ours), field.name, hints[field.name])
    return kind(**fields)


def _kio_value(value: Any, name: str, hint: Any) -> Any:
    if name in _KIO_TIMES:
        return timedelta(milliseconds=value)
    if name == "error_code":
        return ErrorCode(value)
    if name == "topic_id":
        return UUID(bytes=value) if any(value) else None
    if isinstance(value, list):
        element = next((one for one in _leaves(hint) if dataclasses.is_dataclass(one)), None)
        return tuple(to_kio(one, element) if element else one for one in value)
    return value


def _leaves(hint: Any) -> list[Any]:
    arguments = get_args(hint)
    return [leaf for one in arguments for leaf in _leaves(one)] if arguments else [hint]


def kio_bytes(entity: Any) -> bytes:
    """An entity as kio writes it."""
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


def kio_read(kind: Any, data: bytes) -> Any:
    """What kio reads."""
    found, _ = entity_reader(kind)(data, 0)
    return found


def kafka_python_class(api: Api, part: str) -> Any:
    """kafka-python's class of a request or response."""
    for module in ("admin", "metadata"):
        found = getattr(importlib.import_module(f"kafka.protocol.{module}"), f"{api.name}{part}", None)
        if found is not None:
            return found
    raise LookupError(api.name)


# kafka-python makes sets of these; that it writes what it read says that they are the same.
_MADE_SETS = ("cluster_authorized_operations", "topic_authorized_operations")


def same_as_kafka_python(value: msgspec.Struct, theirs: Any, version: int) -> bool:
    """Whether kafka-python read what we wrote."""
    names = [field.name for field in schema._fields_in(type(value), version)]
    read = [name for name in names if name not in _MADE_SETS]
    return all(_same(getattr(value, name), getattr(theirs, name), version) for name in read)


def _same(ours: Any, theirs: Any, version: int) -> bool:
    if isinstance(ours, list):
        pairs = zip(ours, theirs, strict=False)
        return len(ours) == len(theirs) and all(_same(one, other, version) for one, other in pairs)
    if isinstance(ours, msgspec.Struct):
        return same_as_kafka_python(ours, theirs, version)
    if isinstance(ours, bytes):
        return ours == (theirs.bytes if theirs is not None else bytes(16))
    return bool(ours == theirs)
