"""A small notation for Kafka's messages, and the codec that is made of it.

A message is a frozen ``msgspec.Struct`` whose annotations say how each field stands on the wire::

    class Component(Struct, frozen=True, gc=False):
        entity_type: String
        match_type: Int8
        match: String | None

Messages are trees, so the garbage collector need not look for cycles in them (``gc=False``), which is quicker for large
ones. Fields that only some versions have carry :class:`Versions` and a default. One class serves all versions:
:func:`codec` compiles, once for each version, two functions without any branch on the version, as ``dataclasses``
compiles ``__init__``. Flexible versions (KIP-482) have compact lengths and a section of tagged fields after every
struct; of those none is written and all are skipped.

Decoding is total: any bytes give a value, or :class:`~kquota.errors.MalformedMessageError`. It is as lenient as Kafka's
own: invalid UTF-8 becomes U+FFFD, any byte but 0 is true, tags may come in any order, and what follows is ignored.
Memory is linear in the bytes there are, whatever lengths they announce; but an empty element of a list takes hundreds
of times the byte or two that announce it, so a reader may set a limit on the elements of all lists together.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Generic, Protocol, TypeVar, Union, get_args, get_origin, get_type_hints

from msgspec import Struct
from msgspec.structs import fields

from kquota.errors import IllegalArgumentError, MalformedMessageError, TooManyElementsError
from kquota.wire.primitives import (
    AS_JAVA,
    COMPACT_LENGTHS,
    COMPACT_NULL,
    COMPACT_WORDS,
    LENGTHS,
    NULL_ARRAY,
    NULL_STRING,
    TEXTS,
    WORDS,
    compact_length,
    compact_text,
    length,
    read_compact_length,
    skip_tags,
    text,
)

__all__ = [
    "Boolean",
    "Codec",
    "Encoded",
    "Float64",
    "Int8",
    "Int16",
    "Int32",
    "String",
    "Uuid",
    "Versions",
    "codec",
]


@dataclass(frozen=True, slots=True)
class _Fixed:
    """A number of constant size, by its letter in :mod:`struct`."""

    letter: str


class _Text:
    """UTF-8 with its length in front: two bytes, or compact."""


class _Encoded:
    """What was encoded before."""


@dataclass(frozen=True, slots=True)
class Versions:
    """The versions that have a field, ends included; in the others it is left out, and read as its default."""

    since: int = 0
    until: int = 32767
    nullable_since: int = 0
    """Where the field may be null at all, the version from which it may."""


Int8 = Annotated[int, _Fixed("b")]
Int16 = Annotated[int, _Fixed("h")]
Int32 = Annotated[int, _Fixed("i")]
Float64 = Annotated[float, _Fixed("d")]
Boolean = Annotated[bool, _Fixed("?")]
Uuid = Annotated[bytes, _Fixed("16s")]
String = Annotated[str, _Text()]
Encoded = Annotated[bytes, _Encoded()]
"""In lists of messages that are only written: an element as bytes, for what is sent again and again."""

T = TypeVar("T", bound=Struct)
T_co = TypeVar("T_co", covariant=True)


class _Read(Protocol[T_co]):
    def __call__(self, data: bytes, at: int, *, max_elements: int = ...) -> tuple[T_co, int]: ...


@dataclass(frozen=True, slots=True)
class Codec(Generic[T]):
    """How one message stands on the wire in one version."""

    read: _Read[T]
    """Of bytes and the position of the message, the message and the position after it.

    :raises MalformedMessageError: the bytes are no such message.
    :raises TooManyElementsError: its lists have more than `max_elements` elements in all, inner lists included.
    """
    parts: Callable[[T], list[bytes]]
    """The message as bytes that are to be joined: a large one then needs its memory once. Raises as :meth:`write`."""

    def write(self, value: T) -> bytes:
        """The message as bytes.

        :raises IllegalArgumentError: no message can hold this: a text of more than 32,767 bytes or with half a
            surrogate pair, a number that is none or too large for its field.
        """
        return b"".join(self.parts(value))


@cache
def codec(message: type[T], version: int, *, flexible: bool) -> Codec[T]:
    """The codec of a message in one version."""
    namespace: dict[str, Any] = {
        "ends": _ends,
        "is_null": _is_null,
        "too_many": _too_many,
        "lengths": COMPACT_LENGTHS if flexible else LENGTHS,
        "length": compact_length if flexible else length,
        "words": COMPACT_WORDS if flexible else WORDS,
        "text": compact_text if flexible else text,
        "texts": TEXTS,
        "compact_length": read_compact_length,
        "skip_tags": skip_tags,
        "null_text": COMPACT_NULL if flexible else NULL_STRING,
        "null_array": COMPACT_NULL if flexible else NULL_ARRAY,
        "i16": struct.Struct(">h").unpack_from,
        "i32": struct.Struct(">i").unpack_from,
    }
    reader = _Reader(namespace, version, flexible=flexible)
    writer = _Writer(namespace, version, flexible=flexible)
    exec("\n".join(reader.function(message) + writer.function(message)), namespace)  # noqa: S102 (of our own notation)
    read, parts = namespace["read"], namespace["parts"]

    def checked(data: bytes, at: int, *, max_elements: int = sys.maxsize) -> tuple[T, int]:
        try:
            found: tuple[T, int] = read(data, at, max_elements)
        except (struct.error, IndexError):
            raise MalformedMessageError(f"{message.__name__} ends too early") from None
        return found

    def checked_parts(value: T) -> list[bytes]:
        try:
            found: list[bytes] = parts(value)
        except struct.error as error:
            raise IllegalArgumentError(f"{message.__name__} holds a number that cannot be sent: {error}") from None
        except UnicodeEncodeError:
            raise IllegalArgumentError(f"{message.__name__} holds half a surrogate pair: it cannot be sent") from None
        return found

    return Codec(checked, checked_parts)


def _ends() -> None:
    raise IndexError


def _too_many(most: int) -> None:
    raise TooManyElementsError(most)


def _is_null(name: str) -> None:
    raise MalformedMessageError(f"{name} is null, and must not be")


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    kind: Any
    """A _Fixed, a _Text, a Struct class (never null), or a list of one of them or of _Encoded."""
    nullable: bool


def _fields_in(message: type[Struct], version: int) -> list[_Field]:
    hints = get_type_hints(message, include_extras=True)
    found = []
    for field in fields(message):
        hint, nullable, present = hints[field.name], False, Versions()
        while True:
            if get_origin(hint) is Annotated and isinstance(limits := hint.__metadata__[-1], Versions):
                present = limits
                hint = (
                    hint.__origin__ if len(hint.__metadata__) == 1 else Annotated[hint.__origin__, hint.__metadata__[0]]
                )
            elif get_origin(hint) in (Union, UnionType):
                [hint] = [one for one in get_args(hint) if one is not NoneType]
                nullable = True
            else:
                break
        if present.since <= version <= present.until:
            found.append(_Field(field.name, _kind(hint), nullable and version >= present.nullable_since))
    return found


def _kind(hint: Any) -> Any:
    if get_origin(hint) is list:
        return [_kind(get_args(hint)[0])]
    return hint.__metadata__[0] if get_origin(hint) is Annotated else hint


class _Source:
    """Lines of a function that is being written."""

    def __init__(self, namespace: dict[str, Any], version: int, *, flexible: bool) -> None:
        self.namespace = namespace
        self.version = version
        self.flexible = flexible
        self.lines: list[str] = []
        self.indent = 1
        self.names = 0

    def add(self, line: str) -> None:
        self.lines.append("    " * self.indent + line)

    def name(self) -> str:
        self.names += 1
        return f"v{self.names}"

    def constant(self, value: Any, hint: str) -> str:
        name = f"{hint}_{len(self.namespace)}"
        self.namespace[name] = value
        return name


class _Reader(_Source):
    def function(self, message: type[Struct]) -> list[str]:
        value = self.struct(message)
        self.add(f"return {value}, at")
        return ["def read(data, at, most):", "    end, left = len(data), most", *self.lines]

    def struct(self, message: type[Struct]) -> str:
        """Add what reads the fields; returns the expression that makes the struct of them."""
        values: dict[str, str] = {}
        run: list[tuple[str, str]] = []
        for field in _fields_in(message, self.version):
            values[field.name] = variable = self.name()
            if isinstance(field.kind, _Fixed):
                run.append((variable, field.kind.letter))
                continue
            self.fixed(run)
            if isinstance(field.kind, type):
                self.add(f"{variable} = {self.struct(field.kind)}")
            else:
                self.value(field, variable, f"{message.__name__}.{field.name}")
        self.fixed(run)
        if self.flexible:
            self.add("if data[at]: at = skip_tags(data, at)")
            self.add("else: at += 1")
        arguments = ", ".join(f"{name}={variable}" for name, variable in values.items())
        if list(values) == [field.name for field in fields(message)]:
            arguments = ", ".join(values.values())
        return f"{self.constant(message, 'struct')}({arguments})"

    def fixed(self, run: list[tuple[str, str]]) -> None:
        """Read numbers that stand side by side, all at once."""
        if run:
            layout = struct.Struct(">" + "".join(letter for _, letter in run))
            unpack = self.constant(layout.unpack_from, "unpack")
            self.add(f"{''.join(variable + ', ' for variable, _ in run)}= {unpack}(data, at)")
            self.add(f"at += {layout.size}")
            run.clear()

    def value(self, field: _Field, variable: str, path: str) -> None:
        count = self.name()
        if self.flexible:
            self.add(f"{count} = data[at] - 1")
            self.add(f"if {count} < 127: at += 1")
            self.add(f"else: {count}, at = compact_length(data, at)")
        else:
            self.add(f"{count}, = {'i32' if isinstance(field.kind, list) else 'i16'}(data, at)")
            self.add(f"at += {4 if isinstance(field.kind, list) else 2}")
        self.add(f"if {count} < 0:")
        self.add(f"    {variable} = None" if field.nullable else f"    is_null({path!r})")
        self.add("else:")
        self.indent += 1
        if isinstance(field.kind, list):
            self.array(field.kind[0], variable, count, path)
        else:
            self.text(variable, count)
        self.indent -= 1

    def text(self, variable: str, count: str) -> None:
        stop = self.name()
        self.add(f"{stop} = at + {count}")
        # What is longer cannot be said in two bytes, and Kafka refuses it in the compact form, too.
        self.add(f"if {stop} > end or {count} > 32767: ends()")
        self.add(f"{variable} = data[at:{stop}]")
        self.add(f"{variable} = texts.get({variable}) or {variable}.decode('utf-8', {AS_JAVA!r})")
        self.add(f"at = {stop}")

    def array(self, kind: Any, variable: str, count: str, path: str) -> None:
        # Each element is at least a byte long, so a list cannot grow beyond what is there.
        self.add(f"if {count} > end - at: ends()")
        self.add(f"left -= {count}")
        self.add("if left < 0: too_many(most)")
        append = self.name()
        self.add(f"{variable} = []")
        self.add(f"{append} = {variable}.append")
        self.add(f"for _ in range({count}):")
        self.indent += 1
        if isinstance(kind, type):
            self.add(f"{append}({self.struct(kind)})")
        elif isinstance(kind, _Encoded):
            self.add(f"raise TypeError({path + ' is only written'!r})")
        else:
            one = self.name()
            if isinstance(kind, _Fixed):
                self.fixed([(one, kind.letter)])
            else:
                self.value(_Field("", kind, nullable=False), one, path)
            self.add(f"{append}({one})")
        self.indent -= 1


class _Writer(_Source):
    def function(self, message: type[Struct]) -> list[str]:
        self.struct(message, "value")
        return [
            "def parts(value):",
            "    parts = []",
            "    put = parts.append",
            *self.lines,
            "    return parts",
        ]

    def struct(self, message: type[Struct], value: str) -> None:
        run: list[tuple[str, str]] = []
        for field in _fields_in(message, self.version):
            expression = f"{value}.{field.name}"
            if isinstance(field.kind, _Fixed):
                run.append((expression, field.kind.letter))
                continue
            self.fixed(run)
            if isinstance(field.kind, type):
                self.struct(field.kind, expression)
            else:
                self.value(field, expression)
        self.fixed(run, tags=self.flexible)

    def fixed(self, run: list[tuple[str, str]], *, tags: bool = False) -> None:
        """Write numbers that stand side by side, and an empty section of tagged fields, all at once."""
        if run:
            layout = struct.Struct(">" + "".join(letter for _, letter in run) + ("x" if tags else ""))
            pack = self.constant(layout.pack, "pack")
            self.add(f"put({pack}({', '.join(expression for expression, _ in run)}))")
        elif tags:
            self.add("put(b'\\0')")
        run.clear()

    def value(self, field: _Field, expression: str) -> None:
        variable = self.name()
        self.add(f"{variable} = {expression}")
        if field.nullable:
            null = "null_array" if isinstance(field.kind, list) else "null_text"
            self.add(f"if {variable} is None: put({null})")
            self.add("else:")
            self.indent += 1
        if isinstance(field.kind, list):
            self.array(field.kind[0], variable)
        else:
            self.add(f"put(words.get({variable}) or text({variable}))")
        if field.nullable:
            self.indent -= 1

    def array(self, kind: Any, variable: str) -> None:
        count, one = self.name(), self.name()
        self.add(f"{count} = len({variable})")
        self.add(f"put(lengths[{count}] if {count} < 127 else length({count}))")
        self.add(f"for {one} in {variable}:")
        self.indent += 1
        if isinstance(kind, type):
            self.struct(kind, one)
        elif isinstance(kind, _Fixed):
            self.fixed([(one, kind.letter)])
        elif isinstance(kind, _Encoded):
            self.add(f"put({one})")
        else:
            self.add(f"put(words.get({one}) or text({one}))")
        self.indent -= 1
