r"""Names of MBeans, as JMX prints them: ``kafka.server:type=Produce,user=alice,client-id="a\*b"``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from kquota.pipeline.ingest.request_log.line import RejectedLineError

__all__ = ["MBean", "jmx_unquote", "parse_mbean"]

_PROPERTY: Final = re.compile(r'([^=,:*?]+)=("(?:[^"\\]|\\.)*"|[^,=:"*?]*)(?:,|$)')
_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)


class MBean(NamedTuple):
    """A parsed name; `tags` are the properties other than the type, unquoted, in any order."""

    domain: str
    type: str
    tags: Mapping[str, str]


def parse_mbean(name: str) -> MBean:
    """Read an MBean's name.

    :raises RejectedLineError: it is none.
    """
    domain, colon, rest = name.partition(":")
    tags: dict[str, str] = {}
    position = 0
    while position < len(rest):
        match = _PROPERTY.match(rest, position)
        if match is None:
            break
        tags[match[1]] = jmx_unquote(match[2])
        position = match.end()
    if not domain or not colon or not tags or position != len(rest) or rest.endswith(","):
        raise RejectedLineError("not the name of an MBean")
    return MBean(domain, tags.pop("type", ""), tags)


def jmx_unquote(value: str) -> str:
    """The inverse of ``ObjectName.quote``; text without quotes is returned as it is."""
    if len(value) < 2 or value[0] != '"' or value[-1] != '"':
        return value
    return _ESCAPE.sub(lambda match: "\n" if match[1] == "n" else match[1], value[1:-1])
