"""Requests and responses of every API and version that kio knows, as values and as frames."""

import dataclasses
import datetime
import importlib
import io
import types
from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple, Union, get_args, get_origin, get_type_hints
from uuid import UUID

from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from kio.schema.index import api_key_map, schema_name_map
from kio.serial._serialize import get_writer
from kio.static.constants import EntityType

from kquota.wire.primitives import uvarint
from tests.kit.wire_values import texts

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_SIGNED = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}

_hints = cache(get_type_hints)
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


def element_class(kind: Any, field: str) -> Any:
    """kio's class of the elements of a list."""
    return get_args(_hints(kind)[field])[0]


def entities(kind: Any) -> st.SearchStrategy[Any]:
    """Values of one of kio's classes, tagged fields among them."""
    return _entities(kind)


@cache
def _entities(kind: Any) -> st.SearchStrategy[Any]:
    hints = _hints(kind)
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
    hints = _hints(kind)
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


class Tags(NamedTuple):
    """Tagged fields that nobody knows: `number` of them, as bytes. Their numbers are higher than those of Kafka's."""

    number: int
    fields: bytes


NO_TAGS = Tags(0, b"")
FOREIGN_TAGS = Tags(2, b"\xc9\x01\3abc\xca\x01\0")
"""201 with three bytes, and 202 with none."""


def encoded(entity: Any, foreign: Tags = NO_TAGS) -> bytes:
    """An entity, with the given tagged fields at the end of every struct of it where the version is flexible."""
    kind: Any = type(entity)
    hints = _hints(kind)
    out, tagged = b"", []
    for field in dataclasses.fields(kind):
        value = getattr(entity, field.name)
        if "tag" not in field.metadata:
            out += _encoded(value, hints[field.name], field, kind.__flexible__, foreign)
        elif value != field.default:
            raw = _encoded(value, hints[field.name], field, kind.__flexible__, foreign)
            tagged.append((field.metadata["tag"], uvarint(field.metadata["tag"]) + uvarint(len(raw)) + raw))
    if not kind.__flexible__:
        return out
    return out + uvarint(len(tagged) + foreign.number) + b"".join(raw for _, raw in sorted(tagged)) + foreign.fields


def _encoded(value: Any, hint: Any, field: Any, is_flexible: bool, foreign: Tags) -> bytes:
    kinds = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    if any(get_origin(one) is tuple for one in kinds):
        element = next(get_args(one)[0] for one in kinds if get_origin(one) is tuple)
        count = -1 if value is None else len(value)
        head = uvarint(count + 1) if is_flexible else count.to_bytes(4, "big", signed=True)
        return head + b"".join(_encoded(one, element, field, is_flexible, foreign) for one in value or ())
    if any(dataclasses.is_dataclass(one) for one in kinds):
        marker = b"" if len(kinds) == 1 else b"\xff" if value is None else b"\1"
        return marker + (b"" if value is None else encoded(value, foreign))
    out = io.BytesIO()
    is_nullable = types.NoneType in kinds and "tag" not in field.metadata
    get_writer(field.metadata["kafka_type"], is_flexible, is_nullable)(out, value)
    return out.getvalue()


def response_frame(response: Any, foreign: Tags = NO_TAGS) -> bytes:
    """A response of kio's with its header and its size."""
    has_tags = type(response).__header_schema__.__flexible__
    header = b"\0\0\0\7" + (uvarint(foreign.number) + foreign.fields if has_tags else b"")
    frame = header + encoded(response, foreign)
    return len(frame).to_bytes(4, "big") + frame


def request_frame(request: Any, foreign: Tags = NO_TAGS, *, client_id: bytes | None = b"me") -> bytes:
    """A request of kio's with its header and its size."""
    kind = type(request)
    name = b"\xff\xff" if client_id is None else len(client_id).to_bytes(2, "big") + client_id
    head = kind.__api_key__.to_bytes(2, "big") + kind.__version__.to_bytes(2, "big") + b"\0\0\0\7" + name
    tags = uvarint(foreign.number) + foreign.fields if kind.__flexible__ else b""
    frame: bytes = head + tags + encoded(request, foreign)
    return len(frame).to_bytes(4, "big") + frame
