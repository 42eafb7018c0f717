"""Requests and responses of every API and version that kio knows, as values and as frames."""

import dataclasses
import datetime
import importlib
import types
from collections.abc import Mapping
from functools import cache
from typing import Any, Union, get_args, get_origin, get_type_hints
from uuid import UUID

from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from kio.schema.index import api_key_map, schema_name_map
from kio.static.constants import EntityType

from tests.kit.wire_values import kio_bytes, kio_read, texts

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_SIGNED = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}

_PLAIN: dict[str, st.SearchStrategy[Any]] = {
    **{name: st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for name, bits in _SIGNED.items()},
    "uint16": st.integers(0, 2**16 - 1),
    "float64": st.floats(allow_nan=False),
    "bool": st.booleans(),
    "string": texts,
    "bytes": st.binary(max_size=20),
    "records": st.binary(max_size=40),
    "uuid": st.uuids(),
    "error_code": st.sampled_from(list(ErrorCode)),
    "timedelta_i32": st.integers(-(2**31), 2**31 - 1).map(lambda ms: datetime.timedelta(milliseconds=ms)),
    "timedelta_i64": st.integers(0, 2**40).map(lambda ms: datetime.timedelta(milliseconds=ms)),
    "datetime_i64": st.integers(0, 2**40).map(lambda ms: _EPOCH + datetime.timedelta(milliseconds=ms)),
}
_LEAST: dict[str, Any] = {
    **dict.fromkeys((*_SIGNED, "uint16", "float64"), 0),
    "bool": False,
    "string": "",
    "bytes": b"",
    "records": b"",
    "uuid": UUID(int=1),
    "error_code": ErrorCode.none,
    "timedelta_i32": datetime.timedelta(),
    "timedelta_i64": datetime.timedelta(),
    "datetime_i64": _EPOCH,
}


def is_known(api_key: int, version: int) -> bool:
    """Whether kio has a schema of it: not of what Kafka 4.0 removed, nor of kquota's own."""
    return api_key in api_key_map and version in schema_name_map[api_key_map[api_key]]


def entity_class(api_key: int, version: int, part: str) -> Any:
    """kio's class of a `part`, "request" or "response"."""
    kinds: Mapping[Any, str] = schema_name_map[api_key_map[api_key]][version]
    module, name = kinds[EntityType[part]].split(":")
    return getattr(importlib.import_module(module), name)


def entities(kind: Any) -> st.SearchStrategy[Any]:
    """Values of one of kio's classes, tagged fields among them."""
    return _entities(kind)


@cache
def _entities(kind: Any) -> st.SearchStrategy[Any]:
    hints = get_type_hints(kind)
    return st.builds(kind, **{one.name: _values(hints[one.name], one) for one in dataclasses.fields(kind)})


def _values(hint: Any, field: Any) -> st.SearchStrategy[Any]:
    if get_origin(hint) in (Union, types.UnionType):
        inner, is_nullable = _without_none(hint)
        return st.none() | _values(inner, field) if is_nullable else _values(inner, field)
    if get_origin(hint) is tuple:
        return st.lists(_values(get_args(hint)[0], field), max_size=3).map(tuple)
    if dataclasses.is_dataclass(hint):
        return entities(hint)
    return _PLAIN[field.metadata["kafka_type"]]


def _without_none(hint: Any) -> tuple[Any, bool]:
    kinds = [one for one in get_args(hint) if one is not types.NoneType]
    return kinds[0], len(kinds) < len(get_args(hint))


def least(kind: Any, **given: Any) -> Any:
    """A value of one of kio's classes with empty lists and texts and zeros, except what is given."""
    hints = get_type_hints(kind)
    fields = {one.name: _least(hints[one.name], one) for one in dataclasses.fields(kind)}
    return kind(**{**fields, **given})


def _least(hint: Any, field: dataclasses.Field[Any]) -> Any:
    if "tag" in field.metadata:
        return field.default
    if get_origin(hint) in (Union, types.UnionType):
        return _least(_without_none(hint)[0], field)
    if get_origin(hint) is tuple:
        return ()
    return least(hint) if dataclasses.is_dataclass(hint) else _LEAST[field.metadata["kafka_type"]]


def response_frame(response: Any, *, correlation_id: int = 7, header_tags: bytes = b"\0") -> bytes:
    """A response of kio's with its header and its size; `header_tags` only where its header has a tag section."""
    tags = header_tags if type(response).__header_schema__.__flexible__ else b""
    frame = correlation_id.to_bytes(4, "big") + tags + kio_bytes(response)
    return len(frame).to_bytes(4, "big") + frame


def request_frame(request: Any, *, client_id: bytes | None = b"me", header_tags: bytes = b"\0") -> bytes:
    """A request of kio's with its header and its size."""
    kind = type(request)
    name = b"\xff\xff" if client_id is None else len(client_id).to_bytes(2, "big") + client_id
    head = kind.__api_key__.to_bytes(2, "big") + kind.__version__.to_bytes(2, "big") + b"\0\0\0\7" + name
    frame: bytes = head + (header_tags if kind.__flexible__ else b"") + kio_bytes(request)
    return len(frame).to_bytes(4, "big") + frame


def read_response(kind: Any, frame: bytes) -> Any:
    """The response in a frame whose header has no tagged fields; the size has to be right, and nothing left over."""
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    body = frame[9 if kind.__header_schema__.__flexible__ else 8 :]
    found = kio_read(kind, body)
    assert len(kio_bytes(found)) == len(body)
    return found
