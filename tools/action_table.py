"""Writes `src/kquota/gateway/relay/action_table.py`, the APIs that the gateway forwards, from the schemas of kio.

    python tools/action_table.py          write it
    python tools/action_table.py --check  say whether it is up to date

kio's schemas are made from the message definitions of Kafka 4.2. Versions that Kafka 4.0 removed (KIP-896) are
not in them, and are written here.
"""

import dataclasses
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kio.schema.index import api_key_map, schema_name_map
from kio.static.constants import EntityType

TARGET = Path(__file__).parents[1] / "src" / "kquota" / "gateway" / "relay" / "action_table.py"

NOT_FORWARDED = {
    # Only brokers and controllers send these.
    4, 5, 6, 7, 52, 53, 54, 56, 58, 59, 62, 63, 67, 70, 73, 82, 83, 84, 85, 86, 87,
    # ShareFetch and ShareAcknowledge: their answers carry addresses of brokers that nobody rewrites yet.
    78, 79,
}  # fmt: skip

LAST_VERSION = {
    1: 15,  # Fetch: from 16 on, an answer may end with addresses of brokers (KIP-951), and has to be buffered for them
}

# The versions before those of kio: the first one, and the one that `throttle_time_ms` came with.
# None of them is flexible, except the early access of share groups.
OLDER = {
    0: (0, 1),  # Produce
    1: (0, 1),  # Fetch
    2: (0, 2),  # ListOffsets
    8: (0, 3),  # OffsetCommit
    9: (0, 3),  # OffsetFetch
    19: (0, 2),  # CreateTopics
    20: (0, 1),  # DeleteTopics
    23: (0, 2),  # OffsetForLeaderEpoch
    27: (0, None),  # WriteTxnMarkers
    29: (0, 0),  # DescribeAcls
    30: (0, 0),  # CreateAcls
    31: (0, 0),  # DeleteAcls
    32: (0, 0),  # DescribeConfigs
    34: (0, 0),  # AlterReplicaLogDirs
    35: (0, 0),  # DescribeLogDirs
    38: (0, 0),  # CreateDelegationToken
    39: (0, 0),  # RenewDelegationToken
    40: (0, 0),  # ExpireDelegationToken
    41: (0, 0),  # DescribeDelegationToken
    76: (0, 0),  # ShareGroupHeartbeat
    77: (0, 0),  # ShareGroupDescribe
}
FLEXIBLE_FROM_THE_FIRST = {76, 77}

HEAD = '''"""The APIs that the gateway forwards. Written by ``tools/action_table.py``: change that, and run it.

A row: API key, name, first version, last version; then versions *since* which, None for never: requests and responses
are flexible, response headers have a tag section, responses have ``throttle_time_ms``; and its place.
"""

from __future__ import annotations

from typing import Final, Literal

__all__ = ["ROWS", "Row"]

Place = Literal["first", "after error code", "last"]
Row = tuple[int, str, int, int, int | None, int | None, int | None, Place]

# fmt: off
ROWS: Final[tuple[Row, ...]] = (
'''

RESOLVE_QUOTAS = (10546, "ResolveQuotas", 0, 0, 0, 0, 0, "first")  # kquota's own; no schema of Kafka's has it


def schemas(key: int) -> dict[int, tuple[Any, Any]]:
    """kio's classes of the request and the response, by version."""
    return {
        version: (_load(kinds[EntityType.request]), _load(kinds[EntityType.response]))
        for version, kinds in sorted(schema_name_map[api_key_map[key]].items())
        if version <= LAST_VERSION.get(key, version)
    }


def _load(path: str) -> Any:
    module, name = path.split(":")
    return getattr(importlib.import_module(module), name)


def since(true_of: dict[int, bool]) -> int | None:
    """The version since which it is true.

    :raises ValueError: it is not true of all versions after that one.
    """
    first = next((version for version, true in true_of.items() if true), None)
    if any(true != (first is not None and version >= first) for version, true in true_of.items()):
        raise ValueError(f"true, and later not: {true_of}")
    return first


def place(response: Any) -> str | None:
    """Where `throttle_time_ms` is among the fields that are not tagged."""
    fields = [field.name for field in dataclasses.fields(response) if "tag" not in field.metadata]
    if "throttle_time" not in fields:
        return None
    at = fields.index("throttle_time")
    if at == 0:
        return "first"
    if fields[:at] == ["error_code"] and at < len(fields) - 1:
        return "after error code"
    if at == len(fields) - 1:
        return "last"
    raise ValueError(f"{response}: throttle_time_ms is neither first nor last")


def row(key: int) -> tuple[object, ...]:
    classes = schemas(key)
    if any(request.__flexible__ != response.__flexible__ for request, response in classes.values()):
        raise ValueError(f"{key}: a request is flexible and its response is not")
    first, last = min(classes), max(classes)
    places = {version: place(response) for version, (_, response) in classes.items()}
    (found,) = set(places.values()) - {None} or {"first"}
    throttle_since = since({version: one is not None for version, one in places.items()})
    flexible_since = since({version: bool(request.__flexible__) for version, (request, _) in classes.items()})
    tagged_since = since({version: bool(one.__header_schema__.__flexible__) for version, (_, one) in classes.items()})
    if key in OLDER:
        first, throttle_since = OLDER[key]
        if key in FLEXIBLE_FROM_THE_FIRST:
            flexible_since = tagged_since = first
    name = classes[last][0].__name__.removesuffix("Request")
    return key, name, first, last, flexible_since, tagged_since, throttle_since, found


def rows() -> Iterator[tuple[object, ...]]:
    for key in sorted(api_key_map):
        if key not in NOT_FORWARDED:
            yield row(key)
    yield RESOLVE_QUOTAS


def written() -> str:
    """The module."""
    lines = [", ".join(f'"{one}"' if isinstance(one, str) else str(one) for one in a_row) for a_row in rows()]
    return HEAD + "".join(f"    ({line}),\n" for line in lines) + ")\n"


def main() -> int:
    if "--check" in sys.argv[1:]:
        is_same = TARGET.read_text() == written()
        print(f"{TARGET.name} is up to date" if is_same else f"{TARGET.name} is not what the schemas say")
        return 0 if is_same else 1
    TARGET.write_text(written())
    return 0


if __name__ == "__main__":
    sys.exit(main())
